//! Gaps between the answers of a slot: the longest one around a move, and the usual one.

use crate::local::percentile;

/// Gaps within this many milliseconds of a move are around it.
const AROUND_MS: f64 = 1_000.0;
/// How many stretches without a move count for each slot, with the longest gap of each.
const CALM_MAX: usize = 64;

/// When a slot answered, in milliseconds since the beginning.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The slot.
    pub slot: usize,
    answers: Vec<f64>,
    moves: Vec<f64>,
}

/// The cost of one move.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Move {
    /// The slot.
    pub slot: usize,
    /// When the new node first answered, in milliseconds since the beginning.
    pub at_ms: f64,
    /// The longest gap around that moment, minus the usual gap.
    pub unavailable_ms: f64,
}

impl Trace {
    /// The trace of a slot that was not answered yet.
    pub fn of(slot: usize) -> Self {
        Self { slot, ..Self::default() }
    }

    /// Records an answer; `is_moved` if another node sent it than the one before.
    pub fn answered(&mut self, at_ms: f64, is_moved: bool) {
        self.answers.push(at_ms);
        if is_moved {
            self.moves.push(at_ms);
        }
    }

    /// The run ends while the slot still waits for an answer. Counts as if a new node had answered now, so
    /// that the wait is included.
    pub fn end_unanswered(&mut self, at_ms: f64) {
        self.answered(at_ms, true);
    }

    /// The median gap.
    pub fn usual_ms(&self) -> f64 {
        let gaps: Vec<f64> = self.answers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        percentile(&gaps, 0.5).unwrap_or(0.0)
    }

    /// The cost of each move.
    pub fn moves(&self) -> Vec<Move> {
        let usual = self.usual_ms();
        let cost = |&at_ms: &f64| Move {
            slot: self.slot,
            at_ms,
            unavailable_ms: (self.longest(at_ms) - usual).max(0.0),
        };
        self.moves.iter().map(cost).collect()
    }

    /// The same for stretches of the same length without a move: the cost of the machine, not of the ring.
    pub fn calm(&self) -> Vec<f64> {
        let usual = self.usual_ms();
        let (Some(first), Some(last)) = (self.answers.first(), self.answers.last()) else {
            return Vec::new();
        };
        let middles = (0..CALM_MAX).map(|number| first + AROUND_MS * (1.0 + 2.0 * number as f64));
        let is_calm = |at: &f64| {
            at + AROUND_MS <= *last && self.moves.iter().all(|moved| (moved - at).abs() > 2.0 * AROUND_MS)
        };
        middles.filter(is_calm).map(|at| (self.longest(at) - usual).max(0.0)).collect()
    }

    /// The longest gap that overlaps the time around a moment.
    fn longest(&self, at_ms: f64) -> f64 {
        let from = self.answers.partition_point(|answer| *answer < at_ms - AROUND_MS).saturating_sub(1);
        let pairs = self.answers[from..].windows(2).take_while(|pair| pair[0] <= at_ms + AROUND_MS);
        pairs.map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_around_a_move_is_its_cost_and_one_far_from_it_is_not() {
        let mut trace = Trace::of(7);
        let mut now = 0.0;
        for number in 0..4_000 {
            now += match number {
                // The new node answers 40 ms later than usual; a second pause is the machine's.
                2_000 => 45.0,
                3_500 => 200.0,
                _ => 5.0,
            };
            trace.answered(now, number == 2_000);
        }
        let moves = trace.moves();
        assert_eq!((moves.len(), moves[0].slot), (1, 7));
        assert!((moves[0].unavailable_ms - 40.0).abs() < 1e-6, "{moves:?}");
        let calm = trace.calm();
        assert!(calm.len() > 5 && calm.iter().any(|gap| (gap - 195.0).abs() < 1e-6), "{calm:?}");
        assert!(calm.iter().all(|gap| (gap - 40.0).abs() > 1e-6), "{calm:?}");
    }

    #[test]
    fn a_slot_that_is_waited_for_at_the_end_has_waited_since_its_last_answer() {
        let mut trace = Trace::of(3);
        (0..100).for_each(|number| trace.answered(f64::from(number) * 5.0, false));
        assert!(trace.moves().is_empty());
        trace.end_unanswered(495.0 + 1_400.0);
        let moves = trace.moves();
        assert_eq!((moves.len(), moves[0].slot, moves[0].unavailable_ms), (1, 3, 1_395.0));
    }

    #[test]
    fn the_pause_before_a_move_counts_even_if_it_is_longer_than_what_is_around_it() {
        let mut trace = Trace::of(1);
        (0..10).for_each(|number| trace.answered(f64::from(number) * 5.0, false));
        trace.answered(3_045.0, true);
        (1..10).for_each(|number| trace.answered(3_045.0 + f64::from(number) * 5.0, false));
        assert!((trace.moves()[0].unavailable_ms - 2_995.0).abs() < 1e-6);
        assert!(Trace::of(1).moves().is_empty() && Trace::of(1).calm().is_empty());
    }
}
