//! Encrypted connections: which certificates are trusted.

use crate::failure::told;
use crate::options::Tls;
use atoll_store::{ErrorKind, StoreError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// Where the systems that Atoll runs on keep their trusted certificates.
const SYSTEM_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// The driver's TLS configuration; none if connections are not encrypted.
pub(crate) fn context(tls: &Tls) -> Result<Option<Arc<ClientConfig>>, StoreError> {
    let roots = match tls {
        Tls::Off => return Ok(None),
        Tls::Authorities(path) => authorities(path)?,
        Tls::System => system()?,
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    Ok(Some(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
}

fn system() -> Result<RootCertStore, StoreError> {
    match SYSTEM_FILES.iter().map(Path::new).find(|path| path.exists()) {
        Some(path) => authorities(path),
        None => Err(unusable("this system keeps no list of certificates that it trusts".to_owned())),
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, StoreError> {
    let problem = |error: &dyn std::fmt::Display| unusable(format!("{}: {error}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| problem(&error))? {
        let certificate = certificate.map_err(|error| problem(&error))?;
        // A system's list may hold certificates of obsolete kinds.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(problem(&"it holds no certificate"));
    }
    Ok(roots)
}

fn unusable(problem: String) -> StoreError {
    told(
        ErrorKind::InvalidInput,
        format!("invalid tls option: {problem}"),
        "tls=PATH names a PEM file with the certificate of the authority that signed the nodes' certificates",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_holds_no_certificate_is_refused_and_named() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        for path in [path, "/no/such/file.pem".into()] {
            let error = context(&Tls::Authorities(path.clone())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
        assert!(context(&Tls::Off).unwrap().is_none());
    }
}
