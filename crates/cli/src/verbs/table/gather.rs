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

use super::TableArguments;
use crate::output::note;
use crate::progress::Progress;
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use arrow_array::RecordBatch;
use arrow_schema::FieldRef;
use atoll_row_files::rows_within;
use atoll_store::Store;
use atoll_tables::protocol::{BlockId, EditError, Version};
use atoll_tables::{AttributesOf, Query, RunSummary, Table, TableError, TableSchema, is_same_column};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Most rows of a step.
const STEP_ROWS: usize = 64 << 10;

/// Most bytes of a step with more than one row; such a step fits into an object.
const STEP_BYTES: usize = 32 << 20;

/// The attribute of a run that holds the version of the gathered store.
const VERSION_ATTRIBUTE: &str = "gather.version";

/// The attribute of a run that tells which table it was gathered from; runs that an older program began lack
/// it.
const SOURCE_ATTRIBUTE: &str = "gather.source";

/// The attribute that holds the row count of the store, once all rows have been gathered.
const ROWS_ATTRIBUTE: &str = "gather.rows";

/// Prefix of the attributes that name the attempts in which the store is gathered.
const ATTEMPT_ATTRIBUTE_PREFIX: &str = "gather.attempt.";

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
                if !begins_with(&table.schema(), &schema) {
                    self.table_like(&store, &schema, url).await?;
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
            Ok(table) if table.run_attributes(run).await?.contains_key(VERSION_ATTRIBUTE) => Ok(table),
            Ok(_) | Err(TableError::NotFound { .. }) => self.table_like(store, &source.schema(), url).await,
            Err(error) => Err(error.into()),
        }
    }

    /// The target table, if it has these columns of a store; it is created if it does not exist.
    async fn table_like(
        &self,
        store: &Arc<dyn Store>,
        schema: &TableSchema,
        url: &str,
    ) -> Result<Table, Failure> {
        match Table::create(Arc::clone(store), &self.table.table, schema.clone()).await {
            Err(TableError::Exists { name, differs }) => {
                let table = Table::open(Arc::clone(store), &name).await?;
                let there = table.schema();
                let count = |schema: &TableSchema| schema.columns().fields().len();
                // What is noted on a column may differ, such as its description.
                if begins_with(&there, schema) && count(&there) == count(schema) {
                    return Ok(table);
                }
                Err(Failure::Usage {
                    problem: format!("table {name:?} has another schema than in {url}: {differs}"),
                    hint:
                        "tables that are gathered have one schema: `atoll table info TABLE --schema` shows it"
                            .to_owned(),
                })
            }
            created => Ok(created?),
        }
    }
}

/// Whether a table has the columns and roles of another schema, and perhaps more columns behind them.
fn begins_with(table: &TableSchema, schema: &TableSchema) -> bool {
    let (columns, wanted) = (table.columns().fields(), schema.columns().fields());
    let is_alike = table.roles() == schema.roles() && table.has_unique_ids() == schema.has_unique_ids();
    let is_same = |(one, other): (&FieldRef, &FieldRef)| is_same_column(one, other);
    is_alike && columns.len() >= wanted.len() && columns.iter().zip(wanted).all(is_same)
}

/// A run of the table, as it was before gathering into it.
struct TargetRun {
    run: String,
    /// Which table is gathered, as [`origin::of`] tells it.
    origin: String,
    there: Option<RunSummary>,
    /// The version of the store that the run holds, whichever process began to gather it.
    version: Version,
    /// The row count of the store, once all rows were gathered.
    whole: Option<u64>,
    /// The attempts that wrote its steps.
    wrote: BTreeSet<u64>,
    /// The attempts that gathered the store; none are known of a run that an older program began.
    known: BTreeSet<u64>,
}

impl TargetRun {
    /// Looks at the run, and records which store is gathered, and its version, if none is recorded.
    async fn of(table: &Table, source: &Table, run: &str) -> Result<Self, Failure> {
        let origin = origin::of(source);
        // Read before the attributes: a process that begins the run after this is detected by comparing with
        // what was seen.
        let there = table.runs().await?.into_iter().find(|summary| summary.name == run);
        let mut known = table.run_attributes(run).await?;
        if !known.contains_key(VERSION_ATTRIBUTE) && there.is_none() {
            let version = Value::String(source.version().await?.to_string());
            let marks = [(VERSION_ATTRIBUTE, version), (SOURCE_ATTRIBUTE, Value::String(origin.clone()))];
            let marks = marks.map(|(name, value)| (name.to_owned(), value)).into();
            table.note_new(AttributesOf::Run(run), &marks).await?;
            // If several processes gather the store at once, all use the version of the first.
            known = table.run_attributes(run).await?;
        }
        if known.get(SOURCE_ATTRIBUTE).is_some_and(|recorded| *recorded != origin) {
            return Err(origin::differs(run));
        }
        let number = |name: &str| known.get(name).and_then(|text| text.parse::<u64>().ok());
        let Some(version) = number(VERSION_ATTRIBUTE) else {
            return Err(Failure::Run {
                run: run.to_owned(),
                problem: "was not gathered from another store".to_owned(),
                hint: "gather the store as a run of another name, with --run".to_owned(),
            });
        };
        let whole = number(ROWS_ATTRIBUTE);
        let attempts = known
            .keys()
            .filter_map(|name| name.strip_prefix(ATTEMPT_ATTRIBUTE_PREFIX)?.parse().ok())
            .collect();
        let steps = match &there {
            Some(_) => table.steps(Some(run)).await?,
            None => Vec::new(),
        };
        let wrote = steps.iter().map(|step| step.attempt).collect();
        let run = run.to_owned();
        Ok(Self { run, origin, there, version: Version(version), whole, wrote, known: attempts })
    }

    /// Refuses a store that has not come to the version of the run: it is an older state of the one that was
    /// gathered, as a restored backup is.
    async fn check_version(&self, source: &Table) -> Result<(), Failure> {
        let now = source.version().await?;
        if now >= self.version { Ok(()) } else { Err(origin::is_behind(&self.run, self.version, now)) }
    }

    fn last(&self) -> u64 {
        self.there.as_ref().and_then(|there| there.last_complete).unwrap_or(0)
    }

    /// The number of rows if the store was gathered completely: rows after them do not matter then.
    fn whole(&self) -> Option<u64> {
        self.whole.filter(|rows| *rows <= self.last())
    }

    /// How many rows of the store are in the run. Steps are numbered by row counts, which add up only if all
    /// rows are rows of the store.
    fn before(&self) -> Result<u64, Failure> {
        let (last, rows) = (self.last(), self.there.as_ref().map_or(0, |there| there.rows));
        if rows != last {
            return Err(self.spoiled(format!(
                "has {} up to its step {last}, which should be the same number: another writer appended to it, or deleted \
                 some of its steps, before all of the store was gathered",
                counted(rows, "row")
            )));
        }
        // Counts may match by chance, as when one row is appended as the step after the last.
        if self.known.is_empty() || self.wrote.is_subset(&self.known) {
            return Ok(last);
        }
        Err(self.spoiled(
            "has steps of another writer, who appended to it before all of the store was gathered".to_owned(),
        ))
    }

    fn spoiled(&self, problem: String) -> Failure {
        Failure::Run {
            run: self.run.clone(),
            problem,
            hint: format!(
                "`atoll table delete TABLE --run {}` deletes it, and the same command gathers the store from its beginning",
                self.run
            ),
        }
    }

    /// The columns of the store in the version that the run holds. If a vacuum removed that version and the
    /// run has no step of it yet, the run takes the newest version instead.
    async fn columns(&mut self, source: &Table) -> Result<Arc<TableSchema>, Failure> {
        match source.schema_as_of(self.version).await {
            Err(TableError::VersionGone { .. }) if self.wrote.is_empty() => {
                self.version = source.version().await?;
                Ok(source.schema_as_of(self.version).await?)
            }
            told => told.map_err(|error| self.failure_of(error)),
        }
    }

    /// An error of the store as a failure. Once a vacuum removed the version, gathering has to begin anew.
    fn failure_of(&self, error: TableError) -> Failure {
        match error {
            TableError::VersionGone { .. } => {
                self.spoiled(format!("is of version {} of the store, which a vacuum removed", self.version))
            }
            error => error.into(),
        }
    }

    /// Begins an attempt of the run, if the run is unchanged since it was seen, and records the attempt as
    /// ours, with the store and its version, before anything is written in it.
    async fn begin(&self, table: &Table) -> Result<u64, Failure> {
        let attempt = table.begin_after(&self.run, self.there.as_ref(), 1).await?;
        let attempt = attempt.ok_or_else(|| Failure::Run {
            run: self.run.clone(),
            problem: "is being gathered by another process".to_owned(),
            hint: "once that has ended, the same command continues from there if anything is left".to_owned(),
        })?;
        let ours = self.wrote.iter().chain([&attempt]);
        let ours =
            ours.map(|attempt| (format!("{ATTEMPT_ATTRIBUTE_PREFIX}{attempt}"), Some(Value::Bool(true))));
        // No other attempt can write from here on, and another gather records its version after it begins.
        let version = (VERSION_ATTRIBUTE.to_owned(), Some(Value::String(self.version.to_string())));
        let origin = (SOURCE_ATTRIBUTE.to_owned(), Some(Value::String(self.origin.clone())));
        table.note(AttributesOf::Run(&self.run), &ours.chain([version, origin]).collect()).await?;
        Ok(attempt)
    }

    /// Appends rows of the store as a step of an attempt in which no other writer appends.
    async fn append(
        &self,
        table: &Table,
        attempt: u64,
        step: u64,
        rows: &RecordBatch,
    ) -> Result<(), Failure> {
        let id = BlockId { run: self.run.as_str().into(), attempt, step, rank: 0 };
        match table.append_new(id, None, rows).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(TableError::Edit(EditError::StepOrder { .. })) => {
                Err(self.spoiled("has rows that another writer has just appended".to_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Records that all rows of the store are in the run, if they are and nothing else is.
    async fn close(&self, table: &Table, source: &Table, rows: u64) -> Result<(), Failure> {
        let there = Self::of(table, source, &self.run).await?.before()?;
        if there != rows {
            return Err(self.spoiled(format!("has {there} rows behind the last, where {rows} were gathered")));
        }
        let rows = [(ROWS_ATTRIBUTE.to_owned(), Some(rows.into()))].into();
        table.note(AttributesOf::Run(&self.run), &rows).await?;
        Ok(())
    }
}

/// Whether a store is being gathered into the run, or that was begun and not finished.
pub(super) async fn is_being_gathered(table: &Table, run: &str) -> Result<bool, Failure> {
    let attributes = table.run_attributes(run).await?;
    Ok(attributes.contains_key(VERSION_ATTRIBUTE) && !attributes.contains_key(ROWS_ATTRIBUTE))
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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};
    use atoll_conformance::{Relay, Relayed};
    use atoll_memory::MemoryStore;
    use atoll_store::{Batch, StoreFuture, WriteOptions, Written};
    use atoll_tables::{PackOptions, Roles};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn rows_with_long_texts_are_gathered_in_parts_that_fit() {
        let text = "x".repeat(2 << 10);
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..40_000).map(|_| &text)));
        let rows = RecordBatch::try_from_iter([("text", texts)]).unwrap();
        let parts: Vec<usize> = parts(&rows, 1000).map(|part| part.num_rows()).collect();
        assert_eq!(parts.iter().sum::<usize>(), 39_000);
        assert!(parts.iter().all(|rows| rows * text.len() <= STEP_BYTES), "{parts:?}");
    }

    async fn table_in(store: Arc<dyn Store>) -> Table {
        let roles = Roles { id: vec!["id".into()], index: vec!["id".into()], ..Roles::default() };
        let columns = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
        Table::create(store, "t", TableSchema::new(columns, &roles).unwrap()).await.unwrap()
    }

    /// A store with `count` rows.
    async fn source_of(count: i64) -> Table {
        let source = table_in(Arc::new(MemoryStore::default())).await;
        source.begin("r", 1, 1).await.unwrap();
        let id = BlockId { run: "r".into(), attempt: 1, step: 0, rank: 0 };
        source.append(id, &rows(count)).await.unwrap();
        source
    }

    fn rows(count: i64) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
        RecordBatch::try_from_iter([("id", ids)]).unwrap()
    }

    #[tokio::test]
    async fn of_two_that_saw_a_run_alike_one_gathers_it_and_both_mean_one_version() {
        let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
        let late = TargetRun::of(&table, &source, "one").await.unwrap();
        let id = BlockId { run: "r".into(), attempt: 1, step: 1, rank: 0 };
        source.append(id, &rows(5)).await.unwrap();
        let first = TargetRun::of(&table, &source, "one").await.unwrap();
        assert_eq!(first.version, late.version);
        let attempt = first.begin(&table).await.unwrap();
        assert!(matches!(late.begin(&table).await, Err(Failure::Run { .. })), "it has begun");
        first.append(&table, attempt, 4, &rows(4)).await.unwrap();
        assert!(matches!(late.begin(&table).await, Err(Failure::Run { .. })), "it has steps");
        let again = TargetRun::of(&table, &source, "one").await.unwrap();
        assert_eq!((again.before().unwrap(), again.version, again.whole()), (4, first.version, None));
        let taken = again.begin(&table).await.unwrap();
        assert!(first.append(&table, attempt, 8, &rows(4)).await.is_err(), "it was taken over");
        again.append(&table, taken, 10, &rows(6)).await.unwrap();
        assert_eq!(TargetRun::of(&table, &source, "one").await.unwrap().before().unwrap(), 10);
    }

    #[tokio::test]
    async fn a_run_of_one_store_is_not_gathered_on_from_another() {
        let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
        let seen = TargetRun::of(&table, &source, "one").await.unwrap();
        // It has as many versions, and the same rows.
        let replaced = source_of(10).await;
        let other = async || TargetRun::of(&table, &replaced, "one").await.err();
        assert!(matches!(other().await, Some(Failure::Run { .. })), "noted before the first step");
        seen.begin(&table).await.unwrap();
        assert!(matches!(other().await, Some(Failure::Run { .. })), "begun");
        TargetRun::of(&table, &source, "one").await.unwrap();
        // A run that an older program began gets its store from whoever goes on with it.
        let version = [(VERSION_ATTRIBUTE.to_owned(), Some(Value::String(seen.version.to_string())))].into();
        table.note(AttributesOf::Run("two"), &version).await.unwrap();
        let seen = TargetRun::of(&table, &source, "two").await.unwrap();
        seen.begin(&table).await.unwrap();
        let told = TargetRun::of(&table, &replaced, "two").await.err();
        assert!(matches!(told, Some(Failure::Run { .. })), "{told:?}");
    }

    #[tokio::test]
    async fn rows_that_another_writer_appends_to_a_gathered_run_are_never_taken_for_rows_of_the_store() {
        let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
        let seen = TargetRun::of(&table, &source, "one").await.unwrap();
        let attempt = seen.begin(&table).await.unwrap();
        seen.append(&table, attempt, 4, &rows(4)).await.unwrap();
        let id = BlockId { run: "one".into(), attempt, step: 8, rank: 0 };
        table.append(id, &rows(1)).await.unwrap();
        for step in [8, 6] {
            let told = seen.append(&table, attempt, step, &rows(2)).await;
            assert!(matches!(told, Err(Failure::Run { .. })), "step {step}: {told:?}");
        }
        let again = TargetRun::of(&table, &source, "one").await.unwrap();
        assert!(matches!(again.before(), Err(Failure::Run { .. })));
        table.delete(Some("one"), None, None).await.unwrap();
        assert_eq!(TargetRun::of(&table, &source, "one").await.unwrap().before().unwrap(), 0);
    }

    #[tokio::test]
    async fn rows_of_somebody_else_that_add_up_are_no_rows_of_the_store_either() {
        let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
        let seen = TargetRun::of(&table, &source, "one").await.unwrap();
        let attempt = seen.begin(&table).await.unwrap();
        seen.append(&table, attempt, 4, &rows(4)).await.unwrap();
        assert!(is_being_gathered(&table, "one").await.unwrap());
        // A single row is the step after the last, as `append` writes it, in an attempt of its own.
        let there = TargetRun::of(&table, &source, "one").await.unwrap().there;
        let theirs = table.begin_after("one", there.as_ref(), 1).await.unwrap().unwrap();
        table.append_next(("one".into(), theirs, 0), 0, None, &rows(1)).await.unwrap();
        assert!(seen.append(&table, attempt, 10, &rows(6)).await.is_err(), "it was taken over");
        assert!(seen.close(&table, &source, 5).await.is_err(), "5 rows are there, and one of them is theirs");
        let again = TargetRun::of(&table, &source, "one").await.unwrap();
        assert!(matches!(again.before(), Err(Failure::Run { .. })), "{:?}", again.before());
    }

    /// Appends a row to a store, packs it, and removes its older versions.
    async fn vacuum(source: &Table, step: u64) {
        let id = BlockId { run: "r".into(), attempt: 1, step, rank: 0 };
        source.append(id, &rows(1)).await.unwrap();
        source.pack(&PackOptions::whole()).await.unwrap();
        source.vacuum().await.unwrap();
    }

    #[tokio::test]
    async fn a_run_of_a_version_that_a_vacuum_took_is_gathered_from_its_beginning() {
        let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
        let mut seen = TargetRun::of(&table, &source, "one").await.unwrap();
        let first = seen.version;
        vacuum(&source, 1).await;
        seen.columns(&source).await.unwrap();
        assert!(seen.version > first, "nothing of it is there");
        let attempt = seen.begin(&table).await.unwrap();
        assert_eq!(TargetRun::of(&table, &source, "one").await.unwrap().version, seen.version, "it is noted");
        seen.append(&table, attempt, 4, &rows(4)).await.unwrap();
        vacuum(&source, 2).await;
        let mut again = TargetRun::of(&table, &source, "one").await.unwrap();
        let told = again.columns(&source).await.unwrap_err();
        assert!(matches!(&told, Failure::Run { problem, .. } if problem.contains("vacuum")), "{told}");
        assert!(told.hint().unwrap().contains("table delete"), "{told:?}");
        // Its attributes stay as long as a snapshot may show it.
        table.create_snapshot("kept", None).await.unwrap();
        table.delete(Some("one"), None, None).await.unwrap();
        let mut anew = TargetRun::of(&table, &source, "one").await.unwrap();
        assert_eq!(anew.version, seen.version);
        anew.columns(&source).await.unwrap();
        assert_eq!(anew.version, source.version().await.unwrap());
        anew.begin(&table).await.unwrap();
    }

    /// Another process that records version 3 of the store right before this one records what it found.
    struct Noting {
        store: Arc<MemoryStore>,
        notes: AtomicBool,
    }

    impl Relay for Noting {
        fn inner(&self) -> &dyn Store {
            &*self.store
        }

        fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
            let notes = self.notes.swap(false, Ordering::SeqCst);
            Box::pin(async move {
                if notes {
                    let theirs = Table::open(Arc::clone(&self.store) as Arc<dyn Store>, "t").await.unwrap();
                    let version = [(VERSION_ATTRIBUTE.to_owned(), Some("3".into()))].into();
                    theirs.note(AttributesOf::Run("one"), &version).await.unwrap();
                }
                self.store.write(batch, options).await
            })
        }
    }

    #[tokio::test]
    async fn a_version_that_somebody_else_noted_first_is_the_one_that_is_gathered() {
        let store = Arc::new(MemoryStore::default());
        table_in(Arc::clone(&store) as Arc<dyn Store>).await;
        let door = Arc::new(Relayed(Noting { store, notes: AtomicBool::new(false) }));
        let table = Table::open(Arc::clone(&door) as Arc<dyn Store>, "t").await.unwrap();
        let source = source_of(10).await;
        door.notes.store(true, Ordering::SeqCst);
        let seen = TargetRun::of(&table, &source, "one").await.unwrap();
        assert!(!door.notes.load(Ordering::SeqCst), "nobody noted");
        assert_eq!(seen.version, Version(3));
        assert_eq!(table.run_attributes("one").await.unwrap()[VERSION_ATTRIBUTE], "3");
    }
}
