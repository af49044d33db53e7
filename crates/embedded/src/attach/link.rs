//! What an attached store has to go by at present: a connection to the owner, or, for who only reads, the
//! last state on disk until an owner is there again.
//!
//! Invariant: a last state is not read for longer than it is good for without a new look for the owner.

use super::attachment::Attachment;
use atoll_store::{Buffer, Cell, Read, ReadOptions, Store, StoreStream};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What calls go by.
#[derive(Clone)]
pub(super) enum Link {
    /// The connection to the owner.
    Owner(Attachment),
    /// The last state on disk, beside an owner that cannot be reached, or none.
    LastState(LastState),
}

/// A state that is read until it is time to look for the owner again.
#[derive(Clone)]
pub(super) struct LastState {
    pub store: Arc<dyn Store>,
    until: Instant,
}

impl LastState {
    pub(super) fn new(store: Arc<dyn Store>, good_for: Duration) -> Self {
        Self { store, until: Instant::now() + good_for }
    }

    /// How long it is good for yet; none if it is time to look for the owner.
    pub(super) fn left(&self) -> Option<Duration> {
        Some(self.until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }
}

/// Many reads of a state that is kept until the last of them is answered.
pub(super) fn get_many(store: &Arc<dyn Store>, reads: Vec<Read>) -> StoreStream<'static, Option<Buffer>> {
    let store = Arc::clone(store);
    let answers = reads.into_iter().enumerate().map(move |(place, read)| {
        let store = Arc::clone(&store);
        async move {
            let options = ReadOptions { range: read.range, immutable: read.immutable, deadline: None };
            (place, store.get(Cell::new(&read.partition, &read.sort), options).await)
        }
    });
    futures::stream::iter(answers).buffer_unordered(16).boxed()
}
