//! Loading: the steps of a run, each as the blocks of two ranks that divide the space at x = 0.

use super::open;
use crate::peers::EngineError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_ipc::reader::FileReader;
use arrow_select::filter::filter_record_batch;
use atoll_store::Store;
use atoll_tables::protocol::{BlockId, RunId};
use atoll_tables::{PackOptions, Roles, Table, TableSchema, WholeStep};
use futures::future::try_join_all;
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The prefix of the runs' names; each writer has a run of its own.
const RUN: &str = "run";

/// How many bytes of rows are loaded as one tree.
const TREE_BYTES: u64 = 32 << 20;

/// The steps of a file, in order.
type Steps = FileReader<BufReader<File>>;

/// The rows of an Arrow file, with one record batch per step.
pub struct Rows(Steps);

impl Rows {
    pub fn open(file: &Path) -> Result<Self, EngineError> {
        Ok(Self(FileReader::try_new_buffered(File::open(file)?, None)?))
    }
}

/// The cost of loading.
#[derive(Serialize)]
struct Loaded {
    /// From opening the store to the last acknowledgement.
    seconds: f64,
}

/// How rows are written.
#[derive(Clone, Copy)]
pub enum Way {
    /// One step at a time, by `writers` writers.
    Appended { writers: usize },
    /// As many steps together as one tree is made of, packed at once.
    Loaded,
}

/// Writes every record batch of an Arrow file as a step, closes the store, and writes the cost to `out`.
///
/// The table is sampled by row, or by the column `sample_key`.
pub async fn load(
    folder: &Path,
    table: &str,
    rows: &Path,
    sample_key: Option<&str>,
    way: Way,
    out: Option<&Path>,
) -> Result<(), EngineError> {
    let store = open(folder).await?;
    let rows = Rows::open(rows)?;
    let started = Instant::now();
    match way {
        Way::Appended { writers } => write_into(&store, table, rows, sample_key, writers).await?,
        Way::Loaded => load_into(&store, table, rows, sample_key).await?,
    }
    let seconds = started.elapsed().as_secs_f64();
    if let Some(out) = out {
        std::fs::write(out, serde_json::to_string(&Loaded { seconds })?)?;
    }
    store.close().await?;
    Ok(())
}

async fn create(
    store: &Arc<dyn Store>,
    table: &str,
    rows: &Steps,
    sample_key: Option<&str>,
) -> Result<Table, EngineError> {
    let roles = Roles {
        id: vec!["pid".to_owned(), "step".to_owned()],
        sample_key: sample_key.into_iter().map(str::to_owned).collect(),
        index: ["x", "y", "z", "step"].map(str::to_owned).to_vec(),
        salt: 0,
    };
    let schema = TableSchema::new(rows.schema().as_ref().clone(), &roles)?;
    Ok(Table::create(Arc::clone(store), table, schema).await?)
}

/// Appends all rows to a new table of the store; several writers share the steps.
pub async fn write_into(
    store: &Arc<dyn Store>,
    table: &str,
    rows: Rows,
    sample_key: Option<&str>,
    writers: usize,
) -> Result<(), EngineError> {
    let file = rows.0;
    let table = Arc::new(create(store, table, &file, sample_key).await?);
    let file = Arc::new(Mutex::new(file));
    let writers = (0..writers.max(1)).map(|writer| {
        let (table, file) = (Arc::clone(&table), Arc::clone(&file));
        // Spawned, so that one writer's computation does not wait for another's.
        async move { tokio::spawn(write(table, file, format!("{RUN}-{writer}"))).await? }
    });
    try_join_all(writers).await?;
    Ok(())
}

/// Loads all rows into a new table of the store.
async fn load_into(
    store: &Arc<dyn Store>,
    table: &str,
    rows: Rows,
    sample_key: Option<&str>,
) -> Result<(), EngineError> {
    let file = rows.0;
    let table = create(store, table, &file, sample_key).await?;
    table.begin(RUN, 1, 1).await?;
    let mut loader = table.loader(RUN, 1, TREE_BYTES, PackOptions::default())?;
    for rows in file {
        let rows = rows?;
        if let Some(step) = step_of(&rows)? {
            loader.push(WholeStep { step, time: None, rows }).await?;
        }
    }
    loader.finish().await?;
    Ok(())
}

/// The step of these rows, if there are any.
fn step_of(rows: &RecordBatch) -> Result<Option<u64>, EngineError> {
    let steps = column(rows, "step")?.as_primitive_opt::<Int64Type>().ok_or("step is no int64")?;
    Ok(steps.values().first().map(|&step| step.try_into()).transpose()?)
}

/// Appends steps from the file to one run until none are left.
async fn write(table: Arc<Table>, file: Arc<Mutex<Steps>>, run: String) -> Result<(), EngineError> {
    table.begin(&run, 1, 2).await?;
    loop {
        let step = file.lock().map_err(|_| "another writer failed")?.next();
        let Some(step) = step else { return Ok(()) };
        append(&table, &run, &step?).await?;
    }
}

async fn append(table: &Table, run: &str, batch: &RecordBatch) -> Result<(), EngineError> {
    let Some(step) = step_of(batch)? else { return Ok(()) };
    let x = column(batch, "x")?.as_primitive_opt::<Float32Type>().ok_or("x is no float32")?;
    let is_right: BooleanArray = x.values().iter().map(|&x| Some(x >= 0.0)).collect();
    let is_left: BooleanArray = x.values().iter().map(|&x| Some(x < 0.0)).collect();
    for (rank, of_rank) in [is_left, is_right].iter().enumerate() {
        let id = BlockId { run: RunId::from(run), attempt: 1, step, rank: rank as u32 };
        table.append(id, &filter_record_batch(batch, of_rank)?).await?;
    }
    Ok(())
}

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b dyn Array, EngineError> {
    Ok(batch.column_by_name(name).ok_or_else(|| format!("the rows have no column {name}"))?.as_ref())
}
