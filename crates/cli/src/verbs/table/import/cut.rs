//! Cuts the rows of a file into steps, on a thread of its own.
//!
//! Invariant: the same file gives the same rows for the same step, wherever reading starts. If parts are
//! steps, a step is numbered by the count of records up to its end, and reading continues right after them.
//! Invariant: a step is handed over only when it is known to be complete: if rows name their step, once a row
//! of another step arrives or the file ends without an error.

use crate::Failure;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;
use atoll_row_files::{Part, PartLimits, RowReader, bytes_of};
use atoll_tables::STEP_COLUMN;
use tokio::sync::mpsc;

/// More rows of one step than this do not fit into an object.
const STEP_BYTES_MAX: usize = 64 << 20;

/// What makes up a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    /// The value of a column.
    Column { place: usize, name: String },
    /// The end of a part of the file.
    Parts,
}

/// How much of the run the table has.
pub(super) struct ImportedRun {
    pub(super) run: String,
    /// The last step of the run.
    pub(super) step: u64,
    /// The row count of that step, if it is still listed.
    pub(super) rows: Option<u64>,
}

/// A message from the reading thread.
pub(super) enum Message {
    /// The rows of a step.
    Step { step: u64, rows: RecordBatch, bytes_read: u64 },
    /// The file ended without an error.
    End { skipped: u64, bytes_read: u64 },
}

/// Why reading ended early.
pub(super) struct Stopped {
    pub(super) failure: Failure,
    /// The first line of a text file of which the table may have nothing, if reading the file failed.
    pub(super) repair_line: Option<u64>,
}

/// Reads rows and cuts them into steps.
pub(super) struct Cutter {
    reader: Box<dyn RowReader>,
    file: String,
    grouping: Grouping,
    limits: PartLimits,
    /// What the table has already.
    there: Option<ImportedRun>,
    /// The last step that was skipped because the table has it, and its row count so far.
    passed: Option<(u64, u64)>,
    /// The last step that the table has, or that was handed over.
    done: Option<u64>,
    skipped: u64,
    /// The step being read: its number, its rows so far, and their bytes.
    open: Option<(u64, Vec<RecordBatch>, usize)>,
}

type Sender = mpsc::Sender<Result<Message, Stopped>>;

/// The receiver is gone: it failed, or was interrupted.
struct ReceiverGone;

impl Cutter {
    pub(super) fn new(
        reader: Box<dyn RowReader>,
        file: String,
        grouping: Grouping,
        limits: PartLimits,
        there: Option<ImportedRun>,
    ) -> Self {
        let done = there.as_ref().map(|there| there.step);
        Self { reader, file, grouping, limits, there, passed: None, done, skipped: 0, open: None }
    }

    /// Reads to the end, or to the first failure.
    pub(super) fn run(&mut self, sender: &Sender) {
        let last = match self.read(sender) {
            Ok(Ok(())) => Ok(Message::End { skipped: self.skipped, bytes_read: self.reader.bytes_read() }),
            Ok(Err(ReceiverGone)) => return,
            Err(failure) => Err(Stopped { failure, repair_line: self.repair_line() }),
        };
        // A failed send cannot be reported anywhere.
        let _ = sender.blocking_send(last);
    }

    /// The line from which on a user may repair the file, after reading it failed. A step that was being read
    /// is not handed over, so all of its snapshot may change; parts may have rows of it.
    fn repair_line(&self) -> Option<u64> {
        let at = self.reader.failed_at()?;
        let is_step_a_snapshot =
            matches!(&self.grouping, Grouping::Column { name, .. } if name == STEP_COLUMN);
        Some(if is_step_a_snapshot { at.snapshot } else { at.record })
    }

    fn read(&mut self, sender: &Sender) -> Result<Result<(), ReceiverGone>, Failure> {
        if self.grouping == Grouping::Parts
            && let Some(done) = self.done
        {
            let there = self.reader.skip(done)?;
            if there < done {
                return Err(Failure::Usage {
                    problem: format!("{} has {there} records, but {done} of it are in the table", self.file),
                    hint: "is it the same file? import it under another --run, or again with --restart"
                        .to_owned(),
                });
            }
        }
        while let Some(part) = self.reader.next(self.limits)? {
            self.skipped += super::tell_skipped(&self.file, &part) as u64;
            if self.take(part, sender)?.is_err() {
                return Ok(Err(ReceiverGone));
            }
        }
        self.hand_over(sender)
    }

    fn take(&mut self, part: Part, sender: &Sender) -> Result<Result<(), ReceiverGone>, Failure> {
        let Grouping::Column { place, .. } = self.grouping else {
            // Parts with nothing but bad records are not steps.
            if part.rows.num_rows() == 0 && !part.bad.is_empty() {
                return Ok(Ok(()));
            }
            return Ok(self.send(part.end, part.rows, sender));
        };
        let steps = self.steps(&part.rows, place)?;
        let mut start = 0;
        for run in steps.chunk_by(|left, right| left == right) {
            let (step, rows) = (run[0], part.rows.slice(start, run.len()));
            start += run.len();
            if self.done.is_some_and(|done| step <= done) && self.open.is_none() {
                self.pass(step, run.len() as u64)?;
                continue;
            }
            match &mut self.open {
                Some((open, batches, bytes)) if *open == step => {
                    *bytes += bytes_of(&rows);
                    batches.push(rows);
                    if *bytes > STEP_BYTES_MAX {
                        return Err(too_large(step));
                    }
                }
                _ => {
                    if self.hand_over(sender)?.is_err() {
                        return Ok(Err(ReceiverGone));
                    }
                    self.begin(step, rows)?;
                }
            }
        }
        Ok(Ok(()))
    }

    /// Begins a step with its first rows.
    fn begin(&mut self, step: u64, rows: RecordBatch) -> Result<(), Failure> {
        if let Some(before) = self.done.filter(|done| step <= *done) {
            return Err(self.falls(step, before));
        }
        let bytes = bytes_of(&rows);
        self.open = Some((step, vec![rows], bytes));
        Ok(())
    }

    /// Skips rows of a step that the table has.
    ///
    /// What the table does not have must not be skipped silently: steps out of order, and additional rows of
    /// the last step, which appear in a file that was still being written.
    fn pass(&mut self, step: u64, rows: u64) -> Result<(), Failure> {
        let before = match self.passed {
            Some((before, _)) if before > step => return Err(self.falls(step, before)),
            Some((before, rows)) if before == step => rows,
            _ => 0,
        };
        let passed = before.saturating_add(rows);
        self.passed = Some((step, passed));
        match &self.there {
            Some(ImportedRun { run, step: last, rows: Some(there) }) if *last == step && passed > *there => {
                Err(Failure::Run {
                    run: run.clone(),
                    problem: format!("has {there} rows of step {step}, but {} has more", self.file),
                    hint: "once the file is written to the end of a step, import it again with --restart"
                        .to_owned(),
                })
            }
            _ => Ok(()),
        }
    }

    fn falls(&self, step: u64, before: u64) -> Failure {
        Failure::Usage {
            problem: format!("{}: step {step} comes after step {before}", self.file),
            hint: "sort the file by step, or use parts of it as steps with --parts".to_owned(),
        }
    }

    /// Hands over the step being read.
    fn hand_over(&mut self, sender: &Sender) -> Result<Result<(), ReceiverGone>, Failure> {
        let Some((step, batches, _)) = self.open.take() else { return Ok(Ok(())) };
        let Some(first) = batches.first() else { return Ok(Ok(())) };
        let rows = concat_batches(&first.schema(), &batches).map_err(|error| Failure::Usage {
            problem: format!("the rows of step {step} do not fit together: {error}"),
            hint: "use parts of the file as steps with --parts".to_owned(),
        })?;
        self.done = Some(step);
        Ok(self.send(step, rows, sender))
    }

    fn send(&self, step: u64, rows: RecordBatch, sender: &Sender) -> Result<(), ReceiverGone> {
        let message = Message::Step { step, rows, bytes_read: self.reader.bytes_read() };
        sender.blocking_send(Ok(message)).map_err(|_| ReceiverGone)
    }

    /// The step of each row.
    fn steps(&self, rows: &RecordBatch, place: usize) -> Result<Vec<u64>, Failure> {
        let column = rows.column(place);
        let wrong = |problem: String| Failure::Usage {
            problem: format!("{}: {problem}", self.file),
            hint: "use parts of the file as steps with --parts".to_owned(),
        };
        if column.null_count() > 0 {
            return Err(wrong("a row has no step".to_owned()));
        }
        let steps =
            numbers(column.as_ref()).ok_or_else(|| wrong("its steps are not whole numbers".to_owned()))?;
        let checked = steps.into_iter().map(|step| {
            u64::try_from(step).map_err(|_| wrong(format!("steps are numbers from 0 on, but one is {step}")))
        });
        checked.collect()
    }
}

fn too_large(step: u64) -> Failure {
    Failure::Usage {
        problem: format!("the rows of step {step} take more than {} MiB", STEP_BYTES_MAX >> 20),
        hint: "use parts of the file as steps with --parts".to_owned(),
    }
}

/// The values of a column of whole numbers.
fn numbers(column: &dyn Array) -> Option<Vec<i128>> {
    macro_rules! of {
        ($($data_type:ident => $kind:ident),*) => {
            match column.data_type() {
                $(DataType::$data_type => {
                    let values = column.as_primitive::<$kind>().values().iter();
                    Some(values.map(|value| i128::from(*value)).collect())
                })*
                _ => None,
            }
        };
    }
    of!(
        Int8 => Int8Type, Int16 => Int16Type, Int32 => Int32Type, Int64 => Int64Type,
        UInt8 => UInt8Type, UInt16 => UInt16Type, UInt32 => UInt32Type, UInt64 => UInt64Type
    )
}
