//! When a commit makes a checkpoint due: by the length of the log, by the large values that the log only
//! names, or by the space that waits to be freed.

use super::Visible;
use crate::forest::Count;
use crate::shared::{Shared, Writer};

/// Large values count as a log of one byte in this many. The log has only their names, but an opening after a
/// crash reads and verifies all that were named since the last checkpoint, and where no commit is synced,
/// only a checkpoint brings them to the medium. They do not count in full, because they are never replayed:
/// reading is all that they cost.
const PLACED_SHARE: u64 = 4;

/// Bytes that wait for a checkpoint after a commit: of log and large values together, or of space that it
/// would free if that is more.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    /// Without the space that earlier checkpoints tried to free.
    for_the_next: u64,
    /// Since the last one that succeeded.
    for_a_success: u64,
}

impl Shared {
    /// Numbers the commit, in the order of the groups in the log. Returns also what waits for a checkpoint.
    pub(crate) fn end_commit(&self, writer: &Writer, sequence: &Count) -> (Visible, Waiting) {
        let position = writer.log.as_ref().map_or(0, |log| log.point().position);
        let tail = (position - writer.checkpointed).saturating_add(writer.placed_bytes / PLACED_SHARE);
        // Space that only waits for a checkpoint is as good a reason for one as a long log.
        let waiting = Waiting {
            for_the_next: tail.max(writer.retired.added_bytes()),
            for_a_success: tail.max(writer.retired.unfreed_bytes()),
        };
        (Visible { sequence: sequence.add(1), position }, waiting)
    }

    /// Requests a checkpoint if enough waits for one, or if memory needs it. While a checkpoint runs,
    /// everything it is about to write still seems to wait; a commit after it sees what is left.
    pub(crate) fn ask_if_due(&self, waiting: Waiting) {
        let due = self.options.checkpoint_bytes;
        let is_due = waiting.for_the_next >= due || self.backing.wants_checkpoint();
        if !is_due {
            return;
        }
        // Where checkpoints fail, one runs nearly all the time.
        self.spoiled.note_waiting(waiting.for_a_success, due);
        if !self.checkpointing.is_locked() {
            self.ask_for_checkpoint();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::forest::Count;
    use crate::{Durability, Engine, Options, Tree};
    use atoll_disk::{FaultPlan, SimDisk};
    use std::sync::Arc;
    use std::time::Duration;

    const LEN: usize = 1 << 20;

    fn open(disk: &SimDisk, background: bool) -> (Engine, Tree) {
        let options = Options {
            background,
            checkpoint_bytes: LEN as u64,
            log_segment_bytes: 64 << 10,
            log_windows: false,
            store_id: Some(7),
            ..Options::default()
        };
        let engine = Engine::open(Arc::new(disk.clone()), options).unwrap();
        let tree = engine.tree("t").unwrap();
        (engine, tree)
    }

    /// Puts values of [`LEN`] bytes under keys of their own, so that no space waits to be freed.
    fn put_large(tree: &Tree, numbers: std::ops::Range<u8>) {
        for number in numbers {
            tree.put(&[number], &[number].repeat(LEN), Durability::Flushed).unwrap();
        }
    }

    fn placed_bytes(engine: &Engine) -> u64 {
        engine.shared.writer.alone().placed_bytes
    }

    /// Waits for the background thread to make a checkpoint; false after ten seconds without one.
    #[allow(clippy::disallowed_methods, reason = "nothing tells that a thread made a checkpoint")]
    fn makes_a_checkpoint(engine: &Engine) -> bool {
        (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            engine.stats().checkpoints_made > 0
        })
    }

    #[test]
    fn large_values_count_until_a_checkpoint_succeeds_also_after_a_crash() {
        let disk = SimDisk::seeded(1);
        let (engine, tree) = open(&disk, false);
        tree.put(b"in the log", &[1; 30_000], Durability::Flushed).unwrap();
        assert_eq!(placed_bytes(&engine), 0);
        put_large(&tree, 0..3);
        assert_eq!(placed_bytes(&engine), 3 * LEN as u64);
        disk.set_plan(FaultPlan { fail_write: Some(0), ..FaultPlan::default() });
        engine.checkpoint().unwrap_err();
        assert_eq!(placed_bytes(&engine), 3 * LEN as u64, "the checkpoint failed");
        drop((tree, engine));
        let (engine, tree) = open(&disk.kill(), false);
        assert_eq!(placed_bytes(&engine), 3 * LEN as u64, "an opening reads as much again");
        put_large(&tree, 3..4);
        engine.checkpoint().unwrap();
        assert_eq!(placed_bytes(&engine), 0);
    }

    #[test]
    fn a_quarter_of_the_large_values_counts_on_top_of_the_log() {
        let (engine, tree) = open(&SimDisk::seeded(4), false);
        tree.put(b"in the log", &[1; 30_000], Durability::Flushed).unwrap();
        put_large(&tree, 0..2);
        let log = engine.stats().log_tail_bytes;
        assert!(log > 30_000, "{log}");
        let writer = engine.shared.writer.alone();
        let (_, waiting) = engine.shared.end_commit(&writer, &Count::of(0));
        let all = log + 2 * LEN as u64 / 4;
        assert_eq!((waiting.for_the_next, waiting.for_a_success), (all, all));
    }

    #[test]
    fn large_values_make_a_checkpoint_due() {
        let (engine, tree) = open(&SimDisk::seeded(2), true);
        put_large(&tree, 0..8);
        assert!(makes_a_checkpoint(&engine), "{:?}", engine.stats());
    }

    #[test]
    fn large_values_that_an_opening_read_make_a_checkpoint_due() {
        let disk = SimDisk::seeded(3);
        let (engine, tree) = open(&disk, false);
        put_large(&tree, 0..8);
        drop((tree, engine));
        let (engine, tree) = open(&disk.kill(), true);
        tree.put(b"short", b"v", Durability::Flushed).unwrap();
        assert!(makes_a_checkpoint(&engine), "{:?}", engine.stats());
    }
}
