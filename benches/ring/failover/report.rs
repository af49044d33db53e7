//! The report on the rounds of fail-over.

use super::Findings;
use super::round::Round;
use crate::local::percentile;
use crate::phases::is_failure;
use crate::report::Row;

/// At least this share of the rounds must kill the group's leader, and at least this share another node.
const SHARE_MIN: f64 = 0.4;

/// Prints the results for people.
pub fn print(findings: &Findings) {
    println!(
        "Fail-over: three nodes with three copies in folders (flushed), one killed with -9 under load; {} rounds in {:.0} s",
        findings.rounds.len(),
        findings.seconds
    );
    for (what, led_group) in [("led the group", true), ("others", false)] {
        let of = seconds(findings, |round| round.led_group == led_group);
        let shown = |share| percentile(&of, share).map_or("-".to_owned(), |figure| format!("{figure:.2}"));
        println!(
            "  {what:>14}: {:>3} rounds, the last slot takes writes after {} s (median), {} s (p99), {} s (longest)",
            of.len(),
            shown(0.5),
            shown(0.99),
            shown(1.0)
        );
    }
    let whole: Vec<f64> = findings.rounds.iter().map(|round| round.whole_seconds).collect();
    if let (Some(median), Some(longest)) = (percentile(&whole, 0.5), percentile(&whole, 1.0)) {
        println!(
            "  all copies in sync, and slots led by all, {median:.1} s after the new start, at most {longest:.1} s"
        );
    }
    let counts = &findings.counts;
    println!(
        "  {} writes acknowledged, {} refused, {} unknown; {} reads; {} keys looked up: {} lost, {} stale reads, {} foreign, {} unanswered",
        counts.acknowledged,
        counts.refused,
        counts.unknown,
        counts.reads,
        counts.looked_up,
        counts.lost,
        counts.stale,
        counts.foreign,
        counts.unanswered
    );
    findings.told.iter().chain(&findings.missing).for_each(|words| println!("  {words}"));
    println!();
}

/// Whether no acknowledged write is missing and nothing went wrong. A phase that could not run here counts
/// as right.
pub fn is_right(findings: &Findings) -> bool {
    spoiled(findings).is_none_or(|why| !is_failure(&why))
}

fn seconds(findings: &Findings, is_one: impl Fn(&&Round) -> bool) -> Vec<f64> {
    findings.rounds.iter().filter(is_one).map(|round| round.seconds).collect()
}

fn spoiled(findings: &Findings) -> Option<String> {
    if let Some(why) = &findings.missing {
        return Some(why.clone());
    }
    let counts = &findings.counts;
    let bad = [
        ("acknowledged writes are lost", counts.lost),
        ("reads found less than was known", counts.stale),
        ("reads found what was never written", counts.foreign),
        ("keys have nobody who answers for them", counts.unanswered),
    ];
    if let Some((what, count)) = bad.into_iter().find(|(_, count)| *count > 0) {
        return Some(format!("{count} {what}"));
    }
    if counts.acknowledged == 0 || counts.looked_up == 0 {
        return Some("no write was acknowledged and looked up".to_owned());
    }
    let led = seconds(findings, |round| round.led_group).len() as f64 / findings.rounds.len().max(1) as f64;
    (!(SHARE_MIN..=1.0 - SHARE_MIN).contains(&led) && findings.rounds.len() > 2)
        .then(|| "not half of the rounds killed the leader of the configuration group".to_owned())
}

/// The bar of this phase.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let bar = "kill -9 of a primary (half the rounds the leader of the group), 3 copies, 1 s lease: writes resume, p99";
    let figure = percentile(&seconds(findings, |_| true), 0.99);
    let mut row = Row::at_most(bar, "s", 3.0, Some(1.5));
    row.peers = figure.map(|figure| ("atoll".to_owned(), figure)).into_iter().collect();
    vec![row.judged(figure, spoiled(findings))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(seconds: &[f64]) -> Findings {
        let round = |(number, seconds): (usize, &f64)| Round {
            victim: 1,
            led_group: number.is_multiple_of(2),
            slots: 5_461,
            probed: 64,
            seconds: *seconds,
            seconds_median: *seconds,
            whole_seconds: 1.0,
        };
        let rounds = seconds.iter().enumerate().map(round).collect();
        let mut findings = Findings { rounds, ..Findings::default() };
        (findings.counts.acknowledged, findings.counts.looked_up) = (7, 7);
        findings
    }

    #[test]
    fn the_slowest_of_few_rounds_decides_and_a_lost_write_spoils_all() {
        let quick = found(&[1.0, 1.2, 1.4, 1.1]);
        assert_eq!((rows(&quick)[0].figure, rows(&quick)[0].reaches_goal()), (Some(1.4), true));
        let slow = found(&[1.0, 1.2, 3.1, 1.1]);
        assert!(!rows(&slow)[0].holds() && is_right(&slow));
        let mut lossy = found(&[1.0, 1.2, 1.4, 1.1]);
        lossy.counts.lost = 1;
        assert!(!rows(&lossy)[0].holds() && !is_right(&lossy));
        let mut one_sided = found(&[1.0, 1.2, 1.4, 1.1]);
        one_sided.rounds.iter_mut().for_each(|round| round.led_group = false);
        assert!(!rows(&one_sided)[0].holds());
        assert_eq!(rows(&Findings::default())[0].figure, None);
        assert!(!rows(&Findings::default())[0].holds());
    }
}
