//! Values and intervals compared with textbook formulas, computed by hand.

use super::*;

/// Student's t of 99 degrees of freedom at 97.5 %, from a table.
const T99: f64 = 1.984_216_952;

#[test]
fn the_interval_of_a_mean_of_rows_is_the_textbook_s() {
    let estimate = mean(&rows(100), &numbers(100), &Confidence::default()).unwrap();
    // The variance of 1..100 is 100 * 101 / 12, reduced by the sampled millionth, which is certain.
    let half = T99 * (100.0f64 * 101.0 / 12.0 / 100.0 * (1.0 - 1e-6)).sqrt();
    assert_interval(&estimate, 50.5, 50.5 - half, 50.5 + half);
    assert_eq!((estimate.units, estimate.rows, estimate.method), (100, 100, Method::StudentT));
    assert!(estimate.is_valid() && !estimate.is_exact());
    assert_near(estimate.deviation, (100.0f64 * 101.0 / 12.0).sqrt());
}

#[test]
fn a_sample_of_half_of_everything_has_an_interval_narrower_by_the_root_of_a_half() {
    let of_share = |share| mean(&units(&[1; 100], share), &numbers(100), &Confidence::default()).unwrap();
    assert_near(of_share(0.5).half_width() / of_share(1e-9).half_width(), 0.5f64.sqrt());
}

#[test]
fn rows_of_one_entity_do_not_count_as_many_observations() {
    // Ten rows an entity, all alike: the interval is that of the entities, not of ten times as many rows.
    let values: Vec<f64> = numbers(50).into_iter().flat_map(|value| [value; 10]).collect();
    let of_entities = mean(&units(&[10; 50], 1e-6), &values, &Confidence::default()).unwrap();
    let of_one_row_each = mean(&rows(50), &numbers(50), &Confidence::default()).unwrap();
    assert_near(of_entities.half_width(), of_one_row_each.half_width());
    assert_eq!((of_entities.units, of_entities.rows), (50, 500));
}

#[test]
fn the_interval_of_a_mean_of_entities_is_that_of_a_ratio() {
    // 40 entities with 1 and 3 rows by turns; all rows of an entity have its number as value.
    let sizes: Vec<usize> = (0..40).map(|entity| 1 + 2 * (entity % 2)).collect();
    let values: Vec<f64> =
        (0..40).flat_map(|entity| vec![f64::from(entity); sizes[entity as usize]]).collect();
    let ratio = values.iter().sum::<f64>() / 80.0;
    let residual = |entity: usize| sizes[entity] as f64 * (entity as f64 - ratio);
    let squares: f64 = (0..40).map(|entity| residual(entity).powi(2)).sum();
    // Student's t of 39 degrees of freedom at 97.5 %.
    let half = 2.022_690_920 * (0.75 * 40.0 / 39.0 * squares).sqrt() / 80.0;
    let estimate = mean(&units(&sizes, 0.25), &values, &Confidence::default()).unwrap();
    assert_interval(&estimate, ratio, ratio - half, ratio + half);
}

#[test]
fn a_sum_is_the_known_number_of_rows_times_the_mean() {
    let (units, values, confidence) = (rows(100), numbers(100), Confidence::default());
    let mean = mean(&units, &values, &confidence).unwrap();
    let sum = sum(&units, &values, Some(1_000_000), &confidence).unwrap();
    assert_interval(&sum, 1e6 * mean.value, 1e6 * mean.low, 1e6 * mean.high);
}

#[test]
fn a_sum_whose_rows_nobody_counted_pays_for_their_number() {
    let (units, values) = (units(&[1; 100], 0.1), vec![5.0; 100]);
    let unknown = sum(&units, &values, None, &Confidence::default()).unwrap();
    // 100 rows of 5 are a tenth; they might be more, by the root of 0.9 * 100 * 25 * 100 / 99.
    let half = T99 * (0.9f64 * 2500.0 * 100.0 / 99.0).sqrt() / 0.1;
    assert_interval(&unknown, 5000.0, 5000.0 - half, 5000.0 + half);
    let nearly = [vec![5.0; 50], vec![5.001; 50]].concat();
    let known = sum(&units, &nearly, Some(1000), &Confidence::default()).unwrap();
    assert!((4999.0..5000.5).contains(&known.low) && (5000.5..5002.0).contains(&known.high), "{known}");
}

#[test]
fn rows_without_a_value_add_nothing_to_a_sum_and_do_not_lower_a_mean() {
    let values: Vec<f64> =
        (0..200).map(|row| if row % 2 == 0 { f64::NAN } else { 3.0 + f64::from(row % 4) }).collect();
    let estimate = mean(&rows(200), &values, &Confidence::default()).unwrap();
    assert_eq!((estimate.value, estimate.units, estimate.rows), (5.0, 100, 200));
    let sum = sum(&rows(200), &values, Some(2000), &Confidence::default()).unwrap();
    assert_near(sum.value, 5000.0);
}

#[test]
fn the_interval_of_a_share_is_wilson_s() {
    let holds: Vec<bool> = (0..100).map(|row| row < 12).collect();
    let estimate = share(&rows(100), &holds, &Confidence::default()).unwrap();
    let square = T99 * T99 * 100.0 / 99.0 * (1.0 - 1e-6);
    let centre = (0.12 + square / 200.0) / (1.0 + square / 100.0);
    let half = square.sqrt() / (1.0 + square / 100.0) * (0.12 * 0.88 / 100.0 + square / 40_000.0f64).sqrt();
    assert_interval(&estimate, 0.12, centre - half, centre + half);
    assert!(estimate.is_valid());
}

#[test]
fn a_count_is_the_share_of_a_known_number_or_stands_alone() {
    let (units, holds) = (units(&[1; 400], 0.1), (0..400).map(|row| row % 4 == 0).collect::<Vec<_>>());
    let share = share(&units, &holds, &Confidence::default()).unwrap();
    let known = count(&units, &holds, Some(4000), &Confidence::default()).unwrap();
    assert_interval(&known, 1000.0, 4000.0 * share.low, 4000.0 * share.high);
    // Expected rows e such that (100 - e)^2 = t^2 * 100 / 99 * 0.9 * e, with t of 99 degrees of freedom.
    let alone = count(&units, &holds, None, &Confidence::default()).unwrap();
    let square = T99 * T99 * 100.0 / 99.0 * 0.9;
    let half = (square * 100.0 + square * square / 4.0).sqrt();
    let centre = 100.0 + square / 2.0;
    assert_interval(&alone, 1000.0, 10.0 * (centre - half), 10.0 * (centre + half));
}

#[test]
fn the_ends_of_a_median_are_the_values_at_the_ranks_of_woodruff() {
    // 1.984 * sqrt(100 / 4 * 100 / 99) = 9.97 ranks about the 50th.
    let estimate = quantile(&rows(100), &numbers(100), 0.5, &Confidence::default()).unwrap();
    assert_eq!((estimate.value, estimate.low, estimate.high), (50.0, 41.0, 60.0));
    let mut values = numbers(100);
    values.reverse();
    values.push(f64::NAN);
    assert_eq!(quantile(&rows(101), &values, 0.5, &Confidence::default()).unwrap().low, 41.0);
}

#[test]
fn a_quantile_beyond_what_the_sample_bounds_is_open() {
    let estimate = quantile(&rows(100), &numbers(100), 0.99, &Confidence::default()).unwrap();
    assert_eq!((estimate.value, estimate.low, estimate.high), (99.0, 98.0, f64::INFINITY));
    let estimate = quantile(&rows(100), &numbers(100), 0.01, &Confidence::default()).unwrap();
    assert_eq!((estimate.value, estimate.low, estimate.high), (1.0, f64::NEG_INFINITY, 3.0));
}

#[test]
fn quantiles_of_entities_are_less_sure_than_those_of_rows() {
    let values: Vec<f64> = numbers(50).into_iter().flat_map(|value| [value; 4]).collect();
    let of_entities = quantile(&units(&[4; 50], 1e-6), &values, 0.5, &Confidence::default()).unwrap();
    let of_rows = quantile(&rows(200), &values, 0.5, &Confidence::default()).unwrap();
    assert!(of_entities.half_width() > 1.8 * of_rows.half_width());
}

#[test]
fn everything_read_is_exact_whatever_it_is() {
    let (units, values) = (units(&[1, 2, 3], 1.0), numbers(6));
    for (quantity, expected) in [
        (Quantity::Mean, 3.5),
        (Quantity::Sum { rows: Some(6) }, 21.0),
        (Quantity::Sum { rows: None }, 21.0),
        (Quantity::Count { rows: Some(6) }, 1.0),
        (Quantity::Count { rows: None }, 1.0),
        (Quantity::Share, 1.0 / 6.0),
        (Quantity::Quantile { share: 0.5 }, 3.0),
        (Quantity::Quantile { share: 0.99 }, 6.0),
    ] {
        for stopping in [Stopping::Fixed, Stopping::ANYTIME] {
            let confidence = Confidence::default().stopping(stopping);
            let estimate = quantity.estimate(&units, &values, &confidence).unwrap();
            assert_interval(&estimate, expected, expected, expected);
            assert!(
                estimate.is_exact() && estimate.is_valid() && estimate.half_width() == 0.0,
                "{quantity:?}"
            );
        }
    }
}

#[test]
fn a_group_that_was_not_met_has_no_estimate() {
    let (units, values) = (rows(200), numbers(200));
    let groups: Vec<Option<u32>> = (0..200).map(|row| (row % 4 < 3).then_some(row % 4)).collect();
    let means = group_means(&units, &groups, &values, 4, &Confidence::default()).unwrap();
    assert!(means[3].is_none());
    let second: Vec<f64> = (0..50).map(|row| f64::from(row * 4 + 2)).collect();
    let alone = mean(&rows(50), &second, &Confidence::default()).unwrap();
    let found = means[1].clone().unwrap();
    assert_interval(&found, alone.value, alone.low, alone.high);
    assert_eq!(found.units, 50);
}

#[test]
fn bins_are_half_open_and_share_out_what_lies_within_the_edges() {
    let values: Vec<f64> = (0..100).map(|row| f64::from(row % 10)).chain([f64::NAN, 99.0]).collect();
    let bins = histogram(&rows(102), &values, &[0.0, 5.0, 9.0], &Confidence::default()).unwrap();
    assert_near(bins[0].value, 50.0 / 102.0);
    assert_near(bins[1].value, 40.0 / 102.0);
    for wrong in [&[1.0][..], &[1.0, 1.0], &[2.0, 1.0], &[0.0, f64::NAN, 1.0]] {
        assert!(matches!(
            histogram(&rows(102), &values, wrong, &Confidence::default()),
            Err(EstimateError::Edges { .. })
        ));
    }
}

#[test]
fn each_bin_of_a_histogram_is_the_share_of_its_rows_however_many_bins_there_are() {
    let sizes: Vec<usize> = (0..400).map(|unit| 1 + unit * 7 % 5).collect();
    let units = units(&sizes, 0.25);
    let values: Vec<f64> = (0..units.rows()).map(|row| (row * 7919 % 1009) as f64 / 1009.0).collect();
    let edges: Vec<f64> = (0..=50).map(|edge| f64::from(edge) / 60.0).collect();
    for confidence in [Confidence::default(), Confidence::default().stopping(Stopping::ANYTIME)] {
        let bins = histogram(&units, &values, &edges, &confidence).unwrap();
        assert_eq!(bins.len(), 50);
        for (bin, ends) in bins.iter().zip(edges.windows(2)) {
            let holds: Vec<bool> = values.iter().map(|value| (ends[0]..ends[1]).contains(value)).collect();
            let alone = share(&units, &holds, &confidence).unwrap();
            assert_interval(bin, alone.value, alone.low, alone.high);
            assert_eq!((bin.units, bin.rows, &bin.doubts), (alone.units, alone.rows, &alone.doubts));
            assert_near(bin.deviation, alone.deviation);
        }
    }
    // Ten thousand bins of a hundred thousand rows would be a billion looks.
    let (many, values) = (rows(100_000), (0..100_000).map(f64::from).collect::<Vec<_>>());
    let edges: Vec<f64> = (0..=10_000).map(|edge| f64::from(edge) * 10.0).collect();
    let bins = histogram(&many, &values, &edges, &Confidence::default()).unwrap();
    assert!(bins.iter().all(|bin| bin.value == 1e-4));
}

#[test]
fn the_scale_of_an_estimate_is_that_of_its_interval() {
    let share = share(&rows(100), &[[true; 50], [false; 50]].concat(), &Confidence::default()).unwrap();
    let (low, high) = (share.low, share.high);
    assert_interval(&share.scaled(1000.0), 500.0, 1000.0 * low, 1000.0 * high);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let confidence = Confidence::default();
    let short = EstimateError::Rows { values: 9, rows: 10 };
    assert_eq!(mean(&rows(10), &numbers(9), &confidence), Err(short.clone()));
    assert_eq!(sum(&rows(10), &numbers(9), None, &confidence), Err(short.clone()));
    assert_eq!(share(&rows(10), &[true; 9], &confidence), Err(short.clone()));
    assert_eq!(count(&rows(10), &[true; 9], None, &confidence), Err(short.clone()));
    assert_eq!(quantile(&rows(10), &numbers(9), 0.5, &confidence), Err(short.clone()));
    assert_eq!(group_means(&rows(10), &[None; 9], &numbers(10), 1, &confidence), Err(short));
    for wrong in [0.0, 1.0, f64::NAN] {
        let refused = quantile(&rows(10), &numbers(10), wrong, &confidence);
        assert!(matches!(refused, Err(EstimateError::Share { .. })));
    }
}
