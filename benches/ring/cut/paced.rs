//! The client on the majority's side: requests at a fixed pace, whatever becomes of those before.
//!
//! Half of them write a new key, half read one that was acknowledged. A request succeeds when the right
//! answer is there a second after it was due; until then it is tried again, as a client of the cluster does:
//! at the node that a refusal names, at another one when the node is silent. So a part of the slots that
//! nobody serves shows as its share of failures, and not as a pause in which nothing is asked.

use super::pacer::Pacer;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

/// The first letter of its keys.
pub const LETTER: char = 'm';
/// Length of the bins of the report.
pub const BIN_MS: u64 = 100;

/// What to do.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Spec {
    /// A primary of each host, those that will not be cut off first.
    pub addresses: Vec<SocketAddr>,
    /// What servers want to be shown first, if they do.
    #[serde(default)]
    pub token: Option<String>,
    /// Requests a second.
    pub rate: u64,
    /// For how long.
    pub run_ms: u64,
    /// How long after it was due an answer still counts.
    pub answer_ms_max: u64,
    /// Of the order of reads.
    pub seed: u64,
}

/// What became of the requests that were due in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Bin {
    /// Requests.
    pub requests: u64,
    /// Those with the right answer in time.
    pub succeeded: u64,
    /// Writes among these.
    pub writes: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// The numbers of the keys whose writes were acknowledged in time.
    pub acknowledged: Vec<u64>,
    /// By the milliseconds since 1970 at which a bin begins.
    pub bins: BTreeMap<u64, Bin>,
    /// Reads that found nothing or something else.
    pub wrong_reads: u64,
    /// The first of them.
    pub first_wrong: Option<String>,
    /// Refusals, by their first word.
    pub refusals: BTreeMap<String, u64>,
}

/// Asks for so long, and waits for the last answers.
pub fn run(spec: &Spec) -> io::Result<Report> {
    Pacer::new(spec)?.run()
}

impl Report {
    /// The sum of the bins that begin within these moments.
    pub fn between(&self, from_ms: u64, until_ms: u64) -> Bin {
        self.bins.range(from_ms..until_ms).fold(Bin::default(), |sum, (_, bin)| Bin {
            requests: sum.requests + bin.requests,
            succeeded: sum.succeeded + bin.succeeded,
            writes: sum.writes + bin.writes,
        })
    }

    /// A request that was due at this moment ended; `acknowledged` is the number of its key if it was a
    /// write.
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
