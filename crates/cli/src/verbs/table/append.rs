//! `atoll table append`: appends the rows of a file as one step of a run.

use super::TableArguments;
use super::gather::is_being_gathered;
use super::import::{FileOptions, is_attempt_of_import, reader_lost, tell_skipped};
use crate::compressed::ReadingVerb;
use crate::row_format::format_of;
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use atoll_row_files::{Input, PartLimits, RowFileError, RowReader, bytes_of, open};
use atoll_tables::protocol::{BlockId, EditError, Version};
use atoll_tables::{RunSummary, STEP_COLUMN, Table, TableError, other_step};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// How often other writers may take a run over, one after the other, before the append gives up.
const TAKEN_OVER_MAX: usize = 20;

/// How many times the size of an object the rows of a file may take in memory. An object has the value of a
/// column that is alike in all rows only once, so that more rows may fit than its size suggests.
const READ_OBJECTS_MAX: u64 = 4;

/// `atoll table append`
#[derive(Args, Debug)]
pub struct Append {
    #[command(flatten)]
    table: TableArguments,
    /// File with the rows; `-` is standard input
    file: PathBuf,
    /// Run that the step belongs to
    #[arg(long, value_name = "NAME")]
    run: String,
    /// Number of the step, which must be higher than those before; by default the next one, for a single rank
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    step: Option<u64>,
    /// Time of the step
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    time: Option<f64>,
    /// Rank that this file comes from
    #[arg(long, value_name = "N", default_value_t = 0, requires = "attempt")]
    rank: u32,
    /// Number of ranks that write each step; a step is visible once all of them have
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranks: u32,
    /// Which start of the run this is; by default the one under way
    #[arg(long, value_name = "N", requires = "step")]
    attempt: Option<u64>,
    #[command(flatten)]
    file_options: FileOptions,
}

/// The result of an append.
struct Appended {
    step: u64,
    version: Version,
    /// Whether the block was new to the table.
    is_new: bool,
}

impl Append {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        if self.ranks > 1 && self.step.is_none() {
            return Err(Failure::Usage {
                problem: "with several ranks, each must name the step that it writes".to_owned(),
                hint: "add --step N, the same for every rank, and --attempt N --rank N for the ranks after 0"
                    .to_owned(),
            });
        }
        let table = self.table.open(session, Access::Change).await?;
        let (rows, skipped) = self.rows(&table).await?;
        let (attempt, appended) = self.append(&table, &rows).await?;
        table.close().await?;
        if appended.is_new {
            tell_other_step(&rows, appended.step);
        }
        self.tell(session, attempt, rows.num_rows(), skipped, &appended)
    }

    /// Appends the rows, and returns the attempt.
    async fn append(&self, table: &Table, rows: &RecordBatch) -> Result<(u64, Appended), Failure> {
        for _ in 0..TAKEN_OVER_MAX {
            let known = table.runs().await?.into_iter().find(|summary| summary.name == self.run);
            let begins = self.begins(table, known.as_ref()).await?;
            if let Some(there) = self.existing_step(table, known.as_ref(), begins).await? {
                return Ok(there);
            }
            // If another writer began the run meanwhile, its attempt is joined.
            let Some(attempt) = self.attempt(table, known.as_ref(), begins).await? else { continue };
            let appended = match self.step {
                Some(step) => self.append_as(table, attempt, step, rows).await,
                None => self.append_next(table, attempt, rows).await,
            };
            match appended {
                Err(TableError::Edit(EditError::StaleAttempt { .. })) if self.attempt.is_none() => {}
                appended => return Ok((attempt, appended?)),
            }
        }
        Err(Failure::Run {
            run: self.run.clone(),
            problem: "is restarted by other writers again and again".to_owned(),
            hint: "nothing was appended: check who writes to it, then try again".to_owned(),
        })
    }

    /// Whether the rows must start an attempt of their own. Imports and gathers take all rows of their
    /// attempt for theirs.
    async fn begins(&self, table: &Table, known: Option<&RunSummary>) -> Result<bool, Failure> {
        match known.filter(|known| known.ranks == self.ranks) {
            Some(known) => {
                Ok(is_attempt_of_import(table, known).await? || is_being_gathered(table, &known.name).await?)
            }
            None => Ok(true),
        }
    }

    /// The attempt that was named, the one under way, or the next one. None if the run changed since it was
    /// looked at.
    async fn attempt(
        &self,
        table: &Table,
        known: Option<&RunSummary>,
        begins: bool,
    ) -> Result<Option<u64>, TableError> {
        if let Some(attempt) = self.attempt {
            table.begin(&self.run, attempt, self.ranks).await?;
            return Ok(Some(attempt));
        }
        match known.filter(|_| !begins) {
            Some(known) => Ok(Some(known.attempt)),
            None => table.begin_after(&self.run, known, self.ranks).await,
        }
    }

    /// The step, if the run has it from an attempt earlier than the one that the rows belong to; with the
    /// attempt under way. The first step of an attempt replaces all steps from it on, which only a caller who
    /// names the attempt can mean.
    async fn existing_step(
        &self,
        table: &Table,
        known: Option<&RunSummary>,
        begins: bool,
    ) -> Result<Option<(u64, Appended)>, Failure> {
        // With several ranks, others may have begun the step in this attempt, which all of them have to name.
        let is_asked = self.attempt.is_none() && self.ranks == 1;
        let (Some(step), Some(known)) = (self.step.filter(|_| is_asked), known) else { return Ok(None) };
        let is_first = begins || known.published.is_none();
        let Some(last) = known.last_complete.filter(|last| is_first && step <= *last) else {
            return Ok(None);
        };
        if table.steps(Some(&self.run)).await?.iter().any(|there| there.step == step) {
            let there = Appended { step, version: table.version().await?, is_new: false };
            return Ok(Some((known.attempt, there)));
        }
        Err(Failure::Run {
            run: self.run.clone(),
            problem: format!("has steps up to {last}, and step {step} would replace later ones"),
            hint: "steps of a run rise: choose a later one, or name a new --attempt to begin again from this one"
                .to_owned(),
        })
    }

    /// Appends the rows as the step after the last one.
    async fn append_next(
        &self,
        table: &Table,
        attempt: u64,
        rows: &RecordBatch,
    ) -> Result<Appended, TableError> {
        let writer = (self.run.as_str().into(), attempt, self.rank);
        let (step, version) = table.append_next(writer, 0, self.time, rows).await?;
        Ok(Appended { step, version, is_new: true })
    }

    /// Appends the rows as a named step. Repeating that is harmless, so a retry is too.
    async fn append_as(
        &self,
        table: &Table,
        attempt: u64,
        step: u64,
        rows: &RecordBatch,
    ) -> Result<Appended, TableError> {
        let id = BlockId { run: self.run.as_str().into(), attempt, step, rank: self.rank };
        let made = table.append_new(id, self.time, rows).await?;
        let version = match made {
            Some(version) => version,
            None => table.version().await?,
        };
        Ok(Appended { step, version, is_new: made.is_some() })
    }

    fn tell(
        &self,
        session: &Session,
        attempt: u64,
        rows: usize,
        skipped: usize,
        appended: &Appended,
    ) -> Result<(), Failure> {
        let (run, Appended { step, version, is_new }) = (&self.run, appended);
        session.output.either(
            || {
                if !is_new {
                    return format!(
                        "step {step} of run {run} was there already, and nothing was appended: version {version}"
                    );
                }
                let without =
                    if skipped == 0 { String::new() } else { format!(", without {}", counted(skipped, "bad record")) };
                format!(
                    "appended {}{without} as step {step} of run {run}: version {version}",
                    counted(rows, "row")
                )
            },
            || {
                json!({
                    "run": run, "attempt": attempt, "step": step, "rows": if *is_new { rows } else { 0 },
                    "skipped": skipped, "version": version.0, "already_there": !is_new,
                })
            },
        )
    }

    /// All rows of the file, since a step is one object, and how many bad records were skipped.
    async fn rows(&self, table: &Table) -> Result<(RecordBatch, usize), Failure> {
        let input =
            if self.file == Path::new("-") { Input::Standard } else { Input::File(self.file.clone()) };
        let file = input.name();
        let format = format_of(self.file_options.format, &self.file, ReadingVerb::Append)?;
        let columns = SchemaRef::clone(table.schema().columns());
        let (options, object_bytes) = (self.file_options.read_options(), table.block_bytes_max());
        // On a thread of its own, so that an interruption is noticed while no input arrives.
        let read = tokio::task::spawn_blocking(move || {
            let failure = |error| ReadingVerb::Append.failure(error);
            let mut reader = open(&input, format, &columns, &options).map_err(failure)?;
            let (parts, skipped) = gathered(&mut *reader, &input.name(), object_bytes)?;
            let parts = [vec![RecordBatch::new_empty(SchemaRef::clone(&columns))], parts].concat();
            let rows = concat_batches(&columns, &parts).map_err(|error| RowFileError::Value {
                file: input.name(),
                column: columns.field(0).name().clone(),
                problem: error.to_string(),
            });
            Ok::<_, Failure>((rows.map_err(failure)?, skipped))
        });
        match read.await {
            Ok(rows) => rows,
            Err(lost) => Err(reader_lost(&lost, file)),
        }
    }
}

/// Warns of rows whose step column names another step than the one that they were appended as: queries find
/// them under the step of the column.
fn tell_other_step(rows: &RecordBatch, step: u64) {
    if let Some(said) = other_step(rows, step) {
        crate::output::note(&format!(
            "the rows are appended as step {step}, but one of them has {said} in its column \"{STEP_COLUMN}\": queries on \
             that column find it there"
        ));
    }
}

/// The parts of a file, and how many bad records were skipped. Fails once it is clear that they do not fit
/// into an object of this size, so that memory does not grow with the file.
fn gathered(
    reader: &mut dyn RowReader,
    file: &str,
    object_bytes: u64,
) -> Result<(Vec<RecordBatch>, usize), Failure> {
    let limits = PartLimits { rows: 1 << 20, bytes: 64 << 20 };
    let (mut parts, mut skipped, mut bytes) = (Vec::new(), 0, 0_u64);
    while let Some(part) = reader.next(limits).map_err(|error| ReadingVerb::Append.failure(error))? {
        skipped += tell_skipped(file, &part);
        bytes = bytes.saturating_add(bytes_of(&part.rows) as u64);
        if bytes > object_bytes.saturating_mul(READ_OBJECTS_MAX) {
            return Err(TableError::TooLarge { bytes, max: object_bytes }.into());
        }
        parts.push(part.rows);
    }
    Ok((parts, skipped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};
    use atoll_errors::ErrorKind;
    use atoll_row_files::Part;
    use std::sync::Arc;

    /// A file of this many parts of 800 bytes.
    struct Parts(u64);

    impl RowReader for Parts {
        fn next(&mut self, _: PartLimits) -> Result<Option<Part>, RowFileError> {
            let Some(left) = self.0.checked_sub(1) else { return Ok(None) };
            self.0 = left;
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
            let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
            Ok(Some(Part { rows, end: 0, bad: Vec::new() }))
        }

        fn skip(&mut self, _: u64) -> Result<u64, RowFileError> {
            Ok(0)
        }

        fn bytes_read(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_file_that_fits_into_no_step_is_not_read_to_its_end() {
        let mut endless = Parts(u64::MAX);
        let failure = gathered(&mut endless, "a.csv", 8000).unwrap_err();
        assert_eq!(failure.kind(), Some(ErrorKind::Limit), "{failure}");
        assert!(failure.hint().is_some_and(|hint| hint.contains("import with --parts")));
        assert_eq!(u64::MAX - endless.0, 41, "parts were read");
        // Columns of one value take next to nothing in an object.
        let (parts, skipped) = gathered(&mut Parts(40), "a.csv", 8000).unwrap();
        assert_eq!((parts.len(), skipped), (40, 0));
    }
}
