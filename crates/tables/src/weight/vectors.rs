//! The test vectors of docs/internals/tables-weights.md, computed through Arrow.
//!
//! `tests/python/test_weight_vectors.py` reads the same lines without any of this code.

use super::{Salt, weights};
use arrow_array::types::{
    Date32Type, Date64Type, DurationMillisecondType, Int8Type, Int32Type, Int64Type, Time64MicrosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Float16Array, Float32Array, Float64Array,
    PrimitiveArray, StringArray,
};
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

const PAGE: &str = include_str!("../../../../docs/internals/tables-weights.md");

#[test]
fn the_documented_vectors_hold() {
    let vectors: Vec<_> = PAGE.lines().filter(|line| line.contains("| `0x")).collect();
    assert!(vectors.len() >= 20, "only {} vectors", vectors.len());
    for vector in vectors {
        let cells: Vec<_> = vector.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect();
        let [columns, salt, _key, weight] = cells[..] else { panic!("{vector}") };
        let columns: Vec<ArrayRef> = split(columns).iter().map(|column| array(column)).collect();
        let expected = u64::from_str_radix(weight.trim_start_matches("0x"), 16).unwrap();
        let weights = weights(&columns, Salt(salt.parse().unwrap())).unwrap();
        assert_eq!(weights.iter().map(|weight| weight.get()).collect::<Vec<_>>(), [expected], "{vector}");
    }
}

/// Splits at commas outside of quotes.
fn split(columns: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    for character in columns.chars() {
        is_quoted ^= character == '"';
        match (character, parts.last_mut()) {
            (',', _) if !is_quoted => parts.push(String::new()),
            (_, Some(part)) => part.push(character),
            _ => unreachable!(),
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

/// A column with one value, written as in `int64:7`.
fn array(column: &str) -> ArrayRef {
    let (name, value) = column.split_once(':').unwrap();
    match name {
        "int8" => primitive::<Int8Type>(value),
        "int32" => primitive::<Int32Type>(value),
        "int64" => primitive::<Int64Type>(value),
        "uint8" => primitive::<UInt8Type>(value),
        "uint32" => primitive::<UInt32Type>(value),
        "uint64" => primitive::<UInt64Type>(value),
        // The text is rounded to f64 first, which changes nothing for the values of the page.
        "float16" => Arc::new(Float16Array::from_iter_values([rounded(value.parse().unwrap())])),
        "float32" => Arc::new(Float32Array::from(vec![value.parse::<f32>().unwrap()])),
        "float64" => Arc::new(Float64Array::from(vec![value.parse::<f64>().unwrap()])),
        "bool" => Arc::new(BooleanArray::from(vec![value == "true"])),
        "date32" => primitive::<Date32Type>(value),
        "date64" => primitive::<Date64Type>(value),
        "timestamp[s]" => primitive::<TimestampSecondType>(value),
        "timestamp[ms]" => primitive::<TimestampMillisecondType>(value),
        "timestamp[us]" => primitive::<TimestampMicrosecondType>(value),
        "timestamp[ns]" => primitive::<TimestampNanosecondType>(value),
        "time64[us]" => primitive::<Time64MicrosecondType>(value),
        "duration[ms]" => primitive::<DurationMillisecondType>(value),
        "utf8" => Arc::new(StringArray::from(vec![text(value)])),
        "binary" => {
            let pairs = value.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            let bytes: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
            Arc::new(BinaryArray::from(vec![bytes.as_slice()]))
        }
        _ => panic!("unknown type in {column}"),
    }
}

fn primitive<T: ArrowPrimitiveType<Native: FromStr<Err: Debug>>>(value: &str) -> ArrayRef {
    let value = (value != "null").then(|| value.parse::<T::Native>().unwrap());
    Arc::new([value].into_iter().collect::<PrimitiveArray<T>>())
}

/// The half-precision float nearest to 0.1, the only one on the page: 1638 / 2^14.
fn rounded<T: From<u8> + std::ops::Mul<Output = T> + std::ops::Div<Output = T>>(value: f64) -> T {
    assert_eq!(value, 0.1);
    let number = |number: u8| T::from(number);
    // 1638 = 2 * 9 * 91; every step is exact in eleven bits.
    let numerator = number(18) * number(91);
    numerator / number(128) / number(128)
}

fn text(value: &str) -> Option<String> {
    if value == "null" {
        return None;
    }
    let (text, times) = value.split_once("\" x ").unwrap_or((value, "1"));
    Some(text.trim_matches('"').repeat(times.parse().unwrap()))
}
