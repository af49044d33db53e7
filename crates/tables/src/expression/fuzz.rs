//! Entry point for the fuzzer: accepts any bytes and must not panic.

use super::{Column, Expression, parse_box};
use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use std::sync::Arc;

/// Parses the bytes as an expression and as a box, displays both, and binds them to a schema.
///
/// Returns whether either was accepted, so that a fuzzer can tell when it gets past the surface.
///
/// # Panics
/// If an accepted text does not parse back as itself, or if an error cannot be displayed: that is a finding.
#[must_use]
pub fn expression(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let expression = match Expression::parse(&text) {
        Ok(expression) => expression,
        Err(error) => {
            assert!(error.text().get(error.span()).is_some(), "a span beyond its text");
            assert!(!error.render().is_empty(), "an error that says nothing");
            return is_box(&text);
        }
    };
    let shown = expression.to_string();
    assert_eq!(
        Expression::parse(&shown).as_ref(),
        Ok(&expression),
        "an expression must read back what it shows"
    );
    let schema = Arc::new(schema());
    let nulls = schema.fields().iter().map(|field| new_null_array(field.data_type(), 2)).collect();
    match expression.bind(&schema) {
        Ok(bound) => {
            let answer = RecordBatch::try_new(schema, nulls).map(|batch| bound.evaluate(&batch));
            assert!(
                matches!(answer, Ok(Ok(answer)) if answer.len() == 2),
                "the schema's own batch must have an answer"
            );
            for name in bound.columns() {
                let _ = bound.ranges(&Column::named(name));
            }
        }
        Err(error) => assert!(!error.render().is_empty(), "an error that says nothing"),
    }
    true
}

fn is_box(text: &str) -> bool {
    let sides = match parse_box(text) {
        Ok(sides) => sides,
        Err(error) => {
            assert!(!error.render().is_empty(), "an error that says nothing");
            return false;
        }
    };
    let shown: Vec<_> = sides.iter().map(ToString::to_string).collect();
    assert_eq!(parse_box(&shown.join(", ")), Ok(sides), "a box must read back what it shows");
    true
}

/// A column of each kind, with short names that a fuzzer finds.
fn schema() -> Schema {
    let vector = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), 3);
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let words = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let columns = [
        ("i", DataType::Int64),
        ("u", DataType::UInt64),
        ("x", DataType::Float64),
        ("b", DataType::Boolean),
        ("s", DataType::Utf8),
        ("d", words),
        ("t", time),
        ("v", vector),
        ("o", DataType::Binary),
    ];
    Schema::new(columns.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec())
}
