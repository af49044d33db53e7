//! One call that may pass from one owner to the next: how much time it has left, whether an owner may have
//! received it, and whether it may be repeated.
//!
//! Invariant: a call that may have taken effect is never reported as refused, and never repeated where it
//! could take effect twice.

use super::Request;
use super::attachment::name_is_known_for;
use atoll_store::age::Moment;
use atoll_store::{Capabilities, ErrorKind, Outcome, ReadOptions, Source, StoreError, WriteOptions};
use atoll_wire::Lost;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A call without an answer yet.
pub(super) struct Call<'a> {
    pub request: &'a Request,
    started: Instant,
    /// Also counts the time in which this machine sleeps, since the owner's clock runs on meanwhile.
    begun: Moment,
    /// Whether the call is a write that an owner may have received.
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

    /// Notes whether an owner may have received the call; ignored for reads, which have no effect.
    pub(super) fn set_out(&self, is_out: bool) {
        self.is_out.store(is_out && self.request.is_write(), Ordering::Release);
    }

    /// The request with the rest of its time, if its time is limited.
    pub(super) fn later(&self) -> Option<Request> {
        self.request.after(self.started.elapsed())
    }

    fn left(&self, deadline: Option<Duration>) -> Option<Duration> {
        deadline.map(|time| time.saturating_sub(self.started.elapsed()))
    }

    /// The options with the rest of their deadline.
    pub(super) fn left_to_write(&self, options: WriteOptions) -> WriteOptions {
        WriteOptions { deadline: self.left(options.deadline), ..options }
    }

    /// The options with the rest of their deadline.
    pub(super) fn left_to_read(&self, options: ReadOptions) -> ReadOptions {
        ReadOptions { deadline: self.left(options.deadline), ..options }
    }

    pub(super) fn unknown(&self, reason: &str, source: Option<Source>) -> StoreError {
        StoreError::Unknown { what: self.request.name(), reason: reason.to_owned(), source }
    }

    /// The error to report to the caller. An error that stops a repetition says nothing about a write that an
    /// earlier owner may have received, so the outcome is unknown. A conflict does say something: the request
    /// id, or the value of the cell, was looked up.
    pub(super) fn failed(&self, error: StoreError) -> StoreError {
        match self.is_out() && error.outcome() != Outcome::Unknown && error.kind() != ErrorKind::Conflict {
            true => self.unknown(LOST, Some(Arc::new(error))),
            false => error,
        }
    }

    /// Checks that the call may be repeated after this loss, at a store that remembers request ids as its
    /// `capabilities` say.
    pub(super) fn check_repeat(
        &self,
        capabilities: &Capabilities,
        lost: Option<&Lost>,
    ) -> Result<(), StoreError> {
        // Creating a cell again with the same value succeeds, so of the writes without an id only `create`
        // may be repeated.
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
