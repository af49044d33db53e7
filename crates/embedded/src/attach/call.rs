//! One call on its way from one owner to the next: what time it has left, whether an owner may have it, and
//! whether it may be asked once more.
//!
//! Invariant: what may be done already is never told as refused, and never asked for where it could be done
//! twice.

use super::Request;
use super::attachment::name_is_known_for;
use atoll_store::age::Moment;
use atoll_store::{Capabilities, ErrorKind, Outcome, ReadOptions, Source, StoreError, WriteOptions};
use atoll_wire::Lost;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A call that is not answered yet.
pub(super) struct Call<'a> {
    pub request: &'a Request,
    started: Instant,
    /// The owner's clock goes on where ours is asleep.
    begun: Moment,
    /// Whether an owner may have it, if it is a write.
    is_out: AtomicBool,
}

impl<'a> Call<'a> {
    pub(super) fn new(request: &'a Request) -> Self {
        let is_out = AtomicBool::new(false);
        Self { request, started: Instant::now(), begun: Moment::now(), is_out }
    }

    pub(super) fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Acquire)
    }

    /// Notes whether an owner may have it; reads leave nothing behind.
    pub(super) fn set_out(&self, is_out: bool) {
        self.is_out.store(is_out && self.request.is_write(), Ordering::Release);
    }

    /// The request with what is left of its time, if it bounds it.
    pub(super) fn later(&self) -> Option<Request> {
        self.request.after(self.started.elapsed())
    }

    fn left(&self, deadline: Option<Duration>) -> Option<Duration> {
        deadline.map(|time| time.saturating_sub(self.started.elapsed()))
    }

    /// The options with what is left of their time.
    pub(super) fn left_to_write(&self, options: WriteOptions) -> WriteOptions {
        WriteOptions { deadline: self.left(options.deadline), ..options }
    }

    /// The options with what is left of their time.
    pub(super) fn left_to_read(&self, options: ReadOptions) -> ReadOptions {
        ReadOptions { deadline: self.left(options.deadline), ..options }
    }

    pub(super) fn unknown(&self, reason: &str, source: Option<Source>) -> StoreError {
        StoreError::Unknown { what: self.request.name(), reason: reason.to_owned(), source }
    }

    /// What the caller is told of an error: one that stands in the way of asking again says nothing about a
    /// write that an earlier owner may have. A conflict does: the name, or the value that is there, was
    /// looked at.
    pub(super) fn failed(&self, error: StoreError) -> StoreError {
        match self.is_out() && error.outcome() != Outcome::Unknown && error.kind() != ErrorKind::Conflict {
            true => self.unknown(LOST, Some(Arc::new(error))),
            false => error,
        }
    }

    /// Whether it may be asked of a store that remembers names as `capabilities` tell, after that loss.
    pub(super) fn check_repeat(
        &self,
        capabilities: &Capabilities,
        lost: Option<&Lost>,
    ) -> Result<(), StoreError> {
        // Creating a cell again with the same value is done, so that alone may be repeated.
        if !self.is_out() || matches!(self.request, Request::Create(..)) {
            return Ok(());
        }
        if self.request.request_id().is_some() && self.begun.age() < name_is_known_for(capabilities) {
            return Ok(());
        }
        Err(self.unknown(LOST, lost.map(|lost| Arc::new(lost.clone()) as Source)))
    }
}

const LOST: &str = "the owner of the store was lost before it answered";
