//! Means of values with known bounds.

use super::*;
use fastrand::Rng;

const ROWS: usize = 2000;

fn population(random: &mut Rng) -> Vec<f64> {
    // Nine in ten are near 0 and the others near 1: no sample of 30 looks normal.
    (0..ROWS).map(|row| if row % 10 == 0 { 1.0 } else { 0.1 * random.f64() }).collect()
}

fn sampled(values: &[f64], count: usize) -> Estimate {
    let share = count as f64 / ROWS as f64;
    let units = units(&vec![1; count], share);
    bounded_mean(&units, &values[..count], (0.0, 1.0), ROWS as u64, &Confidence::default()).unwrap()
}

#[test]
fn it_holds_at_every_moment_of_nearly_all_orders() {
    let mut random = Rng::with_seed(11);
    let mut values = population(&mut random);
    let truth = values.iter().sum::<f64>() / ROWS as f64;
    let orders = 150;
    let wrong = (0..orders).filter(|_| {
        random.shuffle(&mut values);
        (1..ROWS).step_by(37).any(|count| !sampled(&values, count).holds(truth))
    });
    // 5 % at most; with three standard errors of 150 orders 10.3 %.
    let wrong = wrong.count();
    assert!(wrong <= 15, "{wrong} of {orders} orders, seed 11");
}

#[test]
fn it_narrows_to_nothing_when_everything_was_read() {
    let mut random = Rng::with_seed(3);
    let mut values = population(&mut random);
    random.shuffle(&mut values);
    let widths: Vec<f64> =
        [10, 100, 1000, 1990].iter().map(|count| sampled(&values, *count).half_width()).collect();
    assert!(widths.windows(2).all(|pair| pair[1] < pair[0]), "{widths:?}");
    assert!(widths[3] < 0.006, "{widths:?}");
    let everything = units(&[1; ROWS], 1.0);
    let estimate =
        bounded_mean(&everything, &values, (0.0, 1.0), ROWS as u64, &Confidence::default()).unwrap();
    assert!(estimate.is_exact());
}

#[test]
fn its_scale_is_that_of_the_bounds() {
    let values: Vec<f64> = (0..200).map(|row| f64::from(row % 7) / 7.0).collect();
    let moved: Vec<f64> = values.iter().map(|value| 10.0 + 4.0 * value).collect();
    let units = units(&[1; 200], 0.1);
    let estimate =
        |values, bounds| bounded_mean(&units, values, bounds, 2000, &Confidence::default()).unwrap();
    let (plain, moved) = (estimate(&values, (0.0, 1.0)), estimate(&moved, (10.0, 14.0)));
    assert_interval(&moved, 10.0 + 4.0 * plain.value, 10.0 + 4.0 * plain.low, 10.0 + 4.0 * plain.high);
    assert_eq!(plain.method, Method::EmpiricalBernstein);
}

#[test]
fn few_rows_are_no_reason_for_doubt_and_bounds_that_lie_are_refused() {
    let few = units(&[1; 3], 0.01);
    let confidence = Confidence::default();
    let estimate = bounded_mean(&few, &[0.1, 0.2, 0.3], (0.0, 1.0), 300, &confidence).unwrap();
    assert!(estimate.is_valid() && estimate.low >= 0.0 && estimate.high <= 1.0);
    for bounds in [(0.15, 1.0), (0.0, 0.25), (1.0, 0.0), (0.0, f64::INFINITY), (f64::NAN, 1.0)] {
        let refused = bounded_mean(&few, &[0.1, 0.2, 0.3], bounds, 300, &confidence);
        assert!(matches!(refused, Err(EstimateError::Bounds { .. })), "{bounds:?}");
    }
    let missing = bounded_mean(&few, &[0.1, f64::NAN, 0.3], (0.0, 1.0), 300, &confidence);
    assert!(matches!(missing, Err(EstimateError::Bounds { .. })));
    let entities = bounded_mean(&units(&[2, 1], 0.01), &[0.1, 0.2, 0.3], (0.0, 1.0), 300, &confidence);
    assert!(matches!(entities, Err(EstimateError::NotRows { rows: 3, units: 2 })));
}
