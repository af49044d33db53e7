//! Faulty files are refused at startup, each by name and with a hint.
#![allow(clippy::unwrap_used, clippy::panic)]

use atoll_errors::ErrorKind;
use atoll_tls::{Authority, ClientTls, Issued, NodeTls, TlsError, TlsFiles, Use};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// The end of 2026.
const NOW: Duration = Duration::from_secs(1_798_700_000);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn files(&self, issued: &Issued, authority: &Authority) -> TlsFiles {
        TlsFiles {
            certificate: self.write("node.pem", &issued.certificate, 0o644),
            key: self.write("node.key", &issued.key, 0o600),
            authority: Some(self.write("authority.pem", &authority.issued(NOW).unwrap().certificate, 0o644)),
        }
    }
}

fn refused(files: &TlsFiles) -> TlsError {
    let error = NodeTls::of_files(files, "node-1", NOW).unwrap_err();
    assert!(!error.hint().is_empty());
    error
}

#[test]
fn what_an_authority_signs_is_good_with_and_without_it() {
    let (folder, authority) = (Folder::new(), Authority::make().unwrap());
    let issued = authority.sign(&["node-1", "10.0.0.7", "::1"], Use::Node, NOW).unwrap();
    let files = folder.files(&issued, &authority);
    for host in ["node-1", "10.0.0.7", "::1"] {
        assert!(NodeTls::of_files(&files, host, NOW).unwrap().peers.is_some(), "{host}");
    }
    let alone = TlsFiles { authority: None, ..files.clone() };
    assert!(NodeTls::of_files(&alone, "node-1", NOW).unwrap().peers.is_none());
    ClientTls::of_files(files.authority.as_ref().unwrap()).unwrap();
    // Its key yields the same authority again.
    let again = Authority::of_key(&authority.issued(NOW).unwrap().key).unwrap();
    let issued = again.sign(&["node-1"], Use::Node, NOW).unwrap();
    NodeTls::of_files(&folder.files(&issued, &authority), "node-1", NOW).unwrap();
}

#[test]
fn a_certificate_is_for_its_hosts_and_its_time() {
    let (folder, authority) = (Folder::new(), Authority::make().unwrap());
    let of = |span| folder.files(&authority.sign_for(&["node-1"], Use::Node, span).unwrap(), &authority);
    let good = of((NOW - YEAR, NOW + YEAR));
    let error = NodeTls::of_files(&good, "node-2", NOW).unwrap_err();
    assert!(matches!(&error, TlsError::OtherHost { host, .. } if host == "node-2"), "{error}");
    assert!(error.to_string().contains("node-1"), "{error}");
    assert!(matches!(NodeTls::of_files(&good, "no host", NOW), Err(TlsError::Host { .. })));
    let old = of((NOW - 2 * YEAR, NOW - YEAR));
    assert!(refused(&old).to_string().ends_with("node.pem was valid until 2025-12-31"), "{}", refused(&old));
    // Even if no authority is configured.
    assert!(matches!(refused(&TlsFiles { authority: None, ..old }), TlsError::Expired { .. }));
    assert!(matches!(refused(&of((NOW + YEAR, NOW + 2 * YEAR))), TlsError::Early { .. }));
}

#[test]
fn keys_and_authorities_have_to_fit() {
    let (folder, authority, other) = (Folder::new(), Authority::make().unwrap(), Authority::make().unwrap());
    let issued = authority.sign(&["node-1"], Use::Node, NOW).unwrap();
    let stranger = other.sign(&["node-1"], Use::Node, NOW).unwrap();
    let mixed = Issued { certificate: issued.certificate.clone(), key: stranger.key };
    assert!(matches!(refused(&folder.files(&mixed, &authority)), TlsError::OtherKey { .. }));
    assert!(matches!(refused(&folder.files(&issued, &other)), TlsError::OtherAuthority { .. }));
    let client = authority.sign(&["node-1"], Use::Client, NOW).unwrap();
    assert!(matches!(refused(&folder.files(&client, &authority)), TlsError::Unusable { .. }));
}

#[test]
fn files_that_hold_something_else_are_named() {
    let (folder, authority) = (Folder::new(), Authority::make().unwrap());
    let issued = authority.sign(&["node-1"], Use::Node, NOW).unwrap();
    let files = folder.files(&issued, &authority);
    let error = refused(&TlsFiles { key: "no/such/key".into(), ..files.clone() });
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no/such/key"), "{error}");
    let open = folder.write("open.key", &issued.key, 0o644);
    assert!(matches!(refused(&TlsFiles { key: open, ..files.clone() }), TlsError::Exposed { .. }));
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for text in ["", "nothing", &issued.key, garbage, "-----BEGIN CERTIFICATE-----\n"] {
        let path = folder.write("wrong.pem", text, 0o600);
        for wrong in [
            TlsFiles { certificate: path.clone(), ..files.clone() },
            TlsFiles { authority: Some(path.clone()), ..files.clone() },
        ] {
            let error = refused(&wrong);
            assert!(matches!(&error, TlsError::Malformed { path: of, .. } if *of == path), "{text}: {error}");
        }
    }
    let path = folder.write("wrong.key", &issued.certificate, 0o600);
    let error = refused(&TlsFiles { key: path.clone(), ..files.clone() });
    assert!(matches!(&error, TlsError::Malformed { what: "private key", .. }), "{error}");
    let large = folder.write("large.pem", &"x".repeat(2 << 20), 0o600);
    assert!(matches!(refused(&TlsFiles { certificate: large, ..files }), TlsError::Read { .. }));
}
