//! Bytes over a socket that never waits: as they are, or encrypted.
//!
//! Invariant: a read or write that cannot go on answers `WouldBlock`, whatever the other side sends.
//! Invariant: nothing is taken to be sent while something taken before still waits: what waits here is
//! bounded.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// A socket, and what encrypts what goes over it, if anything does.
pub struct Stream<S> {
    socket: S,
    encrypted: Option<Box<Encrypted>>,
}

/// One encrypted connection.
pub struct Encrypted {
    connection: Connection,
    /// The first byte that ever came.
    first: Option<u8>,
}

/// The other side does not speak TLS. What came first of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not speak TLS")]
pub struct NoTls {
    /// Its first byte.
    pub first: u8,
}

/// What a connection that speaks TLS begins with: a record of its handshake.
const HANDSHAKE: u8 = 0x16;

/// Memory that one encrypted connection takes, about: what arrives is at most a record, and what leaves is
/// not kept for long.
const MEMORY_BYTES: usize = 24 << 10;

/// What a node that has no place for one more client answers whoever wants to encrypt: the fatal alert
/// `internal_error` (RFC 8446, section 6.2), which may come before a greeting.
pub const FULL: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// Whether a greeting failed because of [`FULL`].
#[must_use]
pub fn is_of_full(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::AlertReceived(rustls::AlertDescription::InternalError)))
}

/// Whether bytes are how somebody begins who speaks TLS.
#[must_use]
pub fn is_handshake(bytes: &[u8]) -> bool {
    matches!(bytes, [HANDSHAKE, 3, ..])
}

impl<S> Stream<S> {
    /// Bytes go as they are.
    pub fn plain(socket: S) -> Self {
        Self { socket, encrypted: None }
    }

    /// Who connected here is expected to speak TLS.
    ///
    /// # Errors
    /// What the configuration lacks.
    pub fn serve(socket: S, config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self::encrypted(socket, connection.into()))
    }

    /// Whom this connected to has to be that host.
    ///
    /// # Errors
    /// What the configuration lacks.
    pub fn dial(socket: S, config: Arc<ClientConfig>, host: ServerName<'static>) -> io::Result<Self> {
        let connection = ClientConnection::new(config, host).map_err(io::Error::other)?;
        Ok(Self::encrypted(socket, connection.into()))
    }

    fn encrypted(socket: S, connection: Connection) -> Self {
        Self { socket, encrypted: Some(Box::new(Encrypted { connection, first: None })) }
    }

    /// The socket itself.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// The socket itself.
    pub fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// Whether it is encrypted, or will be.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.encrypted.is_some()
    }

    /// Whether the two do not know each other yet.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.encrypted.as_ref().is_some_and(|encrypted| encrypted.connection.is_handshaking())
    }

    /// Whether something that was taken waits to be sent.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.encrypted.as_ref().is_some_and(|encrypted| encrypted.connection.wants_write())
    }

    /// Memory that this takes beside itself, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        if self.is_encrypted() { MEMORY_BYTES } else { 0 }
    }
}

impl<S: Read + Write> Stream<S> {
    /// Sends what waits; whether nothing does any more.
    ///
    /// # Errors
    /// Of the socket.
    pub fn send(&mut self) -> io::Result<bool> {
        match &mut self.encrypted {
            None => Ok(true),
            Some(encrypted) => encrypted.send(&mut self.socket),
        }
    }

    /// Tells the other side that nothing more comes, as far as the socket takes it, and if it would
    /// understand.
    pub fn say_goodbye(&mut self) {
        if let Some(encrypted) =
            self.encrypted.as_mut().filter(|one| one.first.is_none_or(|first| first == HANDSHAKE))
        {
            encrypted.connection.send_close_notify();
            // It ends all the same.
            let _ = encrypted.send(&mut self.socket);
        }
    }
}

impl<S: Read + Write> Read for Stream<S> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &mut self.encrypted {
            None => self.socket.read(room),
            Some(encrypted) => encrypted.read(&mut self.socket, room),
        }
    }
}

impl<S: Read + Write> Write for Stream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encrypted {
            None => self.socket.write(bytes),
            Some(encrypted) => encrypted.write(&mut self.socket, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Encrypted {
    fn read(&mut self, socket: &mut (impl Read + Write), room: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It went without a word: what it asked for came whole, or it did not ask.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            let mut seen = Seen { socket: &mut *socket, first: &mut self.first };
            if self.connection.read_tls(&mut seen)? == 0 {
                return Ok(0);
            }
            if let Some(first) = self.first.filter(|first| *first != HANDSHAKE) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, NoTls { first }));
            }
            let understood = self.connection.process_new_packets();
            // Its part of the handshake, or why there will be none.
            let sent = self.send(socket);
            understood.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            sent?;
        }
    }

    fn write(&mut self, socket: &mut (impl Read + Write), bytes: &[u8]) -> io::Result<usize> {
        if !self.send(socket)? || self.connection.is_handshaking() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.connection.writer().write(bytes)?;
        self.send(socket)?;
        Ok(taken)
    }

    fn send(&mut self, socket: &mut (impl Read + Write)) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Remembers the first byte that comes.
struct Seen<'a, S> {
    socket: &'a mut S,
    first: &'a mut Option<u8>,
}

impl<S: Read> Read for Seen<'_, S> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(room)?;
        if self.first.is_none() && count > 0 {
            *self.first = room.first().copied();
        }
        Ok(count)
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for Stream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (socket, is_encrypted) = (&self.socket, self.is_encrypted());
        f.debug_struct("Stream").field("socket", socket).field("is_encrypted", &is_encrypted).finish()
    }
}
