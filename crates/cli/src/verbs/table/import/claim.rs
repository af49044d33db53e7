//! Claims a run for one import: decides whether to continue with its present content, and keeps other imports
//! out.
//!
//! Invariant: an import never deletes what another writer brought in unseen by it.

use super::mark::{ImportAttempt, Mark, is_attempt_of_import};
use crate::Failure;
use atoll_tables::{RunSummary, Table};

/// A run that an import may write to.
pub(super) struct Claim {
    pub(super) attempt: u64,
    /// The last step that the run has.
    pub(super) done: Option<u64>,
}

impl Claim {
    /// Claims a run; with `restart`, from its beginning.
    pub(super) async fn of(table: &Table, run: &str, mark: &Mark, restart: bool) -> Result<Self, Failure> {
        let seen = look(table, run, mark, restart).await?;
        Self::begin(table, run, mark, seen).await
    }

    /// Begins an attempt of a run in the state `seen`; none if the run did not exist.
    async fn begin(table: &Table, run: &str, mark: &Mark, seen: Option<RunSummary>) -> Result<Self, Failure> {
        let Some(attempt) = table.begin_after(run, seen.as_ref(), 1).await? else {
            return Err(Failure::Run {
                run: run.to_owned(),
                problem: "is being imported by another process".to_owned(),
                hint: "choose another name with --run; the same command goes on if it is the same file"
                    .to_owned(),
            });
        };
        let claim = Self { attempt, done: seen.and_then(|seen| seen.last_complete) };
        // Written only now, so that the mark of another import is never lost.
        claim.keep(table, run, mark).await?;
        Ok(claim)
    }

    /// Records what is being imported.
    pub(super) async fn keep(&self, table: &Table, run: &str, mark: &Mark) -> Result<(), Failure> {
        mark.keep(table, run, ImportAttempt { attempt: self.attempt, behind: self.done, is_over: false })
            .await
    }

    /// Records that the import has ended, and that the steps of the file reach up to `last`. A repeated
    /// import must be able to tell them from steps that other writers bring into this attempt, now or later.
    /// This is a single write of the mark, whoever else appends meanwhile; no new attempt is begun, since
    /// other writers in this one may go on.
    pub(super) async fn end(
        &self,
        table: &Table,
        run: &str,
        mark: &Mark,
        last: Option<u64>,
    ) -> Result<(), Failure> {
        mark.keep(table, run, ImportAttempt { attempt: self.attempt, behind: last, is_over: true }).await
    }

    /// Whether the run has not been taken over.
    pub(super) async fn holds(&self, table: &Table, run: &str) -> Result<bool, Failure> {
        Ok(summary(table, run).await?.is_some_and(|now| now.attempt == self.attempt))
    }
}

/// The present state of the run, if this import may continue with it.
async fn look(table: &Table, run: &str, mark: &Mark, restart: bool) -> Result<Option<RunSummary>, Failure> {
    let Some(known) = summary(table, run).await? else { return Ok(None) };
    if restart {
        // A run without steps starts over, should we be interrupted between here and the next write.
        table.delete(Some(run), None, None).await?;
        return Ok(Some(RunSummary { last_complete: None, ..known }));
    }
    if known.last_complete.is_some() {
        mark.check(table, run).await?;
    } else if !is_attempt_of_import(table, &known).await? {
        // An import that brought nothing in does not reserve the name. A simulation that has yet to write
        // does.
        return Err(Failure::Run {
            run: run.to_owned(),
            problem: "exists without a step, and was not made by an import".to_owned(),
            hint: "choose another name with --run, or take it with --restart if nobody writes to it"
                .to_owned(),
        });
    }
    Ok(Some(known))
}

async fn summary(table: &Table, run: &str) -> Result<Option<RunSummary>, Failure> {
    Ok(table.runs().await?.into_iter().find(|summary| summary.name == run))
}

#[cfg(test)]
mod tests {
    use super::super::sink::{Sink, is_of_somebody_else};
    use super::super::{Imported, note_end};
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};
    use atoll_conformance::{Relay, Relayed};
    use atoll_memory::MemoryStore;
    use atoll_row_files::{Format, Input, RowFileError};
    use atoll_store::{Batch, Store, StoreFuture, WriteOptions, Written as WrittenBatch};
    use atoll_tables::protocol::BlockId;
    use atoll_tables::{Roles, TableSchema};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    async fn table() -> Table {
        table_in(Arc::new(MemoryStore::default())).await
    }

    async fn table_in(store: Arc<dyn Store>) -> Table {
        let roles = Roles { id: vec!["id".into()], index: vec!["id".into()], ..Roles::default() };
        let columns = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
        let schema = TableSchema::new(columns, &roles).unwrap();
        Table::create(store, "t", schema).await.unwrap()
    }

    async fn append(table: &Table, attempt: u64, step: u64) {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        table.append(BlockId { run: "r".into(), attempt, step, rank: 0 }, &rows).await.unwrap();
    }

    fn mark(folder: &tempfile::TempDir, name: &str) -> Mark {
        let path = folder.path().join(name);
        std::fs::write(&path, name).unwrap();
        Mark::of(&Input::File(path), Format::Csv, "plan".to_owned()).unwrap()
    }

    #[tokio::test]
    async fn a_run_that_another_one_took_since_it_was_looked_at_is_left_to_that_one() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let (ours, theirs) = (mark(&folder, "ours"), mark(&folder, "theirs"));
        let seen = look(&table, "r", &ours, false).await.unwrap();
        let other = Claim::of(&table, "r", &theirs, false).await.unwrap();
        append(&table, other.attempt, 7).await;
        let late = Claim::begin(&table, "r", &ours, seen).await;
        assert!(matches!(late, Err(Failure::Run { .. })));
        assert_eq!(table.runs().await.unwrap()[0].last_complete, Some(7));
        // Its mark is still there, so the other import can continue.
        assert_eq!(look(&table, "r", &theirs, false).await.unwrap().unwrap().last_complete, Some(7));
        assert!(look(&table, "r", &ours, false).await.is_err());
    }

    #[tokio::test]
    async fn the_import_that_began_a_run_continues_though_others_saw_it_before() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let (ours, theirs) = (mark(&folder, "ours"), mark(&folder, "theirs"));
        for restart in [false, true] {
            let seen = look(&table, "r", &ours, restart).await.unwrap();
            let first = Claim::of(&table, "r", &theirs, restart).await.unwrap();
            assert!(matches!(Claim::begin(&table, "r", &ours, seen).await, Err(Failure::Run { .. })));
            assert!(first.holds(&table, "r").await.unwrap());
            append(&table, first.attempt, 0).await;
            assert_eq!(Claim::of(&table, "r", &theirs, false).await.unwrap().done, Some(0));
        }
    }

    #[tokio::test]
    async fn a_run_with_a_step_of_somebody_else_at_its_end_is_not_gone_on_with() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let ours = mark(&folder, "ours");
        let first = Claim::of(&table, "r", &ours, false).await.unwrap();
        append(&table, first.attempt, 3).await;
        // An import that brought nothing changes nothing.
        for attempt in 2..=3 {
            let again = Claim::of(&table, "r", &ours, false).await.unwrap();
            assert_eq!((again.attempt, again.done), (attempt, Some(3)));
        }
        table.begin("r", 4, 1).await.unwrap();
        assert_eq!(Claim::of(&table, "r", &ours, false).await.unwrap().done, Some(3));
        table.begin("r", 6, 1).await.unwrap();
        append(&table, 6, 50).await;
        assert!(matches!(Claim::of(&table, "r", &ours, false).await, Err(Failure::Run { .. })));
        // Without that step, all is as before.
        table.delete(Some("r"), Some(50..51), None).await.unwrap();
        assert_eq!(Claim::of(&table, "r", &ours, false).await.unwrap().done, Some(3));
        let anew = Claim::of(&table, "r", &ours, true).await.unwrap();
        append(&table, anew.attempt, 1).await;
        assert_eq!(Claim::of(&table, "r", &ours, false).await.unwrap().done, Some(1));
    }

    #[tokio::test]
    async fn a_run_that_no_import_began_is_not_taken_though_it_has_no_step_yet() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let ours = mark(&folder, "ours");
        table.begin("r", 1, 1).await.unwrap();
        assert!(matches!(Claim::of(&table, "r", &ours, false).await, Err(Failure::Run { .. })));
        append(&table, 1, 0).await;
        // Nor one of a name that was imported before.
        let former = Claim::of(&table, "r", &ours, true).await.unwrap();
        append(&table, former.attempt, 0).await;
        table.delete(Some("r"), None, None).await.unwrap();
        let simulation = table.begin_next("r", 1).await.unwrap();
        assert!(matches!(Claim::of(&table, "r", &ours, false).await, Err(Failure::Run { .. })));
        append(&table, simulation, 0).await;
    }

    #[tokio::test]
    async fn a_mark_that_comes_late_is_not_taken_for_that_of_who_has_the_run_now() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let (ours, theirs) = (mark(&folder, "ours"), mark(&folder, "theirs"));
        let late = Claim { attempt: table.begin_after("r", None, 1).await.unwrap().unwrap(), done: None };
        table.begin("r", 2, 1).await.unwrap();
        let now = Claim { attempt: 2, done: None };
        now.keep(&table, "r", &theirs).await.unwrap();
        late.keep(&table, "r", &ours).await.unwrap();
        append(&table, 2, 5).await;
        assert_eq!(Claim::of(&table, "r", &theirs, false).await.unwrap().done, Some(5));
    }

    #[tokio::test]
    async fn an_import_into_a_copy_of_an_older_version_is_noted() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let (ours, theirs) = (mark(&folder, "ours"), mark(&folder, "theirs"));
        table.begin("r", 1, 1).await.unwrap();
        // Attributes are read at the current version, runs at an older one.
        let ahead = Claim { attempt: 5, done: Some(20) };
        ahead.keep(&table, "r", &theirs).await.unwrap();
        let first = Claim::of(&table, "r", &ours, true).await.unwrap();
        append(&table, first.attempt, 25).await;
        assert_eq!(Claim::of(&table, "r", &ours, false).await.unwrap().done, Some(25));
    }

    #[tokio::test]
    async fn a_step_that_somebody_else_brings_into_the_attempt_is_not_taken_for_one_of_the_file() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let mark = mark(&folder, "ours");
        let claim = Claim::of(&table, "r", &mark, false).await.unwrap();
        append(&table, claim.attempt, 0).await;
        append(&table, claim.attempt, 5).await;
        let mut sink = Sink::begin(&table, "r", claim.attempt, false).unwrap();
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        for step in [5, 3] {
            let told = sink.take(step, rows.clone(), &mut Imported::default()).await.unwrap_err();
            assert!(is_of_somebody_else(&told), "{told}");
        }
        claim.end(&table, "r", &mark, Some(0)).await.unwrap();
        // Nor by a repetition of the same import.
        assert!(matches!(Claim::of(&table, "r", &mark, false).await, Err(Failure::Run { .. })));
        table.delete(Some("r"), Some(5..6), None).await.unwrap();
        assert_eq!(Claim::of(&table, "r", &mark, false).await.unwrap().done, Some(0));
    }

    /// Another writer that appends to the attempt right before a write of this import, once.
    struct Joined {
        store: Arc<MemoryStore>,
        joins: AtomicBool,
    }

    impl Relay for Joined {
        fn inner(&self) -> &dyn Store {
            &*self.store
        }

        fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, WrittenBatch> {
            let joins = self.joins.swap(false, Ordering::SeqCst);
            Box::pin(async move {
                if joins {
                    let theirs = Table::open(Arc::clone(&self.store) as Arc<dyn Store>, "t").await.unwrap();
                    append(&theirs, 1, 6).await;
                }
                self.store.write(batch, options).await
            })
        }
    }

    #[tokio::test]
    async fn a_writer_that_appends_while_an_import_gives_up_is_still_told_apart_from_it() {
        let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(MemoryStore::default()));
        table_in(Arc::clone(&store) as Arc<dyn Store>).await;
        let door = Arc::new(Relayed(Joined { store, joins: AtomicBool::new(false) }));
        let table = Table::open(Arc::clone(&door) as Arc<dyn Store>, "t").await.unwrap();
        let mark = mark(&folder, "ours");
        let claim = Claim::of(&table, "r", &mark, false).await.unwrap();
        for step in [0, 5] {
            append(&table, claim.attempt, step).await;
        }
        door.joins.store(true, Ordering::SeqCst);
        claim.end(&table, "r", &mark, Some(0)).await.unwrap();
        assert!(!door.joins.load(Ordering::SeqCst), "nobody joined");
        assert!(matches!(Claim::of(&table, "r", &mark, false).await, Err(Failure::Run { .. })));
        // Nor is what a writer brings that begins the run anew.
        table.delete(Some("r"), Some(5..7), None).await.unwrap();
        let theirs = table.begin_next("r", 1).await.unwrap();
        append(&table, theirs, 8).await;
        assert!(matches!(Claim::of(&table, "r", &mark, false).await, Err(Failure::Run { .. })));
        table.delete(Some("r"), Some(8..9), None).await.unwrap();
        assert_eq!(Claim::of(&table, "r", &mark, false).await.unwrap().done, Some(0));
    }

    #[tokio::test]
    async fn a_step_that_comes_into_the_attempt_of_an_import_that_has_ended_is_not_of_the_file() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let mark = mark(&folder, "ours");
        let claim = Claim::of(&table, "r", &mark, false).await.unwrap();
        append(&table, claim.attempt, 3).await;
        claim.end(&table, "r", &mark, Some(3)).await.unwrap();
        let again = Claim::of(&table, "r", &mark, false).await.unwrap();
        assert_eq!(again.done, Some(3));
        again.end(&table, "r", &mark, Some(3)).await.unwrap();
        append(&table, again.attempt, 9).await;
        assert!(matches!(Claim::of(&table, "r", &mark, false).await, Err(Failure::Run { .. })));
        table.delete(Some("r"), Some(9..10), None).await.unwrap();
        assert_eq!(Claim::of(&table, "r", &mark, false).await.unwrap().done, Some(3));
    }

    #[tokio::test]
    async fn a_run_whose_only_step_somebody_else_brought_is_imported_once_that_is_gone() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let mark = mark(&folder, "ours");
        let claim = Claim::of(&table, "r", &mark, false).await.unwrap();
        append(&table, claim.attempt, 5).await;
        claim.end(&table, "r", &mark, None).await.unwrap();
        assert!(matches!(Claim::of(&table, "r", &mark, false).await, Err(Failure::Run { .. })));
        table.delete(Some("r"), None, None).await.unwrap();
        assert_eq!(Claim::of(&table, "r", &mark, false).await.unwrap().done, None);
    }

    #[tokio::test]
    async fn packed_steps_that_somebody_else_brought_into_the_attempt_are_not_counted() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let mark = mark(&folder, "ours");
        let claim = Claim::of(&table, "r", &mark, false).await.unwrap();
        append(&table, claim.attempt, 5).await;
        let mut sink = Sink::begin(&table, "r", claim.attempt, true).unwrap();
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let mut imported = Imported::default();
        sink.take(5, rows, &mut imported).await.unwrap();
        let told = sink.finish(&mut imported).await.unwrap_err();
        assert!(is_of_somebody_else(&told), "{told}");
        assert_eq!((imported.steps, imported.last), (0, None));
    }

    #[tokio::test]
    async fn a_file_without_lines_that_turned_out_to_be_damaged_may_get_another_end() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let path = folder.path().join("run.parquet");
        let mark = || Mark::of(&Input::File(path.clone()), Format::Parquet, "plan".to_owned()).unwrap();
        let mut bytes = vec![7_u8; (1 << 20) + (100 << 10)];
        std::fs::write(&path, &bytes).unwrap();
        let damaged = mark();
        let claim = Claim::of(&table, "r", &damaged, false).await.unwrap();
        append(&table, claim.attempt, 0).await;
        *bytes.last_mut().unwrap() = 8;
        std::fs::write(&path, &bytes).unwrap();
        let file = || "run.parquet".to_owned();
        let failures = [
            // A disk that fails says nothing about the file.
            (RowFileError::Read { file: file(), source: std::io::Error::other("a bad sector") }, false),
            (RowFileError::Torn { file: file(), problem: "half of it is missing".to_owned() }, true),
        ];
        let imported = Imported { last: Some(0), ..Imported::default() };
        for (error, is_continued) in failures {
            let failure = Failure::Rows(error);
            note_end(&table, "r", damaged.clone(), &claim, Some(&failure), &imported).await.unwrap();
            let again = Claim::of(&table, "r", &mark(), false).await;
            assert_eq!(again.is_ok(), is_continued, "{failure}");
        }
    }

    #[tokio::test]
    async fn a_run_with_nothing_in_it_is_anybodys_and_one_with_steps_is_not() {
        let (table, folder) = (table().await, tempfile::tempdir().unwrap());
        let (ours, theirs) = (mark(&folder, "ours"), mark(&folder, "theirs"));
        let first = Claim::of(&table, "r", &theirs, false).await.unwrap();
        let second = Claim::of(&table, "r", &ours, false).await.unwrap();
        assert!(!first.holds(&table, "r").await.unwrap() && second.holds(&table, "r").await.unwrap());
        append(&table, second.attempt, 0).await;
        assert!(Claim::of(&table, "r", &theirs, false).await.is_err());
        assert_eq!(Claim::of(&table, "r", &ours, false).await.unwrap().done, Some(0));
    }
}
