//! The bytes of a run being filled: whole blocks on a block boundary, so that they can be written past the
//! system's page cache.

use crate::space::BLOCK;

/// Bytes of a run, whose beginning lies on a block boundary of the file.
#[derive(Default)]
pub(crate) struct RunBytes {
    /// Unused bytes up to the boundary, and then the run.
    bytes: Vec<u8>,
    start: usize,
}

impl RunBytes {
    /// An empty run with room for `room` bytes.
    pub(crate) fn with_room(room: usize) -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity(room + BLOCK as usize);
        // If it grows beyond that, it may be moved off the boundary, and is then written through the page
        // cache.
        let start = bytes.as_ptr().align_offset(BLOCK as usize).min(BLOCK as usize);
        bytes.resize(start, 0);
        Self { bytes, start }
    }

    pub(crate) fn len(&self) -> u64 {
        (self.bytes.len() - self.start) as u64
    }

    /// Appends bytes, and zeros after them up to a multiple of `unit`.
    pub(crate) fn put(&mut self, bytes: &[u8], unit: u64) {
        self.bytes.extend_from_slice(bytes);
        self.fill_up(unit);
    }

    /// The vector to append further bytes to.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Overwrites the first bytes.
    pub(crate) fn set_front(&mut self, bytes: &[u8]) {
        self.bytes[self.start..][..bytes.len()].copy_from_slice(bytes);
    }

    /// `len` bytes from `offset` on, if they are there.
    pub(crate) fn get(&self, offset: u64, len: u32) -> Option<&[u8]> {
        self.bytes[self.start..].get(offset as usize..)?.get(..len as usize)
    }

    /// All bytes, with zeros up to the end of the last block: an allocation shares no block with another one.
    pub(crate) fn whole_blocks(&mut self) -> &[u8] {
        self.fill_up(BLOCK);
        &self.bytes[self.start..]
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    fn fill_up(&mut self, unit: u64) {
        let len = self.len().next_multiple_of(unit) as usize;
        self.bytes.resize(self.start + len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_on_a_boundary_and_is_whole_blocks() {
        let mut run = RunBytes::with_room(3 * BLOCK as usize);
        for round in 0..3 {
            run.put(&[7; 100], 64);
            assert_eq!(run.len(), 128);
            run.put(&[8; 5000], 64);
            let blocks = run.whole_blocks();
            assert!(blocks.as_ptr().addr().is_multiple_of(BLOCK as usize), "round {round}");
            assert_eq!(blocks.len(), 2 * BLOCK as usize);
            assert!(blocks[..100] == [7; 100] && blocks[100..128] == [0; 28]);
            assert!(blocks[128..5128] == [8; 5000] && blocks[5128..].iter().all(|&byte| byte == 0));
            run.clear();
            assert_eq!(run.len(), 0);
        }
    }

    #[test]
    fn what_is_put_byte_by_byte_lies_behind_the_rest_and_the_front_can_be_set() {
        let mut run = RunBytes::with_room(2 * BLOCK as usize);
        run.put(&[0; 64], 1);
        run.end().extend_from_slice(b"reef");
        run.set_front(b"atoll");
        assert_eq!(run.len(), 68);
        let blocks = run.whole_blocks();
        assert!(blocks.starts_with(b"atoll\0") && blocks[64..].starts_with(b"reef\0"));
    }
}
