//! Progress: how far a pack has come, for whoever waits for it.
//!
//! Each byte that is packed is counted twice, once as it is read and once as it is written. How many bytes a
//! tree will have is not known before it is written, so a group counts as done with its last object.

/// How far a pack has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackProgress {
    /// The part of `total` that is done.
    pub bytes: u64,
    /// About how many bytes will be read and written, as far as is known: later trees may add to it.
    pub total: u64,
}

/// Who is told of the progress.
pub(super) type Told<'t> = &'t (dyn Fn(PackProgress) + Send + Sync);

/// The progress of one group of pieces within a pack.
#[derive(Clone, Copy)]
pub(super) struct Telling<'t> {
    told: Told<'t>,
    /// Bytes of the groups before.
    before: u64,
    /// Bytes that this group reads and writes.
    group: u64,
    /// Bytes of the blocks that are packed after this group.
    after: u64,
}

impl<'t> Telling<'t> {
    /// A group of pieces that have `group` bytes, after `before` bytes were moved; `after` are those of the
    /// blocks that are left.
    pub(super) fn new(told: Told<'t>, before: u64, group: u64, after: u64) -> Self {
        let both_ways = |bytes: u64| bytes.saturating_mul(2);
        Self { told, before, group: both_ways(group), after: both_ways(after) }
    }

    /// Tells that this group has moved so many bytes.
    pub(super) fn moved(&self, bytes: u64) {
        let done = self.before.saturating_add(bytes.min(self.group));
        let total = self.before.saturating_add(self.group).saturating_add(self.after);
        (self.told)(PackProgress { bytes: done, total });
    }

    /// Tells that this group is done; returns the bytes before the next one.
    pub(super) fn end(&self) -> u64 {
        self.moved(self.group);
        self.before.saturating_add(self.group)
    }
}
