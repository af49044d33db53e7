//! `atoll table estimate`: estimates a number from a part of the rows, with an interval.

use super::TableArguments;
use super::question::QuestionArguments;
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use arrow_array::{Array, ArrayRef, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;
use atoll_tables::estimate::{Confidence, Estimate as Estimated, EstimateRequest, Subject, Tolerance};
use atoll_tables::expression::{Column, Expression};
use atoll_tables::{Query, Table, Work};
use clap::Args;
use serde_json::{Value, json};

/// `atoll table estimate`
#[derive(Args, Debug)]
pub struct Estimate {
    #[command(flatten)]
    table: TableArguments,
    #[command(flatten)]
    subject: SubjectArguments,
    /// Wanted width: 1% of the value, 0.05 in the unit of the column, or 0.1sd of a standard deviation
    #[arg(long, value_name = "WIDTH", value_parser = parse_width, conflicts_with_all = ["sample", "window", "first", "limit"])]
    within: Option<Width>,
    /// Probability that the interval contains the true value
    #[arg(long, value_name = "LEVEL", default_value_t = 0.95, value_parser = parse_level)]
    confidence: f64,
    /// With --within, read at most N rows; the output says so if the interval is still too wide
    #[arg(long, value_name = "N", requires = "within")]
    max_rows: Option<u64>,
    /// With --mean: one mean for each value of this column
    #[arg(long, value_name = "COLUMN", requires = "mean", conflicts_with = "within")]
    group_by: Option<String>,
    /// With --group-by: groups that exist; one without rows in the sample is shown as not seen
    #[arg(long, value_name = "VALUES", value_delimiter = ',', requires = "group_by")]
    groups: Option<Vec<String>>,
    /// With --group-by: intervals that hold simultaneously
    #[arg(long, requires = "group_by")]
    simultaneous: bool,
    #[command(flatten)]
    question: QuestionArguments,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct SubjectArguments {
    /// Mean of a column
    #[arg(long, value_name = "COLUMN")]
    mean: Option<String>,
    /// Sum of a column
    #[arg(long, value_name = "COLUMN")]
    sum: Option<String>,
    /// Value of a column below which this share of the rows lies: vz:0.5 is the median
    #[arg(long, value_name = "COLUMN:SHARE", value_parser = parse_quantile)]
    quantile: Option<(String, f64)>,
    /// Share of the rows for which this holds as well
    #[arg(long, value_name = "CONDITION", allow_hyphen_values = true)]
    share: Option<String>,
    /// Number of rows
    #[arg(long)]
    rows: bool,
}

/// The wanted width of an interval.
#[derive(Clone, Copy, Debug)]
struct Width(Tolerance);

fn parse_width(text: &str) -> Result<Width, String> {
    let number = |text: &str| -> Result<f64, String> {
        let number: f64 = text.trim().parse().map_err(|_| format!("{text:?} is not a number"))?;
        let is_width = number > 0.0 && number.is_finite();
        is_width.then_some(number).ok_or_else(|| "a width is above 0".to_owned())
    };
    Ok(Width(if let Some(text) = text.strip_suffix('%') {
        Tolerance::Relative(number(text)? / 100.0)
    } else if let Some(text) = text.strip_suffix("sd") {
        Tolerance::OfDeviation(number(text)?)
    } else {
        Tolerance::Absolute(number(text)?)
    }))
}

fn parse_level(text: &str) -> Result<f64, String> {
    let (digits, scale) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    let level = digits.trim().parse::<f64>().map_err(|_| format!("{text:?} is not a number"))? / scale;
    let is_level = level > 0.0 && level < 1.0;
    is_level.then_some(level).ok_or_else(|| "it must lie between 0 and 1, such as 0.95".to_owned())
}

fn parse_quantile(text: &str) -> Result<(String, f64), String> {
    let (column, share) = text.rsplit_once(':').ok_or("it is not COLUMN:SHARE, such as vz:0.5")?;
    let share = share.trim().parse().map_err(|_| format!("{share:?} is not a number"))?;
    Ok((column.to_owned(), share))
}

impl Estimate {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Read).await?;
        let query = self.question.query(&table).await?;
        let confidence = Confidence::new(self.confidence).map_err(atoll_tables::TableError::from)?;
        if let Some(by) = &self.group_by {
            return self.groups(session, &table, &query, by, confidence).await;
        }
        let mut request = EstimateRequest::new(self.subject.subject(&table)?).confidence(confidence);
        if let Some(Width(tolerance)) = self.within {
            request = request.within(tolerance, self.max_rows);
        }
        let found = table.estimate(&query, &request).await?;
        let about = json!({ "version": found.version.0, "rows_read": found.rows_read });
        session.output.either(
            || summary_line(&found.estimate, &found.work),
            || merged(value_of(&found.estimate), &about),
        )
    }

    async fn groups(
        &self,
        session: &Session,
        table: &Table,
        query: &Query,
        by: &str,
        confidence: Confidence,
    ) -> Result<(), Failure> {
        let column = column_of(table, self.subject.mean.as_deref().unwrap_or_default())?;
        let how = (confidence, self.simultaneous);
        let known = self.groups.as_deref().map(|texts| known_groups(table, by, texts)).transpose()?;
        let found = table.estimate_groups(query, &column, by, known.flatten(), how).await?;
        let names = names_of(&found.groups)?;
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|&left, &right| by_number(&names[left], &names[right]));
        for place in order {
            let (name, mean) = (&names[place], found.means.get(place).and_then(Option::as_ref));
            session.output.either(
                || {
                    let mean =
                        mean.map_or("not seen".to_owned(), |mean| summary_line(mean, &Work::default()));
                    format!("{name}\t{mean}")
                },
                || {
                    let group = group_as_json(&found.groups, place, name);
                    let about = json!({ "group": group, "version": found.version.0 });
                    merged(mean.map_or(Value::Null, value_of), &about)
                },
            )?;
        }
        Ok(())
    }
}

impl SubjectArguments {
    fn subject(&self, table: &Table) -> Result<Subject, Failure> {
        if let Some(name) = &self.mean {
            return Ok(Subject::Mean(column_of(table, name)?));
        }
        if let Some(name) = &self.sum {
            return Ok(Subject::Sum(column_of(table, name)?));
        }
        if let Some((name, share)) = &self.quantile {
            return Ok(Subject::Quantile(column_of(table, name)?, *share));
        }
        if let Some(text) = &self.share {
            let wrong = |error| super::question::of_text("--share", error);
            let condition = Expression::parse(text).map_err(wrong)?;
            condition.bind(table.schema().columns()).map_err(wrong)?;
            return Ok(Subject::Share(condition));
        }
        Ok(Subject::Count)
    }
}

/// A column as it is typed, possibly an element of a vector.
pub(super) fn column_of(table: &Table, text: &str) -> Result<Column, Failure> {
    let column = match Expression::parse(text) {
        Ok(Expression::Column(column)) => column,
        _ => Column::named(text),
    };
    let schema = table.schema();
    let fields = schema.columns().fields();
    let present: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
    if present.contains(&column.name) {
        return Ok(column);
    }
    Err(Failure::Column { table: table.name().to_owned(), column: column.name, present })
}

/// The values of groups as they are typed, in the type of their column; `None` if there is no such column, of
/// which the estimate itself tells.
fn known_groups(table: &Table, by: &str, texts: &[String]) -> Result<Option<ArrayRef>, Failure> {
    let schema = table.schema();
    let Some((_, field)) = schema.columns().column_with_name(by) else { return Ok(None) };
    let typed = StringArray::from_iter_values(texts);
    // Without this, a text that is no such value would become null.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let values = cast_with_options(&typed, field.data_type(), &options);
    values.map(Some).map_err(|error| Failure::Usage {
        problem: format!("--groups: {error}"),
        hint: format!("give values of column {by}, separated by commas"),
    })
}

/// Values as they are shown, `null` where there is none.
pub(super) fn names_of(groups: &ArrayRef) -> Result<Vec<String>, Failure> {
    let options = FormatOptions::default().with_null("null");
    let formatter = ArrayFormatter::try_new(groups.as_ref(), &options);
    let formatter = formatter.map_err(|error| Failure::Usage {
        problem: format!("groups cannot be shown: {error}"),
        hint: "group by a column of numbers, texts or times".to_owned(),
    })?;
    Ok((0..groups.len()).map(|row| formatter.value(row).to_string()).collect())
}

/// The value of a group as rows have it in JSON: a number is not quoted, unless JSON has no such number.
pub(super) fn group_as_json(groups: &ArrayRef, place: usize, name: &str) -> Value {
    let of_type = groups.data_type();
    if groups.is_null(place) {
        Value::Null
    } else if of_type.is_integer() || *of_type == DataType::Boolean {
        serde_json::from_str(name).unwrap_or_else(|_| json!(name))
    } else if of_type.is_floating() {
        name.parse().map_or_else(|_| json!(name), number_as_json)
    } else {
        json!(name)
    }
}

/// A number as rows have it in JSON: `"NaN"`, `"inf"` and `"-inf"` for what JSON cannot express.
fn number_as_json(number: f64) -> Value {
    if number.is_finite() { json!(number) } else { json!(number.to_string()) }
}

/// Orders numbers by value, then texts; equal numbers are ordered as texts.
fn by_number(left: &str, right: &str) -> std::cmp::Ordering {
    let number = |text: &str| text.parse::<f64>().ok();
    match (number(left), number(right)) {
        (Some(one), Some(other)) => one.total_cmp(&other).then_with(|| left.cmp(right)),
        (one, other) => one.is_none().cmp(&other.is_none()).then_with(|| left.cmp(right)),
    }
}

/// The largest value up to which a double represents every whole number.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Whether a double is so large that its neighbour is another whole number.
fn is_beyond(value: f64) -> bool {
    value.is_finite() && value.abs() > WHOLE_MAX
}

/// The least number that is not shown with a power of ten.
const PLAIN_MIN: f64 = 1e-5;

/// The most digits after the point.
const DIGITS_MAX: f64 = 15.0;

/// A number with all digits that a double has, 17 at most, whatever its size.
fn shown(value: f64) -> String {
    let size = value.abs();
    let is_plain = size == 0.0 || !size.is_finite() || (PLAIN_MIN..=WHOLE_MAX).contains(&size);
    if is_plain { value.to_string() } else { format!("{value:e}") }
}

/// A value and half the width of its interval, both up to the second digit of the latter.
fn shown_with_half(value: f64, half: f64) -> (String, String) {
    if is_beyond(value) || is_beyond(half) {
        return (shown(value), shown(half));
    }
    let has_width = half.is_finite() && half > 0.0;
    let digits = if has_width { 1.0 - half.log10().floor() } else { 6.0 };
    let is_tiny = |number: f64| !number.is_finite() || number.abs() < PLAIN_MIN;
    if digits <= DIGITS_MAX && (value == 0.0 || !is_tiny(value) || !is_tiny(half)) {
        let digits = digits.max(0.0) as usize;
        return (format!("{value:.digits$}"), format!("{half:.digits$}"));
    }
    // The value has more digits by as many powers of ten as it is larger.
    let larger = if value == 0.0 { 0.0 } else { value.abs().log10().floor() - half.log10().floor() };
    let digits = if has_width { (larger + 1.0).clamp(1.0, 16.0) as usize } else { 6 };
    (format!("{value:.digits$e}"), format!("{half:.1e}"))
}

/// An estimate for people, with as many digits as are significant.
fn summary_line(estimate: &Estimated, work: &Work) -> String {
    let read = match work.rows_touched {
        0 => String::new(),
        rows => format!(", {} read", counted(rows, "row")),
    };
    let read = match estimate.missing {
        0 => read,
        missing => format!("{read}, {} of {} without a value", missing, counted(estimate.rows, "row")),
    };
    if estimate.is_exact() {
        // A sum of whole numbers beyond that is the nearest double.
        let digits = if is_beyond(estimate.value) { " to 16 digits" } else { "" };
        return format!("{} (exact{digits}{read})", shown(estimate.value));
    }
    let half = estimate.half_width();
    let (value, half) = shown_with_half(estimate.value, half);
    let level = estimate.confidence * 100.0;
    let mut told = format!("{value} ± {half} ({level} %, {} units{read})", estimate.units);
    for (place, doubt) in estimate.doubts.iter().enumerate() {
        told += if place == 0 { "; not valid: " } else { ", " };
        told += &doubt.to_string();
    }
    told
}

fn value_of(estimate: &Estimated) -> Value {
    json!({
        "value": number_as_json(estimate.value),
        "low": number_as_json(estimate.low),
        "high": number_as_json(estimate.high),
        "confidence": estimate.confidence,
        "method": estimate.method.name(),
        "exact": estimate.is_exact(),
        "valid": estimate.is_valid(),
        "doubts": estimate.doubts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "units": estimate.units,
        "rows": estimate.rows,
        "missing": estimate.missing,
    })
}

/// The members of both objects.
fn merged(first: Value, second: &Value) -> Value {
    let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
    members(&first).into_iter().chain(members(second)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_width_is_a_part_of_the_value_a_number_or_a_part_of_the_spread() {
        let width = |text| parse_width(text).map(|width| width.0);
        assert_eq!(width("1%").unwrap(), Tolerance::Relative(0.01));
        assert_eq!(width("0.5 %").unwrap(), Tolerance::Relative(0.005));
        assert_eq!(width("0.05").unwrap(), Tolerance::Absolute(0.05));
        assert_eq!(width("0.1sd").unwrap(), Tolerance::OfDeviation(0.1));
        for wrong in ["", "%", "-1%", "0", "nan", "inf", "one"] {
            assert!(width(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_level_lies_between_none_and_all() {
        assert_eq!(parse_level("95%"), Ok(0.95));
        assert_eq!(parse_level("0.99"), Ok(0.99));
        assert!(parse_level("95").is_err() && parse_level("0").is_err() && parse_level("100%").is_err());
    }

    #[test]
    fn a_group_has_the_type_of_its_column_in_json() {
        use arrow_array::{BooleanArray, Float64Array, UInt64Array};
        let shown = |groups: ArrayRef| -> Vec<Value> {
            let names = names_of(&groups).unwrap();
            (0..groups.len()).map(|place| group_as_json(&groups, place, &names[place])).collect()
        };
        assert_eq!(
            shown(std::sync::Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]))),
            [json!(u64::MAX), Value::Null]
        );
        assert_eq!(
            shown(std::sync::Arc::new(Float64Array::from(vec![0.5, 3.0, f64::NAN, f64::NEG_INFINITY]))),
            [json!(0.5), json!(3.0), json!("NaN"), json!("-inf")]
        );
        assert_eq!(shown(std::sync::Arc::new(BooleanArray::from(vec![true]))), [json!(true)]);
        assert_eq!(
            shown(std::sync::Arc::new(StringArray::from(vec!["1", "null"]))),
            [json!("1"), json!("null")]
        );
    }

    #[test]
    fn a_value_is_shown_up_to_the_second_digit_of_its_half_width_whatever_its_size() {
        for (value, half, expected) in [
            (1.234_567, 0.012, "1.235 ± 0.012"),
            (-98_765.4, 321.0, "-98765 ± 321"),
            (1.602_176e-19, 1.6e-21, "1.602e-19 ± 1.6e-21"),
            (-2.5e-6, 1e-7, "-2.50e-6 ± 1.0e-7"),
            (0.0, 1e-18, "0.0e0 ± 1.0e-18"),
            (0.5, 1e-18, "5.0000000000000000e-1 ± 1.0e-18"),
            (0.25, 1e-14, "0.250000000000000 ± 0.000000000000010"),
            // A power of ten would hide that the value may be 0.
            (1e-7, 0.5, "0.00 ± 0.50"),
            (0.0, 1e-6, "0.0000000 ± 0.0000010"),
            (2.5, f64::INFINITY, "2.500000 ± inf"),
            (2.5e-9, f64::INFINITY, "2.500000e-9 ± inf"),
            (1e300, 1e299, "1e300 ± 1e299"),
        ] {
            let (value, half) = shown_with_half(value, half);
            assert_eq!(format!("{value} ± {half}"), expected);
        }
        let (value, half) = shown_with_half(f64::NAN, f64::INFINITY);
        assert_eq!((value.as_str(), half.as_str()), ("NaN", "inf"));
    }

    #[test]
    fn groups_have_one_order_however_they_come() {
        let mut names: Vec<String> = ["-3.5", "0", "9", "10", "11", "inf", "NaN"].map(str::to_owned).to_vec();
        names.extend(["", "1a", "9b", "heavy", "null"].map(str::to_owned));
        for (place, one) in names.iter().enumerate() {
            for (other_place, other) in names.iter().enumerate() {
                assert_eq!(by_number(one, other), place.cmp(&other_place), "{one:?} and {other:?}");
            }
        }
        assert!(by_number("1", "1.0").is_lt(), "different texts are different groups");
    }
}
