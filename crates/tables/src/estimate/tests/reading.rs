//! Reading until an estimate is narrow enough.

use super::*;
use fastrand::Rng;

/// Rows of everything.
const ROWS: usize = 20_000;

/// Drives a reading over rows of a unit each, giving it exactly what it asks for; says how often it looked.
fn read(values: &[f64], reading: &mut Reading) -> Result<(Estimate, usize), EstimateError> {
    let weight = |row: usize| Weight::new((row as u64 + 1) * (u64::MAX / ROWS as u64)).unwrap();
    let (mut from, mut wanted, mut looks) = (0, 1000, 0);
    loop {
        let to = (from + wanted).min(values.len());
        let weights: Vec<Weight> = (from..to).map(weight).collect();
        looks += 1;
        match reading.push(&weights, &values[from..to], Cut::through(weight(to - 1)), to == values.len())? {
            Step::GoOn { rows } => (from, wanted) = (to, rows as usize),
            Step::Stop(estimate) => return Ok((estimate, looks)),
        }
    }
}

fn reading(tolerance: Tolerance, rows_max: Option<u64>) -> Reading {
    Reading::new(Quantity::Mean, Confidence::default(), tolerance, rows_max, Cut::NOTHING).unwrap()
}

/// Numbers from 0 to 2, about one.
fn values(seed: u64) -> Vec<f64> {
    let mut random = Rng::with_seed(seed);
    (0..ROWS).map(|_| 2.0 * random.f64()).collect()
}

#[test]
fn it_stops_when_the_interval_is_as_narrow_as_asked_and_not_much_later() {
    for seed in 1..=20 {
        let (estimate, looks) = read(&values(seed), &mut reading(Tolerance::Absolute(0.02), None)).unwrap();
        assert!(estimate.half_width() <= 0.02 && estimate.is_valid() && !estimate.is_exact());
        // The deviation is 0.577: (1.96 * 0.577 / 0.02)^2 = 3200 rows without the correction for 20,000, 2758
        // with it.
        assert!((2600..=3580).contains(&estimate.rows), "seed {seed}: {} rows", estimate.rows);
        assert!(looks <= 3, "seed {seed}: {looks} looks");
    }
}

#[test]
fn tolerances_are_relative_to_what_they_say() {
    let rows = |tolerance| read(&values(1), &mut reading(tolerance, None)).unwrap().0.rows;
    // The mean is 1, and the deviation 0.577.
    assert!(rows(Tolerance::Relative(0.02)).abs_diff(rows(Tolerance::Absolute(0.02))) < 150);
    assert!(rows(Tolerance::OfDeviation(0.02 / 0.577)).abs_diff(rows(Tolerance::Absolute(0.02))) < 150);
}

#[test]
fn what_no_sample_can_tell_is_read_to_the_end_and_exact() {
    let (estimate, _) = read(&values(1), &mut reading(Tolerance::Absolute(1e-9), None)).unwrap();
    assert!(estimate.is_exact() && estimate.rows == ROWS as u64);
}

#[test]
fn a_limit_of_rows_is_kept_and_its_answer_doubted() {
    let (estimate, _) = read(&values(1), &mut reading(Tolerance::Absolute(0.001), Some(5000))).unwrap();
    assert_eq!((estimate.rows, &estimate.doubts[..]), (5000, &[Doubt::TooWide][..]));
    // One that is large enough does no harm.
    let (estimate, _) = read(&values(1), &mut reading(Tolerance::Absolute(0.02), Some(5000))).unwrap();
    assert!(estimate.is_valid());
}

#[test]
fn a_tolerance_relative_to_zero_is_refused_with_a_hint() {
    let centred: Vec<f64> = values(1).iter().map(|value| value - 1.0).collect();
    let refused = read(&centred, &mut reading(Tolerance::Relative(0.01), None)).unwrap_err();
    assert!(matches!(refused, EstimateError::HoldsZero { low, high, .. } if low < 0.0 && high > 0.0));
    assert!(refused.to_string().contains("`of_sd`"), "{refused}");
    // Early: it did not read everything to find out.
    assert!(matches!(refused, EstimateError::HoldsZero { rows, .. } if rows <= 8000), "{refused}");
    assert!(read(&centred, &mut reading(Tolerance::OfDeviation(0.05), None)).is_ok());
}

#[test]
fn an_interval_that_holds_zero_by_chance_is_read_on() {
    // The mean is 0.02 and the deviation 0.577: after 1000 rows most intervals hold 0, but 30 % of it is
    // within reach.
    let shifted: Vec<f64> = values(2).iter().map(|value| value - 0.98).collect();
    let (estimate, looks) = read(&shifted, &mut reading(Tolerance::Relative(0.4), None)).unwrap();
    assert!(looks > 1 && !estimate.holds(0.0) && estimate.half_width() <= 0.4 * estimate.value, "{estimate}");
}

#[test]
fn a_narrow_interval_that_is_doubted_is_given_with_its_doubts() {
    // One row in 400 is not 0: after 1000 rows the interval is narrow, and rests on two or three of them.
    let rare: Vec<f64> = (0..ROWS).map(|row| f64::from(u8::from(row % 400 == 7))).collect();
    let (estimate, looks) = read(&rare, &mut reading(Tolerance::Absolute(0.01), None)).unwrap();
    assert!(matches!(estimate.doubts[..], [Doubt::FewCarryMost { .. }]), "{estimate}");
    assert_eq!(looks, 1);
}

#[test]
fn a_column_of_one_value_is_read_to_the_end_since_a_sample_cannot_tell() {
    for tolerance in [Tolerance::Relative(0.01), Tolerance::Absolute(0.01), Tolerance::OfDeviation(0.01)] {
        let (estimate, _) = read(&[7.0; ROWS], &mut reading(tolerance, None)).unwrap();
        assert!(estimate.is_exact() && estimate.value == 7.0, "{tolerance:?}: {estimate}");
        let (estimate, _) = read(&[7.0; ROWS], &mut reading(tolerance, Some(3000))).unwrap();
        assert_eq!(estimate.doubts, [Doubt::NoSpread, Doubt::TooWide], "{tolerance:?}");
    }
}

#[test]
fn with_fewer_than_30_units_it_does_not_stop() {
    let mut reading = reading(Tolerance::Absolute(0.5), None);
    let ten: Vec<Weight> = (1..=10).map(|number| Weight::new(number).unwrap()).collect();
    let step =
        reading.push(&ten, &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.1], Cut::through(ten[9]), false);
    assert_eq!(step, Ok(Step::GoOn { rows: 10 }));
}

#[test]
fn batches_smaller_than_asked_for_are_not_looked_at() {
    let mut reading = reading(Tolerance::Absolute(0.02), None);
    let weight = |row: usize| Weight::new(row as u64 + 1).unwrap();
    let all = values(1);
    let push = |reading: &mut Reading, rows: std::ops::Range<usize>| {
        let weights: Vec<Weight> = rows.clone().map(weight).collect();
        reading.push(&weights, &all[rows.clone()], Cut::through(weight(rows.end - 1)), false).unwrap()
    };
    let Step::GoOn { rows } = push(&mut reading, 0..1000) else { panic!("1000 rows are not enough") };
    assert_eq!(push(&mut reading, 1000..1100), Step::GoOn { rows: rows - 100 });
}

#[test]
fn what_is_no_tolerance_is_refused() {
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        for tolerance in
            [Tolerance::Relative(wrong), Tolerance::Absolute(wrong), Tolerance::OfDeviation(wrong)]
        {
            let refused = Reading::new(Quantity::Mean, Confidence::default(), tolerance, None, Cut::NOTHING);
            assert!(matches!(refused, Err(EstimateError::Tolerance { .. })));
        }
    }
}
