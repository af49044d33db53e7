//! A blocking connection for one thread: sends commands, and receives replies and also pushes of protocol
//! version 3.
//!
//! Invariant: no call waits for ever: a server that is silent for too long is an error.
//! Invariant: lengths that a server may announce are bounded, and lists are nested only a few levels deep.

use super::protocol::{Malformed, counted, decimal, line};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const SILENCE_MAX: Duration = Duration::from_secs(10);
const SCRATCH_BYTES: usize = 16 << 10;
const PARTS_MAX: usize = 1 << 16;
const DEPTH_MAX: usize = 8;

/// A received reply or push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A status, such as `OK`.
    Status(Vec<u8>),
    /// An error, with the server's message.
    Refused(Vec<u8>),
    /// A whole number.
    Number(i64),
    /// A value.
    Value(Vec<u8>),
    /// No value.
    Nothing,
    /// A list, or the names and values of a map.
    List(Vec<Incoming>),
    /// A push, which answers no command.
    Push(Vec<Incoming>),
}

/// Why nothing was received.
#[derive(Debug, thiserror::Error)]
pub enum SpeakError {
    /// The connection broke, or the server did not answer.
    #[error("a connection of its own broke")]
    Broken(#[from] io::Error),
    /// The server sent something that is not a reply.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The server's answer is not one that the command allows.
    #[error("{asked} was answered by {heard}")]
    Unexpected {
        /// The command.
        asked: String,
        /// The answer.
        heard: String,
    },
}

/// A connection.
pub struct Speaker {
    stream: TcpStream,
    out: Vec<u8>,
    unread: Vec<u8>,
    taken: usize,
}

impl Speaker {
    /// Connects.
    pub fn connect(address: SocketAddr) -> Result<Self, SpeakError> {
        let stream = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        Ok(Self { stream, out: Vec::new(), unread: Vec::new(), taken: 0 })
    }

    /// Adds a command to the next send.
    pub fn add(&mut self, words: &[&[u8]]) {
        let mut number = itoa::Buffer::new();
        self.out.extend_from_slice(b"*");
        self.out.extend_from_slice(number.format(words.len()).as_bytes());
        for word in words {
            self.out.extend_from_slice(b"\r\n$");
            self.out.extend_from_slice(number.format(word.len()).as_bytes());
            self.out.extend_from_slice(b"\r\n");
            self.out.extend_from_slice(word);
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// Sends the added commands.
    pub fn send(&mut self) -> Result<(), SpeakError> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Receives the next reply or push.
    pub fn hear(&mut self) -> Result<Incoming, SpeakError> {
        loop {
            if let Some((heard, length)) = parse(&self.unread[self.taken..], 0)? {
                self.taken += length;
                if self.taken == self.unread.len() {
                    self.unread.clear();
                    self.taken = 0;
                }
                return Ok(heard);
            }
            let mut scratch = [0; SCRATCH_BYTES];
            match self.stream.read(&mut scratch) {
                Ok(0) => return Err(SpeakError::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.unread.extend_from_slice(&scratch[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a command and receives the next reply or push.
    pub fn say(&mut self, words: &[&[u8]]) -> Result<Incoming, SpeakError> {
        self.add(words);
        self.send()?;
        self.hear()
    }

    /// Sends a command that is answered with a text.
    pub fn text(&mut self, words: &[&[u8]]) -> Result<String, SpeakError> {
        match self.say(words)? {
            Incoming::Value(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            heard => Err(unexpected(words, &heard)),
        }
    }
}

/// The error for an answer that the command does not allow.
pub fn unexpected(words: &[&[u8]], heard: &Incoming) -> SpeakError {
    let asked = words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
    SpeakError::Unexpected { asked, heard: heard.told() }
}

impl Incoming {
    /// The reply as text.
    pub fn told(&self) -> String {
        match self {
            Self::Status(text) | Self::Value(text) => text.escape_ascii().to_string(),
            Self::Refused(text) => format!("-{}", text.escape_ascii()),
            Self::Number(number) => number.to_string(),
            Self::Nothing => "nothing".to_owned(),
            Self::List(parts) | Self::Push(parts) => {
                format!("[{}]", parts.iter().map(Self::told).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

/// Parses the beginning of `input` and returns its length as well; `None` while it is incomplete.
fn parse(input: &[u8], depth: usize) -> Result<Option<(Incoming, usize)>, Malformed> {
    let malformed = || Malformed::at(input);
    let Some((line, mut taken)) = line(input)? else { return Ok(None) };
    let (&kind, rest) = line.split_first().ok_or_else(malformed)?;
    let count = || decimal(rest).ok_or_else(malformed);
    let parts = match kind {
        b'+' => return Ok(Some((Incoming::Status(rest.to_vec()), taken))),
        b'-' => return Ok(Some((Incoming::Refused(rest.to_vec()), taken))),
        b'_' => return Ok(Some((Incoming::Nothing, taken))),
        b'$' | b'*' if rest == b"-1" => return Ok(Some((Incoming::Nothing, taken))),
        b':' => {
            let number = std::str::from_utf8(rest).ok().and_then(|text| text.parse().ok());
            return Ok(Some((Incoming::Number(number.ok_or_else(malformed)?), taken)));
        }
        b'$' => {
            let value = counted(input, taken, count()?)?;
            return Ok(value.map(|(value, end)| (Incoming::Value(value.to_vec()), end)));
        }
        b'*' | b'>' => count()?,
        b'%' => count()?.saturating_mul(2),
        _ => return Err(malformed()),
    };
    if parts > PARTS_MAX || depth == DEPTH_MAX {
        return Err(malformed());
    }
    let mut list = Vec::new();
    for _ in 0..parts {
        let Some((part, length)) = parse(&input[taken..], depth + 1)? else { return Ok(None) };
        list.push(part);
        taken += length;
    }
    Ok(Some((if kind == b'>' { Incoming::Push(list) } else { Incoming::List(list) }, taken)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_is_told_from_a_list_and_is_heard_only_when_it_is_whole() {
        let push = b">4\r\n$8\r\nat.watch\r\n:7\r\n:1\r\n$3\r\na\r\n\r\n+OK\r\n";
        for cut in 0..push.len() - 5 {
            assert_eq!(parse(&push[..cut], 0), Ok(None), "{cut}");
        }
        let (heard, length) = parse(push, 0).unwrap().unwrap();
        let value = |text: &[u8]| Incoming::Value(text.to_vec());
        let parts = vec![value(b"at.watch"), Incoming::Number(7), Incoming::Number(1), value(b"a\r\n")];
        assert_eq!((heard, length), (Incoming::Push(parts), push.len() - 5));
        let (list, _) = parse(b"*2\r\n:-1\r\n_\r\n", 0).unwrap().unwrap();
        assert_eq!(list, Incoming::List(vec![Incoming::Number(-1), Incoming::Nothing]));
        let (map, _) = parse(b"%1\r\n+a\r\n:1\r\n", 0).unwrap().unwrap();
        assert_eq!(map, Incoming::List(vec![Incoming::Status(b"a".to_vec()), Incoming::Number(1)]));
    }

    #[test]
    fn what_is_no_reply_or_announces_too_much_is_refused() {
        let deep = [&b"*1\r\n".repeat(DEPTH_MAX + 1)[..], b":1\r\n"].concat();
        let bad: [&[u8]; 6] = [b"x\r\n", b":a\r\n", b"*99999999\r\n", b"$a\r\n", b"\r\n", &deep];
        for input in bad {
            assert!(parse(input, 0).is_err(), "{}", input.escape_ascii());
        }
    }
}
