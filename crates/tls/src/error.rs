//! What can be wrong with the files of certificates and keys.

use atoll_errors::ErrorKind;
use std::io;
use std::path::PathBuf;

/// Why encryption cannot be set up: a file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A key is readable by every user.
    #[error("the key in {} can be read by others", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// A file does not hold what it should.
    #[error("{} holds no {what}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The key does not belong to the certificate.
    #[error("the key in {} is not that of the certificate in {}", key.display(), certificate.display())]
    OtherKey {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// A certificate has expired.
    #[error("the certificate in {} was valid until {until}", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// Its last day.
        until: String,
    },
    /// A certificate is not valid yet.
    #[error("the certificate in {} is valid from {from} on", path.display())]
    Early {
        /// The file.
        path: PathBuf,
        /// Its first day.
        from: String,
    },
    /// A certificate was not signed by the configured authority.
    #[error("the certificate in {} was not signed by the authority in {}", certificate.display(), authority.display())]
    OtherAuthority {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the authority.
        authority: PathBuf,
    },
    /// A certificate is not valid for this host.
    #[error("the certificate in {} is not for {host}, but for {names}", path.display())]
    OtherHost {
        /// The file.
        path: PathBuf,
        /// The host that clients and nodes are told to connect to.
        host: String,
        /// The hosts that the certificate is valid for.
        names: String,
    },
    /// A certificate is not suitable for its purpose.
    #[error("the certificate in {} cannot be used: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason, in the words of the TLS library.
        problem: String,
    },
    /// No authority is configured, and one is needed.
    #[error("nodes identify each other by the authority of their certificates, but none is named")]
    NoAuthority,
    /// A host name is invalid.
    #[error("{host:?} is not a valid host name")]
    Host {
        /// The name.
        host: String,
    },
}

impl TlsError {
    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::InvalidInput,
        }
    }

    /// A hint what to do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "name a file in PEM format that this user may read",
            Self::Exposed { .. } => "chmod 600",
            Self::Malformed { .. } => {
                "a file in PEM format is expected, with lines such as -----BEGIN CERTIFICATE-----"
            }
            Self::OtherKey { .. } => "name the key with which the certificate was asked for",
            Self::Expired { .. } => "renew it, or check the clock of this machine",
            Self::Early { .. } => "check the clock of this machine",
            Self::OtherAuthority { .. } => {
                "name the authority that signed it, with the chain in between in the file of the certificate"
            }
            Self::OtherHost { .. } => {
                "have one made for that host, or name with --announce the host that clients and nodes should use"
            }
            Self::Unusable { .. } => {
                "nodes need one for serverAuth and clientAuth, version 3, of an authority"
            }
            Self::NoAuthority => "name it with --tls-authority FILE",
            Self::Host { .. } => "a name such as node-1.example.org, or a number such as 10.0.0.7",
        }
    }
}
