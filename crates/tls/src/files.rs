//! Reading and checking files with certificates and keys.
//!
//! Invariant: what was read from these files was valid at the given time: the key belongs to the certificate,
//! and the certificate has not expired.

use crate::TlsError;
use crate::date::day;
use crate::trust::provider;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files that prove a node's identity, and the authority that it trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The node's certificate, followed by those between it and the authority.
    pub certificate: PathBuf,
    /// The node's key, which other users may not read.
    pub key: PathBuf,
    /// The authority that signs the certificates of a ring.
    pub authority: Option<PathBuf>,
}

/// A certificate with its chain to the authority, and its key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// Longest file that is read; a system's list of all authorities takes a quarter of that.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The kinds of contents, as messages call them.
const CERTIFICATE: &str = "certificate";
const KEY: &str = "private key";

impl Identity {
    /// Reads a certificate and its key.
    pub(crate) fn of_files(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let text = read(key, true)?;
        let secret = PrivateKeyDer::from_pem_slice(&text).map_err(|error| malformed(key, KEY, &error))?;
        match CertifiedKey::from_der(chain.clone(), secret.clone_key(), &provider()) {
            Ok(_) => Ok(Self { chain, key: secret }),
            Err(Error::InconsistentKeys(_)) => {
                Err(TlsError::OtherKey { key: key.to_owned(), certificate: certificate.to_owned() })
            }
            Err(Error::InvalidCertificate(error)) => Err(TlsError::Malformed {
                path: certificate.to_owned(),
                what: CERTIFICATE,
                problem: error.to_string(),
            }),
            Err(error) => {
                Err(TlsError::Malformed { path: key.to_owned(), what: KEY, problem: error.to_string() })
            }
        }
    }

    /// Checks that the certificate has not expired, and was signed by the authority if one is configured.
    pub(crate) fn check(
        &self,
        files: &TlsFiles,
        roots: Option<&RootCertStore>,
        now: UnixTime,
    ) -> Result<(), TlsError> {
        let path = files.certificate.clone();
        let Some((first, rest)) = self.chain.split_first() else {
            return Err(TlsError::Malformed {
                path,
                what: CERTIFICATE,
                problem: "nothing is there".to_owned(),
            });
        };
        let unusable = |error: &dyn std::fmt::Display| TlsError::Unusable {
            path: path.clone(),
            problem: error.to_string(),
        };
        let parsed = ParsedCertificate::try_from(first).map_err(|error| unusable(&error))?;
        let (none, provider) = (RootCertStore::empty(), provider());
        let algorithms = provider.signature_verification_algorithms.all;
        let trusted = roots.unwrap_or(&none);
        match verify_server_cert_signed_by_trust_anchor(&parsed, trusted, rest, now, algorithms) {
            Ok(()) => Ok(()),
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                Err(TlsError::Expired { path, until: day(not_after) })
            }
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => {
                Err(TlsError::Early { path, from: day(not_before) })
            }
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => {
                match (&files.authority, roots) {
                    (Some(authority), Some(_)) => {
                        Err(TlsError::OtherAuthority { certificate: path, authority: authority.clone() })
                    }
                    // Whom to trust is up to clients then; the validity period was checked before.
                    _ => Ok(()),
                }
            }
            Err(error) => Err(unusable(&error)),
        }
    }
}

/// The authorities in a file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let (_, refused) = roots.add_parsable_certificates(certificates(path)?);
    if roots.is_empty() {
        let problem = format!("none of the {refused} in it can be parsed");
        return Err(TlsError::Malformed {
            path: path.to_owned(),
            what: "certificate of an authority",
            problem,
        });
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path, false)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| malformed(path, CERTIFICATE, &error))?;
    if all.is_empty() {
        return Err(malformed(path, CERTIFICATE, &pem::Error::NoItemsFound));
    }
    Ok(all)
}

fn malformed(path: &Path, what: &'static str, error: &pem::Error) -> TlsError {
    let problem = match error {
        pem::Error::NoItemsFound => "nothing in it is one".to_owned(),
        error => error.to_string(),
    };
    TlsError::Malformed { path: path.to_owned(), what, problem }
}

fn read(path: &Path, is_secret: bool) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    // It is common that a group may read keys, but not that everybody may.
    if is_secret && file.metadata().map_err(failed)?.mode() & 0o007 != 0 {
        return Err(TlsError::Exposed { path: path.to_owned() });
    }
    let mut text = Vec::new();
    let count = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    if count as u64 > FILE_BYTES_MAX {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}
