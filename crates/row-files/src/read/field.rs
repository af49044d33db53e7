//! Conversion of text fields to values of a column's type.
//!
//! Invariant: every call adds exactly one value or null.

use arrow_array::ArrayRef;
use arrow_array::builder::{BinaryBuilder, BooleanBuilder, PrimitiveBuilder, StringBuilder};
use arrow_array::timezone::Tz;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_cast::parse::{Parser, string_to_datetime};
use arrow_schema::{DataType, TimeUnit};
use std::borrow::Cow;
use std::sync::Arc;

/// A growing column of one type, built from texts.
pub(super) trait Values: Send {
    /// Adds the value of a text; if the text has none, adds null and returns false.
    fn push(&mut self, text: &str) -> bool;
    /// Adds null.
    fn push_null(&mut self);
    /// Takes everything that was added.
    fn finish(&mut self) -> ArrayRef;
}

/// A builder for a type; `None` if the type has no textual form.
pub(super) fn values(data_type: &DataType) -> Option<Box<dyn Values>> {
    Some(match data_type {
        DataType::Boolean => Box::new(Booleans(BooleanBuilder::new())),
        DataType::Int8 => number::<Int8Type>(data_type, integer),
        DataType::Int16 => number::<Int16Type>(data_type, integer),
        DataType::Int32 => number::<Int32Type>(data_type, integer),
        DataType::Int64 => number::<Int64Type>(data_type, integer),
        DataType::UInt8 => number::<UInt8Type>(data_type, integer),
        DataType::UInt16 => number::<UInt16Type>(data_type, integer),
        DataType::UInt32 => number::<UInt32Type>(data_type, integer),
        DataType::UInt64 => number::<UInt64Type>(data_type, integer),
        DataType::Float32 => number::<Float32Type>(data_type, float),
        DataType::Float64 => number::<Float64Type>(data_type, float),
        DataType::Date32 => number::<Date32Type>(data_type, date),
        DataType::Timestamp(unit, _) => instants(*unit, data_type),
        DataType::Duration(unit) => durations(*unit, data_type),
        DataType::Utf8 => Box::new(Texts(StringBuilder::new())),
        DataType::Binary => Box::new(Bytes(BinaryBuilder::new())),
        _ => return None,
    })
}

fn instants(unit: TimeUnit, data_type: &DataType) -> Box<dyn Values> {
    match unit {
        TimeUnit::Second => number::<TimestampSecondType>(data_type, instant::<1_000_000_000>),
        TimeUnit::Millisecond => number::<TimestampMillisecondType>(data_type, instant::<1_000_000>),
        TimeUnit::Microsecond => number::<TimestampMicrosecondType>(data_type, instant::<1_000>),
        TimeUnit::Nanosecond => number::<TimestampNanosecondType>(data_type, instant::<1>),
    }
}

/// An instant in units of `NANOSECONDS` nanoseconds; `None` if it is not a whole number of units, or out of
/// their range.
pub(super) fn instant<const NANOSECONDS: i64>(text: &str) -> Option<i64> {
    if is_finer(text) {
        return None;
    }
    let (text, cycles) = with_plain_year(text)?;
    let instant = string_to_datetime(&UTC.parse::<Tz>().ok()?, &text).ok()?;
    // A leap second, however it is written, is parsed as the second before it with that much more.
    if instant.timestamp_subsec_nanos() >= NANOSECONDS_OF_SECOND {
        return None;
    }
    // Nanoseconds in 64 bits would cover only the years from 1677 to 2262.
    let seconds = i128::from(instant.timestamp()) + i128::from(cycles) * CYCLE_SECONDS;
    let nanoseconds = seconds * 1_000_000_000 + i128::from(instant.timestamp_subsec_nanos());
    let unit = i128::from(NANOSECONDS);
    if nanoseconds % unit == 0 { i64::try_from(nanoseconds / unit).ok() } else { None }
}

/// Whether a text gives an instant more precisely than nanoseconds can, by digits after the ninth, which the
/// parser would ignore.
fn is_finer(text: &str) -> bool {
    let digits = text.split_once('.').map_or("", |(_, rest)| rest);
    let digits = digits.split(|each: char| !each.is_ascii_digit()).next().unwrap_or_default();
    digits.get(9..).is_some_and(|rest| rest.bytes().any(|digit| digit != b'0'))
}

const NANOSECONDS_OF_SECOND: u32 = 1_000_000_000;

/// The Gregorian calendar repeats every 400 years.
const CYCLE_SECONDS: i128 = 146_097 * 86_400;

/// Replaces a signed year, as years before 0 and from 10000 on are written, by a four-digit year with the
/// same days. Returns the text and the number of 400-year cycles between the two years. Any other text is
/// returned as it is.
fn with_plain_year(text: &str) -> Option<(Cow<'_, str>, i64)> {
    let Some(unsigned) = text.strip_prefix(['+', '-']) else { return Some((text.into(), 0)) };
    let (digits, rest) = unsigned.split_once('-')?;
    let is_year = (4..=6).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let year: i64 = digits.parse().ok().filter(|_| is_year)?;
    let year = if text.starts_with('-') { -year } else { year };
    let plain = format!("{}-{rest}", 2000 + year.rem_euclid(400));
    Some((plain.into(), year.div_euclid(400) - 5))
}

/// The zone of instants that do not name one.
const UTC: &str = "+00:00";

/// A date, which may be written as the instant at which it begins.
pub(super) fn date(text: &str) -> Option<i32> {
    match text.contains(['T', 't', ' ']) || text.starts_with(['+', '-']) {
        true => instant::<DAY_NANOSECONDS>(text).and_then(|days| i32::try_from(days).ok()),
        false => Date32Type::parse(text),
    }
}

const DAY_NANOSECONDS: i64 = 86_400 * 1_000_000_000;

/// A number; one beyond the range of the type is refused, unless it is written as infinity.
pub(super) fn float<F: std::str::FromStr + Copy + Into<f64>>(text: &str) -> Option<F> {
    let number: F = text.parse().ok()?;
    let is_meant = || text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
    (!number.into().is_infinite() || is_meant()).then_some(number)
}

/// Durations, written as integers in their unit.
fn durations(unit: TimeUnit, data_type: &DataType) -> Box<dyn Values> {
    match unit {
        TimeUnit::Second => number::<DurationSecondType>(data_type, ticks),
        TimeUnit::Millisecond => number::<DurationMillisecondType>(data_type, ticks),
        TimeUnit::Microsecond => number::<DurationMicrosecondType>(data_type, ticks),
        TimeUnit::Nanosecond => number::<DurationNanosecondType>(data_type, ticks),
    }
}

fn ticks(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// An integer, which may be written like a float.
pub(super) fn integer<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.parse().ok().or_else(|| whole(text)?.parse().ok())
}

/// The digits of an integer that is written like a float, such as `3.0` or `3e2`; `None` if it is not an
/// integer, or has neither a point nor an exponent. No float is involved, since one would round beyond 2^53.
#[cold]
fn whole(text: &str) -> Option<String> {
    if !text.contains(['.', 'e', 'E']) {
        return None;
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let unsigned = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    let (before, behind) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = format!("{before}{behind}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let exponent: i64 = exponent.parse::<i32>().ok()?.into();
    let significant = digits.trim_start_matches('0');
    let leading = digits.len() - significant.len();
    let significant = significant.trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    // The place of the point among the digits: in an integer it is after the last of them, and in one of 64
    // bits not far after.
    let point = usize::try_from(i64::try_from(before.len()).ok()? - i64::try_from(leading).ok()? + exponent);
    let point = point.ok().filter(|point| (significant.len()..=DIGITS_MAX).contains(point))?;
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    Some(format!("{sign}{significant:0<point$}"))
}

/// The most digits of a 64-bit integer.
const DIGITS_MAX: usize = 20;

fn number<T: ArrowPrimitiveType>(
    data_type: &DataType,
    parse: fn(&str) -> Option<T::Native>,
) -> Box<dyn Values> {
    let builder = PrimitiveBuilder::<T>::new().with_data_type(data_type.clone());
    Box::new(Numbers { builder, parse })
}

struct Numbers<T: ArrowPrimitiveType> {
    builder: PrimitiveBuilder<T>,
    parse: fn(&str) -> Option<T::Native>,
}

impl<T: ArrowPrimitiveType> Values for Numbers<T> {
    fn push(&mut self, text: &str) -> bool {
        let value = (self.parse)(text.trim());
        self.builder.append_option(value);
        value.is_some()
    }

    fn push_null(&mut self) {
        self.builder.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}

pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "1" => Some(true),
        "false" | "False" | "FALSE" | "0" => Some(false),
        _ => None,
    }
}

struct Booleans(BooleanBuilder);

impl Values for Booleans {
    fn push(&mut self, text: &str) -> bool {
        let value = boolean(text.trim());
        self.0.append_option(value);
        value.is_some()
    }

    fn push_null(&mut self) {
        self.0.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

struct Texts(StringBuilder);

impl Values for Texts {
    fn push(&mut self, text: &str) -> bool {
        self.0.append_value(text);
        true
    }

    fn push_null(&mut self) {
        self.0.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

/// Bytes, written as two hexadecimal digits each.
struct Bytes(BinaryBuilder);

impl Values for Bytes {
    fn push(&mut self, text: &str) -> bool {
        let bytes = from_hex(text.trim());
        self.0.append_option(bytes.as_deref());
        bytes.is_some()
    }

    fn push_null(&mut self) {
        self.0.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits = text.as_bytes();
    let pairs = digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    if digits.len().is_multiple_of(2) { pairs.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;

    /// The texts as values of the type, null where a text has none.
    fn read(data_type: &DataType, texts: &[&str]) -> ArrayRef {
        let mut values = values(data_type).unwrap();
        for text in texts {
            values.push(text);
        }
        values.finish()
    }

    #[test]
    fn a_time_between_two_units_is_no_value() {
        let texts = ["1969-12-31T23:59:59Z", "1969-12-31T23:59:59.5Z", "2026-01-01T00:00:00.123456789Z"];
        let of = |unit| {
            let read = read(&DataType::Timestamp(unit, None), &texts);
            (0..3).map(|row| read.is_valid(row)).collect::<Vec<_>>()
        };
        assert_eq!(of(TimeUnit::Second), [true, false, false]);
        assert_eq!(of(TimeUnit::Millisecond), [true, true, false]);
        assert_eq!(of(TimeUnit::Microsecond), [true, true, false]);
        assert_eq!(of(TimeUnit::Nanosecond), [true; 3]);
        let seconds = read(&DataType::Timestamp(TimeUnit::Second, None), &texts);
        assert_eq!(seconds.as_primitive::<TimestampSecondType>().value(0), -1);
    }

    #[test]
    fn what_is_finer_than_nanoseconds_is_no_value_of_any_unit() {
        let texts = [
            "2026-01-01T00:00:00.0000000009Z",
            "2016-12-31T23:59:60Z",
            "2016-12-31 23:59:60",
            "2026-01-01T00:00:00.000000000000Z",
            "2026-01-01T00:00:00.000+01:00",
        ];
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
            let read = read(&DataType::Timestamp(unit, None), &texts);
            let valid: Vec<_> = (0..5).map(|row| read.is_valid(row)).collect();
            assert_eq!(valid, [false, false, false, true, true], "{unit:?}");
        }
        assert_eq!(read(&DataType::Date32, &texts[1..3]).null_count(), 2, "the next day is another one");
    }

    #[test]
    fn a_leap_second_is_no_value_however_it_is_written() {
        let texts = [
            "2016-12-31T235960",
            "2016-12-31 235960Z",
            "2016-12-31T23:59:60.5Z",
            "2017-01-01T00:59:60+01:00",
            "2016-12-31T235959Z",
        ];
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
            let read = read(&DataType::Timestamp(unit, None), &texts);
            let valid: Vec<_> = (0..5).map(|row| read.is_valid(row)).collect();
            assert_eq!(valid, [false, false, false, false, true], "{unit:?}");
        }
        assert_eq!(read(&DataType::Date32, &texts).null_count(), 5, "the next day is another one");
    }

    #[test]
    fn a_day_has_no_time_of_day() {
        let texts =
            ["2026-01-02", "2026-01-02T00:00:00Z", "2026-01-01T23:30:00-05:00", "2026-01-02 01:00:00"];
        let days = read(&DataType::Date32, &texts);
        let days: Vec<_> = days.as_primitive::<Date32Type>().iter().collect();
        assert_eq!(days, [Some(20_455), Some(20_455), None, None]);
    }

    #[test]
    fn a_whole_number_may_be_written_as_floats_are_and_is_never_rounded() {
        let read_as = |data_type: DataType, text: &str| {
            let read = read(&data_type, &[text]);
            read.is_valid(0).then(|| arrow_cast::display::array_value_to_string(&read, 0).unwrap())
        };
        let numbers = [
            ("3.0", "3"),
            ("+3.", "3"),
            ("-3.000", "-3"),
            (" 3e2 ", "300"),
            ("3E+2", "300"),
            ("1.25e2", "125"),
            ("300e-2", "3"),
            (".5e1", "5"),
            ("0.005e3", "5"),
            ("-0.0", "0"),
            ("0e9", "0"),
            ("0.0e-9", "0"),
            ("9007199254740993.0", "9007199254740993"),
            ("9.223372036854775807e18", "9223372036854775807"),
            ("-9223372036854775808.0", "-9223372036854775808"),
        ];
        for (text, number) in numbers {
            assert_eq!(read_as(DataType::Int64, text).as_deref(), Some(number), "{text}");
        }
        let others = "3.5|1e-1|0.1|12.5e0|1.25e1|9223372036854775808.0|1e19|1e400|1e99999999999|1e-99999999999|\
                      |.|-|-.|e|e5|.e5|1e|1e5.0|1.2.3|1e2e3|--1.0|+-1.0|1_0.0|0x1.0|inf|nan|1.0f|1,0|\u{663}.0|1 .0";
        for text in others.split('|') {
            assert_eq!(read_as(DataType::Int64, text), None, "{text}");
        }
        assert_eq!(
            read_as(DataType::UInt64, "18446744073709551615.0").as_deref(),
            Some("18446744073709551615")
        );
        assert_eq!(read_as(DataType::UInt64, "-0.0").as_deref(), Some("0"));
        assert_eq!((read_as(DataType::UInt8, "2.56e2"), read_as(DataType::UInt8, "-1.0")), (None, None));
        assert_eq!(read_as(DataType::Int8, "-1.28e2").as_deref(), Some("-128"));
        assert_eq!(read_as(DataType::Duration(TimeUnit::Second), "3.0"), None, "a float is no duration");
    }

    #[test]
    fn a_number_that_is_too_large_is_no_infinity() {
        let texts = ["1e300", "-1e300", "inf", "-Infinity", "nan", "1e-300"];
        let narrow = read(&DataType::Float32, &texts);
        let narrow: Vec<_> = (0..6).map(|row| narrow.is_valid(row)).collect();
        assert_eq!(narrow, [false, false, true, true, true, true]);
        assert_eq!(read(&DataType::Float64, &["1e999", "1e300"]).null_count(), 1);
    }
}
