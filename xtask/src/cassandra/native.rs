//! The part of Cassandra's native protocol (version 4) that is needed to find out whether a node answers.
//!
//! Invariant: every read is bounded in time and in size, whatever program listens on the port.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const VERSION: u8 = 0x04;
const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const AUTH_RESPONSE: u8 = 0x0F;
const CONSISTENCY_ALL: u16 = 0x0005;

/// How long a node may take to accept a connection.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
const BODY_BYTES_MAX: u32 = 16 << 20;

/// A node's reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Accepted; for a query, it has a result.
    Ready,
    /// A password is required first.
    Authenticate,
    /// An error, with the node's message.
    Error(String),
    /// A reply of this opcode, which answers none of our requests.
    Other(u8),
}

/// The role and password for clusters that require them.
pub struct Credentials<'a> {
    /// The role.
    pub user: &'a str,
    /// Its password.
    pub password: &'a str,
}

/// A connection that a node has accepted as a client's.
pub struct Session(TcpStream);

impl Session {
    /// Connects, and authenticates if the node asks for it.
    pub fn open(address: SocketAddr, credentials: &Credentials<'_>) -> io::Result<Self> {
        let (mut session, mut answer) = Self::greet(address)?;
        if answer == Reply::Authenticate {
            answer = session.ask(AUTH_RESPONSE, &plain(credentials))?;
        }
        match answer {
            Reply::Ready => Ok(session),
            other => Err(io::Error::other(format!("the node answered {other:?}"))),
        }
    }

    /// Whether a node accepts clients, possibly only with a password.
    pub fn is_greeted(address: SocketAddr) -> bool {
        matches!(Self::greet(address), Ok((_, Reply::Ready | Reply::Authenticate)))
    }

    fn greet(address: SocketAddr) -> io::Result<(Self, Reply)> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let mut session = Self(stream);
        let answer = session.ask(STARTUP, &startup())?;
        Ok((session, answer))
    }

    /// Sends a query that every replica of the data must answer; fails unless all of them do.
    pub fn ask_all(&mut self, query: &str) -> io::Result<Reply> {
        let mut body = long_string(query);
        body.extend(CONSISTENCY_ALL.to_be_bytes());
        body.push(0);
        self.ask(QUERY, &body)
    }

    fn ask(&mut self, opcode: u8, body: &[u8]) -> io::Result<Reply> {
        self.0.write_all(&frame(opcode, body))?;
        answer(&mut self.0)
    }
}

/// A request on stream 0.
fn frame(opcode: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut frame = vec![VERSION, 0, 0, 0, opcode];
    frame.extend(length.to_be_bytes());
    frame.extend(body);
    frame
}

fn answer(from: &mut impl Read) -> io::Result<Reply> {
    let mut header = [0_u8; 9];
    from.read_exact(&mut header)?;
    let [version, _, _, _, opcode, length @ ..] = header;
    let length = u32::from_be_bytes(length);
    if version & 0x80 == 0 || length > BODY_BYTES_MAX {
        return Err(io::Error::other("whoever listens there does not speak Cassandra's protocol"));
    }
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body)?;
    Ok(match opcode {
        // READY, RESULT, AUTH_SUCCESS.
        0x02 | 0x08 | 0x10 => Reply::Ready,
        0x03 => Reply::Authenticate,
        0x00 => Reply::Error(message(&body)),
        other => Reply::Other(other),
    })
}

/// The message of an error: a code of four bytes, then a string with a length of two.
fn message(body: &[u8]) -> String {
    let length = body.get(4..6).map_or(0, |length| usize::from(u16::from_be_bytes([length[0], length[1]])));
    String::from_utf8_lossy(body.get(6..6 + length).unwrap_or_default()).into_owned()
}

fn startup() -> Vec<u8> {
    let mut body = 1_u16.to_be_bytes().to_vec();
    for word in ["CQL_VERSION", "3.0.0"] {
        body.extend(u16::try_from(word.len()).unwrap_or_default().to_be_bytes());
        body.extend(word.as_bytes());
    }
    body
}

fn plain(credentials: &Credentials<'_>) -> Vec<u8> {
    long_string(&format!("\0{}\0{}", credentials.user, credentials.password))
}

fn long_string(text: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(opcode: u8, body: &[u8]) -> io::Result<Reply> {
        let mut bytes = frame(opcode, body);
        bytes[0] |= 0x80;
        answer(&mut bytes.as_slice())
    }

    #[test]
    fn a_request_is_nine_bytes_and_its_body() {
        assert_eq!(frame(0x05, b"ab"), [4, 0, 0, 0, 5, 0, 0, 0, 2, b'a', b'b']);
        assert_eq!(startup().len(), 2 + 2 + "CQL_VERSION".len() + 2 + "3.0.0".len());
        assert_eq!(plain(&Credentials { user: "a", password: "b" }), [0, 0, 0, 4, 0, b'a', 0, b'b']);
    }

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(said(0x02, b"").unwrap(), Reply::Ready);
        assert_eq!(said(0x03, b"\0\0").unwrap(), Reply::Authenticate);
        let error = [&[0, 0, 1, 0][..], &[0, 3], b"bad"].concat();
        assert_eq!(said(0x00, &error).unwrap(), Reply::Error("bad".to_owned()));
        assert_eq!(said(0x00, b"").unwrap(), Reply::Error(String::new()));
        assert_eq!(said(0x06, b"").unwrap(), Reply::Other(6));
    }

    #[test]
    fn another_service_on_the_port_is_no_node() {
        assert!(answer(&mut &b"HTTP/1.1 400 Bad Request\r\n"[..]).is_err());
        assert!(answer(&mut &b"\x84\0\0\0\x02\xff\xff\xff\xff"[..]).is_err(), "a length beyond all limits");
        assert!(answer(&mut &b"\x84"[..]).is_err(), "it hung up");
    }
}
