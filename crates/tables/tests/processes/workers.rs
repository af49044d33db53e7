//! What the workers do, and what must be true of their work.

use crate::packers;
use arrow_array::{Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use atoll_conformance::killed::tell;
use atoll_embedded::owner::Mode;
use atoll_embedded::{FolderOptions, OpenOptions, StoreOptions};
use atoll_store::{ErrorKind, Outcome, Store, StoreError};
use atoll_tables::protocol::{BlockId, Version};
use atoll_tables::{PackOptions, Query, Roles, Table, TableError, TableSchema, column};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The number of writers.
pub const WRITERS: u64 = 4;
/// Rows of each step.
const ROWS: i64 = 5;
/// The number of concurrent appends of a writer.
const AT_ONCE: u64 = 4;
/// A writer deletes steps that are further back than this.
const KEPT: u64 = 100;

/// The reports of all workers.
#[derive(Debug, Default)]
pub struct Reports {
    pub writers: BTreeMap<i64, Written>,
    /// Packed trees, ended sessions and swept objects.
    pub trees: u64,
    pub ended: u64,
    pub swept: u64,
}

impl Reports {
    /// Prints what happened, which must be enough to prove something.
    pub fn sum_up(&self, steps: u64, slowest: Duration) {
        let Self { trees, ended, swept, .. } = self;
        println!(
            "{steps} steps acknowledged, {trees} trees packed, {ended} sessions ended, {swept} objects swept, longest silence {slowest:?}"
        );
        assert!(steps > 50 && *trees > 0 && *ended > 0, "too little happened");
    }
}

/// The reports of a writer: the last acknowledged step, and the steps up to which its deletes were
/// acknowledged and requested.
#[derive(Clone, Copy, Debug, Default)]
pub struct Written {
    pub wrote: Option<u64>,
    pub deleted: u64,
    pub deleting: u64,
    pub steps: u64,
}

/// Records a report of a worker.
pub fn hear(told: &mut Reports, role: &str, what: &str, number: &str) {
    let number: u64 = number.parse().unwrap();
    match what {
        "packed" => told.trees += number,
        "ended" => told.ended += number,
        "swept" => told.swept += number,
        _ => {}
    }
    let Some(writer) = role.strip_prefix("write ") else { return };
    let told = told.writers.entry(writer.parse().unwrap()).or_default();
    match what {
        "wrote" => {
            told.wrote = told.wrote.max(Some(number));
            told.steps += 1;
        }
        "deleting" => told.deleting = told.deleting.max(number),
        "deleted" => told.deleted = told.deleted.max(number),
        _ => {}
    }
}

/// Opens the folder or, for `cassandra:KEYSPACE`, that keyspace in the cluster that `ATOLL_CASSANDRA` names.
pub async fn open(folder: &Path, mode: Mode) -> Result<Arc<dyn Store>, StoreError> {
    if let Some(keyspace) = folder.to_str().and_then(|name| name.strip_prefix("cassandra:")) {
        let contacts = std::env::var("ATOLL_CASSANDRA").unwrap();
        let options = atoll_cassandra::Options::of(contacts.split(','), keyspace);
        let options = atoll_cassandra::Options { read_only: mode == Mode::Read, ..options };
        return Ok(Arc::new(atoll_cassandra::CassandraStore::open(options).await?));
    }
    let engine = atoll_engine::Options { memory_bytes: 64 << 20, ..atoll_engine::Options::default() };
    let options = OpenOptions {
        mode,
        store: StoreOptions { engine, ..StoreOptions::default() },
        folder: FolderOptions::default(),
        ..OpenOptions::default()
    };
    Ok(atoll_embedded::open(folder, options).await?.store())
}

fn schema() -> TableSchema {
    let columns =
        Schema::new(vec![column("pid", DataType::Int64, false), column("step", DataType::Int64, false)]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles =
        Roles { id: names(&["pid", "step"]), sample_key: Vec::new(), index: names(&["step"]), salt: 0 };
    TableSchema::new(columns, &roles).unwrap()
}

/// Rows that carry the number of their writer.
fn rows(writer: i64, step: u64) -> RecordBatch {
    let pids: Int64Array = (0..ROWS).map(|row| writer * 1000 + row).collect::<Vec<_>>().into();
    let steps: Int64Array = vec![step as i64; ROWS as usize].into();
    let columns: Vec<Arc<dyn Array>> = vec![Arc::new(pids), Arc::new(steps)];
    RecordBatch::try_new(Arc::clone(schema().columns()), columns).unwrap()
}

/// Creates the table.
pub async fn prepare(folder: &Path) {
    let store = open(folder, Mode::Write).await.unwrap();
    Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    store.sync().await.unwrap();
    store.close().await.unwrap();
}

pub fn work(role: &str, folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match role.split_once(' ').unwrap() {
            ("write", number) => write_on(folder, number.parse().unwrap()).await,
            ("read", _) => read_on(folder, Mode::Write).await,
            ("look", _) => read_on(folder, Mode::Read).await,
            // Their numbers are seeds, so that a replay of the driver's seed replays theirs.
            ("pack", seed) => packers::pack_on(folder, seed.parse().unwrap()).await,
            ("sweep", seed) => packers::sweep_on(folder, seed.parse().unwrap()).await,
            _ => panic!("no such worker: {role}"),
        }
    });
}

/// The mistake planted in the workers, if any.
pub fn plant() -> Option<String> {
    std::env::var("ATOLL_PLANT").ok()
}

/// Repeats an operation until its outcome is known.
async fn insist<T>(what: &str, mut go: impl AsyncFnMut() -> Result<T, TableError>) -> T {
    loop {
        match go().await {
            Ok(value) => return value,
            Err(error) if is_to_be_tried_again(&error) => tell(format_args!("maybe 0")),
            Err(error) => panic!("{what}: {error} ({error:?})"),
        }
    }
}

/// Whether the store or a vacuum interfered, so that the operation has to be repeated.
pub fn is_to_be_tried_again(error: &TableError) -> bool {
    error.outcome() == Outcome::Unknown
        || matches!(error, TableError::Behind { .. } | TableError::Fenced { .. })
}

async fn write_on(folder: &Path, number: i64) {
    let claims_early = plant().as_deref() == Some("early claim");
    let store = open(folder, Mode::Write).await.unwrap();
    let table = Table::open(store, "run").await.unwrap();
    let run = format!("writer {number}");
    let attempt = insist("begin", async || table.begin_next(&run, 1).await).await;
    let mut next = table.last_complete(&run).await.unwrap().unwrap_or(0);
    loop {
        let steps = next..next + AT_ONCE;
        next = steps.end;
        if claims_early {
            tell(format_args!("wrote {}", steps.end - 1));
        }
        let appends = steps.map(|step| {
            let (table, id) = (&table, BlockId { run: run.as_str().into(), attempt, step, rank: 0 });
            async move { (step, table.append(id, &rows(number, step)).await) }
        });
        // In the order of the calls, so that an append that has to be repeated precedes the next one.
        for (step, outcome) in futures::future::join_all(appends).await {
            match outcome {
                Ok(_) => {}
                Err(error) if is_to_be_tried_again(&error) => {
                    let id = BlockId { run: run.as_str().into(), attempt, step, rank: 0 };
                    insist("append", async || table.append(id.clone(), &rows(number, step)).await).await;
                }
                Err(error) => panic!("append: {error} ({error:?})"),
            }
            tell(format_args!("wrote {step}"));
        }
        if next % (KEPT / 2) < AT_ONCE && next > KEPT {
            let to = next - KEPT;
            tell(format_args!("deleting {to}"));
            insist("delete", async || table.delete(Some(&run), Some(0..to), None).await).await;
            tell(format_args!("deleted {to}"));
        }
    }
}

/// Reads for ever, and reopens now and then; every answer must be a possible state.
async fn read_on(folder: &Path, mode: Mode) {
    let mut latest = Version(0);
    loop {
        let table = match open_table(folder, mode).await {
            Ok(table) => table,
            // A reader that finds no owner reads the files directly, which may change under it.
            Err(error) if mode == Mode::Read && error.kind() != ErrorKind::Corrupt => {
                tell(format_args!("read 0"));
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            Err(error) => panic!("open: {error} ({error:?})"),
        };
        for _ in 0..20 {
            let answer = match table.query(&Query::default()).await {
                Ok(answer) => answer,
                Err(error) if mode == Mode::Read && error.kind() != ErrorKind::Corrupt => break,
                Err(error) => panic!("query as {mode:?}: {error} ({error:?})"),
            };
            assert!(
                mode == Mode::Read || answer.version >= latest,
                "version {} came after {latest}",
                answer.version
            );
            latest = latest.max(answer.version);
            for (writer, steps) in steps_of(&answer.rows) {
                let (first, last) = (steps[0], steps[steps.len() - 1]);
                let whole = last - first + 1 == steps.len() as u64;
                assert!(whole, "writer {writer} has gaps: {steps:?} in version {}", answer.version);
            }
            tell(format_args!("read {}", answer.rows.num_rows()));
        }
    }
}

pub async fn open_table(folder: &Path, mode: Mode) -> Result<Table, TableError> {
    Table::open(open(folder, mode).await?, "run").await
}

/// The steps of each writer, in order; each must have all of its rows, once.
fn steps_of(rows: &RecordBatch) -> BTreeMap<i64, Vec<u64>> {
    let numbers = |place: usize| {
        let column = rows.column(place).as_any().downcast_ref::<Int64Array>().unwrap();
        column.values().to_vec()
    };
    let mut seen: BTreeMap<(i64, u64), Vec<i64>> = BTreeMap::new();
    for (pid, step) in numbers(0).into_iter().zip(numbers(1)) {
        seen.entry((pid / 1000, step as u64)).or_default().push(pid % 1000);
    }
    let mut steps: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    for ((writer, step), mut rows) in seen {
        rows.sort_unstable();
        assert!(rows.iter().copied().eq(0..ROWS), "step {step} of writer {writer} has rows {rows:?}");
        steps.entry(writer).or_default().push(step);
    }
    steps
}

/// Compares the final table with the reports. Returns how many steps were acknowledged.
pub async fn judge(folder: &Path, told: &Reports) -> u64 {
    let store = open(folder, Mode::Write).await.unwrap();
    let table = Table::open(Arc::clone(&store), "run").await.unwrap();
    let answer = table.query(&Query::default()).await;
    let answer = answer.unwrap_or_else(|error| panic!("the last look: {error}"));
    let steps = steps_of(&answer.rows);
    let mut total = 0;
    for (writer, told) in &told.writers {
        let Some(wrote) = told.wrote else { continue };
        total += told.steps;
        let steps = steps.get(writer).cloned().unwrap_or_default();
        let (first, last) = steps.first().copied().zip(steps.last().copied()).unwrap_or_else(|| {
            panic!("writer {writer} lost step {wrote}, which was acknowledged: there is none")
        });
        assert!(
            last >= wrote,
            "writer {writer} lost step {wrote}, which was acknowledged: the last is {last}"
        );
        assert!(last < wrote + 2 * AT_ONCE, "writer {writer} never wrote {last}");
        assert!(
            (told.deleted..=told.deleting).contains(&first),
            "writer {writer}: from {first}, told {told:?}"
        );
        assert_eq!(last - first + 1, steps.len() as u64, "writer {writer} has gaps: {steps:?}");
        let listed = table.steps(Some(&format!("writer {writer}"))).await.unwrap();
        assert!(listed.iter().map(|step| step.step).eq(steps), "writer {writer}: {listed:?}");
    }
    // Packing the rest changes nothing.
    table.pack(&PackOptions::whole()).await.unwrap();
    assert_eq!(table.query(&Query::default()).await.unwrap().rows, answer.rows);
    // The next attempt can continue.
    let attempt = table.begin_next("writer 0", 1).await.unwrap();
    let id = BlockId { run: "writer 0".into(), attempt, step: 1 << 40, rank: 0 };
    table.append(id, &rows(0, 1 << 40)).await.unwrap();
    store.close().await.unwrap();
    total
}
