//! `atoll table export`: writes rows to a file in the order of their weights, whatever the size of the table.

use super::TableArguments;
use super::create::SCHEMA_KEY;
use super::question::QuestionArguments;
use super::renames::{Renames, pairs_of, parse_renames};
use super::rows_out::{DumpArguments, OutputArguments, RowsOut};
use crate::progress::Progress;
use crate::row_format::{NAME_IT, RowFormat};
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use arrow_array::RecordBatch;
use atoll_tables::protocol::Version;
use atoll_tables::{Query, Table};
use clap::Args;
use serde_json::json;
use std::collections::HashMap;
use std::path::PathBuf;

/// `atoll table export`
#[derive(Args, Debug)]
pub struct Export {
    #[command(flatten)]
    table: TableArguments,
    /// File to write, whose ending selects the format; `-` is standard output
    file: PathBuf,
    #[command(flatten)]
    question: QuestionArguments,
    /// Give a column another name in the file; several separated by commas
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_renames, help_heading = "Output")]
    rename: Vec<Renames>,
    /// Write in any order: for tables that were not packed and are larger than memory
    #[arg(long, help_heading = "Output")]
    any_order: bool,
    /// Format; by default that of the file name's ending
    #[arg(long, help_heading = "Output")]
    format: Option<RowFormat>,
    /// Replace the file if it exists
    #[arg(long, help_heading = "Output")]
    force: bool,
    #[command(flatten)]
    dump: DumpArguments,
}

impl Export {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let output = OutputArguments::to_file(&self.file, self.format, self.force, self.dump)
            .renaming(pairs_of(&self.rename));
        if !output.has_file() && self.format.is_none() && !session.output.is_json() {
            return Err(Failure::Usage {
                problem: "standard output has no ending that tells the format".to_owned(),
                hint: NAME_IT.to_owned(),
            });
        }
        let table = self.table.open(session, Access::Read).await?;
        let mut query = self.question.query(&table).await?;
        let version = match query.as_of {
            Some(version) => version,
            None => table.version().await?,
        };
        query.as_of = Some(version);
        let plan = output.plan(session, &table, &query).await?;
        let order = if self.any_order { "none" } else { "weight, id" };
        let columns = table.query(&Query { limit: Some(0), ..query.clone() }).await?.rows.schema();
        let mut metadata = metadata(&table, version, order);
        if !self.rename.is_empty() {
            // The roles in it are those of columns that the file does not have.
            metadata.remove(SCHEMA_KEY);
        }
        let out = output.open(plan, &columns, metadata)?;
        let progress = Progress::count(output.has_file() && !session.output.is_json());
        let mut sheet = ExportRun { session, out, rows: 0, progress };
        if self.any_order {
            let mut batches = table.batches(&query);
            while let Some(batch) = batches.next().await? {
                sheet.write(&batch).await?;
            }
        } else {
            let mut refinement = table.refine(&query);
            while let Some(refined) = refinement.next().await? {
                sheet.write(&refined.rows).await?;
            }
        }
        let rows = sheet.finish().await?;
        if !output.has_file() {
            return Ok(());
        }
        session.output.either(
            || format!("exported {} of version {version}", counted(rows, "row")),
            || json!({ "rows": rows, "version": version.0 }),
        )
    }
}

/// An export under way.
struct ExportRun<'a> {
    session: &'a Session,
    out: RowsOut,
    rows: u64,
    progress: Progress,
}

impl ExportRun<'_> {
    async fn write(&mut self, rows: &RecordBatch) -> Result<(), Failure> {
        self.out.write(self.session, rows).await?;
        self.rows += rows.num_rows() as u64;
        self.progress.set(self.rows, String::new());
        // A store in memory never makes this task wait, so it yields to let an interruption in.
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn finish(self) -> Result<u64, Failure> {
        self.out.finish().await?;
        Ok(self.rows)
    }
}

/// The metadata by which a file names the table that it comes from.
pub(super) fn metadata(table: &Table, version: Version, order: &str) -> HashMap<String, String> {
    HashMap::from([
        ("atoll.table".to_owned(), table.name().to_owned()),
        ("atoll.version".to_owned(), version.to_string()),
        ("atoll.order".to_owned(), order.to_owned()),
        (SCHEMA_KEY.to_owned(), table.schema().to_json()),
    ])
}
