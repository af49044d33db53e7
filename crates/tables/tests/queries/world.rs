//! A table that simulations write, and the truth about it as plain lists of rows.

use crate::packs::some_options;
use crate::particles::{Particle, batch, some};
use atoll_tables::protocol::{BlockId, Version};
use atoll_tables::{PackReport, Table, TableSchema};
use fastrand::Rng;
use std::collections::BTreeMap;

/// The ranks of every run.
const RANKS: u32 = 2;

/// The truth about one run.
#[derive(Clone, Debug, Default)]
struct Run {
    attempt: u64,
    has_published: bool,
    complete: BTreeMap<u64, Vec<Particle>>,
    arriving: BTreeMap<u64, BTreeMap<u32, Vec<Particle>>>,
}

impl Run {
    /// Makes an arriving step visible.
    fn publish(&mut self, step: u64) {
        if !self.has_published {
            self.complete.split_off(&step);
        }
        self.has_published = true;
        let rows = self.arriving.remove(&step).into_iter().flat_map(BTreeMap::into_values).flatten();
        self.complete.insert(step, rows.collect());
    }
}

/// A table and the truth about it.
pub struct World {
    pub table: Table,
    pub schema: TableSchema,
    runs: BTreeMap<&'static str, Run>,
    /// The visible rows of some versions.
    pub past: Vec<(Version, Vec<Particle>)>,
    rows_max: i64,
}

impl World {
    pub fn new(table: Table, rows_max: i64) -> Self {
        let schema = table.schema().as_ref().clone();
        Self { table, schema, runs: BTreeMap::new(), past: Vec::new(), rows_max }
    }

    /// All visible rows, with or without arriving ones.
    pub fn rows(&self, with_arriving: bool) -> Vec<Particle> {
        self.rows_of(self.runs(), with_arriving)
    }

    /// The runs that have begun.
    pub fn runs(&self) -> Vec<&'static str> {
        self.runs.keys().copied().collect()
    }

    /// As [`World::rows`], of these runs.
    pub fn rows_of(&self, runs: Vec<&'static str>, with_arriving: bool) -> Vec<Particle> {
        let mut rows = Vec::new();
        for run in runs.iter().map(|name| &self.runs[name]) {
            let mut run = run.clone();
            if with_arriving {
                run.arriving.clone().into_keys().for_each(|step| run.publish(step));
            }
            rows.extend(run.complete.into_values().flatten());
        }
        rows
    }

    /// Performs a random action of a simulation.
    pub async fn act(&mut self, random: &mut Rng) {
        let name = random.choice(["left", "right"]).unwrap();
        if !self.runs.contains_key(name) || random.u8(..8) == 0 {
            self.begin(name).await;
        }
        let run = &self.runs[name];
        let last = run.complete.keys().next_back().copied();
        let (step, ranks) = match run.arriving.first_key_value() {
            Some((&step, here)) => (step, (0..RANKS).filter(|rank| !here.contains_key(rank)).collect()),
            None if run.has_published => (last.map_or(0, |last| last + 1), self.ranks(random)),
            // An attempt continues from an earlier step, or from any later one.
            None => (last.map_or(0, |last| random.u64(..=last + 1)), self.ranks(random)),
        };
        for rank in ranks {
            self.append(random, name, step, rank).await;
        }
        if random.u8(..3) == 0 {
            self.past.push((self.table.version().await.unwrap(), self.rows(false)));
        }
    }

    /// Packs in a random way, which changes no answer.
    pub async fn pack(&self, random: &mut Rng) -> PackReport {
        let options = some_options(random, 2000);
        self.table.pack(&options).await.unwrap()
    }

    /// All ranks, or only the first.
    fn ranks(&self, random: &mut Rng) -> Vec<u32> {
        (0..if random.u8(..4) == 0 { 1 } else { RANKS }).collect()
    }

    async fn begin(&mut self, name: &'static str) {
        let run = self.runs.entry(name).or_default();
        run.attempt += 1;
        run.has_published = false;
        run.arriving.clear();
        self.table.begin(name, run.attempt, RANKS).await.unwrap();
    }

    async fn append(&mut self, random: &mut Rng, name: &'static str, step: u64, rank: u32) {
        let first = if name == "left" { 0 } else { 1_000_000 } + i64::from(rank) * 100_000;
        let count = if random.u8(..10) == 0 { 0 } else { random.i64(0..self.rows_max) };
        let rows = some(random, &self.schema, step as i64, first..first + count);
        let Some(run) = self.runs.get_mut(name) else { return };
        let id = BlockId { run: name.into(), attempt: run.attempt, step, rank };
        self.table.append(id, &batch(&self.schema, &rows)).await.unwrap();
        run.arriving.entry(step).or_default().insert(rank, rows);
        if run.arriving[&step].len() == RANKS as usize {
            run.publish(step);
        }
    }
}
