//! The bars of the engine's second half: many writers, memory smaller than data, and reclaimed space.

use super::bars::{LARGE, Row, SMALL, at_most, over_the_best};
use super::results::{Measured, Subject};
use crate::peers::EngineName::{self, Atoll, Lmdb, Rocksdb};
use crate::phases::{Phase, PhaseResult, beside, beyond, churn, ranges};

/// All rows, in the order of the table.
pub fn rows(measured: &Measured) -> Vec<Row> {
    let rows = [
        writers(measured),
        ratios(measured),
        space(measured),
        memory(measured),
        stalls(measured),
        moves(measured),
    ];
    rows.into_iter().flatten().collect()
}

/// A bar for which more is better.
fn at_least(bar: &'static str, target: f64, goal: f64, figure: Option<f64>) -> Row {
    Row { figure, more_is_better: true, ..at_most(bar, "x", target, goal) }
}

fn most(bar: &'static str, unit: &'static str, target: f64, goal: f64, figure: Option<f64>) -> Row {
    Row { figure, ..at_most(bar, unit, target, goal) }
}

fn cost(measured: &Measured, phase: Phase, value_bytes: usize, engine: EngineName) -> Option<f64> {
    measured.median((phase, value_bytes, engine), PhaseResult::settled_cpu_us)
}

fn extra(measured: &Measured, phase: Phase, value_bytes: usize, name: &'static str) -> Option<f64> {
    extra_of(measured, phase, value_bytes, Atoll, name)
}

fn extra_of(
    measured: &Measured,
    phase: Phase,
    value_bytes: usize,
    engine: EngineName,
    name: &'static str,
) -> Option<f64> {
    measured
        .median((phase, value_bytes, engine), |result| result.extra.get(name).copied().unwrap_or(f64::NAN))
}

/// One result of Atoll.
const fn own(phase: Phase, value_bytes: usize) -> [Subject; 1] {
    [(phase, value_bytes, Atoll)]
}

/// `divided / divisor`, if both exist.
fn over(divided: Option<f64>, divisor: Option<f64>) -> Option<f64> {
    divided.zip(divisor).map(|(divided, divisor)| divided / divisor)
}

/// A rival's cost divided by Atoll's.
fn better_by(
    measured: &Measured,
    bar: &'static str,
    (phase, value_bytes, rival): Subject,
    (target, goal): (f64, f64),
) -> Row {
    let figure = over(cost(measured, phase, value_bytes, rival), cost(measured, phase, value_bytes, Atoll));
    at_least(bar, target, goal, figure).made_of([(phase, value_bytes, Atoll), (phase, value_bytes, rival)])
}

fn writers(measured: &Measured) -> Vec<Row> {
    let of_all = measured.of_all(Phase::Update, SMALL, PhaseResult::settled_cpu_us);
    let rivals: Vec<_> =
        EngineName::ALL.into_iter().filter(|engine| engine.is_peer() && !engine.has_only_pairs()).collect();
    let of_the_best = "YCSB A, settled, CPU per op, better than the best rival by";
    let both = [(Phase::UpdatePair, SMALL, Atoll), (Phase::Update, SMALL, Atoll)];
    let pair = |figure: fn(&PhaseResult) -> f64| {
        over(
            measured.median((Phase::UpdatePair, SMALL, Atoll), figure),
            measured.median((Phase::Update, SMALL, Atoll), figure),
        )
    };
    vec![
        over_the_best(at_least(of_the_best, 1.5, 3.3, None), of_all, (Phase::Update, SMALL), &rivals),
        better_by(
            measured,
            "YCSB A, settled, CPU per op, better than RocksDB by",
            (Phase::Update, SMALL, Rocksdb),
            (4.0, 7.5),
        ),
        most("YCSB A, CPU per op, two writers over one", "x", 1.4, 1.15, pair(PhaseResult::cpu_us))
            .made_of(both),
        at_least(
            "YCSB A, ops/s, two writers over one",
            1.5,
            1.8,
            pair(PhaseResult::kilo_operations_per_second),
        )
        .made_of(both),
    ]
}

fn ratios(measured: &Measured) -> Vec<Row> {
    let row = |bar, phase, value_bytes, rival, target, goal| {
        better_by(measured, bar, (phase, value_bytes, rival), (target, goal))
    };
    vec![
        row("second half: YCSB load, better than LMDB by", Phase::Load, SMALL, Lmdb, 2.0, 2.7),
        row("second half: YCSB load, better than RocksDB by", Phase::Load, SMALL, Rocksdb, 4.5, 5.8),
        row("second half: YCSB C, better than LMDB by", Phase::Get, SMALL, Lmdb, 1.3, 1.65),
        row("second half: YCSB C, better than RocksDB by", Phase::Get, SMALL, Rocksdb, 7.0, 9.2),
        row("second half: scan of 100, better than LMDB by", Phase::Scan, SMALL, Lmdb, 1.0, 1.6),
        row("second half: scan of 100, better than RocksDB by", Phase::Scan, SMALL, Rocksdb, 8.0, 10.0),
        row("values of 1,000 B: load, better than LMDB by", Phase::Load, LARGE, Lmdb, 1.5, 3.0),
        row("values of 1,000 B: YCSB A, better than LMDB by", Phase::Update, LARGE, Lmdb, 1.3, 2.5),
        row("values of 1,000 B: scan of 100, better than LMDB by", Phase::Scan, LARGE, Lmdb, 1.2, 3.0),
    ]
}

fn space(measured: &Measured) -> Vec<Row> {
    let aged = |value_bytes| {
        over(
            measured.median((Phase::ScanAged, value_bytes, Atoll), PhaseResult::cpu_us),
            measured.median((Phase::Scan, value_bytes, Atoll), PhaseResult::cpu_us),
        )
    };
    let scans = |value_bytes| [(Phase::ScanAged, value_bytes, Atoll), (Phase::Scan, value_bytes, Atoll)];
    let left = |value_bytes, name| extra(measured, Phase::Overwrite, value_bytes, name);
    let of_all = |value_bytes| {
        measured.of_all(Phase::Overwrite, value_bytes, |result| {
            result.extra.get(churn::SPACE_SETTLED).copied().unwrap_or(f64::NAN)
        })
    };
    let settled = churn::SPACE_SETTLED;
    let bytes = measured.bytes_of_all(Phase::Update, SMALL);
    vec![
        most("scan of 100 after ten updates of each record, over fresh", "x", 2.0, 1.5, aged(SMALL))
            .made_of(scans(SMALL)),
        most("the same, values of 1,000 B", "x", 2.0, 1.5, aged(LARGE)).made_of(scans(LARGE)),
        Row {
            peers: of_all(SMALL),
            ..most("space after ten overwrites over live data", "x", 2.0, 1.5, left(SMALL, settled))
        }
        .made_of(own(Phase::Overwrite, SMALL)),
        Row {
            peers: of_all(LARGE),
            ..most("the same, values of 1,000 B", "x", 2.0, 1.5, left(LARGE, settled))
        }
        .made_of(own(Phase::Overwrite, LARGE)),
        Row {
            figure: bytes.get(Atoll.name()).copied(),
            peers: bytes,
            ..at_most("bytes written per user byte, YCSB A settled, 124 B", "B", 3.5, 2.5)
        }
        .made_of(own(Phase::Update, SMALL)),
    ]
}

fn memory(measured: &Measured) -> Vec<Row> {
    let alone = own(Phase::Beyond, SMALL);
    let both = [alone[0], (Phase::Beyond, SMALL, Rocksdb)];
    let own = |name| extra(measured, Phase::Beyond, SMALL, name);
    let ratio = |name| over(own(name), extra_of(measured, Phase::Beyond, SMALL, Rocksdb, name));
    let of_all = |name: &'static str| {
        measured.of_all(Phase::Beyond, SMALL, |result| result.extra.get(name).copied().unwrap_or(f64::NAN))
    };
    vec![
        Row {
            peers: of_all(beyond::UPDATES),
            ..at_least("data 4x budget: updates a second over RocksDB's", 1.5, 3.0, ratio(beyond::UPDATES))
        }
        .made_of(both),
        Row {
            peers: of_all(beyond::GETS),
            ..at_least("data 4x budget: gets a second over RocksDB's", 1.0, 1.5, ratio(beyond::GETS))
        }
        .made_of(both),
        most("data 4x budget: written beside the log over data", "x", 6.0, 3.0, own(beyond::METADATA))
            .made_of(alone),
        most("the same, load included", "x", 6.0, 3.0, own(beyond::METADATA_LOADED)).made_of(alone),
        Row { unit: "KB", ..at_least("data 4x budget: mean write", 256.0, 512.0, own(beyond::MEAN_WRITE)) }
            .made_of(alone),
        Row {
            peers: of_all(beyond::MEMORY),
            ..most("data 4x budget: anonymous memory over budget", "x", 1.1, 1.05, own(beyond::MEMORY))
        }
        .made_of(alone),
    ]
}

fn stalls(measured: &Measured) -> Vec<Row> {
    let single = (Phase::LoadSingle, SMALL, Atoll);
    let worst = measured.worst(single, PhaseResult::worst_excess_us).map(|us| us / 1000.0);
    let p999 = measured.median(single, |result| result.latency.map_or(f64::NAN, |latency| latency.p999_us));
    let beside = |value_bytes, name| extra(measured, Phase::ReadBeside, value_bytes, name);
    // If no segment was cleaned, no cleaning was measured.
    let cleaned = beside(LARGE, beside::SEGMENTS_CLEANED).is_some_and(|segments| segments > 0.0);
    let cleaning = beside(LARGE, beside::READER_RATIO).filter(|_| cleaned);
    vec![
        most("worst insert over a control thread", "ms", 20.0, 5.0, worst).made_of([single]),
        most("insert, p99.9", "us", 100.0, 20.0, p999).made_of([single]),
        most(
            "reader p99 beside a checkpoint, over quiet",
            "x",
            2.0,
            1.2,
            beside(SMALL, beside::READER_RATIO),
        )
        .made_of(own(Phase::ReadBeside, SMALL)),
        most("values of 1,000 B: the same, cleaning the log", "x", 2.0, 1.2, cleaning)
            .made_of(own(Phase::ReadBeside, LARGE)),
        most(
            "reader p99 beside a copy by scans, over quiet",
            "x",
            2.0,
            1.2,
            beside(SMALL, beside::COPY_RATIO),
        )
        .made_of(own(Phase::ReadBeside, SMALL)),
    ]
}

fn moves(measured: &Measured) -> Vec<Row> {
    let written = extra(measured, Phase::Ranges, SMALL, ranges::WRITTEN);
    let bar = "split off and absorb 10 M keys: bytes written of the data";
    let row = Row { figure: written, ..at_most(bar, "%", 1.0, None) };
    vec![row.made_of(own(Phase::Ranges, SMALL))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::results::Failure;

    fn best(measured: &Measured) -> Row {
        let rows = crate::plan::rows(measured, 1.0);
        rows.into_iter().find(|row| row.bar.contains("the best rival")).expect("the bar is in the table")
    }

    fn cost(us: f64) -> PhaseResult {
        PhaseResult { operations: 1, settled_cpu_seconds: us / 1e6, ..PhaseResult::default() }
    }

    #[test]
    fn there_is_no_best_rival_unless_every_one_was_measured() {
        let mut measured = Measured::default();
        measured.add((Phase::Update, SMALL, Atoll), cost(1.0));
        let rivals = [(Rocksdb, 9.0), (Lmdb, 5.0), (EngineName::Redb, 7.0), (EngineName::Fjall, 8.0)];
        for (engine, us) in rivals {
            measured.add((Phase::Update, SMALL, engine), cost(us));
        }
        // The bar treats a rival that was not requested like one that was requested but failed.
        for _ in 0..2 {
            let row = best(&measured);
            assert_eq!((row.figure, row.holds, row.reaches_goal()), (None, None, None));
            assert_eq!((row.lacking, row.peers["lmdb"]), (vec!["bf-tree"], 5.0));
            measured
                .failures
                .push(Failure { engine: EngineName::BfTree, what: "Update: it took too long".to_owned() });
        }
        measured.add((Phase::Update, SMALL, EngineName::BfTree), cost(2.0));
        let row = best(&measured);
        assert_eq!((row.figure.map(f64::round), row.holds), (Some(2.0), Some(true)));
        assert!(row.lacking.is_empty());
    }
}
