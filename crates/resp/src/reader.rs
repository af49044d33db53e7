//! Finds replies in received bytes.

use crate::number::{parse_integer, parse_length};
use crate::request::line;
use crate::{Limits, ProtocolError, Value};

/// Finds replies of both protocol versions in received bytes, and keeps the parts of an incomplete one.
///
/// Attributes, which a server may put before any reply, are parsed and dropped.
#[derive(Debug)]
pub struct ReplyParser {
    limits: Limits,
    /// Aggregates that are incomplete, outermost first.
    open: Vec<Open>,
    elements: usize,
    total: usize,
}

/// An aggregate whose elements are arriving.
#[derive(Debug)]
struct Open {
    kind: Kind,
    wanted: usize,
    values: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Array,
    Set,
    Map,
    Push,
    Attribute,
}

/// Most elements for which capacity is reserved before they arrive.
const RESERVED_ELEMENTS_MAX: usize = 64;

impl Open {
    fn is_whole(&self) -> bool {
        self.values.len() == self.wanted
    }

    /// The finished value; none for an attribute, which only describes the next reply.
    fn value(self) -> Option<Value> {
        Some(match self.kind {
            Kind::Array => Value::Array(self.values),
            Kind::Set => Value::Set(self.values),
            Kind::Push => Value::Push(self.values),
            Kind::Map => {
                let mut values = self.values.into_iter();
                Value::Map(std::iter::from_fn(|| Some((values.next()?, values.next()?))).collect())
            }
            Kind::Attribute => return None,
        })
    }
}

/// The next element of the input.
enum Next {
    Value(Value),
    Open(Open),
}

impl ReplyParser {
    /// A parser that accepts what `limits` allow.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, open: Vec::new(), elements: 0, total: 0 }
    }

    /// Parses the front of `input`. Returns how many bytes were consumed, which must not be passed again, and
    /// the reply that ends there, if any.
    ///
    /// # Errors
    /// [`ProtocolError`] for bytes that are not a reply; the connection is useless then.
    pub fn parse(&mut self, input: &[u8]) -> Result<(usize, Option<Value>), ProtocolError> {
        let mut at = 0;
        while let Some((next, behind)) = self.next(&input[at..])? {
            at += behind;
            let reply = match next {
                Next::Value(value) => self.put(value),
                Next::Open(open) => {
                    self.open.push(open);
                    self.close()
                }
            };
            if reply.is_some() {
                (self.elements, self.total) = (0, 0);
                return Ok((at, reply));
            }
        }
        Ok((at, None))
    }

    /// Adds a value to the innermost open aggregate; returns the reply if it is complete.
    fn put(&mut self, value: Value) -> Option<Value> {
        match self.open.last_mut() {
            None => Some(value),
            Some(around) => {
                around.values.push(value);
                self.close()
            }
        }
    }

    /// Closes the innermost aggregate if it is complete; returns the reply if that is complete too.
    fn close(&mut self) -> Option<Value> {
        let whole = self.open.pop_if(|open| open.is_whole())?;
        // An attribute describes what comes next.
        self.put(whole.value()?)
    }

    /// The first element of `input` and its length; none if it is incomplete.
    fn next(&mut self, input: &[u8]) -> Result<Option<(Next, usize)>, ProtocolError> {
        let Some(&kind) = input.first() else { return Ok(None) };
        let Some((text, behind)) = line(input, 1, "reply")? else { return Ok(None) };
        let value = match kind {
            b'+' => Value::Simple(text.to_vec()),
            b'-' => Value::Error(text.to_vec()),
            b':' => Value::Integer(integer(text)?),
            b'_' if text.is_empty() => Value::Null,
            b'#' => Value::Boolean(boolean(text)?),
            b',' => Value::Double(double(text)?),
            b'(' => Value::BigNumber(big_number(text)?),
            b'$' | b'!' | b'=' => return self.string(kind, text, &input[behind..], behind),
            b'*' => return self.aggregate(Kind::Array, text, behind),
            b'~' => return self.aggregate(Kind::Set, text, behind),
            b'%' => return self.aggregate(Kind::Map, text, behind),
            b'>' => return self.aggregate(Kind::Push, text, behind),
            b'|' => return self.aggregate(Kind::Attribute, text, behind),
            b'_' => return Err(no_scalar("null", text)),
            found => return Err(ProtocolError::NoReply { found }),
        };
        self.count(1)?;
        Ok(Some((Next::Value(value), behind)))
    }

    fn string(
        &mut self,
        kind: u8,
        length: &[u8],
        rest: &[u8],
        behind: usize,
    ) -> Result<Option<(Next, usize)>, ProtocolError> {
        if kind == b'$' && length == b"-1" {
            self.count(1)?;
            return Ok(Some((Next::Value(Value::Null), behind)));
        }
        let length = parse_length(length, self.limits.string_bytes).ok_or(ProtocolError::Length)?;
        if self.total + length > self.limits.total_bytes {
            return Err(ProtocolError::LargeReply { what: "bytes", limit: self.limits.total_bytes });
        }
        match rest.get(length..length + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::LineEnd),
        }
        self.count(1)?;
        self.total += length;
        let bytes = &rest[..length];
        let value = match (kind, bytes) {
            (b'$', bytes) => Value::String(bytes.to_vec()),
            (b'=', [a, b, c, b':', text @ ..]) => Value::Text([*a, *b, *c], text.to_vec()),
            (b'=', bytes) => return Err(no_scalar("text", bytes)),
            (_, bytes) => Value::Error(bytes.to_vec()),
        };
        Ok(Some((Next::Value(value), behind + length + 2)))
    }

    fn aggregate(
        &mut self,
        kind: Kind,
        count: &[u8],
        behind: usize,
    ) -> Result<Option<(Next, usize)>, ProtocolError> {
        if kind == Kind::Array && count == b"-1" {
            self.count(1)?;
            return Ok(Some((Next::Value(Value::Null), behind)));
        }
        let count = parse_length(count, usize::MAX / 2).ok_or(ProtocolError::Count)?;
        let wanted = if matches!(kind, Kind::Map | Kind::Attribute) { count * 2 } else { count };
        // An empty aggregate counts as an element as well.
        self.count(1)?;
        self.check_elements(wanted)?;
        if self.open.len() >= self.limits.depth {
            return Err(ProtocolError::LargeReply { what: "levels", limit: self.limits.depth });
        }
        let values = Vec::with_capacity(wanted.min(RESERVED_ELEMENTS_MAX));
        Ok(Some((Next::Open(Open { kind, wanted, values }), behind)))
    }

    fn count(&mut self, more: usize) -> Result<(), ProtocolError> {
        self.check_elements(more)?;
        self.elements += more;
        Ok(())
    }

    fn check_elements(&self, more: usize) -> Result<(), ProtocolError> {
        if more > self.limits.elements - self.elements.min(self.limits.elements) {
            return Err(ProtocolError::LargeReply { what: "elements", limit: self.limits.elements });
        }
        Ok(())
    }
}

fn no_scalar(what: &'static str, found: &[u8]) -> ProtocolError {
    ProtocolError::NoScalar { what, found: found[..found.len().min(32)].to_vec() }
}

fn integer(text: &[u8]) -> Result<i64, ProtocolError> {
    // A leading plus sign is allowed here.
    let digits = text.strip_prefix(b"+").filter(|digits| digits.first() != Some(&b'-')).unwrap_or(text);
    parse_integer(digits).ok_or_else(|| no_scalar("integer", text))
}

fn boolean(text: &[u8]) -> Result<bool, ProtocolError> {
    match text {
        b"t" => Ok(true),
        b"f" => Ok(false),
        other => Err(no_scalar("truth value", other)),
    }
}

fn double(text: &[u8]) -> Result<f64, ProtocolError> {
    match text {
        b"inf" | b"+inf" => Ok(f64::INFINITY),
        b"-inf" => Ok(f64::NEG_INFINITY),
        b"nan" | b"-nan" => Ok(f64::NAN),
        [b'0'..=b'9' | b'-' | b'+' | b'.', ..] => {
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            number.ok_or_else(|| no_scalar("double", text))
        }
        other => Err(no_scalar("double", other)),
    }
}

fn big_number(text: &[u8]) -> Result<Vec<u8>, ProtocolError> {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if is_number { Ok(text.to_vec()) } else { Err(no_scalar("big number", text)) }
}

#[cfg(test)]
mod tests;
