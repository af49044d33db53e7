//! Plain blobs: the blocks that a table would make of the same rows, written as values without any index.

use super::{IN_FLIGHT, Written, fresh_table, session};
use crate::peers::EngineError;
use atoll_store::{Buffer, PartitionQuery, Projection, Read, ScanRequest, Store};
use futures::{StreamExt, TryStreamExt, stream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Smaller values are not blocks but metadata.
const BLOCK_BYTES_MIN: u64 = 4 << 10;
/// Larger blobs are split over several rows: Cassandra advises values of at most a megabyte.
const PIECE_BYTES: usize = 1 << 20;

/// How many makers of blocks share the steps.
const MAKERS: usize = 4;

/// Makes blocks of the rows in an Arrow file and writes them into a new table `blobs`, 64 in flight.
pub async fn load(contacts: &str, keyspace: &str, rows: &Path, out: &Path) -> Result<(), EngineError> {
    let session = session(contacts).await?;
    let columns = "id int, piece int, data blob, PRIMARY KEY ((id, piece))";
    fresh_table(&session, keyspace, "blobs", columns).await?;
    let mut insert =
        session.prepare(format!("INSERT INTO {keyspace}.blobs (id, piece, data) VALUES (?, ?, ?)")).await?;
    insert.set_is_idempotent(true);
    // In memory, where everything around the blocks costs next to nothing.
    let store = crate::counts::open(Path::new("mem:")).await?;
    let started = Instant::now();
    let file = crate::counts::Rows::open(rows)?;
    crate::counts::write_into(&store, "blocks", file, None, MAKERS).await?;
    let made_seconds = started.elapsed().as_secs_f64();
    let blocks = blocks(&store).await?;
    store.close().await?;
    let pieces = blocks.iter().enumerate().flat_map(|(id, block)| {
        block
            .as_ref()
            .chunks(PIECE_BYTES)
            .enumerate()
            .map(move |(piece, data)| (id as i32, piece as i32, data))
    });
    let (session, insert) = (&session, &insert);
    let started = Instant::now();
    stream::iter(pieces)
        .map(|row| async move { session.execute_unpaged(insert, row).await.map(drop) })
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    let seconds = made_seconds + started.elapsed().as_secs_f64();
    let bytes = blocks.iter().map(|block| block.len() as u64).sum();
    Written { count: blocks.len() as u64, bytes, seconds, made_seconds }.keep(out)
}

/// Every large value of the store.
async fn blocks(store: &Arc<dyn Store>) -> Result<Vec<Buffer>, EngineError> {
    let mut reads = Vec::new();
    let mut query = PartitionQuery::prefix("");
    loop {
        let page = store.partition_keys(query.clone()).await?;
        for partition in page.partitions {
            let mut request =
                ScanRequest { projection: Projection::KeysOnly, ..ScanRequest::all(partition.clone()) };
            loop {
                let entries = store.scan(request.clone()).await?;
                let large = entries.entries.iter().filter(|entry| entry.value_bytes >= BLOCK_BYTES_MIN);
                reads.extend(large.map(|entry| Read::new(partition.clone(), entry.sort.clone())));
                let Some(resume) = entries.resume else { break };
                request.resume = Some(resume);
            }
        }
        let Some(resume) = page.resume else { break };
        query.resume = Some(resume);
    }
    let answers: Vec<_> = store.get_many(reads).collect().await;
    let mut blocks = Vec::with_capacity(answers.len());
    for (_, answer) in answers {
        blocks.extend(answer?);
    }
    Ok(blocks)
}
