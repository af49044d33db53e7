//! Which puts of a batch go beside their leaves ([`crate::delta`]): asked by the commit, and before it by
//! whoever may not wait for the disk.
//!
//! Invariant: for whoever holds the writer's lock the answer stays true until the commit; for anybody else it
//! is what would be done now.

use crate::delta::{MERGED_MORE, record_len};
use crate::search::Missing;
use crate::value::INLINE_BELOW;
use std::collections::HashMap;

/// The records that puts of one batch will have put beside leaves, for the puts of the same batch behind
/// them.
#[derive(Debug, Default)]
pub struct Beside {
    /// Their bytes, by the address of the leaf's slot. It stays there as long as the writer's lock is held;
    /// who does not hold it takes two leaves for one at worst, or one for two.
    bytes: HashMap<usize, usize>,
}

impl Beside {
    /// Whether a record with a key and a value of such lengths goes beside the missing leaf; then it is
    /// counted to it.
    pub(crate) fn takes(&mut self, missing: &Missing, key_len: usize, value_len: usize) -> bool {
        let Missing { parent: Some(parent), child } = missing else { return false };
        if value_len >= INLINE_BELOW || !parent.has_leaves() {
            return false;
        }
        let slot = &parent.children[*child];
        let before = self.bytes.entry(std::ptr::from_ref(slot).addr()).or_default();
        let bytes = record_len(key_len, value_len);
        let goes = slot.takes_delta(*before + bytes + MERGED_MORE);
        *before += if goes { bytes } else { 0 };
        goes
    }
}
