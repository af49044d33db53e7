//! Every text gives a location or a typed error with a hint, and a typing slip never opens anything.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use atoll_open::{
    CassandraQuery, CassandraUrl, Location, Mode, OpenOptions, StoreUrl, TlsChoice, UrlError, open,
};
use atoll_store::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

fn folder(text: &str) -> PathBuf {
    match StoreUrl::parse(text).unwrap().location {
        Location::Folder(path) => path,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn paths_and_file_urls_name_folders() {
    for (text, path) in [
        ("data", "data"),
        ("/scratch/run 7", "/scratch/run 7"),
        ("./a:b", "./a:b"),
        ("100%", "100%"),
        ("file:data", "data"),
        ("file:/scratch/data", "/scratch/data"),
        ("file:///scratch/data", "/scratch/data"),
        ("file://localhost/scratch", "/scratch"),
        ("file:run%207%3F", "run 7?"),
        ("file:100%25?", "100%"),
    ] {
        assert_eq!(folder(text), PathBuf::from(path), "{text}");
    }
    assert_eq!(StoreUrl::parse("mem:").unwrap().location, Location::Memory);
}

#[cfg(unix)]
#[test]
fn percent_escapes_can_name_any_byte_that_a_path_can_hold() {
    use std::os::unix::ffi::OsStrExt;
    assert_eq!(folder("file:%ff%2f").as_os_str().as_bytes(), b"\xff/");
    assert!(matches!(StoreUrl::parse("file:a%00"), Err(UrlError::Escape { .. })));
    assert!(matches!(StoreUrl::parse("file:a%2"), Err(UrlError::Escape { .. })));
    assert!(matches!(StoreUrl::parse("file:a%zz"), Err(UrlError::Escape { .. })));
    assert!(matches!(StoreUrl::parse("file:%é"), Err(UrlError::Escape { .. })));
}

#[test]
fn the_query_goes_before_the_options_given() {
    let url = "file:data?mode=read&create=no&memory=64MiB&checkpoint=1MiB&keep=2s";
    let options = StoreUrl::parse(url).unwrap().apply_to(&OpenOptions::default());
    let expected = OpenOptions {
        mode: Mode::Read,
        create: false,
        memory_bytes: 64 << 20,
        checkpoint_bytes: 1 << 20,
        keep: Duration::from_secs(2),
        ..OpenOptions::default()
    };
    assert_eq!(options, expected);
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    for (text, message) in [
        ("", "it is empty"),
        ("data?mode=read", "\"data?mode=read\" could be a path or a path with a query"),
        ("fiel:data", "\"fiel:\" is not a kind of store; did you mean \"file\"?"),
        ("s3://bucket", "\"s3:\" is not a kind of store"),
        ("file:", "no path follows \"file:\""),
        ("file://server/x", "\"server\" is another host, and `file:` names folders of this one"),
        ("mem:scratch", "nothing may follow \"mem:\" but a query; found \"scratch\""),
        ("file:x#y", "\"#y\" is a fragment, and a store has none"),
        ("file:x?mode", "\"mode\" in the query is not key=value"),
        ("file:x?mood=read", "there is no query key \"mood\"; did you mean \"mode\"?"),
        ("file:x?mode=read&mode=read", "query key \"mode\" is given twice"),
        ("file:x?mode=rw", "query key \"mode\": \"rw\" is not read or write"),
    ] {
        let error = StoreUrl::parse(text).unwrap_err();
        assert_eq!(error.to_string(), message, "{text}");
        assert!(!error.hint().is_empty(), "{text}");
    }
}

#[tokio::test]
async fn a_text_that_names_no_store_is_refused_with_a_hint() {
    for (url, kind) in [("ring:job-17", ErrorKind::InvalidInput), ("http://host", ErrorKind::InvalidInput)] {
        let Err(error) = open(url, &OpenOptions::default()).await else { panic!("{url} opened") };
        assert_eq!(error.kind(), kind, "{url}");
        assert!(error.hint().is_some(), "{url}");
    }
}

#[test]
fn random_texts_never_panic_the_parser() {
    let seed = 7;
    let mut random = fastrand::Rng::with_seed(seed);
    let words = [
        "file:",
        "mem:",
        "ring:",
        "cassandra:",
        "host",
        "@",
        ",",
        "//",
        "/",
        "?",
        "mode=read",
        "&",
        "=",
        "%",
        "%2",
        "%ff",
        "#",
        "é",
        "a",
        ":",
    ];
    let mut accepted = 0;
    for round in 0..50_000 {
        let text: String = (0..random.usize(0..8)).map(|_| words[random.usize(..words.len())]).collect();
        let caught = std::panic::catch_unwind(|| atoll_open::fuzz::url(text.as_bytes()));
        accepted += usize::from(caught.unwrap_or_else(|_| panic!("seed {seed}, round {round}: {text:?}")));
    }
    assert!(accepted > 1000, "only {accepted} of the texts got past the surface");
}

fn cassandra(text: &str) -> CassandraUrl {
    match StoreUrl::parse(text).unwrap().location {
        Location::Cassandra(url) => *url,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn cassandra_urls_name_hosts_keyspace_and_what_else_matters() {
    let least = cassandra("cassandra://node-1/atoll");
    assert_eq!((least.contacts, least.keyspace, least.user), (vec!["node-1".into()], "atoll".into(), None));
    assert_eq!(least.query, CassandraQuery::default());

    let most = cassandra(
        "cassandra://ada%40lab@node-1:19042,10.0.0.2,[::1]:9042/run_7?consistency=local-quorum&datacenter=east\
         &replication=3&tls=/etc/ca.pem&password-file=~%2Fsecret&connect-time-out=3s&time-out=1min&mode=read\
         &create=false&memory=64MiB&beside=10.0.0.2",
    );
    assert_eq!(most.user.as_deref(), Some("ada@lab"));
    assert_eq!(most.contacts, ["node-1:19042", "10.0.0.2", "[::1]:9042"]);
    let query = CassandraQuery {
        mode: Some(Mode::Read),
        create: Some(false),
        is_local: true,
        datacenter: Some("east".into()),
        beside: Some("10.0.0.2".parse().unwrap()),
        replication: Some(3),
        tls: Some(TlsChoice::File("/etc/ca.pem".into())),
        password_file: Some("~/secret".into()),
        connect_time_out: Some(Duration::from_secs(3)),
        time_out: Some(Duration::from_secs(60)),
        memory_bytes: Some(64 << 20),
    };
    assert_eq!(most.query, query);
}

const PASSWORD: &str = "a password must not be in a URL";

#[test]
fn a_wrong_cassandra_url_says_what_is_wrong_and_never_shows_a_password() {
    for (text, message) in [
        ("cassandra:", "no host follows \"cassandra://\""),
        ("cassandra:///k", "no host follows \"cassandra://\""),
        ("cassandra://a,,b/k", "no host follows \"cassandra://\""),
        ("cassandra://a b/k", "\"a b\" is not a host or host:port"),
        ("cassandra://a:0/k", "\"a:0\" is not a host or host:port"),
        ("cassandra://a:99999/k", "\"a:99999\" is not a host or host:port"),
        ("cassandra://[::1/k", "\"[::1\" is not a host or host:port"),
        ("cassandra://a", "no keyspace follows the hosts"),
        ("cassandra://a/", "no keyspace follows the hosts"),
        (
            "cassandra://a/k-1",
            "\"k-1\" is not the name of a keyspace: 1 to 48 letters, digits or underscores",
        ),
        ("cassandra://ada:hunter2@a/k", PASSWORD),
        ("cassandra://ada:se#hunter2@a/k", PASSWORD),
        ("cassandra://ada:hunter2/se@a/k", PASSWORD),
        ("cassandra://ada:1234/hunter2@a/k", PASSWORD),
        ("cassandra://ada:1234/k?hunter2@a/k", PASSWORD),
        ("cassandra://ada:1234/k?tls=on&hunter2=x@a/k", PASSWORD),
        ("cassandra:ada:hunter2@a/k", PASSWORD),
        ("cassandra://ada%3Ahunter2@a/k", PASSWORD),
        (
            "cassandra://a/k?consistency=one",
            "query key \"consistency\": \"one\" is not quorum or local-quorum",
        ),
        (
            "cassandra://a/k?consistancy=quorum",
            "there is no query key \"consistancy\"; did you mean \"consistency\"?",
        ),
        ("cassandra://a/k?tls=yes", "query key \"tls\": \"yes\" is not on, off or the path of a PEM file"),
        ("cassandra://a/k?mode=read&mode=read", "query key \"mode\" is given twice"),
    ] {
        let error = StoreUrl::parse(text).unwrap_err();
        assert_eq!(error.to_string(), message, "{text}");
        assert!(!error.hint().is_empty() && !format!("{error:?}").contains("hunter2"), "{text}");
    }
}
