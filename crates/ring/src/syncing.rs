//! The thread that makes writes survive the loss of power, a second late at most.

use crate::NodeError;
use crate::here::Shared;
use atoll_engine::Engine;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread, which ends when this is dropped.
pub(crate) struct Syncing {
    _alive: Sender<()>,
}

const PAUSE: Duration = Duration::from_secs(1);

impl Syncing {
    /// Begins the thread.
    pub(crate) fn begin(
        engine: Engine,
        shared: Arc<Shared>,
    ) -> Result<(Self, JoinHandle<Result<(), NodeError>>), NodeError> {
        let (alive, ended) = channel::<()>();
        let run = move || {
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = engine.sync() {
                    // What was acknowledged may be lost with the power now: no more is.
                    tracing::error!(%error, "what was written cannot be made durable");
                    shared.tell_end();
                    return Err(error.into());
                }
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("atoll-ring-sync".to_owned()).spawn(run);
        let thread = thread.map_err(|source| NodeError::System { action: "begin a thread", source })?;
        Ok((Self { _alive: alive }, thread))
    }
}
