//! The TLS configurations of a node and its clients, made from their files.

use crate::TlsError;
use crate::files::{Identity, TlsFiles, authorities};
use crate::trust::{OnlyNodes, provider};
use rustls::client::verify_server_name;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The TLS configurations of a node.
#[derive(Clone)]
pub struct NodeTls {
    /// For clients: a certificate is optional, and an invalid one is refused.
    pub clients: Arc<ServerConfig>,
    /// For other nodes, if an authority is configured.
    pub peers: Option<PeerTls>,
}

/// The TLS configurations for connections between nodes.
#[derive(Clone)]
pub struct PeerTls {
    /// For the side that is dialled.
    pub serve: Arc<ServerConfig>,
    /// For the side that dials.
    pub dial: Arc<ClientConfig>,
}

/// The TLS configuration of a client.
#[derive(Clone)]
pub struct ClientTls {
    /// For its connections.
    pub config: Arc<ClientConfig>,
}

impl NodeTls {
    /// Reads and checks the files of a node that others reach as `host`. `now` is the time since 1970.
    ///
    /// # Errors
    /// [`TlsError`], naming the file and what is wrong with it.
    pub fn of_files(files: &TlsFiles, host: &str, now: Duration) -> Result<Self, TlsError> {
        let identity = Identity::of_files(&files.certificate, &files.key)?;
        let roots = files.authority.as_deref().map(authorities).transpose()?.map(Arc::new);
        identity.check(files, roots.as_deref(), UnixTime::since_unix_epoch(now))?;
        check_host(&identity, &files.certificate, host)?;
        let peers = roots.as_ref().map(|roots| peers(files, &identity, roots)).transpose()?;
        Ok(Self { clients: clients(files, identity, roots)?, peers })
    }
}

impl ClientTls {
    /// Trusts the authorities in a file.
    ///
    /// # Errors
    /// [`TlsError`], naming the file and what is wrong with it.
    pub fn of_files(authority: &Path) -> Result<Self, TlsError> {
        let roots = authorities(authority)?;
        let builder =
            ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13, &TLS12]);
        let builder = builder.map_err(|error| unusable(authority, &error))?;
        Ok(Self { config: Arc::new(builder.with_root_certificates(roots).with_no_client_auth()) })
    }
}

/// Parses a host name as certificates have it.
///
/// # Errors
/// [`TlsError::Host`] if it is invalid.
pub fn host_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Host { host: host.to_owned() })
}

fn clients(
    files: &TlsFiles,
    identity: Identity,
    roots: Option<Arc<RootCertStore>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let unusable = |error: &dyn std::fmt::Display| unusable(&files.certificate, error);
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13, &TLS12]);
    let builder = builder.map_err(|error| unusable(&error))?;
    let builder = match roots {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots, provider()).allow_unauthenticated();
            builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(&error))?)
        }
    };
    let config = builder.with_single_cert(identity.chain, identity.key).map_err(|error| unusable(&error))?;
    Ok(Arc::new(config))
}

fn peers(files: &TlsFiles, identity: &Identity, roots: &Arc<RootCertStore>) -> Result<PeerTls, TlsError> {
    let unusable = |error: &dyn std::fmt::Display| unusable(&files.certificate, error);
    let (chain, key) = (&identity.chain, &identity.key);
    let inner = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider()).build();
    let inner = inner.map_err(|error| unusable(&error))?;
    let only_nodes = OnlyNodes { inner, roots: Arc::clone(roots), provider: provider() };
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(|error| unusable(&error))?.with_client_cert_verifier(Arc::new(only_nodes));
    let mut serve =
        builder.with_single_cert(chain.clone(), key.clone_key()).map_err(|error| unusable(&error))?;
    // Connections between nodes are few and long: none is resumed, so no session is kept.
    serve.session_storage = Arc::new(NoServerSessionStorage {});
    serve.send_tls13_tickets = 0;
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(|error| unusable(&error))?.with_root_certificates(Arc::clone(roots));
    let mut dial =
        builder.with_client_auth_cert(chain.clone(), key.clone_key()).map_err(|error| unusable(&error))?;
    dial.resumption = rustls::client::Resumption::disabled();
    Ok(PeerTls { serve: Arc::new(serve), dial: Arc::new(dial) })
}

fn check_host(identity: &Identity, path: &Path, host: &str) -> Result<(), TlsError> {
    let name = host_name(host)?;
    let Some(first) = identity.chain.first() else { return Ok(()) };
    let parsed = ParsedCertificate::try_from(first).map_err(|error| unusable(path, &error))?;
    match verify_server_name(&parsed, &name) {
        Ok(()) => Ok(()),
        Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. })) => {
            let names = if presented.is_empty() { "no host".to_owned() } else { presented.join(", ") };
            Err(TlsError::OtherHost { path: path.to_owned(), host: host.to_owned(), names })
        }
        Err(error) => Err(unusable(path, &error)),
    }
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Unusable { path: PathBuf::from(path), problem: error.to_string() }
}

impl std::fmt::Debug for NodeTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeTls")
    }
}

impl std::fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerTls")
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientTls")
    }
}
