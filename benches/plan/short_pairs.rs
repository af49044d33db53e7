//! The bars of short pairs: Atoll must be ahead of Kyoto Cabinet and Berkeley DB in every row.

use super::bars::{Row, at_most, over_the_best};
use super::results::Measured;
use super::runner::PAIR_BYTES;
use crate::peers::EngineName;
use crate::phases::{Phase, pairs};

/// The bars of each count of pairs, in the order of [`pairs::OPERATIONS`].
const BARS: [(Phase, [&str; 3]); 3] = [
    (Phase::PairsFew, ["1 M short pairs: insert", "1 M short pairs: get", "1 M short pairs: remove"]),
    (Phase::Pairs, ["10 M short pairs: insert", "10 M short pairs: get", "10 M short pairs: remove"]),
    (Phase::PairsMany, ["100 M short pairs: insert", "100 M short pairs: get", "100 M short pairs: remove"]),
];

/// The rivals of every row.
const RIVALS: [EngineName; 3] = [EngineName::Kyoto, EngineName::BerkeleyHash, EngineName::BerkeleyTree];

/// The best rival's time for each operation divided by Atoll's.
pub fn rows(measured: &Measured) -> Vec<Row> {
    let of_phase = |(phase, bars): (Phase, [&'static str; 3])| {
        bars.into_iter().zip(pairs::OPERATIONS).map(move |(bar, operation)| {
            let peers = measured
                .of_all(phase, PAIR_BYTES, |result| result.extra.get(operation).copied().unwrap_or(f64::NAN));
            over_the_best(at_most(bar, "x", 1.0, None), peers, (phase, PAIR_BYTES), &RIVALS)
        })
    };
    BARS.into_iter().flat_map(of_phase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phases::PhaseResult;
    use std::collections::BTreeMap;

    #[test]
    fn the_best_rival_counts_once_all_are_there() {
        let mut measured = Measured::default();
        let mut add = |engine, us| {
            let extra = BTreeMap::from([(pairs::GET_US.to_owned(), us)]);
            measured.add((Phase::Pairs, PAIR_BYTES, engine), PhaseResult { extra, ..PhaseResult::default() });
            rows(&measured)
        };
        let find = |rows: Vec<Row>, bar| rows.into_iter().find(|row| row.bar == bar).expect("it is there");
        add(EngineName::Atoll, 0.5);
        add(EngineName::BerkeleyTree, 3.0);
        let without = find(add(EngineName::BerkeleyHash, 2.0), "10 M short pairs: get");
        assert_eq!((without.figure, without.lacking), (None, vec!["kyoto"]), "it may be the best");
        let all = add(EngineName::Kyoto, 0.4);
        let few = find(all.clone(), "1 M short pairs: get");
        assert_eq!(few.figure, None, "what was not run has no figure");
        let get = find(all, "10 M short pairs: get");
        assert!((get.figure.expect("measured") - 0.8).abs() < 1e-9);
    }
}
