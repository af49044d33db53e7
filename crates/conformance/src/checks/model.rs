//! Random operations in sequence, compared with a plain map after each.

use crate::context::{Client, Context, Verdict, same};
use atoll_store::{
    Batch, Buffer, Cell, Condition, Conflict, Direction, Mutation, ScanRequest, SortRange, StoreError, WriteOptions,
};
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>;

const PARTITIONS: [&[u8]; 4] = [b"a", b"a\0", b"aa", b"\xff"];
const SORTS: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"aa", b"b", b"\xff", b"\xff\xff"];

pub(super) async fn random_operations_match_the_model(context: &Context<'_>) -> Verdict {
    for round in 0..context.size.of(4, 100) {
        let client = context.open().await?;
        let mut random = context.random(round);
        let mut model = Model::new();
        for step in 0..context.size.of(250, 1000) {
            let what = format!("round {round}, step {step}");
            match random.u8(0..10) {
                0..=5 => write(&client, &mut model, &mut random, &what).await?,
                6..=7 => read(&client, &model, &mut random, &what).await?,
                _ => scan(&client, &model, &mut random, &what).await?,
            }
        }
    }
    Ok(())
}

fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = random.choice([0, 1, 2, 63, 64, 65, 300]).unwrap_or(0);
    vec![random.u8(b'a'..b'e'); len]
}

fn range(random: &mut fastrand::Rng) -> SortRange {
    let mut bound = || match (random.u8(0..3), SORTS[random.usize(0..SORTS.len())].to_vec()) {
        (0, _) => Bound::Unbounded,
        (1, sort) => Bound::Included(sort),
        (_, sort) => Bound::Excluded(sort),
    };
    SortRange { from: bound(), to: bound() }
}

fn batch(model: &Model, random: &mut fastrand::Rng) -> Batch {
    let mut batch = Batch::on(PARTITIONS[random.usize(0..PARTITIONS.len())]);
    let sort = |random: &mut fastrand::Rng| SORTS[random.usize(0..SORTS.len())].to_vec();
    for _ in 0..random.usize(0..3) {
        let sort = sort(random);
        let current = model.get(&(batch.partition.clone(), sort.clone())).cloned();
        // Mostly the current value, so that batches with conditions often apply.
        let expected = if random.u8(0..4) > 0 { current } else { Some(value(random)) };
        batch = batch.if_is(sort, expected);
    }
    for _ in 0..random.usize(1..4) {
        batch = match random.u8(0..8) {
            0..=2 => batch.put(sort(random), value(random)),
            3..=4 => batch.append(sort(random), value(random)),
            5..=6 => batch.delete(sort(random)),
            _ => batch.delete_range(range(random)),
        };
    }
    batch
}

fn apply(model: &mut Model, batch: &Batch) -> Result<(), Conflict> {
    let key = |sort: &[u8]| (batch.partition.clone(), sort.to_vec());
    for (at, condition) in batch.conditions.iter().enumerate() {
        let actual = model.get(&key(condition.sort())).map(|value| Buffer::copy_from(value));
        let holds = match condition {
            Condition::Absent(_) => actual.is_none(),
            Condition::Equals(_, expected) => actual.as_ref() == Some(expected),
        };
        if !holds {
            return Err(Conflict::new(at, condition.sort().to_vec(), actual.as_ref()));
        }
    }
    for mutation in &batch.mutations {
        match mutation {
            Mutation::Put(sort, value) => drop(model.insert(key(sort), value.to_vec())),
            Mutation::Append(sort, bytes) => model.entry(key(sort)).or_default().extend_from_slice(bytes),
            Mutation::Delete(sort) => drop(model.remove(&key(sort))),
            Mutation::DeleteRange(range) => {
                model.retain(|(partition, sort), _| *partition != batch.partition || !range.contains(sort));
            }
        }
    }
    Ok(())
}

async fn write(client: &Client, model: &mut Model, random: &mut fastrand::Rng, what: &str) -> Verdict {
    let batch = batch(model, random);
    let found = match client.store.write(batch.clone(), WriteOptions::default()).await {
        Ok(_) => Ok(()),
        Err(StoreError::Conflict(conflict)) => Err(*conflict),
        Err(error) => return Err(error.into()),
    };
    same(format!("{what}: outcome of {batch:?}"), &found, &apply(model, &batch))
}

async fn read(client: &Client, model: &Model, random: &mut fastrand::Rng, what: &str) -> Verdict {
    let partition = PARTITIONS[random.usize(0..PARTITIONS.len())];
    let sort = SORTS[random.usize(0..SORTS.len())];
    let cell = Cell::new(partition, sort);
    let expected = model.get(&(partition.to_vec(), sort.to_vec())).cloned();
    same(format!("{what}: get of {cell:?}"), &client.get(partition, sort).await?, &expected)
}

async fn scan(client: &Client, model: &Model, random: &mut fastrand::Rng, what: &str) -> Verdict {
    let partition = PARTITIONS[random.usize(0..PARTITIONS.len())];
    let direction = if random.bool() { Direction::Forward } else { Direction::Backward };
    let range = range(random);
    let request = ScanRequest {
        range: range.clone(),
        direction,
        limit: random.usize(1..10),
        ..ScanRequest::all(partition)
    };
    let inside = model.iter().filter(|((of, sort), _)| of == partition && range.contains(sort));
    let mut expected: Vec<_> = inside.map(|((_, sort), value)| (sort.clone(), value.clone())).collect();
    if direction == Direction::Backward {
        expected.reverse();
    }
    let found = client.scan(request.clone()).await?;
    let found: Vec<_> = found.into_iter().map(|entry| (entry.sort, entry.value.to_vec())).collect();
    same(format!("{what}: {request:?}"), &found, &expected)
}
