//! The report on three copies beside Cassandra, and the bars.

use super::{ATOLL, CASSANDRA, Findings, OPERATIONS, SHARE};
use crate::client::Operation;
use crate::phases::CLIENTS;
use crate::report::{Row, print_findings};

impl Findings {
    /// The lowest CPU time of an operation over all rounds.
    fn best(&self, server: &str, operation: Operation) -> Option<f64> {
        self.both.of(server, operation, SHARE).filter_map(|one| one.server_cpu_us).min_by(f64::total_cmp)
    }

    fn spoiled(&self) -> Option<String> {
        let missing = self.rival_missing.as_ref().map(|why| format!("{CASSANDRA}: {why}"));
        self.both.spoiled().or(missing)
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
        let best = [ATOLL, CASSANDRA].map(|server| (server, findings.best(server, operation)));
        row.peers
            .extend(best.iter().filter_map(|(server, figure)| Some((format!("{server} us"), (*figure)?))));
        let [(_, own), (_, rival)] = best;
        row.judged(own.zip(rival).map(|(own, rival)| rival / own), findings.spoiled())
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
    match &findings.rival_missing {
        Some(why) => println!("{CASSANDRA} is missing: {why}"),
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
    use crate::phases::Measured;
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
    fn the_best_round_of_each_counts_whichever_it_was() {
        let mut findings = Findings::default();
        for (server, round, cpu_us) in
            [(ATOLL, 1, 20.0), (ATOLL, 2, 30.0), (CASSANDRA, 1, 500.0), (CASSANDRA, 2, 240.0)]
        {
            findings.both.measured.push(measured(server, round, Operation::Set, cpu_us));
        }
        let told = rows(&findings);
        assert_eq!((told[0].figure, told[0].holds, told[0].reaches_goal()), (Some(12.0), true, false));
        assert_eq!((told[0].peers["atoll us"], told[0].peers["cassandra us"]), (20.0, 240.0));
        assert_eq!((told[1].figure, told[1].holds), (None, false));
        findings.rival_wrong = Some((1, "of a rival".to_owned()));
        assert!(rows(&findings)[0].holds, "what a rival does wrong spoils nothing");
        findings.both.wrong.push((Kind::Atoll, 1, "ours".to_owned()));
        assert!(!rows(&findings)[0].holds);
    }
}
