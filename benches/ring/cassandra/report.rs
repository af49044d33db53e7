//! The report on three copies beside Cassandra, and the bars.

use super::{ATOLL, CASSANDRA, Findings, OPERATIONS, SHARE};
use crate::client::Operation;
use crate::phases::{CLIENTS, Measured, others_beside};
use crate::report::{Row, print_findings};

impl Findings {
    /// The load of the round with the lowest CPU time of an operation, and that time.
    fn best(&self, server: &str, operation: Operation) -> Option<(&Measured, f64)> {
        let all = self
            .both
            .measured
            .iter()
            .filter(|one| one.server == server && one.operation == operation && one.depth == SHARE);
        let timed = all.filter_map(|one| Some((one, one.server_cpu_us?)));
        timed.min_by(|left, right| left.1.total_cmp(&right.1))
    }

    fn spoiled(&self) -> Option<String> {
        let missing = self.rival_missing.as_ref().map(|why| format!("{CASSANDRA}: {why}"));
        self.both.spoiled().or_else(|| self.both.failure_of(CASSANDRA)).or(missing)
    }
}

/// The bars.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let each = OPERATIONS.map(|operation| {
        let bar = format!(
            "three copies, {CLIENTS} clients, {}, CPU of {CASSANDRA} over {ATOLL}, best round",
            operation.name()
        );
        let mut row = Row::at_least(bar, "x", 10.0, Some(20.0));
        let best = [ATOLL, CASSANDRA].map(|server| findings.best(server, operation));
        for (load, cpu_us) in best.into_iter().flatten() {
            row.peers.insert(format!("{} us", load.server), cpu_us);
        }
        let [own, rival] = best.map(|found| found.map(|(_, cpu_us)| cpu_us));
        let loads = best.into_iter().flatten().map(|(load, _)| load);
        row.judged(own.zip(rival).map(|(own, rival)| rival / own), findings.spoiled())
            .beside(others_beside(loads))
    });
    each.into()
}

/// Prints all results for people.
pub fn print(findings: &Findings) {
    print_findings(
        "Three copies on three nodes, 50 clients on 10 connections, each alone: CPU of all nodes together",
        &findings.both,
    );
    if let Some((count, first)) = &findings.rival_wrong {
        println!("{CASSANDRA}: {count} WRONG ANSWERS, the first: {first}");
    }
    if findings.rival_timed_out > 0 {
        println!("{CASSANDRA}: {} requests timed out there and were sent again", findings.rival_timed_out);
    }
    match &findings.rival_missing {
        Some(why) => println!("{CASSANDRA} is missing: {why}"),
        // Told above, with the others that failed.
        None if findings.both.failure_of(CASSANDRA).is_some() => {}
        None => println!(
            "Cassandra was asked for {} s before the first round{}.",
            findings.warm_seconds,
            if findings.warm_seconds < findings.warm_seconds_meant {
                format!(", and the bar is about {} s: not a figure to quote", findings.warm_seconds_meant)
            } else {
                String::new()
            }
        ),
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::Kind;

    fn measured(server: &str, round: usize, operation: Operation, cpu_us: f64) -> Measured {
        Measured {
            server: server.to_owned(),
            round,
            operation,
            depth: SHARE,
            kilo_operations: 1.0,
            p50_us: 0.0,
            p99_us: 0.0,
            p999_us: 0.0,
            server_cpu_us: Some(cpu_us),
            server_processors: None,
            client_processors: None,
            others: 0.0,
            stolen: 0.0,
        }
    }

    #[test]
    fn a_rival_that_fails_on_the_way_fails_the_bench_and_one_that_is_not_asked_for_does_not() {
        let found = |why: &str| {
            let mut findings = Findings::default();
            for (server, cpu_us) in [(ATOLL, 20.0), (CASSANDRA, 500.0)] {
                findings.both.measured.push(measured(server, 1, Operation::Set, cpu_us));
            }
            findings.rival_ended(why.to_owned());
            findings
        };
        let failed = found("the server closed a connection");
        assert!(!failed.both.is_right() && failed.both.measured.iter().all(|one| one.server != CASSANDRA));
        let row = &rows(&failed)[0];
        assert_eq!((row.figure, row.holds), (None, Some(false)));
        assert_eq!(row.note.as_deref(), Some("cassandra failed: the server closed a connection"));
        let unnamed = crate::phases::with_sources(&super::super::ClusterError::NotNamed);
        let absent = found(&unnamed);
        assert!(absent.both.is_right() && absent.rival_missing.is_some());
    }

    #[test]
    fn others_are_heeded_beside_the_rounds_that_count() {
        let mut findings = Findings::default();
        for (server, round, cpu_us) in [(ATOLL, 1, 20.0), (ATOLL, 2, 30.0), (CASSANDRA, 1, 500.0)] {
            findings.both.measured.push(measured(server, round, Operation::Set, cpu_us));
        }
        findings.both.measured[1].others = 0.3;
        assert_eq!(rows(&findings)[0].holds, Some(true));
        findings.both.measured[0].others = 0.3;
        assert_eq!(rows(&findings)[0].holds, None);
    }

    #[test]
    fn the_best_round_of_each_counts_whichever_it_was() {
        let mut findings = Findings::default();
        for (server, round, cpu_us) in
            [(ATOLL, 1, 20.0), (ATOLL, 2, 30.0), (CASSANDRA, 1, 500.0), (CASSANDRA, 2, 240.0)]
        {
            findings.both.measured.push(measured(server, round, Operation::Set, cpu_us));
        }
        let told = rows(&findings);
        assert_eq!((told[0].figure, told[0].holds(), told[0].reaches_goal()), (Some(12.0), true, false));
        assert_eq!((told[0].peers["atoll us"], told[0].peers["cassandra us"]), (20.0, 240.0));
        assert_eq!((told[1].figure, told[1].holds()), (None, false));
        findings.rival_wrong = Some((1, "of a rival".to_owned()));
        assert!(rows(&findings)[0].holds(), "what a rival does wrong spoils nothing");
        findings.both.wrong.push((Kind::Atoll, 1, "ours".to_owned()));
        assert!(!rows(&findings)[0].holds());
    }
}
