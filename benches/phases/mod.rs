//! One phase of one engine, run in a fresh process so that its CPU time, bytes and memory are its own.
//!
//! The planning process hands a [`Spec`] to a child and reads a [`PhaseResult`] back from a file.

use crate::measure::{IoBytes, Latency, TICK_SECONDS};
use crate::peers::{EngineError, EngineName, OpenOptions};
use std::path::PathBuf;

mod append;
pub mod beside;
pub mod beyond;
pub mod churn;
mod contract;
#[cfg(test)]
mod faulty;
pub mod pairs;
pub mod ranges;
mod read;
mod recovery;
#[cfg(test)]
mod tests;
mod window;
mod write;

/// How many records a batch of the load has, for every engine.
pub const LOAD_BATCH: u64 = 1000;
/// How many keys a batched read asks for.
pub const READ_BATCH: usize = 16;
/// How many entries a scan returns.
pub const SCAN_ENTRIES: u32 = 100;

const SEED: u64 = 0x0a70_11be;

/// The phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// YCSB load in batches of 1,000 into a new store.
    Load,
    /// The same load, one put at a time.
    LoadSingle,
    /// YCSB C: one get at a time.
    Get,
    /// YCSB C in batches of 16.
    GetMany,
    /// Scans of 100 of a freshly loaded store.
    Scan,
    /// YCSB A: half gets, half updates.
    Update,
    /// Not measured: after YCSB A, every record must hold its last version in a new process.
    Verify,
    /// Not measured: a load at whose end the process kills itself.
    TailFill,
    /// Opening the store of the killed process.
    TailOpen,
    /// Appends of 100 B to an empty value and to one of 60 MiB.
    Append,
    /// The embedded contract compared with the bare engine, in memory.
    Contract,
    /// YCSB A by two threads.
    UpdatePair,
    /// Gets while checkpoints are written.
    ReadBeside,
    /// Ten zipfian updates per record, and the space that they leave.
    Overwrite,
    /// Scans of 100 afterwards.
    ScanAged,
    /// Data four times the memory budget, in a control group.
    Beyond,
    /// Short pairs, one at a time, of the smallest count.
    PairsFew,
    /// Ten times as many.
    Pairs,
    /// A hundred times as many.
    PairsMany,
    /// Half of a tree is split off and absorbed again.
    Ranges,
}

/// The instructions for a child.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Spec {
    /// The engine.
    pub engine: EngineName,
    /// The phase.
    pub phase: Phase,
    /// The folder of the store.
    pub folder: PathBuf,
    /// Records in the store.
    pub records: u64,
    /// Length of their values.
    pub value_bytes: usize,
    /// Calls to make, or keys to look up.
    pub requests: u64,
    /// Where the child writes its result.
    pub answer: PathBuf,
}

impl Spec {
    fn open_options(&self) -> OpenOptions {
        OpenOptions {
            value_bytes: self.value_bytes,
            records: self.records,
            keep_tail: matches!(self.phase, Phase::TailFill | Phase::TailOpen),
            budget_bytes: (self.phase == Phase::Beyond).then_some(self.records * self.record_bytes() / 4),
        }
    }

    /// Bytes that the user hands over for one record.
    pub fn record_bytes(&self) -> u64 {
        (crate::workloads::KEY_BYTES + self.value_bytes) as u64
    }
}

/// The measurements of a child.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PhaseResult {
    /// Operations in the measured window: records, keys or scans.
    pub operations: u64,
    /// From the call of open to the first answer, in milliseconds.
    pub open_ms: f64,
    /// Length of the measured window.
    pub wall_seconds: f64,
    /// CPU time of all threads in the window.
    pub cpu_seconds: f64,
    /// The same until everything is durable and closed.
    pub settled_cpu_seconds: f64,
    /// Latencies of single calls.
    pub latency: Option<Latency>,
    /// The longest delay of the control thread in the window, in microseconds; it is not subtracted from
    /// anything.
    pub control_worst_us: f64,
    /// Bytes written by the process from its start until after the close.
    pub io: IoBytes,
    /// Bytes that the user wrote.
    pub user_bytes: u64,
    /// The peak memory of the process.
    pub peak_resident_bytes: u64,
    /// Share of all processors that other processes used in the window.
    pub others_busy_share: f64,
    /// Share that the host of the virtual machine took.
    pub stolen_share: f64,
    /// Values checked.
    pub checked: u64,
    /// Values that were wrong.
    pub wrong: u64,
    /// The first wrong value.
    pub first_wrong: Option<String>,
    /// Figures that only this phase has, by name.
    pub extra: std::collections::BTreeMap<String, f64>,
}

impl PhaseResult {
    /// CPU microseconds per operation, in the window.
    pub fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.operations.max(1) as f64
    }

    /// CPU microseconds per operation, until durable and closed.
    pub fn settled_cpu_us(&self) -> f64 {
        self.settled_cpu_seconds * 1e6 / self.operations.max(1) as f64
    }

    /// Thousands of operations per second of wall clock time.
    pub fn kilo_operations_per_second(&self) -> f64 {
        self.operations as f64 / self.wall_seconds.max(1e-9) / 1000.0
    }

    /// Bytes that reached the disk per byte that the user wrote.
    pub fn bytes_to_disk(&self) -> f64 {
        self.io.to_disk as f64 / self.user_bytes.max(1) as f64
    }

    /// Bytes handed to write calls per byte that the user wrote.
    pub fn bytes_handed_over(&self) -> f64 {
        self.io.handed_over as f64 / self.user_bytes.max(1) as f64
    }

    /// The larger of the two: each count misses something that the other one includes.
    pub fn bytes_at_most(&self) -> f64 {
        self.bytes_to_disk().max(self.bytes_handed_over())
    }

    /// Lower bound of the share that other processes used: the kernel counts in ticks, and a tick is a larger
    /// part of a shorter window.
    pub fn others_at_least(&self) -> f64 {
        (self.others_busy_share - TICK_SECONDS / self.wall_seconds).max(0.0)
    }

    /// Adds checks made outside of the window.
    fn add_checks(&mut self, verifier: crate::workloads::Verifier) {
        self.checked += verifier.checked;
        self.wrong += verifier.wrong;
        self.first_wrong = self.first_wrong.take().or(verifier.first_wrong);
    }

    /// The worst call, after subtracting its wait for a processor or the control thread's delay at the same
    /// time, whichever is larger.
    pub fn worst_excess_us(&self) -> Option<f64> {
        self.latency.map(|latency| latency.worst_own_us)
    }
}

/// Runs a phase in this process.
pub fn run(spec: &Spec) -> Result<PhaseResult, EngineError> {
    match spec.phase {
        Phase::Load => write::load(spec),
        Phase::LoadSingle => write::load_single(spec),
        Phase::Get => read::get(spec),
        Phase::GetMany => read::get_many(spec),
        Phase::Scan => read::scan(spec),
        Phase::Update => write::update(spec),
        Phase::Verify => read::verify(spec),
        Phase::TailFill => recovery::fill(spec),
        Phase::TailOpen => recovery::open(spec),
        Phase::Append => append::run(spec),
        Phase::Contract => contract::run(spec),
        Phase::UpdatePair => beside::update_pair(spec),
        Phase::ReadBeside => beside::read_beside(spec),
        Phase::Overwrite => churn::overwrite(spec),
        Phase::ScanAged => churn::scan(spec),
        Phase::Beyond => beyond::run(spec),
        Phase::PairsFew | Phase::Pairs | Phase::PairsMany => pairs::run(spec),
        Phase::Ranges => ranges::run(spec),
    }
}

/// Runs a phase and writes its result to the file that the spec names.
pub fn run_child(spec: &Spec) -> Result<(), EngineError> {
    let result = run(spec)?;
    Ok(std::fs::write(&spec.answer, serde_json::to_vec(&result)?)?)
}
