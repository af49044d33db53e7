//! The report of nodes that join and leave.

use super::Findings;
use crate::local::percentile;
use crate::phases::is_failure;
use crate::report::Row;

/// With fewer moves of probed slots than this, no share of them is judged.
const MOVES_MIN: usize = 16;

/// Prints the findings for a person.
pub fn print(findings: &Findings) {
    println!(
        "Moves: nodes with three copies in folders (flushed) join and leave while clients write; {:.0} s in all",
        findings.seconds
    );
    for change in &findings.changes {
        println!(
            "  node {} leads its share {:.1} s after its start; node {} is out, and all is copied, after {:.1} s",
            change.joined, change.join_seconds, change.left, change.leave_seconds
        );
    }
    let moved: Vec<f64> = findings.moves.iter().map(|one| one.unavailable_ms).collect();
    for (what, gaps) in [("moves of probed slots", &moved), ("stretches without a move", &findings.calm_ms)] {
        let shown = |share| percentile(gaps, share).map_or("-".to_owned(), |gap| format!("{gap:.1}"));
        println!(
            "  {:>5} {what}: longest gap less the usual one {} ms (median), {} ms (p99), {} ms (longest)",
            gaps.len(),
            shown(0.5),
            shown(0.99),
            shown(1.0)
        );
    }
    let usual = percentile(&findings.usual_ms, 0.5).map_or("-".to_owned(), |gap| format!("{gap:.1}"));
    println!("  the usual gap is {usual} ms");
    for (what, of) in findings.tallies() {
        println!(
            "  {what:>6}: {} operations, {} sent on (one {} times), failed {:?}; {} looked up: doubled {}, lost {}, foreign {}, unanswered {}",
            of.done,
            of.followed,
            of.hops_most,
            of.failed,
            of.looked_up,
            of.doubled,
            of.lost,
            of.foreign,
            of.unanswered
        );
        of.told.iter().for_each(|words| println!("    {words}"));
    }
    findings.missing.iter().for_each(|why| println!("  {why}"));
    println!();
}

/// Whether nothing was done twice, lost or invented, every slot answered at the end, and everything
/// completed, if it was offered at all.
pub fn is_right(findings: &Findings) -> bool {
    let is_well = |of: &super::Tally| of.doubled + of.lost + of.foreign + of.unanswered == 0;
    findings.tallies().into_iter().all(|(_, of)| is_well(of))
        && findings.missing.as_ref().is_none_or(|why| !is_failure(why))
}

fn spoiled(findings: &Findings) -> Option<String> {
    if let Some(why) = &findings.missing {
        return Some(why.clone());
    }
    let wrong = |of: &super::Tally| {
        (of.lost + of.doubled + of.foreign + of.unanswered > 0).then(|| {
            let counted = format!("{} lost, {} doubled, {} foreign", of.lost, of.doubled, of.foreign);
            format!("{counted}, {} unanswered at the end", of.unanswered)
        })
    };
    if let Some((what, wrong)) =
        findings.tallies().into_iter().find_map(|(what, of)| Some((what, wrong(of)?)))
    {
        return Some(format!("of what is told as `{what}`: {wrong}"));
    }
    if let Some((what, _)) = findings.tallies().into_iter().find(|(_, of)| of.done == 0) {
        return Some(format!("nothing was answered about what is told as `{what}`"));
    }
    (findings.moves.len() < MOVES_MIN).then(|| format!("only {} probed slots moved", findings.moves.len()))
}

/// The bars of this phase.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let is_measured = !findings.changes.is_empty();
    let spoiled = spoiled(findings);
    let bad = |(_, of): (_, &super::Tally)| of.failures() + of.doubled + of.lost + of.foreign;
    let bad = findings.tallies().into_iter().map(bad).sum::<u64>() as f64;
    let moved: Vec<f64> = findings.moves.iter().map(|one| one.unavailable_ms).collect();
    let row = |row: Row, figure: Option<f64>| {
        let mut row = row;
        row.peers = figure.map(|figure| ("atoll".to_owned(), figure)).into_iter().collect();
        row.judged(figure, spoiled.clone())
    };
    vec![
        row(
            Row::at_most(
                "join, leave, rebalance under load: failed or doubled operations",
                "operations",
                0.0,
                Some(0.0),
            ),
            is_measured.then_some(bad),
        ),
        row(
            Row::at_most(
                "join, leave, rebalance under load: unavailability per slot, p99",
                "ms",
                50.0,
                Some(5.0),
            ),
            percentile(&moved, 0.99).filter(|_| is_measured),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Change, Move};
    use super::*;

    fn found(unavailable_ms: f64) -> Findings {
        let mut findings = Findings::default();
        findings.changes.push(Change { joined: 4, join_seconds: 3.0, left: 2, leave_seconds: 3.0 });
        findings.moves = (0..40).map(|slot| Move { slot, at_ms: 9.0, unavailable_ms: 2.0 }).collect();
        findings.moves[7].unavailable_ms = unavailable_ms;
        let all = [&mut findings.named, &mut findings.plain, &mut findings.probed, &mut findings.filled];
        all.into_iter().for_each(|of| of.done = 100);
        findings
    }

    #[test]
    fn a_failure_fails_one_bar_a_long_gap_the_other_and_a_doubled_or_lost_write_both() {
        let holds = |findings: &Findings| rows(findings).iter().map(|row| row.holds()).collect::<Vec<_>>();
        assert_eq!((holds(&found(3.0)), rows(&found(3.0))[1].reaches_goal()), (vec![true, true], true));
        assert_eq!(holds(&found(51.0)), [true, false]);
        let mut failed = found(3.0);
        failed.plain.fail("TRYAGAIN not now");
        assert_eq!((holds(&failed), is_right(&failed)), (vec![false, true], true));
        let mut doubled = found(3.0);
        doubled.named.doubled = 1;
        assert_eq!((holds(&doubled), is_right(&doubled)), (vec![false, false], false));
        let mut lost = found(3.0);
        lost.filled.lost = 1;
        assert_eq!((holds(&lost), is_right(&lost)), (vec![false, false], false));
        let mut foreign = found(3.0);
        foreign.probed.foreign = 1;
        assert_eq!((holds(&foreign), is_right(&foreign)), (vec![false, false], false));
        let mut hanging = found(3.0);
        hanging.probed.unanswered = 1;
        assert_eq!((holds(&hanging), is_right(&hanging)), (vec![false, false], false));
        let mut unread = found(3.0);
        unread.filled.done = 0;
        assert_eq!(holds(&unread), [false, false]);
        let mut idle = found(3.0);
        idle.moves.truncate(3);
        assert_eq!(holds(&idle), [false, false]);
        let none = Findings::default();
        assert!(rows(&none).iter().all(|row| row.figure.is_none() && !row.holds()));
    }
}
