//! A run that a store is gathered into: what its attributes record of the store, how far the gather came, and
//! whether anybody else wrote to it.

use super::origin;
use crate::Failure;
use crate::text::counted;
use arrow_array::RecordBatch;
use atoll_tables::protocol::{BlockId, EditError, Version};
use atoll_tables::{AttributesOf, RunSummary, Table, TableError, TableSchema};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The attribute of a run that holds the version of the gathered store.
pub(super) const VERSION_ATTRIBUTE: &str = "gather.version";

/// The attribute of a run that tells which table it was gathered from; runs that an older program began lack
/// it.
const SOURCE_ATTRIBUTE: &str = "gather.source";

/// The attribute that holds the row count of the store, once all rows have been gathered.
const ROWS_ATTRIBUTE: &str = "gather.rows";

/// Prefix of the attributes that name the attempts in which the store is gathered.
const ATTEMPT_ATTRIBUTE_PREFIX: &str = "gather.attempt.";

/// A run of the table, as it was before gathering into it.
pub(super) struct TargetRun {
    run: String,
    /// Which table is gathered, as [`origin::of`] tells it.
    origin: String,
    pub(super) there: Option<RunSummary>,
    /// The version of the store that the run holds, whichever process began to gather it.
    pub(super) version: Version,
    /// The row count of the store, once all rows were gathered.
    whole: Option<u64>,
    /// The attempts that wrote its steps.
    wrote: BTreeSet<u64>,
    /// The attempts that gathered the store; none are known of a run that an older program began.
    known: BTreeSet<u64>,
}

impl TargetRun {
    /// Looks at the run, and records which store is gathered, and its version, if none is recorded.
    pub(super) async fn of(table: &Table, source: &Table, run: &str) -> Result<Self, Failure> {
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
    pub(super) async fn check_version(&self, source: &Table) -> Result<(), Failure> {
        let now = source.version().await?;
        if now >= self.version { Ok(()) } else { Err(origin::is_behind(&self.run, self.version, now)) }
    }

    fn last(&self) -> u64 {
        self.there.as_ref().and_then(|there| there.last_complete).unwrap_or(0)
    }

    /// The number of rows if the store was gathered completely: rows after them do not matter then.
    pub(super) fn whole(&self) -> Option<u64> {
        self.whole.filter(|rows| *rows <= self.last())
    }

    /// How many rows of the store are in the run. Steps are numbered by row counts, which add up only if all
    /// rows are rows of the store.
    pub(super) fn before(&self) -> Result<u64, Failure> {
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
    pub(super) async fn columns(&mut self, source: &Table) -> Result<Arc<TableSchema>, Failure> {
        match source.schema_as_of(self.version).await {
            Err(TableError::VersionGone { .. }) if self.wrote.is_empty() => {
                self.version = source.version().await?;
                Ok(source.schema_as_of(self.version).await?)
            }
            told => told.map_err(|error| self.failure_of(error)),
        }
    }

    /// An error of the store as a failure. Once a vacuum removed the version, gathering has to begin anew.
    pub(super) fn failure_of(&self, error: TableError) -> Failure {
        match error {
            TableError::VersionGone { .. } => {
                self.spoiled(format!("is of version {} of the store, which a vacuum removed", self.version))
            }
            error => error.into(),
        }
    }

    /// Begins an attempt of the run, if the run is unchanged since it was seen, and records the attempt as
    /// ours, with the store and its version, before anything is written in it.
    pub(super) async fn begin(&self, table: &Table) -> Result<u64, Failure> {
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
    pub(super) async fn append(
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
    pub(super) async fn close(&self, table: &Table, source: &Table, rows: u64) -> Result<(), Failure> {
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
pub(in super::super) async fn is_being_gathered(table: &Table, run: &str) -> Result<bool, Failure> {
    let attributes = table.run_attributes(run).await?;
    Ok(attributes.contains_key(VERSION_ATTRIBUTE) && !attributes.contains_key(ROWS_ATTRIBUTE))
}
