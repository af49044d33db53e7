//! Fits columns to a table: into its order, and into its types where that changes no value.
//!
//! Texts come in several layouts and integers in several widths, depending on the tool. Nothing is ever
//! rounded: a value that does not fit exactly is refused, with its column and the first such row.

use crate::error::Failure;
use crate::input::OF_MASK_KEY;
use crate::schema::held_as;
use arrow_array::builder::{BinaryBuilder, StringBuilder, UInt64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, Int64Array, OffsetSizeTrait, PrimitiveArray,
    RecordBatch, make_array, new_empty_array, new_null_array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields, SchemaRef, TimeUnit};
use atoll_tables::{Table, TypeName};
use std::collections::HashSet;
use std::sync::Arc;

/// The columns as a batch of the table's schema. Fetches the current schema if they have a column that this
/// handle does not know, since another process may have added it.
pub(crate) async fn conforming(table: &Table, rows: &RecordBatch) -> Result<RecordBatch, Failure> {
    let known = table.schema();
    let is_known = |name: &str| known.columns().column_with_name(name).is_some();
    let is_news = rows.schema_ref().fields().iter().any(|field| !is_known(field.name()));
    let schema = if is_news { table.schema_now().await? } else { known };
    conform(schema.columns(), rows)
}

/// The columns as a batch of the table's schema.
///
/// Nullable columns that are not given are null in every row.
fn conform(schema: &SchemaRef, rows: &RecordBatch) -> Result<RecordBatch, Failure> {
    // Rows of the same schema are checked, too: other libraries do not enforce what schemas say of nulls.
    let given = rows.schema();
    if let Some(field) = given.fields().iter().find(|field| schema.column_with_name(field.name()).is_none()) {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let hint = format!("its columns are {}", names.join(", "));
        return Err(Failure::hinted(format!("the table has no column \"{}\"", field.name()), hint));
    }
    if let Some(twice) = twice(given.fields()) {
        return Err(Failure::input(format!("there are two columns \"{twice}\"")));
    }
    let columns = schema.fields().iter().map(|field| match given.column_with_name(field.name()) {
        Some((place, given)) => fit(field, &as_meant(field, given, rows.column(place))?),
        None if field.is_nullable() => Ok(new_null_array(field.data_type(), rows.num_rows())),
        None => Err(Failure::input(format!("column \"{}\" is missing", field.name()))),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// The first name that two columns have.
fn twice(fields: &Fields) -> Option<&str> {
    let mut names = HashSet::new();
    fields.iter().map(|field| field.name().as_str()).find(|name| !names.insert(*name))
}

/// A column of vectors that came from a mask. Where the table allows missing elements but no missing vectors,
/// a vector whose elements are all masked has missing elements instead of being missing itself.
fn as_meant(wanted: &Field, given: &Field, column: &ArrayRef) -> Result<ArrayRef, Failure> {
    let (DataType::FixedSizeList(item, _), Some(list)) =
        (wanted.data_type(), column.as_fixed_size_list_opt())
    else {
        return Ok(Arc::clone(column));
    };
    if wanted.is_nullable() || !item.is_nullable() || !given.metadata().contains_key(OF_MASK_KEY) {
        return Ok(Arc::clone(column));
    }
    let (item, len, elements, _) = list.clone().into_parts();
    let item = item.as_ref().clone().with_nullable(true);
    Ok(Arc::new(FixedSizeListArray::try_new(Arc::new(item), len, elements, None)?))
}

/// Converts a column to the type of its field.
pub(crate) fn fit(field: &Field, column: &ArrayRef) -> Result<ArrayRef, Failure> {
    let fitted = Fit { name: field.name(), elements: 1 }.array(column, field.data_type())?;
    if fitted.null_count() > 0 && !field.is_nullable() {
        let row = (0..fitted.len()).find(|&row| fitted.is_null(row)).unwrap_or_default();
        return Err(Failure::input(format!(
            "column \"{}\" must not be null, but row {row} is",
            field.name()
        )));
    }
    Ok(fitted)
}

/// Conversions of one column, with what their error messages need.
struct Fit<'a> {
    name: &'a str,
    /// Values in each row.
    elements: usize,
}

impl Fit<'_> {
    fn array(&self, from: &ArrayRef, to: &DataType) -> Result<ArrayRef, Failure> {
        match (from.data_type(), to) {
            // Vectors of the same type may still lack elements that the type does not let them lack.
            (same, to) if same == to && !matches!(to, DataType::FixedSizeList(..)) => Ok(Arc::clone(from)),
            (DataType::Null, _) => Ok(new_null_array(to, from.len())),
            // The type of a list without values is arbitrary.
            _ if from.is_empty() => Ok(new_empty_array(to)),
            (DataType::Dictionary(..), _) => {
                let dictionary = from.as_any_dictionary();
                let plain = arrow_select::take::take(dictionary.values(), dictionary.keys(), None);
                let plain = plain.map_err(|error| match error {
                    // A text that many rows share, such as the name of a run, may be too much in every row.
                    ArrowError::OffsetOverflowError(bytes) => {
                        Failure::TooLong { name: self.name.to_owned(), bytes }
                    }
                    other => other.into(),
                })?;
                self.array(&plain, to)
            }
            (text, DataType::Utf8) if held_as(text) == DataType::Utf8 => {
                self.check_bytes(from)?;
                Ok(texts(from))
            }
            (bytes, DataType::Binary) if held_as(bytes) == DataType::Binary => {
                self.check_bytes(from)?;
                Ok(bytes_of(from))
            }
            (DataType::FixedSizeList(..), DataType::FixedSizeList(..)) => self.vectors(from, to),
            (DataType::Timestamp(from_unit, _), DataType::Timestamp(to_unit, _))
            | (DataType::Duration(from_unit), DataType::Duration(to_unit)) => {
                self.times(from, (*from_unit, *to_unit), to)
            }
            (DataType::Date32, DataType::Timestamp(unit, _)) => self.instants(from, *unit, to),
            (DataType::Timestamp(unit, _), DataType::Date32) => self.days(from, *unit, to),
            (DataType::List(_), DataType::FixedSizeList(..)) => {
                self.vectors(&self.of_one_length(from.as_list::<i32>(), to)?, to)
            }
            (DataType::LargeList(_), DataType::FixedSizeList(..)) => {
                self.vectors(&self.of_one_length(from.as_list::<i64>(), to)?, to)
            }
            (DataType::Float32, _) if to.is_numeric() => {
                let wide = from.as_primitive::<Float32Type>().unary::<_, Float64Type>(f64::from);
                self.floats(&wide, to)
            }
            (DataType::Float64, _) if to.is_numeric() => self.floats(from.as_primitive(), to),
            (integers, _) if integers.is_integer() && to.is_numeric() => self.integers(from, to),
            (found, _) => Err(self.refuse(found, to)),
        }
    }

    fn refuse(&self, found: &DataType, to: &DataType) -> Failure {
        let (is, was) = (TypeName::told(to), TypeName::told(found));
        let problem = format!("column \"{}\" is {is} in the table, but {was} was given", self.name);
        if found.is_floating() && to.is_numeric() {
            return Failure::hinted(
                problem,
                "nothing is rounded on input; convert it yourself first, for example with astype",
            );
        }
        Failure::input(problem)
    }

    /// Refuses more bytes of texts than a column of a batch can have.
    fn check_bytes(&self, from: &ArrayRef) -> Result<(), Failure> {
        check_text_bytes(self.name, text_bytes(from))
    }

    fn vectors(&self, from: &ArrayRef, to: &DataType) -> Result<ArrayRef, Failure> {
        let (DataType::FixedSizeList(_, given), DataType::FixedSizeList(item, wanted)) =
            (from.data_type(), to)
        else {
            return Err(self.refuse(from.data_type(), to));
        };
        if given != wanted {
            return Err(Failure::input(format!(
                "column \"{}\" has vectors of {wanted} in the table, but vectors of {given} were given",
                self.name
            )));
        }
        let list = from.as_fixed_size_list();
        let len = *wanted as usize;
        let values = list.values().slice(list.value_offset_at(0), list.len() * len);
        let values = without_hidden(&values, list.nulls(), len)?;
        let values = Fit { elements: len, ..*self }.array(&values, item.data_type())?;
        if !item.is_nullable() && !are_below(values.nulls(), list.nulls(), len) {
            return Err(lacks_element(self.name));
        }
        let rebuilt = FixedSizeListArray::try_new(Arc::clone(item), *wanted, values, list.nulls().cloned())?;
        Ok(Arc::new(rebuilt))
    }

    fn times(
        &self,
        from: &ArrayRef,
        (from_unit, to_unit): (TimeUnit, TimeUnit),
        to: &DataType,
    ) -> Result<ArrayRef, Failure> {
        let ticks = retyped(from, DataType::Int64)?;
        let ticks = ticks.as_primitive::<Int64Type>();
        let (given, wanted) = (per_second(from_unit), per_second(to_unit));
        let convert = |(row, tick): (usize, Option<i64>)| {
            let Some(tick) = tick else { return Ok(None) };
            let exact = match wanted >= given {
                true => tick.checked_mul(wanted / given),
                false => (tick % (given / wanted) == 0).then(|| tick / (given / wanted)),
            };
            exact.map(Some).ok_or_else(|| self.inexact(row, tick, to))
        };
        let converted = ticks.iter().enumerate().map(convert).collect::<Result<Int64Array, _>>()?;
        let converted: ArrayRef = Arc::new(converted);
        retyped(&converted, to.clone())
    }

    /// Days as the instants at their beginning.
    fn instants(&self, from: &ArrayRef, unit: TimeUnit, to: &DataType) -> Result<ArrayRef, Failure> {
        let days = from.as_primitive::<Date32Type>().iter().enumerate().map(|(row, day)| match day {
            None => Ok(None),
            Some(day) => i64::from(day)
                .checked_mul(SECONDS_PER_DAY * per_second(unit))
                .map(Some)
                .ok_or_else(|| self.inexact(row, day, to)),
        });
        let ticks: ArrayRef = Arc::new(days.collect::<Result<Int64Array, _>>()?);
        retyped(&ticks, to.clone())
    }

    /// Instants as days; each must be the beginning of one.
    fn days(&self, from: &ArrayRef, unit: TimeUnit, to: &DataType) -> Result<ArrayRef, Failure> {
        let ticks = retyped(from, DataType::Int64)?;
        let ticks_per_day = SECONDS_PER_DAY * per_second(unit);
        let day = |(row, tick): (usize, Option<i64>)| {
            let Some(tick) = tick else { return Ok(None) };
            let day = (tick % ticks_per_day == 0).then(|| i32::try_from(tick / ticks_per_day).ok()).flatten();
            day.map(Some).ok_or_else(|| self.inexact(row, tick, to))
        };
        let days = ticks.as_primitive::<Int64Type>().iter().enumerate().map(day);
        Ok(Arc::new(days.collect::<Result<PrimitiveArray<Date32Type>, _>>()?))
    }

    fn inexact(&self, place: usize, value: impl std::fmt::Display, to: &DataType) -> Failure {
        let row = place / self.elements.max(1);
        Failure::hinted(
            format!(
                "column \"{}\", row {row}: {value} does not fit {} exactly",
                self.name,
                TypeName::told(to)
            ),
            "nothing is rounded on input: do that yourself first, for example with numpy.asarray(values, dtype)",
        )
    }

    /// Lists as vectors of the table: all must have as many values as such a vector.
    fn of_one_length<O: OffsetSizeTrait>(
        &self,
        lists: &GenericListArray<O>,
        to: &DataType,
    ) -> Result<ArrayRef, Failure> {
        let DataType::FixedSizeList(_, wanted) = to else {
            return Err(self.refuse(lists.data_type(), to));
        };
        let len = usize::try_from(*wanted).unwrap_or_default();
        let mut places = UInt64Builder::with_capacity(lists.len() * len);
        for row in 0..lists.len() {
            let (first, given) = (lists.value_offsets()[row].as_usize(), lists.value_length(row).as_usize());
            if lists.is_null(row) {
                places.append_nulls(len);
            } else if given == len {
                places.extend((first..first + len).map(|place| Some(place as u64)));
            } else {
                return Err(Failure::input(format!(
                    "column \"{}\", row {row}: it has vectors of {wanted} in the table, but one of {given} was given",
                    self.name
                )));
            }
        }
        let values = arrow_select::take::take(lists.values(), &places.finish(), None)?;
        let item = Arc::new(Field::new("item", values.data_type().clone(), true));
        Ok(Arc::new(FixedSizeListArray::try_new(item, *wanted, values, lists.nulls().cloned())?))
    }

    fn floats(&self, values: &PrimitiveArray<Float64Type>, to: &DataType) -> Result<ArrayRef, Failure> {
        match to {
            DataType::Float64 => return Ok(Arc::new(values.clone())),
            DataType::Float32 => {
                let narrow: PrimitiveArray<Float32Type> = values.unary(|value| value as f32);
                let is_other = |value: f64, narrow: f32| f64::from(narrow) != value && !value.is_nan();
                let pairs = values.iter().zip(narrow.values()).enumerate();
                let other = pairs.filter_map(|(row, (value, narrow))| Some((row, value?, *narrow)));
                return match { other }.find(|&(_, value, narrow)| is_other(value, narrow)) {
                    Some((row, value, _)) => Err(self.inexact(row, format!("{value:?}"), to)),
                    None => Ok(Arc::new(narrow)),
                };
            }
            _ => {}
        }
        let as_whole = |value: f64| Some(value as i128).filter(|&whole| whole as f64 == value);
        self.whole(values, as_whole, to)
    }

    fn integers(&self, from: &ArrayRef, to: &DataType) -> Result<ArrayRef, Failure> {
        match from.data_type() {
            DataType::Int8 => self.whole(from.as_primitive::<Int8Type>(), wide, to),
            DataType::Int16 => self.whole(from.as_primitive::<Int16Type>(), wide, to),
            DataType::Int32 => self.whole(from.as_primitive::<Int32Type>(), wide, to),
            DataType::Int64 => self.whole(from.as_primitive::<Int64Type>(), wide, to),
            DataType::UInt8 => self.whole(from.as_primitive::<UInt8Type>(), wide, to),
            DataType::UInt16 => self.whole(from.as_primitive::<UInt16Type>(), wide, to),
            DataType::UInt32 => self.whole(from.as_primitive::<UInt32Type>(), wide, to),
            DataType::UInt64 => self.whole(from.as_primitive::<UInt64Type>(), wide, to),
            found => Err(self.refuse(found, to)),
        }
    }

    /// Integers in the type of a column. `as_whole` gives the integer that a value is; none if it is none.
    fn whole<S: ArrowPrimitiveType>(
        &self,
        values: &PrimitiveArray<S>,
        as_whole: impl Fn(S::Native) -> Option<i128>,
        to: &DataType,
    ) -> Result<ArrayRef, Failure> {
        let fitted = match to {
            DataType::Int8 => fitted::<S, Int8Type>(values, |value| as_whole(value)?.try_into().ok()),
            DataType::Int16 => fitted::<S, Int16Type>(values, |value| as_whole(value)?.try_into().ok()),
            DataType::Int32 => fitted::<S, Int32Type>(values, |value| as_whole(value)?.try_into().ok()),
            DataType::Int64 => fitted::<S, Int64Type>(values, |value| as_whole(value)?.try_into().ok()),
            DataType::UInt8 => fitted::<S, UInt8Type>(values, |value| as_whole(value)?.try_into().ok()),
            DataType::UInt16 => fitted::<S, UInt16Type>(values, |value| as_whole(value)?.try_into().ok()),
            DataType::UInt32 => fitted::<S, UInt32Type>(values, |value| as_whole(value)?.try_into().ok()),
            DataType::UInt64 => fitted::<S, UInt64Type>(values, |value| as_whole(value)?.try_into().ok()),
            DataType::Float32 => fitted::<S, Float32Type>(values, |value| {
                let whole = as_whole(value)?;
                Some(whole as f32).filter(|&float| float as i128 == whole)
            }),
            DataType::Float64 => fitted::<S, Float64Type>(values, |value| {
                let whole = as_whole(value)?;
                Some(whole as f64).filter(|&float| float as i128 == whole)
            }),
            _ => return Err(self.refuse(&DataType::Int64, to)),
        };
        fitted.map_err(|row| match as_whole(values.value(row)) {
            Some(whole) => self.inexact(row, whole, to),
            None => self.inexact(row, format!("{:?}", values.value(row)), to),
        })
    }
}

/// A value of any integer type as one of the widest.
fn wide<N: Into<i128>>(value: N) -> Option<i128> {
    Some(value.into())
}

/// The values in another type, without a copy of a third width between the two; or the first row whose value
/// does not fit.
fn fitted<S: ArrowPrimitiveType, T: ArrowPrimitiveType>(
    values: &PrimitiveArray<S>,
    convert: impl Fn(S::Native) -> Option<T::Native>,
) -> Result<ArrayRef, usize> {
    let fitted = values.try_unary::<_, T, _>(|value| convert(value).ok_or(()));
    fitted.map(|fitted| Arc::new(fitted) as ArrayRef).map_err(|()| {
        // Only now: keeping the row beside each value would cost time.
        let is_other = |value: Option<S::Native>| value.is_some_and(|value| convert(value).is_none());
        values.iter().position(is_other).unwrap_or_default()
    })
}

/// Whether elements are missing only within missing vectors, where no element is a value.
pub(crate) fn are_below(elements: Option<&NullBuffer>, vectors: Option<&NullBuffer>, len: usize) -> bool {
    let Some(elements) = elements.filter(|nulls| nulls.null_count() > 0) else { return true };
    vectors.is_some_and(|vectors| vectors.expand(len).contains(elements))
}

fn lacks_element(name: &str) -> Failure {
    Failure::input(format!("column \"{name}\": elements of vectors must not be null"))
}

/// Refuses vectors that lack elements though their own type has all of them: Arrow cannot join those, and
/// would not say which column it is.
pub(crate) fn check_vectors(rows: &RecordBatch) -> Result<(), Failure> {
    for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        let (DataType::FixedSizeList(item, len), Some(list)) =
            (column.data_type(), column.as_fixed_size_list_opt())
        else {
            continue;
        };
        let len = *len as usize;
        let values = list.values().slice(list.value_offset_at(0), list.len() * len);
        if !item.is_nullable() && !are_below(values.nulls(), list.nulls(), len) {
            return Err(lacks_element(field.name()));
        }
    }
    Ok(())
}

/// Elements of vectors, none of which is a value within a missing vector: what the memory has there has no
/// meaning, and is neither converted nor refused.
fn without_hidden(
    elements: &ArrayRef,
    vectors: Option<&NullBuffer>,
    len: usize,
) -> Result<ArrayRef, Failure> {
    let vectors = vectors.filter(|nulls| nulls.null_count() > 0);
    let is_of_values = elements.data_type().is_primitive() || *elements.data_type() == DataType::Boolean;
    match vectors {
        Some(vectors) if is_of_values => {
            let nulls = NullBuffer::union(Some(&vectors.expand(len)), elements.nulls());
            Ok(make_array(elements.to_data().into_builder().nulls(nulls).build()?))
        }
        _ => Ok(Arc::clone(elements)),
    }
}

/// The bytes between the first and the last of some offsets.
fn between<O: Copy + Into<i64>>(offsets: &[O]) -> usize {
    let at = |offset: Option<&O>| -> i64 { offset.map_or(0, |&offset| offset.into()) };
    usize::try_from(at(offsets.last()) - at(offsets.first())).unwrap_or(usize::MAX)
}

/// At most how many bytes the texts of a column take once each row has its own; 0 for a column without texts.
pub(crate) fn text_bytes(column: &ArrayRef) -> usize {
    match column.data_type() {
        // A slice refers to the bytes of the whole array.
        DataType::Utf8 => between(column.as_string::<i32>().value_offsets()),
        DataType::Binary => between(column.as_binary::<i32>().value_offsets()),
        DataType::LargeUtf8 => between(column.as_string::<i64>().value_offsets()),
        DataType::LargeBinary => between(column.as_binary::<i64>().value_offsets()),
        DataType::Utf8View => column.as_string_view().lengths().map(|len| len as usize).sum(),
        DataType::BinaryView => column.as_binary_view().lengths().map(|len| len as usize).sum(),
        // Rows share the texts of a dictionary.
        DataType::Dictionary(..) => {
            column.len().saturating_mul(longest_text(column.as_any_dictionary().values()))
        }
        _ => 0,
    }
}

/// The bytes of the longest text of a column; 0 for a column without texts.
fn longest_text(column: &ArrayRef) -> usize {
    fn of<O: Copy + Into<i64>>(offsets: &[O]) -> usize {
        offsets.windows(2).map(between).max().unwrap_or(0)
    }
    match column.data_type() {
        DataType::Utf8 => of(column.as_string::<i32>().value_offsets()),
        DataType::Binary => of(column.as_binary::<i32>().value_offsets()),
        DataType::LargeUtf8 => of(column.as_string::<i64>().value_offsets()),
        DataType::LargeBinary => of(column.as_binary::<i64>().value_offsets()),
        DataType::Utf8View => column.as_string_view().lengths().max().unwrap_or(0) as usize,
        DataType::BinaryView => column.as_binary_view().lengths().max().unwrap_or(0) as usize,
        _ => 0,
    }
}

/// Refuses more bytes of texts than a column of a batch can have.
pub(crate) fn check_text_bytes(name: &str, bytes: usize) -> Result<(), Failure> {
    match i32::try_from(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::TooLong { name: name.to_owned(), bytes }),
    }
}

fn texts(array: &ArrayRef) -> ArrayRef {
    let mut builder = StringBuilder::new();
    match array.data_type() {
        DataType::LargeUtf8 => builder.extend(array.as_string::<i64>().iter()),
        _ => builder.extend(array.as_string_view().iter()),
    }
    Arc::new(builder.finish())
}

fn bytes_of(array: &ArrayRef) -> ArrayRef {
    let mut builder = BinaryBuilder::new();
    match array.data_type() {
        DataType::LargeBinary => builder.extend(array.as_binary::<i64>().iter()),
        _ => builder.extend(array.as_binary_view().iter()),
    }
    Arc::new(builder.finish())
}

/// The same bits as another type of the same width.
pub(crate) fn retyped(array: &ArrayRef, data_type: DataType) -> Result<ArrayRef, Failure> {
    Ok(make_array(array.to_data().into_builder().data_type(data_type).build()?))
}

const SECONDS_PER_DAY: i64 = 86_400;

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}
