//! The background threads: one makes checkpoints, the other prepares log segments.
//!
//! Invariant: the threads end with the last handle of their store, and nothing waits for them after that.

use crate::shared::{Shared, Wanted};
use crate::threads::{Builder, JoinHandle, Mutex};
use std::sync::Arc;

/// The background threads of a store. Dropping it ends them.
pub(super) struct Background {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Background {
    /// Starts the threads that the store's options ask for.
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        let runs = shared.options.background && !shared.options.read_only;
        let has_log = runs && shared.backing.disk().is_some();
        let threads = runs.then(|| keep_up_apart(shared)).flatten();
        let threads = threads.into_iter().chain(has_log.then(|| go_ahead_apart(shared)).flatten());
        Self { shared: Arc::clone(shared), threads: Mutex::new(threads.collect()) }
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop(&self) {
        self.shared.nudge.ask(Wanted::Exit);
        self.shared.log_nudge.ask(Wanted::Exit);
        self.shared.end_waiting();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A checkpoint thread that panicked has left the store as a crash would; opening recovers it.
            let _ = thread.join();
        }
    }
}

/// Starts the thread that prepares log segments. Where the system cannot start one, the log prepares them
/// itself.
fn go_ahead_apart(shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let worker = Arc::clone(shared);
    let work = move || {
        while worker.log_nudge.wait() == Wanted::Segment {
            worker.make_segment_ready();
        }
    };
    Builder::new().name("atoll-log".into()).spawn(work).ok()
}

/// Starts the thread that makes checkpoints; none where the system cannot start one.
fn keep_up_apart(shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let worker = Arc::clone(shared);
    // Serving begins here, not when the thread first runs: until then writers would bring in more than there
    // is room for.
    shared.serving_begins();
    let work = move || {
        // Writers wait only for as long as this thread runs, even if it panics.
        let _serving = worker.serve();
        keep_up(&worker);
    };
    Builder::new().name("atoll-checkpoint".into()).spawn(work).inspect_err(|_| shared.end_waiting()).ok()
}

/// Makes a checkpoint whenever one is wanted, until the engine is dropped.
fn keep_up(shared: &Shared) {
    while shared.nudge.wait() == Wanted::Checkpoint {
        shared.checkpoint_begins();
        if let Err(error) = shared.checkpoint(false) {
            shared.spoiled.note_failure(&error);
            tracing::warn!(store = shared.backing.name(), error = %error, "a checkpoint failed; the log keeps growing");
        }
        shared.checkpoint_ended();
    }
}
