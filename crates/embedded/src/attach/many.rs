//! Many reads over a connection: a few long requests, answered read by read.
//!
//! Invariant: each read is answered exactly once, also if the owner is lost in between: only reads without an
//! answer are sent again.

use super::answer;
use super::client::{AttachedStore, LOSSES_MAX};
use super::link::{self, Link};
use super::request::Request;
use atoll_store::{Buffer, Capabilities, Durability, Limits, Read, StoreError, StoreStream};
use atoll_wire::Responses;
use futures::stream::{self, StreamExt};
use std::time::Duration;

/// The most reads and key bytes in one request.
const READS_MAX: usize = 512;
const KEY_BYTES_MAX: usize = 256 << 10;

type Answer = (usize, Result<Option<Buffer>, StoreError>);

pub(super) fn get_many(store: &AttachedStore, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
    let parts = divide(reads).into_iter().map(|part| {
        let part = Part { store, left: part, losses: 0, source: Source::None, failed: None };
        stream::unfold(part, |mut part| async move { part.next().await.map(|answer| (answer, part)) }).boxed()
    });
    stream::select_all(parts).boxed()
}

fn divide(reads: Vec<Read>) -> Vec<Vec<(usize, Read)>> {
    let mut parts: Vec<Vec<(usize, Read)>> = Vec::new();
    let mut bytes = usize::MAX;
    for (index, read) in reads.into_iter().enumerate() {
        let more = read.partition.len() + read.sort.len();
        match parts.last_mut() {
            Some(part) if part.len() < READS_MAX && bytes.saturating_add(more) <= KEY_BYTES_MAX => {
                bytes += more;
                part.push((index, read));
            }
            _ => {
                bytes = more;
                parts.push(vec![(index, read)]);
            }
        }
    }
    parts
}

/// Some of the reads, and the source of their answers.
struct Part<'a> {
    store: &'a AttachedStore,
    left: Vec<(usize, Read)>,
    /// Owners that were lost since the last answer.
    losses: usize,
    source: Source<'a>,
    failed: Option<StoreError>,
}

enum Source<'a> {
    None,
    Owner { number: u64, asked: Vec<usize>, answers: Responses },
    Local { asked: Vec<usize>, answers: StoreStream<'a, Option<Buffer>> },
}

impl Part<'_> {
    async fn next(&mut self) -> Option<Answer> {
        loop {
            if let Some(error) = &self.failed {
                return self.left.pop().map(|(index, _)| (index, Err(error.clone())));
            }
            if self.left.is_empty() {
                return None;
            }
            match self.step().await {
                Ok(Some((index, answer))) => {
                    // Answers come mostly in order, so the read is near the front.
                    if let Some(at) = self.left.iter().position(|(left, _)| *left == index) {
                        self.left.remove(at);
                        self.losses = 0;
                        return Some((index, answer));
                    }
                }
                Ok(None) => {}
                Err(error) => self.failed = Some(error),
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Answer>, StoreError> {
        match &mut self.source {
            Source::None => self.ask().await.map(|()| None),
            Source::Local { asked, answers } => match answers.next().await {
                Some((place, answer)) => Ok(asked.get(place).map(|&index| (index, answer))),
                None => Err(self.store.gave_up()),
            },
            Source::Owner { number, asked, answers } => match answers.next().await {
                Some(Ok(bytes)) if !bytes.is_empty() => {
                    let unreadable = |error| StoreError::Unavailable {
                        place: "the owner".into(),
                        reason: "its answer cannot be read".into(),
                        source: Some(std::sync::Arc::new(error)),
                    };
                    let (place, answer) = answer::decode_one(&bytes).map_err(unreadable)?;
                    Ok(asked.get(place).map(|&index| (index, answer)))
                }
                // The stream ended although answers are missing: the owner gave the request up.
                _ => {
                    let number = *number;
                    self.find_owner(number).await.map(|()| None)
                }
            },
        }
    }

    async fn ask(&mut self) -> Result<(), StoreError> {
        let (asked, reads): (Vec<_>, Vec<_>) = self.left.iter().cloned().unzip();
        if let Some(local) = self.store.local() {
            self.source = Source::Local { asked, answers: local.get_many(reads) };
            return Ok(());
        }
        let (number, attachment) = match self.store.link()? {
            (number, Link::Owner(attachment)) => (number, attachment),
            (_, Link::LastState(state)) if state.left().is_some() => {
                self.source = Source::Local { asked, answers: link::get_many(&state.store, reads) };
                return Ok(());
            }
            (number, Link::LastState(_)) => return self.find_owner(number).await,
        };
        let request = Request::GetMany(reads).encode();
        attachment.check_length(&request)?;
        match attachment.client.open(&request).await {
            Ok(answers) => self.source = Source::Owner { number, asked, answers },
            Err(lost) => {
                attachment.check_room(&lost)?;
                self.find_owner(number).await?;
            }
        }
        Ok(())
    }

    async fn find_owner(&mut self, lost: u64) -> Result<(), StoreError> {
        self.source = Source::None;
        self.losses += 1;
        if self.losses > LOSSES_MAX {
            return Err(self.store.gave_up());
        }
        // Fails if the store was closed meanwhile.
        self.store.link()?;
        self.store.find_owner(lost).await
    }
}

/// The capabilities of a store that was never reached.
pub(super) fn no_capabilities() -> Capabilities {
    Capabilities {
        limits: Limits::CONTRACT,
        durability: vec![Durability::Buffered],
        durability_default: Durability::Buffered,
        cheap_scans_across_large_values: false,
        waiters_max: 0,
        wait_latency: Duration::ZERO,
        parallelism_best: 1,
        round_trip: Duration::ZERO,
        request_memory: Duration::ZERO,
        request_memory_count: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::attachment::attach_within;
    use super::super::{Reattach, Route, ServeOptions, serve_connection};
    use super::*;
    use atoll_memory::MemoryStore;
    use atoll_store::{Cell, ErrorKind, Expectation, Store};
    use atoll_wire::{Faults, Limits as WireLimits, simulated_pair};
    use futures::future::BoxFuture;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Connections on which one request is open at once.
    struct Narrow {
        store: Arc<dyn Store>,
        stop: tokio::sync::watch::Sender<bool>,
        connections: AtomicU64,
    }

    impl Reattach for Narrow {
        fn reattach(&self) -> BoxFuture<'_, Result<Route, StoreError>> {
            Box::pin(async {
                self.connections.fetch_add(1, Ordering::Relaxed);
                let (near, far) = simulated_pair(1, 64 << 10, [Faults::default(), Faults::default()]);
                let (served, options) = (Arc::clone(&self.store), ServeOptions::default());
                tokio::spawn(serve_connection(far, served, options, self.stop.subscribe()));
                let limits = WireLimits { streams: 1, ..WireLimits::default() };
                attach_within(limits, near, "test", false).await.map(Route::Attached)
            })
        }
    }

    async fn narrow() -> (Arc<Narrow>, AttachedStore) {
        let store = Arc::new(MemoryStore::open(Default::default()).unwrap());
        let (stop, connections) = (tokio::sync::watch::channel(false).0, AtomicU64::new(0));
        let way = Arc::new(Narrow { store, stop, connections });
        let hook = Arc::clone(&way) as Arc<dyn Reattach>;
        let runtime = tokio::runtime::Handle::current();
        let attached = AttachedStore::open("test".into(), false, hook, runtime).await.unwrap();
        (way, attached)
    }

    #[tokio::test]
    async fn many_reads_that_a_connection_has_no_room_for_are_refused_and_it_is_kept() {
        let (way, attached) = narrow().await;
        let cell = Cell::new(b"p", b"k");
        let mut waiting = attached.wait(cell, Expectation::Differs(None), Duration::from_secs(3600));
        assert!(futures::poll!(&mut waiting).is_pending());
        let answers: Vec<_> = attached.get_many(vec![Read::new(*b"p", *b"k")]).collect().await;
        assert_eq!(answers[0].1.as_ref().unwrap_err().kind(), ErrorKind::Limit);
        assert_eq!(way.connections.load(Ordering::Relaxed), 1, "the connection was given up");
    }

    #[tokio::test]
    async fn only_owners_that_are_lost_without_an_answer_between_count_together() {
        let (_way, attached) = narrow().await;
        let left = vec![(0, Read::new(*b"p", *b"k"))];
        let mut part =
            Part { store: &attached, left, losses: LOSSES_MAX, source: Source::None, failed: None };
        assert!(matches!(part.next().await, Some((0, Ok(None)))));
        assert_eq!(part.losses, 0);
    }
}
