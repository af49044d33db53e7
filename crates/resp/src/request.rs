//! Requests: an array of strings, or a line that a person typed.

mod lookahead;

pub use lookahead::keys_ahead;

use crate::limits::LINE_BYTES;
use crate::number::parse_length;
use crate::{Limits, ProtocolError, inline};
use std::ops::Range;

/// One request: the name of a command and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    source: &'a [u8],
    arguments: &'a [Range<usize>],
    bytes: usize,
}

impl<'a> Request<'a> {
    /// The number of arguments, including the name of the command; zero for an empty line, which gets no
    /// answer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Whether there are no arguments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// An argument; the name of the command is the first one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.arguments.get(index).map(|range| &self.source[range.clone()])
    }

    /// All arguments, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let source = self.source;
        self.arguments.iter().map(move |range| &source[range.clone()])
    }

    /// The request that begins at one of its arguments; empty if there are no more.
    #[must_use]
    pub fn behind(&self, arguments: usize) -> Self {
        Self { arguments: self.arguments.get(arguments..).unwrap_or_default(), ..*self }
    }

    /// The bytes that it occupies; the next one begins after them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Finds requests in received bytes, and remembers its progress in an incomplete one.
#[derive(Debug)]
pub struct RequestParser {
    limits: Limits,
    /// Where the next line or string begins.
    at: usize,
    /// The announced number of arguments.
    wanted: Option<usize>,
    /// The announced length of the next argument.
    length: Option<usize>,
    /// Length of the arguments so far, including one that is announced.
    total: usize,
    arguments: Vec<Range<usize>>,
    /// The words of an inline request.
    text: Vec<u8>,
    is_over: bool,
}

/// The capacity, in arguments and in bytes of words, that a parser keeps after a request.
const KEPT_CAPACITY: usize = 1024;

impl RequestParser {
    /// A parser that accepts what `limits` allow.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            at: 0,
            wanted: None,
            length: None,
            total: 0,
            arguments: Vec::new(),
            text: Vec::new(),
            is_over: false,
        }
    }

    /// Changes the limits from the next request on: an authenticated client may send more.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The request at the front of `input`, or none if it is incomplete. In that case, `input` has to begin
    /// with the same bytes at the next call; they are not scanned twice.
    ///
    /// # Errors
    /// [`ProtocolError`] for bytes that are not a request; the connection is useless then.
    pub fn parse<'a>(&'a mut self, input: &'a [u8]) -> Result<Option<Request<'a>>, ProtocolError> {
        if self.is_over {
            self.begin();
        }
        let is_inline = self.at == 0 && input.first().is_some_and(|&first| first != b'*');
        let is_whole = if is_inline { self.inline(input)? } else { self.array(input)? };
        self.is_over = is_whole;
        let source = if is_inline { &self.text } else { input };
        Ok(is_whole.then_some(Request { source, arguments: &self.arguments, bytes: self.at }))
    }

    /// Memory on the heap, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.arguments.capacity() * size_of::<Range<usize>>() + self.text.capacity()
    }

    /// How long `input` has to be at least before another call can succeed; 0 if that is unknown.
    #[must_use]
    pub fn wants(&self) -> usize {
        self.length.map_or(0, |length| self.at + length + 2)
    }

    fn begin(&mut self) {
        (self.at, self.total, self.is_over) = (0, 0, false);
        (self.wanted, self.length) = (None, None);
        self.arguments.clear();
        self.arguments.shrink_to(KEPT_CAPACITY);
        self.text.clear();
        self.text.shrink_to(KEPT_CAPACITY);
    }

    fn inline(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        let Some(end) = input.iter().take(LINE_BYTES).position(|&byte| byte == b'\n') else {
            return match input.len() < LINE_BYTES {
                true => Ok(false),
                false => Err(ProtocolError::LongLine { what: "inline request" }),
            };
        };
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        if line.len() > self.limits.total_bytes {
            return Err(ProtocolError::Total { limit: self.limits.total_bytes });
        }
        inline::split(line, &mut self.text, &mut self.arguments)?;
        self.at = end + 1;
        Ok(true)
    }

    fn array(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        let Some(wanted) = self.wanted(input)? else { return Ok(false) };
        while self.arguments.len() < wanted {
            let Some(length) = self.length(input)? else { return Ok(false) };
            let end = self.at + length;
            match input.get(end..end + 2) {
                None => return Ok(false),
                Some(b"\r\n") => self.arguments.push(self.at..end),
                Some(_) => return Err(ProtocolError::LineEnd),
            }
            (self.at, self.length) = (end + 2, None);
        }
        Ok(true)
    }

    /// The announced number of arguments.
    fn wanted(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.wanted.is_none()
            && let Some((count, behind)) = line(input, 1, "mbulk count string")?
        {
            // A negative count means none, and gets no answer.
            let is_none = count.first() == Some(&b'-') && crate::parse_integer(count).is_some();
            let count =
                if is_none { 0 } else { parse_length(count, usize::MAX).ok_or(ProtocolError::Count)? };
            if count > self.limits.elements {
                return Err(
                    self.unless_unauthenticated(ProtocolError::UnauthenticatedCount, ProtocolError::Count)
                );
            }
            (self.wanted, self.at) = (Some(count), behind);
        }
        Ok(self.wanted)
    }

    /// The announced length of the next argument, with `at` moved to its first byte.
    fn length(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.length.is_some() {
            return Ok(self.length);
        }
        match input.get(self.at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&found) => return Err(ProtocolError::NoArgument { found }),
        }
        let Some((length, behind)) = line(input, self.at + 1, "bulk count string")? else { return Ok(None) };
        let length = parse_length(length, usize::MAX).ok_or(ProtocolError::Length)?;
        if length > self.limits.string_bytes {
            return Err(
                self.unless_unauthenticated(ProtocolError::UnauthenticatedLength, ProtocolError::Length)
            );
        }
        self.total += length;
        if self.total > self.limits.total_bytes {
            return Err(ProtocolError::Total { limit: self.limits.total_bytes });
        }
        (self.length, self.at) = (Some(length), behind);
        Ok(self.length)
    }

    fn unless_unauthenticated(
        &self,
        unauthenticated: ProtocolError,
        otherwise: ProtocolError,
    ) -> ProtocolError {
        if self.limits == Limits::UNAUTHENTICATED { unauthenticated } else { otherwise }
    }
}

/// The line that starts at `from`, without its end, and the start of the next line; none if its end has not
/// arrived.
pub(crate) fn line<'a>(
    input: &'a [u8],
    from: usize,
    what: &'static str,
) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
    let rest = input.get(from..).unwrap_or_default();
    let Some(len) = rest.iter().take(LINE_BYTES).position(|&byte| byte == b'\r') else {
        return if rest.len() < LINE_BYTES { Ok(None) } else { Err(ProtocolError::LongLine { what }) };
    };
    match rest.get(len + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((&rest[..len], from + len + 2))),
        Some(_) => Err(ProtocolError::LineEnd),
    }
}

/// Appends a request to `target` in the form that clients send: an array of strings.
pub fn write_request<A: AsRef<[u8]>>(target: &mut Vec<u8>, arguments: &[A]) {
    let mut text = itoa::Buffer::new();
    let mut head = |target: &mut Vec<u8>, kind: u8, length: usize| {
        target.push(kind);
        target.extend_from_slice(text.format(length).as_bytes());
        target.extend_from_slice(b"\r\n");
    };
    head(target, b'*', arguments.len());
    for argument in arguments {
        let argument = argument.as_ref();
        head(target, b'$', argument.len());
        target.extend_from_slice(argument);
        target.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests;
