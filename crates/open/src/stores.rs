//! The implementations by name: the one file that changes when a kind of store is added.

use crate::upkeep::Upkeep;
use crate::{CassandraUrl, Mode, OpenOptions, Opened, RingUrl};
use atoll_embedded::{EmbeddedStore, StoreOptions};
use atoll_ring_client::{LatencyClass, RingOperator, RingOptions, RingStore};
use atoll_store::StoreError;
use atoll_tls::{ClientTls, TlsError};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// A store in the memory of this process, which ends with its last handle.
pub(crate) async fn open_memory(options: &OpenOptions) -> Result<Opened, StoreError> {
    let store = EmbeddedStore::in_memory(store_options(options))?;
    Ok(Opened { store: Arc::new(store), maintenance: None, place: "mem:".to_owned() })
}

/// The store in a folder: as its owner, attached to its owner, or only to read what is there.
pub(crate) async fn open_folder(path: &Path, options: &OpenOptions) -> Result<Opened, StoreError> {
    let place = path.display().to_string();
    if path.is_file() {
        return Err(StoreError::InvalidInput {
            what: "store URL",
            problem: format!("{place} is a file"),
            hint: "name the folder of a store",
        });
    }
    let mode = match options.mode {
        Mode::Read | Mode::Salvage => atoll_embedded::Mode::Read,
        Mode::Write => atoll_embedded::Mode::Write,
    };
    let store_options = store_options(options);
    let embedded = atoll_embedded::OpenOptions {
        mode,
        create: options.create,
        store: store_options.clone(),
        ..atoll_embedded::OpenOptions::default()
    };
    let folder = atoll_embedded::open(path, embedded).await?;
    let store = folder.store();
    let maintenance = Arc::new(Upkeep::new(path.to_path_buf(), folder, store_options));
    Ok(Opened { store, maintenance: Some(maintenance), place })
}

/// A keyspace of a Cassandra cluster.
#[cfg(feature = "cassandra")]
pub(crate) async fn open_cassandra(url: &CassandraUrl, options: &OpenOptions) -> Result<Opened, StoreError> {
    use crate::TlsChoice;
    use atoll_cassandra::{CassandraStore, Consistency, Credentials, Options, Tls};

    let query = &url.query;
    let defaults = Options::of(url.contacts.clone(), url.keyspace.as_str());
    let password = match &query.password_file {
        Some(path) => Some(read_secret("password-file", path)?),
        None => options.password.as_ref().map(|password| password.0.clone()),
    };
    let credentials =
        url.user.clone().map(|user| Credentials { user, password: password.unwrap_or_default() });
    let cassandra = Options {
        credentials,
        consistency: if query.is_local { Consistency::LocalQuorum } else { Consistency::Quorum },
        datacenter: query.datacenter.clone(),
        beside: query.beside,
        replication: query.replication,
        tls: match &query.tls {
            None | Some(TlsChoice::Off) => Tls::Off,
            Some(TlsChoice::On) => Tls::System,
            Some(TlsChoice::File(path)) => Tls::Authorities(path.clone()),
        },
        create: options.create,
        read_only: options.mode != Mode::Write,
        memory_bytes: options.memory_bytes,
        connect_time_out: query.connect_time_out.unwrap_or(defaults.connect_time_out),
        request_time_out: query.time_out.unwrap_or(defaults.request_time_out),
        ..defaults
    };
    let place = cassandra.place();
    let store = CassandraStore::open(cassandra).await?;
    Ok(Opened { store: Arc::new(store), maintenance: None, place })
}

/// In a build without Cassandra.
#[cfg(not(feature = "cassandra"))]
pub(crate) async fn open_cassandra(_: &CassandraUrl, _: &OpenOptions) -> Result<Opened, StoreError> {
    Err(StoreError::Unsupported {
        what: "a `cassandra:` store".to_owned(),
        hint: "this program was built without it; build with --features cassandra, or name a folder",
    })
}

/// A ring of nodes.
pub(crate) async fn open_ring(url: &RingUrl, options: &OpenOptions) -> Result<Opened, StoreError> {
    let ring = RingOptions { read_only: options.mode != Mode::Write, ..ring_options(url)? };
    let place = ring.place();
    let store = RingStore::open(ring).await?;
    Ok(Opened { store: Arc::new(store), maintenance: None, place })
}

/// The options of a ring from its URL.
fn ring_options(url: &RingUrl) -> Result<RingOptions, StoreError> {
    let defaults = RingOptions::of(url.nodes.clone());
    let user = url.user.clone();
    let read = |path| if user.is_some() { read_secret("token-file", path) } else { read_token(path) };
    let token = url.token_file.as_deref().map(read).transpose()?;
    if user.is_some() && token.is_none() {
        return Err(StoreError::InvalidInput {
            what: "user",
            problem: "a user shows a password".to_owned(),
            hint: "name a file that holds it: user=NAME&token-file=PATH",
        });
    }
    let tls = url.tls_authority.as_deref().map(ClientTls::of_files).transpose().map_err(|error| {
        let hint = error.hint();
        StoreError::InvalidInput { what: "tls-authority", problem: with_causes(&error), hint }
    })?;
    let patience = url.time_out.unwrap_or(defaults.patience);
    let milliseconds = url.latency.and_then(|latency| u64::try_from(latency.as_millis()).ok());
    let latency = milliseconds.and_then(LatencyClass::of_milliseconds).unwrap_or_default();
    let keyspace = url.keyspace.clone();
    Ok(RingOptions { token, user, keyspace, tls, patience, latency, ..defaults })
}

/// An error and its causes.
fn with_causes(error: &TlsError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

/// Opens a ring for operators.
///
/// # Errors
/// `invalid-input` if the token file cannot be read.
pub fn operate_ring(url: &RingUrl) -> Result<RingOperator, StoreError> {
    ring_options(url).map(RingOperator::new)
}

/// What a file with a secret must be like.
const SECRET_HINT: &str = "name a file that holds it on its first line and that only you can read";

/// The size limit of a secret, so that a wrong file is not read completely.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The first line of a file that holds a secret, unchanged.
fn read_secret(what: &'static str, path: &Path) -> Result<String, StoreError> {
    let text = read_text(what, path)?;
    let secret = text.lines().next().unwrap_or_default();
    check_secret(what, path, secret).map(|()| secret.to_owned())
}

/// The token of a ring, read as its nodes read it: a token has no blanks, but its file may have some around
/// it.
fn read_token(path: &Path) -> Result<String, StoreError> {
    let what = "token-file";
    let text = read_text(what, path)?;
    let token = text.trim_ascii().lines().next().unwrap_or_default().trim_ascii_end();
    check_secret(what, path, token).map(|()| token.to_owned())
}

fn read_text(what: &'static str, path: &Path) -> Result<String, StoreError> {
    let place = path.display();
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(SECRET_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::NotFound { what, name: place.to_string() },
        io::ErrorKind::PermissionDenied => {
            StoreError::Failed { what: "reading a secret", place: place.to_string(), source: Arc::new(error) }
        }
        _ => StoreError::InvalidInput { what, problem: format!("{place}: {error}"), hint: SECRET_HINT },
    })?;
    Ok(text)
}

/// Refuses an empty secret: no secret is empty, so the file is not the one that was meant.
fn check_secret(what: &'static str, path: &Path, secret: &str) -> Result<(), StoreError> {
    if !secret.is_empty() {
        return Ok(());
    }
    let problem = format!("{}: there is nothing on its first line", path.display());
    Err(StoreError::InvalidInput { what, problem, hint: SECRET_HINT })
}

fn store_options(options: &OpenOptions) -> StoreOptions {
    let mut store = StoreOptions::default();
    store.engine.memory_bytes = options.memory_bytes;
    store.engine.checkpoint_bytes = options.checkpoint_bytes;
    store.engine.keep = options.keep;
    // Salvage only applies to a store that is opened for reading.
    store.salvage = options.mode == Mode::Salvage;
    store
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::ErrorKind;

    #[test]
    fn a_token_is_read_as_nodes_read_it_and_a_password_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("secret");
        for (text, token, password) in [
            ("secretsecret\n", Some("secretsecret"), Some("secretsecret")),
            ("\nsecretsecret \n", Some("secretsecret"), None),
            (" secretsecret\t\r\n\n", Some("secretsecret"), Some(" secretsecret\t")),
            ("", None, None),
            (" \n", None, Some(" ")),
        ] {
            std::fs::write(&path, text).unwrap();
            let read = [read_token(&path), read_secret("token-file", &path)];
            for (read, expected) in read.into_iter().zip([token, password]) {
                match (read, expected) {
                    (Ok(read), Some(expected)) => assert_eq!(read, expected, "{text:?}"),
                    (Err(error), None) => {
                        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}");
                        assert!(error.to_string().contains("secret: there is nothing"), "{error}");
                    }
                    odd => panic!("{text:?}: {odd:?}"),
                }
            }
        }
    }
}
