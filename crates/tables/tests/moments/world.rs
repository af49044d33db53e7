//! The world: one store, what became true in it, and when.
//!
//! Every write that changes the head of the table is observed when it is carried out, whatever process sent
//! it and however late it arrives. The truth of each version follows by the rules for rows, runs and steps
//! alone ([`Truth`]): the edit tells which blocks it names, and the process that asked for a delete tells
//! what it strikes.

use crate::actors::RUNS;
use crate::line::Line;
use crate::particles::{Particle, some};
use crate::truth::{Rows, Scope, Truth};
use arrow_schema::{DataType, Field};
use atoll_conformance::Relayed;
use atoll_memory::MemoryStore;
use atoll_store::{Batch, Mutation, Store, StoreError, Timestamp, WriteOptions, Written};
use atoll_tables::protocol::{BlockId, Version};
use atoll_tables::{TableSchema, column};
use fastrand::Rng;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Most blocks have fewer rows than this.
const ROWS_MAX: i64 = 60;

/// A delete that a process asked for.
pub struct Deed {
    pub number: u64,
    pub scope: Scope,
}

/// A write that will be carried out late.
type LateWrite = (Batch, WriteOptions, Option<Arc<Deed>>);

/// The store and what became true in it.
pub struct World {
    pub store: MemoryStore,
    /// The schema as created, and the schema with the added column.
    pub schema: TableSchema,
    pub widened: TableSchema,
    /// The first step whose blocks may have that column; `None` if it is never added.
    charged_from: Option<u64>,
    seed: u64,
    /// The difference between the column of the step and the step.
    shift: i64,
    known: Mutex<Known>,
}

struct Known {
    random: Rng,
    clock_ns: u64,
    /// The truth of each version.
    history: Vec<Truth>,
    rows: HashMap<BlockId, Rows>,
    /// The version in which a block first became true.
    accepted: BTreeMap<BlockId, Version>,
    /// The version in which a delete became true.
    done: BTreeMap<u64, Version>,
    deeds: u64,
    /// The first version that has the added column.
    has_charge: Option<Version>,
    /// Objects that some version named, by session and number.
    named: BTreeSet<(String, u64)>,
    late: Vec<LateWrite>,
    manifest: Option<Vec<u8>>,
    /// Older versions cannot be read, unless a snapshot keeps them.
    floor: Version,
    /// Snapshots that are known to exist.
    kept: BTreeMap<&'static str, Version>,
    queries: u64,
}

/// The column that is added later.
pub fn charge() -> Arc<Field> {
    column("charge", DataType::Float32, true)
}

/// The view that one process has of the world.
#[derive(Clone)]
pub struct Hand {
    pub world: Arc<World>,
    pub store: Arc<dyn Store>,
    pub deed: Arc<Mutex<Option<Arc<Deed>>>>,
}

impl World {
    pub fn new(seed: u64, schema: TableSchema) -> Arc<Self> {
        let mut random = Rng::with_seed(seed);
        let shift = i64::from(random.u8(..3) == 0);
        let charged_from = (random.u8(..4) > 0).then(|| random.u64(..8));
        let widened = schema.with_added([charge()]).unwrap();
        let known = Known {
            random,
            clock_ns: 1 << 60,
            history: vec![Truth::default()],
            rows: HashMap::new(),
            accepted: BTreeMap::new(),
            done: BTreeMap::new(),
            deeds: 0,
            has_charge: None,
            named: BTreeSet::new(),
            late: Vec::new(),
            manifest: None,
            floor: Version::EMPTY,
            kept: BTreeMap::new(),
            queries: 0,
        };
        let (store, known) = (MemoryStore::new(), Mutex::new(known));
        Arc::new(Self { store, schema, widened, charged_from, seed, shift, known })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    /// A process with a connection of its own.
    pub fn hand(self: &Arc<Self>, trouble: u32) -> Hand {
        let deed = Arc::new(Mutex::new(None));
        let line = Line { world: Arc::clone(self), trouble, deed: Arc::clone(&deed) };
        Hand { world: Arc::clone(self), store: Arc::new(Relayed(line)), deed }
    }

    /// Draws from the random numbers of the episode.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.known().random)
    }

    /// The clock. Sometimes it jumps ahead so far that sessions have to be renewed.
    pub fn now(&self) -> Timestamp {
        let mut known = self.known();
        let ahead_s = if known.random.u8(..40) == 0 { 1500 } else { 0 };
        known.clock_ns += 1_000_000 + ahead_s * 1_000_000_000;
        Timestamp(known.clock_ns)
    }

    /// Advances the clock.
    pub fn pass(&self, time: Duration) {
        self.known().clock_ns += time.as_nanos() as u64;
    }

    /// The current version.
    pub fn head(&self) -> Version {
        Version(self.known().history.len() as u64 - 1)
    }

    /// The truth of a version.
    pub fn truth(&self, version: Version) -> Truth {
        self.known().history[version.0 as usize].clone()
    }

    /// The truth of the current version.
    pub fn now_true(&self) -> Truth {
        self.truth(self.head())
    }

    /// The version in which a block became true.
    pub fn accepted(&self, id: &BlockId) -> Option<Version> {
        self.known().accepted.get(id).copied()
    }

    /// Whether a block would have repeated ids in some version since `version`.
    pub fn was_repeated_since(&self, id: &BlockId, version: Version) -> bool {
        let rows = self.rows_of(id);
        let known = self.known();
        let mut since = known.history[version.0 as usize..].iter();
        since.any(|truth| truth.repeated(&[(id.clone(), Arc::clone(&rows))]).is_some())
    }

    /// Whether the rules refused a load of these blocks in some version since `version`.
    pub fn was_in_the_way_since(&self, ids: &[BlockId], version: Version) -> bool {
        self.known().history[version.0 as usize..].iter().any(|truth| !truth.admits_load(ids))
    }

    /// The blocks of an attempt that became true.
    pub fn accepted_of(&self, run: &str, attempt: u64) -> Vec<BlockId> {
        let known = self.known();
        let of_attempt = known.accepted.keys().filter(|id| &*id.run.0 == run && id.attempt == attempt);
        of_attempt.cloned().collect()
    }

    /// The version in which a delete became true.
    pub fn done(&self, deed: u64) -> Option<Version> {
        self.known().done.get(&deed).copied()
    }

    /// A new delete.
    pub fn deed(&self, scope: Scope) -> Arc<Deed> {
        let mut known = self.known();
        known.deeds += 1;
        Arc::new(Deed { number: known.deeds, scope })
    }

    /// Whether some version names an object.
    pub fn names(&self, session: &str, number: u64) -> bool {
        self.known().named.contains(&(session.to_owned(), number))
    }

    /// Whether a version may be gone, as far as is known.
    pub fn is_gone(&self, version: Version) -> bool {
        let known = self.known();
        version < known.floor && !known.kept.values().any(|kept| *kept == version)
    }

    /// Records that a snapshot surely exists, or may not exist any more.
    pub fn keep(&self, name: &'static str, version: Option<Version>) {
        let mut known = self.known();
        match version {
            Some(version) => known.kept.insert(name, version),
            None => known.kept.remove(name),
        };
    }

    /// Snapshots that surely exist.
    pub fn kept(&self) -> Vec<(&'static str, Version)> {
        self.known().kept.iter().map(|(name, version)| (*name, *version)).collect()
    }

    /// The partition of the manifest, once it has been written.
    pub fn manifest(&self) -> Option<Vec<u8>> {
        self.known().manifest.clone()
    }

    /// The schema of a version.
    pub fn schema_at(&self, version: Version) -> &TableSchema {
        let has_charge = self.known().has_charge.is_some_and(|from| from <= version);
        if has_charge { &self.widened } else { &self.schema }
    }

    /// Whether the rows of a block have values in the added column.
    pub fn is_charged(&self, id: &BlockId) -> bool {
        self.charged_from.is_some_and(|from| id.step >= from)
            && !(id.step + u64::from(id.rank)).is_multiple_of(3)
    }

    /// Counts a query.
    pub fn count_query(&self) {
        self.known().queries += 1;
    }

    /// The number of judged queries.
    pub fn queries(&self) -> u64 {
        self.known().queries
    }

    /// The rows of a block, always the same.
    pub fn rows_of(&self, id: &BlockId) -> Rows {
        if let Some(rows) = self.known().rows.get(id) {
            return Arc::clone(rows);
        }
        let mut hasher = DefaultHasher::new();
        (self.seed, id).hash(&mut hasher);
        let mut random = Rng::with_seed(hasher.finish());
        let count = match random.u8(..20) {
            0 | 1 => 0,
            2 => random.i64(0..ROWS_MAX * 12),
            _ => random.i64(0..ROWS_MAX),
        };
        let run = RUNS.iter().position(|run| *run == &*id.run.0).unwrap_or(RUNS.len());
        // With unique ids, some rows use an id that another rank or an earlier step may have.
        let (rank, step) = match if self.schema.has_unique_ids() { random.u8(..24) } else { 24 } {
            0 => (id.rank.saturating_sub(1), id.step),
            1 => (id.rank, id.step.saturating_sub(random.u64(1..4))),
            _ => (id.rank, id.step),
        };
        let first = run as i64 * 1_000_000 + i64::from(rank) * 100_000;
        let mut rows = some(&mut random, &self.schema, step as i64 + self.shift, first..first + count);
        if self.is_charged(id) {
            rows.iter_mut().for_each(|row| row.charge = (random.u8(..4) > 0).then(|| random.f32()));
        }
        let rows: Rows = rows.into();
        self.known().rows.insert(id.clone(), Arc::clone(&rows));
        rows
    }

    /// Carries out a write and records what became true by it.
    pub async fn carry_out(
        &self,
        batch: Batch,
        options: WriteOptions,
        deed: Option<Arc<Deed>>,
    ) -> Result<Written, StoreError> {
        let copy = batch.clone();
        let written = self.store.write(batch, options).await;
        if written.is_ok() && copy.partition.ends_with(b"/m") {
            self.learn(&copy, deed.as_deref());
        }
        written
    }

    /// Stores a write that will be carried out later.
    pub fn delay(&self, batch: Batch, options: WriteOptions, deed: Option<Arc<Deed>>) {
        self.known().late.push((batch, options, deed));
    }

    /// Carries out one of the late writes.
    pub async fn catch_up(&self, random: &mut Rng) {
        let late = {
            let mut known = self.known();
            let count = known.late.len();
            (count > 0).then(|| known.late.swap_remove(random.usize(..count)))
        };
        if let Some((batch, options, deed)) = late {
            // No process hears of it.
            self.carry_out(batch, options, deed).await.ok();
        }
    }

    /// The number of late writes.
    pub fn late(&self) -> usize {
        self.known().late.len()
    }

    fn learn(&self, batch: &Batch, deed: Option<&Deed>) {
        let put = |mutation: &Mutation| match mutation {
            Mutation::Put(sort, value) if sort.first() == Some(&b'e') => Some((sort.to_vec(), value.clone())),
            _ => None,
        };
        self.known().manifest = Some(batch.partition.to_vec());
        let Some((sort, text)) = batch.mutations.iter().find_map(put) else { return };
        let version = Version(u64::from_be_bytes(sort[1..].try_into().unwrap()));
        let edit: Value = serde_json::from_slice(&text).unwrap();
        let mut truth = self.now_true();
        assert_eq!(version, self.head().next(), "a version was made twice, or one is missing");
        self.apply(&mut truth, version, &edit["edit"], deed);
        let mut known = self.known();
        name_objects(&edit["edit"], &mut known.named);
        known.history.push(truth);
    }

    /// Records that blocks became true in one edit.
    fn append(&self, truth: &mut Truth, version: Version, ids: &[BlockId]) {
        let blocks: Vec<(BlockId, Rows)> = ids.iter().map(|id| (id.clone(), self.rows_of(id))).collect();
        if self.schema.has_unique_ids() {
            let repeated = truth.repeated(&blocks);
            assert!(repeated.is_none(), "an id is there twice in version {version:?}: {repeated:?}");
        }
        for (id, rows) in blocks {
            truth.append(&id, rows);
            self.known().accepted.entry(id).or_insert(version);
        }
    }

    fn apply(&self, truth: &mut Truth, version: Version, edit: &Value, deed: Option<&Deed>) {
        let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
        if let Some(begin) = edit.get("begin") {
            let ranks = number(begin, "ranks") as u32;
            truth.begin(begin["run"].as_str().unwrap(), number(begin, "attempt"), ranks);
        } else if let Some(append) = edit.get("append") {
            let id = |block: &Value| BlockId {
                run: block["run"].as_str().unwrap().into(),
                attempt: number(block, "attempt"),
                step: number(block, "step"),
                rank: number(block, "rank") as u32,
            };
            let ids: Vec<BlockId> = append["blocks"].as_array().unwrap().iter().map(id).collect();
            self.append(truth, version, &ids);
        } else if let Some(load) = edit.get("load") {
            let (run, attempt) = (load["run"].as_str().unwrap(), number(load, "attempt"));
            let (_, ranks) = truth.attempt(run).expect("a run that nobody began");
            for step in load["steps"].as_array().unwrap() {
                let step = number(step, "step");
                let id = |rank| BlockId { run: run.into(), attempt, step, rank };
                let ids: Vec<BlockId> = (0..ranks).map(id).collect();
                assert!(truth.admits_load(&ids), "{ids:?} were loaded and must not be");
                self.append(truth, version, &ids);
            }
        } else if edit.get("add-column").is_some() {
            let before = self.known().has_charge.replace(version);
            assert!(before.is_none(), "the column came in {before:?} and in {version:?}");
        } else if let Some(raise) = edit.get("raise-floor") {
            self.known().floor = Version(number(raise, "to"));
        } else if edit.get("delete").is_some() {
            let deed = deed.expect("a delete that nobody asked for");
            let twice = self.known().done.insert(deed.number, version);
            assert!(twice.is_none(), "one delete became true in {twice:?} and in {version:?}");
            truth.delete(&deed.scope);
        }
    }
}

/// Collects every object that an edit names.
fn name_objects(edit: &Value, named: &mut BTreeSet<(String, u64)>) {
    match edit {
        Value::Object(fields) => {
            if let Some(object) = fields.get("object").and_then(Value::as_array) {
                let session = object[0].as_str().unwrap().to_owned();
                named.insert((session, object[1].as_u64().unwrap()));
            }
            fields.values().for_each(|value| name_objects(value, named));
        }
        Value::Array(values) => values.iter().for_each(|value| name_objects(value, named)),
        _ => {}
    }
}

/// Rows that are visible, for windows cut at the weight of one of them.
pub fn some_rows(world: &World) -> Vec<Particle> {
    world.now_true().rows(false)
}
