//! One episode: the life of a table, from creation to end, in which everything happens at once.
//!
//! The process that acts is drawn before every operation on the store, so processes interleave in every way.
//! Any of them may vanish between two operations, and what it left stays.
//!
//! Invariant: an episode follows from its seed.

use crate::actors::{self, RUNS};
use crate::ask::ask;
use crate::particles::any_schema;
use crate::world::World;
use atoll_tables::{Query, Table, draw_names_from};
use fastrand::Rng;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The queries of one episode.
pub const QUERIES: u64 = 50;

/// A process is dropped in one of this many turns.
const CRASH: u32 = 400;

/// A process that has not ended after this many turns is stuck.
const TURNS_MAX: usize = 2_000_000;

/// The number of versions after which no process writes any more.
const VERSIONS_MAX: u64 = 400;

/// The kinds of processes that exist side by side.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Writer(&'static str),
    Packer,
    Deleter,
    Reader,
    Sweeper,
    Vacuum,
    Keeper(&'static str),
}

struct Process {
    kind: Kind,
    work: Pin<Box<dyn Future<Output = ()>>>,
}

impl Process {
    fn start(world: &Arc<World>, random: &mut Rng, kind: Kind) -> Self {
        // Readers report every trouble; writers live with it.
        let trouble = random.choice([0, 0, 20, 8]).unwrap_or(0);
        let own = Rng::with_seed(random.u64(..));
        let work: Pin<Box<dyn Future<Output = ()>>> = match kind {
            Kind::Writer(run) => Box::pin(actors::write(world.hand(trouble), own, run)),
            Kind::Packer => Box::pin(actors::pack(world.hand(trouble), own)),
            Kind::Deleter => Box::pin(actors::delete(world.hand(trouble), own)),
            Kind::Reader => Box::pin(actors::read(world.hand(0), own)),
            Kind::Sweeper => Box::pin(actors::sweep(world.hand(0), own)),
            Kind::Vacuum => Box::pin(actors::vacuum(world.hand(trouble))),
            Kind::Keeper(name) => Box::pin(actors::keep(world.hand(0), own, name)),
        };
        Self { kind, work }
    }
}

/// All processes of the episode.
struct Episode {
    world: Arc<World>,
    random: Rng,
    processes: Vec<Process>,
}

impl Episode {
    /// Adds a process, if there is room for one of its kind.
    fn welcome(&mut self) {
        let kind = match self.random.u8(..40) {
            0..10 => Kind::Writer(self.random.choice(RUNS).unwrap_or("left")),
            10 => Kind::Packer,
            11 if self.random.bool() => Kind::Deleter,
            12 if self.random.bool() => Kind::Sweeper,
            13 if self.random.u8(..6) == 0 => Kind::Reader,
            14 if self.random.u8(..4) == 0 => Kind::Vacuum,
            15 if self.random.bool() => Kind::Keeper(self.random.choice(["a", "b", "c"]).unwrap_or("a")),
            _ => return,
        };
        let room = match kind {
            Kind::Packer | Kind::Reader | Kind::Vacuum => 2,
            // Two processes that share an attempt race for the ids of its ranks.
            Kind::Writer(_) if self.world.schema.has_unique_ids() => 2,
            _ => 1,
        };
        let there = self.processes.iter().filter(|process| process.kind == kind).count();
        let is_over = self.world.head().0 >= VERSIONS_MAX && kind != Kind::Reader;
        if there < room && !is_over {
            self.processes.push(Process::start(&self.world, &mut self.random, kind));
        }
    }

    /// Lets one process do one thing, or drops it.
    fn go_on(&mut self, may_crash: bool) {
        if self.random.u8(..8) == 0 {
            finish(self.world.catch_up(&mut self.random));
        }
        if self.processes.is_empty() {
            return;
        }
        let place = self.random.usize(..self.processes.len());
        let is_crash = may_crash && self.random.u32(..CRASH) == 0;
        let mut context = Context::from_waker(Waker::noop());
        if is_crash || self.processes[place].work.as_mut().poll(&mut context).is_ready() {
            self.processes.swap_remove(place);
        }
    }

    /// Runs all processes to their end, and carries out all late writes.
    fn settle(&mut self) {
        let mut turns = 0;
        while !self.processes.is_empty() || self.world.late() > 0 {
            self.go_on(false);
            turns += 1;
            assert!(turns < TURNS_MAX, "somebody is stuck");
        }
    }
}

/// Runs a future to its end while it has the store to itself.
fn finish<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..TURNS_MAX {
        if let Poll::Ready(value) = work.as_mut().poll(&mut context) {
            return value;
        }
    }
    panic!("somebody is stuck");
}

/// What happened in an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub queries: u64,
    pub versions: u64,
    /// The number of rows at the end.
    pub rows: u64,
    /// The last random draw: two episodes with the same last draw took the same course.
    pub last_draw: u64,
}

impl Tally {
    /// The sum of both.
    pub const fn and(self, other: Self) -> Self {
        Self {
            queries: self.queries + other.queries,
            versions: self.versions + other.versions,
            rows: self.rows + other.rows,
            last_draw: other.last_draw,
        }
    }

    /// Fails if too little happened to show anything.
    pub fn judge(self) {
        let is_lively = self.versions > self.queries && self.rows > 10 * self.queries;
        assert!(is_lively, "too little happened: {self:?}");
    }
}

/// Runs one episode.
pub fn live(seed: u64) -> Tally {
    draw_names_from(seed);
    let mut random = Rng::with_seed(seed);
    let schema = any_schema(&mut random);
    let schema = if random.u8(..3) == 0 { schema.with_unique_ids() } else { schema };
    let world = World::new(random.u64(..), schema.clone());
    finish(Table::create(world.hand(0).store, "run", schema)).unwrap();
    let mut episode = Episode { world: Arc::clone(&world), random, processes: Vec::new() };
    let mut turns = 0;
    while world.queries() < QUERIES {
        episode.welcome();
        episode.go_on(true);
        turns += 1;
        assert!(turns < TURNS_MAX, "{} queries and no more", world.queries());
    }
    episode.settle();
    finish(judge(&world, &mut episode.random));
    let rows = world.now_true().rows(false).len() as u64;
    let last_draw = world.draw(|random| random.u64(..)) ^ episode.random.u64(..);
    Tally { queries: world.queries(), versions: world.head().0, rows, last_draw }
}

/// Judges the final state, as seen by a process that opens the table then.
async fn judge(world: &Arc<World>, random: &mut Rng) {
    let hand = world.hand(0);
    let table = actors::open(&hand).await;
    let truth = world.now_true();
    assert_eq!(table.version().await.unwrap(), world.head());
    assert_eq!(table.count(&Query::default()).await.unwrap().rows as usize, truth.rows(false).len());
    for run in table.runs().await.unwrap() {
        let (attempt, ranks) = truth.attempt(&run.name).expect("a run that nobody began");
        assert_eq!((run.attempt, run.ranks, run.last_complete), (attempt, ranks, truth.last(&run.name)));
    }
    for _ in 0..3 {
        ask(world, &table, random).await;
    }
}
