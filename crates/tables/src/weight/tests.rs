//! Tests of what weights and the order of rows promise.

use super::*;
use crate::seeds::for_seeds;
use arrow_array::types::{Int32Type, Int64Type, UInt16Type};
use arrow_array::{
    Array, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Date64Array, Decimal128Array,
    DictionaryArray, FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array,
    Int64Array, LargeBinaryArray, LargeStringArray, StringArray, StringViewArray, TimestampMicrosecondArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt8Array, UInt32Array, UInt64Array,
};
use arrow_select::take::take;
use std::collections::HashSet;
use std::slice::from_ref;
use std::sync::Arc;

const SALT: Salt = Salt(0);

fn of(columns: &[ArrayRef]) -> Vec<Weight> {
    weights(columns, SALT).unwrap()
}

fn column(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

/// Asserts that all of these columns give the same weights, alone and as part of a longer key.
fn assert_alike(columns: &[ArrayRef]) {
    let rows = columns[0].len() as i64;
    let other = column(Int64Array::from_iter_values(0..rows));
    for array in &columns[1..] {
        let case = array.data_type();
        assert_eq!(of(&columns[..1]), of(&[Arc::clone(array)]), "{case}");
        let pair = |array: &ArrayRef| of(&[Arc::clone(array), Arc::clone(&other)]);
        assert_eq!(pair(&columns[0]), pair(array), "{case} and another");
    }
}

#[test]
fn the_width_of_a_number_does_not_matter() {
    assert_alike(&[
        column(Int64Array::from(vec![Some(-128), Some(0), Some(127), None])),
        column(Int32Array::from(vec![Some(-128), Some(0), Some(127), None])),
        column(Int16Array::from(vec![Some(-128), Some(0), Some(127), None])),
        column(Int8Array::from(vec![Some(-128), Some(0), Some(127), None])),
    ]);
    assert_alike(&[
        column(Int64Array::from(vec![0, 1, 200])),
        column(UInt64Array::from(vec![0, 1, 200])),
        column(UInt32Array::from(vec![0, 1, 200])),
        column(UInt8Array::from(vec![0, 1, 200])),
    ]);
    assert_alike(&[column(Int64Array::from(vec![1, 0])), column(BooleanArray::from(vec![true, false]))]);
    assert_alike(&[
        column(Float64Array::from(vec![0.5, -3.0, f64::INFINITY])),
        column(Float32Array::from(vec![0.5, -3.0, f32::INFINITY])),
    ]);
}

#[test]
fn there_is_one_zero_and_one_nan() {
    let negative_nan = f64::from_bits(0xFFF8_0000_0000_0001);
    let weights = of(&[column(Float64Array::from(vec![0.0, -0.0, f64::NAN, negative_nan, 5e-324]))]);
    assert_eq!(weights[0], weights[1]);
    assert_eq!(weights[2], weights[3]);
    assert_eq!(HashSet::from([weights[0], weights[2], weights[4]]).len(), 3);
    assert_alike(&[column(Float64Array::from(vec![f64::NAN])), column(Float32Array::from(vec![-f32::NAN]))]);
}

#[test]
fn the_same_instant_weighs_the_same_in_every_unit() {
    let seconds = TimestampSecondArray::from(vec![Some(86_400 * 19_675), Some(-86_400), None]);
    assert_alike(&[
        column(seconds.clone()),
        column(seconds.with_timezone("Europe/Madrid")),
        column(TimestampMicrosecondArray::from(vec![
            Some(86_400_000_000 * 19_675),
            Some(-86_400_000_000),
            None,
        ])),
        column(TimestampNanosecondArray::from(vec![
            Some(86_400_000_000_000 * 19_675),
            Some(-86_400_000_000_000),
            None,
        ])),
        column(Date32Array::from(vec![Some(19_675), Some(-1), None])),
        column(Date64Array::from(vec![Some(86_400_000 * 19_675), Some(-86_400_000), None])),
    ]);
}

#[test]
fn how_text_and_bytes_are_stored_does_not_matter() {
    let long = "a text that is too long to lie within a view";
    let bytes: Vec<Option<&[u8]>> = vec![Some(b""), Some(b"a"), None, Some(long.as_bytes())];
    let pairs: Vec<&[u8]> = vec![b"ab", b"cd"];
    assert_alike(&[
        column(StringArray::from(vec![Some(""), Some("a"), None, Some(long)])),
        column(LargeStringArray::from(vec![Some(""), Some("a"), None, Some(long)])),
        column(StringViewArray::from(vec![Some(""), Some("a"), None, Some(long)])),
        column(BinaryArray::from(bytes.clone())),
        column(LargeBinaryArray::from(bytes.clone())),
        column(BinaryViewArray::from(bytes)),
    ]);
    assert_alike(&[
        column(StringArray::from(vec!["ab", "cd"])),
        column(FixedSizeBinaryArray::try_from(pairs).unwrap()),
    ]);
}

#[test]
fn a_dictionary_weighs_what_its_values_weigh() {
    let words = [Some("b"), Some("a"), None, Some("b"), Some("b")];
    assert_alike(&[
        column(StringArray::from(words.to_vec())),
        column(words.into_iter().collect::<DictionaryArray<UInt16Type>>()),
        // A null value, a null key, and more values than rows.
        column(DictionaryArray::<Int32Type>::new(
            Int32Array::from(vec![Some(2), Some(0), Some(1), Some(2), Some(2)]),
            column(StringArray::from(vec![
                Some("a"),
                None,
                Some("b"),
                Some("c"),
                Some("d"),
                Some("e"),
                Some("f"),
            ])),
        )),
    ]);
    let only_nulls = Int32Array::from(vec![None, None]);
    let no_values = column(StringArray::from(Vec::<&str>::new()));
    assert_alike(&[
        column(StringArray::from(vec![None::<&str>, None])),
        column(DictionaryArray::<Int32Type>::new(only_nulls, no_values)),
    ]);
    assert_alike(&[
        column(Int64Array::from(vec![7, -7, 7])),
        column(DictionaryArray::<Int32Type>::new(
            Int32Array::from(vec![1, 0, 1]),
            column(Int8Array::from(vec![-7, 7])),
        )),
    ]);
}

#[test]
fn where_a_row_lies_in_its_array_does_not_matter() {
    let integers = column(Int32Array::from_iter((0..100).map(|row| (row % 7 != 0).then_some(row))));
    let text = column(StringArray::from_iter((0..100).map(|row| (row % 5 != 0).then(|| format!("{row}")))));
    let dictionary: DictionaryArray<UInt16Type> = text_rows().iter().map(|row| row.as_deref()).collect();
    for key in [vec![integers.clone()], vec![text.clone()], vec![column(dictionary)], vec![integers, text]] {
        let sliced: Vec<ArrayRef> = key.iter().map(|column| column.slice(13, 50)).collect();
        assert_eq!(of(&sliced), of(&key)[13..63], "{:?}", key[0].data_type());
    }
}

fn text_rows() -> Vec<Option<String>> {
    (0..100).map(|row| (row % 5 != 0).then(|| format!("{}", row % 11))).collect()
}

#[test]
fn keys_of_several_columns_do_not_run_into_each_other() {
    let left = column(StringArray::from(vec![
        Some("ab"),
        Some("a"),
        Some("abc"),
        Some(""),
        None,
        Some("abc"),
        None,
    ]));
    let right = column(StringArray::from(vec![
        Some("c"),
        Some("bc"),
        Some(""),
        Some("abc"),
        Some("abc"),
        None,
        None,
    ]));
    let forward = of(&[left.clone(), right.clone()]);
    assert_eq!(forward.iter().collect::<HashSet<_>>().len(), 7);
    assert_ne!(forward, of(&[right, left]));
}

#[test]
fn a_null_is_told_from_every_number_and_text() {
    let null = of(&[column(Int64Array::from(vec![None]))])[0];
    assert!(!of(&[column(Int64Array::from(vec![0, -1, 255]))]).contains(&null));
    assert!(!of(&[column(StringArray::from(vec!["", "\0", "\u{ff}", "null"]))]).contains(&null));
    assert_eq!(of(&[column(StringArray::from(vec![None::<&str>]))]), [null]);
}

#[test]
fn another_salt_gives_weights_that_know_nothing_of_each_other() {
    let keys = [column(Int64Array::from_iter_values(0..20_000))];
    let tenth = Cut::of_share(0.1).unwrap();
    let other = weights(&keys, Salt(1)).unwrap();
    let both = of(&keys)
        .into_iter()
        .zip(other)
        .filter(|(one, other)| tenth.takes(*one) && tenth.takes(*other))
        .count();
    // 200 expected, with a standard deviation of 14.
    assert!((130..270).contains(&both), "{both} in both samples");
}

#[test]
fn samples_of_counted_keys_have_the_size_that_was_asked_for() {
    let keys = [
        vec![column(Int64Array::from_iter_values(0..100_000))],
        vec![column(Float64Array::from_iter_values((0..100_000).map(f64::from)))],
        vec![
            column(Int64Array::from_iter_values((0..100_000).map(|row| row / 100))),
            column(Int64Array::from_iter_values((0..100_000).map(|row| row % 100 * 80))),
        ],
        vec![column(StringArray::from_iter_values((0..100_000).map(|row| format!("atom-{row}"))))],
        vec![column(Date32Array::from_iter_values(0..100_000))],
    ];
    for key in keys {
        let weights = of(&key);
        for tenth in 0..10 {
            let window = Cut::window(f64::from(tenth) / 10.0, f64::from(tenth + 1) / 10.0).unwrap();
            let taken = weights.iter().filter(|weight| window.takes(**weight)).count();
            // 10,000 expected, with a standard deviation of 95.
            assert!((9_500..10_500).contains(&taken), "{taken} in tenth {tenth} of {:?}", key[0].data_type());
        }
    }
}

#[test]
fn no_weight_is_0() {
    assert_eq!(Weight::of_hash(0).get(), 1);
    assert_eq!(Weight::of_hash(1).get(), 1);
    assert_eq!(Weight::of_hash(u64::MAX).get(), u64::MAX);
    assert_eq!(Weight::new(0), None);
}

#[test]
fn what_cannot_be_a_key_is_refused() {
    assert_eq!(weights(&[], SALT), Err(WeightError::NoColumns));
    let (two, three) = (column(Int64Array::from(vec![1, 2])), column(Int64Array::from(vec![1, 2, 3])));
    let uneven = weights(&[two.clone(), three.clone()], SALT);
    assert_eq!(uneven, Err(WeightError::Rows { column: 1, rows: 3, expected: 2 }));
    let decimal = column(Decimal128Array::from(vec![1, 2]));
    let data_type = decimal.data_type().clone();
    assert_eq!(weights(&[two.clone(), decimal], SALT), Err(WeightError::NotAKey { column: 1, data_type }));
    assert_eq!(order(&of(&[three]), &[two]), Err(WeightError::Rows { column: 0, rows: 2, expected: 3 }));
}

#[test]
fn an_empty_column_has_no_weights_and_an_empty_order() {
    let empty = [column(Int64Array::from(Vec::<i64>::new()))];
    assert!(of(&empty).is_empty());
    assert_eq!(order(&[], &empty), Ok(vec![]));
}

#[test]
fn rows_come_by_weight_and_ties_by_the_value_of_their_id() {
    let weight = |number| Weight::new(number).unwrap();
    let weights = [9, 5, 5, 5, 1, 5].map(weight);
    let steps = column(Int64Array::from(vec![Some(0), Some(300), Some(-1), Some(2), Some(7), None]));
    assert_eq!(order(&weights, &[steps]), Ok(vec![4, 5, 2, 3, 1, 0]));
    let times = column(Float64Array::from(vec![0.0, f64::NAN, f64::NEG_INFINITY, 1.5, 0.0, -0.0]));
    assert_eq!(order(&weights, &[times]), Ok(vec![4, 2, 5, 3, 1, 0]));
    let unsigned = column(UInt64Array::from(vec![0, u64::MAX, 3, 1 << 63, 0, 2]));
    assert_eq!(order(&weights, &[unsigned]), Ok(vec![4, 5, 2, 3, 1, 0]));
    let names = column(StringArray::from(vec!["", "b", "ab", "a", "", "aa"]));
    assert_eq!(order(&weights, &[names]), Ok(vec![4, 3, 5, 2, 1, 0]));
    let days = column(Date32Array::from(vec![0, 2, -5, 1, 0, -4]));
    assert_eq!(order(&weights, &[days]), Ok(vec![4, 2, 5, 3, 1, 0]));
}

#[test]
fn a_later_id_column_settles_what_an_earlier_one_leaves() {
    let weights = [Weight::new(3).unwrap(); 4];
    let particles = column(Int64Array::from(vec![2, 1, 2, 1]));
    let steps = column(Int64Array::from(vec![10, 30, 5, 20]));
    assert_eq!(order(&weights, &[particles.clone(), steps.clone()]), Ok(vec![3, 1, 2, 0]));
    assert_eq!(order(&weights, &[steps, particles]), Ok(vec![2, 0, 3, 1]));
}

#[test]
fn the_order_does_not_depend_on_how_the_rows_came() {
    for_seeds("the_order_does_not_depend_on_how_the_rows_came", 100, |random| {
        let rows = random.usize(1..200);
        // Few particles, so that most weights occur several times; ids are distinct.
        let mut ids: Vec<(i64, i64)> = (0..rows).map(|row| (random.i64(0..4), row as i64 - 50)).collect();
        let ordered = |ids: &[(i64, i64)]| {
            let particles = column(Int64Array::from_iter_values(ids.iter().map(|id| id.0)));
            let steps = column(DictionaryArray::<Int64Type>::new(
                Int64Array::from_iter_values(0..ids.len() as i64),
                column(Int64Array::from_iter_values(ids.iter().map(|id| id.1))),
            ));
            let places = order(&of(from_ref(&particles)), &[particles, steps]).unwrap();
            places.iter().map(|&row| ids[row as usize]).collect::<Vec<_>>()
        };
        let before = ordered(&ids);
        random.shuffle(&mut ids);
        assert_eq!(ordered(&ids), before);
    });
}

#[test]
fn rows_with_one_id_stay_as_they_came() {
    for_seeds("rows_with_one_id_stay_as_they_came", 20, |random| {
        let weights: Vec<Weight> = (0..1_000).map(|_| Weight::new(random.u64(1..4)).unwrap()).collect();
        let ids: Vec<i64> = (0..1_000).map(|_| random.i64(0..3)).collect();
        let mut expected: Vec<u32> = (0..1_000).collect();
        expected.sort_by_key(|&row| (weights[row as usize], ids[row as usize]));
        assert_eq!(order(&weights, &[column(Int64Array::from(ids))]), Ok(expected));
    });
}

#[test]
fn weights_of_all_sizes_are_sorted_however_they_are_spread() {
    for_seeds("weights_of_all_sizes_are_sorted_however_they_are_spread", 60, |random| {
        let rows = random.usize(0..3_000);
        // From the lightest weights alone up to the whole range, mixed with the heaviest weight.
        let shift = random.u32(0..64);
        let weights: Vec<Weight> =
            (0..rows).map(|_| Weight::new((random.u64(..) >> shift).max(1)).unwrap()).collect();
        let weights: Vec<Weight> = weights
            .iter()
            .map(|&weight| [weight, Weight::GREATEST][usize::from(random.u8(..9) == 0)])
            .collect();
        let ids = column(Int64Array::from_iter_values(0..rows as i64));
        let mut expected: Vec<u32> = (0..rows as u32).collect();
        expected.sort_by_key(|&row| weights[row as usize]);
        assert_eq!(order(&weights, &[ids]), Ok(expected));
    });
}

#[test]
fn more_rows_than_fit_a_cache_are_ordered_as_few_are_by_however_many_threads() {
    for_seeds("more_rows_than_fit_a_cache_are_ordered_as_few_are_by_however_many_threads", 12, |random| {
        let (rows, shift) = (random.usize(30_000..90_000), random.u32(0..64));
        let weights: Vec<Weight> =
            (0..rows).map(|_| Weight::new((random.u64(..) >> shift).max(1)).unwrap()).collect();
        // Ids fall, so that rows of one weight have to be reversed.
        let ids = column(Int64Array::from_iter_values((0..rows as i64).rev()));
        let mut expected: Vec<u32> = (0..rows as u32).collect();
        expected.sort_by_key(|&row| (weights[row as usize], std::cmp::Reverse(row)));
        let threads = random.usize(1..5);
        let ordered = order_of_rows(&weights, &[ids], threads);
        assert!(
            ordered.is_ok_and(|ordered| *ordered == expected),
            "{rows} rows, shift {shift}, {threads} threads"
        );
    });
}

#[test]
fn a_prefix_in_this_order_is_the_sample() {
    let ids = column(Int64Array::from_iter_values(0..10_000));
    let weights = of(from_ref(&ids));
    let places = UInt32Array::from(order(&weights, from_ref(&ids)).unwrap());
    let sorted = take(&ids, &places, None).unwrap();
    let cut = Cut::of_share(0.05).unwrap();
    let prefix = cut.prefix(&of(from_ref(&sorted)));
    let of_prefix: HashSet<Weight> = of(&[sorted.slice(0, prefix)]).into_iter().collect();
    let sample: HashSet<Weight> = weights.into_iter().filter(|weight| cut.takes(*weight)).collect();
    assert_eq!(of_prefix, sample);
}
