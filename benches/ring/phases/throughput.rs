//! One copy in memory: set, get and append by fifty clients, with one request at a time and with sixteen.

use super::{CLIENTS, DEPTH, Findings, OPERATIONS, Scale, Subject, in_turn};
use crate::client::{LoadError, Operation, Pieces};
use crate::report::{Row, median};
use crate::servers::{BenchPaths, Durability, Kind, Server};

/// Measures every available server; `told` is called at each step.
pub fn run(kinds: &[Kind], scale: Scale, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Findings {
    let mut findings = Findings::default();
    let pieces = Pieces::seeded(1);
    let mut subjects = Vec::new();
    for &kind in kinds {
        match Server::start(kind, Durability::Memory, place) {
            Ok(server) => subjects.push(Subject::new(server, scale)),
            Err(error) => findings.did_not_start(kind, super::with_sources(&error)),
        }
    }
    for round in 0..scale.rounds {
        told(&format!("throughput, round {} of {}", round + 1, scale.rounds));
        for depth in [1, DEPTH] {
            let ended = run_depth(&mut subjects, (round, depth), scale, &pieces, &mut findings);
            // A server that failed is out.
            for (kind, error) in ended {
                subjects.retain(|subject| subject.server.kind != kind);
                findings.fail(kind, super::with_sources(&error));
            }
        }
    }
    findings
}

/// One round at one depth, from filling to checking; returns the servers that failed on the way, and why.
fn run_depth(
    subjects: &mut [Subject],
    (round, depth): (usize, usize),
    scale: Scale,
    pieces: &Pieces,
    findings: &mut Findings,
) -> Vec<(Kind, LoadError)> {
    let mut failed: Vec<(Kind, LoadError)> = Vec::new();
    let mut each = |step: &mut dyn FnMut(&mut Subject) -> Result<(), LoadError>| {
        for subject in in_turn(subjects, round) {
            let kind = subject.server.kind;
            if failed.iter().all(|(other, _)| *other != kind) {
                failed.extend(step(subject).err().map(|error| (kind, error)));
            }
        }
    };
    each(&mut |subject| subject.fill(pieces, findings));
    for (number, operation) in OPERATIONS.into_iter().enumerate() {
        // The same keys in the same order for every server.
        let seed = (round * 10 + number) as u64;
        each(&mut |subject| {
            let work = subject.work(operation, depth, scale.choice(), seed);
            let outcome = crate::client::run(&work, pieces, &mut subject.model)?;
            findings.add(subject.server.kind, round + 1, &work, outcome);
            Ok(())
        });
    }
    each(&mut |subject| subject.check(pieces, findings));
    failed
}

/// The bars of this phase.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let mut rows = Vec::new();
    for operation in OPERATIONS {
        let bars =
            [(1, Kind::Memcached, 0.85, 1.0), (1, Kind::Redis, 1.0, 1.2), (DEPTH, Kind::Redis, 1.0, 1.5)];
        rows.extend(bars.map(|(depth, rival, target, goal)| {
            let pipelined = if depth > 1 { format!(" pipelined by {depth}") } else { String::new() };
            let bar = format!(
                "one copy in memory, {CLIENTS} clients{pipelined}, {}, over {}",
                operation.name(),
                rival.name()
            );
            row(findings, Row::at_least(bar, "x", target, Some(goal)), operation, depth, rival)
        }));
    }
    rows
}

fn row(findings: &Findings, mut row: Row, operation: Operation, depth: usize, rival: Kind) -> Row {
    for kind in [Kind::Atoll, Kind::Redis, Kind::Memcached] {
        let all = findings.of(kind.name(), operation, depth).map(|measured| measured.kilo_operations);
        if let Some(middle) = median(all) {
            row.peers.insert(kind.name().to_owned(), middle);
        }
    }
    let figure = super::ratio(findings, (Kind::Atoll.name(), rival.name()), operation, depth);
    let both = [Kind::Atoll, rival].into_iter().flat_map(|kind| findings.of(kind.name(), operation, depth));
    row.judged(figure, findings.spoiled().or_else(|| findings.failure_of(rival.name())))
        .beside(super::others_beside(both))
}

#[cfg(test)]
mod tests {
    use super::super::Measured;
    use super::*;

    fn measured(server: &str, round: usize, kilo_operations: f64) -> Measured {
        Measured {
            server: server.to_owned(),
            round,
            operation: Operation::Set,
            depth: 1,
            kilo_operations,
            p50_us: 0.0,
            p99_us: 0.0,
            p999_us: 0.0,
            server_cpu_us: None,
            server_processors: None,
            client_processors: None,
            others: 0.0,
            stolen: 0.0,
        }
    }

    fn bar<'a>(rows: &'a [Row], words: &str) -> &'a Row {
        rows.iter().find(|row| row.bar.ends_with(words)).unwrap()
    }

    #[test]
    fn a_figure_is_the_median_of_the_ratios_of_rounds_and_not_the_ratio_of_medians() {
        let mut findings = Findings::default();
        for (round, own, rival) in [(1, 10.0, 5.0), (2, 30.0, 30.0), (3, 20.0, 25.0)] {
            findings.measured.push(measured("atoll", round, own));
            findings.measured.push(measured("redis", round, rival));
        }
        let rows = rows(&findings);
        assert_eq!(rows.len(), 9);
        let row = bar(&rows, "50 clients, set, over redis");
        assert_eq!((row.figure, row.holds()), (Some(1.0), true));
        assert_eq!((row.peers["atoll"], row.peers["redis"]), (20.0, 25.0));
        assert_eq!(bar(&rows, "50 clients, set, over memcached").figure, None);
        assert_eq!(bar(&rows, "pipelined by 16, set, over redis").figure, None);
    }

    #[test]
    fn a_load_beside_which_others_were_busy_leaves_its_bars_unjudged_and_no_others() {
        let mut findings = Findings::default();
        for (server, kilo_operations) in [("atoll", 2.0), ("redis", 1.0), ("memcached", 1.0)] {
            findings.measured.push(measured(server, 1, kilo_operations));
        }
        findings.measured[1].others = 0.3;
        let told = rows(&findings);
        assert_eq!(bar(&told, "50 clients, set, over redis").holds, None);
        assert_eq!(bar(&told, "50 clients, set, over memcached").holds, Some(true));
        findings.measured[0].others = 0.3;
        assert_eq!(bar(&rows(&findings), "50 clients, set, over memcached").holds, None);
    }

    #[test]
    fn one_wrong_reply_of_atoll_spoils_every_bar_and_one_of_a_rival_does_not() {
        let mut findings = Findings::default();
        findings.measured.push(measured("atoll", 1, 2.0));
        findings.measured.push(measured("redis", 1, 1.0));
        findings.wrong.push((Kind::Redis, 3, "of a rival".to_owned()));
        assert!(bar(&rows(&findings), "50 clients, set, over redis").holds());
        findings.wrong.push((Kind::Atoll, 1, "ours".to_owned()));
        assert!(rows(&findings).iter().all(|row| !row.holds()));
    }

    #[test]
    fn a_rival_that_fails_on_the_way_takes_its_figures_with_it_and_the_bench_does_not_end_well() {
        let mut findings = Findings::default();
        for (server, kilo_operations) in [("atoll", 2.0), ("redis", 1.0), ("memcached", 1.0)] {
            findings.measured.push(measured(server, 1, kilo_operations));
        }
        assert!(findings.is_right());
        findings.fail(Kind::Redis, "the server closed a connection".to_owned());
        let rows = rows(&findings);
        let of_redis = bar(&rows, "50 clients, set, over redis");
        assert_eq!((of_redis.figure, of_redis.holds()), (None, false));
        assert_eq!(of_redis.note.as_deref(), Some("redis failed: the server closed a connection"));
        assert!(bar(&rows, "50 clients, set, over memcached").holds(), "of another rival");
        assert!(!findings.is_right());
    }

    #[test]
    fn a_round_that_only_one_of_both_finished_does_not_count() {
        let mut findings = Findings::default();
        findings.measured.push(measured("atoll", 1, 2.0));
        findings.measured.push(measured("redis", 1, 1.0));
        findings.measured.push(measured("atoll", 2, 200.0));
        assert_eq!(bar(&rows(&findings), "50 clients, set, over redis").figure, Some(2.0));
    }
}
