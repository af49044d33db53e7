//! Encoding of the on-disk structures: little-endian integers, varints, length-prefixed strings.
//!
//! Invariant: [`Decoder`] is total: for any bytes it returns a value or [`Malformed`], and it never allocates
//! more than the input is long.

/// The bytes do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// No file and no log is this long; sums of longer offsets could overflow.
pub(crate) const WORD_END: u64 = 1 << 60;

/// Appends fields to a byte vector.
pub(crate) trait Encode {
    fn put_u8(&mut self, value: u8);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    /// LEB128.
    fn put_varint(&mut self, value: u64);
    /// Length as varint, then the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Encode for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }
}

/// Reads fields from bytes.
#[derive(Clone, Copy)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(len).ok_or(Malformed)?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        let mut word = [0; 4];
        word.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(word))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        let mut word = [0; 8];
        word.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(word))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                return Err(Malformed);
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// An offset, a length or the number of an epoch. Anything too great to add two of them without overflow
    /// is malformed; no store has such numbers.
    pub(crate) fn word(&mut self) -> Result<u64, Malformed> {
        let word = self.varint()?;
        if word < WORD_END { Ok(word) } else { Err(Malformed) }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        self.take(len)
    }

    /// A count of things that take at least `least` bytes each, so that it cannot exceed the input.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        if count > self.remaining() / least.max(1) { Err(Malformed) } else { Ok(count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_round_trip() {
        let mut bytes = Vec::new();
        let varints = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        bytes.put_u8(7);
        bytes.put_u32(8);
        bytes.put_u64(9);
        bytes.put_bytes(b"name");
        for value in varints {
            bytes.put_varint(value);
        }
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(
            (decoder.u8(), decoder.u32(), decoder.u64(), decoder.bytes()),
            (Ok(7), Ok(8), Ok(9), Ok(&b"name"[..]))
        );
        for value in varints {
            assert_eq!(decoder.varint(), Ok(value));
        }
        assert!(decoder.is_at_end());
    }

    #[test]
    fn hostile_lengths_and_varints_are_malformed() {
        assert_eq!(Decoder::new(&[0xFF; 11]).varint(), Err(Malformed));
        assert_eq!(
            Decoder::new(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2]).varint(),
            Err(Malformed)
        );
        assert_eq!(Decoder::new(&[200, 1, 1]).bytes(), Err(Malformed));
        assert_eq!(Decoder::new(&[4, 0, 0, 0]).count(1), Err(Malformed));
        assert_eq!(Decoder::new(&[1]).u64(), Err(Malformed));
    }
}
