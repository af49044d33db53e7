//! The faults planned for a simulated disk, and how often each occurred.

/// Planned faults, each counted from the moment the plan is set: `Some(0)` strikes the next operation. Faults
/// of an operation strike once; `space_left`, `read_only` and `unreadable` last.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Changes (write, copy into a window, sync, reserve, truncate, release) that still succeed. The next one
    /// finds the power gone, and so does everything after it. The struck write or copy may reach the medium,
    /// whole or in part.
    pub power_cut_after: Option<u64>,
    /// The write that is acknowledged but lands on another block.
    pub misdirect_write: Option<u64>,
    /// The write that fails; part of it may be written.
    pub fail_write: Option<u64>,
    /// The read that fails.
    pub fail_read: Option<u64>,
    /// The sync that fails. What it should have made durable is lost at random, even if a later sync
    /// succeeds.
    pub fail_sync: Option<u64>,
    /// Bytes that the file may still take: at its end, or in blocks that were given back.
    pub space_left: Option<u64>,
    /// Offsets whose reads fail every time.
    pub unreadable: Option<std::ops::Range<u64>>,
    /// Every change is refused.
    pub read_only: bool,
}

/// Counts down, and returns true when the fault strikes.
pub(super) fn strikes(countdown: &mut Option<u64>) -> bool {
    match countdown {
        None => false,
        Some(0) => {
            *countdown = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// How often each operation and each fault occurred, over all crashes of one disk.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Names and counts, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Adds the counts of another disk.
            pub const fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Reads that succeeded.
    reads,
    /// Writes that succeeded.
    writes,
    /// Copies into windows that succeeded; they are no writes.
    window_copies,
    /// Syncs that succeeded.
    syncs,
    /// Reservations that succeeded.
    reserves,
    /// Truncations that succeeded.
    truncates,
    /// Releases of space that succeeded.
    releases,
    /// Times that the power was cut at a planned operation.
    power_cuts,
    /// Times that a disk was taken from its user as a power loss leaves it.
    crashes,
    /// Unsynced writes that survived a crash whole.
    writes_kept,
    /// Unsynced writes that a crash dropped.
    writes_dropped,
    /// Unsynced writes of which a crash kept some sectors.
    writes_torn_at_sectors,
    /// Unsynced writes of which a crash kept a run of bytes.
    writes_torn_at_bytes,
    /// Unsynced writes that survived although an earlier one was dropped.
    writes_reordered,
    /// Writes that landed on another block.
    misdirected_writes,
    /// Bits flipped.
    bit_flips,
    /// Reads that failed.
    read_errors,
    /// Writes that failed.
    write_errors,
    /// Syncs that failed.
    sync_errors,
    /// Changes refused for want of space.
    out_of_space,
    /// Those of them that would have filled blocks which were given back.
    out_of_space_in_holes,
    /// Changes refused because the medium is read-only.
    read_only_refusals,
}
