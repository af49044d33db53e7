//! Encrypted connections of a ring: which files say who is who, what is wrong with them, and a stream over
//! any socket.
//!
//! [`NodeTls`] is what a node needs at its doors, [`ClientTls`] what its clients need; both are made of
//! [`TlsFiles`], which are checked before anything listens. [`Stream`] carries bytes over a socket that never
//! waits, encrypted or not.
//!
//! Invariant: among nodes both sides show a certificate of the ring's authority, and TLS 1.3 is spoken.
//! Invariant: bytes from a peer never cause a panic, nor memory beyond what TLS itself needs for one
//! connection.
//! Invariant: a socket without TLS is read and written as if this was not there.

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
// What connections are made of where a runtime wraps them.
pub use rustls::pki_types::ServerName;
pub use rustls::{ClientConfig, ServerConfig};
