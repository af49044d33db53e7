//! Conversion of the columns of a file to the columns of a table.
//!
//! Invariant: nothing of a value is lost, except when a double is rounded to a float.

use super::ReadOptions;
use super::infer::check_named;
use super::origin::{Origin, origins};
use super::text::type_name;
use crate::RowFileError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_data::transform::{Capacities, MutableArrayData};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// Converts batches of a file to batches of the wanted columns.
pub(super) struct BatchConverter {
    file: String,
    wanted: SchemaRef,
    origins: Vec<Origin>,
}

impl BatchConverter {
    pub(super) fn new(
        file: String,
        present: &Schema,
        wanted: &SchemaRef,
        options: &ReadOptions,
    ) -> Result<Self, RowFileError> {
        let names = options.all_renamed(&file, present.fields().iter().map(|field| field.name().as_str()))?;
        let origins = origins(&file, &names, wanted, options)?;
        Ok(Self { file, wanted: Arc::clone(wanted), origins })
    }

    /// The wanted columns of a batch.
    pub(super) fn convert(&self, rows: &RecordBatch) -> Result<RecordBatch, RowFileError> {
        let columns = self.wanted.fields().iter().zip(&self.origins);
        let columns: Vec<ArrayRef> =
            columns.map(|(field, origin)| self.column(rows, field, origin)).collect::<Result<_, _>>()?;
        let count = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let fitted = RecordBatch::try_new_with_options(Arc::clone(&self.wanted), columns, &count);
        fitted.map_err(|error| self.value(self.wanted.field(0), error.to_string()))
    }

    fn column(
        &self,
        rows: &RecordBatch,
        field: &FieldRef,
        origin: &Origin,
    ) -> Result<ArrayRef, RowFileError> {
        let column = match origin {
            Origin::Absent => return Ok(new_null_array(field.data_type(), rows.num_rows())),
            Origin::Column(place) => self.cast(rows.column(*place), field, field.data_type())?,
            Origin::Elements(places) => self.vector(rows, field, places)?,
        };
        if !field.is_nullable() && column.null_count() > 0 {
            let row = (0..column.len()).find(|row| column.is_null(*row)).unwrap_or(0);
            return Err(self.value(field, format!("value {} of this part must not be null", row + 1)));
        }
        Ok(column)
    }

    fn vector(
        &self,
        rows: &RecordBatch,
        field: &FieldRef,
        places: &[usize],
    ) -> Result<ArrayRef, RowFileError> {
        let DataType::FixedSizeList(item, len) = field.data_type() else {
            return Err(self.no_cast(field, &DataType::Null));
        };
        let elements: Vec<ArrayRef> = places
            .iter()
            .map(|place| self.cast(rows.column(*place), field, item.data_type()))
            .collect::<Result<_, _>>()?;
        if !item.is_nullable() && elements.iter().any(|element| element.null_count() > 0) {
            return Err(self.value(field, "an element must not be null".to_owned()));
        }
        let parts: Vec<_> = elements.iter().map(|element| element.to_data()).collect();
        let capacity = Capacities::Array(rows.num_rows() * places.len());
        let mut all = MutableArrayData::with_capacities(parts.iter().collect(), true, capacity);
        for row in 0..rows.num_rows() {
            for element in 0..places.len() {
                all.try_extend(element, row, row + 1).map_err(|error| self.value(field, plain(&error)))?;
            }
        }
        let values = arrow_array::make_array(all.freeze());
        let vector = FixedSizeListArray::try_new(Arc::clone(item), *len, values, None);
        vector
            .map(|vector| Arc::new(vector) as ArrayRef)
            .map_err(|error| self.value(field, error.to_string()))
    }

    /// A column, converted to another type.
    fn cast(&self, column: &ArrayRef, field: &FieldRef, wanted: &DataType) -> Result<ArrayRef, RowFileError> {
        let found = column.data_type();
        if found == wanted {
            return Ok(Arc::clone(column));
        }
        let strict = |column: &dyn Array, wanted: &DataType| {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            cast_with_options(column, wanted, &options).map_err(|error| self.value(field, plain(&error)))
        };
        match (found, wanted) {
            (DataType::Null, _) => Ok(new_null_array(wanted, column.len())),
            (DataType::Dictionary(_, values), _) => self.cast(&strict(column, values)?, field, wanted),
            (DataType::LargeUtf8 | DataType::Utf8View, DataType::Utf8)
            | (
                DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_),
                DataType::Binary,
            )
            | (DataType::Float16, DataType::Float32)
            | (DataType::Float32 | DataType::Float16, DataType::Float64) => strict(column, wanted),
            (DataType::Float64, DataType::Float32) => self.in_range(column, strict(column, wanted)?, field),
            (found, wanted) if found.is_numeric() && wanted.is_numeric() => {
                self.unchanged(column, strict(column, wanted)?, field)
            }
            // A date must not have a time of day.
            (DataType::Date64, DataType::Date32) | (DataType::Duration(_), DataType::Duration(_)) => {
                self.unchanged(column, strict(column, wanted)?, field)
            }
            (DataType::Timestamp(_, zone), DataType::Timestamp(unit, wanted_zone)) => {
                // A column without a zone is taken as UTC, so the cast only has to change the unit.
                let with_zone = strict(column, &DataType::Timestamp(*unit, zone.clone()))?;
                let same = self.unchanged(column, with_zone, field)?;
                self.retyped(&same, DataType::Timestamp(*unit, wanted_zone.clone()), field)
            }
            (DataType::Date32, DataType::Timestamp(unit, _)) => self.instants(column, *unit, field, wanted),
            (DataType::Timestamp(unit, _), DataType::Date32) => self.days(column, *unit, field),
            (
                DataType::FixedSizeList(..) | DataType::List(_) | DataType::LargeList(_),
                DataType::FixedSizeList(item, len),
            ) => {
                let found_item = match found {
                    DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
                        item
                    }
                    _ => item,
                };
                let same_length = strict(column, &DataType::FixedSizeList(Arc::clone(found_item), *len))?;
                let vector = same_length.as_fixed_size_list();
                let values = self.cast(vector.values(), field, item.data_type())?;
                self.vector_of(field, item, *len, values, vector.nulls().cloned())
            }
            _ => Err(self.no_cast(field, found)),
        }
    }

    fn vector_of(
        &self,
        field: &FieldRef,
        item: &FieldRef,
        len: i32,
        values: ArrayRef,
        valid: Option<NullBuffer>,
    ) -> Result<ArrayRef, RowFileError> {
        let hides_nulls = !item.is_nullable() && values.null_count() > 0;
        if hides_nulls {
            let missing = |row: usize| valid.as_ref().is_none_or(|valid| valid.is_valid(row));
            let per_row = usize::try_from(len).unwrap_or(1).max(1);
            if (0..values.len()).any(|place| values.is_null(place) && missing(place / per_row)) {
                return Err(self.value(field, "an element must not be null".to_owned()));
            }
        }
        let whole = if hides_nulls { without_nulls(&values) } else { Ok(values) };
        let vector =
            whole.and_then(|values| FixedSizeListArray::try_new(Arc::clone(item), len, values, valid));
        vector.map(|vector| Arc::new(vector) as ArrayRef).map_err(|error| self.value(field, plain(&error)))
    }

    /// Doubles as floats, if none is beyond the range of floats.
    fn in_range(
        &self,
        column: &ArrayRef,
        floats: ArrayRef,
        field: &FieldRef,
    ) -> Result<ArrayRef, RowFileError> {
        let (before, after) = (column.as_primitive::<Float64Type>(), floats.as_primitive::<Float32Type>());
        let is_beyond = |row: &usize| before.value(*row).is_finite() && after.value(*row).is_infinite();
        match (0..column.len()).filter(|row| before.is_valid(*row)).find(is_beyond) {
            Some(row) => {
                let problem =
                    format!("value {} of this part, {}, is beyond a float32", row + 1, before.value(row));
                Err(self.value(field, problem))
            }
            None => Ok(floats),
        }
    }

    /// Dates as the instants at which they begin.
    fn instants(
        &self,
        column: &ArrayRef,
        unit: TimeUnit,
        field: &FieldRef,
        wanted: &DataType,
    ) -> Result<ArrayRef, RowFileError> {
        let days = column.as_primitive::<Date32Type>();
        let ticks = days.unary_opt::<_, Int64Type>(|day| i64::from(day).checked_mul(ticks_per_day(unit)));
        let ticks = self.whole(column, Arc::new(ticks), field)?;
        self.retyped(&ticks, wanted.clone(), field)
    }

    /// Instants at which days begin, as dates; in UTC, whatever zone they are displayed in.
    fn days(&self, column: &ArrayRef, unit: TimeUnit, field: &FieldRef) -> Result<ArrayRef, RowFileError> {
        let ticks = self.retyped(column, DataType::Int64, field)?;
        let of_day = ticks_per_day(unit);
        let day = |tick: i64| if tick % of_day == 0 { i32::try_from(tick / of_day).ok() } else { None };
        self.whole(column, Arc::new(ticks.as_primitive::<Int64Type>().unary_opt::<_, Date32Type>(day)), field)
    }

    /// The converted column, if no value was lost.
    fn whole(&self, before: &ArrayRef, after: ArrayRef, field: &FieldRef) -> Result<ArrayRef, RowFileError> {
        match (0..before.len()).find(|row| before.is_valid(*row) && after.is_null(*row)) {
            Some(row) => Err(self.inexact(before, row, field.data_type(), field)),
            None => Ok(after),
        }
    }

    /// The same bits as another type of the same width.
    fn retyped(
        &self,
        column: &ArrayRef,
        data_type: DataType,
        field: &FieldRef,
    ) -> Result<ArrayRef, RowFileError> {
        let data = column.to_data().into_builder().data_type(data_type).build();
        data.map(arrow_array::make_array).map_err(|error| self.value(field, plain(&error)))
    }

    /// The converted column, if converting it back gives the original.
    fn unchanged(
        &self,
        before: &ArrayRef,
        after: ArrayRef,
        field: &FieldRef,
    ) -> Result<ArrayRef, RowFileError> {
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let back = cast_with_options(&after, before.data_type(), &options);
        let back = back.map_err(|error| self.value(field, plain(&error)))?;
        // Compared as data in memory, where a NaN equals itself bit for bit; then value by value, to find the
        // first that differs.
        if back.to_data() == before.to_data() {
            return Ok(after);
        }
        let differs = |row: &usize| back.slice(*row, 1).to_data() != before.slice(*row, 1).to_data();
        let Some(row) = (0..before.len()).find(differs) else { return Ok(after) };
        Err(self.inexact(before, row, after.data_type(), field))
    }

    fn inexact(&self, before: &ArrayRef, row: usize, wanted: &DataType, field: &FieldRef) -> RowFileError {
        let shown = arrow_cast::display::array_value_to_string(before, row).unwrap_or_default();
        self.value(field, format!("{shown} is not exactly {}", type_name(wanted)))
    }

    fn no_cast(&self, field: &Field, found: &DataType) -> RowFileError {
        RowFileError::Type {
            file: self.file.clone(),
            column: field.name().clone(),
            found: type_name(found),
            wanted: type_name(field.data_type()),
        }
    }

    fn value(&self, field: &Field, problem: String) -> RowFileError {
        RowFileError::Value { file: self.file.clone(), column: field.name().clone(), problem }
    }
}

fn ticks_per_day(unit: TimeUnit) -> i64 {
    86_400
        * match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        }
}

fn plain(error: &ArrowError) -> String {
    let text = error.to_string();
    text.split_once("error: ").map_or(text.clone(), |(_, problem)| problem.to_owned())
}

/// The same values, with zeros for nulls.
pub(super) fn without_nulls(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    values.to_data().into_builder().nulls(None).build().map(arrow_array::make_array)
}

/// The columns of a typed file, under their new names and with the types that a table can hold.
pub(super) fn described(present: &Schema, file: &str, options: &ReadOptions) -> Result<Schema, RowFileError> {
    let names = options.all_renamed(file, present.fields().iter().map(|field| field.name().as_str()))?;
    check_named(file, &names, options)?;
    let fields = names.into_iter().zip(present.fields()).map(|(name, field)| {
        let named = options.types.iter().find(|(column, _)| *column == name);
        let data_type = named.map_or_else(|| held(field.data_type()), |(_, data_type)| data_type.clone());
        Field::new(name, data_type, field.is_nullable()).with_metadata(own_metadata(field))
    });
    Ok(Schema::new_with_metadata(fields.collect::<Vec<_>>(), present.metadata().clone()))
}

/// The metadata keys that a table does not keep begin with these: those of Parquet, and those of an extension
/// type of Arrow. A table holds the type that such values are stored as, and no column of it is of that type.
const OF_FILES: [&str; 2] = ["PARQUET:", "ARROW:extension:"];

/// The metadata of a column, without entries that are about how its file holds it.
fn own_metadata(field: &Field) -> std::collections::HashMap<String, String> {
    let is_of_file = |key: &str| OF_FILES.iter().any(|prefix| key.starts_with(prefix));
    let own = field.metadata().iter().filter(|(key, _)| !is_of_file(key));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The type with which a table holds values of this type.
fn held(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => held(values),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Date64 => DataType::Date32,
        DataType::Float16 => DataType::Float32,
        other => other.clone(),
    }
}
