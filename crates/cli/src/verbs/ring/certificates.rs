//! The certificate files that a node is started with, and those that a ring on one machine makes for itself.
//!
//! Invariant: no other user can read a key that is made here, not even for a moment.

use crate::Failure;
use crate::text::quoted_path;
use atoll_ring::{Clock, NodeError, NodeTls, SystemClock, TlsFiles};
use atoll_tls::{Authority, AuthorityError, Issued, Use};
use clap::Args;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which files identify a node.
#[derive(Args, Debug)]
pub struct Certificates {
    /// Encrypt with the certificate in this file, which any intermediate certificates follow
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// File with the key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// File with the certificate authority of the ring; required in a ring of several nodes
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_authority: Option<PathBuf>,
    /// Suppress the warning about unencrypted traffic between machines
    #[arg(long, conflicts_with = "tls_certificate")]
    pub plain_text: bool,
}

impl Certificates {
    /// Reads the files, for a node that announces itself as `host`; none if no file is named.
    ///
    /// # Errors
    /// Which file is wrong, and how.
    pub fn read(&self, host: &str) -> Result<Option<NodeTls>, Failure> {
        let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) else { return Ok(None) };
        let (certificate, key) = (certificate.clone(), key.clone());
        let files = TlsFiles { certificate, key, authority: self.tls_authority.clone() };
        Ok(Some(NodeTls::of_files(&files, host, now()).map_err(NodeError::from)?))
    }

    /// The file with the certificate authority of the ring.
    pub fn authority(&self) -> Option<PathBuf> {
        self.tls_authority.clone()
    }

    /// The extra arguments of redis-cli for encrypted connections.
    pub fn redis_cli_arguments(&self) -> String {
        match (&self.tls_certificate, &self.tls_authority) {
            (None, _) => String::new(),
            (Some(_), None) => " --tls".to_owned(),
            (Some(_), Some(file)) => format!(" --tls --cacert {}", quoted_path(file)),
        }
    }
}

/// The files of a ring on this machine.
pub(super) struct LocalAuthority {
    folder: PathBuf,
    authority: Authority,
}

impl LocalAuthority {
    /// The certificate authority in this folder, created if it is missing.
    pub(super) fn in_folder(folder: &Path) -> Result<Self, Failure> {
        let made = folder.join("tls");
        let failed = |action, path: &Path| {
            let place = path.display().to_string();
            move |source| Failure::File { action, place, source }
        };
        std::fs::create_dir_all(&made).map_err(failed("make", &made))?;
        let key = made.join("authority.key");
        let authority = match std::fs::read_to_string(&key) {
            Ok(text) => Authority::of_key(&text).map_err(unusable(&key))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Authority::make().map_err(unusable(&key))?
            }
            Err(error) => return Err(failed("read", &key)(error)),
        };
        let this = Self { folder: made, authority };
        if !key.exists() || !this.trusted().exists() {
            this.write("authority", &this.authority.issued(now()).map_err(unusable(&key))?)?;
        }
        Ok(this)
    }

    /// The certificate that clients and nodes trust.
    pub(super) fn trusted(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// Creates the files of a node of this machine.
    pub(super) fn node(&self, number: u32) -> Result<TlsFiles, Failure> {
        let name = format!("node-{number}");
        let hosts = ["127.0.0.1", "::1", "localhost"];
        let issued = self.authority.sign(&hosts, Use::Node, now()).map_err(unusable(&self.folder))?;
        self.write(&name, &issued)?;
        let [certificate, key] = ["pem", "key"].map(|ending| self.folder.join(format!("{name}.{ending}")));
        Ok(TlsFiles { certificate, key, authority: Some(self.trusted()) })
    }

    fn write(&self, name: &str, issued: &Issued) -> Result<(), Failure> {
        for (ending, text) in [("key", &issued.key), ("pem", &issued.certificate)] {
            let path = self.folder.join(format!("{name}.{ending}"));
            let unfinished = self.folder.join(format!(".{name}.{ending}"));
            let written = (|| {
                // Left by a process that ended halfway.
                if unfinished.exists() {
                    std::fs::remove_file(&unfinished)?;
                }
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
                std::fs::rename(&unfinished, &path)
            })();
            let place = path.display().to_string();
            written.map_err(|source| Failure::File { action: "write", place, source })?;
        }
        Ok(())
    }
}

fn unusable(path: &Path) -> impl Fn(AuthorityError) -> Failure {
    let place = path.display().to_string();
    move |error| Failure::File { action: "use", place: place.clone(), source: io::Error::other(error) }
}

/// The time since 1970.
fn now() -> Duration {
    Duration::from_millis(SystemClock.now().date_ms)
}
