//! Finds out which node leads which slot, and picks a node for questions that any node can answer.
//!
//! Invariant: a silent node costs the caller only a moment, however long it might take to answer.
//! Invariant: a node of the last table is asked again however often it did not answer, so that a client that
//! lost all of them for a moment finds them again.

use super::{Address, Nodes, Source};
use crate::answer::{Refused, is_busy, meaning};
use crate::connection::{Answered, NoAnswer, busy, too_late};
use crate::known_table::{Heard, QUESTION};
use crate::lanes::Way;
use atoll_resp::Value;
use atoll_store::StoreError;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long nodes may be silent before the next one is asked as well.
const NEXT_NODE_AFTER: Duration = Duration::from_millis(200);

impl Nodes {
    /// The nodes of the last table, those named since, and the seeds.
    pub(super) fn known(&self) -> BTreeSet<Address> {
        let mut known = self.named.lock().clone();
        known.extend(self.options.seeds.iter().map(|seed| Address::from(seed.as_str())));
        known
    }

    /// A node for a question that any node can answer: one of the last table if possible, otherwise a seed. A
    /// node that did not answer last is picked only if no other is left.
    pub(super) fn anyone(&self) -> Address {
        let order = self.refreshing.order(self.known());
        let named = self.named.lock();
        let is_worse = |address: &Address| (self.refreshing.is_silent(address), !named.contains(address));
        order.into_iter().min_by_key(is_worse).unwrap_or_else(|| "".into())
    }

    /// Asks the nodes one after the other until one answers, without waiting long for any of them alone.
    pub(super) async fn ask_all(&self) -> Result<(), StoreError> {
        let mut left = self.refreshing.order(self.known()).into_iter();
        let (mut asked, mut troubles) = (FuturesUnordered::new(), Troubles::default());
        loop {
            let begun = left.next();
            asked.extend(begun.clone().map(|address| self.ask_who_has_what(address)));
            let answered = match left.len() {
                0 => Ok(asked.next().await),
                _ => tokio::time::timeout(NEXT_NODE_AFTER, asked.next()).await,
            };
            match answered {
                Ok(Some((address, answer))) => {
                    self.refreshing.note(&address, answer.is_ok());
                    if let Some(told) = self.hear(answer, &mut troubles) {
                        return told;
                    }
                }
                Ok(None) => return Err(troubles.error(&self.place)),
                // It may still answer. If the caller gives up before, the next call begins with other nodes.
                Err(_) => begun.iter().for_each(|address| self.refreshing.note(address, false)),
            }
        }
    }

    async fn ask_who_has_what(&self, address: Address) -> (Address, Result<Value, NoAnswer>) {
        // Takes no place: the requests that hold them may all wait for this answer. A node has the answer at
        // once, but with scattered slots a new table is long on a slow network.
        let (request, within) = (self.table.lock().question(), self.options.connect_time_out);
        let asked = self.ask_at((&address, Way::Reads), &request, within, || ());
        let answer = tokio::time::timeout(self.options.request_time_out, asked).await;
        let answer = answer.unwrap_or_else(|late| Err(NoAnswer::Sent(too_late(late))));
        (address, answer.map(|Answered { value, .. }| value))
    }

    /// The result for the caller, if no other node has to be asked.
    fn hear(
        &self,
        answer: Result<Value, NoAnswer>,
        troubles: &mut Troubles,
    ) -> Option<Result<(), StoreError>> {
        match answer {
            Ok(Value::Error(text)) if is_busy(&text) => troubles.last = Some(busy(&text)),
            Ok(Value::Error(text)) => {
                if let Refused::Failed(error) = meaning(&text, "open", &self.place) {
                    return Some(Err(error));
                }
            }
            Ok(answer) => return Some(self.learn(&answer)),
            // Only a write is told that a node keeps too little.
            Err(NoAnswer::Stranger(error) | NoAnswer::TooWeak(_, error)) => return Some(Err(error)),
            Err(NoAnswer::Elsewhere(error)) => troubles.elsewhere = Some(error),
            Err(NoAnswer::Sent(error) | NoAnswer::Unsent(error)) => {
                // That a node only accepts no client at present is the more useful error.
                let last = troubles.last.take().filter(|last| last.kind() == io::ErrorKind::ResourceBusy);
                troubles.last = last.or(Some(error));
            }
        }
        None
    }

    /// Takes what a node says of the table.
    fn learn(&self, answer: &Value) -> Result<(), StoreError> {
        let heard = self.table.lock().hear(answer);
        match heard {
            // An empty table is no reason to forget nodes: they may lead slots again.
            Heard::New(named) if !named.is_empty() => *self.named.lock() = named,
            Heard::New(_) | Heard::Same => {}
            Heard::Odd => return Err(self.odd(QUESTION)),
        }
        // Also where the table is the same: requests that were under way when it came gave back connections.
        self.end_connections_to_others();
        Ok(())
    }
}

/// Why no node gave the table of slots.
#[derive(Default)]
struct Troubles {
    last: Option<io::Error>,
    /// Of a node that knows no such keyspace, or not yet.
    elsewhere: Option<StoreError>,
}

impl Troubles {
    fn error(self, place: &str) -> StoreError {
        let unavailable = || {
            let said = |error: &io::Error| format!("no node answers: {error}");
            let reason = self.last.as_ref().map_or_else(|| "no node was named".to_owned(), said);
            let source = self.last.map(|error| Arc::new(error) as Source);
            StoreError::Unavailable { place: place.to_owned(), reason, source }
        };
        self.elsewhere.unwrap_or_else(unavailable)
    }
}
