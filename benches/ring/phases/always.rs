//! Sets that are on the disk before they are acknowledged, compared with a bare loop of group commits of
//! the same bytes.

use super::{CLIENTS, Findings, Measured, Scale, Subject, bare};
use crate::client::{Choice, LoadError, Operation, Pieces};
use crate::machine::{MachineTime, process_cpu_seconds, processors};
use crate::report::{Row, median};
use crate::servers::{BenchPaths, Durability, Kind, Server};
use std::time::Duration;

/// The bare loop's name in tables.
pub const BARE: &str = "bare loop";
/// Commits are few, so every server is measured for longer than in memory.
const LONGER: u64 = 2;

/// Measures every available server; `told` is called at each step.
pub fn run(kinds: &[Kind], scale: Scale, place: &BenchPaths, told: &mut dyn FnMut(&str)) -> Findings {
    let mut findings = Findings::default();
    let pieces = Pieces::seeded(2);
    let mut subjects = Vec::new();
    for &kind in kinds.iter().filter(|kind| **kind != Kind::Memcached) {
        match Server::start(kind, Durability::Always, place) {
            Ok(server) => subjects.push(Subject::new(server, scale)),
            Err(error) => findings.did_not_start(kind, super::with_sources(&error)),
        }
    }
    subjects.retain_mut(|subject| kept(subject.fill(&pieces, &mut findings), subject, &mut findings));
    for round in 0..scale.rounds {
        told(&format!("always, round {} of {}", round + 1, scale.rounds));
        let is_first = round % 2 == 0;
        if is_first {
            run_bare(round, scale, place, &pieces, &mut findings);
        }
        let turn = round % subjects.len().max(1);
        subjects.rotate_left(turn);
        subjects.retain_mut(|subject| {
            let ended = run_subject(subject, round, scale, &pieces, &mut findings);
            kept(ended, subject, &mut findings)
        });
        if !is_first {
            run_bare(round, scale, place, &pieces, &mut findings);
        }
    }
    subjects.retain_mut(|subject| kept(subject.check(&pieces, &mut findings), subject, &mut findings));
    findings
}

/// Whether a server continues; if not, the reason is recorded.
fn kept(ended: Result<(), LoadError>, subject: &Subject, findings: &mut Findings) -> bool {
    let Err(error) = ended else { return true };
    findings.fail(subject.server.kind, super::with_sources(&error));
    false
}

fn run_subject(
    subject: &mut Subject,
    round: usize,
    scale: Scale,
    pieces: &Pieces,
    findings: &mut Findings,
) -> Result<(), LoadError> {
    let choice = Choice::Random { warm: Duration::from_millis(scale.warm_ms), measured: longer(scale) };
    let work = subject.work(Operation::Set, 1, choice, round as u64);
    let outcome = crate::client::run(&work, pieces, &mut subject.model)?;
    findings.add(subject.server.kind, round + 1, &work, outcome);
    Ok(())
}

fn run_bare(round: usize, scale: Scale, place: &BenchPaths, pieces: &Pieces, findings: &mut Findings) {
    if findings.failure_of(BARE).is_some() {
        return;
    }
    let (machine, own) = (MachineTime::now(), process_cpu_seconds(std::process::id()));
    let committed = match bare::run(&place.folder, pieces, scale.keys, longer(scale), round as u64) {
        Ok(committed) => committed,
        Err(error) => return findings.fail_beside(BARE, super::with_sources(&error)),
    };
    let (machine, now) = (machine.until_now(), process_cpu_seconds(std::process::id()));
    let cpu = now.zip(own).map(|(now, own)| now - own);
    let at = |share| committed.latency.microseconds_at(share).unwrap_or(f64::NAN);
    let used = cpu.unwrap_or(0.0) / machine.seconds / processors() as f64;
    findings.measured.push(Measured {
        server: BARE.to_owned(),
        round: round + 1,
        operation: Operation::Set,
        depth: 1,
        kilo_operations: committed.operations as f64 / committed.seconds / 1000.0,
        p50_us: at(0.5),
        p99_us: at(0.99),
        p999_us: at(0.999),
        server_cpu_us: cpu.map(|cpu| cpu * 1e6 / committed.operations as f64),
        server_processors: cpu.map(|cpu| cpu / machine.seconds),
        client_processors: None,
        others: (machine.busy - used).max(0.0),
        stolen: machine.stolen,
    });
}

fn longer(scale: Scale) -> Duration {
    Duration::from_millis(scale.measured_ms * LONGER)
}

/// The bars of this phase.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let bars = [
        (BARE, "bare group commits of the same bytes", 0.7, 0.9),
        (Kind::Redis.name(), "redis with appendfsync always", 1.0, 3.0),
    ];
    let row = |(rival, words, target, goal): (&str, &str, f64, f64)| {
        let bar = format!("`always`, {CLIENTS} clients, set, over {words}");
        let mut row = Row::at_least(bar, "x", target, Some(goal));
        for name in [Kind::Atoll.name(), Kind::Redis.name(), BARE] {
            let all = findings.of(name, Operation::Set, 1).map(|measured| measured.kilo_operations);
            row.peers.extend(median(all).map(|middle| (name.to_owned(), middle)));
        }
        let figure = super::ratio(findings, (Kind::Atoll.name(), rival), Operation::Set, 1);
        let both = [Kind::Atoll.name(), rival].into_iter();
        let both = both.flat_map(|name| findings.of(name, Operation::Set, 1));
        row.judged(figure, findings.spoiled().or_else(|| findings.failure_of(rival)))
            .beside(super::others_beside(both))
    };
    bars.map(row).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_offered_yet_has_no_figure_does_not_hold_and_says_so() {
        let mut findings = Findings::default();
        findings.missing.push((Kind::Atoll, "not offered yet: a disk".to_owned()));
        let rows = rows(&findings);
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!((row.figure, row.holds()), (None, false));
            assert!(row.note.as_deref().is_some_and(|note| note.contains("not offered yet")), "{row:?}");
        }
    }
}
