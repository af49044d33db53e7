//! Numbers and texts as bytes, and back.
//!
//! Invariant: reading never panics, and never takes more memory than there are bytes to read from.

use thiserror::Error;

/// Bytes that are not a valid encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{problem}, {left} bytes before the end")]
pub(crate) struct Damaged {
    pub(crate) problem: &'static str,
    /// How many bytes were left to read.
    pub(crate) left: usize,
}

/// A type with an encoding.
pub(crate) trait Coded: Sized {
    /// The fewest bytes that an encoded value takes, which limits the memory reserved for a list of them.
    const BYTES_MIN: usize = 1;
    /// Appends the encoded value.
    fn put(&self, out: &mut Vec<u8>);
    /// Decodes a value.
    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged>;

    /// The encoded value alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// Decodes a value that takes all of the bytes.
    fn of_bytes(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut reader = Reader::new(bytes);
        let value = Self::take(&mut reader)?;
        reader.end()?;
        Ok(value)
    }
}

/// Reads bytes from the front.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn damaged(&self, problem: &'static str) -> Damaged {
        Damaged { problem, left: self.rest.len() }
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| self.damaged("bytes are missing"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Damaged> {
        let (byte, rest) = self.rest.split_first().ok_or_else(|| self.damaged("bytes are missing"))?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(crate) fn count(&mut self, bytes_each: usize) -> Result<usize, Damaged> {
        let count = usize::try_from(u64::take(self)?).unwrap_or(usize::MAX);
        match count.checked_mul(bytes_each) {
            Some(bytes) if bytes <= self.rest.len() => Ok(count),
            _ => Err(self.damaged("an impossible number of things")),
        }
    }

    pub(crate) fn end(&self) -> Result<(), Damaged> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damaged("more bytes than expected")) }
    }
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
impl Coded for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut left = *self;
        while left >= 0x80 {
            out.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = from.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(from.damaged("a number beyond 64 bits"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(from.damaged("a number beyond 64 bits"))
    }
}

impl Coded for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Self::try_from(u64::take(from)?).map_err(|_| from.damaged("a number beyond 32 bits"))
    }
}

impl Coded for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        match from.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(from.damaged("neither yes nor no")),
        }
    }
}

impl Coded for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let count = from.count(1)?;
        let text = std::str::from_utf8(from.take(count)?).map_err(|_| from.damaged("an invalid text"))?;
        Ok(text.to_owned())
    }
}

impl<T: Coded> Coded for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let count = from.count(T::BYTES_MIN)?;
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    const BYTES_MIN: usize = A::BYTES_MIN + B::BYTES_MIN;

    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

/// Types that wrap a number.
macro_rules! coded_as_number {
    ($($name:ident($number:ty)),*) => {$(
        impl Coded for atoll_replica::$name {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, Damaged> {
                Ok(Self(<$number>::take(from)?))
            }
        }
    )*};
}

coded_as_number!(
    NodeId(u32),
    Incarnation(u64),
    Slot(u32),
    Epoch(u64),
    Sequence(u64),
    Version(u64),
    Moment(u64)
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_small_ones_are_short() {
        for number in [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            assert_eq!(u64::of_bytes(&number.to_bytes()), Ok(number));
        }
        assert_eq!((127_u64.to_bytes().len(), u64::MAX.to_bytes().len()), (1, 10));
        assert!(u64::of_bytes(&[0xff; 10]).is_err(), "beyond 64 bits");
        assert!(u32::of_bytes(&(1_u64 << 32).to_bytes()).is_err());
    }

    #[test]
    fn counts_beyond_what_is_there_are_refused_before_anything_is_allocated() {
        let mut bytes = u64::MAX.to_bytes();
        assert!(Vec::<u64>::of_bytes(&bytes).is_err());
        bytes.extend([0; 100]);
        assert!(Vec::<(u64, u64)>::of_bytes(&bytes).is_err() && String::of_bytes(&bytes).is_err());
    }

    #[test]
    fn what_is_left_over_is_an_error() {
        let mut bytes = "text".to_owned().to_bytes();
        assert_eq!(String::of_bytes(&bytes), Ok("text".to_owned()));
        bytes.push(0);
        assert!(String::of_bytes(&bytes).is_err());
    }
}
