//! Requests that are held back while a slot is handed over: nothing has happened for them yet.
//!
//! Invariant: they are bounded in number and in bytes, and leave in the order in which they came.

use crate::lengths::Longest;
use crate::{Effect, Moment, Options, Refusal, Ticket};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// A client's write.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) ticket: Ticket,
    pub(crate) time_ms: u64,
    pub(crate) body: Arc<[u8]>,
    pub(crate) keys: Vec<u64>,
}

/// A client's request.
#[derive(Debug)]
pub(crate) enum Request {
    Write(Write),
    Read { ticket: Ticket, keys: Vec<u64> },
}

/// The held requests of one slot.
#[derive(Debug, Default)]
pub(crate) struct HeldRequests {
    requests: VecDeque<(Moment, Request)>,
    /// How many left since it was last emptied as a whole: the place of the first request.
    gone: u64,
    bytes: usize,
    longest: Longest,
    /// The keys that the held writes may change: a read of one of them waits behind those writes.
    keys: BTreeSet<u64>,
    /// Whether one of the held writes may change any key.
    changes_all: bool,
}

impl Request {
    pub(crate) fn ticket(&self) -> Ticket {
        match self {
            Self::Write(Write { ticket, .. }) | Self::Read { ticket, .. } => *ticket,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Write(write) => write.body.len(),
            Self::Read { .. } => 0,
        }
    }

    pub(crate) fn refuse(&self, refusal: Refusal, effects: &mut Vec<Effect>) {
        effects.push(Effect::Refuse { ticket: self.ticket(), refusal });
    }
}

impl HeldRequests {
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The length of the longest held write.
    pub(crate) fn longest(&self) -> usize {
        self.longest.length()
    }

    /// Whether a write of one of these keys is held back.
    pub(crate) fn writes_any(&self, keys: &[u64]) -> bool {
        self.changes_all || keys.iter().any(|key| self.keys.contains(key))
    }

    /// Holds a request back, or refuses it if there is no room.
    pub(crate) fn push(
        &mut self,
        request: Request,
        now: Moment,
        options: &Options,
        effects: &mut Vec<Effect>,
    ) {
        if self.requests.len() >= options.under_way_max || self.bytes >= options.under_way_bytes_max {
            return request.refuse(Refusal::Busy, effects);
        }
        self.bytes += request.bytes();
        self.longest.push(self.gone + self.requests.len() as u64, request.bytes());
        if let Request::Write(write) = &request {
            self.keys.extend(&write.keys);
            self.changes_all |= write.keys.is_empty();
        }
        self.requests.push_back((now, request));
    }

    /// Takes all requests out, to be executed.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Request> + use<> {
        std::mem::take(self).requests.into_iter().map(|(_, request)| request)
    }

    /// Refuses all requests.
    pub(crate) fn refuse(&mut self, refusal: Refusal, effects: &mut Vec<Effect>) {
        self.take().for_each(|request| request.refuse(refusal, effects));
    }

    /// Refuses the requests that came before `than`.
    pub(crate) fn refuse_older(&mut self, than: Moment, refusal: Refusal, effects: &mut Vec<Effect>) {
        while self.requests.front().is_some_and(|(came, _)| *came < than)
            && let Some((_, request)) = self.requests.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(request.bytes());
            self.longest.remove_through(self.gone);
            self.gone += 1;
            request.refuse(refusal, effects);
        }
        if self.requests.is_empty() {
            self.keys.clear();
            self.changes_all = false;
        }
    }
}
