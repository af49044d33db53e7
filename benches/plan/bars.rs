//! The bars of the engine: for each the target that must hold, the goal, and the measured figure.

use super::results::{Measured, Subject};
use super::runner::VALUE_BYTES;
use super::{second_half, short_pairs};
use crate::peers::EngineName::{self, Atoll, Lmdb, Rocksdb};
use crate::phases::{Phase, PhaseResult};
use std::collections::BTreeMap;

/// One line of the table, as other programs read it.
///
/// `peers` holds each engine's value in the unit behind the figure: CPU microseconds per operation for
/// ratios, otherwise the figure's own unit.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// What is measured.
    pub bar: &'static str,
    /// Atoll's figure; `None` if it was not measured.
    pub figure: Option<f64>,
    /// The unit of figure, target and goal.
    pub unit: &'static str,
    /// The value that must hold.
    pub target: f64,
    /// The value that Atoll aims at.
    pub goal: Option<f64>,
    /// Whether the target holds; `None` if it was not measured, or if the machine was too busy to tell.
    pub holds: Option<bool>,
    /// The value of each engine.
    pub peers: BTreeMap<&'static str, f64>,
    /// Whether more is better.
    #[serde(skip)]
    pub more_is_better: bool,
    /// The rivals of the bar that were not measured; without them the best one is unknown.
    #[serde(skip)]
    pub lacking: Vec<&'static str>,
    /// The results from which the figure is computed.
    #[serde(skip)]
    pub made_of: Vec<Subject>,
    /// Why the figure is not judged: the load of other processes during one of those results.
    #[serde(skip)]
    pub disturbed: Option<String>,
}

impl Row {
    /// The same row with the results from which its figure is computed.
    pub fn made_of(self, made_of: impl IntoIterator<Item = Subject>) -> Self {
        Self { made_of: made_of.into_iter().collect(), ..self }
    }

    /// Whether the goal is reached.
    pub fn reaches_goal(&self) -> Option<bool> {
        Some(self.meets(self.goal?, self.figure?))
    }

    fn meets(&self, bound: f64, figure: f64) -> bool {
        if self.more_is_better { figure >= bound } else { figure <= bound }
    }
}

pub const SMALL: usize = VALUE_BYTES[0];
pub const LARGE: usize = VALUE_BYTES[1];
/// The names of figures that only one phase has.
pub const APPEND_RATIO: &str = "append to 60 MiB over append to empty";
pub const CONTRACT_GET: &str = "contract over engine, get";
pub const CONTRACT_PUT: &str = "contract over engine, put";

/// All rows, in the order of the table.
///
/// `scale_to_full` is the length of the log tail that the bar is about, divided by that of the measured one.
pub fn rows(measured: &Measured, scale_to_full: f64) -> Vec<Row> {
    let rows = [
        contract_rows(measured),
        ratio_rows(measured),
        absolute_rows(measured, scale_to_full),
        second_half::rows(measured),
        short_pairs::rows(measured),
    ];
    rows.into_iter().flatten().map(|row| judge(row, measured)).collect()
}

/// Judges a row: it holds if its figure meets the target and Atoll returned nothing wrong and had no failure
/// on the way. A figure that was measured on a busy machine is not judged.
fn judge(mut row: Row, measured: &Measured) -> Row {
    let is_spoiled = measured.is_spoiled(Atoll);
    row.disturbed = row.figure.and_then(|_| measured.disturbance(&row.made_of)).filter(|_| !is_spoiled);
    let figure = row.figure.filter(|_| row.disturbed.is_none());
    row.holds = figure.map(|figure| row.meets(row.target, figure) && !is_spoiled);
    row
}

pub fn at_most(bar: &'static str, unit: &'static str, target: f64, goal: impl Into<Option<f64>>) -> Row {
    let goal = goal.into();
    Row {
        bar,
        figure: None,
        unit,
        target,
        goal,
        holds: None,
        peers: BTreeMap::new(),
        more_is_better: false,
        lacking: Vec::new(),
        made_of: Vec::new(),
        disturbed: None,
    }
}

/// The cost of the best of these rivals divided by Atoll's; not measured if one of the rivals was not,
/// because that one may be the best.
pub fn over_the_best(
    row: Row,
    peers: BTreeMap<&'static str, f64>,
    (phase, value_bytes): (Phase, usize),
    rivals: &[EngineName],
) -> Row {
    let cost = |engine: &EngineName| peers.get(engine.name()).copied().filter(|cost| cost.is_finite());
    let lacking: Vec<_> =
        rivals.iter().filter(|rival| cost(rival).is_none()).map(|rival| rival.name()).collect();
    let best = rivals.iter().filter_map(cost).min_by(f64::total_cmp).filter(|_| lacking.is_empty());
    let figure = best.zip(cost(&Atoll)).map(|(best, own)| best / own);
    let made_of = rivals.iter().chain([&Atoll]).map(|engine| (phase, value_bytes, *engine));
    Row { figure, peers, lacking, more_is_better: true, ..row }.made_of(made_of)
}

fn contract_rows(measured: &Measured) -> Vec<Row> {
    let extra = |phase, name: &'static str| {
        measured.median((phase, SMALL, Atoll), |result| result.extra.get(name).copied().unwrap_or(f64::NAN))
    };
    let row = |bar, target, goal: Option<f64>, (phase, name)| {
        Row { figure: extra(phase, name), ..at_most(bar, "x", target, goal) }.made_of([(phase, SMALL, Atoll)])
    };
    let (get, put) = ((Phase::Contract, CONTRACT_GET), (Phase::Contract, CONTRACT_PUT));
    vec![
        row("contract over engine, CPU per get, in memory", 2.0, Some(1.3), get),
        row("contract over engine, CPU per put, in memory", 2.0, Some(1.3), put),
        row("append of 100 B to a 60 MiB value over an empty one", 2.0, None, (Phase::Append, APPEND_RATIO)),
    ]
}

/// A comparison: the rival's cost divided by Atoll's.
struct Ratio {
    bar: &'static str,
    rival: (Phase, EngineName),
    own: Phase,
    target: f64,
    goal: f64,
}

fn ratio_rows(measured: &Measured) -> Vec<Row> {
    let ratio = |bar, own, rival, target, goal| Ratio { bar, own, rival, target, goal };
    let ratios = [
        ratio("YCSB load, CPU per op, better than LMDB by", Phase::Load, (Phase::Load, Lmdb), 1.3, 2.7),
        ratio("YCSB load, CPU per op, better than RocksDB by", Phase::Load, (Phase::Load, Rocksdb), 3.0, 5.8),
        ratio("YCSB C, single get, better than LMDB by", Phase::Get, (Phase::Get, Lmdb), 1.0, 1.65),
        ratio("YCSB C, single get, better than RocksDB by", Phase::Get, (Phase::Get, Rocksdb), 5.0, 9.2),
        ratio(
            "YCSB C in batches of 16, better than LMDB single by",
            Phase::GetMany,
            (Phase::Get, Lmdb),
            2.0,
            3.6,
        ),
        ratio("scan of 100, fresh, better than LMDB by", Phase::Scan, (Phase::Scan, Lmdb), 0.7, 1.6),
        ratio("scan of 100, fresh, better than RocksDB by", Phase::Scan, (Phase::Scan, Rocksdb), 5.0, 10.0),
    ];
    ratios.into_iter().map(|ratio| ratio_row(measured, ratio)).collect()
}

fn ratio_row(measured: &Measured, ratio: Ratio) -> Row {
    let cost = PhaseResult::settled_cpu_us;
    let (rival_phase, rival) = ratio.rival;
    let own_cost = measured.median((ratio.own, SMALL, Atoll), cost);
    let rival_cost = measured.median((rival_phase, SMALL, rival), cost);
    let mut peers = measured.of_all(rival_phase, SMALL, cost);
    if let Some(own_cost) = own_cost {
        peers.insert(Atoll.name(), own_cost);
    }
    Row {
        figure: own_cost.zip(rival_cost).map(|(own_cost, rival_cost)| rival_cost / own_cost),
        peers,
        more_is_better: true,
        ..at_most(ratio.bar, "x", ratio.target, ratio.goal)
    }
    .made_of([(ratio.own, SMALL, Atoll), (rival_phase, SMALL, rival)])
}

fn absolute_rows(measured: &Measured, scale_to_full: f64) -> Vec<Row> {
    let row = |bar, unit, target, goal: f64, mut peers: BTreeMap<&'static str, f64>, scale: f64| {
        peers.values_mut().for_each(|figure| *figure *= scale);
        Row { figure: peers.get(Atoll.name()).copied(), peers, ..at_most(bar, unit, target, goal) }
    };
    let of = |phase, value_bytes| [(phase, value_bytes, Atoll)];
    let bytes = |value_bytes| measured.bytes_of_all(Phase::Load, value_bytes);
    let recovery = measured.of_all(Phase::TailOpen, SMALL, |result| result.open_ms / 1000.0);
    let open = measured.of_all(Phase::Get, SMALL, |result| result.open_ms);
    let open = open.into_iter().filter(|(name, _)| is_persistent(name)).collect();
    vec![
        row("bytes written per user byte, load, records of 124 B", "B", 2.4, 2.1, bytes(SMALL), 1.0)
            .made_of(of(Phase::Load, SMALL)),
        row("bytes written per user byte, load, values of 1,000 B", "B", 1.3, 1.15, bytes(LARGE), 1.0)
            .made_of(of(Phase::Load, LARGE)),
        row("recovery after a kill, 1 GB tail of 124 B records", "s", 10.0, 3.0, recovery, scale_to_full)
            .made_of(of(Phase::TailOpen, SMALL)),
        row("open after a clean close", "ms", 200.0, 50.0, open, 1.0).made_of(of(Phase::Get, SMALL)),
    ]
}

fn is_persistent(name: &str) -> bool {
    EngineName::from_name(name).is_some_and(EngineName::is_persistent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::IoBytes;
    use crate::phases::{beside, beyond, churn, pairs, ranges};
    use crate::plan::results::Failure;
    use crate::plan::runner::PAIR_BYTES;

    fn cost(us: f64) -> PhaseResult {
        PhaseResult { operations: 1, settled_cpu_seconds: us / 1e6, ..PhaseResult::default() }
    }

    fn row<'a>(rows: &'a [Row], bar: &str) -> &'a Row {
        rows.iter().find(|row| row.bar == bar).expect("the bar is in the table")
    }

    #[test]
    fn a_ratio_is_the_cost_of_the_rival_over_that_of_atoll() {
        let mut measured = Measured::default();
        measured.add((Phase::Load, SMALL, Atoll), cost(0.8));
        measured.add((Phase::Load, SMALL, Lmdb), cost(2.0));
        let rows = rows(&measured, 1.0);
        let row = row(&rows, "YCSB load, CPU per op, better than LMDB by");
        assert!((row.figure.expect("measured") - 2.5).abs() < 1e-9);
        assert_eq!((row.holds, row.reaches_goal()), (Some(true), Some(false)));
    }

    #[test]
    fn batches_are_held_against_single_gets_of_lmdb() {
        let mut measured = Measured::default();
        measured.add((Phase::GetMany, SMALL, Atoll), cost(0.5));
        measured.add((Phase::Get, SMALL, Lmdb), cost(0.7));
        measured.add((Phase::GetMany, SMALL, Lmdb), cost(0.1));
        let rows = rows(&measured, 1.0);
        let row = row(&rows, "YCSB C in batches of 16, better than LMDB single by");
        assert!((row.figure.expect("measured") - 1.4).abs() < 1e-9);
        assert_eq!(row.holds, Some(false));
    }

    #[test]
    fn a_bar_without_its_rival_is_not_measured() {
        let mut measured = Measured::default();
        measured.add((Phase::Load, SMALL, Atoll), cost(0.8));
        let rows = rows(&measured, 1.0);
        let row = row(&rows, "YCSB load, CPU per op, better than RocksDB by");
        assert_eq!((row.figure, row.holds), (None, None));
    }

    #[test]
    fn fewer_bytes_hold_and_a_wrong_value_spoils_every_row() {
        let mut result = cost(1.0);
        result.io = IoBytes { handed_over: 200, to_disk: 220 };
        result.user_bytes = 100;
        let mut measured = Measured::default();
        measured.add((Phase::Load, SMALL, Atoll), result);
        let bar = "bytes written per user byte, load, records of 124 B";
        assert_eq!(row(&rows(&measured, 1.0), bar).holds, Some(true));
        measured.add((Phase::Get, SMALL, Atoll), PhaseResult { wrong: 1, ..cost(1.0) });
        assert_eq!(row(&rows(&measured, 1.0), bar).holds, Some(false));
    }

    #[test]
    fn a_phase_of_atoll_that_fails_spoils_every_row_and_one_of_a_rival_none() {
        let mut measured = Measured::default();
        measured.add((Phase::Load, SMALL, Atoll), cost(0.8));
        measured.add((Phase::Load, SMALL, Lmdb), cost(2.0));
        let bar = "YCSB load, CPU per op, better than LMDB by";
        let failure = |engine| Failure { engine, what: "Verify: the child was killed".to_owned() };
        measured.failures.push(failure(Lmdb));
        assert_eq!(row(&rows(&measured, 1.0), bar).holds, Some(true));
        measured.failures.push(failure(Atoll));
        assert_eq!(row(&rows(&measured, 1.0), bar).holds, Some(false));
    }

    /// Measurements of every phase of every engine, so that each row has its figure.
    fn all_measured(others_busy_share: f64, of: Option<Subject>, without: Option<Subject>) -> Measured {
        let names = [
            APPEND_RATIO,
            CONTRACT_GET,
            CONTRACT_PUT,
            beside::READER_RATIO,
            beside::COPY_RATIO,
            beside::SEGMENTS_CLEANED,
            beyond::UPDATES,
            beyond::GETS,
            beyond::METADATA,
            beyond::METADATA_LOADED,
            beyond::MEAN_WRITE,
            beyond::MEMORY,
            churn::SPACE_SETTLED,
            ranges::WRITTEN,
            pairs::INSERT_US,
            pairs::GET_US,
            pairs::REMOVE_US,
        ];
        let mut measured = Measured::default();
        for subject in subjects().into_iter().filter(|subject| Some(*subject) != without) {
            let mut result = PhaseResult { wall_seconds: 0.33, cpu_seconds: 1.0, ..cost(1.0) };
            result.extra = names.map(|name| (name.to_owned(), 1.0)).into();
            result.latency = Some(crate::measure::Latency::default());
            result.others_busy_share = if Some(subject) == of { others_busy_share } else { 0.1 };
            measured.add(subject, result);
        }
        measured
    }

    fn subjects() -> Vec<Subject> {
        let phases = [
            Phase::Load,
            Phase::LoadSingle,
            Phase::Get,
            Phase::GetMany,
            Phase::Scan,
            Phase::Update,
            Phase::TailOpen,
            Phase::Append,
            Phase::Contract,
            Phase::UpdatePair,
            Phase::ReadBeside,
            Phase::Overwrite,
            Phase::ScanAged,
            Phase::Beyond,
            Phase::PairsFew,
            Phase::Pairs,
            Phase::PairsMany,
            Phase::Ranges,
        ];
        let lengths = [SMALL, LARGE, PAIR_BYTES];
        let of_phase = |phase| lengths.into_iter().map(move |value_bytes| (phase, value_bytes));
        let of_all = |(phase, bytes)| EngineName::ALL.into_iter().map(move |engine| (phase, bytes, engine));
        phases.into_iter().flat_map(of_phase).flat_map(of_all).collect()
    }

    #[test]
    fn what_a_row_is_made_of_is_not_judged_when_others_were_busy_beside_it_and_all_else_is() {
        let calm = rows(&all_measured(0.1, None, None), 1.0);
        assert!(calm.iter().all(|row| row.figure.is_some() && row.holds.is_some()), "{calm:?}");
        for subject in subjects() {
            let without = rows(&all_measured(0.1, None, Some(subject)), 1.0);
            let busy = rows(&all_measured(0.547, Some(subject), None), 1.0);
            for (calm, (without, busy)) in calm.iter().zip(without.iter().zip(&busy)) {
                let is_of_it = without.figure.is_none();
                let expected = if is_of_it { None } else { calm.holds };
                assert_eq!(
                    (busy.holds, busy.disturbed.is_some()),
                    (expected, is_of_it),
                    "{}: {subject:?}",
                    calm.bar
                );
                assert_eq!(busy.figure, calm.figure);
            }
        }
    }

    #[test]
    fn a_busy_machine_excuses_no_wrong_value_and_ticks_are_no_work_of_others() {
        let scan = (Phase::ScanAged, SMALL, Atoll);
        let bar = "scan of 100 after ten updates of each record, over fresh";
        let found = |others, wall_seconds, wrong| {
            let mut measured = all_measured(0.1, None, Some(scan));
            let result = PhaseResult { wall_seconds, wrong, others_busy_share: others, ..cost(1.0) };
            measured.add(scan, PhaseResult { cpu_seconds: 1.0, ..result });
            let all = rows(&measured, 1.0);
            let row = row(&all, bar);
            (row.holds, row.disturbed.clone())
        };
        let told = "others used 52 % of the machine beside ScanAged of atoll, 100 B values";
        assert_eq!(found(0.547, 0.33, 0), (None, Some(told.to_owned())));
        assert_eq!(found(0.547, 0.33, 1), (Some(false), None));
        assert_eq!(found(0.547, 0.02, 0), (Some(true), None));
        assert_eq!(found(0.2, 9.0, 0), (Some(true), None));
    }

    #[test]
    fn rows_are_read_by_their_agreed_names() {
        let text = serde_json::to_value(&rows(&Measured::default(), 1.0)[0]).expect("serialises");
        let mut names: Vec<_> = text.as_object().expect("an object").keys().cloned().collect();
        names.sort();
        assert_eq!(names, ["bar", "figure", "goal", "holds", "peers", "target", "unit"]);
    }
}
