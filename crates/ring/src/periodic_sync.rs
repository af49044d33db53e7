//! The thread that syncs every second, so that a power failure loses at most the last second of writes, where
//! a keyspace asks for that.

use crate::NodeError;
use crate::loop_state::Shared;
use crate::options::Persistence;
use atoll_engine::Engine;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread. It ends when this is dropped.
pub(crate) struct PeriodicSync {
    _alive: Sender<()>,
}

const PAUSE: Duration = Duration::from_secs(1);

impl PeriodicSync {
    /// Starts the thread.
    pub(crate) fn begin(
        engine: Engine,
        shared: Arc<Shared>,
    ) -> Result<(Self, JoinHandle<Result<(), NodeError>>), NodeError> {
        let (alive, ended) = channel::<()>();
        let run = move || {
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                if !shared.has_class(Persistence::EverySecond) {
                    continue;
                }
                if let Err(error) = engine.sync() {
                    // Acknowledged writes could now be lost in a power failure, so the node stops
                    // acknowledging.
                    tracing::error!(%error, "writes cannot be made durable");
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
