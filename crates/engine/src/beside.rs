//! Which puts of a batch go beside their leaves ([`crate::delta`]). The commit asks this, and before it a
//! caller that may not wait for the disk.
//!
//! Invariant: for a holder of the writer's lock the answer stays true until the commit. For any other caller
//! it says what a put would do at this moment.

use crate::delta::{MERGED_GROWTH_BYTES_MAX, record_len};
use crate::search::Absent;
use crate::value::INLINE_BELOW;
use std::collections::HashMap;

/// Counts the records that the puts of one batch will place beside leaves, so that later puts of the same
/// batch take them into account.
#[derive(Debug, Default)]
pub struct Beside {
    /// Bytes of these records, by the address of the leaf's slot. The address is stable while the writer's
    /// lock is held; without the lock, two leaves may at worst be taken for one, or one for two.
    bytes: HashMap<usize, usize>,
}

impl Beside {
    /// Whether a record with a key and a value of these lengths goes beside the absent leaf. If so, its
    /// bytes are added to that leaf's count.
    pub(crate) fn takes(&mut self, absent: Absent<'_>, key_len: usize, value_len: usize) -> bool {
        let Absent { parent: Some(parent), slot } = absent else { return false };
        if value_len >= INLINE_BELOW || !parent.has_leaves() {
            return false;
        }
        let before = self.bytes.entry(std::ptr::from_ref(slot).addr()).or_default();
        let bytes = record_len(key_len, value_len);
        let goes = slot.takes_delta(*before + bytes + MERGED_GROWTH_BYTES_MAX);
        *before += if goes { bytes } else { 0 };
        goes
    }
}
