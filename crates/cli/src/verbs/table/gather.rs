//! `atoll table gather`: the rows of the same table in several stores, in one table.
//!
//! Each store becomes a run of the table, and parts of it are the steps, each numbered by the rows up to its end.
//!
//! Invariant: how far it came is what the table itself says, so that a kill at any moment, and a second call, double
//! nothing and lose nothing; a store is read at the version that it had when it was first gathered.

use super::TableArguments;
use crate::output::note;
use crate::progress::Progress;
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use arrow_array::RecordBatch;
use atoll_row_files::rows_within;
use atoll_store::Store;
use atoll_tables::protocol::{BlockId, Version};
use atoll_tables::{AttributesOf, Query, Table, TableError};
use clap::Args;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Most rows of a step.
const STEP_ROWS: usize = 64 << 10;

/// Most bytes of a step of more than one row; they still fit into an object.
const STEP_BYTES: usize = 32 << 20;

/// The attribute of a run that tells which version of the store it is.
const VERSION: &str = "gather.version";

/// `atoll table gather`
#[derive(Args, Debug)]
pub struct Gather {
    #[command(flatten)]
    table: TableArguments,
    /// A store that has the table; several may be named
    #[arg(long = "from", value_name = "URL", required = true)]
    stores: Vec<String>,
    /// The name of the table in those stores, if it is another one
    #[arg(long, value_name = "NAME")]
    source_table: Option<String>,
}

/// What was gathered from one store.
struct Gathered {
    rows: u64,
    before: u64,
    version: Version,
    /// The version that the store has by now.
    now: Version,
}

impl Gather {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let runs = self.runs()?;
        let store = session.store(Access::Create).await?;
        for (url, run) in self.stores.iter().zip(&runs) {
            let source = self.source(session, url).await?;
            let table = self.target(&store, &source, url).await?;
            let gathered = gather(session, &table, &source, run).await?;
            table.close().await?;
            session.output.either(
                || {
                    let Gathered { rows, before, version, .. } = &gathered;
                    let text = format!(
                        "gathered {} of version {version} of {url} as run {run}",
                        counted(rows, "row")
                    );
                    if *before > 0 { format!("{text}; {before} were there before") } else { text }
                },
                || {
                    json!({
                        "store": url,
                        "run": run,
                        "rows": gathered.rows,
                        "rows_before": gathered.before,
                        "version": gathered.version.0,
                        "version_there": gathered.now.0,
                    })
                },
            )?;
            if gathered.now > gathered.version && !session.output.is_json() {
                let Gathered { version, now, .. } = gathered;
                note(&format!(
                    "{url} is at version {now} by now: what came since version {version} is not gathered, as a store is \
                     gathered once; into a table of another name all of it can be"
                ));
            }
        }
        Ok(())
    }

    /// A run for each store, named after its folder.
    fn runs(&self) -> Result<Vec<String>, Failure> {
        let name = |url: &String| {
            let path = url.strip_prefix("file:").unwrap_or(url).split('?').next().unwrap_or_default();
            let folder = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
            folder.unwrap_or_else(|| url.clone())
        };
        let names: Vec<String> = self.stores.iter().map(name).collect();
        let twice = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name));
        match twice {
            None => Ok(names),
            Some((_, name)) => Err(Failure::Usage {
                problem: format!(
                    "two of the stores are called \"{name}\", and each becomes a run of that name"
                ),
                hint: "gather them from folders with names of their own".to_owned(),
            }),
        }
    }

    async fn source(&self, session: &Session, url: &str) -> Result<Table, Failure> {
        let opened = session.open_url(url, Access::Read).await?;
        let name = self.source_table.as_ref().unwrap_or(&self.table.table);
        TableArguments { table: name.clone() }.open_in(&opened.store).await
    }

    /// The table that is gathered into; one that is not there is made like the first.
    async fn target(&self, store: &Arc<dyn Store>, source: &Table, url: &str) -> Result<Table, Failure> {
        let schema = source.schema().as_ref().clone();
        match Table::create(Arc::clone(store), &self.table.table, schema).await {
            Err(TableError::Exists { name, differs }) => Err(Failure::Usage {
                problem: format!("table {name:?} has another schema than in {url}: {differs}"),
                hint: "tables that are gathered have one schema: `atoll table info TABLE --schema` shows it"
                    .to_owned(),
            }),
            created => Ok(created?),
        }
    }
}

async fn gather(session: &Session, table: &Table, source: &Table, run: &str) -> Result<Gathered, Failure> {
    let known = table.run_attributes(run).await?;
    let version = match known.get(VERSION).and_then(|version| version.parse().ok()) {
        Some(version) => Version(version),
        None => source.version().await?,
    };
    let there = table.runs().await?.into_iter().find(|summary| summary.name == run);
    if there.is_some() && !known.contains_key(VERSION) {
        return Err(Failure::Run {
            run: run.to_owned(),
            problem: "was not gathered from another store".to_owned(),
            hint: "rename the folder of the store: each becomes a run of its name".to_owned(),
        });
    }
    let changes = [(VERSION.to_owned(), Some(version.to_string().into()))].into();
    table.note(AttributesOf::Run(run), &changes).await?;
    let before = there.and_then(|there| there.last_complete).unwrap_or(0);
    session.hint_on_interrupt("what was gathered so far is in; the same command goes on from there");
    let attempt = table.begin_next(run, 1).await?;
    let progress = Progress::count(!session.output.is_json());
    let mut refinement = source.refine(&Query { as_of: Some(version), ..Query::default() });
    let mut rows = 0;
    while let Some(refined) = refinement.next().await? {
        let skipped = before.saturating_sub(rows).min(refined.rows.num_rows() as u64);
        rows += skipped;
        for part in parts(&refined.rows, skipped as usize) {
            rows += part.num_rows() as u64;
            let id = BlockId { run: run.into(), attempt, step: rows, rank: 0 };
            table.append(id, &part).await?;
            progress.set(rows, String::new());
        }
        // A store in memory never makes this task wait; whoever wants to stop it still gets a turn.
        tokio::task::yield_now().await;
    }
    let now = source.version().await?;
    Ok(Gathered { rows: rows.saturating_sub(before), before, version, now })
}

/// The rows from one on, in parts that fit into an object.
fn parts(rows: &RecordBatch, mut from: usize) -> impl Iterator<Item = RecordBatch> {
    std::iter::from_fn(move || {
        let left = rows.num_rows().saturating_sub(from);
        let most = rows.slice(rows.num_rows() - left, left.min(STEP_ROWS));
        let part = most.slice(0, rows_within(&most, STEP_BYTES));
        from += part.num_rows();
        (part.num_rows() > 0).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, StringArray};
    use std::sync::Arc;

    #[test]
    fn rows_with_long_texts_are_gathered_in_parts_that_fit() {
        let text = "x".repeat(2 << 10);
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..40_000).map(|_| &text)));
        let rows = RecordBatch::try_from_iter([("text", texts)]).unwrap();
        let parts: Vec<usize> = parts(&rows, 1000).map(|part| part.num_rows()).collect();
        assert_eq!(parts.iter().sum::<usize>(), 39_000);
        assert!(parts.iter().all(|rows| rows * text.len() <= STEP_BYTES), "{parts:?}");
    }
}
