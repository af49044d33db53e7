//! Scenarios: which processes meet at which table, and what may happen to them.

use super::oracle::{LIGHT, Table};
use atoll_tables::protocol::{AddedColumn, BlockId, LastStep, Scope, StepRange};

/// The role of a process.
#[derive(Clone, Debug)]
pub enum Role {
    /// A rank of an attempt that writes these steps. If it gives a number of ranks and a step to begin after,
    /// it begins the attempt; if it names a column, it first adds that to the table. A loader writes all of
    /// the steps at once, for all ranks.
    Writer {
        attempt: u64,
        rank: u32,
        steps: Vec<u64>,
        begins: Option<(u32, LastStep)>,
        opens_late: bool,
        adds: Option<AddedColumn>,
        loads: bool,
    },
    /// Adds a column.
    Adder { column: AddedColumn },
    /// A packer of whole pieces, or of only their light rows, that tries this many times.
    Packer { light_only: bool, tries: u8 },
    /// Deletes rows.
    Deleter { scope: Scope },
    /// Reads the current version, or the one that was current when it started.
    Reader { as_of: bool },
    /// Makes a snapshot of the version that was current when it started.
    Snapshotter,
    /// A vacuum.
    Vacuum { sweeps: bool },
}

/// One process of a scenario.
#[derive(Clone, Debug)]
pub struct Part {
    pub role: Role,
    /// How many of its conditional writes may have an unknown outcome.
    pub doubts: u8,
    /// Whether its session may end while it is alive.
    pub is_slow: bool,
}

/// A small table and the processes at it.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// The number of ranks of attempt 1.
    pub ranks: u32,
    /// Steps of attempt 1 that are visible at the beginning.
    pub there: Vec<u64>,
    /// Whether these steps are packed.
    pub is_packed: bool,
    pub parts: Vec<Part>,
    /// The number of processes that may crash.
    pub crashes: u8,
    /// Whether creating an object may also have an unknown outcome.
    pub creates_in_doubt: bool,
}

/// The name of the only run.
pub const RUN: &str = "run";

impl Scenario {
    fn new(name: &'static str, ranks: u32, there: &[u64], parts: Vec<Part>) -> Self {
        let there = there.to_vec();
        Self { name, ranks, there, is_packed: false, parts, crashes: 0, creates_in_doubt: false }
    }

    /// All blocks of the steps that any process writes.
    pub fn table(&self) -> Table {
        let ranks = 0..self.ranks;
        let mut blocks: Vec<BlockId> = Vec::new();
        for step in &self.there {
            blocks.extend(ranks.clone().map(|rank| block(1, *step, rank)));
        }
        for part in &self.parts {
            if let Role::Writer { attempt, steps, begins, .. } = &part.role {
                // Of all ranks: a step also waits for ranks that never write.
                let ranks = 0..begins.map_or(self.ranks, |(ranks, _)| ranks);
                blocks.extend(
                    steps.iter().flat_map(|step| ranks.clone().map(|rank| block(*attempt, *step, rank))),
                );
            }
        }
        blocks.sort();
        blocks.dedup();
        Table::of(blocks)
    }

    fn with_crashes(self, crashes: u8) -> Self {
        Self { crashes, ..self }
    }
}

pub fn block(attempt: u64, step: u64, rank: u32) -> BlockId {
    BlockId { run: RUN.into(), attempt, step, rank }
}

fn part(role: Role, doubts: u8) -> Part {
    Part { role, doubts, is_slow: false }
}

fn slow(role: Role, doubts: u8) -> Part {
    Part { role, doubts, is_slow: true }
}

fn writer(attempt: u64, rank: u32, steps: &[u64]) -> Role {
    Role::Writer {
        attempt,
        rank,
        steps: steps.to_vec(),
        begins: None,
        opens_late: false,
        adds: None,
        loads: false,
    }
}

fn restarted(attempt: u64, steps: &[u64]) -> Role {
    beginner(attempt, LastStep::Any, steps)
}

fn beginner(attempt: u64, last: LastStep, steps: &[u64]) -> Role {
    let (steps, begins) = (steps.to_vec(), Some((1, last)));
    Role::Writer { attempt, rank: 0, steps, begins, opens_late: false, adds: None, loads: false }
}

fn loader(attempt: u64, steps: &[u64]) -> Role {
    let (steps, begins) = (steps.to_vec(), Some((1, LastStep::Any)));
    Role::Writer { attempt, rank: 0, steps, begins, opens_late: false, adds: None, loads: true }
}

fn packer(tries: u8) -> Role {
    Role::Packer { light_only: false, tries }
}

fn light_packer(tries: u8) -> Role {
    Role::Packer { light_only: true, tries }
}

fn delete(steps: StepRange, expression: Option<&str>) -> Role {
    Role::Deleter { scope: Scope { run: None, steps, expression: expression.map(Into::into) } }
}

fn charge(text: &str) -> AddedColumn {
    AddedColumn { name: "charge".into(), text: text.into() }
}

/// A writer adds a column and writes with it. Another process adds a different column of that name, and a
/// third the same column, while a packer packs.
pub fn columns() -> Scenario {
    let Role::Writer { attempt, rank, steps, .. } = writer(1, 0, &[3]) else { unreachable!() };
    let adds = Some(charge("float32"));
    let writer = Role::Writer { attempt, rank, steps, begins: None, opens_late: false, adds, loads: false };
    let parts = vec![
        part(writer, 2),
        part(Role::Adder { column: charge("float64") }, 1),
        part(Role::Adder { column: charge("float32") }, 0),
        part(packer(2), 0),
    ];
    Scenario::new("columns of one name, a writer with it, a packer", 1, &[1, 2], parts).with_crashes(1)
}

/// Two ranks write two steps, each with at most one unknown outcome, while a packer packs what is visible.
pub fn two_writers() -> Scenario {
    let parts = vec![part(writer(1, 0, &[1, 2]), 1), part(writer(1, 1, &[1, 2]), 1), part(packer(2), 1)];
    Scenario::new("two writers, two steps, a packer", 2, &[], parts).with_crashes(2)
}

/// A rank does not write the first step of the other one.
pub fn skipped_step() -> Scenario {
    let parts = vec![part(writer(1, 0, &[1, 2]), 1), part(writer(1, 1, &[2]), 1), part(packer(1), 0)];
    Scenario::new("a rank that skips a step, a packer", 2, &[], parts).with_crashes(1)
}

/// Three packers compete for the same blocks; one of them wants only the light rows.
pub fn three_packers() -> Scenario {
    let parts = vec![part(packer(2), 1), part(light_packer(2), 1), part(packer(2), 1)];
    Scenario::new("three packers on the same blocks", 1, &[1, 2], parts).with_crashes(1)
}

/// A writer, two deletes (one of whole steps, one by a predicate) and a packer.
pub fn deletes() -> Scenario {
    let parts = vec![
        part(writer(1, 0, &[3]), 1),
        part(delete(StepRange::since(2), Some(LIGHT)), 1),
        part(delete(StepRange::only(1), None), 0),
        part(packer(2), 1),
    ];
    Scenario::new("a writer, two deletes, a packer", 1, &[1, 2], parts).with_crashes(1)
}

/// A writer, two equal deletes, of which only the later one strikes what came between them, and two packers.
pub fn equal_deletes() -> Scenario {
    let light = || delete(StepRange::ALL, Some(LIGHT));
    let parts = vec![
        part(writer(1, 0, &[3]), 0),
        part(light(), 1),
        part(light(), 0),
        part(packer(2), 0),
        part(packer(1), 0),
    ];
    Scenario::new("a writer, two equal deletes, two packers", 1, &[1, 2], parts)
}

/// Attempt 2 takes over while a rank of attempt 1 still writes, a packer packs and a reader reads.
pub fn restart() -> Scenario {
    let parts = vec![
        part(writer(1, 0, &[3]), 1),
        part(restarted(2, &[2, 3]), 1),
        part(packer(2), 0),
        part(Role::Reader { as_of: false }, 0),
    ];
    Scenario::new("a restart, a packer, a reader", 1, &[1, 2], parts).with_crashes(1)
}

/// Two attempts continue after step 2, which both saw as the last one, while a rank of attempt 1 still writes
/// and a packer packs.
pub fn beginners() -> Scenario {
    let parts = vec![
        part(writer(1, 0, &[3]), 1),
        part(beginner(2, LastStep::Is(Some(2)), &[3, 4]), 1),
        part(beginner(3, LastStep::Is(Some(2)), &[3]), 1),
        part(packer(1), 0),
    ];
    Scenario::new("two that begin behind one step, a packer", 1, &[1, 2], parts).with_crashes(1)
}

/// Attempt 2 takes over a table whose older steps lie in cubes.
pub fn restart_over_cubes() -> Scenario {
    let parts = vec![part(restarted(2, &[2, 3]), 1), part(packer(2), 1), part(packer(1), 0)];
    let scenario = Scenario::new("a restart over cubes, two packers", 1, &[1, 2, 3], parts);
    Scenario { is_packed: true, ..scenario }.with_crashes(1)
}

/// Attempt 2 loads two steps at once, while a rank of attempt 1 still writes, rows are deleted and a packer
/// packs.
pub fn loads() -> Scenario {
    let parts = vec![
        part(loader(2, &[2, 3]), 1),
        part(writer(1, 0, &[3]), 0),
        part(delete(StepRange::since(2), Some(LIGHT)), 0),
        part(packer(2), 0),
    ];
    Scenario::new("a load, an older attempt, a delete, a packer", 1, &[1, 2], parts).with_crashes(1)
}

/// Two ranks write a step, while one load brings a later step for both, and another one that step and the
/// later one.
pub fn loads_beside_ranks() -> Scenario {
    let load = |steps: &[u64]| {
        let steps = steps.to_vec();
        Role::Writer { attempt: 1, rank: 0, steps, begins: None, opens_late: false, adds: None, loads: true }
    };
    let parts = vec![
        part(writer(1, 0, &[2]), 1),
        part(writer(1, 1, &[2]), 1),
        part(load(&[3]), 1),
        part(load(&[2, 3]), 0),
    ];
    Scenario::new("two ranks, loads of their step and of a later one", 2, &[1], parts).with_crashes(1)
}

/// The session of a load ends while it writes, and a vacuum sweeps what it wrote.
pub fn slow_load() -> Scenario {
    let parts = vec![slow(loader(2, &[2, 3]), 1), part(packer(1), 0), part(Role::Vacuum { sweeps: true }, 0)];
    Scenario::new("a slow load, a packer, a vacuum", 1, &[1, 2], parts).with_crashes(1)
}

/// Two readers, one of a past version, while a packer packs and a vacuum runs.
pub fn vacuum() -> Scenario {
    let parts = vec![
        part(Role::Reader { as_of: false }, 0),
        part(Role::Reader { as_of: true }, 0),
        part(packer(2), 1),
        part(Role::Vacuum { sweeps: true }, 0),
    ];
    Scenario::new("two readers, a packer, a vacuum", 1, &[1, 2], parts).with_crashes(1)
}

/// A snapshot keeps a version while a packer packs and a vacuum runs.
pub fn snapshots() -> Scenario {
    let parts = vec![
        part(Role::Snapshotter, 0),
        part(packer(1), 1),
        part(light_packer(1), 0),
        part(Role::Vacuum { sweeps: false }, 1),
    ];
    Scenario::new("a snapshot, two packers, a vacuum", 1, &[1, 2], parts).with_crashes(1)
}

/// Sessions end although their processes are alive, while a vacuum sweeps what ended sessions left.
pub fn slow_processes() -> Scenario {
    let Role::Writer { attempt, rank, steps, .. } = writer(1, 0, &[3]) else { unreachable!() };
    let late =
        Role::Writer { attempt, rank, steps, begins: None, opens_late: true, adds: None, loads: false };
    let parts = vec![slow(late, 1), slow(packer(1), 0), part(Role::Vacuum { sweeps: true }, 0)];
    Scenario::new("a slow writer, a slow packer, a vacuum", 1, &[1, 2], parts).with_crashes(1)
}

/// Two concurrent vacuums, and a reader whose session may end while it reads.
pub fn two_vacuums() -> Scenario {
    let parts = vec![
        slow(Role::Reader { as_of: true }, 0),
        part(packer(1), 0),
        part(Role::Vacuum { sweeps: true }, 0),
        part(Role::Vacuum { sweeps: true }, 0),
    ];
    Scenario::new("a reader, a packer, two vacuums", 1, &[1, 2], parts).with_crashes(1)
}

/// Writes and objects land late, while a vacuum removes history and sweeps.
pub fn late_writes() -> Scenario {
    let parts = vec![part(writer(1, 0, &[3]), 2), part(packer(1), 2), part(Role::Vacuum { sweeps: true }, 0)];
    let scenario = Scenario::new("a writer and a packer in doubt, a vacuum", 1, &[1, 2], parts);
    Scenario { creates_in_doubt: true, ..scenario }.with_crashes(1)
}
