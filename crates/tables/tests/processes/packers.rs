//! A worker that packs again and again, and a vacuum that ends sessions and removes objects that no version
//! names.

use crate::workers::{is_to_be_tried_again, open, plant};
use atoll_conformance::killed::tell;
use atoll_conformance::{Relay, Relayed};
use atoll_embedded::owner::Mode;
use atoll_store::{
    Batch, Buffer, Cell, Condition, Mutation, Outcome, PartitionQuery, ReadOptions, ScanRequest, SortRange,
    Store, StoreError, StoreFuture, WriteOptions, Written,
};
use atoll_tables::cube::Shape;
use atoll_tables::protocol::EditError;
use atoll_tables::{PackOptions, Table, TableError};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Packs all there is, in small trees.
pub async fn pack_on(folder: &Path, seed: u64) {
    let mut store = open(folder, Mode::Write).await.unwrap();
    if plant().as_deref() == Some("stubborn packer") {
        store = Arc::new(Relayed(Stubborn { inner: store, session: Mutex::default() }));
    }
    let table = Table::open(store, "run").await.unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let options = PackOptions {
            shape: Shape { cube_rows: 64, leaf_rows: 128, object_bytes: 4 << 10, ..Shape::default() },
            is_whole: random.u8(..8) == 0,
            rows_min: random.u64(1..200),
            fan: 2,
            ..PackOptions::default()
        };
        match table.pack(&options).await {
            Ok(report) => tell(format_args!("packed {}", report.trees)),
            Err(TableError::Edit(EditError::InputGone { .. })) => tell(format_args!("lost 0")),
            Err(error) if is_to_be_tried_again(&error) => tell(format_args!("maybe 0")),
            Err(error) => panic!("pack: {error} ({error:?})"),
        }
    }
}

/// A connection for a packer that ignores the state of its session: it never looks at it, and never makes it
/// a condition of a write.
struct Stubborn {
    inner: Arc<dyn Store>,
    /// The session's cell, as first written.
    session: Mutex<Option<Buffer>>,
}

fn is_session(partition: &[u8], sort: &[u8]) -> bool {
    partition.ends_with(b"/m") && sort.first() == Some(&b's')
}

impl Relay for Stubborn {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        let session = self.session.lock().unwrap().clone();
        if is_session(cell.partition, cell.sort) && session.is_some() {
            return Box::pin(async { Ok(session) });
        }
        self.inner.get(cell, options)
    }

    fn write(&self, mut batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let partition = batch.partition.clone();
        for mutation in &batch.mutations {
            if let Mutation::Put(sort, value) = mutation
                && is_session(&partition, sort)
            {
                *self.session.lock().unwrap() = Some(value.clone());
            }
        }
        batch.conditions.retain(
            |condition| !matches!(condition, Condition::Equals(sort, _) if is_session(&partition, sort)),
        );
        Box::pin(async move {
            let written = self.inner.write(batch, options).await;
            if !partition.ends_with(b"/m") {
                // It is also slow, as processes that lose their sessions are.
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            written
        })
    }
}

/// Ends a session now and then, and sweeps.
pub async fn sweep_on(folder: &Path, seed: u64) {
    let store = open(folder, Mode::Write).await.unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut named, mut seen) = (BTreeSet::new(), b"e".to_vec());
    loop {
        match sweep(&*store, &mut random, &mut named, &mut seen).await {
            Ok((ended, swept)) => {
                tell(format_args!("ended {ended}"));
                tell(format_args!("swept {swept}"));
            }
            Err(error) if error.outcome() == Outcome::Unknown => tell(format_args!("maybe 0")),
            Err(error) => panic!("sweep: {error} ({error:?})"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Returns how many sessions ended, and how many objects were removed.
async fn sweep(
    store: &dyn Store,
    random: &mut fastrand::Rng,
    named: &mut BTreeSet<Vec<u8>>,
    seen: &mut Vec<u8>,
) -> Result<(u64, u64), StoreError> {
    let keys = partitions(store, b"\0atoll.table/").await?;
    // Without a manifest, nothing has been written yet.
    let Some(manifest) = keys.iter().find(|key| key.ends_with(b"/m")).cloned() else { return Ok((0, 0)) };
    let mut counts = (0, 0);
    let standing = scan(store, &manifest, SortRange::prefix(b"s")).await?;
    let ended = random.choice(&standing).filter(|_| random.bool());
    if let Some((session, _)) = ended {
        store.delete(Cell::new(&manifest, session), WriteOptions::default()).await?;
        counts.0 += 1;
    }
    // Lists the objects first; then looks which sessions stand, and what the versions name by then.
    let prefix = [&manifest[..manifest.len() - 1], b"o/"].concat();
    let objects = partitions(store, &prefix).await?;
    let standing: BTreeSet<Vec<u8>> = scan(store, &manifest, SortRange::prefix(b"s"))
        .await?
        .into_iter()
        .map(|(sort, _)| sort[1..].to_vec())
        .collect();
    for (sort, text) in scan(store, &manifest, SortRange::half_open(seen.clone(), b"f".to_vec())).await? {
        name_objects(&serde_json::from_slice(&text).unwrap(), named);
        *seen = [&sort[..], &[0]].concat();
    }
    for object in objects {
        let name = &object[prefix.len()..];
        if !standing.contains(&name[..16]) && !named.contains(name) {
            store.delete_partition(&object, WriteOptions::default()).await?;
            counts.1 += 1;
        }
    }
    Ok(counts)
}

async fn partitions(store: &dyn Store, prefix: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut query = PartitionQuery::prefix(prefix);
    let mut keys = Vec::new();
    loop {
        let page = store.partition_keys(query.clone()).await?;
        keys.extend(page.partitions);
        query.resume = page.resume;
        if query.resume.is_none() {
            return Ok(keys);
        }
    }
}

async fn scan(
    store: &dyn Store,
    partition: &[u8],
    range: SortRange,
) -> Result<Vec<(Vec<u8>, Buffer)>, StoreError> {
    let mut request = ScanRequest { range, ..ScanRequest::all(partition) };
    let mut entries = Vec::new();
    loop {
        let page = store.scan(request.clone()).await?;
        entries.extend(page.entries.into_iter().map(|entry| (entry.sort, entry.value)));
        request.resume = page.resume;
        if request.resume.is_none() {
            return Ok(entries);
        }
    }
}

/// Collects every object that an edit names.
fn name_objects(edit: &serde_json::Value, named: &mut BTreeSet<Vec<u8>>) {
    if let Some(object) = edit.get("object").and_then(serde_json::Value::as_array) {
        let session = u128::from_str_radix(object[0].as_str().unwrap(), 16).unwrap();
        let number = object[1].as_u64().unwrap();
        named.insert([&session.to_be_bytes()[..], &number.to_be_bytes()].concat());
    }
    match edit {
        serde_json::Value::Object(fields) => fields.values().for_each(|value| name_objects(value, named)),
        serde_json::Value::Array(values) => values.iter().for_each(|value| name_objects(value, named)),
        _ => {}
    }
}
