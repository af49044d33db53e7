//! Certificates of a test authority, and connections that trust it.

use atoll_ring::{NodeTls, TlsFiles};
use atoll_tls::{Authority, ClientConfig, ClientTls, Issued, Use, host_name};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// An authority and the certificates that it signed, in a temporary folder.
pub struct Certificates {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Certificates {
    pub fn new() -> Self {
        let certificates =
            Self { folder: tempfile::tempdir().unwrap(), authority: Authority::make().unwrap() };
        let own = certificates.authority.issued(now()).unwrap();
        certificates.write("authority.pem", &own.certificate);
        certificates
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// Files of a node on this machine.
    pub fn files(&self, name: &str) -> TlsFiles {
        let issued: Issued = self.authority.sign(&["127.0.0.1", "localhost"], Use::Node, now()).unwrap();
        TlsFiles {
            certificate: self.write(&format!("{name}.pem"), &issued.certificate),
            key: self.write(&format!("{name}.key"), &issued.key),
            authority: Some(self.authority()),
        }
    }

    pub fn node(&self, name: &str) -> NodeTls {
        NodeTls::of_files(&self.files(name), "127.0.0.1", now()).unwrap()
    }

    pub fn client(&self) -> Arc<ClientConfig> {
        ClientTls::of_files(&self.authority()).unwrap().config
    }

    /// A blocking connection, as stock clients have them.
    pub fn connect(&self, socket: std::net::TcpStream) -> Waits {
        let host = host_name("127.0.0.1").unwrap();
        let connection = rustls::ClientConnection::new(self.client(), host).unwrap();
        rustls::StreamOwned::new(connection, socket)
    }
}

/// A blocking encrypted connection.
pub type Waits = rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream>;

fn now() -> Duration {
    #[allow(clippy::disallowed_methods, reason = "certificates have to be good today")]
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap()
}
