//! The bars of short pairs: ahead of Kyoto Cabinet and Berkeley DB in every row.

use super::bars::{Row, at_most};
use super::results::Measured;
use super::runner::PAIR_BYTES;
use crate::peers::EngineName;
use crate::phases::{Phase, pairs};
use std::collections::BTreeMap;

/// The bars of one count of pairs, in the order of [`pairs::OPERATIONS`].
const BARS: [(Phase, [&str; 3]); 3] = [
    (Phase::PairsFew, ["1 M short pairs: insert", "1 M short pairs: get", "1 M short pairs: remove"]),
    (Phase::Pairs, ["10 M short pairs: insert", "10 M short pairs: get", "10 M short pairs: remove"]),
    (Phase::PairsMany, ["100 M short pairs: insert", "100 M short pairs: get", "100 M short pairs: remove"]),
];

/// How often Atoll's time of each operation goes into that of the best rival.
pub fn rows(measured: &Measured) -> Vec<Row> {
    let of_phase = |(phase, bars): (Phase, [&'static str; 3])| {
        bars.into_iter().zip(pairs::OPERATIONS).map(move |(bar, operation)| {
            let peers = measured
                .of_all(phase, PAIR_BYTES, |result| result.extra.get(operation).copied().unwrap_or(f64::NAN));
            Row { figure: ahead(&peers), peers, more_is_better: true, ..at_most(bar, "x", 1.0, None) }
        })
    };
    BARS.into_iter().flat_map(of_phase).collect()
}

fn ahead(of_all: &BTreeMap<&'static str, f64>) -> Option<f64> {
    let own = *of_all.get(EngineName::Atoll.name())?;
    let rivals = of_all.iter().filter(|(name, _)| **name != EngineName::Atoll.name());
    let best = rivals.map(|(_, us)| *us).min_by(f64::total_cmp)?;
    Some(best / own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phases::PhaseResult;

    #[test]
    fn the_best_rival_counts() {
        let mut measured = Measured::default();
        let engines = [(EngineName::Atoll, 0.5), (EngineName::Kyoto, 0.4), (EngineName::BerkeleyTree, 3.0)];
        for (engine, us) in engines {
            let extra = BTreeMap::from([(pairs::GET_US.to_owned(), us)]);
            measured.add((Phase::Pairs, PAIR_BYTES, engine), PhaseResult { extra, ..PhaseResult::default() });
        }
        let rows = rows(&measured);
        let get = rows.iter().find(|row| row.bar == "10 M short pairs: get").expect("it is there");
        assert!((get.figure.expect("measured") - 0.8).abs() < 1e-9);
        let few = rows.iter().find(|row| row.bar == "1 M short pairs: get").expect("it is there");
        assert_eq!(few.figure, None, "what was not run has no figure");
    }
}
