//! The group of a commit in the log.

use super::PlacedValue;
use super::sizes::{bound_len, check_size};
use crate::EngineError;
use crate::batch::{Action, Given, Op};
use crate::broken::UnfinishedGroup;
use crate::full_disk::is_full;
use crate::log::Log;
use crate::planted::{self, Bug};
use crate::record::{Logged, OVERHEAD_MAX, Record};
use crate::shared::{Shared, Writer};
use crate::space::SegmentUse;
use crate::value::EXTENT_FROM;
use atoll_errors::ErrorKind;
use std::sync::atomic::Ordering;

/// Most bytes of one group of the log; its header has four bytes for their number.
const BATCH_MAX: u64 = u32::MAX as u64;

impl Shared {
    /// Writes the group of `ops` to the log. The trees have yet to take it in.
    pub(crate) fn log_ops(
        &self,
        writer: &mut Writer,
        ops: &[Op<'_>],
        placed: &[Option<PlacedValue>],
        flush: bool,
    ) -> Result<UnfinishedGroup<'_>, EngineError> {
        let Some(log) = &mut writer.log else { return Ok(self.unfinished()) };
        let bound: usize = ops.iter().map(encoded_bound).sum();
        check_size("batch", bound as u64, 0, BATCH_MAX)?;
        self.prepare_log(log, bound)?;
        let unfinished = self.unfinished();
        let prepared = log.begin();
        let mut in_log = Vec::new();
        for (op, placed) in ops.iter().zip(placed) {
            if planted::is(Bug::RangeDeleteNotLogged) && matches!(op.action, Action::DeleteRange(..)) {
                continue;
            }
            record_of(op, placed.as_ref()).encode(log.payload());
            if let Some(PlacedValue { piece, extent: None }) = placed {
                // The value's bytes are the last of its record.
                let offset = log.payload_offset() - u64::from(piece.len());
                log.will_settle(piece.clone(), offset);
                in_log.push((offset, u64::from(piece.len())));
            }
        }
        let ended = log.end(&prepared, self.syncer.synced());
        self.settled.end();
        if flush || log.is_heavy() {
            if let Err(error) = log.flush(&self.backing) {
                if planted::is(Bug::RefusedButLogged) && error.kind() == ErrorKind::Unavailable {
                    let _ = log.flush(&self.backing);
                } else {
                    log.roll_back(&prepared, ended);
                }
                unfinished.done();
                return Err(error.into());
            }
            self.flushed.store(log.flushed(), Ordering::Release);
        }
        writer.placed_bytes = writer.placed_bytes.saturating_add(extent_bytes(placed));
        if in_log.is_empty() {
            return Ok(unfinished);
        }
        let mut space = self.space.lock();
        for (offset, len) in in_log {
            if let Some(segment) = space.segment_of(offset)
                && !planted::is(Bug::LogValuesNotCounted)
            {
                segment.live += len;
            }
        }
        Ok(unfinished)
    }

    /// Makes sure that a group of `payload` bytes fits into the present segment, or begins a new one.
    pub(crate) fn prepare_log(&self, log: &mut Log, payload: usize) -> Result<(), EngineError> {
        if log.fits(payload) {
            return Ok(());
        }
        // Before space is taken: where groups of the present segment are refused, that says nothing about the
        // next one.
        log.flush(&self.backing)?;
        let len = Log::segment_for(payload).max(self.options.segment_bytes()).next_multiple_of(4096);
        self.use_kept(self.options.keep);
        let (extent, may_be_entered) = {
            let mut space = self.space.lock();
            let spare = space.spare();
            let extent = space.allocate_segment(len);
            (extent, spare == Some(extent))
        };
        let window = self.window_ahead.lock().take_if(|window| window.covers(extent.offset, 1));
        // A segment with a window was reserved when it was prepared.
        let ready = if window.is_some() { Ok(()) } else { log.reserve(extent) };
        let (extent, ready) = match ready {
            // Nothing refers to it yet, so another one will do.
            Err(error) if is_full(&error) && !may_be_entered => {
                (self.find_room_instead(extent, error, |other| log.reserve(other))?, Ok(()))
            }
            ready => (extent, ready),
        };
        let is_ready = ready.is_ok();
        if let Err(error) = ready.and_then(|()| log.switch((extent, window), self.syncer.synced())) {
            let mut space = self.space.lock();
            if is_ready || may_be_entered {
                // The jump to it may be on disk, so nothing else may ever lie there: the next attempt uses it
                // again.
                space.spare_segment(extent);
            } else {
                // There may be room for a shorter segment.
                space.cancel(extent);
            }
            return Err(error.into());
        }
        self.flushed.store(log.flushed(), Ordering::Release);
        self.space.lock().add_segment(SegmentUse { extent, number: log.point().number, live: 0 });
        Ok(())
    }
}

/// Bytes of the values that lie in extents of their own.
fn extent_bytes(placed: &[Option<PlacedValue>]) -> u64 {
    let apart = placed.iter().flatten().filter(|placed| placed.extent.is_some());
    apart.map(|placed| u64::from(placed.piece.len())).sum()
}

fn record_of<'a>(op: &Op<'a>, placed: Option<&PlacedValue>) -> Record<'a> {
    let value = |given: Given<'a>| match placed {
        Some(PlacedValue { piece, extent: Some(extent) }) => {
            Logged::Extent { offset: extent.offset, len: piece.len(), checksum: piece.checksum() }
        }
        _ => Logged::Bytes { bytes: given.bytes(), at: 0 },
    };
    let tree = op.tree;
    match op.action {
        Action::Put(key, given) => Record::Put { tree, key, value: value(given) },
        Action::Append(key, given) => Record::Append { tree, key, value: value(given) },
        Action::Delete(key) => Record::Delete { tree, key },
        Action::DeleteRange(from, to) => Record::DeleteRange { tree, from, to },
    }
}

fn encoded_bound(op: &Op<'_>) -> usize {
    let bytes = match op.action {
        Action::Put(key, given) | Action::Append(key, given) => {
            key.len() + if given.bytes().len() < EXTENT_FROM { given.bytes().len() } else { 0 }
        }
        Action::Delete(key) => key.len(),
        Action::DeleteRange(from, to) => bound_len(from) + bound_len(to),
    };
    bytes + OVERHEAD_MAX
}

#[cfg(test)]
mod tests {
    use crate::{Durability, Engine, Options, Tree};
    use atoll_disk::{Disk, DiskError, MemoryDisk, Operation, Relay};
    use atoll_errors::ErrorKind;
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A disk that finds no room for writes as long as it is told to, and reserves whatever is asked for.
    #[derive(Default)]
    struct Refusing {
        bytes: MemoryDisk,
        refuses: AtomicBool,
    }

    impl Relay for Refusing {
        fn inner(&self) -> &dyn Disk {
            &self.bytes
        }

        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
            if self.refuses.load(Ordering::Relaxed) {
                let source = io::Error::new(io::ErrorKind::StorageFull, "planted");
                let name = "refusing".into();
                return Err(DiskError { operation: Operation::Write, name, offset, source });
            }
            self.bytes.write_at(offset, bytes)
        }
    }

    fn open(disk: &Arc<Refusing>) -> (Engine, Tree) {
        let options = Options {
            background: false,
            log_segment_bytes: 64 << 10,
            log_windows: false,
            store_id: Some(7),
            ..Options::default()
        };
        let engine = Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options).unwrap();
        let tree = engine.tree("t").unwrap();
        (engine, tree)
    }

    #[test]
    fn a_segment_that_takes_no_more_groups_says_nothing_about_the_next_one() {
        let disk = Arc::new(Refusing::default());
        let (engine, tree) = open(&disk);
        let figures = || {
            let space = engine.shared.space.lock();
            (space.end(), space.free_bytes(), space.spare_bytes())
        };
        let before = figures();
        disk.refuses.store(true, Ordering::Relaxed);
        let put = |number: u32| tree.put(&number.to_be_bytes(), &[7; 1000], Durability::Buffered);
        // Nothing is written before the segment is full.
        let refused = (0..1000).find_map(|number| put(number).err().map(|error| (number, error)));
        let (number, error) = refused.expect("the segment is full some time");
        assert!(number > 10 && error.kind() == ErrorKind::OutOfSpace, "{number}: {error}");
        assert_eq!(figures(), before, "space was tried for a segment that is not to blame");
        disk.refuses.store(false, Ordering::Relaxed);
        put(number).unwrap();
        engine.close().unwrap();
        assert_eq!(open(&disk).1.len().unwrap(), u64::from(number) + 1);
    }
}
