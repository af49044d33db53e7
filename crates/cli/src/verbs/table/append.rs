//! `atoll table append`: the rows of a file as one step of a run.

use super::TableArguments;
use super::import::{FileOptions, tell_skipped};
use crate::row_format::format_of;
use crate::session::Access;
use crate::{Failure, Session};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use atoll_row_files::{Input, PartLimits, RowFileError, open};
use atoll_tables::protocol::BlockId;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// `atoll table append`
#[derive(Args, Debug)]
pub struct Append {
    #[command(flatten)]
    table: TableArguments,
    /// File with the rows; `-` is standard input
    file: PathBuf,
    /// The run that the step belongs to
    #[arg(long, value_name = "NAME")]
    run: String,
    /// The step; steps of a run rise. By default the one after the last
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// The time of the step
    #[arg(long, value_name = "TIME", allow_negative_numbers = true)]
    time: Option<f64>,
    /// Which of the ranks this file comes from
    #[arg(long, value_name = "N", default_value_t = 0, requires = "attempt")]
    rank: u32,
    /// How many ranks write each step, which is visible when all have
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranks: u32,
    /// Which start of the run this is; by default the one that is under way
    #[arg(long, value_name = "N", requires = "step")]
    attempt: Option<u64>,
    #[command(flatten)]
    file_options: FileOptions,
}

impl Append {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Change).await?;
        let (rows, skipped) = self.rows(&SchemaRef::clone(table.schema().columns())).await?;
        let known = table.runs().await?.into_iter().find(|summary| summary.name == self.run);
        let after_last = known.as_ref().and_then(|known| known.last_complete).map_or(0, |last| last + 1);
        let attempt = match (self.attempt, known) {
            (Some(attempt), _) => {
                table.begin(&self.run, attempt, self.ranks).await?;
                attempt
            }
            (None, Some(known)) if known.ranks == self.ranks => known.attempt,
            (None, _) => table.begin_next(&self.run, self.ranks).await?,
        };
        let step = self.step.unwrap_or(after_last);
        let id = BlockId { run: self.run.as_str().into(), attempt, step, rank: self.rank };
        let version = table.append_at(id, self.time, &rows).await?;
        table.close().await?;
        let count = rows.num_rows();
        session.output.either(
            || {
                let without =
                    if skipped == 0 { String::new() } else { format!(", without {skipped} bad records") };
                format!(
                    "appended {count} rows{without} as step {step} of run {}: version {version}",
                    self.run
                )
            },
            || {
                json!({
                    "run": self.run, "attempt": attempt, "step": step, "rows": count, "skipped": skipped,
                    "version": version.0,
                })
            },
        )
    }

    /// All rows of the file, as a step is one object, and how many bad records were passed over.
    async fn rows(&self, columns: &SchemaRef) -> Result<(RecordBatch, usize), Failure> {
        let input =
            if self.file == Path::new("-") { Input::Standard } else { Input::File(self.file.clone()) };
        let format = format_of(self.file_options.format, &self.file)?;
        let (columns, options) = (SchemaRef::clone(columns), self.file_options.read_options());
        // On a thread of its own, so that an interruption is heard while nothing comes in.
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = open(&input, format, &columns, &options)?;
            let mut skipped = 0;
            let mut parts = vec![RecordBatch::new_empty(SchemaRef::clone(&columns))];
            while let Some(part) = reader.next(PartLimits { rows: 1 << 20, bytes: 64 << 20 })? {
                skipped += tell_skipped(&input.name(), &part);
                parts.push(part.rows);
            }
            let rows = concat_batches(&columns, &parts).map_err(|error| RowFileError::Value {
                file: input.name(),
                column: columns.field(0).name().clone(),
                problem: error.to_string(),
            })?;
            Ok::<_, RowFileError>((rows, skipped))
        });
        match read.await {
            Ok(rows) => Ok(rows?),
            Err(_) => Err(Failure::Interrupted { exit: 130, hint: None }),
        }
    }
}
