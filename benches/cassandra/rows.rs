//! Plain rows: a partition for each step, unlogged batches of 50 of one partition, prepared, 64 in flight.

use super::{IN_FLIGHT, Written, fresh_table, session};
use crate::peers::EngineError;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Int8Type, Int32Type, Int64Type};
use arrow_ipc::reader::FileReader;
use futures::{StreamExt, TryStreamExt, stream};
use scylla::client::session::Session;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use std::fs::File;
use std::path::Path;
use std::time::Instant;

/// Rows per batch, as the bars say.
const BATCH_ROWS: usize = 50;

/// How often a batch that timed out is sent.
const TRIES_MAX: usize = 10;

const COLUMNS: &str = "step bigint, pid int, type tinyint, x float, y float, z float, vx float, vy float, vz float, \
                       prio int, PRIMARY KEY ((step), pid)";

/// The columns in the order of [`COLUMNS`].
type Row = (i64, i32, i8, f32, f32, f32, f32, f32, f32, i32);

/// Inserts every row of an Arrow file, with one record batch per step, into a new table `rows`.
pub async fn load(contacts: &str, keyspace: &str, rows: &Path, out: &Path) -> Result<(), EngineError> {
    let session = session(contacts).await?;
    fresh_table(&session, keyspace, "rows", COLUMNS).await?;
    let insert = session
        .prepare(format!(
            "INSERT INTO {keyspace}.rows (step, pid, type, x, y, z, vx, vy, vz, prio) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        ))
        .await?;
    let whole = batch_of(&insert, BATCH_ROWS);
    let started = Instant::now();
    let mut count = 0;
    for step in FileReader::try_new_buffered(File::open(rows)?, None)? {
        let rows = rows_of(&step?)?;
        count += rows.len() as u64;
        let batches = rows.chunks(BATCH_ROWS).map(|rows| send(&session, &insert, &whole, rows));
        stream::iter(batches).buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
    }
    Written { count, bytes: 0, seconds: started.elapsed().as_secs_f64(), made_seconds: 0.0 }.keep(out)
}

async fn send(
    session: &Session,
    insert: &PreparedStatement,
    whole: &Batch,
    rows: &[Row],
) -> Result<(), EngineError> {
    let rest;
    let batch = if rows.len() == BATCH_ROWS {
        whole
    } else {
        rest = batch_of(insert, rows.len());
        &rest
    };
    let mut tries = 1;
    // A node that collects garbage for longer than its time-out is asked again, as any client would do.
    while let Err(error) = session.batch(batch, rows).await {
        if tries == TRIES_MAX {
            return Err(error.into());
        }
        tries += 1;
    }
    Ok(())
}

fn batch_of(insert: &PreparedStatement, rows: usize) -> Batch {
    let mut batch = Batch::new(BatchType::Unlogged);
    (0..rows).for_each(|_| batch.append_statement(insert.clone()));
    batch.set_is_idempotent(true);
    batch
}

fn rows_of(batch: &RecordBatch) -> Result<Vec<Row>, EngineError> {
    let (step, pid) = (column::<Int64Type>(batch, "step")?, column::<Int32Type>(batch, "pid")?);
    let (kind, prio) = (column::<Int8Type>(batch, "type")?, column::<Int32Type>(batch, "prio")?);
    let (x, y, z) = (reals(batch, "x")?, reals(batch, "y")?, reals(batch, "z")?);
    let (vx, vy, vz) = (reals(batch, "vx")?, reals(batch, "vy")?, reals(batch, "vz")?);
    let row =
        |at: usize| (step[at], pid[at], kind[at], x[at], y[at], z[at], vx[at], vy[at], vz[at], prio[at]);
    Ok((0..batch.num_rows()).map(row).collect())
}

fn reals<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b [f32], EngineError> {
    column::<Float32Type>(batch, name)
}

fn column<'b, T: ArrowPrimitiveType>(
    batch: &'b RecordBatch,
    name: &str,
) -> Result<&'b [T::Native], EngineError> {
    let column = batch.column_by_name(name).ok_or_else(|| format!("the rows have no column {name}"))?;
    let column = column.as_primitive_opt::<T>().ok_or_else(|| format!("{name} is of another type"))?;
    Ok(column.values())
}
