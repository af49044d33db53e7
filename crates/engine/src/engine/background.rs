//! The thread that makes checkpoints.
//!
//! Invariant: it ends with the last handle of its store, and nobody waits for it after that.

use crate::shared::{Shared, Wanted};
use crate::threads::{Builder, JoinHandle, Mutex};
use std::sync::Arc;

/// Ends the thread with the last handle.
pub(super) struct Background {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Background {
    /// Begins to make checkpoints for a store whose options ask for it.
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        let runs = shared.options.background && !shared.options.read_only;
        let thread = if runs { keep_up_apart(shared) } else { None };
        Self { shared: Arc::clone(shared), thread: Mutex::new(thread) }
    }

    /// Ends the thread and waits for it.
    pub(super) fn stop(&self) {
        self.shared.nudge.ask(Wanted::Exit);
        self.shared.end_waiting();
        if let Some(thread) = self.thread.lock().take() {
            // A checkpoint thread that panicked has left the store as a crash would; opening recovers it.
            let _ = thread.join();
        }
    }
}

/// Starts the thread that makes checkpoints; none where the system has none to give.
fn keep_up_apart(shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let worker = Arc::clone(shared);
    // Not when it runs: whoever writes before that would bring in more than there is room for.
    shared.serving_begins();
    let work = move || {
        // Writers wait no longer than this thread runs, even should it panic.
        let _serving = worker.serve();
        keep_up(&worker);
    };
    Builder::new().name("atoll-checkpoint".into()).spawn(work).inspect_err(|_| shared.end_waiting()).ok()
}

/// Makes a checkpoint whenever one is wanted, until the engine goes.
fn keep_up(shared: &Shared) {
    while shared.nudge.wait() == Wanted::Checkpoint {
        shared.checkpoint_begins();
        if let Err(error) = shared.checkpoint(false) {
            tracing::warn!(store = shared.backing.name(), error = %error, "a checkpoint failed; the log keeps growing");
        }
        shared.checkpoint_ended();
    }
}
