//! Doubts: an estimate states every reason not to trust its interval.

use super::*;

fn doubts(values: &[f64]) -> Vec<Doubt> {
    mean(&rows(values.len()), values, &Confidence::default()).unwrap().doubts
}

#[test]
fn under_30_units_nothing_is_valid() {
    assert_eq!(doubts(&numbers(29)), [Doubt::FewUnits { units: 29 }]);
    assert_eq!(doubts(&numbers(30)), []);
    // Units, not rows.
    let values: Vec<f64> = (0..290).map(f64::from).collect();
    let of_entities = mean(&units(&[10; 29], 0.1), &values, &Confidence::default()).unwrap();
    assert_eq!(of_entities.doubts, [Doubt::FewUnits { units: 29 }]);
    let median = quantile(&rows(29), &numbers(29), 0.5, &Confidence::default()).unwrap();
    assert!(median.doubts.contains(&Doubt::FewUnits { units: 29 }));
}

#[test]
fn under_10_units_of_either_outcome_a_share_is_not_valid() {
    let with = |yes: usize| -> Vec<Doubt> {
        let holds: Vec<bool> = (0..1000).map(|row| row < yes).collect();
        share(&rows(1000), &holds, &Confidence::default()).unwrap().doubts
    };
    assert!(with(9).contains(&Doubt::FewOutcomes { units: 9 }));
    assert!(with(991).contains(&Doubt::FewOutcomes { units: 9 }));
    assert_eq!((with(10), with(990)), (vec![], vec![]));
    // Nine particles with a hundred rows each are still nine.
    let holds: Vec<bool> = (0..10_000).map(|row| row < 900).collect();
    let of_entities = share(&units(&[100; 100], 0.1), &holds, &Confidence::default()).unwrap();
    assert!(of_entities.doubts.contains(&Doubt::FewOutcomes { units: 9 }));
    let counted = count(&units(&[100; 100], 0.1), &holds, None, &Confidence::default()).unwrap();
    assert!(counted.doubts.contains(&Doubt::FewOutcomes { units: 9 }));
}

#[test]
fn a_quantile_needs_10_units_on_either_side() {
    let of_share = |share| quantile(&rows(500), &numbers(500), share, &Confidence::default()).unwrap().doubts;
    assert_eq!(of_share(0.98), []);
    assert!(matches!(of_share(0.99)[..], [Doubt::FewOutcomes { units: 6 }, ..]));
    assert!(of_share(0.01).contains(&Doubt::FewOutcomes { units: 5 }));
}

#[test]
fn five_units_that_carry_most_of_the_variance_are_named() {
    let mut values = vec![0.0; 100];
    values.splice(..5, [50.0, -50.0, 50.0, -50.0, 50.0]);
    assert!(matches!(doubts(&values)[..], [Doubt::FewCarryMost { share }] if share > 0.99));
    // Eleven units of equal weight: five carry less than half.
    let values: Vec<f64> = (0..110).map(|row| f64::from(u8::from(row % 10 == 0))).collect();
    assert_eq!(doubts(&values), []);
}

#[test]
fn units_that_are_all_alike_say_nothing_about_others() {
    assert_eq!(doubts(&[7.0; 50]), [Doubt::NoSpread]);
    let alike = mean(&rows(50), &[7.0; 50], &Confidence::default()).unwrap();
    assert_eq!((alike.value, alike.low, alike.high), (7.0, f64::NEG_INFINITY, f64::INFINITY));
    let none = share(&rows(50), &[false; 50], &Confidence::default()).unwrap();
    assert!(none.doubts.contains(&Doubt::NoSpread));
    // And yet the interval is not a point: three in fifty may well have been missed.
    assert!(none.low == 0.0 && (0.05..0.1).contains(&none.high), "{none}");
    let median = quantile(&rows(50), &[7.0; 50], 0.5, &Confidence::default()).unwrap();
    assert!(median.doubts.contains(&Doubt::NoSpread));
}

#[test]
fn a_median_that_most_rows_share_is_no_reason_for_doubt() {
    let values: Vec<f64> = (0..100).map(|row| if row < 70 { 1.0 } else { 0.0 }).collect();
    let estimate = quantile(&rows(100), &values, 0.5, &Confidence::default()).unwrap();
    assert_eq!((estimate.value, estimate.low, estimate.high), (1.0, 1.0, 1.0));
    assert_eq!(estimate.doubts, []);
}

#[test]
fn an_infinite_value_is_a_doubt_and_an_empty_sample_no_number() {
    let mut values = numbers(40);
    values[3] = f64::INFINITY;
    assert!(doubts(&values).contains(&Doubt::Infinite));
    for quantity in [Quantity::Mean, Quantity::Share, Quantity::Quantile { share: 0.5 }] {
        let estimate = quantity.estimate(&rows(0), &[], &Confidence::default()).unwrap();
        assert!(estimate.value.is_nan() && !estimate.is_valid(), "{quantity:?}");
        assert_eq!(estimate.low, if quantity == Quantity::Share { 0.0 } else { f64::NEG_INFINITY });
    }
}

#[test]
fn an_estimate_says_its_doubts_in_words() {
    let text = mean(&rows(5), &numbers(5), &Confidence::default()).unwrap().to_string();
    assert!(
        text.contains("95 % interval") && text.contains("not valid: only 5 units, 30 are needed"),
        "{text}"
    );
    let text = mean(&units(&[1; 5], 1.0), &numbers(5), &Confidence::default()).unwrap().to_string();
    assert_eq!(text, "3 (exact, 5 rows)");
}

#[test]
fn rounding_is_no_spread() {
    for constant in [0.1, 0.3, -1.7, 1.0 / 49.0, 1e300, 1e-300, 1.7e9 + 0.1] {
        for count in [49, 1000, 1001] {
            let values = vec![constant; count];
            let alike = mean(&rows(count), &values, &Confidence::default()).unwrap();
            assert_eq!(alike.doubts, [Doubt::NoSpread], "{count} times {constant}: {alike}");
            assert!(alike.holds(constant) && alike.half_width() == f64::INFINITY, "{alike}");
            let total = sum(&rows(count), &values, Some(5000), &Confidence::default()).unwrap();
            assert_eq!(total.doubts, [Doubt::NoSpread], "{count} times {constant}: {total}");
            let of_entities = mean(&units(&[7; 143], 0.1), &[constant; 1001], &Confidence::default());
            assert_eq!(of_entities.unwrap().doubts, [Doubt::NoSpread], "{constant}");
        }
    }
}

#[test]
fn a_small_spread_of_large_numbers_is_a_spread() {
    // Seconds since 1970 within one millisecond: a thousand distinct values, a million rows.
    let values: Vec<f64> = (0..1_000_000).map(|row| 1.7e9 + f64::from(row % 1000) * 1e-6).collect();
    let estimate = mean(&rows(values.len()), &values, &Confidence::default()).unwrap();
    assert_eq!(estimate.doubts, []);
    assert!((estimate.value - (1.7e9 + 499.5e-6)).abs() < 1e-6, "{estimate}");
    // The deviation is 0.289 milliseconds.
    assert!((4e-7..8e-7).contains(&estimate.half_width()), "{estimate}");
}
