//! Compact encoding of numbers and strings, the building blocks of whole manifests.
//!
//! A number is little-endian in groups of seven bits, lowest group first; every byte but the last has its
//! high bit set.
//!
//! Invariant: the reader never reads past the input, and never reserves more memory than the input has bytes.

/// The output.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// The number of items that follow.
    pub(super) fn count(&mut self, count: usize) {
        self.number(count as u64);
    }

    /// An optional number.
    pub(super) fn maybe(&mut self, number: Option<u64>) {
        match number {
            None => self.flag(false),
            Some(number) => {
                self.flag(true);
                self.number(number);
            }
        }
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.bytes.push(u8::from(flag));
    }

    pub(super) fn plain(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.plain(text.as_bytes());
    }
}

/// The remaining input. All methods return `None` if the bytes are not what a [`Writer`] wrote.
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(super) const fn is_at_end(&self) -> bool {
        self.left.is_empty()
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for place in 0..10 {
            let (byte, left) = self.left.split_first()?;
            self.left = left;
            let group = u64::from(byte & 0x7f);
            // The tenth group has room for one bit only.
            if place == 9 && group > 1 {
                return None;
            }
            number |= group << (7 * place);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// The number of items that follow, each of at least one byte.
    pub(super) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.left.len()).then_some(count)
    }

    pub(super) fn maybe(&mut self) -> Option<Option<u64>> {
        if self.flag()? { Some(Some(self.number()?)) } else { Some(None) }
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.plain(1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    pub(super) fn plain(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, left) = self.left.split_at_checked(len)?;
        self.left = left;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let len = self.count()?;
        std::str::from_utf8(self.plain(len)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_come_back_and_no_other_bytes_are_taken_for_one() {
        let mut numbers = vec![0, u64::MAX];
        numbers.extend((0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) - 1]));
        for number in numbers {
            let mut writer = Writer::default();
            writer.number(number);
            let bytes = writer.into_bytes();
            assert_eq!(Reader::new(&bytes).number(), Some(number));
            assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).number(), None);
        }
        assert_eq!(Reader::new(&[0xff; 9]).number(), None);
        assert_eq!(Reader::new(&[[0xff; 9].as_slice(), &[2]].concat()).number(), None, "65 bits");
        assert_eq!(Reader::new(&[0x80; 20]).number(), None, "without end");
        assert_eq!(Reader::new(&[200, 1, 7]).count(), None, "more things than bytes");
    }
}
