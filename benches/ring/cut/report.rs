//! The report of cut and heal: the counts of every store, and the bars.

use super::experiment::{Findings, OfCluster};
use crate::phases::is_failure;
use crate::report::Row;

const ATOLL: &str = "atoll";
const RIVAL: &str = "redis";

/// Prints the findings for a person.
pub fn print(findings: &Findings) {
    println!("Cut and heal: three hosts, one cut off with its primary and a client beside it");
    for of in &findings.measured {
        println!("  {}", of.name);
        println!(
            "    beside the cut primary {} writes acknowledged, {} after the cut, the last {:.1} s after it; \
             missing {}, wrong {}, unanswered {}; first error: {}",
            of.beside_acknowledged,
            of.beside_after_cut,
            of.beside_seconds,
            of.beside.missing,
            of.beside.wrong,
            of.beside.unanswered,
            of.first_error.as_deref().unwrap_or("none"),
        );
        println!(
            "    on the majority's side {} writes acknowledged; missing {}, wrong {}, unanswered {}; \
             reads that found less than what was acknowledged {}",
            of.majority_acknowledged,
            of.majority.missing,
            of.majority.wrong,
            of.majority.unanswered,
            of.wrong_reads,
        );
        println!(
            "    requests there that succeed: {:.1} % before the cut, {:.1} % after it, {:.1} % from 3 s after it; \
             refusals {:?}",
            percent(of.calm.succeeded, of.calm.requests),
            percent(of.after_cut.succeeded, of.after_cut.requests),
            percent(of.later.succeeded, of.later.requests),
            of.refusals,
        );
        println!(
            "    whole again {:.1} s after healing; the host took {:.0} % of the machine",
            of.whole_again_seconds,
            of.stolen * 100.0
        );
    }
    for (name, why) in &findings.missing {
        println!("  {name} is missing: {why}");
    }
    println!();
}

/// Whether Atoll lost nothing, answered everything and returned nothing stale, and every store that took part
/// completed.
pub fn is_right(findings: &Findings) -> bool {
    let is_well = |of: &OfCluster| of.lost() + of.unanswered() + of.wrong_reads == 0;
    findings.measured.iter().filter(|of| of.name == ATOLL).all(is_well)
        && findings.missing.iter().all(|(_, why)| !is_failure(why))
}

/// The bars of this phase.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let of = |name: &str| findings.measured.iter().find(|of| of.name == name);
    let (own, rival) = (of(ATOLL), of(RIVAL));
    let missing = findings.missing.iter().find(|(name, _)| name == ATOLL);
    let spoiled = missing.map(|(name, why)| format!("{name}: {why}")).or_else(|| {
        let of = own?;
        let (lost, unanswered, wrong) = (of.lost(), of.unanswered(), of.wrong_reads);
        (lost + unanswered + wrong > 0).then(|| {
            format!(
                "{lost} acknowledged writes are lost, nobody answers for {unanswered}, {wrong} reads found less"
            )
        })
    });
    let row = |row: Row, figure: &dyn Fn(&OfCluster) -> f64, value: Option<f64>| {
        let mut row = row;
        row.peers = findings.measured.iter().map(|of| (of.name.clone(), figure(of))).collect();
        row.judged(value, spoiled.clone())
    };
    let later = |of: &OfCluster| percent(of.later.succeeded, of.later.requests);
    let writes = |of: &OfCluster| of.after_cut.writes as f64;
    let lost = |of: &OfCluster| of.lost() as f64;
    vec![
        row(
            Row::at_most("cut and heal: acknowledged writes that are missing", "writes", 0.0, None),
            &lost,
            own.map(lost),
        ),
        row(
            Row::at_least("cut and heal: requests of the majority that succeed from 3 s on", "%", 95.0, None),
            &later,
            own.map(later),
        ),
        row(
            Row::at_least(
                "cut and heal: writes acknowledged to the majority after the cut, over redis",
                "x",
                1.0,
                None,
            ),
            &writes,
            own.zip(rival).map(|(own, rival)| writes(own) / writes(rival)),
        ),
    ]
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}
