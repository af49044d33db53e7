//! Encrypted connections of a ring: checks the files of certificates and keys, and wraps any socket in a
//! stream.
//!
//! [`NodeTls`] is for the listeners of a node, [`ClientTls`] for its clients. Both are made from files, those
//! of a node named by [`TlsFiles`], which are checked before anything listens. [`Stream`] carries bytes over
//! a non-blocking socket, encrypted or not.
//!
//! Invariant: between nodes both sides show a certificate of the ring's authority, and speak TLS 1.3.
//! Invariant: bytes from a peer never cause a panic, nor memory use beyond what TLS itself needs for one
//! connection.
//! Invariant: a socket without TLS is read and written directly.

#[cfg(feature = "authority")]
mod authority;
mod date;
mod error;
mod files;
mod node;
mod stream;
mod trust;

#[cfg(feature = "authority")]
pub use authority::{Authority, AuthorityError, Issued, Use};
pub use error::TlsError;
pub use files::TlsFiles;
pub use node::{ClientTls, NodeTls, PeerTls, host_name};
pub use stream::{Encrypted, FULL, NoTls, Stream, is_handshake, is_of_full};
// For runtimes that wrap connections themselves.
pub use rustls::pki_types::ServerName;
pub use rustls::{ClientConfig, ServerConfig};
