//! Bytes over a non-blocking socket, plain or encrypted.
//!
//! Invariant: a read or write that cannot proceed returns `WouldBlock`, whatever the other side sends.
//! Invariant: no bytes are accepted for sending while earlier ones still wait, so the buffer is bounded.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// A socket, encrypted or not.
pub struct Stream<S> {
    socket: S,
    encrypted: Option<Box<Encrypted>>,
}

/// One encrypted connection.
pub struct Encrypted {
    connection: Connection,
    /// The first byte that was ever received.
    first: Option<u8>,
}

/// The other side does not speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not speak TLS")]
pub struct NoTls {
    /// The first byte that it sent.
    pub first: u8,
}

/// The first byte of a TLS connection: a handshake record.
const HANDSHAKE: u8 = 0x16;

/// Approximate memory of an encrypted connection: what arrives is at most a record.
const MEMORY_BYTES: usize = 24 << 10;

/// The most bytes that are encrypted and not yet sent: those that a peer does not read.
const UNSENT_BYTES_MAX: usize = 64 << 10;

/// The answer of a node without room for another client, if that client wants to encrypt: the fatal alert
/// `internal_error` (RFC 8446, section 6.2), which may come before a hello.
pub const FULL: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// Whether a handshake failed because of [`FULL`].
#[must_use]
pub fn is_of_full(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::AlertReceived(rustls::AlertDescription::InternalError)))
}

/// Whether bytes are the beginning of a TLS connection.
#[must_use]
pub fn is_handshake(bytes: &[u8]) -> bool {
    matches!(bytes, [HANDSHAKE, 3, ..])
}

impl<S> Stream<S> {
    /// A stream without encryption.
    pub fn plain(socket: S) -> Self {
        Self { socket, encrypted: None }
    }

    /// The accepting side of an encrypted stream.
    ///
    /// # Errors
    /// If the configuration is incomplete.
    pub fn serve(socket: S, config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self::encrypted(socket, connection.into()))
    }

    /// The dialling side of an encrypted stream; the peer has to be `host`.
    ///
    /// # Errors
    /// If the configuration is incomplete.
    pub fn dial(socket: S, config: Arc<ClientConfig>, host: ServerName<'static>) -> io::Result<Self> {
        let connection = ClientConnection::new(config, host).map_err(io::Error::other)?;
        Ok(Self::encrypted(socket, connection.into()))
    }

    fn encrypted(socket: S, mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        Self { socket, encrypted: Some(Box::new(Encrypted { connection, first: None })) }
    }

    /// The socket.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// The socket.
    pub fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// Whether the stream is encrypted, or will be after the handshake.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.encrypted.is_some()
    }

    /// Whether the handshake is still under way.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.encrypted.as_ref().is_some_and(|encrypted| encrypted.connection.is_handshaking())
    }

    /// Whether accepted bytes wait to be sent.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.encrypted.as_ref().is_some_and(|encrypted| encrypted.connection.wants_write())
    }

    /// Approximate memory on the heap, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match (self.is_encrypted(), self.has_unsent()) {
            (false, _) => 0,
            (true, false) => MEMORY_BYTES,
            (true, true) => MEMORY_BYTES + UNSENT_BYTES_MAX,
        }
    }
}

impl<S: Read + Write> Stream<S> {
    /// Sends what waits; returns whether nothing waits any more.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&mut self) -> io::Result<bool> {
        match &mut self.encrypted {
            None => Ok(true),
            Some(encrypted) => encrypted.send(&mut self.socket),
        }
    }

    /// Tells the other side that no more bytes will come, as far as the socket accepts that, and if the peer
    /// speaks TLS.
    pub fn say_goodbye(&mut self) {
        if let Some(encrypted) =
            self.encrypted.as_mut().filter(|one| one.first.is_none_or(|first| first == HANDSHAKE))
        {
            encrypted.connection.send_close_notify();
            // The connection ends all the same.
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
                // The peer closed without notice: either its requests arrived completely, or it made none.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            let mut seen = FirstByteReader { socket: &mut *socket, first: &mut self.first };
            if self.connection.read_tls(&mut seen)? == 0 {
                return Ok(0);
            }
            if let Some(first) = self.first.filter(|first| *first != HANDSHAKE) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, NoTls { first }));
            }
            let understood = self.connection.process_new_packets();
            // This side's part of the handshake, or the alert that ends it.
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

/// Records the first byte that is received.
struct FirstByteReader<'a, S> {
    socket: &'a mut S,
    first: &'a mut Option<u8>,
}

impl<S: Read> Read for FirstByteReader<'_, S> {
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
