//! What an acknowledged write survives: the weakest class of the nodes that lead slots, because any of them
//! may acknowledge the next write.
//!
//! Nodes are asked when a store is opened, and again once others lead, before a write claims anything: nodes
//! may have been started with different classes.
//!
//! Invariant: no more is claimed than each leader keeps that answered. What a silent one keeps is not known,
//! so the class does not rise when there is one.

use crate::nodes::{Address, Nodes};
use atoll_resp::Value;
use atoll_store::{Durability, StoreError};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a node is asked for.
const QUESTION: [&[u8]; 3] = [b"CONFIG", b"GET", b"append*"];

/// The weakest class of the leaders.
pub(crate) struct WeakestDurability {
    /// Its place among all classes.
    class: AtomicU8,
    /// The number of changes of leaders when they were last asked.
    asked_at: AtomicU64,
    /// Held while asking.
    turn: tokio::sync::Mutex<()>,
}

/// What the leaders answered.
#[derive(Clone, Copy)]
struct Heard {
    weakest: Option<Durability>,
    are_all: bool,
}

impl WeakestDurability {
    /// Asks for the first time. At least one node has to answer.
    pub(crate) async fn ask(nodes: &Nodes) -> Result<Self, StoreError> {
        let changes = nodes.changes();
        let class = match heard(nodes).await.weakest {
            Some(class) => class,
            None => {
                let answer = nodes.ask("open", &QUESTION).await?;
                class_of(&answer).ok_or_else(|| nodes.odd("open"))?
            }
        };
        Ok(Self::of(class, changes))
    }

    fn of(class: Durability, changes: u64) -> Self {
        let class = AtomicU8::new(class as u8);
        Self { class, asked_at: AtomicU64::new(changes), turn: tokio::sync::Mutex::default() }
    }

    /// The class as far as it is known.
    pub(crate) fn known(&self) -> Durability {
        let place = usize::from(self.class.load(Ordering::Acquire));
        Durability::ALL.get(place).copied().unwrap_or(Durability::Buffered)
    }

    /// The class, for which nodes are asked again if others lead by now.
    pub(crate) async fn now(&self, nodes: &Nodes) -> Durability {
        if self.asked_at.load(Ordering::Acquire) != nodes.changes() {
            let _turn = self.turn.lock().await;
            // Another call may have asked meanwhile.
            let changes = nodes.changes();
            if self.asked_at.load(Ordering::Acquire) != changes {
                self.take(heard(nodes).await);
                self.asked_at.store(changes, Ordering::Release);
            }
        }
        self.known()
    }

    fn take(&self, heard: Heard) {
        let known = self.known();
        let class = match heard.weakest {
            Some(weakest) if heard.are_all => weakest,
            Some(weakest) => weakest.min(known),
            None => known,
        };
        self.class.store(class as u8, Ordering::Release);
    }
}

/// Asks all leaders at the same time. Those that are down or silent are not waited for any longer than for a
/// connection.
async fn heard(nodes: &Nodes) -> Heard {
    let leaders = nodes.leaders();
    let (count, mut answered, mut weakest) = (leaders.len(), 0, None);
    let mut asked: FuturesUnordered<_> =
        leaders.into_iter().map(|address| class_at(nodes, address)).collect();
    let hearing = async {
        while let Some(told) = asked.next().await {
            if let Some(class) = told {
                answered += 1;
                weakest = Some(weakest.map_or(class, |known: Durability| known.min(class)));
            }
        }
    };
    let _ = tokio::time::timeout(nodes.options.connect_time_out, hearing).await;
    Heard { weakest, are_all: answered == count }
}

async fn class_at(nodes: &Nodes, address: Address) -> Option<Durability> {
    class_of(&nodes.ask_node(&address, &QUESTION).await?)
}

/// What an acknowledged write survives, by what a node reports about its log.
fn class_of(answer: &Value) -> Option<Durability> {
    let mut values = match answer {
        Value::Array(values) => values
            .chunks(2)
            .filter_map(|pair| pair.split_first_chunk())
            .map(|([name, value], _)| (name, value))
            .collect::<Vec<_>>(),
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        _ => return None,
    };
    values.retain(|(name, _)| name.bytes().is_some());
    let find = |wanted: &[u8]| values.iter().find(|(name, _)| name.bytes() == Some(wanted))?.1.bytes();
    Some(match (find(b"appendonly")?, find(b"appendfsync")?) {
        (b"yes", b"always") => Durability::Synced,
        (b"yes", _) => Durability::Flushed,
        _ => Durability::Buffered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Durability::{Buffered, Flushed, Synced};

    #[test]
    fn a_class_falls_with_any_answer_and_rises_with_all_of_them() {
        for (known, weakest, are_all, class) in [
            (Flushed, Some(Synced), true, Synced),
            (Flushed, Some(Synced), false, Flushed),
            (Flushed, Some(Buffered), false, Buffered),
            (Synced, Some(Flushed), true, Flushed),
            (Synced, None, false, Synced),
            (Buffered, None, true, Buffered),
        ] {
            let durability = WeakestDurability::of(known, 0);
            assert_eq!(durability.known(), known);
            durability.take(Heard { weakest, are_all });
            assert_eq!(durability.known(), class, "{known:?} {weakest:?} {are_all}");
        }
    }
}
