//! Who has which slot, and whom to ask what any node can answer.
//!
//! Invariant: a node that was named in the last table is asked again, however often it did not answer: who lost sight of all of them
//! for a moment finds them again.

use super::{Address, Nodes, Source};
use crate::answer::{Refused, is_busy, meaning};
use crate::connection::{Silent, busy, too_late, written};
use crate::lanes::Way;
use crate::owners::Owners;
use atoll_keyspace::SLOTS;
use atoll_resp::Value;
use atoll_store::StoreError;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

impl Nodes {
    /// The nodes of the last table, whoever was named since, and those that are asked first.
    fn known(&self) -> BTreeSet<Address> {
        let mut known = self.named.lock().clone();
        known.extend(self.options.seeds.iter().map(|seed| Address::from(seed.as_str())));
        known
    }

    /// A node for what any of them can answer: one of the last table, or one that is asked first, and one that did not answer last only
    /// where none did.
    pub(super) fn anyone(&self) -> Address {
        let order = self.refreshing.order(self.known());
        let named = self.named.lock();
        let is_worse = |address: &Address| (self.refreshing.is_silent(address), !named.contains(address));
        order.into_iter().min_by_key(is_worse).unwrap_or_else(|| "".into())
    }

    /// Asks the nodes, one by one.
    pub(super) async fn ask_all(&self) -> Result<(), StoreError> {
        let (mut last, mut elsewhere) = (None, None);
        for address in self.refreshing.order(self.known()) {
            // It needs no place: those who have them all may wait for what is asked here. A node has the answer at once, and where
            // slots are scattered that is long on a slow network.
            let (request, within) = (written(&["CLUSTER", "SLOTS"]), self.options.connect_time_out);
            let asked = self.ask_at((&address, Way::Reads), &request, within, || ());
            let answer = tokio::time::timeout(self.options.request_time_out, asked).await;
            let answer = answer.unwrap_or_else(|late| Err(Silent::Sent(too_late(late))));
            self.refreshing.note(&address, answer.is_ok());
            match answer {
                Ok(Value::Array(ranges)) => {
                    let owners = Owners::read(&ranges, SLOTS.into());
                    let named: BTreeSet<_> = owners.addresses().map(Address::from).collect();
                    // Where nobody has anything, those who had it may have it again.
                    if !named.is_empty() {
                        *self.named.lock() = named;
                    }
                    *self.owners.lock() = owners;
                    return Ok(());
                }
                Ok(Value::Error(text)) if is_busy(&text) => last = Some(busy(&text)),
                Ok(Value::Error(text)) => {
                    if let Refused::Failed(error) = meaning(&text, "open", &self.place) {
                        return Err(error);
                    }
                }
                Ok(_) => return Err(self.odd("CLUSTER SLOTS")),
                Err(Silent::Stranger(error)) => return Err(error),
                Err(Silent::Elsewhere(error)) => elsewhere = Some(error),
                Err(Silent::Sent(error) | Silent::Unsent(error)) => {
                    // That one of them only lets nobody in now is what there is to know.
                    last = last.filter(|last| last.kind() == io::ErrorKind::ResourceBusy).or(Some(error));
                }
            }
        }
        if let Some(error) = elsewhere {
            return Err(error);
        }
        let reason = last
            .as_ref()
            .map_or_else(|| "no node was named".to_owned(), |error| format!("no node answers: {error}"));
        let source = last.map(|error| Arc::new(error) as Source);
        Err(StoreError::Unavailable { place: self.place.clone(), reason, source })
    }
}
