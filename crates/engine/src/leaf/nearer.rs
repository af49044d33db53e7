//! Asks for the parts of a leaf before they are needed.

use super::{HEAD_LINES, Leaf, head_of, heads_below};
use crate::prefetch::prefetch;

impl Leaf {
    /// Brings nearer what setting `key` will touch: its record, or the place where it will be written, or
    /// everything if the leaf must be built anew.
    pub(crate) fn prefetch_for_put(&self, key: &[u8]) {
        let Some(suffix) = key.get(self.prefix_len as usize..) else { return };
        let head = head_of(suffix);
        let slot = heads_below(self.heads(), head);
        if self.heads().get(slot) == Some(&head) {
            self.prefetch_record(slot);
        } else if self.is_about_full() {
            self.prefetch_all();
        } else {
            self.prefetch_heap_end();
        }
    }

    fn is_about_full(&self) -> bool {
        let used = self.prefix_at() + self.prefix_len as usize;
        let average = (self.bytes().len() - self.heap_start as usize) / self.len().max(1);
        self.count == self.capacity || (self.heap_start as usize) < used + average
    }

    /// Brings all records nearer.
    pub(crate) fn prefetch_all(&self) {
        prefetch(&raw const self.owners, HEAD_LINES);
        let bytes = self.bytes();
        let tail = bytes.len().min(6400);
        prefetch(bytes[bytes.len() - tail..].as_ptr(), tail / 64);
    }

    /// Brings the place nearer where the next record will be written.
    pub(crate) fn prefetch_heap_end(&self) {
        let at = (self.heap_start as usize).saturating_sub(128);
        prefetch(self.bytes()[at..].as_ptr(), 3);
    }

    /// Brings the record of a slot nearer.
    #[inline]
    pub(crate) fn prefetch_record(&self, slot: usize) {
        prefetch(self.bytes()[self.offset(slot)..].as_ptr(), 3);
    }
}
