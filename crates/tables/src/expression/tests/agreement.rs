//! Evaluation agrees with an interpreter of single rows, including null and NaN.

use super::super::{Bound, Comparison, DEPTH_MAX, Expression};
use super::generator::Generator;
use super::oracle;
use super::rows::{Cell, Rows, rows};
use crate::seeds::for_seeds;
use arrow_array::types::Float64Type;
use arrow_array::{
    ArrayRef, Float64Array, Int64Array, PrimitiveArray, RecordBatch, StringArray, UInt64Array,
};
use std::sync::Arc;

fn bind(expression: &Expression, batch: &RecordBatch) -> Bound {
    expression.bind(&batch.schema()).unwrap_or_else(|error| panic!("{}", error.render()))
}

fn answers(expression: &Expression, batch: &RecordBatch) -> Vec<Option<bool>> {
    bind(expression, batch).evaluate(batch).unwrap().iter().collect()
}

fn check_agrees(expression: &Expression, rows: &Rows) {
    let found = answers(expression, &rows.batch);
    assert_eq!(found.len(), rows.rows.len(), "{expression}");
    for (row, found) in rows.rows.iter().zip(found) {
        assert_eq!(found, oracle::condition(expression, row), "{expression}\nfor {row:?}");
    }
}

#[test]
fn every_condition_says_of_every_row_what_the_interpreter_says() {
    for_seeds("every_condition_says_of_every_row_what_the_interpreter_says", 30, |random| {
        for _ in 0..2 {
            let count = random.usize(..150);
            let rows = rows(random, count);
            for depth in 0..40 {
                check_agrees(&Generator::new(random).condition(depth % 4), &rows);
            }
        }
    });
}

/// Checks for which rows of `x` the condition is true, false and unknown.
fn check(text: &str, x: ArrayRef, expected: &[Option<bool>]) {
    let batch = RecordBatch::try_from_iter([("x", x)]).unwrap();
    assert_eq!(answers(&Expression::parse(text).unwrap(), &batch), expected, "{text}");
}

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

#[test]
fn integers_never_pass_through_a_float() {
    let near =
        || Arc::new(Int64Array::from(vec![9_007_199_254_740_992, 9_007_199_254_740_993, 2])) as ArrayRef;
    check("x = 9007199254740993", near(), &[NO, YES, NO]);
    check("x = 9007199254740992.0", near(), &[YES, NO, NO]);
    check("x > 9007199254740992.0", near(), &[NO, YES, NO]);
    check("x + 0 = 9007199254740993", near(), &[NO, YES, NO]);
    check("x - 9007199254740992 = 1", near(), &[NO, YES, NO]);
    check("x in (9007199254740993, 2.0)", near(), &[NO, YES, YES]);
    check("x < 2.5", near(), &[NO, NO, YES]);
    check("x >= 2.5 and 2 = x", near(), &[NO, NO, NO]);
    check("x = 2.5 or x != 2.5", near(), &[YES, YES, YES]);
    let doubles =
        || Arc::new(Float64Array::from(vec![9_007_199_254_740_992.0, 9_007_199_254_740_994.0])) as ArrayRef;
    check("x < 9007199254740993", doubles(), &[YES, NO]);
    check("x = 9007199254740993", doubles(), &[NO, NO]);
    check("x >= 9007199254740993", doubles(), &[NO, YES]);
    let great = || Arc::new(UInt64Array::from(vec![u64::MAX, u64::MAX - 1, 0])) as ArrayRef;
    check("x = 18446744073709551615", great(), &[YES, NO, NO]);
    check("x < 18446744073709551615.0", great(), &[YES, YES, YES]);
    check("x > -1", great(), &[YES, YES, YES]);
    check("x * x = 1 or x + 1 > 18446744073709551615", great(), &[YES, None, NO]);
    check("-x < -(18446744073709551614)", great(), &[YES, NO, NO]);
}

#[test]
fn null_is_unknown_unless_it_is_asked_for() {
    let x = || Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])) as ArrayRef;
    check("x > 1", x(), &[NO, None, YES]);
    check("not x > 1", x(), &[YES, None, NO]);
    check("x is null", x(), &[NO, YES, NO]);
    check("x is not null", x(), &[YES, NO, YES]);
    check("x > 1 or true", x(), &[YES, YES, YES]);
    check("x > 1 and false", x(), &[NO, NO, NO]);
    check("x = null", x(), &[None, None, None]);
    check("x in (1, null)", x(), &[YES, None, None]);
    check("x not in (1, null)", x(), &[NO, None, None]);
    check("(x > 1) is null", x(), &[NO, YES, NO]);
    check("x % 0 is null", x(), &[YES, YES, YES]);
    check("x between 2 and null", x(), &[NO, None, None]);
    check("null", x(), &[None, None, None]);
}

#[test]
fn nan_differs_from_everything_and_has_no_order() {
    let x = || {
        Arc::new(Float64Array::from(vec![Some(f64::NAN), Some(-0.0), Some(f64::INFINITY), None])) as ArrayRef
    };
    check("x = x", x(), &[NO, YES, YES, None]);
    check("x != 1", x(), &[YES, YES, YES, None]);
    check("x < 1 or x >= 1", x(), &[NO, YES, YES, None]);
    check("not x < 1", x(), &[YES, NO, YES, None]);
    check("x = nan", x(), &[NO, NO, NO, None]);
    check("x in (nan, 0)", x(), &[NO, YES, NO, None]);
    check("x is nan", x(), &[YES, NO, NO, None]);
    check("x is not nan", x(), &[NO, YES, YES, None]);
    check("x < inf", x(), &[NO, YES, NO, None]);
    check("1 / x = -inf", x(), &[NO, YES, NO, None]);
    check("sqrt(x - 1) is nan", x(), &[YES, YES, NO, None]);
}

#[test]
fn a_modulo_has_the_sign_of_its_divisor_and_a_quotient_is_a_float() {
    let x = || Arc::new(Int64Array::from(vec![-1, 7])) as ArrayRef;
    check("x % 3 = 2", x(), &[YES, NO]);
    check("x % -3 = -2", x(), &[NO, YES]);
    check("x % 1.5 = 0.5", x(), &[YES, NO]);
    check("x / 2 = 3.5", x(), &[NO, YES]);
    check("x / 0 = inf", x(), &[NO, YES]);
}

#[test]
fn a_result_beyond_128_bits_is_null_and_not_wrong() {
    let x: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, 3]));
    check("x * x * x > 0", x, &[None, YES]);
}

#[test]
fn between_includes_both_ends() {
    let x: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 3, 4]));
    check("x between 1 and 3", Arc::clone(&x), &[NO, YES, YES, YES, NO]);
    check("x not between 1 and 3", x, &[YES, NO, NO, NO, YES]);
}

#[test]
fn texts_are_ordered_by_their_bytes() {
    let x: ArrayRef = Arc::new(StringArray::from(vec!["B", "a", "é", "it's"]));
    check("x < 'a'", Arc::clone(&x), &[YES, NO, NO, NO]);
    check("x > 'z'", Arc::clone(&x), &[NO, NO, YES, NO]);
    check("x in ('it''s', 'B')", x, &[YES, NO, NO, YES]);
}

#[test]
fn timestamps_of_any_unit_are_compared_exactly() {
    let seconds: ArrayRef = Arc::new(PrimitiveArray::<arrow_array::types::TimestampSecondType>::from(vec![
        0,
        1_767_225_600,
        i64::MAX,
    ]));
    check("x = timestamp '2026-01-01'", Arc::clone(&seconds), &[NO, YES, NO]);
    check("x < timestamp '2026-01-01T00:00:00.000000001Z'", Arc::clone(&seconds), &[YES, YES, NO]);
    check("x >= timestamp '2026-01-01T00:00:00.000000001Z'", seconds, &[NO, NO, YES]);
    let days: ArrayRef =
        Arc::new(PrimitiveArray::<arrow_array::types::Date32Type>::from(vec![0, -1, 20_454]));
    check("x > timestamp '1969-12-31T12:00:00Z'", Arc::clone(&days), &[YES, NO, YES]);
    check("x in (timestamp '2026-01-01', timestamp '1970-01-01T01:00:00Z')", days, &[NO, NO, YES]);
}

#[test]
fn a_batch_needs_the_columns_that_are_mentioned_and_may_have_others() {
    let schema = rows(&mut fastrand::Rng::with_seed(1), 1).batch.schema();
    let bound =
        Expression::parse("tag = 'a' or pos[1] > i64 and tag is null").unwrap().bind(&schema).unwrap();
    assert_eq!(bound.columns(), ["tag", "pos", "i64"]);
    let rows = rows(&mut fastrand::Rng::with_seed(2), 50);
    let places: Vec<_> = ["i64", "blob", "tag", "pos"].map(|name| schema.index_of(name).unwrap()).to_vec();
    let some = rows.batch.project(&places).unwrap();
    assert_eq!(bound.evaluate(&some).unwrap(), bound.evaluate(&rows.batch).unwrap());
    let error = bound.evaluate(&rows.batch.project(&places[..3]).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the batch has no column \"pos\"");
    let x: ArrayRef = Arc::new(PrimitiveArray::<Float64Type>::from(vec![1.0]));
    let wrong =
        RecordBatch::try_from_iter([("i64", Arc::clone(&x)), ("tag", Arc::clone(&x)), ("pos", x)]).unwrap();
    assert_eq!(bound.evaluate(&wrong).unwrap_err().kind(), atoll_errors::ErrorKind::InvalidInput);
}

#[test]
fn a_batch_without_rows_has_an_answer_without_rows() {
    let batch = rows(&mut fastrand::Rng::with_seed(1), 1).batch.slice(0, 0);
    let bound = bind(&Expression::parse("tag = 'a' or pos[1] > i64 or view < other").unwrap(), &batch);
    assert_eq!(bound.evaluate(&batch).unwrap().len(), 0);
    let empty = RecordBatch::new_empty(batch.schema());
    assert_eq!(bound.evaluate(&empty).unwrap().len(), 0);
}

#[test]
fn a_batch_of_nothing_but_nulls_agrees_too() {
    let schema = super::rows::schema();
    let arrays = schema.fields().iter().map(|field| arrow_array::new_null_array(field.data_type(), 3));
    let batch = RecordBatch::try_new(Arc::new(schema.clone()), arrays.collect()).unwrap();
    let columns = rows(&mut fastrand::Rng::with_seed(1), 1).rows.remove(0).into_keys();
    let row: super::rows::Row = columns.map(|column| (column, Cell::Null)).collect();
    let rows = Rows { batch, rows: vec![row; 3] };
    for_seeds("a_batch_of_nothing_but_nulls_agrees_too", 5, |random| {
        for _ in 0..100 {
            check_agrees(&Generator::new(random).condition(2), &rows);
        }
    });
}

#[test]
fn a_condition_at_the_limit_of_depth_needs_little_stack() {
    let nested = |open: &str, middle: &str, close: &str, times: usize| {
        Expression::parse(&format!("{}{middle}{}", open.repeat(times), close.repeat(times))).unwrap()
    };
    let work = move || {
        let rows = rows(&mut fastrand::Rng::with_seed(3), 20);
        for expression in [
            nested("not ", "flag", "", DEPTH_MAX - 1),
            nested("(", "flag", " = mark)", DEPTH_MAX - 1),
            nested("abs(", "i64", ")", DEPTH_MAX - 2).compare(Comparison::Greater, 1),
            nested("", "i64", " + 1", DEPTH_MAX - 2).compare(Comparison::Greater, 1),
        ] {
            assert_eq!(Expression::parse(&expression.to_string()).as_ref(), Ok(&expression));
            check_agrees(&expression, &rows);
        }
    };
    // Half of a thread's default stack.
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn what_was_built_too_deep_is_refused_and_not_followed() {
    let mut expression = Expression::column("flag");
    for _ in 0..DEPTH_MAX {
        expression = !expression;
    }
    let error = expression.bind(&super::rows::schema()).unwrap_err();
    assert_eq!((error.kind(), error.text()), (atoll_errors::ErrorKind::Limit, ""));
}
