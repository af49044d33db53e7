//! Operations of clients: what was requested, when, and its outcome.

use atoll_linearizability::{Action, Answer};
use atoll_replica::{Sequence, Slot};

/// What is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Reads one cell or all of them.
    Read(Action),
    /// Waits until the cell has this value.
    Wait { cell: u8, value: String },
    /// A write, after which cells may expire.
    Write { action: Action, lifetime_us: Option<u64> },
    /// A cell expires, if it still is as that operation put it. Only a primary requests this.
    Expire { cell: u8, put: usize },
}

/// How an operation ended for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OperationEnd {
    /// With this answer.
    Told(Answer),
    /// Nothing happened, and nothing will.
    Refused,
    /// The outcome is unknown.
    Unknown,
}

/// One operation.
///
/// Moments count everything that can be observed from outside; no two are equal.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) slot: Slot,
    pub(crate) work: Work,
    pub(crate) called: u64,
    /// When, by true time in microseconds, it was requested, and when it ended.
    pub(crate) took: (u64, Option<u64>),
    pub(crate) ended: Option<(u64, OperationEnd)>,
    /// For a write, its place in the order of the slot; for a read, the last place that it saw.
    pub(crate) place: Option<Sequence>,
    /// For a write, when it was first applied on any node, and its answer there.
    pub(crate) applied: Option<(u64, Answer)>,
}

impl Work {
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Expire { .. })
    }

    /// A number for each cell that it reads or may change.
    pub(crate) fn keys(&self) -> Vec<u64> {
        let cells = match self {
            Self::Read(action) | Self::Write { action, .. } => match action {
                Action::Scan => return (0..u64::from(crate::cells::CELLS)).collect(),
                Action::Put(cells, _) => cells.clone(),
                Action::Get(cell)
                | Action::Append(cell, _)
                | Action::Swap(cell, _, _)
                | Action::Delete(cell) => vec![*cell],
            },
            Self::Wait { cell, .. } | Self::Expire { cell, .. } => vec![*cell],
        };
        cells.into_iter().map(u64::from).collect()
    }

    /// The name under which it is counted.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Read(Action::Scan) => "scans",
            Self::Read(_) => "gets",
            Self::Wait { .. } => "waits",
            Self::Expire { .. } => "expiries",
            Self::Write { lifetime_us: Some(_), .. } => "puts_with_a_lifetime",
            Self::Write { action, .. } => match action {
                Action::Put(cells, _) if cells.len() > 1 => "batches",
                Action::Append(..) => "appends",
                Action::Swap(..) => "swaps",
                Action::Delete(_) => "deletes",
                _ => "puts",
            },
        }
    }
}

/// The body of a write's log entry: its number, and a varying length, so that messages are split in many
/// places.
pub(crate) fn body_of(operation: usize) -> std::sync::Arc<[u8]> {
    let mut body = (operation as u64).to_be_bytes().to_vec();
    body.resize(8 + operation * 7 % 60, 0);
    body.into()
}

/// The number of the operation in a log entry.
pub(crate) fn operation_of(body: &[u8]) -> Option<usize> {
    let number = body.get(..8)?.try_into().ok()?;
    usize::try_from(u64::from_be_bytes(number)).ok()
}
