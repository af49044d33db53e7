//! The processes: each has a handle of its own, acts by its kind for a while, and ends; or it is dropped at
//! any point.

use crate::ask::ask;
use crate::conditions::Condition;
use crate::line::turn;
use crate::packs::some_options;
use crate::particles::{batch, said_of};
use crate::truth::Scope;
use crate::world::{Hand, World, charge};
use arrow_array::RecordBatch;
use atoll_store::{Cell, Outcome, PartitionQuery, ScanRequest, SortRange, Store, WriteOptions};
use atoll_tables::protocol::{BlockId, EditError, Version};
use atoll_tables::{Table, TableError, WholeStep};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The runs.
pub const RUNS: [&str; 3] = ["left", "right", "top"];

/// The most attempts at an operation that may have become true.
const TRIES_MAX: usize = 40;

/// Another attempt has taken over the run.
struct TakenOver;

/// Opens the table with a cold handle.
pub async fn open(hand: &Hand) -> Table {
    Table::open(Arc::clone(&hand.store), "run").await.unwrap()
}

/// Writes some steps of a run, in a new attempt or in one that an earlier process began.
pub async fn write(hand: Hand, mut random: Rng, run: &'static str) {
    let (world, table) = (Arc::clone(&hand.world), open(&hand).await);
    let known = world.now_true().attempt(run);
    let begun = match known.filter(|_| random.bool()) {
        Some(known) => Ok(known),
        None => begin(&world, &table, &mut random, run).await,
    };
    let Ok((attempt, ranks)) = begun else { return };
    let mut step = first_step(&world, &mut random, run, attempt);
    for _ in 0..random.usize(1..7) {
        let steps = step..step + random.u64(1..3);
        step = steps.end;
        let blocks: Vec<BlockId> = steps
            .flat_map(|step| (0..ranks).map(move |rank| BlockId { run: run.into(), attempt, step, rank }))
            .collect();
        if append_some(&world, &table, &mut random, blocks).await.is_err() {
            return;
        }
        append_again(&world, &table, &mut random, run, attempt).await;
        if random.u8(..16) == 0 {
            ask(&world, &table, &mut random).await;
        }
    }
}

/// The step to continue with. An attempt that has begun continues after its last step, or repeats some; a new
/// one starts where an old one was, or after it.
fn first_step(world: &World, random: &mut Rng, run: &str, attempt: u64) -> u64 {
    let steps: BTreeSet<u64> = world.accepted_of(run, attempt).iter().map(|id| id.step).collect();
    match (steps.first(), steps.last()) {
        (Some(&first), Some(&last)) => random.u64(last.saturating_sub(2).max(first)..=last),
        _ => random.u64(..=world.now_true().last(run).map_or(0, |last| last + 1)),
    }
}

async fn begin(world: &World, table: &Table, random: &mut Rng, run: &str) -> Result<(u64, u32), TakenOver> {
    let ranks = random.u32(1..4);
    for _ in 0..TRIES_MAX {
        let before = world.now_true().attempt(run).map_or(0, |(attempt, _)| attempt);
        let begun = if random.bool() {
            table.begin_next(run, ranks).await
        } else {
            table.begin(run, before + 1, ranks).await.map(|_| before + 1)
        };
        match begun {
            Ok(attempt) => {
                let (now, _) = world.now_true().attempt(run).expect("a run that began");
                assert!(attempt > before && now >= attempt, "attempt {attempt} began, and {now} is the last");
                return Ok((attempt, ranks));
            }
            Err(error) if error.outcome() == Outcome::Unknown => {}
            Err(TableError::Edit(_)) => return Err(TakenOver),
            Err(error) => panic!("begin: {error} ({error:?})"),
        }
    }
    Err(TakenOver)
}

/// Appends blocks, which are in the order of their steps: one by one, all at once, or in one edit.
async fn append_some(
    world: &World,
    table: &Table,
    random: &mut Rng,
    mut blocks: Vec<BlockId>,
) -> Result<(), TakenOver> {
    if random.u8(..4) == 0 {
        // The ranks of a step come in any order.
        blocks.sort_by_key(|id| (id.step, id.rank.wrapping_mul(2_654_435_761)));
    }
    match random.u8(..4) {
        0 => {}
        3 => {
            // Sometimes a rank has begun when others come with all of a later step.
            let (first, is_behind) = (blocks[0].clone(), random.u8(..4) == 0);
            if is_behind {
                judge_refusal(append_once(world, table, &first).await.err());
            }
            let whole = blocks.iter().filter(|id| !is_behind || id.step > first.step).cloned();
            load(world, table, random, &whole.collect::<Vec<_>>()).await;
        }
        1 => {
            let appends = blocks.iter().map(|id| append_once(world, table, id));
            let outcomes = futures::future::join_all(appends).await;
            outcomes.into_iter().for_each(|outcome| judge_refusal(outcome.err()));
        }
        _ => {
            judge_refusal(append_together(world, table, &blocks).await.err());
        }
    }
    // Blocks that were refused, or whose outcome is unknown, are appended again, like all others.
    for id in &blocks {
        append(world, table, id).await?;
    }
    Ok(())
}

/// Accepts only errors that trouble and other writers can cause.
fn judge_refusal(error: Option<TableError>) {
    match error {
        None | Some(TableError::Edit(_) | TableError::Behind { .. } | TableError::Fenced { .. }) => {}
        Some(error) if error.outcome() == Outcome::Unknown => {}
        Some(error) => panic!("append: {error} ({error:?})"),
    }
}

async fn append_together(world: &World, table: &Table, ids: &[BlockId]) -> Result<(), TableError> {
    let mut blocks = Vec::new();
    for id in ids {
        blocks.push((id.clone(), None, batch_of(world, table, id).await?));
    }
    table.append_all(&blocks).await.map(drop)
}

/// Loads all ranks' rows of some steps of one attempt. An acknowledged load must be true, and a refused one
/// against the rules.
async fn load(world: &World, table: &Table, random: &mut Rng, ids: &[BlockId]) {
    let Some(BlockId { run, attempt, .. }) = ids.first().cloned() else { return };
    let mut of_steps: BTreeMap<u64, Vec<BlockId>> = BTreeMap::new();
    ids.iter().for_each(|id| of_steps.entry(id.step).or_default().push(id.clone()));
    let mut steps = Vec::new();
    for (step, mut ranks) in of_steps {
        ranks.sort();
        match step_of(world, table, &ranks).await {
            Ok(rows) => steps.push(WholeStep { step, time: None, rows }),
            Err(error) => return judge_refusal(Some(error)),
        }
    }
    let before = world.head();
    match table.load(&run.0, attempt, &steps, &some_options(random, 300)).await {
        Ok(version) => {
            let late = ids.iter().find(|id| world.accepted(id).is_none_or(|accepted| accepted > version));
            assert!(late.is_none(), "{late:?} was loaded in {version:?}, and is not there");
        }
        Err(TableError::Edit(error @ (EditError::StepOrder { .. } | EditError::StepArriving { .. }))) => {
            // A step that was arriving may be complete by now.
            assert!(world.was_in_the_way_since(ids, before), "a load of {ids:?} was refused: {error}");
        }
        Err(error) => judge_refusal(Some(error)),
    }
}

/// The rows of all ranks of a step.
async fn step_of(world: &World, table: &Table, ranks: &[BlockId]) -> Result<RecordBatch, TableError> {
    let charged = ranks.iter().find(|id| world.is_charged(id));
    let widest = batch_of(world, table, charged.unwrap_or(&ranks[0])).await?;
    let rows: Vec<_> = ranks.iter().flat_map(|id| world.rows_of(id).to_vec()).collect();
    let is_wide = widest.num_columns() > world.schema.columns().fields().len();
    Ok(batch(if is_wide { &world.widened } else { &world.schema }, &rows))
}

/// The rows of a block. A writer with values in the added column adds the column; others write without it, or
/// with it once it exists.
async fn batch_of(world: &World, table: &Table, id: &BlockId) -> Result<RecordBatch, TableError> {
    let rows = world.rows_of(id);
    if world.is_charged(id) {
        let version = table.add_column(charge().as_ref().clone()).await?;
        let there = world.schema_at(version).columns();
        assert!(there.column_with_name("charge").is_some(), "no column in {version:?}");
        return Ok(batch(&world.widened, &rows));
    }
    let is_wide = world.draw(|random| random.bool());
    Ok(batch(if is_wide { world.schema_at(world.head()) } else { &world.schema }, &rows))
}

/// Appends a block once; an acknowledged append must be true.
async fn append_once(world: &World, table: &Table, id: &BlockId) -> Result<Version, TableError> {
    let rows = batch_of(world, table, id).await?;
    let version = table.append(id.clone(), &rows).await?;
    let accepted = world.accepted(id);
    assert!(
        accepted.is_some_and(|accepted| accepted <= version),
        "{id:?} was acknowledged in {version:?} and became true in {accepted:?}"
    );
    Ok(version)
}

/// Appends a block until it is there, or until another attempt has taken over.
async fn append(world: &World, table: &Table, id: &BlockId) -> Result<(), TakenOver> {
    for _ in 0..TRIES_MAX {
        let before = world.head();
        match append_once(world, table, id).await {
            Ok(_) => return Ok(()),
            Err(TableError::Edit(error @ EditError::RepeatedIds { .. })) => {
                assert!(
                    world.was_repeated_since(id, before),
                    "{id:?} was refused and repeats nothing: {error}"
                );
                return Err(TakenOver);
            }
            Err(TableError::Edit(error)) => {
                assert!(!world.now_true().admits(id), "{id:?} was refused: {error}");
                return Err(TakenOver);
            }
            Err(error) => judge_refusal(Some(error)),
        }
    }
    Err(TakenOver)
}

/// Appends a block again that is there, or one that an older attempt wrote.
async fn append_again(world: &World, table: &Table, random: &mut Rng, run: &str, attempt: u64) {
    let attempt = if random.u8(..4) == 0 { attempt.saturating_sub(1) } else { attempt };
    if let Some(id) = random.choice(world.accepted_of(run, attempt)).filter(|_| random.bool()) {
        judge_refusal(append_once(world, table, &id).await.err());
    }
}

/// Packs a few times, in random ways.
pub async fn pack(hand: Hand, mut random: Rng) {
    let table = open(&hand).await;
    for _ in 0..random.usize(1..4) {
        match table.pack(&some_options(&mut random, 300)).await {
            Ok(_) | Err(TableError::Edit(EditError::InputGone { .. }) | TableError::Fenced { .. }) => {}
            Err(error) if error.outcome() == Outcome::Unknown => {}
            Err(error) => panic!("pack: {error} ({error:?})"),
        }
        if random.u8(..4) == 0 {
            ask(&hand.world, &table, &mut random).await;
        }
    }
}

/// Deletes something.
pub async fn delete(hand: Hand, mut random: Rng) {
    let table = open(&hand).await;
    for _ in 0..random.usize(1..3) {
        let run = random.choice(hand.world.now_true().runs()).filter(|_| random.u8(..3) > 0);
        let from = random.u64(..10);
        let steps = random.bool().then(|| from..from + random.u64(1..4));
        let depth = random.usize(..3);
        let is_all = steps.is_some() && random.u8(..3) == 0;
        let has_charge = hand.world.schema_at(hand.world.head()) == &hand.world.widened;
        let condition = (!is_all).then(|| match random.u8(..4) {
            0 if has_charge => Condition::of_charge(&mut random),
            _ => Condition::any(&mut random, depth),
        });
        let condition = condition.map(Arc::new);
        let text = condition.as_ref().map(|condition| said_of(&hand.world.schema, &condition.text));
        let deed = hand.world.deed(Scope { run: run.clone(), steps: steps.clone(), condition });
        *hand.deed.lock().unwrap() = Some(Arc::clone(&deed));
        match table.delete(run.as_deref(), steps, text.as_deref()).await {
            Ok(version) => {
                let done = hand.world.done(deed.number);
                assert_eq!(done, Some(version), "a delete was acknowledged in another version");
            }
            Err(error) if error.outcome() == Outcome::Unknown => {}
            Err(error) => panic!("delete: {error} ({error:?})"),
        }
        if random.u8(..3) == 0 {
            ask(&hand.world, &table, &mut random).await;
        }
    }
}

/// Asks queries, with a handle that starts cold.
pub async fn read(hand: Hand, mut random: Rng) {
    let table = open(&hand).await;
    for _ in 0..random.usize(1..6) {
        ask(&hand.world, &table, &mut random).await;
    }
}

/// Treats sessions as a vacuum treats expired ones: ends some, whether their processes live or not, and then
/// removes objects of ended sessions that no version names.
pub async fn sweep(hand: Hand, mut random: Rng) {
    let world = &hand.world;
    let Some(manifest) = world.manifest() else { return };
    for session in sessions(world, &manifest).await {
        if random.u8(..3) == 0 {
            let key = [b"s".as_slice(), &session].concat();
            world.store.delete(Cell::new(&manifest, &key), WriteOptions::default()).await.unwrap();
            turn().await;
        }
    }
    let prefix = [&manifest[..manifest.len() - 1], b"o/"].concat();
    let listed =
        world.store.partition_keys(PartitionQuery { limit: 10_000, ..PartitionQuery::prefix(prefix) });
    let listed = listed.await.unwrap().partitions;
    turn().await;
    // Lists objects before it looks which sessions stand.
    let standing = sessions(world, &manifest).await;
    for object in listed {
        let name = &object[manifest.len() + 1..];
        let (session, number) = name.split_at(16);
        let number = u64::from_be_bytes(number.try_into().unwrap());
        let hex: String = session.iter().map(|byte| format!("{byte:02x}")).collect();
        if !standing.contains(session) && !world.names(&hex, number) {
            world.store.delete_partition(&object, WriteOptions::default()).await.unwrap();
            turn().await;
        }
    }
}

/// Removes what only older versions need.
pub async fn vacuum(hand: Hand) {
    let table = open(&hand).await;
    match table.vacuum().await {
        Ok(_) => {}
        Err(error) if error.outcome() == Outcome::Unknown => {}
        Err(error) => panic!("vacuum: {error} ({error:?})"),
    }
}

/// Creates a snapshot, or deletes one.
pub async fn keep(hand: Hand, mut random: Rng, name: &'static str) {
    let (world, table) = (&hand.world, open(&hand).await);
    if world.kept().iter().any(|(kept, _)| *kept == name) {
        world.keep(name, None);
        table.delete_snapshot(name).await.unwrap();
        return;
    }
    let version = random.bool().then(|| Version(random.u64(..=world.head().0)));
    match table.create_snapshot(name, version).await {
        Ok(kept) => {
            assert!(version.is_none_or(|version| version == kept));
            world.keep(name, Some(kept));
        }
        Err(TableError::VersionGone { .. }) if version.is_some_and(|version| world.is_gone(version)) => {}
        // The process that created it vanished before it could report so.
        Err(error) if error.kind() == atoll_store::ErrorKind::Conflict => {}
        Err(error) => panic!("snapshot: {error} ({error:?})"),
    }
}

/// The sessions that stand.
async fn sessions(world: &World, manifest: &[u8]) -> BTreeSet<Vec<u8>> {
    let request = ScanRequest { range: SortRange::prefix(b"s"), ..ScanRequest::all(manifest) };
    let page = world.store.scan(request).await.unwrap();
    page.entries.into_iter().map(|entry| entry.sort[1..].to_vec()).collect()
}
