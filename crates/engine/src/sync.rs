//! Group commit without a leader: a caller that finds no sync under way starts one for all waiters.

use crate::planted::{self, Bug};
use crate::threads::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard};
use atoll_disk::{Disk, DiskError};
use std::sync::atomic::Ordering;

/// The position up to which the log is known to survive a loss of power.
#[derive(Default)]
pub(crate) struct Syncer {
    state: Mutex<State>,
    ended: Condvar,
    /// Copies of `state` for readers that take no lock: every commit reads them, on every processor.
    synced: AtomicU64,
    failed: AtomicBool,
}

#[derive(Default)]
struct State {
    synced: u64,
    running: bool,
    failed: bool,
}

/// How a sync ended for one of its waiters.
pub(crate) enum SyncError {
    /// This caller's own sync failed.
    Failed(DiskError),
    /// An earlier sync by another caller failed.
    Poisoned,
}

impl Syncer {
    pub(crate) fn new(synced: u64) -> Self {
        let state = Mutex::new(State { synced, ..State::default() });
        Self { state, synced: AtomicU64::new(synced), ..Self::default() }
    }

    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns once the log is synced up to `position`. `flushed` returns the position up to which the disk
    /// has it.
    pub(crate) fn reach(
        &self,
        position: u64,
        disk: &dyn Disk,
        flushed: impl Fn() -> u64,
    ) -> Result<(), SyncError> {
        let mut state = self.state.lock();
        loop {
            if state.synced >= position {
                return Ok(());
            }
            if state.failed {
                return Err(SyncError::Poisoned);
            }
            if state.running {
                self.ended.wait(&mut state);
                continue;
            }
            state = self.run(state, disk, &flushed).map_err(SyncError::Failed)?;
        }
    }

    /// Syncs now, for a checkpoint. It takes turns with all other syncs: of two syncs at once the system may
    /// report a failed write to only one, and the other would believe that all is well.
    pub(crate) fn sync_now(&self, disk: &dyn Disk, flushed: impl Fn() -> u64) -> Result<(), SyncError> {
        let mut state = self.state.lock();
        while state.running {
            self.ended.wait(&mut state);
        }
        if state.failed {
            return Err(SyncError::Poisoned);
        }
        self.run(state, disk, &flushed).map(|_| ()).map_err(SyncError::Failed)
    }

    /// Runs one sync, outside of the lock, and notes its result.
    fn run<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        disk: &dyn Disk,
        flushed: &impl Fn() -> u64,
    ) -> Result<MutexGuard<'s, State>, DiskError> {
        state.running = true;
        drop(state);
        // The sync covers everything that was flushed before it starts, by any writer.
        let target = flushed();
        let result = disk.sync();
        let target = if planted::is(Bug::SyncCountedAfter) { flushed() } else { target };
        let mut state = self.state.lock();
        state.running = false;
        if !planted::is(Bug::SyncEndUntold) {
            self.ended.notify_all();
        }
        match result {
            Ok(()) => self.note_synced(&mut state, target),
            // Bytes that were not durable before may be lost even if a later sync succeeds, so nothing that
            // follows may rely on them.
            Err(error) => {
                self.note_failed(&mut state);
                return Err(error);
            }
        }
        Ok(state)
    }

    /// Notes a sync made by a checkpoint.
    pub(crate) fn reached(&self, position: u64) {
        self.note_synced(&mut self.state.lock(), position);
    }

    pub(crate) fn poison(&self) {
        self.note_failed(&mut self.state.lock());
    }

    fn note_synced(&self, state: &mut State, position: u64) {
        state.synced = state.synced.max(position);
        self.synced.store(state.synced, Ordering::Release);
    }

    fn note_failed(&self, state: &mut State) {
        state.failed = true;
        self.failed.store(true, Ordering::Release);
    }
}
