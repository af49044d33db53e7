//! The world: one store, what became true in it, and when.
//!
//! Every write that changes the head of the table is seen here at the moment it is carried out, whoever sent
//! it and however late it comes. From it follows what is true of each version, by the rules for rows, runs
//! and steps alone ([`Truth`]): which blocks an edit names is read from it, what a delete strikes is known
//! from whoever asked for it.

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

/// Of how many rows a block has fewer, most of the time.
const ROWS_MAX: i64 = 60;

/// A delete that somebody asked for.
pub struct Deed {
    pub number: u64,
    pub scope: Scope,
}

/// A write on its way.
type Late = (Batch, WriteOptions, Option<Arc<Deed>>);

/// The store and what became true in it.
pub struct World {
    pub store: MemoryStore,
    /// As it was made, and with the column that comes later.
    pub schema: TableSchema,
    pub widened: TableSchema,
    /// From which step on blocks may have that column, if ever.
    charged_from: Option<u64>,
    seed: u64,
    /// What the column of the step has more than the step.
    shift: i64,
    known: Mutex<Known>,
}

struct Known {
    random: Rng,
    clock_ns: u64,
    /// What is true of each version.
    history: Vec<Truth>,
    rows: HashMap<BlockId, Rows>,
    /// In which version a block became true first.
    accepted: BTreeMap<BlockId, Version>,
    /// In which version a delete became true.
    done: BTreeMap<u64, Version>,
    deeds: u64,
    /// From which version on the table has the column.
    has_charge: Option<Version>,
    /// Objects that some version named, by session and number.
    named: BTreeSet<(String, u64)>,
    late: Vec<Late>,
    manifest: Option<Vec<u8>>,
    /// No older version can be asked, but for those that a snapshot keeps.
    floor: Version,
    /// Snapshots that are surely there.
    kept: BTreeMap<&'static str, Version>,
    queries: u64,
}

/// The column that comes later.
pub fn charge() -> Arc<Field> {
    column("charge", DataType::Float32, true)
}

/// One process.
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

    /// A process with a line of its own.
    pub fn hand(self: &Arc<Self>, trouble: u32) -> Hand {
        let deed = Arc::new(Mutex::new(None));
        let line = Line { world: Arc::clone(self), trouble, deed: Arc::clone(&deed) };
        Hand { world: Arc::clone(self), store: Arc::new(Relayed(line)), deed }
    }

    /// Draws something.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.known().random)
    }

    /// The clock, which now and then runs ahead so far that sessions must be renewed.
    pub fn now(&self) -> Timestamp {
        let mut known = self.known();
        let ahead_s = if known.random.u8(..40) == 0 { 1500 } else { 0 };
        known.clock_ns += 1_000_000 + ahead_s * 1_000_000_000;
        Timestamp(known.clock_ns)
    }

    /// So much time goes by.
    pub fn pass(&self, time: Duration) {
        self.known().clock_ns += time.as_nanos() as u64;
    }

    /// The version that is current.
    pub fn head(&self) -> Version {
        Version(self.known().history.len() as u64 - 1)
    }

    /// What is true of a version.
    pub fn truth(&self, version: Version) -> Truth {
        self.known().history[version.0 as usize].clone()
    }

    /// What is true now.
    pub fn now_true(&self) -> Truth {
        self.truth(self.head())
    }

    /// In which version a block became true.
    pub fn accepted(&self, id: &BlockId) -> Option<Version> {
        self.known().accepted.get(id).copied()
    }

    /// Whether a block repeated ids in some version since one.
    pub fn was_repeated_since(&self, id: &BlockId, version: Version) -> bool {
        let rows = self.rows_of(id);
        let known = self.known();
        let mut since = known.history[version.0 as usize..].iter();
        since.any(|truth| truth.repeated(&[(id.clone(), Arc::clone(&rows))]).is_some())
    }

    /// Whether all ranks' blocks of some steps could not be loaded in some version since one.
    pub fn was_in_the_way_since(&self, ids: &[BlockId], version: Version) -> bool {
        self.known().history[version.0 as usize..].iter().any(|truth| !truth.admits_load(ids))
    }

    /// The blocks of an attempt that became true.
    pub fn accepted_of(&self, run: &str, attempt: u64) -> Vec<BlockId> {
        let known = self.known();
        let of_attempt = known.accepted.keys().filter(|id| &*id.run.0 == run && id.attempt == attempt);
        of_attempt.cloned().collect()
    }

    /// In which version a delete became true.
    pub fn done(&self, deed: u64) -> Option<Version> {
        self.known().done.get(&deed).copied()
    }

    /// A delete that was not asked for yet.
    pub fn deed(&self, scope: Scope) -> Arc<Deed> {
        let mut known = self.known();
        known.deeds += 1;
        Arc::new(Deed { number: known.deeds, scope })
    }

    /// Whether some version names an object.
    pub fn names(&self, session: &str, number: u64) -> bool {
        self.known().named.contains(&(session.to_owned(), number))
    }

    /// Whether a version can no longer be asked for, as far as is known.
    pub fn is_gone(&self, version: Version) -> bool {
        let known = self.known();
        version < known.floor && !known.kept.values().any(|kept| *kept == version)
    }

    /// A snapshot is surely there, or no longer.
    pub fn keep(&self, name: &'static str, version: Option<Version>) {
        let mut known = self.known();
        match version {
            Some(version) => known.kept.insert(name, version),
            None => known.kept.remove(name),
        };
    }

    /// Snapshots that are surely there.
    pub fn kept(&self) -> Vec<(&'static str, Version)> {
        self.known().kept.iter().map(|(name, version)| (*name, *version)).collect()
    }

    /// The partition of the manifest, once somebody wrote there.
    pub fn manifest(&self) -> Option<Vec<u8>> {
        self.known().manifest.clone()
    }

    /// The schema of a version.
    pub fn schema_at(&self, version: Version) -> &TableSchema {
        let has_charge = self.known().has_charge.is_some_and(|from| from <= version);
        if has_charge { &self.widened } else { &self.schema }
    }

    /// Whether the rows of a block have values in the column that comes later.
    pub fn is_charged(&self, id: &BlockId) -> bool {
        self.charged_from.is_some_and(|from| id.step >= from)
            && !(id.step + u64::from(id.rank)).is_multiple_of(3)
    }

    /// Counts a query; how many there were.
    pub fn count_query(&self) {
        self.known().queries += 1;
    }

    /// How many queries were judged.
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
        // Where ids are unique, some have what another rank or an earlier step may have.
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

    /// Carries a write out, and learns what became true by it.
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

    /// Takes in a write that will be carried out later.
    pub fn delay(&self, batch: Batch, options: WriteOptions, deed: Option<Arc<Deed>>) {
        self.known().late.push((batch, options, deed));
    }

    /// Carries out one of the writes that are late.
    pub async fn catch_up(&self, random: &mut Rng) {
        let late = {
            let mut known = self.known();
            let count = known.late.len();
            (count > 0).then(|| known.late.swap_remove(random.usize(..count)))
        };
        if let Some((batch, options, deed)) = late {
            // Nobody hears of it.
            self.carry_out(batch, options, deed).await.ok();
        }
    }

    /// How many writes are late.
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

    /// Blocks became true together.
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

/// Notes every object that an edit speaks of.
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

/// Rows that are visible now, for windows that are cut at the weight of one.
pub fn some_rows(world: &World) -> Vec<Particle> {
    world.now_true().rows(false)
}
