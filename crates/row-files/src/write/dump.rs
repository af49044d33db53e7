//! LAMMPS text dumps: rows by step, each step a snapshot.
//!
//! The column `step` becomes the head of a snapshot, and so does a column `time` of floats. All others become
//! columns of `ITEM: ATOMS`; vectors become a column for each element, `pos[0]`.
//!
//! Invariant: every snapshot is whole, and no step has two.
//! Invariant: what is written is read back unchanged by [`crate::open`], apart from the order of the steps.

mod boxes;
mod layout;

pub use boxes::{AxisBounds, SnapshotBox, SnapshotBoxes};

use super::by_step::{Limits, StepSorter};
use super::cells::{flattened, formatter};
use super::scratch::Scratch;
use super::{RowWriter, Target, arrow_error, write_error};
use crate::RowFileError;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, SchemaRef};
use boxes::Spans;
use layout::Layout;
use std::fmt::Write as _;
use std::io::Write as _;

/// The bytes of text that are written at a time.
const TEXT_BYTES: usize = 256 << 10;

pub(super) struct DumpWriter {
    sorter: StepSorter,
    snapshots: Snapshots,
}

impl DumpWriter {
    /// Refuses columns that a dump cannot hold.
    pub(super) fn new(
        schema: &SchemaRef,
        target: Target,
        name: String,
        scratch: Scratch,
        boxes: SnapshotBoxes,
    ) -> Result<Self, RowFileError> {
        let layout = Layout::of(schema, &boxes)?;
        let sorter = StepSorter::new(SchemaRef::clone(schema), layout.step, scratch, Limits::default());
        Ok(Self { sorter, snapshots: Snapshots { target, name, layout, boxes, text: String::new() } })
    }
}

impl RowWriter for DumpWriter {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), RowFileError> {
        self.sorter.push(rows)
    }

    fn finish(self: Box<Self>) -> Result<Target, RowFileError> {
        let Self { sorter, mut snapshots } = *self;
        let by_step = sorter.finish()?;
        // The head of a snapshot says how many rows it has and how far they reach, so one reader is ahead by
        // a snapshot.
        let (mut ahead, mut rows) = (by_step.read()?, by_step.read()?);
        let mut next = ahead.next()?;
        if next.is_none() {
            snapshots.begin(&Survey::of(0, &snapshots.layout))?;
        }
        while let Some((step, first)) = next.take() {
            let mut survey = Survey::of(step, &snapshots.layout);
            survey.add(&first, &snapshots)?;
            next = ahead.next()?;
            while let Some((_, more)) = next.take_if(|(other, _)| *other == step) {
                survey.add(&more, &snapshots)?;
                next = ahead.next()?;
            }
            snapshots.begin(&survey)?;
            let mut left = survey.rows;
            while left > 0 {
                let Some((_, some)) = rows.next()? else { break };
                left = left.saturating_sub(some.num_rows() as u64);
                snapshots.write(step, &some)?;
            }
        }
        snapshots.hand_over()?;
        Ok(snapshots.target)
    }
}

/// What the head of a snapshot says, gathered from its rows.
struct Survey {
    step: i128,
    rows: u64,
    spans: Spans,
    /// The time of the first row, and its bits as a double.
    time: Option<(String, u64)>,
}

impl Survey {
    fn of(step: i128, layout: &Layout) -> Self {
        Self { step, rows: 0, spans: Spans::of(&layout.axes), time: None }
    }

    fn add(&mut self, rows: &RecordBatch, snapshots: &Snapshots) -> Result<(), RowFileError> {
        let arrow = |error| arrow_error(&snapshots.name, error);
        self.rows += rows.num_rows() as u64;
        self.spans.add(rows).map_err(arrow)?;
        let Some(place) = snapshots.layout.time else { return Ok(()) };
        let column = rows.column(place);
        check_present("time", column, self.step)?;
        let doubles = cast(column, &DataType::Float64).map_err(arrow)?;
        let doubles = layout::doubles(&doubles);
        let shown = |row: usize| -> Result<String, RowFileError> {
            let shown = formatter(column).map_err(arrow)?;
            Ok(shown.value(row).to_string())
        };
        if let (None, Some(first)) = (&self.time, doubles.first()) {
            self.time = Some((shown(0)?, first.to_bits()));
        }
        let Some((time, bits)) = &self.time else { return Ok(()) };
        match doubles.iter().position(|double| double.to_bits() != *bits) {
            None => Ok(()),
            Some(row) => Err(RowFileError::Unsupported {
                what: format!(
                    "the rows of step {} have two times, {time} and {}, and a snapshot of a LAMMPS dump has one",
                    self.step,
                    shown(row)?
                ),
                hint: "leave the column time out with --columns, or export each run by itself with --run",
            }),
        }
    }
}

/// The snapshots of a dump.
struct Snapshots {
    target: Target,
    name: String,
    layout: Layout,
    boxes: SnapshotBoxes,
    text: String,
}

impl Snapshots {
    /// Writes the head of a snapshot.
    fn begin(&mut self, survey: &Survey) -> Result<(), RowFileError> {
        let (step, rows) = (survey.step, survey.rows);
        // Writing into a text cannot fail.
        if let Some((time, _)) = &survey.time {
            let _ = writeln!(self.text, "ITEM: TIME\n{time}");
        } else if self.layout.time.is_some() {
            let _ = writeln!(self.text, "ITEM: TIME\n0");
        }
        let _ = writeln!(self.text, "ITEM: TIMESTEP\n{step}\nITEM: NUMBER OF ATOMS\n{rows}");
        self.boxes.of_step(step).write(&survey.spans, &mut self.text);
        let _ = writeln!(self.text, "ITEM: ATOMS {}", self.layout.names);
        Ok(())
    }

    /// Writes rows of the snapshot, one line for each.
    fn write(&mut self, step: i128, rows: &RecordBatch) -> Result<(), RowFileError> {
        let arrow = |error| arrow_error(&self.name, error);
        let atoms = rows.project(&self.layout.atoms).map_err(arrow)?;
        let mut columns = flattened(&atoms).map_err(arrow)?;
        for (name, column) in &mut columns {
            check_present(name, column, step)?;
            match column.data_type() {
                // Programs that read dumps know numbers, and we take 1 for true.
                DataType::Boolean => *column = cast(&*column, &DataType::UInt8).map_err(arrow)?,
                DataType::Utf8 => layout::check_texts(name, column, step)?,
                _ => {}
            }
        }
        let formatters = columns.iter().map(|(_, column)| formatter(column)).collect::<Result<Vec<_>, _>>();
        let formatters = formatters.map_err(arrow)?;
        for row in 0..rows.num_rows() {
            for (place, formatter) in formatters.iter().enumerate() {
                self.text.push_str(if place > 0 { " " } else { "" });
                formatter.value(row).write(&mut self.text).map_err(arrow)?;
            }
            self.text.push('\n');
            if self.text.len() >= TEXT_BYTES {
                hand_over(&mut self.text, &mut self.target, &self.name)?;
            }
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<(), RowFileError> {
        hand_over(&mut self.text, &mut self.target, &self.name)
    }
}

fn hand_over(text: &mut String, target: &mut Target, name: &str) -> Result<(), RowFileError> {
    let written = target.write_all(text.as_bytes());
    text.clear();
    written.map_err(|source| write_error(name, source))
}

/// Refuses a column without a value: a line of a dump has a value for each.
fn check_present(name: &str, column: &ArrayRef, step: i128) -> Result<(), RowFileError> {
    if column.null_count() == 0 {
        return Ok(());
    }
    Err(RowFileError::Unsupported {
        what: format!(
            "column \"{name}\" has no value in a row of step {step}, and a LAMMPS dump has no such value"
        ),
        hint: "leave such rows out with --where 'NAME is not null', or the column with --columns; Parquet, Arrow IPC \
               and CSV hold missing values",
    })
}
