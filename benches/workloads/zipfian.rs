//! Zipfian choice of records, scrambled so that the popular ones are spread over the key order.

use super::keys::hash_of_counter;

/// Exponent of YCSB's request distribution.
const THETA: f64 = 0.99;

/// Draws record numbers; the same seed draws the same numbers.
pub struct Zipfian {
    records: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    state: u64,
}

impl Zipfian {
    /// A generator of choices among `records` records, seeded with `seed`.
    pub fn new(records: u64, seed: u64) -> Self {
        let zeta_of = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        let zeta = zeta_of(records);
        let eta = (1.0 - (2.0 / records as f64).powf(1.0 - THETA)) / (1.0 - zeta_of(2) / zeta);
        Self { records, zeta, alpha: 1.0 / (1.0 - THETA), eta, state: seed }
    }

    /// The next 64 random bits.
    fn next_bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        hash_of_counter(hash_of_counter(self.state))
    }

    /// A fair coin toss.
    pub fn next_coin(&mut self) -> bool {
        self.next_bits() >> 63 == 1
    }

    /// Popularity rank of the next choice, from 0 (Gray et al., "Quickly generating billion-record
    /// synthetic databases", as in YCSB).
    fn next_rank(&mut self) -> u64 {
        let uniform = (self.next_bits() >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1.min(self.records - 1);
        }
        let rank = self.records as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.records - 1)
    }

    /// Number of the next record.
    pub fn next_record(&mut self) -> u64 {
        hash_of_counter(self.next_rank().wrapping_mul(0x2545_f491_4f6c_dd1d)) % self.records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_same_seed_draws_the_same_records() {
        let draw = |seed| {
            let mut choices = Zipfian::new(1000, seed);
            (0..100).map(|_| choices.next_record()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn popular_records_are_as_popular_as_the_law_says() {
        let (records, draws) = (10_000, 400_000);
        let mut choices = Zipfian::new(records, 1);
        let mut ranks: HashMap<u64, u64> = HashMap::new();
        for _ in 0..draws {
            *ranks.entry(choices.next_rank()).or_default() += 1;
        }
        let zeta: f64 = (1..=records).map(|rank| (rank as f64).powf(-THETA)).sum();
        for rank in [0, 1] {
            let expected = draws as f64 * ((rank + 1) as f64).powf(-THETA) / zeta;
            let found = ranks[&rank] as f64;
            assert!((found / expected - 1.0).abs() < 0.05, "rank {rank}: {found} of {expected}");
        }
        let head: u64 = (0..100).filter_map(|rank| ranks.get(&rank)).sum();
        let law = (1..=100).map(|rank| f64::from(rank).powf(-THETA)).sum::<f64>() / zeta;
        assert!((head as f64 / draws as f64 - law).abs() < 0.03, "first hundred: {head}");
    }

    #[test]
    fn every_draw_is_a_record() {
        for records in [1, 2, 3, 1000] {
            let mut choices = Zipfian::new(records, 5);
            assert!((0..1000).all(|_| choices.next_record() < records));
        }
    }
}
