//! The points of a column include every value that satisfies the condition, as its weight shows, and are
//! found.

use super::super::{Bound, Column, Expression};
use super::generator::Generator;
use super::oracle;
use super::rows::{Rows, rows};
use crate::seeds::for_seeds;
use crate::weight::{Weight, weights};
use crate::{Salt, expression::POINTS_MAX};
use arrow_array::{Array, ArrayRef};

/// The weights of the points of a column, if the points are known.
fn of_points(bound: &Bound, column: &str, rows: &Rows) -> Option<Vec<Weight>> {
    let data_type = rows.batch.schema().field_with_name(column).unwrap().data_type().clone();
    let points = bound.points(&Column::named(column), &data_type)?;
    assert!(points.len() <= POINTS_MAX);
    Some(weights(&[points], Salt(3)).unwrap())
}

fn check(expression: &Expression, rows: &Rows) -> (usize, usize) {
    let bound = expression.bind(&rows.batch.schema()).unwrap();
    let (mut known, mut satisfying) = (0, 0);
    for (place, field) in rows.batch.schema().fields().iter().enumerate() {
        let array: ArrayRef = rows.batch.column(place).clone();
        let Some(points) = of_points(&bound, field.name(), rows) else { continue };
        let Ok(weights) = weights(&[array], Salt(3)) else { continue };
        known += 1;
        for (row, weight) in rows.rows.iter().zip(weights) {
            if oracle::condition(expression, row) == Some(true) {
                satisfying += 1;
                assert!(points.contains(&weight), "{expression}: {} of {row:?}", field.name());
            }
        }
    }
    (known, satisfying)
}

#[test]
fn the_weight_of_a_row_that_satisfies_a_condition_is_that_of_a_point() {
    let (mut known, mut satisfying) = (0, 0);
    for_seeds("the_weight_of_a_row_that_satisfies_a_condition", 20, |random| {
        let rows = rows(random, 150);
        for depth in 0..200 {
            let expression = Generator::new(random).condition(depth % 3);
            let found = check(&expression, &rows);
            (known, satisfying) = (known + found.0, satisfying + found.1);
        }
    });
    if std::env::var_os("ATOLL_SEED").is_none() {
        assert!(known > 1000 && satisfying > 1000, "{known} known, {satisfying} rows");
    }
}

/// How many values satisfy the condition; `None` if they are not known to be few.
fn count(text: &str, column: &str) -> Option<usize> {
    let schema = super::rows::schema();
    let bound = Expression::parse(text).unwrap().bind(&schema).unwrap();
    let data_type = schema.field_with_name(column).unwrap().data_type();
    bound.points(&Column::named(column), data_type).map(|points| points.len())
}

#[test]
fn few_values_are_known_one_by_one() {
    assert_eq!(count("i64 = 17", "i64"), Some(1));
    assert_eq!(count("17 = i64 and f64 > 3", "i64"), Some(1));
    assert_eq!(count("i64 in (3, 1000000, 5.5)", "i64"), Some(2));
    assert_eq!(count("i64 = 3 or (i64 = 9 and flag)", "i64"), Some(2));
    assert_eq!(count("i64 in (3, 9, 12) and i64 > 3 and i64 != 12", "i64"), Some(2));
    assert_eq!(count("i64 > 2 and i64 <= 5", "i64"), Some(3));
    assert_eq!(count("not (i64 != 7)", "i64"), Some(1));
    assert_eq!(count("i8 = 300", "i8"), Some(0));
    assert_eq!(count("f32 = 0.1", "f32"), Some(0), "no float of 32 bits is 0.1");
    assert_eq!(count("f64 in (0, -0.0, 1)", "f64"), Some(2));
    assert_eq!(count("f64 is nan or f64 = 2", "f64"), Some(2));
    assert_eq!(count("word in ('a', 'b') or word is null", "word"), Some(3));
    assert_eq!(count("tag = 'a'", "tag"), Some(1));
    assert_eq!(count("code = 3", "code"), Some(1));
    assert_eq!(count("flag and not mark", "flag"), Some(1));
    assert_eq!(count("milli = timestamp '1970-01-02'", "milli"), Some(1));
    assert_eq!(count("i64 = 1 and i64 = 2", "i64"), Some(0));
}

#[test]
fn what_is_not_known_to_be_few_has_no_points() {
    for text in
        ["i64 > 3", "i64 != 3", "i64 = 3 or flag", "i64 + 0 = 3", "i64 = f64", "f64 = 3", "not i64 in (1, 2)"]
    {
        assert_eq!(count(text, "i64"), None, "{text}");
    }
    assert_eq!(count("i64 between 1 and 4096", "i64"), Some(4096));
    assert_eq!(count("i64 between 0 and 4096", "i64"), None);
    assert_eq!(count("f64 between 0 and 1e-300", "f64"), None);
    assert_eq!(count("word >= 'a' and word < 'b'", "word"), None);
}
