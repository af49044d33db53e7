//! Ratios over units, which all estimates are made of.
//!
//! Each unit has a numerator and a denominator, such as the sum of its values and its number of rows. The
//! ratio of the totals estimates the ratio over all units. The residual of a unit is its numerator minus the
//! ratio times its denominator; residuals tell how certain the estimate is (Cochran, "Sampling Techniques",
//! 3rd edition, 1977, sections 2.11 and 6.3 and 9A.1).
//!
//! Invariant: units whose denominator is zero are ignored and not counted as units.
//! Invariant: rounding errors of units that are alike are no residuals.

use super::units::Units;
use std::ops::Range;

/// How many of the largest squared residuals are compared with half of the variance.
const LARGEST_UNITS: usize = 5;

/// The numerator and denominator of each unit with a denominator.
pub(super) struct Ratio {
    pairs: Vec<(f64, f64)>,
    others: OtherUnits,
    above: f64,
    below: f64,
}

/// Units outside the pairs of a ratio: they have a denominator, but no numerator.
#[derive(Clone, Copy, Default)]
struct OtherUnits {
    units: u64,
    /// The sum of the squares of their denominators.
    squares: f64,
    /// The largest of their denominators.
    largest: [f64; LARGEST_UNITS],
}

/// The number of rows of each unit.
pub(super) struct Sizes {
    of_units: Vec<f64>,
    /// The units, ordered by falling number of rows.
    falling: Vec<usize>,
    rows: f64,
    squares: f64,
}

impl Sizes {
    pub(super) fn of(units: &Units) -> Self {
        let of_units: Vec<f64> = units.iter().map(|rows| rows.len() as f64).collect();
        let mut falling: Vec<usize> = (0..of_units.len()).collect();
        falling.sort_by(|&left, &right| of_units[right].total_cmp(&of_units[left]));
        let squares = of_units.iter().map(|rows| rows * rows).sum();
        Self { of_units, falling, rows: units.rows() as f64, squares }
    }

    /// All units except `few`, which are in rising order.
    fn without(&self, few: &[(usize, f64)]) -> OtherUnits {
        let is_other = |unit: &&usize| few.binary_search_by_key(*unit, |(unit, _)| *unit).is_err();
        let mut largest = [0.0; LARGEST_UNITS];
        let others = self.falling.iter().filter(is_other).map(|&unit| self.of_units[unit]);
        largest.iter_mut().zip(others).for_each(|(kept, rows)| *kept = rows);
        let squares = few.iter().map(|&(unit, _)| self.of_units[unit].powi(2)).sum::<f64>();
        let units = (self.of_units.len() - few.len()) as u64;
        OtherUnits { units, squares: self.squares - squares, largest }
    }
}

impl Ratio {
    /// The ratio of the pairs that `pair` returns for the rows of each unit.
    pub(super) fn new(units: &Units, pair: impl Fn(Range<usize>) -> (f64, f64)) -> Self {
        Self::of_pairs(units.iter().map(pair))
    }

    fn of_pairs(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        let pairs: Vec<(f64, f64)> = pairs.filter(|(_, below)| *below > 0.0).collect();
        let above = total(pairs.iter().map(|(above, _)| *above));
        let below = pairs.iter().map(|(_, below)| *below).sum();
        Self { pairs, others: OtherUnits::default(), above, below }
    }

    /// Rows that satisfy a condition over all rows, where a few units, in rising order, have the given
    /// numbers of such rows and all others have none. Takes time in proportion to these few units, however
    /// many others there are.
    pub(super) fn of_few(few: &[(usize, f64)], sizes: &Sizes) -> Self {
        let pairs: Vec<_> = few.iter().map(|&(unit, inside)| (inside, sizes.of_units[unit])).collect();
        let above = pairs.iter().map(|(above, _)| *above).sum();
        Self { pairs, others: sizes.without(few), above, below: sizes.rows }
    }

    /// Sums of values over their number; NaN is no value.
    pub(super) fn of_values(units: &Units, values: &[f64]) -> Self {
        Self::new(units, |rows| {
            let present = values[rows].iter().copied().filter(|value| !value.is_nan());
            (total(present.clone()), present.count() as f64)
        })
    }

    /// As [`Ratio::of_values`] over only these rows, which are in rising order. Takes time in proportion to
    /// these rows, however many others there are.
    pub(super) fn of_some(units: &Units, rows: &[usize], values: &[f64]) -> Self {
        let of_unit = |rows: &[usize]| {
            let present = rows.iter().map(|row| values[*row]).filter(|value| !value.is_nan());
            (total(present.clone()), present.count() as f64)
        };
        let is_one_unit = |left: &usize, right: &usize| units.of_row(*left) == units.of_row(*right);
        Self::of_pairs(rows.chunk_by(is_one_unit).map(of_unit))
    }

    /// Sums of values over the number of rows, with or without a value.
    pub(super) fn of_rows(units: &Units, values: &[f64]) -> Self {
        Self::new(units, |rows| {
            let count = rows.len() as f64;
            (total(values[rows].iter().copied().filter(|value| !value.is_nan())), count)
        })
    }

    /// Rows that satisfy a condition over all rows.
    pub(super) fn of_condition(units: &Units, holds: impl Fn(usize) -> bool) -> Self {
        Self::new(units, |rows| {
            let count = rows.len() as f64;
            (rows.filter(|row| holds(*row)).count() as f64, count)
        })
    }

    /// The number of units with a denominator.
    pub(super) fn units(&self) -> u64 {
        self.pairs.len() as u64 + self.others.units
    }

    /// The sum of the numerators.
    pub(super) fn above(&self) -> f64 {
        self.above
    }

    /// The sum of the denominators.
    pub(super) fn below(&self) -> f64 {
        self.below
    }

    /// The quotient of the two sums; NaN without units.
    pub(super) fn value(&self) -> f64 {
        self.above / self.below
    }

    /// The sum of the squares of the denominators.
    pub(super) fn rows_squared(&self) -> f64 {
        self.pairs.iter().map(|(_, below)| below * below).sum::<f64>() + self.others.squares
    }

    /// The number of units whose numerator satisfies a condition, given the denominator. The condition must
    /// compare the two, or the numerator with 0.
    pub(super) fn units_with(&self, holds: impl Fn(f64, f64) -> bool) -> u64 {
        let of_others = if holds(0.0, 1.0) { self.others.units } else { 0 };
        self.pairs.iter().filter(|(above, below)| holds(*above, *below)).count() as u64 + of_others
    }

    /// The squares of what units have beyond `ratio` times their denominator; zero where that is only
    /// rounding.
    pub(super) fn residuals(&self, ratio: f64) -> Squares {
        // If units are alike, numerator and ratio are exact but for the roundings of the numerator, of the
        // total and of its quotient, half an epsilon each; the product and the difference below add one each.
        // No unit is therefore further off than `ROUNDING` times what it ought to have, which leaves half an
        // epsilon to be safe.
        let rounding = ROUNDING * ratio.abs();
        let residual = |(above, below): &(f64, f64)| above - below * ratio;
        let others_have_none = self.others.units == 0 || ratio == 0.0;
        if others_have_none && self.pairs.iter().all(|pair| residual(pair).abs() <= pair.1 * rounding) {
            return Squares::of(std::iter::empty(), 0.0);
        }
        let OtherUnits { largest, squares, .. } = self.others;
        let rest = squares - largest.iter().map(|below| below * below).sum::<f64>();
        let of_largest = largest.iter().map(|below| below * ratio);
        Squares::of(self.pairs.iter().map(residual).chain(of_largest), rest.max(0.0) * ratio * ratio)
    }
}

/// What rounding may make of units that are alike, as a part of each. A spread in the last three bits of the
/// values is smaller than this too, but that is less than the values themselves were rounded by.
pub(super) const ROUNDING: f64 = 4.0 * f64::EPSILON;

/// The sum of numbers, with the rounding error of each addition kept and added in the end (A. Neumaier,
/// "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", 1974): off by one rounding,
/// however many numbers there are.
pub(super) fn total(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut total = Total::default();
    numbers.for_each(|number| total.add(number));
    total.sum()
}

/// As [`total`], of numbers that arrive one by one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    sum: f64,
    lost: f64,
}

impl Total {
    pub(super) fn add(&mut self, number: f64) {
        let next = self.sum + number;
        let is_less = self.sum.abs() >= number.abs();
        self.lost += if is_less { (self.sum - next) + number } else { (number - next) + self.sum };
        self.sum = next;
    }

    pub(super) fn sum(&self) -> f64 {
        // Next to an infinity, the rounding error is NaN.
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

/// The squares of residuals.
pub(super) struct Squares {
    /// Their sum.
    pub(super) sum: f64,
    /// The largest of them.
    pub(super) largest: f64,
    /// The part of the sum that the five largest make up, from 0 to 1; 0 if all are zero.
    pub(super) of_largest: f64,
}

impl Squares {
    /// The squares of these residuals, and of others, none of which is among the largest, whose squares sum
    /// up to `others`.
    pub(super) fn of(residuals: impl Iterator<Item = f64>, others: f64) -> Self {
        let mut largest = [0.0f64; LARGEST_UNITS];
        let mut sum = others;
        for residual in residuals {
            let mut square = residual * residual;
            sum += square;
            // Each place keeps the larger square and hands the smaller one down.
            for kept in &mut largest {
                if square > *kept {
                    std::mem::swap(kept, &mut square);
                }
            }
        }
        let of_largest = if sum > 0.0 { largest.iter().sum::<f64>() / sum } else { 0.0 };
        Self { sum, largest: largest[0], of_largest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::for_seeds;
    use crate::{Cut, Weight};

    fn units(weights: &[u64]) -> Units {
        let weights: Vec<Weight> = weights.iter().map(|number| Weight::new(*number).unwrap()).collect();
        let mut units = Units::none_after(Cut::NOTHING);
        units.extend(&weights, Cut::ALL).unwrap();
        units
    }

    #[test]
    fn units_of_different_size_weigh_as_much_as_they_have_rows() {
        let ratio = Ratio::of_values(&units(&[1, 1, 1, 2]), &[1.0, 2.0, 3.0, 10.0]);
        assert_eq!((ratio.units(), ratio.value()), (2, 4.0));
        // 6 - 3 * 4 = -6 and 10 - 4 = 6.
        assert_eq!(ratio.residuals(4.0).sum, 72.0);
    }

    #[test]
    fn a_unit_without_a_value_is_none_for_a_mean_and_one_for_a_sum() {
        let (units, values) = (units(&[1, 2, 2, 3]), [f64::NAN, 2.0, f64::NAN, 4.0]);
        let mean = Ratio::of_values(&units, &values);
        assert_eq!((mean.units(), mean.below(), mean.value()), (2, 2.0, 3.0));
        let sum = Ratio::of_rows(&units, &values);
        assert_eq!((sum.units(), sum.below(), sum.above()), (3, 4.0, 6.0));
    }

    #[test]
    fn some_rows_are_summed_by_their_units() {
        let (units, values) = (units(&[1, 2, 2, 2, 3]), [1.0, 2.0, f64::NAN, 4.0, 8.0]);
        for rows in [&[0, 1, 2, 3, 4][..], &[1, 3], &[0, 2], &[2], &[]] {
            let own: Vec<f64> =
                (0..5).map(|row| if rows.contains(&row) { values[row] } else { f64::NAN }).collect();
            assert_eq!(Ratio::of_some(&units, rows, &values).pairs, Ratio::of_values(&units, &own).pairs);
        }
    }

    #[test]
    fn the_five_largest_squares_are_found_wherever_they_stand() {
        let rising = (1..=10).map(f64::from);
        let expected = (36.0 + 49.0 + 64.0 + 81.0 + 100.0) / 385.0;
        assert!((Squares::of(rising.clone(), 0.0).of_largest - expected).abs() < 1e-15);
        assert!((Squares::of(rising.clone().rev(), 0.0).of_largest - expected).abs() < 1e-15);
        let largest = |squares: Squares| squares.largest;
        assert_eq!(largest(Squares::of(rising.clone(), 0.0)), 100.0);
        assert_eq!(largest(Squares::of(rising.rev(), 0.0)), 100.0);
        assert_eq!(Squares::of([0.0, 0.0].into_iter(), 0.0).of_largest, 0.0);
        assert_eq!(Squares::of([3.0, -4.0].into_iter(), 0.0).of_largest, 1.0);
        assert_eq!(Squares::of([3.0, -4.0].into_iter(), 25.0).of_largest, 0.5);
    }

    #[test]
    fn units_without_a_numerator_count_as_if_each_had_been_looked_at() {
        for_seeds("units_without_a_numerator", 50, |random| {
            let sizes: Vec<usize> = (0..random.usize(1..40)).map(|_| random.usize(1..6)).collect();
            let numbers = (1..).zip(&sizes).flat_map(|(unit, size)| std::iter::repeat_n(unit, *size));
            let units = units(&numbers.collect::<Vec<u64>>());
            let inside = |size: &usize| if random.u8(..4) == 0 { random.usize(..=*size) } else { 0 };
            let inside: Vec<usize> = sizes.iter().map(inside).collect();
            let all =
                Ratio::of_pairs(inside.iter().zip(&sizes).map(|(in_it, of)| (*in_it as f64, *of as f64)));
            let few = inside.iter().enumerate().filter(|(_, inside)| **inside > 0);
            let few: Vec<(usize, f64)> = few.map(|(unit, inside)| (unit, *inside as f64)).collect();
            let some = Ratio::of_few(&few, &Sizes::of(&units));
            assert_eq!((some.units(), some.above(), some.below()), (all.units(), all.above(), all.below()));
            assert_eq!(some.rows_squared(), all.rows_squared());
            let sides = |ratio: &Ratio| {
                [ratio.units_with(|above, _| above > 0.0), ratio.units_with(|above, below| above < below)]
            };
            assert_eq!(sides(&some), sides(&all));
            for ratio in [all.value(), 0.0, 0.37] {
                let (some, all) = (some.residuals(ratio), all.residuals(ratio));
                assert!((some.sum - all.sum).abs() <= 1e-12 * all.sum, "{} of {}", some.sum, all.sum);
                assert_eq!(some.largest, all.largest);
                assert!((some.of_largest - all.of_largest).abs() < 1e-12);
            }
        });
    }
}
