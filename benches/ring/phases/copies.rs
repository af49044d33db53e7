//! Two in-sync copies compared with one: a ring of two nodes that each hold everything, beside a node
//! without copies.
//!
//! Both are in memory and on the loopback, and get the same keys from the same client; on the ring half of
//! the clients talk to each node, about keys that it leads.

use super::side::{Ask, Side};
use super::{CLIENTS, DEPTH, Findings, Measured, OPERATIONS, Scale, in_turn};
use crate::client::{Choice, LoadError, Operation, Pieces, Refill};
use crate::report::{Row, median};
use crate::servers::{BenchPaths, Durability, Kind, Ring, Server, ServerError};
use std::io;

const ONE: &str = "one copy";
const TWO: &str = "two copies";
const NODES: usize = 2;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
enum CopiesError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("cannot learn who leads what")]
    Leaders(#[from] io::Error),
}

/// Measures both, round by round; `told` is called at each step.
pub fn run(scale: Scale, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Findings {
    let mut findings = Findings::default();
    match start(scale, place) {
        Ok((mut sides, _servers)) => {
            for round in 0..scale.rounds {
                told(&format!("copies, round {} of {}", round + 1, scale.rounds));
                if let Err((name, error)) = run_round(&mut sides, round, scale, &mut findings) {
                    let why = format!("{name}: {}", super::with_sources(&error));
                    findings.missing.push((Kind::Atoll, why));
                    break;
                }
            }
        }
        Err(error) => findings.missing.push((Kind::Atoll, super::with_sources(&error))),
    }
    findings
}

fn start(scale: Scale, place: &BenchPaths) -> Result<([Side; 2], (Server, Ring)), CopiesError> {
    let one = Server::start(Kind::Atoll, Durability::Memory, place)?;
    let two = Ring::start(NODES, Durability::Memory, place)?;
    let side = Side::of_ring(TWO, &two, scale.keys, CLIENTS)?;
    let sides = [side.beside(ONE, one.address, one.process()), side];
    Ok((sides, (one, two)))
}

/// A round at both depths, each from filling to checking.
fn run_round(
    sides: &mut [Side],
    round: usize,
    scale: Scale,
    findings: &mut Findings,
) -> Result<(), (&'static str, LoadError)> {
    let pieces = Pieces::seeded(1);
    for depth in [1, DEPTH] {
        let refill = Refill::WhenAllAnswered;
        let each_once =
            |operation| Ask { operation, depth: DEPTH, refill, choice: Choice::EachOnce, seed: 0 };
        for side in in_turn(sides, round) {
            let (_, outcome) =
                side.run(&each_once(Operation::Set), &pieces).map_err(|error| (side.name, error))?;
            findings.heed(Kind::Atoll, &outcome);
        }
        for (number, operation) in OPERATIONS.into_iter().enumerate() {
            let seed = (round * 10 + number) as u64;
            let ask = Ask { operation, depth, refill, choice: scale.choice(), seed };
            for side in in_turn(sides, round) {
                let (work, outcome) = side.run(&ask, &pieces).map_err(|error| (side.name, error))?;
                findings.add_as(side.name, Kind::Atoll, round + 1, (work.operation, work.depth), outcome);
            }
        }
        // Every acknowledged write is looked up.
        for side in in_turn(sides, round) {
            let (_, outcome) =
                side.run(&each_once(Operation::Get), &pieces).map_err(|error| (side.name, error))?;
            findings.heed(Kind::Atoll, &outcome);
        }
    }
    Ok(())
}

/// The bars of this phase.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let words = |figure| format!("two in-sync copies, {CLIENTS} clients, set, over one copy: {figure}");
    let p50 = Row::at_most(words("p50"), "x", 3.0, Some(2.0));
    let throughput = Row::at_least(words("throughput"), "x", 0.35, Some(0.5));
    vec![
        row(findings, p50, |measured| measured.p50_us),
        row(findings, throughput, |measured| measured.kilo_operations),
    ]
}

fn row(findings: &Findings, mut row: Row, figure: fn(&Measured) -> f64) -> Row {
    let of = |name| findings.of(name, Operation::Set, 1);
    for name in [ONE, TWO] {
        if let Some(middle) = median(of(name).map(figure)) {
            row.peers.insert(name.to_owned(), middle);
        }
    }
    let ratios = of(TWO).filter_map(|two| {
        let one = of(ONE).find(|one| one.round == two.round)?;
        Some(figure(two) / figure(one))
    });
    let both = [ONE, TWO].into_iter().flat_map(of);
    row.judged(median(ratios), findings.spoiled()).beside(super::others_beside(both))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Model;

    const KEYS: u32 = 10;

    /// The length of a value when gets begin, on a side that completes `done` of each operation before.
    fn bytes_of_a_value_when_gets_begin(done: u32) -> usize {
        let mut model = Model::empty(KEYS);
        for key in 0..KEYS {
            model.set(key);
        }
        for operation in OPERATIONS.into_iter().take_while(|operation| *operation != Operation::Get) {
            for number in 0..done {
                match operation {
                    Operation::Set => model.set(number % KEYS),
                    _ => model.append(number % KEYS),
                };
            }
        }
        (0..KEYS).map(|key| model.held(key).bytes()).sum::<usize>() / KEYS as usize
    }

    #[test]
    fn gets_find_values_of_the_same_length_however_much_a_side_wrote_before() {
        assert!(OPERATIONS.contains(&Operation::Get));
        assert_eq!(bytes_of_a_value_when_gets_begin(180), bytes_of_a_value_when_gets_begin(45));
    }

    fn measured(server: &str, round: usize, kilo_operations: f64, p50_us: f64) -> Measured {
        Measured {
            server: server.to_owned(),
            round,
            operation: Operation::Set,
            depth: 1,
            kilo_operations,
            p50_us,
            p99_us: 0.0,
            p999_us: 0.0,
            server_cpu_us: None,
            server_processors: None,
            client_processors: None,
            others: 0.0,
            stolen: 0.0,
        }
    }

    #[test]
    fn two_copies_are_held_against_the_one_of_the_same_round() {
        let mut findings = Findings::default();
        for (round, one, two) in [(1, (10.0, 100.0), (4.0, 250.0)), (2, (40.0, 50.0), (10.0, 175.0))] {
            findings.measured.push(measured(ONE, round, one.0, one.1));
            findings.measured.push(measured(TWO, round, two.0, two.1));
        }
        findings.measured.push(measured(TWO, 3, 1_000.0, 1.0));
        let told = rows(&findings);
        assert_eq!((told[0].figure, told[0].holds()), (Some(3.0), true));
        assert_eq!((told[1].figure, told[1].holds()), (Some(0.325), false));
        findings.measured[0].others = 0.3;
        assert!(rows(&findings).iter().all(|row| row.holds.is_none()), "others were busy beside one copy");
        findings.wrong.push((Kind::Atoll, 1, "a reply".to_owned()));
        assert!(rows(&findings).iter().all(|row| !row.holds()));
    }
}
