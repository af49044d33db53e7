//! Reading beside a live owner, which may reuse the space of the state being read.
//!
//! Invariant: what looks damaged is reported as damage only if no newer state existed by then.

use super::{Upkeep, off_thread};
use atoll_embedded::EmbeddedStore;
use atoll_engine::Engine;
use atoll_store::{ErrorKind, StoreError};
use std::sync::Arc;

/// How many states in a row the owner may overtake before we give up.
const STATES_MAX: usize = 5;

impl Upkeep {
    /// Calls `run` on this state, and again on the newest one as long as the result looks damaged and the
    /// owner has committed a newer state; `problem` returns what looks damaged in a result.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] if the owner overtook one state after the other; those of `run`.
    pub(super) async fn on_newest<T, F>(
        &self,
        mut state: EmbeddedStore,
        what: &'static str,
        run: F,
        problem: impl Fn(&T) -> Option<String>,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Engine) -> Result<T, StoreError> + Send + Sync + 'static,
    {
        let run = Arc::new(run);
        let mut seen = String::new();
        for _ in 0..STATES_MAX {
            let (run, engine) = (Arc::clone(&run), state.engine().clone());
            let answer = off_thread(what, move || run(&engine)).await;
            seen = match &answer {
                Ok(answer) => problem(answer).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Corrupt => error.to_string(),
                Err(_) => String::new(),
            };
            if seen.is_empty() {
                return answer;
            }
            let newest = self.last_state().await?;
            if newest.engine().recovery().checkpoint == state.engine().recovery().checkpoint {
                return answer;
            }
            state = newest;
        }
        let what = format!("the state of {} that was read (seen in it: {seen})", self.place());
        Err(StoreError::Superseded { what })
    }
}
