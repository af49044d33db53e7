//! What estimators promise, case by case; how often they are right is tested in `tests/coverage.rs`.

mod bounded;
mod doubts;
mod formulas;
mod reading;

use super::*;
use crate::{Cut, Weight};

/// Units with the given numbers of rows, which are a share of all.
fn units(sizes: &[usize], share: f64) -> Units {
    let until = Cut::of_share(share).unwrap();
    let mut units = Units::none_after(Cut::NOTHING);
    units.extend(&weights(sizes), until).unwrap();
    units
}

/// Weights of units with the given numbers of rows, small enough to lie below any cut.
fn weights(sizes: &[usize]) -> Vec<Weight> {
    let unit = |(place, size): (u64, &usize)| std::iter::repeat_n(Weight::new(place).unwrap(), *size);
    (1..).zip(sizes).flat_map(unit).collect()
}

/// `count` units of one row each, a millionth of all.
fn rows(count: usize) -> Units {
    units(&vec![1; count], 1e-6)
}

fn numbers(count: u32) -> Vec<f64> {
    (1..=count).map(f64::from).collect()
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1e-3), "{found} is not {expected}");
}

#[track_caller]
fn assert_interval(estimate: &Estimate, value: f64, low: f64, high: f64) {
    assert_near(estimate.value, value);
    assert_near(estimate.low, low);
    assert_near(estimate.high, high);
}
