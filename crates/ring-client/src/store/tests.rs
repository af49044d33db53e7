//! A store at nodes with scripted answers, on a clock that stands still while anything is done.

mod astray;
mod durability;
mod finding;
mod listing;
mod loading;
mod names;
mod users;
mod waiting;

use super::*;
use crate::stub::{Answer, Stub, usual};
use atoll_resp::LatencyClass;
use atoll_store::{ErrorKind, RequestId};
use tokio::io::AsyncReadExt;

const FULL: &str = "-ERR max number of clients reached\r\n";

/// A node without room for its first connections.
async fn full_for(connections: usize) -> Stub {
    Stub::start(move |port, connection, words| match connection < connections {
        true => Answer::Ends(FULL.to_owned()),
        false => usual(port, words).unwrap(),
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_full_is_asked_again_until_it_has_a_place() {
    for token in [None, Some("secret".to_owned())] {
        let node = full_for(4).await;
        let options = RingOptions { token, ..RingOptions::of(vec![node.address.clone()]) };
        RingStore::open(options).await.unwrap();
        assert_eq!(node.came("CONFIG").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stays_full_is_unavailable_and_says_why() {
    let node = full_for(usize::MAX).await;
    let patience = Duration::from_millis(50);
    let token = Some("secret".to_owned());
    let options = RingOptions { token, patience, ..RingOptions::of(vec![node.address.clone()]) };
    let error = RingStore::open(options).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("max number of clients"), "{error}");
    assert!(node.came("").len() > 1);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a certificate is good from a moment on")]
async fn who_encrypts_where_nobody_does_is_told_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        // Like a node without a certificate, which ends a connection that begins with TLS.
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 1024]).await;
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("authority.pem");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let issued = atoll_tls::Authority::make().unwrap().issued(now).unwrap();
    std::fs::write(&authority, issued.certificate).unwrap();
    let tls = Some(atoll_tls::ClientTls::of_files(&authority).unwrap());
    let patience = Duration::from_secs(3600);
    let opened = RingStore::open(RingOptions { tls, patience, ..RingOptions::of(vec![address]) });
    let told = tokio::time::timeout(Duration::from_secs(30), opened).await.expect("at once");
    assert_eq!(told.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
}

const CELL: Cell<'_> = Cell { partition: b"p", sort: b"s" };

/// A store at a node that answers watches by `watch`, and has a value at the second read.
async fn waited_at(watch: fn(&str) -> String) -> (Stub, RingStore) {
    let looks = AtomicU64::new(0);
    let node = Stub::start(move |port, _, words| {
        let has_value = || looks.fetch_add(1, Ordering::SeqCst) > 0;
        usual(port, words).unwrap_or_else(|| match words.split(' ').next().unwrap() {
            "AT.GET" if has_value() => Answer::Says("$1\r\nv\r\n".to_owned()),
            "AT.GET" => Answer::Says("$-1\r\n".to_owned()),
            "AT.WATCH" => Answer::Says(watch(words)),
            _ => Answer::Hangs,
        })
    })
    .await;
    let store = RingStore::open(RingOptions::of(vec![node.address.clone()])).await.unwrap();
    (node, store)
}

#[tokio::test(start_paused = true)]
async fn a_node_is_asked_to_wait_for_no_longer_than_would_be_bad_if_it_told_nothing() {
    let (node, store) = waited_at(|words| {
        let id = words.split(' ').nth(1).unwrap();
        format!("+OK\r\n>4\r\n$8\r\nat.watch\r\n:{id}\r\n:1\r\n$1\r\nv\r\n")
    })
    .await;
    let expected = Expectation::Differs(None);
    let waited = store.wait(CELL, expected, Duration::from_secs(7200)).await.unwrap();
    assert!(matches!(waited, Waited::Met(Some(value)) if value.as_ref() == b"v"));
    let asked = node.came("AT.WATCH");
    let milliseconds: u64 = asked[0].split(' ').nth(2).unwrap().parse().unwrap();
    assert!(milliseconds <= 10_001, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_looks_once_more_before_it_says_that_its_time_is_over() {
    let (node, store) = waited_at(|_| "+OK\r\n".to_owned()).await;
    let expected = Expectation::Differs(None);
    let waited = store.wait(CELL, expected, Duration::from_millis(50)).await.unwrap();
    assert!(matches!(waited, Waited::Met(Some(value)) if value.as_ref() == b"v"));
    assert!(node.came("AT.GET").iter().all(|words| words == "AT.GET p s"), "{:?}", node.came("AT.GET"));
    // A value that is missing then is no reason to wait longer.
    let expected = Expectation::Equals(None);
    let waited = store.wait(CELL, expected, Duration::from_millis(50)).await.unwrap();
    assert!(matches!(waited, Waited::TimedOut));
    // Whether it is missing is known without any of its bytes.
    assert_eq!(node.came("AT.GET p s 0").len(), 2, "{:?}", node.came("AT.GET"));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_be_done_is_not_sent_again_when_nodes_may_have_forgotten_it() {
    let node = Stub::start(|port, _, words| {
        let is_first = words.starts_with("AT.ID ") && words.ends_with(" first");
        usual(port, words).unwrap_or_else(|| match is_first {
            true => Answer::Ends(String::new()),
            false => Answer::Says("-CLUSTERDOWN Hash slot not served\r\n".to_owned()),
        })
    })
    .await;
    let (patience, doubt_max) = (Duration::from_secs(30), Duration::from_millis(100));
    let options = RingOptions { patience, doubt_max, ..RingOptions::of(vec![node.address.clone()]) };
    let store = RingStore::open(options).await.unwrap();
    let began = tokio::time::Instant::now();
    let error =
        store.write(Batch::on(b"p").put(b"s", &b"first"[..]), WriteOptions::default()).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert!(began.elapsed() < patience / 2, "{:?}", began.elapsed());
    // A write that certainly was not done is sent again for as long as a call goes on.
    let patience = Duration::from_millis(500);
    let options = RingOptions { patience, doubt_max, ..RingOptions::of(vec![node.address.clone()]) };
    let store = RingStore::open(options).await.unwrap();
    let began = tokio::time::Instant::now();
    let error =
        store.write(Batch::on(b"p").put(b"s", &b"second"[..]), WriteOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Refused));
    assert!(began.elapsed() >= patience);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_its_caller_may_have_sent_before_is_sent_no_longer_than_nodes_surely_remember_it() {
    let node = Stub::start(|port, _, words| {
        let refused = || Answer::Says("-CLUSTERDOWN Hash slot not served\r\n".to_owned());
        usual(port, words).unwrap_or_else(refused)
    })
    .await;
    let (patience, doubt_max) = (Duration::from_secs(30), Duration::from_secs(2));
    let options = RingOptions { patience, doubt_max, ..RingOptions::of(vec![node.address.clone()]) };
    let store = RingStore::open(options).await.unwrap();
    let request = Some(RequestId { client: 1, sequence: 1 });
    for (request, is_short) in [(request, true), (None, false)] {
        let began = tokio::time::Instant::now();
        let options = WriteOptions { request, ..WriteOptions::default() };
        let error = store.write(Batch::on(b"p").put(b"s", &b"v"[..]), options).await.unwrap_err();
        // This call was refused each time. Of an earlier one only the caller knows.
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Refused));
        assert_eq!(began.elapsed() < 2 * doubt_max, is_short, "{:?}", began.elapsed());
    }
}

/// Two nodes: the first leads everything until it gets this request, and from then on hangs while the other
/// one leads everything.
async fn hanging(at: &'static str) -> (Stub, Stub) {
    let hangs = Arc::new(AtomicBool::new(false));
    let hangs_too = Arc::clone(&hangs);
    let first = Stub::start(move |port, _, words| {
        let hangs_now = words.starts_with(at) || hangs.load(Ordering::SeqCst);
        hangs.store(hangs_now, Ordering::SeqCst);
        if hangs_now {
            Answer::Hangs
        } else {
            usual(port, words).unwrap_or_else(|| Answer::Says("+OK\r\n".into()))
        }
    })
    .await;
    let first_port = first.address.rsplit(':').next().unwrap().parse().unwrap();
    let second = Stub::start(move |port, _, words| {
        let leads = if hangs_too.load(Ordering::SeqCst) { port } else { first_port };
        usual(leads, words).unwrap_or_else(|| {
            let text = match words.split(' ').next().unwrap() {
                "AT.ID" => "*2\r\n:0\r\n+OK\r\n",
                "AT.GET" => "$1\r\nv\r\n",
                _ => "+OK\r\n",
            };
            Answer::Says(text.to_owned())
        })
    })
    .await;
    (first, second)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_costs_little_of_the_time_of_a_call() {
    for latency in [LatencyClass::None, LatencyClass::FiveHundred] {
        let (first, second) = hanging("AT.ID ").await;
        let [connect_time_out, silence_first] = [Duration::from_millis(300); 2];
        let seeds = vec![first.address.clone(), second.address.clone()];
        let options = RingOptions { connect_time_out, silence_first, latency, ..RingOptions::of(seeds) };
        let store = RingStore::open(options).await;
        let began = tokio::time::Instant::now();
        let batch = Batch::on(b"p").put(b"s", &b"v"[..]);
        store.unwrap().write(batch, WriteOptions::default()).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let sent: Vec<_> = [first.came("AT.ID"), second.came("AT.ID")].concat();
        assert!(sent.len() > 1 && sent.iter().all(|words| *words == sent[0]), "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_costs_little_of_the_time_of_a_read() {
    for latency in [LatencyClass::None, LatencyClass::FiveHundred] {
        let (first, second) = hanging("AT.GET ").await;
        let [connect_time_out, silence_first] = [Duration::from_millis(300); 2];
        let seeds = vec![first.address.clone(), second.address.clone()];
        let options = RingOptions { connect_time_out, silence_first, latency, ..RingOptions::of(seeds) };
        let store = RingStore::open(options).await.unwrap();
        let began = tokio::time::Instant::now();
        let value = store.get(CELL, ReadOptions::default()).await.unwrap();
        assert_eq!(value.as_deref(), Some(&b"v"[..]));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_answers_one_after_the_other_is_not_taken_for_one_that_hangs() {
    let node = Stub::start(|port, _, words| {
        usual(port, words).unwrap_or_else(|| match words.starts_with("AT.GET ") {
            true => Answer::Late(Duration::from_millis(400), "$1\r\nv\r\n".to_owned()),
            false => Answer::Says("+OK\r\n".to_owned()),
        })
    })
    .await;
    let options = RingOptions {
        latency: LatencyClass::Fifty,
        silence_first: Duration::from_millis(1_000),
        ..RingOptions::of(vec![node.address.clone()])
    };
    let store = RingStore::open(options).await.unwrap();
    let get = || store.get(CELL, ReadOptions::default());
    let (one, two, three, four) = tokio::join!(get(), get(), get(), get());
    assert!([one, two, three, four].iter().all(Result::is_ok));
    assert_eq!(node.came("AT.GET").len(), 4, "each is asked for once");
}

#[tokio::test(start_paused = true)]
async fn writes_that_a_node_does_not_answer_one_after_the_other_share_what_the_first_of_them_made_anew() {
    // How long they pause.
    fastrand::seed(7);
    let node = Stub::start(|port, _, words| match words.starts_with("AT.CLASS") {
        true => Answer::Says("+OK\r\n".to_owned()),
        false => usual(port, words).unwrap_or(Answer::Hangs),
    })
    .await;
    let options = RingOptions {
        latency: LatencyClass::Fifty,
        silence_first: Duration::from_millis(400),
        patience: Duration::from_millis(900),
        request_time_out: Duration::from_millis(900),
        ..RingOptions::of(vec![node.address.clone()])
    };
    let store = RingStore::open(options).await.unwrap();
    let writes = (0..20).map(|number| {
        let store = &store;
        async move {
            tokio::time::sleep(Duration::from_millis(15 * number)).await;
            let batch = Batch::on(b"p").put(b"s", &b"v"[..]);
            store.write(batch, WriteOptions::default()).await.unwrap_err()
        }
    });
    futures::future::join_all(writes).await;
    let made = node.came("AT.CLASS").len();
    assert_eq!(made, 4, "connections, of 20 writes");
}

#[tokio::test(start_paused = true)]
async fn who_has_what_may_come_slowly() {
    for latency in [LatencyClass::None, LatencyClass::FiveHundred] {
        let node = Stub::start(|port, _, words| match (usual(port, words), words) {
            (Some(Answer::Says(text)), "AT.TABLE") => Answer::Slowly(Duration::from_millis(200), text),
            (answer, _) => answer.unwrap_or_else(|| Answer::Says("+OK\r\n".to_owned())),
        })
        .await;
        let connect_time_out = Duration::from_millis(600);
        let options =
            RingOptions { connect_time_out, latency, ..RingOptions::of(vec![node.address.clone()]) };
        RingStore::open(options).await.unwrap();
        assert_eq!(node.came("AT.TABLE").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_slow_is_waited_for_where_nobody_else_has_it() {
    let node = Stub::start(|port, _, words| match usual(port, words) {
        Some(answer) => answer,
        None => Answer::Hangs,
    })
    .await;
    let short = Duration::from_millis(50);
    let options = RingOptions {
        connect_time_out: short,
        silence_first: short,
        patience: Duration::from_millis(200),
        request_time_out: Duration::from_millis(1_500),
        ..RingOptions::of(vec![node.address.clone()])
    };
    let store = RingStore::open(options).await.unwrap();
    let began = tokio::time::Instant::now();
    let batch = Batch::on(b"p").put(b"s", &b"v"[..]);
    let error = store.write(batch, WriteOptions::default()).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert!(began.elapsed() >= Duration::from_millis(1_500), "the last try takes as long as one may");
}

#[tokio::test(start_paused = true)]
async fn the_last_try_takes_as_long_as_one_may_though_the_one_before_was_noticed_late() {
    let tries = AtomicU64::new(0);
    let node = Stub::start(move |port, _, words| match usual(port, words) {
        Some(answer) => answer,
        // While the first try waits, this program gets no processor until the whole call should be over.
        None if tries.fetch_add(1, Ordering::SeqCst) == 0 => Answer::Stalls(Duration::from_millis(300)),
        None => Answer::Late(Duration::from_millis(1_000), "*2\r\n:0\r\n+OK\r\n".to_owned()),
    })
    .await;
    let options = RingOptions {
        silence_first: Duration::from_millis(50),
        patience: Duration::from_millis(200),
        request_time_out: Duration::from_millis(1_500),
        ..RingOptions::of(vec![node.address.clone()])
    };
    let store = RingStore::open(options).await.unwrap();
    let batch = Batch::on(b"p").put(b"s", &b"v"[..]);
    store.write(batch, WriteOptions::default()).await.unwrap();
    assert_eq!(node.came("AT.ID").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_node_holds_and_then_refuses_was_surely_not_done() {
    let is_first = AtomicBool::new(true);
    let node = Stub::start(move |port, _, words| {
        usual(port, words).unwrap_or_else(|| {
            // How long a node holds a request that it can neither serve nor refuse yet, and a little more.
            let held_ms = if is_first.swap(false, Ordering::SeqCst) { 3_050 } else { 0 };
            let text = "-CLUSTERDOWN Hash slot not served\r\n".to_owned();
            Answer::Late(Duration::from_millis(held_ms), text)
        })
    })
    .await;
    let patience = Duration::from_millis(5_500);
    let store =
        RingStore::open(RingOptions { patience, ..RingOptions::of(vec![node.address.clone()]) }).await;
    let batch = Batch::on(b"p").put(b"s", &b"v"[..]);
    let error = store.unwrap().write(batch, WriteOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Refused), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_was_never_sent_on_a_shared_connection_was_surely_not_done() {
    // The lane for writes is never connected.
    let node = Stub::start(|port, connection, words| match words.starts_with("AT.CLASS") {
        true if connection > 0 => Answer::Hangs,
        true => Answer::Says("+OK\r\n".to_owned()),
        false => usual(port, words).unwrap(),
    })
    .await;
    let options = RingOptions {
        latency: LatencyClass::FiveHundred,
        patience: Duration::from_millis(100),
        request_time_out: Duration::from_millis(1_500),
        ..RingOptions::of(vec![node.address.clone()])
    };
    let store = RingStore::open(options).await.unwrap();
    let batch = Batch::on(b"p").put(b"s", &b"v"[..]);
    let error = store.write(batch, WriteOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Refused), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_full_keeps_the_connections_that_a_program_has_to_it() {
    // There is a place for one connection. Others are told so only after that one is free again.
    let node = Stub::start(|port, connection, words| match words.split(' ').next().unwrap() {
        _ if connection > 0 => Answer::Late(Duration::from_millis(200), FULL.to_owned()),
        "AT.GET" => Answer::Late(Duration::from_millis(50), "$1\r\nv\r\n".to_owned()),
        _ => usual(port, words).unwrap(),
    })
    .await;
    let (token, patience) = (Some("secret".to_owned()), Duration::from_secs(2));
    let options = RingOptions { token, patience, ..RingOptions::of(vec![node.address.clone()]) };
    let store = RingStore::open(options).await.unwrap();
    let get = || store.get(CELL, ReadOptions::default());
    let (first, second) = tokio::join!(get(), get());
    assert!(first.is_ok() && second.is_ok(), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn the_last_look_of_a_wait_keeps_nobody_for_long_and_a_poll_has_none() {
    let looks = AtomicU64::new(0);
    let node = Stub::start(move |port, _, words| {
        usual(port, words).unwrap_or_else(|| match words.starts_with("AT.GET") {
            true if looks.fetch_add(1, Ordering::SeqCst) > 1 => Answer::Hangs,
            true => Answer::Says("$-1\r\n".to_owned()),
            false => Answer::Says("+OK\r\n".to_owned()),
        })
    })
    .await;
    let store = RingStore::open(RingOptions::of(vec![node.address.clone()])).await.unwrap();
    let expected = || Expectation::Differs(None);
    let polled = store.wait(CELL, expected(), Duration::ZERO).await.unwrap();
    assert!(matches!(polled, Waited::TimedOut));
    assert_eq!(node.came("AT.GET").len(), 1);
    let began = tokio::time::Instant::now();
    let waited = store.wait(CELL, expected(), Duration::from_millis(50)).await.unwrap();
    assert!(matches!(waited, Waited::TimedOut));
    assert_eq!(node.came("AT.GET").len(), 3);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_value_may_be_on_its_way_for_longer_than_a_node_may_be_silent() {
    let node = Stub::start(|port, _, words| match words.starts_with("AT.GET") {
        true => Answer::Slowly(Duration::from_secs(10), "$10\r\n0123456789\r\n".to_owned()),
        false => usual(port, words).unwrap(),
    })
    .await;
    let store = RingStore::open(RingOptions::of(vec![node.address.clone()])).await.unwrap();
    let value = store.get(CELL, ReadOptions::default()).await.unwrap();
    assert_eq!(value.as_deref(), Some(&b"0123456789"[..]));
    assert_eq!(node.came("AT.GET").len(), 1);
}
