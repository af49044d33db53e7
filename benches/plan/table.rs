//! Output for people: the bars, every engine's figures phase by phase, and where Atoll loses.

use super::bars::Row;
use super::results::Measured;
use crate::measure::MachineFacts;
use crate::peers::EngineName;
use crate::phases::{Phase, PhaseResult};
use std::collections::BTreeMap;

/// Prints the machine and how quiet it was.
pub fn print_machine(facts: &MachineFacts) {
    println!(
        "{} x {}, {:.0} GiB, Linux {}, {}, load {}{}\n",
        facts.processors,
        facts.processor,
        facts.memory_gib,
        facts.kernel,
        facts.file_system,
        facts.load,
        if facts.priority_raised { "" } else { ", priority not raised: builds beside this run will show" },
    );
}

/// Prints one line for each bar.
pub fn print_rows(rows: &[Row]) {
    println!("{:<56} {:>12} {:>11} {:>9}  holds", "bar", "figure", "to resolve", "goal");
    for row in rows {
        let sign = if row.more_is_better { ">=" } else { "<=" };
        let figure = row.figure.map_or("not measured".to_owned(), |figure| with_unit(figure, row.unit));
        let goal = row.goal.map_or("-".to_owned(), |goal| with_unit(goal, row.unit));
        let target = format!("{sign} {}", with_unit(row.target, row.unit));
        let verdict = match (row.holds, row.reaches_goal()) {
            (None, _) => "-",
            (Some(false), _) => "NO",
            (Some(true), Some(true)) => "yes, goal too",
            (Some(true), _) => "yes",
        };
        println!("{:<56} {figure:>12} {target:>11} {goal:>9}  {verdict}", row.bar);
        if matches!(row.unit, "s" | "ms") && row.peers.len() > 1 {
            println!("    {}", by_engine(row));
        }
        if let Some(lacking) = without(row) {
            println!("    {lacking}");
        }
        if let Some(disturbed) = &row.disturbed {
            println!("    not judged: {disturbed}");
        }
    }
    println!();
}

/// The missing rivals of a bar that compares with the best one; `None` if no rival was measured.
fn without(row: &Row) -> Option<String> {
    let has_rivals =
        row.peers.keys().any(|name| EngineName::from_name(name).is_some_and(EngineName::is_peer));
    let is_told = has_rivals && !row.lacking.is_empty();
    is_told.then(|| format!("the best rival is not known without {}", row.lacking.join(", ")))
}

/// Figures that appear in no phase's table: each engine's figure, the best first.
fn by_engine(row: &Row) -> String {
    let mut figures: Vec<(&str, f64)> = row.peers.iter().map(|(name, figure)| (*name, *figure)).collect();
    figures.sort_by(|left, right| left.1.total_cmp(&right.1));
    let shown: Vec<String> =
        figures.iter().map(|(name, figure)| format!("{name} {}", with_unit(*figure, row.unit))).collect();
    shown.join(", ")
}

fn with_unit(figure: f64, unit: &str) -> String {
    match unit {
        "x" | "B" => format!("{figure:.2}{}", if unit == "x" { "x" } else { "" }),
        // Half a millisecond is not one.
        "ms" if figure < 10.0 => format!("{figure:.1} ms"),
        "ms" => format!("{figure:.0} ms"),
        unit => format!("{figure:.2} {unit}"),
    }
}

/// Prints every engine's figures in every phase, the cheapest first.
pub fn print_phases(measured: &Measured) {
    for (phase, value_bytes) in measured.phases() {
        let Some(title) = title(phase) else { continue };
        println!("{title}, values of {value_bytes} B");
        println!(
            "{:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9} {:>8}",
            "engine",
            "CPU us/op",
            "settled",
            "kop/s",
            "p99 us",
            "p99.99",
            "worst us",
            "own stall",
            "B handed",
            "B to disk",
            "peak MB"
        );
        for (engine, _) in in_order_of_cost(measured, phase, value_bytes) {
            print_engine(measured, (phase, value_bytes, engine));
        }
        println!();
    }
}

/// The title of a phase in the tables; `None` for phases that are not measured or have their own row.
const fn title(phase: Phase) -> Option<&'static str> {
    match phase {
        Phase::Load => Some("YCSB load in batches of 1,000 (latencies are of batches)"),
        Phase::LoadSingle => Some("YCSB load by single puts"),
        Phase::Get => Some("YCSB C, single get"),
        Phase::GetMany => Some("YCSB C in batches of 16 (latencies are of batches)"),
        Phase::Scan => Some("scan of 100, fresh"),
        Phase::Update => Some("YCSB A, half gets, half updates"),
        Phase::UpdatePair => Some("YCSB A by two threads, CPU of both"),
        Phase::ScanAged => Some("scan of 100 after ten zipfian updates of each record"),
        Phase::Verify
        | Phase::TailFill
        | Phase::TailOpen
        | Phase::Append
        | Phase::Contract
        | Phase::ReadBeside
        | Phase::Overwrite
        | Phase::Beyond
        | Phase::PairsFew
        | Phase::Pairs
        | Phase::PairsMany
        | Phase::Ranges => None,
    }
}

fn in_order_of_cost(measured: &Measured, phase: Phase, value_bytes: usize) -> Vec<(EngineName, f64)> {
    let costs = measured.of_all(phase, value_bytes, PhaseResult::settled_cpu_us);
    let mut costs: Vec<(EngineName, f64)> =
        costs.into_iter().filter_map(|(name, cost)| Some((EngineName::from_name(name)?, cost))).collect();
    costs.sort_by(|left, right| left.1.total_cmp(&right.1));
    costs
}

fn print_engine(measured: &Measured, subject: (Phase, usize, EngineName)) {
    let median = |figure: &dyn Fn(&PhaseResult) -> f64| measured.median(subject, figure).unwrap_or(f64::NAN);
    let worst = |figure: &dyn Fn(&PhaseResult) -> Option<f64>| measured.worst(subject, figure);
    let latency = |figure: fn(&crate::measure::Latency) -> f64| {
        median(&|result| result.latency.as_ref().map_or(f64::NAN, figure))
    };
    let mark = if subject.2.is_peer() { ' ' } else { '*' };
    println!(
        "{:>9}{mark} {:>9.3} {:>9.3} {:>9.0} {:>9.1} {:>9.1} {:>10.0} {:>10.0} {:>9} {:>9} {:>8.0}",
        subject.2.name(),
        median(&PhaseResult::cpu_us),
        median(&PhaseResult::settled_cpu_us),
        median(&PhaseResult::kilo_operations_per_second),
        latency(|latency| latency.p99_us),
        latency(|latency| latency.p9999_us),
        worst(&|result| result.latency.map(|latency| latency.worst_us)).unwrap_or(f64::NAN),
        worst(&PhaseResult::worst_excess_us).unwrap_or(f64::NAN),
        bytes_column(measured, subject, PhaseResult::bytes_handed_over),
        bytes_column(measured, subject, PhaseResult::bytes_to_disk),
        median(&|result| result.peak_resident_bytes as f64 / 1e6),
    );
}

/// A column of phases that write, for engines that write at all.
fn bytes_column(measured: &Measured, subject: (Phase, usize, EngineName), figure: Figure) -> String {
    let bytes = measured.median(subject, figure);
    let counts = writes(subject.0) && subject.2.is_persistent();
    bytes.filter(|_| counts).map_or("-".to_owned(), |bytes| format!("{bytes:.2}"))
}

const fn writes(phase: Phase) -> bool {
    matches!(phase, Phase::Load | Phase::LoadSingle | Phase::Update | Phase::UpdatePair)
}

/// Prints one line for each figure in which a rival beats Atoll; then what was wrong, failed or disturbed.
pub fn print_losses(measured: &Measured) {
    let losses = losses(measured);
    if !losses.is_empty() {
        println!("Where a rival is better than Atoll:");
        losses.iter().for_each(|loss| println!("  {loss}"));
    }
    for engine in EngineName::ALL {
        if let Some((count, first)) = measured.wrong(engine) {
            println!("{}: {count} WRONG VALUES, the first: {first}", engine.name());
        }
    }
    for failure in &measured.failures {
        println!("FAILED: {}", failure.what);
    }
    let (others, stolen) = measured.most_disturbed();
    println!(
        "Beside the measured process, others used at most {:.0} % of the machine, its host {:.0} %.",
        others * 100.0,
        stolen * 100.0
    );
}

type Figure = fn(&PhaseResult) -> f64;

/// Figures where less is better.
const COMPARED: [(&str, Figure); 5] = [
    ("CPU us/op, settled", PhaseResult::settled_cpu_us),
    ("p99 us", |result| result.latency.map_or(f64::NAN, |latency| latency.p99_us)),
    ("p99.99 us", |result| result.latency.map_or(f64::NAN, |latency| latency.p9999_us)),
    ("worst stall of its own, us", |result| result.worst_excess_us().unwrap_or(f64::NAN)),
    ("peak memory, MB", |result| result.peak_resident_bytes as f64 / 1e6),
];

fn losses(measured: &Measured) -> Vec<String> {
    let mut losses = Vec::new();
    for (phase, value_bytes) in measured.phases() {
        let Some(title) = title(phase) else { continue };
        let mut figures: Vec<_> = COMPARED
            .iter()
            .map(|(name, figure)| (*name, measured.of_all(phase, value_bytes, figure)))
            .collect();
        if writes(phase) {
            figures.push(("bytes per user byte", measured.bytes_of_all(phase, value_bytes)));
        }
        losses.extend(figures.into_iter().filter_map(|(name, of_all)| {
            let (own, better) = better_rivals(&of_all)?;
            Some(format!("{title}, {value_bytes} B, {name}: atoll {own:.2}, {better}"))
        }));
    }
    losses
}

/// Atoll's figure and the rivals below it; `None` if there are none.
fn better_rivals(of_all: &BTreeMap<&'static str, f64>) -> Option<(f64, String)> {
    let own = *of_all.get(EngineName::Atoll.name())?;
    let is_rival = |name: &str| EngineName::from_name(name).is_some_and(EngineName::is_peer);
    let better: Vec<String> = of_all
        .iter()
        .filter(|(name, figure)| **figure < own && is_rival(name))
        .map(|(name, figure)| format!("{name} {figure:.2}"))
        .collect();
    (!better.is_empty()).then(|| (own, better.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_milliseconds_are_told_with_a_digit() {
        let shown = [0.54, 9.94, 20.0, 200.0].map(|figure| with_unit(figure, "ms"));
        assert_eq!(shown, ["0.5 ms", "9.9 ms", "20 ms", "200 ms"]);
    }

    #[test]
    fn a_rival_that_is_better_is_named_and_one_that_is_worse_is_not() {
        let cost =
            |us: f64| PhaseResult { operations: 1, settled_cpu_seconds: us / 1e6, ..PhaseResult::default() };
        let mut measured = Measured::default();
        for (engine, us) in [(EngineName::Atoll, 2.0), (EngineName::Lmdb, 1.0), (EngineName::Rocksdb, 3.0)] {
            measured.add((Phase::Scan, 100, engine), cost(us));
        }
        measured.add((Phase::Scan, 100, EngineName::Floor), cost(0.1));
        let losses = losses(&measured);
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert!(losses[0].contains("lmdb 1.00") && !losses[0].contains("rocksdb"));
        assert!(!losses[0].contains("floor"), "a floor is no rival");
    }
}
