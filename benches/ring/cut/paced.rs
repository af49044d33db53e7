//! The client on the majority's side: requests at a fixed pace, whatever becomes of the earlier ones.
//!
//! Half of them write a new key, half read an acknowledged one. A request succeeds if the right answer has
//! arrived a second after it was due. Until then it is retried as a client of the cluster would do it: at
//! the node that a refusal names, or at another one if the node is silent. So slots that no node serves
//! show as their share of failures, and not as a pause without requests.

use super::pacer::Pacer;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

/// The first letter of its keys.
pub const LETTER: char = 'm';
/// Length of the bins in the report.
pub const BIN_MS: u64 = 100;

/// The instructions for this client.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Spec {
    /// A primary of each host, those that will not be cut off first.
    pub addresses: Vec<SocketAddr>,
    /// The token that servers want to be shown first, if any.
    #[serde(default)]
    pub token: Option<String>,
    /// Requests a second.
    pub rate: u64,
    /// How long it runs.
    pub run_ms: u64,
    /// How long after its due time an answer still counts.
    pub answer_ms_max: u64,
    /// The seed of the order of reads.
    pub seed: u64,
    /// Its keys have the numbers above this one, so that several such clients have different keys.
    #[serde(default)]
    pub numbers_above: u64,
}

/// The requests that were due in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Bin {
    /// Requests.
    pub requests: u64,
    /// How many got the right answer in time.
    pub succeeded: u64,
    /// How many of these were writes.
    pub writes: u64,
}

/// The result.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The numbers of the keys whose writes were acknowledged in time.
    pub acknowledged: Vec<u64>,
    /// The bins, by the milliseconds since 1970 at which each begins.
    pub bins: BTreeMap<u64, Bin>,
    /// Reads that found nothing or another value.
    pub wrong_reads: u64,
    /// The first of them.
    pub first_wrong: Option<String>,
    /// Refusals, by their first word.
    pub refusals: BTreeMap<String, u64>,
}

/// Sends requests for the given time, and waits for the last answers.
pub fn run(spec: &Spec) -> io::Result<Report> {
    Pacer::new(spec)?.run(&AtomicBool::new(false))
}

/// The same until it is told to stop, and at first without knowing which node serves a slot: it asks the
/// first one, which names another.
pub fn run_until(spec: &Spec, stop: &AtomicBool) -> io::Result<Report> {
    Pacer::without_table(spec)?.run(stop)
}

impl Report {
    /// The sum of the bins that begin between these moments.
    pub fn between(&self, from_ms: u64, until_ms: u64) -> Bin {
        self.bins.range(from_ms..until_ms).fold(Bin::default(), |sum, (_, bin)| Bin {
            requests: sum.requests + bin.requests,
            succeeded: sum.succeeded + bin.succeeded,
            writes: sum.writes + bin.writes,
        })
    }

    /// Records the end of a request that was due at this moment; `acknowledged` is the number of its key if
    /// it was a write.
    pub fn end(&mut self, due_ms: u64, has_succeeded: bool, acknowledged: Option<u64>) {
        let bin = self.bins.entry(due_ms - due_ms % BIN_MS).or_default();
        bin.requests += 1;
        if has_succeeded {
            bin.succeeded += 1;
            bin.writes += u64::from(acknowledged.is_some());
            self.acknowledged.extend(acknowledged);
        }
    }
}
