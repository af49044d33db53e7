//! Group commit without a leader: whoever finds no sync under way starts one for everybody.

use atoll_disk::{Disk, DiskError};
use parking_lot::{Condvar, Mutex};

/// How far the log is known to survive the loss of power.
#[derive(Default)]
pub(crate) struct Syncer {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    synced: u64,
    running: bool,
    failed: bool,
}

/// How a sync ended for one who waited.
pub(crate) enum SyncError {
    /// This caller's own sync failed.
    Failed(DiskError),
    /// A sync that somebody else ran failed before.
    Poisoned,
}

impl Syncer {
    pub(crate) fn new(synced: u64) -> Self {
        Self { state: Mutex::new(State { synced, ..State::default() }), ended: Condvar::new() }
    }

    pub(crate) fn synced(&self) -> u64 {
        self.state.lock().synced
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.lock().failed
    }

    /// Returns once the log is synced up to `position`. `flushed` says how far it was handed to the disk.
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
            state.running = true;
            drop(state);
            // All that was flushed before the sync starts is covered by it, whoever wrote it.
            let target = flushed();
            let result = disk.sync();
            state = self.state.lock();
            state.running = false;
            match result {
                Ok(()) => state.synced = state.synced.max(target),
                // What was not durable before may be lost even if a later sync succeeds, so nothing that
                // comes after may rely on it.
                Err(error) => {
                    state.failed = true;
                    self.ended.notify_all();
                    return Err(SyncError::Failed(error));
                }
            }
            self.ended.notify_all();
        }
    }

    /// Notes a sync that a checkpoint made.
    pub(crate) fn reached(&self, position: u64) {
        let mut state = self.state.lock();
        state.synced = state.synced.max(position);
    }

    pub(crate) fn poison(&self) {
        self.state.lock().failed = true;
    }
}
