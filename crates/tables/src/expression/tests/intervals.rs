//! Intervals contain every row that satisfies the condition, and exclude what they can.

use super::super::{Column, Expression, Interval, Values};
use super::generator::Generator;
use super::oracle;
use super::rows::{Cell, Row, rows};
use crate::seeds::for_seeds;
use arrow_schema::{DataType, TimeUnit};

/// Whether the interval contains the value; instants are stored in units of `scale`.
fn holds(interval: &Interval, cell: &Cell, scale: i128) -> bool {
    match (cell, &interval.values) {
        (Cell::Null, _) => interval.may_be_null,
        (Cell::Float(value), _) if value.is_nan() => interval.may_be_nan,
        (_, Values::All) => true,
        (_, Values::None) => false,
        (Cell::Integer(value), Values::Integers { low, high }) => low <= value && value <= high,
        (Cell::Instant(value), Values::Integers { low, high }) => {
            *low <= value / scale && value / scale <= *high
        }
        (Cell::Float(value), Values::Floats { low, high }) => low <= value && value <= high,
        (Cell::Text(value), Values::Texts { low, high }) => {
            low.as_ref().is_none_or(|low| low <= value) && high.as_ref().is_none_or(|high| value <= high)
        }
        (cell, values) => panic!("{cell:?} in {values:?}"),
    }
}

fn scale(data_type: &DataType) -> i128 {
    match data_type {
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => 1_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1000,
        DataType::Date32 => 86_400_000_000_000,
        _ => 1,
    }
}

#[test]
fn no_row_that_satisfies_a_condition_lies_outside_of_its_intervals() {
    for_seeds("no_row_that_satisfies_a_condition_lies_outside_of_its_intervals", 20, |random| {
        let rows = rows(random, 150);
        let schema = rows.batch.schema();
        for depth in 0..120 {
            let expression = Generator::new(random).condition(depth % 4);
            let bound = expression.bind(&schema).unwrap();
            let satisfy = |row: &&Row| oracle::condition(&expression, row) == Some(true);
            let satisfying: Vec<_> = rows.rows.iter().filter(satisfy).collect();
            for column in rows.rows[0].keys() {
                let scale = scale(schema.field_with_name(&column.name).unwrap().data_type());
                let interval = bound.ranges(column);
                for row in &satisfying {
                    let cell = &row[column];
                    let is_within = holds(&interval, cell, scale);
                    assert!(is_within, "{expression}: {column} = {cell:?} is not in {interval:?}");
                }
            }
        }
    });
}

fn interval(text: &str, column: &str) -> Interval {
    let column = match Expression::parse(column).unwrap() {
        Expression::Column(column) => column,
        other => panic!("{other} is no column"),
    };
    Expression::parse(text).unwrap().bind(&super::rows::schema()).unwrap().ranges(&column)
}

fn check(text: &str, column: &str, values: Values) {
    let expected = Interval { values, may_be_nan: false, may_be_null: false };
    assert_eq!(interval(text, column), expected, "{column} of {text}");
}

fn integers(low: i128, high: i128) -> Values {
    Values::Integers { low, high }
}

fn floats(low: f64, high: f64) -> Values {
    Values::Floats { low, high }
}

#[test]
fn comparisons_of_a_column_give_its_range() {
    check("i64 >= 0 and i64 < 10", "i64", integers(0, 9));
    check("i64 > 0.5 and 2.5 > i64", "i64", integers(1, 2));

    check("i64 = 9007199254740993", "i64", integers(9_007_199_254_740_993, 9_007_199_254_740_993));
    check("i64 in (7, 3, 5.5, null)", "i64", integers(3, 7));
    check("i64 between 1 and 3 or i64 = 10", "i64", integers(1, 10));
    check("(i64 > 1 or flag) and i64 < 4", "i64", integers(i128::MIN, 3));
    check("f64 >= 0.5 and f64 <= 2", "f64", floats(0.5, 2.0));
    check("f64 < 1", "f64", floats(f64::NEG_INFINITY, 1f64.next_down()));
    check("pos[1] between 0 and 1 and pos[0] > 5", "pos[1]", floats(0.0, 1.0));
    check("f64 = 9007199254740993", "f64", Values::None);
    check(
        "word > 'a' and word <= 'b'",
        "word",
        Values::Texts { low: Some("a".into()), high: Some("b".into()) },
    );
    check("tag in ('b', 'é')", "tag", Values::Texts { low: Some("b".into()), high: Some("é".into()) });
    check("i64 = 1 and i64 = 2", "i64", Values::None);
    check("flag and false", "i64", Values::None);
}

#[test]
fn timestamps_have_their_range_in_their_own_unit() {
    check("milli > timestamp '1970-01-01T00:00:01.0005Z'", "milli", integers(1001, i128::MAX));
    check("milli < timestamp '1970-01-01T00:00:01Z'", "milli", integers(i128::MIN, 999));
    check("sec <= timestamp '1969-12-31T23:59:59.5Z'", "sec", integers(i128::MIN, -1));
    check("day = timestamp '1970-01-02'", "day", integers(1, 1));
    check("day = timestamp '1970-01-02T01:00:00Z'", "day", Values::None);
}

#[test]
fn nan_and_null_are_kept_where_they_satisfy() {
    let with = |values, may_be_nan, may_be_null| Interval { values, may_be_nan, may_be_null };
    assert_eq!(interval("not f64 < 5", "f64"), with(floats(5.0, f64::INFINITY), true, false));
    // An integer column is never NaN, so this flag of its interval does not matter.
    assert_eq!(interval("not (i64 < 5 or i64 > 7)", "i64"), with(integers(5, 7), true, false));
    assert_eq!(interval("f64 != 5", "f64"), with(Values::All, true, false));
    assert_eq!(
        interval("f64 is nan or f64 > 5", "f64"),
        with(floats(5f64.next_up(), f64::INFINITY), true, false)
    );
    assert_eq!(
        interval("f64 is null or f64 > 5", "f64"),
        with(floats(5f64.next_up(), f64::INFINITY), false, true)
    );
    assert_eq!(interval("f64 is not nan", "f64"), with(Values::All, false, false));
    assert_eq!(interval("f64 < i64", "f64"), with(Values::All, true, false));
    assert_eq!(interval("f64 < 1 or flag", "f64"), Interval::EVERYTHING);
    assert_eq!(interval("i64 < 1", "f64"), Interval::EVERYTHING);
    assert!(interval("f64 > 1 and f64 < 0", "f64").is_empty());
    assert!(interval("null", "f64").is_empty());
}

#[test]
fn a_column_that_is_not_mentioned_is_unbounded() {
    let bound = Expression::parse("i64 < 1").unwrap().bind(&super::rows::schema()).unwrap();
    assert_eq!(bound.ranges(&Column::named("no such column")), Interval::EVERYTHING);
    assert_eq!(bound.ranges(&Column::element("pos", 7)), Interval::EVERYTHING);
}
