//! Changes of a leaf in place.
//!
//! The heap only grows, downwards. A record that is removed or replaced by a longer one leaves garbage, which
//! disappears when the leaf is rebuilt.

use super::{
    CHAIN_FLAG, Full, Leaf, RECORD_HEADER, Record, SUFFIX_BITS, SUFFIX_MASK, head_of, record_bytes,
    size::chain_bytes,
};
use crate::value::{Chain, Stored};

impl Leaf {
    /// Inserts a record whose key is absent, at the slot that [`Leaf::locate`] returned.
    pub(crate) fn insert_at(
        &mut self,
        slot: usize,
        key: &[u8],
        fingerprint: u8,
        value: &Stored<'_>,
    ) -> Result<(), Full> {
        let suffix = &key[self.prefix_len as usize..];
        if !self.has_room(suffix.len(), value) {
            return Err(Full);
        }
        let count = self.len();
        let capacity = self.capacity as usize;
        let offset = self.write_record(suffix, value);
        let bytes = self.bytes_mut();
        bytes.copy_within(slot..count, slot + 1);
        bytes[slot] = fingerprint;
        let offsets: &mut [u16] = bytemuck::cast_slice_mut(&mut bytes[capacity..3 * capacity]);
        offsets.copy_within(slot..count, slot + 1);
        offsets[slot] = offset;
        let heads: &mut [u32] = bytemuck::cast_slice_mut(&mut bytes[3 * capacity..7 * capacity]);
        heads.copy_within(slot..count, slot + 1);
        heads[slot] = head_of(suffix);
        self.count += 1;
        Ok(())
    }

    /// Replaces the value of a slot, and returns the old chain, so that its pieces can be retired.
    pub(crate) fn replace(&mut self, slot: usize, value: &Stored<'_>) -> Result<Option<Chain>, Full> {
        let (at, header) = self.header(slot);
        let suffix_len = (header & SUFFIX_MASK) as usize;
        let start = at + RECORD_HEADER + suffix_len;
        match (*value, header & CHAIN_FLAG != 0) {
            (Stored::Inline(bytes), false) if bytes.len() == (header >> SUFFIX_BITS) as usize => {
                self.bytes_mut()[start..start + bytes.len()].copy_from_slice(bytes);
                return Ok(None);
            }
            (Stored::Chain(chain), true) => {
                let index = self.chain_index(start);
                return Ok(self.put_chain(index, chain));
            }
            _ => {}
        }
        if !self.has_room(suffix_len, value) {
            return Err(Full);
        }
        let suffix = self.suffix(slot).to_vec();
        let old = self.forget_record(slot);
        let offset = self.write_record(&suffix, value);
        let capacity = self.capacity as usize;
        let offsets: &mut [u16] = bytemuck::cast_slice_mut(&mut self.bytes_mut()[capacity..3 * capacity]);
        offsets[slot] = offset;
        Ok(old)
    }

    /// Removes a slot, and returns its chain, so that its pieces can be retired.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Chain> {
        let old = self.forget_record(slot);
        let count = self.len();
        let capacity = self.capacity as usize;
        let bytes = self.bytes_mut();
        bytes.copy_within(slot + 1..count, slot);
        let offsets: &mut [u16] = bytemuck::cast_slice_mut(&mut bytes[capacity..3 * capacity]);
        offsets.copy_within(slot + 1..count, slot);
        let heads: &mut [u32] = bytemuck::cast_slice_mut(&mut bytes[3 * capacity..7 * capacity]);
        heads.copy_within(slot + 1..count, slot);
        self.count -= 1;
        old
    }

    /// The chain of a slot, to be changed.
    fn chain_mut(&mut self, slot: usize) -> Option<&mut Chain> {
        let (at, header) = self.header(slot);
        let start = at + RECORD_HEADER + (header & SUFFIX_MASK) as usize;
        let index = (header & CHAIN_FLAG != 0).then(|| self.chain_index(start))?;
        self.chains.get_mut(index)?.as_mut()
    }

    /// Whether bytes can be added in place behind the last ones of a slot's value.
    pub(crate) fn can_grow(&mut self, slot: usize, epoch: u64) -> bool {
        self.chain_mut(slot).is_some_and(|chain| chain.can_grow(epoch))
    }

    /// Adds bytes in place behind the last ones of a slot's value, and returns whether that [was
    /// possible](Self::can_grow).
    pub(crate) fn grow(&mut self, slot: usize, added: &[u8], epoch: u64) -> bool {
        self.chain_mut(slot).is_some_and(|chain| chain.grow(added, epoch))
    }

    /// Whether a value can be put in place, at the slot that [`Leaf::locate`] returned.
    pub(crate) fn takes(&self, place: Result<usize, usize>, key: &[u8], value: &Stored<'_>) -> bool {
        let fits = || self.has_room(key.len() - self.prefix_len as usize, value);
        match (place.map(|slot| self.value(slot)), value) {
            (Ok(Stored::Inline(old)), Stored::Inline(new)) => old.len() == new.len() || fits(),
            (Ok(Stored::Chain(_)), Stored::Chain(_)) => true,
            _ => fits(),
        }
    }

    /// Whether a record can be removed in place: the leaf stays full enough not to be joined with its
    /// neighbour.
    pub(crate) fn spares(&self, slot: usize) -> bool {
        !self.is_sparse_without(record_bytes(self.suffix(slot).len(), &self.value(slot)))
    }

    fn has_room(&self, suffix: usize, value: &Stored<'_>) -> bool {
        let used = self.prefix_at() + self.prefix_len as usize;
        let added = record_bytes(suffix, value);
        self.count < self.capacity
            && (self.heap_start as usize).saturating_sub(used) >= added
            && !self.is_overgrown(added)
    }

    /// Writes a record into the heap, and returns its offset in words.
    fn write_record(&mut self, suffix: &[u8], value: &Stored<'_>) -> u16 {
        let at = self.heap_start as usize - record_bytes(suffix.len(), value);
        let start = at + RECORD_HEADER + suffix.len();
        let header = match value {
            Stored::Inline(inline) => {
                self.bytes_mut()[start..start + inline.len()].copy_from_slice(inline);
                suffix.len() as u32 | ((inline.len() as u32) << SUFFIX_BITS)
            }
            Stored::Chain(chain) => {
                let index = self.keep_chain(chain);
                self.bytes_mut()[start..start + 4].copy_from_slice(&index.to_le_bytes());
                suffix.len() as u32 | CHAIN_FLAG
            }
        };
        let bytes = self.bytes_mut();
        bytes[at..at + 4].copy_from_slice(&header.to_le_bytes());
        bytes[at + RECORD_HEADER..start].copy_from_slice(suffix);
        self.heap_start = at as u32;
        (at / 4) as u16
    }

    fn keep_chain(&mut self, chain: &Chain) -> u32 {
        let vacant =
            if self.vacant_chains == 0 { None } else { self.chains.iter().position(Option::is_none) };
        let index = match vacant {
            Some(index) => {
                self.vacant_chains -= 1;
                index
            }
            None => {
                self.chains.push(None);
                self.chains.len() - 1
            }
        };
        self.put_chain(index, chain);
        index as u32
    }

    /// Puts a chain into its slot, and returns the previous one.
    fn put_chain(&mut self, index: usize, chain: &Chain) -> Option<Chain> {
        self.counted.grow(chain_bytes(chain));
        let old = self.chains[index].replace(chain.clone());
        self.counted.shrink(old.as_ref().map_or(0, chain_bytes));
        old
    }

    fn forget_record(&mut self, slot: usize) -> Option<Chain> {
        let (at, header) = self.header(slot);
        let suffix_len = (header & SUFFIX_MASK) as usize;
        self.garbage += record_bytes(suffix_len, &self.value(slot)) as u32;
        if header & CHAIN_FLAG == 0 {
            return None;
        }
        let index = self.chain_index(at + RECORD_HEADER + suffix_len);
        self.vacant_chains += 1;
        let old = self.chains[index].take();
        self.counted.shrink(old.as_ref().map_or(0, chain_bytes));
        old
    }

    /// Adds a record that is above all others to a leaf that was built with room for it.
    pub(super) fn push(&mut self, record: &Record<'_>) {
        let prefix = self.prefix_len as usize;
        let front = record.key[0].len();
        let joined;
        let suffix = if front <= prefix {
            &record.key[1][prefix - front..]
        } else {
            joined = record.key.concat();
            &joined[prefix..]
        };
        let (slot, capacity) = (self.len(), self.capacity as usize);
        let offset = self.write_record(suffix, &record.value);
        let bytes = self.bytes_mut();
        bytes[slot] = record.fingerprint;
        bytemuck::cast_slice_mut::<_, u16>(&mut bytes[capacity..3 * capacity])[slot] = offset;
        bytemuck::cast_slice_mut::<_, u32>(&mut bytes[3 * capacity..7 * capacity])[slot] = head_of(suffix);
        self.count += 1;
    }
}
