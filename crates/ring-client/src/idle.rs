//! Idle connections, which save later calls from making new ones.
//!
//! Invariant: the connections of a burst of calls end soon after it, even without further calls: the places
//! of a node are limited for all programs together.
//! Invariant: once they were closed, nothing is kept.

use crate::connection::Connection;
use crate::nodes::Address;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Most idle connections to a node that are kept.
const IDLE_MAX: usize = 128;

/// How many of them are kept for longer than this time.
const SPARE_MAX: usize = 2;
const SPARE_TIME: Duration = Duration::from_secs(30);

/// The idle connections of a store.
#[derive(Default)]
pub(crate) struct Idle {
    kept: Arc<Mutex<IdleConnections>>,
}

#[derive(Default)]
struct IdleConnections {
    /// For each node, its connections and when each last answered, oldest first.
    by_node: HashMap<Address, Vec<(Connection, Instant)>>,
    /// Whether a task is running that ends surplus connections.
    is_watched: bool,
    is_closed: bool,
}

impl Idle {
    /// Takes the connection that was used last.
    pub(crate) fn take(&self, node: &Address) -> Option<Connection> {
        self.kept.lock().by_node.get_mut(node)?.pop().map(|(connection, _)| connection)
    }

    /// Keeps a connection that just answered, unless there are enough.
    pub(crate) fn keep(&self, node: &Address, connection: Connection) {
        let mut kept = self.kept.lock();
        if kept.is_closed {
            return;
        }
        let to_node = kept.by_node.entry(Arc::clone(node)).or_default();
        if to_node.len() < IDLE_MAX {
            to_node.push((connection, Instant::now()));
        }
        if to_node.len() > SPARE_MAX && !std::mem::replace(&mut kept.is_watched, true) {
            tokio::spawn(watch(Arc::downgrade(&self.kept)));
        }
    }

    /// Ends the connections to a node that have not answered after this moment.
    pub(crate) fn forget(&self, node: &Address, since: Instant) {
        if let Some(to_node) = self.kept.lock().by_node.get_mut(node) {
            to_node.retain(|(_, answered_at)| *answered_at > since);
        }
    }

    /// Ends the connections to all but these nodes.
    pub(crate) fn retain(&self, nodes: &BTreeSet<Address>) {
        self.kept.lock().by_node.retain(|node, _| nodes.contains(node));
    }

    /// Ends all connections, and those of requests that are under way as soon as they are answered.
    pub(crate) fn close(&self) {
        let mut kept = self.kept.lock();
        kept.is_closed = true;
        kept.by_node.clear();
    }
}

/// Ends connections that were not used for long, until there are few.
async fn watch(kept: Weak<Mutex<IdleConnections>>) {
    loop {
        tokio::time::sleep(SPARE_TIME).await;
        let Some(kept) = kept.upgrade() else { return };
        let mut kept = kept.lock();
        kept.end_spare(Instant::now());
        kept.is_watched = kept.by_node.values().any(|to_node| to_node.len() > SPARE_MAX);
        if !kept.is_watched {
            return;
        }
    }
}

impl IdleConnections {
    fn end_spare(&mut self, now: Instant) {
        self.by_node.retain(|_, to_node| {
            let too_many = to_node.len().saturating_sub(SPARE_MAX);
            let is_old = |(_, answered_at): &&(Connection, Instant)| now - *answered_at >= SPARE_TIME;
            let old = to_node.iter().take(too_many).take_while(is_old).count();
            to_node.drain(..old);
            !to_node.is_empty()
        });
    }
}
