//! Keys of a leaf, each assembled from the shared prefix and the suffix of its record.
//!
//! A short key is cut out of the leaf as a whole, with the prefix laid over what stands before its suffix
//! there. Copying two parts would cost a call, and a load of a word that spans both parts would stall until
//! both are stored: a processor does not forward two stores to one load.

use super::{Leaf, RECORD_HEADER, SUFFIX_MASK};

/// Bytes that are cut out at once; longer keys are copied.
const SHORT_BYTES: usize = 32;

type Short = [u8; SHORT_BYTES];

/// The key of one record after another; empty before the first.
#[derive(Default)]
pub(crate) struct KeyBuffer {
    /// The prefix, padded with zeros.
    prefix: Short,
    /// Zeros over the prefix, ones behind it.
    behind: Short,
    short: Short,
    /// Bytes of a key in `short`; `None` where it lies in `long`.
    short_bytes: Option<usize>,
    long: Vec<u8>,
}

impl KeyBuffer {
    /// Prepares for the keys of a leaf. The present key stays.
    pub(crate) fn begin(&mut self, leaf: &Leaf) {
        let prefix = leaf.prefix();
        let len = prefix.len().min(SHORT_BYTES);
        (self.prefix, self.behind) = ([0; SHORT_BYTES], [u8::MAX; SHORT_BYTES]);
        self.prefix[..len].copy_from_slice(&prefix[..len]);
        self.behind[..len].fill(0);
    }

    /// Takes the key of a record of the leaf passed to [`KeyBuffer::begin`].
    #[inline(always)]
    pub(crate) fn take(&mut self, leaf: &Leaf, slot: usize) {
        let (at, header) = leaf.header(slot);
        let (suffix_at, suffix_len) = (at + RECORD_HEADER, (header & SUFFIX_MASK) as usize);
        let key_len = leaf.prefix_len as usize + suffix_len;
        match leaf.window(suffix_at.wrapping_sub(leaf.prefix_len as usize)) {
            Some(window) if key_len <= SHORT_BYTES => {
                for (at, byte) in self.short.iter_mut().enumerate() {
                    *byte = window[at] & self.behind[at] | self.prefix[at];
                }
                self.short_bytes = Some(key_len);
            }
            _ => self.copy(leaf, slot),
        }
    }

    fn copy(&mut self, leaf: &Leaf, slot: usize) {
        self.long.clear();
        self.long.extend_from_slice(leaf.prefix());
        self.long.extend_from_slice(leaf.suffix(slot));
        self.short_bytes = None;
    }

    /// The key that was taken last.
    #[inline(always)]
    pub(crate) fn key(&self) -> &[u8] {
        match self.short_bytes {
            Some(len) => &self.short[..len],
            None => &self.long,
        }
    }
}

impl Leaf {
    #[inline(always)]
    fn window(&self, at: usize) -> Option<&Short> {
        self.bytes().get(at..)?.first_chunk()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::key_hash;
    use crate::frames::Purpose;
    use crate::leaf::Record;
    use crate::value::Stored;

    #[test]
    fn keys_of_all_lengths_are_those_that_were_stored() {
        let letters: Vec<u8> = (1..=80).collect();
        let mut buffer = KeyBuffer::default();
        for shared in 0..40 {
            // The shortest key is the prefix alone, and there are no value bytes behind the last one that
            // could be cut out with it.
            let keys: Vec<&[u8]> = (shared..=80).map(|len| &letters[..len]).collect();
            let records: Vec<Record<'_>> = keys
                .iter()
                .map(|key| Record { key: [key, &[]], fingerprint: key_hash(key), value: Stored::Inline(&[]) })
                .collect();
            let leaf = Leaf::build(&letters[..shared], 1, &records, 0, Purpose::Writing);
            buffer.begin(&leaf);
            for slot in (0..keys.len()).chain((0..keys.len()).rev()) {
                buffer.take(&leaf, slot);
                assert_eq!(buffer.key(), keys[slot], "{shared} of them shared");
            }
        }
    }
}
