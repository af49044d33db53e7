//! What everything on one loop shares, beside its connections.

use crate::clock::{Clock, Now};
use crate::connection::Session;
use crate::metrics::Metrics;
use crate::options::ConnectionLimits;
use crate::slots::Slots;
use crate::token::Token;
use atoll_replica::Ticket;
use atoll_resp::Limits;
use std::sync::Arc;

/// What is the same on all loops of a node.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: ConnectionLimits,
    pub(crate) token: Option<Token>,
    pub(crate) loops: usize,
}

impl Shared {
    /// What the connections of one loop may take.
    pub(crate) fn memory_bytes_max_each(&self) -> u64 {
        self.limits.memory_bytes_max / self.loops as u64
    }
}

/// What everything on one loop shares, beside its connections.
pub(crate) struct Here {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slots: Slots,
    pub(crate) metrics: Arc<Metrics>,
    /// When the clock was read last: behind every call that received something.
    pub(crate) now: Now,
    /// The last ticket.
    pub(crate) tickets: u64,
}

impl Here {
    pub(crate) fn limits(&self) -> &ConnectionLimits {
        &self.shared.limits
    }

    /// What a client may send in one request.
    pub(crate) fn request_limits(&self, session: &Session) -> Limits {
        if session.is_authenticated { self.limits().request } else { Limits::UNAUTHENTICATED }
    }

    /// Reads the clock.
    pub(crate) fn look_at_clock(&mut self) {
        self.now = self.shared.clock.now();
    }

    /// A ticket that nobody had before.
    #[expect(dead_code, reason = "with one copy a write is committed at once")]
    pub(crate) fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}
