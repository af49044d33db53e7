//! Writes a server's replies, in the protocol version that the client asked for.

/// The version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// What every client speaks until it asks for another version.
    #[default]
    Resp2,
    /// With maps, sets, doubles, truth values, nulls and pushes.
    Resp3,
}

/// Appends replies to a buffer. Types that version 2 lacks are written the way its clients expect.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    target: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> ReplyWriter<'a> {
    /// A writer that appends to `target`.
    pub fn new(target: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { target, protocol }
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.simple("OK");
    }

    /// A short text on one line.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error: a word for programs, and a sentence for people.
    pub fn error(&mut self, word: &str, text: &str) {
        self.target.push(b'-');
        self.one_line(word);
        self.target.push(b' ');
        self.one_line(text);
        self.end();
    }

    /// An integer.
    pub fn integer(&mut self, number: i64) {
        self.target.push(b':');
        self.target.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.end();
    }

    /// Bytes.
    pub fn string(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len());
        self.target.extend_from_slice(bytes);
        self.end();
    }

    /// A text; a plain string in version 2.
    pub fn text(&mut self, text: &str) {
        if self.protocol == Protocol::Resp2 {
            return self.string(text.as_bytes());
        }
        self.head(b'=', text.len() + 4);
        self.target.extend_from_slice(b"txt:");
        self.target.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// Null in place of a string.
    pub fn null(&mut self) {
        self.target.extend_from_slice(if self.protocol == Protocol::Resp2 { b"$-1\r\n" } else { b"_\r\n" });
    }

    /// Null in place of an array.
    pub fn null_array(&mut self) {
        self.target.extend_from_slice(if self.protocol == Protocol::Resp2 { b"*-1\r\n" } else { b"_\r\n" });
    }

    /// A truth value; 1 or 0 in version 2.
    pub fn boolean(&mut self, is_true: bool) {
        match (self.protocol, is_true) {
            (Protocol::Resp2, _) => self.integer(i64::from(is_true)),
            (Protocol::Resp3, true) => self.target.extend_from_slice(b"#t\r\n"),
            (Protocol::Resp3, false) => self.target.extend_from_slice(b"#f\r\n"),
        }
    }

    /// A floating-point number with full precision; a string in version 2.
    pub fn double(&mut self, number: f64) {
        // The shortest text that reads back as the same number; infinities and NaN are spelled as the
        // protocol says.
        let text = match number {
            number if number.is_nan() => "nan".to_owned(),
            number if number.is_infinite() => if number > 0.0 { "inf" } else { "-inf" }.to_owned(),
            number if number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.0}"),
            number => format!("{number:?}"),
        };
        match self.protocol {
            Protocol::Resp2 => self.string(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', &text),
        }
    }

    /// The header of an array of `len` replies, which follow.
    pub fn array(&mut self, len: usize) {
        self.head(b'*', len);
    }

    /// The header of a set of `len` replies, which follow; an array in version 2.
    pub fn set(&mut self, len: usize) {
        self.head(if self.protocol == Protocol::Resp2 { b'*' } else { b'~' }, len);
    }

    /// The header of a map of `pairs` pairs, whose keys and values follow in turn; an array of twice that
    /// length in version 2.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.head(b'*', pairs * 2),
            Protocol::Resp3 => self.head(b'%', pairs),
        }
    }

    /// The header of an out-of-band message of `len` replies, which follow. Only for clients of version 3.
    pub fn push(&mut self, len: usize) {
        debug_assert!(self.protocol == Protocol::Resp3, "version 2 has no pushes");
        self.head(b'>', len);
    }

    fn head(&mut self, kind: u8, len: usize) {
        self.target.push(kind);
        self.target.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
        self.end();
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.target.push(kind);
        self.one_line(text);
        self.end();
    }

    /// Replaces line ends: a text may quote bytes from a peer.
    fn one_line(&mut self, text: &str) {
        let is_end = |byte: u8| byte == b'\r' || byte == b'\n';
        self.target.extend(text.bytes().map(|byte| if is_end(byte) { b' ' } else { byte }));
    }

    fn end(&mut self) {
        self.target.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut ReplyWriter<'_>)) -> String {
        let mut target = Vec::new();
        write(&mut ReplyWriter::new(&mut target, protocol));
        String::from_utf8(target).unwrap()
    }

    #[test]
    fn each_version_has_its_own_types() {
        type Write = fn(&mut ReplyWriter<'_>);
        let cases: [(Write, &str, &str); 14] = [
            (|w| w.ok(), "+OK\r\n", "+OK\r\n"),
            (|w| w.integer(-7), ":-7\r\n", ":-7\r\n"),
            (|w| w.string(b"a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (|w| w.text("ab"), "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n"),
            (|w| w.null(), "$-1\r\n", "_\r\n"),
            (|w| w.null_array(), "*-1\r\n", "_\r\n"),
            (|w| w.boolean(true), ":1\r\n", "#t\r\n"),
            (|w| w.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|w| w.double(3.0), "$1\r\n3\r\n", ",3\r\n"),
            (|w| w.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n"),
            (|w| w.array(3), "*3\r\n", "*3\r\n"),
            (|w| w.set(3), "*3\r\n", "~3\r\n"),
            (|w| w.map(2), "*4\r\n", "%2\r\n"),
            (|w| w.error("ERR", "no such thing"), "-ERR no such thing\r\n", "-ERR no such thing\r\n"),
        ];
        for (write, second, third) in cases {
            assert_eq!(written(Protocol::Resp2, write), second);
            assert_eq!(written(Protocol::Resp3, write), third);
        }
    }

    #[test]
    fn what_an_error_quotes_does_not_end_it() {
        let text = written(Protocol::Resp2, |writer| writer.error("ERR", "unknown command 'a\r\n+OK\r\n'"));
        assert_eq!(text, "-ERR unknown command 'a  +OK  '\r\n");
    }
}
