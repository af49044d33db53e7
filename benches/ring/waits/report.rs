//! The report on waits for people, and their bars.

use super::wake::{Round, Times};
use super::{CONNECTIONS, Findings};
use crate::phases::is_failure;
use crate::report::{Row, median};

/// One of the latencies of a round.
type Figure = fn(&Round) -> Times;

/// The memory that watches of the second pass may add, as a share of the first: noise of the allocator.
const ADDED_SHARE_MAX: f64 = 0.25;

impl Findings {
    fn spoiled(&self) -> Option<String> {
        self.missing.first().map(|why| format!("atoll: {why}"))
    }

    fn is_used_again(&self) -> bool {
        let figures = self.memory.as_ref().and_then(|taken| taken.each().zip(taken.each_added()));
        figures.is_none_or(|(each, added)| added <= each * ADDED_SHARE_MAX)
    }
}

/// Whether nothing was wrong, everything finished, and memory was reused.
pub fn is_right(findings: &Findings) -> bool {
    let has_failed = findings.missing.iter().any(|why| is_failure(why));
    findings.wrong == 0 && !has_failed && findings.is_used_again()
}

/// The bars.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let ways: [(&str, Figure); 2] =
        [("a push of AT.WATCH", |round| round.push), ("an answer of AT.WAIT", |round| round.answer)];
    let mut rows: Vec<Row> = ways.map(|(words, of)| wake_row(findings, words, of)).into();
    let bar = format!("100,000 watches on {CONNECTIONS} connections, server heap each");
    let mut row = Row::at_most(bar, "B", 2_000.0, Some(500.0));
    let mut spoiled = findings.spoiled();
    if !findings.is_used_again() {
        spoiled = spoiled.or(Some("memory of watches that ended is not used again".to_owned()));
    }
    if let Some(taken) = &findings.memory {
        row.peers.extend(taken.each().map(|each| ("atoll".to_owned(), each)));
        row.peers.extend(taken.each_added().map(|each| ("added by the next".to_owned(), each)));
    }
    rows.push(row.judged(findings.memory.as_ref().and_then(super::memory::WatchMemory::each), spoiled));
    rows
}

fn wake_row(findings: &Findings, words: &str, of: fn(&Round) -> Times) -> Row {
    let mut row =
        Row::at_most(format!("{words} after the write is sent, p50, over a GET's"), "x", 4.0, Some(2.0));
    let middle = |of: fn(&Round) -> Times| median(findings.rounds.iter().map(|round| of(round).p50_us));
    row.peers.extend(middle(of).map(|us| ("wake us".to_owned(), us)));
    row.peers.extend(middle(|round| round.get).map(|us| ("get us".to_owned(), us)));
    let ratios = findings.rounds.iter().map(|round| of(round).p50_us / round.get.p50_us);
    row.judged(median(ratios), findings.spoiled())
}

/// Prints all results for people.
pub fn print(findings: &Findings) {
    println!("Waits at one node in memory: microseconds, medians over rounds");
    println!("{:>42} {:>9} {:>9}", "", "p50", "p99");
    let lines: [(&str, Figure); 6] = [
        ("get", |round| round.get),
        ("write that somebody watches", |round| round.write),
        ("push, from the sending of the write", |round| round.push),
        ("push, from the reply to the write", |round| round.push_after_reply),
        ("answer of a wait, from the sending", |round| round.answer),
        ("answer of a wait, from the reply", |round| round.answer_after_reply),
    ];
    for (words, of) in lines {
        let middle = |figure: fn(Times) -> f64| median(findings.rounds.iter().map(|round| figure(of(round))));
        if let (Some(p50), Some(p99)) = (middle(|times| times.p50_us), middle(|times| times.p99_us)) {
            println!("{words:>42} {p50:>9.1} {p99:>9.1}");
        }
    }
    if let Some(taken) = &findings.memory {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let list = |all: &[u64]| {
            all.iter().map(|&bytes| format!("{:.1}", mib(bytes))).collect::<Vec<_>>().join(" and ")
        };
        println!(
            "{} watches on {} connections, each told once: {:.0} B each, {:.0} B more each the second time. MiB of the \
             node: {:.1} before, {:.1} of it for connections; {} with all watches; {} when all were told.",
            taken.watches,
            taken.connections,
            taken.each().unwrap_or(f64::NAN),
            taken.each_added().unwrap_or(f64::NAN),
            mib(taken.before_bytes),
            mib(taken.connections_bytes),
            list(&taken.watched_bytes),
            list(&taken.told_bytes),
        );
    }
    for why in &findings.missing {
        println!("WRONG or missing: {why}");
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::super::memory::WatchMemory;
    use super::*;

    fn round(get: f64, push: f64) -> Round {
        let times = |p50_us| Times { p50_us, p99_us: p50_us };
        Round {
            count: 1,
            get: times(get),
            write: times(1.0),
            push: times(push),
            push_after_reply: times(0.0),
            answer: times(push * 3.0),
            answer_after_reply: times(0.0),
        }
    }

    #[test]
    fn a_wake_is_held_against_the_gets_of_its_own_round() {
        let mut findings = Findings {
            rounds: vec![round(10.0, 20.0), round(30.0, 30.0), round(10.0, 15.0)],
            ..Findings::default()
        };
        let told = rows(&findings);
        assert_eq!((told[0].figure, told[0].holds(), told[0].reaches_goal()), (Some(1.5), true, true));
        assert_eq!((told[1].figure, told[1].holds()), (Some(4.5), false));
        assert_eq!((told[2].figure, told[2].holds()), (None, false));
        findings.missing.push("somebody was told twice".to_owned());
        assert!(rows(&findings).iter().all(|row| !row.holds()) && !is_right(&findings));
        findings.missing = vec!["not offered yet: no program of Atoll was named".to_owned()];
        assert!(is_right(&findings) && rows(&findings).iter().all(|row| !row.holds()));
    }

    #[test]
    fn memory_that_is_not_used_again_spoils_the_bar() {
        let taken = |second| WatchMemory {
            watches: 100,
            before_bytes: 0,
            watched_bytes: vec![40_000, second],
            ..WatchMemory::default()
        };
        let mut findings = Findings { memory: Some(taken(41_000)), ..Findings::default() };
        assert!(is_right(&findings) && rows(&findings)[2].reaches_goal());
        findings.memory = Some(taken(80_000));
        assert!(!is_right(&findings) && !rows(&findings)[2].holds());
    }
}
