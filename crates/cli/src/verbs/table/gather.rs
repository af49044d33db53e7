//! `atoll table gather`: collects the rows of the same table in several stores into one table.
//!
//! Each store becomes a run of the table. Its steps are parts of the store, each numbered by the count of
//! rows up to its end.
//!
//! Invariant: the table itself records how far the gather came, so a kill at any moment and a second call
//! duplicate nothing and lose nothing. A store is read at the version that it had when it was first gathered.
//! Invariant: a run that another writer appended to is never continued, because its steps do not tell how far
//! the gather came.
//! Invariant: a run that was gathered from one table is never continued from another one, whatever their
//! stores are called. A copy of a store counts as that store: its tables have the same identities.

mod origin;
mod target_run;
#[cfg(test)]
mod tests;

use super::TableArguments;
use crate::output::note;
use crate::progress::Progress;
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use arrow_array::RecordBatch;
use atoll_row_files::rows_within;
use atoll_store::Store;
use atoll_tables::protocol::Version;
use atoll_tables::{Query, Table, TableError, TableSchema};
use clap::Args;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use target_run::TargetRun;
pub(super) use target_run::is_being_gathered;

/// Most rows of a step.
const STEP_ROWS: usize = 64 << 10;

/// Most bytes of a step with more than one row; such a step fits into an object.
const STEP_BYTES: usize = 32 << 20;

/// `atoll table gather`
#[derive(Args, Debug)]
pub struct Gather {
    #[command(flatten)]
    table: TableArguments,
    /// Store that has the table; may be repeated
    #[arg(long = "from", value_name = "URL", required = true)]
    stores: Vec<String>,
    /// Name of the run, by default the name of the store's folder; one for each --from, in their order
    #[arg(long = "run", value_name = "NAME")]
    names: Vec<String>,
    /// Name of the table in those stores, if it differs
    #[arg(long, value_name = "NAME")]
    source_table: Option<String>,
}

/// The result of gathering one store.
struct Gathered {
    rows: u64,
    before: u64,
    version: Version,
    /// The version of the store at the end.
    now: Version,
}

impl Gather {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let runs = self.runs()?;
        let store = session.store(Access::Create).await?;
        for (url, run) in self.stores.iter().zip(&runs) {
            let source = self.source(session, url).await?;
            let table = self.target(&store, &source, (url, run)).await?;
            let mut seen = TargetRun::of(&table, &source, run).await?;
            seen.check_version(&source).await?;
            if seen.whole().is_none() {
                let schema = seen.columns(&source).await?;
                // The table may have got columns since, which the recorded version lacks.
                if !table.takes_rows_of(&schema) {
                    self.table_for(&store, &schema, url).await?;
                }
            }
            let gathered = gather(session, &table, &source, seen).await?;
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
                    "{url} is now at version {now}: what came after version {version} is not gathered, because a store \
                     is gathered only once; a table of another name can gather all of it"
                ));
            }
        }
        Ok(())
    }

    /// One run per store, named after its folder unless --run names it.
    fn runs(&self) -> Result<Vec<String>, Failure> {
        if !self.names.is_empty() && self.names.len() != self.stores.len() {
            let (names, stores) = (counted(self.names.len(), "name"), counted(self.stores.len(), "store"));
            return Err(Failure::Usage {
                problem: format!("{names} for {stores}"),
                hint: "give --run once for each --from, in the same order, or not at all".to_owned(),
            });
        }
        let name = |url: &String| {
            let path = url.strip_prefix("file:").unwrap_or(url).split('?').next().unwrap_or_default();
            let folder = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
            folder.unwrap_or_else(|| url.clone())
        };
        let names: Vec<String> = match self.names.is_empty() {
            true => self.stores.iter().map(name).collect(),
            false => self.names.clone(),
        };
        let twice = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name));
        match twice {
            None => Ok(names),
            Some((_, name)) => Err(Failure::Usage {
                problem: format!(
                    "two of the stores are called \"{name}\", and each becomes a run of that name"
                ),
                hint: "name the runs with --run, once for each --from".to_owned(),
            }),
        }
    }

    /// The name of the table in the stores.
    fn source_name(&self) -> &str {
        self.source_table.as_ref().unwrap_or(&self.table.table)
    }

    async fn source(&self, session: &Session, url: &str) -> Result<Table, Failure> {
        let opened = session.open_url(url, Access::Read).await?;
        TableArguments { table: self.source_name().to_owned() }.open_in(&opened.store).await
    }

    /// The target table; if it does not exist, it is created with the schema of the first source.
    async fn target(
        &self,
        store: &Arc<dyn Store>,
        source: &Table,
        (url, run): (&str, &str),
    ) -> Result<Table, Failure> {
        match Table::open(Arc::clone(store), &self.table.table).await {
            // The recorded version decides which columns the table needs, not the newest one.
            Ok(table) if table.run_attributes(run).await?.contains_key(target_run::VERSION_ATTRIBUTE) => {
                Ok(table)
            }
            Ok(_) | Err(TableError::NotFound { .. }) => self.table_for(store, &source.schema(), url).await,
            Err(error) => Err(error.into()),
        }
    }

    /// The target table, if it takes rows with these columns of a store; it is created if it does not exist.
    async fn table_for(
        &self,
        store: &Arc<dyn Store>,
        schema: &TableSchema,
        url: &str,
    ) -> Result<Table, Failure> {
        match Table::create_for_rows(Arc::clone(store), &self.table.table, schema.clone()).await {
            Err(TableError::Exists { name, differs }) => Err(Failure::Usage {
                problem: format!("table {name:?} has another schema than in {url}: {differs}"),
                hint: "tables that are gathered have one schema: `atoll table info TABLE --schema` shows it"
                    .to_owned(),
            }),
            table => Ok(table?),
        }
    }
}

async fn gather(
    session: &Session,
    table: &Table,
    source: &Table,
    seen: TargetRun,
) -> Result<Gathered, Failure> {
    let version = seen.version;
    if let Some(before) = seen.whole() {
        return Ok(Gathered { rows: 0, before, version, now: source.version().await? });
    }
    let before = seen.before()?;
    session.hint_on_interrupt("what was gathered so far is kept; the same command continues from there");
    let attempt = seen.begin(table).await?;
    let progress = Progress::count(!session.output.is_json());
    let mut refinement = source.refine(&Query { as_of: Some(version), ..Query::default() });
    let mut rows = 0;
    while let Some(refined) = refinement.next().await.map_err(|error| seen.failure_of(error))? {
        let skipped = before.saturating_sub(rows).min(refined.rows.num_rows() as u64);
        rows += skipped;
        for part in parts(&refined.rows, skipped as usize) {
            rows += part.num_rows() as u64;
            seen.append(table, attempt, rows, &part).await?;
            progress.set(rows, String::new());
        }
        // A store in memory never makes this task wait, so it yields to let an interruption in.
        tokio::task::yield_now().await;
    }
    seen.close(table, source, rows).await?;
    let now = source.version().await?;
    Ok(Gathered { rows: rows.saturating_sub(before), before, version, now })
}

/// The rows starting at `from`, in parts that fit into an object.
fn parts(rows: &RecordBatch, mut from: usize) -> impl Iterator<Item = RecordBatch> {
    std::iter::from_fn(move || {
        let left = rows.num_rows().saturating_sub(from);
        let most = rows.slice(rows.num_rows() - left, left.min(STEP_ROWS));
        let part = most.slice(0, rows_within(&most, STEP_BYTES));
        from += part.num_rows();
        (part.num_rows() > 0).then_some(part)
    })
}
