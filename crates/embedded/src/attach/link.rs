//! The current target of an attached store's calls: a connection to the owner or, for a reader, the last
//! state on disk until there is an owner again.
//!
//! Invariant: a last state is not read beyond its time without a new look for the owner.

use super::attachment::Attachment;
use atoll_store::{Buffer, Cell, Read, ReadOptions, Store, StoreStream};
use futures::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The target of calls.
#[derive(Clone)]
pub(super) enum Link {
    /// The connection to the owner.
    Owner(Attachment),
    /// The last state on disk, if the owner cannot be reached or there is none.
    LastState(LastState),
}

/// A last state, to be read until it is time to look for the owner again.
#[derive(Clone)]
pub(super) struct LastState {
    pub store: Arc<dyn Store>,
    until: Instant,
}

impl LastState {
    pub(super) fn new(store: Arc<dyn Store>, good_for: Duration) -> Self {
        Self { store, until: Instant::now() + good_for }
    }

    /// How much longer it may be read; none if it is time to look for the owner.
    pub(super) fn left(&self) -> Option<Duration> {
        Some(self.until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }
}

/// Many reads of a last state, which is kept until the last of them is answered.
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
