//! Cuts: which units a sample takes.
//!
//! Invariant: the cut of a share `p` takes a unit if and only if `weight < p * 2^64`, in real numbers.
//! Samples are therefore nested, and 0 and 1 are exact.

use super::{Weight, WeightError};

/// 2^64, which does not fit in a 64-bit integer.
const WEIGHTS: f64 = 18_446_744_073_709_551_616.0;

/// An exclusive upper bound of weights.
///
/// The greatest weight *below* the bound is stored, since the bound of everything, 2^64, has 65 bits; 0,
/// which is not a weight, stands for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cut {
    last: u64,
}

impl Cut {
    /// Takes nothing.
    pub const NOTHING: Self = Self { last: 0 };
    /// Takes everything.
    pub const ALL: Self = Self { last: u64::MAX };

    /// The cut below which a share of all units lies, on average over salts.
    ///
    /// # Errors
    /// [`WeightError::NotAShare`] unless `share` is from 0 to 1.
    pub fn of_share(share: f64) -> Result<Self, WeightError> {
        if !(0.0..=1.0).contains(&share) {
            return Err(WeightError::NotAShare { share });
        }
        // Multiplying by a power of two is exact. The bound of a tiny share lies between two integers; no
        // weight lies there, so the next integer bounds the same weights.
        let bound = (share * WEIGHTS).ceil() as u128;
        Ok(Self { last: bound.saturating_sub(1) as u64 })
    }

    /// The units between the shares `from` and `to`: as many as a sample of `to - from`, and none in common
    /// with any adjacent window.
    ///
    /// # Errors
    /// [`WeightError::NotAShare`] and [`WeightError::WindowInsideOut`].
    pub fn window(from: f64, to: f64) -> Result<Window, WeightError> {
        let window = Window { after: Self::of_share(from)?, until: Self::of_share(to)? };
        if from > to {
            return Err(WeightError::WindowInsideOut { from, to });
        }
        Ok(window)
    }

    /// The cut that takes every weight below this one.
    #[must_use]
    pub const fn below(weight: Weight) -> Self {
        Self { last: weight.get() - 1 }
    }

    /// The cut that takes this weight and every one below it.
    #[must_use]
    pub const fn through(weight: Weight) -> Self {
        Self { last: weight.get() }
    }

    /// Whether it takes this weight.
    #[must_use]
    pub const fn takes(self, weight: Weight) -> bool {
        weight.get() <= self.last
    }

    /// The number of weights, out of these in rising order, that it takes: the length of a prefix.
    #[must_use]
    pub fn prefix(self, rising: &[Weight]) -> usize {
        rising.partition_point(|weight| self.takes(*weight))
    }

    /// The share of all units that lies below it, on average over salts; rounded to an `f64`.
    #[must_use]
    pub fn share(self) -> f64 {
        if self == Self::NOTHING { 0.0 } else { (u128::from(self.last) + 1) as f64 / WEIGHTS }
    }
}

/// The weights between two cuts: those that the second takes and the first does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    after: Cut,
    until: Cut,
}

impl Window {
    /// The window of everything below a cut.
    #[must_use]
    pub const fn below(until: Cut) -> Self {
        Self { after: Cut::NOTHING, until }
    }

    /// The window of everything that a cut does not take.
    #[must_use]
    pub const fn above(after: Cut) -> Self {
        Self { after, until: Cut::ALL }
    }

    /// The window of the weights from `least` to `greatest`, both included.
    #[must_use]
    pub fn between(least: Weight, greatest: Weight) -> Self {
        Self::above(Cut::below(least)).intersection(Self::below(Cut::through(greatest)))
    }

    /// The cut whose units the window leaves out.
    #[must_use]
    pub const fn after(self) -> Cut {
        self.after
    }

    /// The cut beyond which it takes nothing.
    #[must_use]
    pub const fn until(self) -> Cut {
        self.until
    }

    /// Whether it takes no weight.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.until <= self.after
    }

    /// Whether it takes this weight.
    #[must_use]
    pub const fn takes(self, weight: Weight) -> bool {
        self.until.takes(weight) && !self.after.takes(weight)
    }

    /// The weights that both take.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        let after = self.after.max(other.after);
        Self { after, until: self.until.min(other.until).max(after) }
    }

    /// The least and the greatest weight that it takes out of those from `least` to `greatest`, both
    /// included; `None` if it takes none of them.
    #[must_use]
    pub fn clipped(self, least: Weight, greatest: Weight) -> Option<(Weight, Weight)> {
        let least = Weight::new(least.get().max(self.after.last.saturating_add(1)))?;
        let greatest = Weight::new(greatest.get().min(self.until.last))?;
        (self.takes(least) && least <= greatest).then_some((least, greatest))
    }

    /// The range of weights, out of these in rising order, that it takes.
    #[must_use]
    pub fn slice(self, rising: &[Weight]) -> std::ops::Range<usize> {
        self.after.prefix(rising)..self.until.prefix(rising)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(number: u64) -> Weight {
        Weight::new(number).unwrap()
    }

    fn share(share: f64) -> Cut {
        Cut::of_share(share).unwrap()
    }

    #[test]
    fn the_shares_0_and_1_are_exact() {
        assert_eq!(share(0.0), Cut::NOTHING);
        assert_eq!(share(-0.0), Cut::NOTHING);
        assert!(!share(0.0).takes(weight(1)));
        assert_eq!(share(1.0), Cut::ALL);
        assert!(share(1.0).takes(weight(u64::MAX)));
        assert!(!share(1f64.next_down()).takes(weight(u64::MAX)));
        assert_eq!((Cut::NOTHING.share(), Cut::ALL.share()), (0.0, 1.0));
    }

    #[test]
    fn a_share_takes_the_weights_below_its_part_of_2_to_the_64() {
        assert!(share(0.5).takes(weight((1 << 63) - 1)));
        assert!(!share(0.5).takes(weight(1 << 63)));
        // The bound is 1.5 / 2^64, so the weight 1 alone lies below it.
        let tiny = share(1.5 * 2f64.powi(-64));
        assert!(tiny.takes(weight(1)) && !tiny.takes(weight(2)));
        assert!(!share(2f64.powi(-64)).takes(weight(1)));
        assert!(!share(f64::from_bits(1)).takes(weight(1)));
    }

    #[test]
    fn shares_come_back_from_their_cuts() {
        for p in [0.5, 0.25, 0.1, 1e-3, 0.999] {
            assert_eq!(share(p).share(), p);
        }
        // The bound is not an integer; the next one replaces it.
        assert!((share(1e-9).share() - 1e-9).abs() < 2f64.powi(-64));
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for wrong in [-1e-9, 1f64.next_up(), f64::NAN, f64::INFINITY] {
            assert!(matches!(Cut::of_share(wrong), Err(WeightError::NotAShare { .. })), "{wrong}");
        }
        assert!(matches!(Cut::window(0.5, 0.4), Err(WeightError::WindowInsideOut { .. })));
        assert!(matches!(Cut::window(0.5, 2.0), Err(WeightError::NotAShare { .. })));
    }

    #[test]
    fn windows_side_by_side_share_out_every_weight() {
        let shares = [(0.0, 0.1), (0.1, 0.1), (0.1, 0.35), (0.35, 1.0)];
        let windows = shares.map(|(from, to)| Cut::window(from, to).unwrap());
        let edges = [0.1, 0.35].map(|edge| Cut::of_share(edge).unwrap().last);
        let mut rising = vec![weight(1), weight(u64::MAX)];
        rising.extend(edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]).map(weight));
        rising.sort();
        for weight in &rising {
            assert_eq!(windows.iter().filter(|window| window.takes(*weight)).count(), 1, "{weight:?}");
        }
        let mut next = 0;
        for window in windows {
            assert_eq!(window.slice(&rising).start, next);
            next = window.slice(&rising).end;
            assert!(rising[window.slice(&rising)].iter().all(|weight| window.takes(*weight)));
        }
        assert_eq!(next, rising.len());
    }

    #[test]
    fn two_windows_share_what_both_take_and_clip_ranges_to_it() {
        let window = |from, to| Window { after: Cut { last: from }, until: Cut { last: to } };
        let ends = [0, 1, 4, 5, 9, u64::MAX - 1, u64::MAX];
        let windows: Vec<Window> = ends
            .iter()
            .flat_map(|&from| ends.iter().filter(move |&&to| to >= from).map(move |&to| window(from, to)))
            .collect();
        let rising: Vec<Weight> = [1, 2, 4, 5, 6, 9, 10, u64::MAX - 1, u64::MAX].map(weight).to_vec();
        for (left, right) in windows.iter().flat_map(|left| windows.iter().map(move |right| (*left, *right)))
        {
            let both = left.intersection(right);
            for &one in &rising {
                assert_eq!(
                    both.takes(one),
                    left.takes(one) && right.takes(one),
                    "{left:?} {right:?} {one:?}"
                );
            }
            assert!(both.slice(&rising).len() <= rising.len());
        }
        for window in windows {
            for (place, &least) in rising.iter().enumerate() {
                for &greatest in &rising[place..] {
                    let clipped = window.clipped(least, greatest);
                    let taken = |one: &&Weight| (least..=greatest).contains(*one) && window.takes(**one);
                    assert!(
                        rising
                            .iter()
                            .filter(taken)
                            .all(|one| { clipped.is_some_and(|(first, last)| (first..=last).contains(one)) })
                    );
                    assert!(clipped.is_none_or(|(first, last)| window.takes(first) && window.takes(last)));
                }
            }
        }
    }

    #[test]
    fn a_cut_at_a_weight_takes_it_or_stops_before_it() {
        assert!(!Cut::below(weight(7)).takes(weight(7)) && Cut::below(weight(7)).takes(weight(6)));
        assert!(Cut::through(weight(7)).takes(weight(7)) && !Cut::through(weight(7)).takes(weight(8)));
        assert_eq!(Cut::below(weight(1)), Cut::NOTHING);
        assert_eq!(Cut::through(weight(u64::MAX)), Cut::ALL);
    }
}
