//! The report of total outages.

use super::{Findings, OfKeeping};
use crate::local::{Keeping, percentile};
use crate::phases::is_failure;
use crate::report::Row;

/// A round with fewer acknowledged writes than this had no load.
const WRITES_MIN: u64 = 16;

/// Prints the findings for a person.
pub fn print(findings: &Findings) {
    println!(
        "Total outage: all three nodes killed with -9 while 16 clients write, and started again; {:.0} s in all",
        findings.seconds
    );
    for of in &findings.measured {
        let seconds = seconds(of);
        let shown = |share| percentile(&seconds, share).map_or("-".to_owned(), |one| format!("{one:.2}"));
        let counts = &of.counts;
        println!(
            "  {:>8}: {:>3} rounds, every slot takes writes {} s after the start (median), {} s (longest); \
             {} writes acknowledged, {} unknown, {} looked up: {} lost, {} foreign, {} unanswered",
            of.keeping.name(),
            of.rounds.len(),
            shown(0.5),
            shown(1.0),
            counts.acknowledged,
            counts.unknown,
            counts.looked_up,
            counts.lost + counts.stale,
            counts.foreign,
            counts.unanswered
        );
        of.told.iter().chain(&of.missing).for_each(|words| println!("    {words}"));
    }
    println!(
        "  Processes are killed and the machine goes on, so whether anything was synced is not seen here."
    );
    println!();
}

/// Whether nothing that was acknowledged is missing, and nothing else went wrong; a class that was not
/// offered cannot go wrong.
pub fn is_right(findings: &Findings) -> bool {
    let is_offered = |of: &OfKeeping| of.missing.as_ref().is_none_or(|why| is_failure(why));
    let mut offered = findings.measured.iter().filter(|of| is_offered(of));
    offered.all(|of| spoiled(of).is_none())
}

fn seconds(of: &OfKeeping) -> Vec<f64> {
    of.rounds.iter().map(|round| round.seconds).collect()
}

/// How much was acknowledged, or read, and is missing.
fn lost(of: &OfKeeping) -> f64 {
    (of.counts.lost + of.counts.stale) as f64
}

fn spoiled(of: &OfKeeping) -> Option<String> {
    if let Some(why) = &of.missing {
        return Some(format!("{}: {why}", of.keeping.name()));
    }
    let (lost, foreign, unanswered) = (lost(of), of.counts.foreign, of.counts.unanswered);
    if lost > 0.0 || foreign + unanswered > 0 {
        return Some(format!(
            "{}: {lost} acknowledged writes are lost, {foreign} reads found what was never written, nobody \
             answers for {unanswered} keys",
            of.keeping.name()
        ));
    }
    let is_idle = of.rounds.iter().any(|round| round.acknowledged < WRITES_MIN);
    is_idle.then(|| "a round without load".to_owned())
}

/// The bars of this phase; an error in one class fails the bars of both.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let spoiled = findings.measured.iter().find_map(spoiled);
    let classes = [(Keeping::Synced, "always"), (Keeping::Flushed, "everysec")];
    let rows = classes.map(|(keeping, class)| {
        let of = findings.measured.iter().find(|of| of.keeping == keeping);
        let of = of.filter(|of| !of.rounds.is_empty());
        let row = |what: &str, unit, target, figure: Option<f64>| {
            // Only processes are killed: the machine stays up, and keeps what was written and never synced.
            let bar = format!("total outage by kill -9 under load, `{class}`: {what}");
            let mut row = Row::at_most(bar, unit, target, None);
            row.peers = figure.map(|figure| ("atoll".to_owned(), figure)).into_iter().collect();
            row.judged(figure, spoiled.clone())
        };
        let longest = of.and_then(|of| percentile(&seconds(of), 1.0));
        [
            row("acknowledged writes lost", "writes", 0.0, of.map(lost)),
            row("every slot serves, the longest", "s", 10.0, longest),
        ]
    });
    rows.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outage::Round;
    use crate::schedules::Counts;

    fn found(seconds: f64) -> Findings {
        let of = |keeping| OfKeeping {
            keeping,
            rounds: vec![Round { load_ms: 200, acknowledged: 900, seconds }],
            counts: Counts::default(),
            told: Vec::new(),
            missing: None,
        };
        Findings { measured: vec![of(Keeping::Synced), of(Keeping::Flushed)], seconds: 1.0 }
    }

    #[test]
    fn a_lost_write_fails_all_bars_and_a_slow_start_its_own() {
        let mut findings = found(2.0);
        assert!(is_right(&findings) && rows(&findings).iter().all(|row| row.holds()));
        findings.measured[1].counts.lost = 1;
        let holds: Vec<bool> = rows(&findings).iter().map(|row| row.holds()).collect();
        assert_eq!((holds, is_right(&findings)), (vec![false; 4], false));
        let mut stale = found(2.0);
        stale.measured[0].counts.stale = 1;
        assert!(!is_right(&stale) && rows(&stale).iter().all(|row| !row.holds()));
        let holds: Vec<bool> = rows(&found(11.0)).iter().map(|row| row.holds()).collect();
        assert_eq!(holds, [true, false, true, false]);
        let mut idle = found(2.0);
        idle.measured[0].rounds[0].acknowledged = 0;
        assert!(!rows(&idle)[0].holds() && !is_right(&idle));
        assert!(rows(&Findings::default()).iter().all(|row| row.figure.is_none() && !row.holds()));
    }

    #[test]
    fn bars_say_that_processes_are_killed_and_claim_no_loss_of_power() {
        assert!(rows(&found(2.0)).iter().all(|row| row.bar.contains("kill -9")));
    }
}
