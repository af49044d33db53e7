//! Lanes: order this client's own calls on one partition, so that they do not race each other.
//!
//! Conditional writes of one partition run one after the other. Reads that arrive while another one is in
//! flight are sent together in the next request. Between clients the database decides.
//!
//! Invariant: a read is sent after it was requested, so it sees every write acknowledged before that.
//! Invariant: no call waits for one that was dropped.

use crate::cells::{AtOnce, Pieces};
use crate::link::Link;
use crate::read::Moves;
use crate::recall::Known;
use crate::settle::Majority;
use atoll_store::{PartitionKey, SortKey, StoreError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;
use twox_hash::XxHash3_64;

const SHARDS: usize = 16;

/// Partition heads remembered in each shard.
const HEADS_MAX: usize = 1024;

/// The most cells read with one request.
const TOGETHER_MAX: usize = 64;

/// The lane for writes to one partition.
pub(crate) type WriteLane = Arc<tokio::sync::Mutex<Known>>;

type Waiting = (SortKey, oneshot::Sender<Result<Pieces, StoreError>>);

#[derive(Default)]
struct Shard {
    writes: Mutex<HashMap<PartitionKey, WriteLane>>,
    reads: Mutex<HashMap<PartitionKey, Vec<Waiting>>>,
}

/// All lanes of a store.
#[derive(Default)]
pub(crate) struct Lanes {
    shards: [Shard; SHARDS],
}

impl Lanes {
    fn shard(&self, partition: &[u8]) -> &Shard {
        &self.shards[XxHash3_64::oneshot(partition) as usize % SHARDS]
    }

    /// The lane for writes to a partition.
    pub(crate) fn writes(&self, partition: &[u8]) -> WriteLane {
        let mut lanes = self.shard(partition).writes.lock();
        if let Some(lane) = lanes.get(partition) {
            return Arc::clone(lane);
        }
        if lanes.len() >= HEADS_MAX {
            // A lane in use is kept; only what is known of the idle ones is forgotten.
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        Arc::clone(lanes.entry(partition.to_vec()).or_default())
    }
}

/// Reads one cell at SERIAL, together with others requested meanwhile.
pub(crate) async fn read(
    link: &Arc<Link>,
    lanes: &Arc<Lanes>,
    partition: &[u8],
    sort: &[u8],
) -> Result<Pieces, StoreError> {
    let (sender, answer) = oneshot::channel();
    let is_first = {
        let mut reads = lanes.shard(partition).reads.lock();
        match reads.get_mut(partition) {
            Some(waiting) => {
                waiting.push((sort.to_vec(), sender));
                false
            }
            None => {
                reads.insert(partition.to_vec(), vec![(sort.to_vec(), sender)]);
                true
            }
        }
    };
    if is_first {
        tokio::spawn(serve(Arc::clone(link), Arc::clone(lanes), partition.to_vec()));
    }
    answer.await.unwrap_or_else(|_| Err(StoreError::closed(link.place.clone())))
}

/// The task that serves the reads of a partition. If it ends early, its waiting callers get an error, and the
/// next read starts a new task.
struct Serving {
    lanes: Arc<Lanes>,
    partition: PartitionKey,
    is_done: bool,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.is_done {
            self.lanes.shard(&self.partition).reads.lock().remove(&self.partition);
        }
    }
}

/// Answers the reads of one partition until none is left.
async fn serve(link: Arc<Link>, lanes: Arc<Lanes>, partition: PartitionKey) {
    let mut serving = Serving { lanes: Arc::clone(&lanes), partition: partition.clone(), is_done: false };
    loop {
        let waiting = {
            let mut reads = lanes.shard(&partition).reads.lock();
            let waiting = reads.get_mut(&partition).filter(|waiting| !waiting.is_empty());
            let Some(waiting) = waiting else {
                reads.remove(&partition);
                // From here on the next read starts a task of its own.
                serving.is_done = true;
                return;
            };
            let most = waiting.len().min(TOGETHER_MAX);
            waiting.drain(..most).collect::<Vec<_>>()
        };
        let mut sorts: Vec<&[u8]> = waiting.iter().map(|(sort, _)| sort.as_slice()).collect();
        sorts.sort_unstable();
        sorts.dedup();
        let answer = settled(&link, &partition, &sorts).await;
        for (sort, sender) in waiting {
            let pieces = answer.as_ref().and_then(|found| match found.damaged.get(&sort) {
                None => Ok(found.cells.get(&sort).cloned().unwrap_or_default()),
                Some(error) => Err(error),
            });
            // The caller may have stopped waiting.
            let _ = sender.send(pieces.map_err(Clone::clone));
        }
    }
}

/// Reads some cells of a partition, each as of one moment, and makes sure that a majority has those that were
/// created.
async fn settled(link: &Link, partition: &[u8], sorts: &[&[u8]]) -> Result<AtOnce, StoreError> {
    let mut moves = Moves::default();
    loop {
        let mut found = link.cells_at_once(partition, sorts).await?;
        let seen = found.cells.iter().map(|(sort, pieces)| (sort.as_slice(), pieces.as_slice()));
        let settling = link.settle(partition, seen).await?;
        // A cell that a majority does not have cannot have been returned to any caller.
        found.cells.retain(|sort, _| settling.others.get(sort) != Some(&Majority::Absent));
        if !settling.others.values().any(|other| *other == Majority::Another) {
            return Ok(found);
        }
        moves.again(&link.place)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reads_whose_task_broke_off_end_and_the_next_one_starts_anew() {
        let lanes = Arc::new(Lanes::default());
        let (sender, answer) = oneshot::channel();
        lanes.shard(b"p").reads.lock().insert(b"p".to_vec(), vec![(b"s".to_vec(), sender)]);
        let serving = |is_done| Serving { lanes: Arc::clone(&lanes), partition: b"p".to_vec(), is_done };
        drop(serving(true));
        assert!(lanes.shard(b"p").reads.lock().contains_key(&b"p"[..]), "it is another task's");
        drop(serving(false));
        assert!(answer.await.is_err());
        assert!(lanes.shard(b"p").reads.lock().is_empty());
    }
}
