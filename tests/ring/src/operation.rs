//! What clients asked for, when, and what became of it.

use atoll_linearizability::{Action, Answer};
use atoll_replica::{Sequence, Slot};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A read of a cell or of all of them.
    Read(Action),
    /// The answer comes when the cell has this value.
    Wait { cell: u8, value: String },
    /// A write, after which cells may go by themselves.
    Write { action: Action, lifetime_us: Option<u64> },
    /// A cell goes, if it still is as that operation put it. Only a primary asks for this.
    Expire { cell: u8, put: usize },
}

/// How an operation ended for whoever asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With this answer.
    Told(Answer),
    /// Nothing happened, and nothing will.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// One operation.
///
/// Moments are a count that goes up with everything that anybody outside can see; no two are equal.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) slot: Slot,
    pub(crate) work: Work,
    pub(crate) called: u64,
    /// When, by true time in microseconds, it was asked for, and when it ended.
    pub(crate) took: (u64, Option<u64>),
    pub(crate) ended: Option<(u64, Ended)>,
    /// A write: its place in the order of the slot. A read: the last place that it saw.
    pub(crate) place: Option<Sequence>,
    /// A write: when it was applied first, anywhere, and what it answers there.
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

    /// What it is counted as.
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

/// What a write looks like in a log: its number, and a length of its own, so that messages are cut in many
/// places.
pub(crate) fn body_of(operation: usize) -> std::sync::Arc<[u8]> {
    let mut body = (operation as u64).to_be_bytes().to_vec();
    body.resize(8 + operation * 7 % 60, 0);
    body.into()
}

/// The number of the operation in a log's entry.
pub(crate) fn operation_of(body: &[u8]) -> Option<usize> {
    let number = body.get(..8)?.try_into().ok()?;
    usize::try_from(u64::from_be_bytes(number)).ok()
}
