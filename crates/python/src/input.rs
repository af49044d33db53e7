//! Incoming rows: Arrow from any tool, or columns as Python and NumPy hold them.
//!
//! Columns of Python and NumPy are copied here, under the interpreter lock: the caller may change them right
//! afterwards. Arrow columns are not copied: code that keeps them beyond the call copies them.

use crate::capsule;
use crate::conform::{are_below, check_text_bytes, check_vectors, retyped};
use crate::error::{Failure, misuse};
use crate::rows::Rows;
use crate::schema::{check_all_plain, check_plain};
use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Int8Array, NullArray, PrimitiveArray,
    RecordBatch, StringArray, make_array, types,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use atoll_tables::TypeName;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows from an object of the Arrow PyCapsule interface, or from a list of columns
/// `(name, type, values, missing, elements)`.
///
/// `values` is a buffer of numbers in memory order, or a list of texts or bytes. `missing` is a buffer with
/// one byte for each value or for each vector, or none. `elements` is the length of a vector, or none.
#[pyfunction]
pub(crate) fn rows(object: &Bound<'_, PyAny>) -> PyResult<Rows> {
    if let Ok(rows) = object.cast::<Rows>() {
        return Ok(Rows::new(rows.get().whole(object.py())?));
    }
    if object.hasattr("__arrow_c_stream__")? {
        let (schema, batches) = capsule::stream_in(object)?;
        check_all_plain(schema.fields())?;
        if batches.len() > 1 {
            batches.iter().try_for_each(check_vectors)?;
        }
        // This copies all of them.
        let whole = object.py().detach(|| concat_batches(&schema, &batches));
        return Ok(Rows::new(whole.map_err(Failure::from)?));
    }
    if object.hasattr("__arrow_c_array__")? {
        let (_, structs) = capsule::array_in(object)?;
        let batch = capsule::batch_of(&structs)?;
        check_all_plain(batch.schema_ref().fields())?;
        return Ok(Rows::new(batch));
    }
    let columns: Vec<Given<'_>> = object.extract()?;
    let mut fields = Vec::with_capacity(columns.len());
    let mut arrays = Vec::with_capacity(columns.len());
    for column in columns {
        let (field, array) = column.array()?;
        fields.push(field);
        arrays.push(array);
    }
    check_lengths(&fields, &arrays)?;
    Ok(Rows::new(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(Failure::from)?))
}

/// One column with the same text in every row; it takes a byte for each row.
#[pyfunction]
pub(crate) fn alike(py: Python<'_>, name: &str, text: String, rows: usize) -> PyResult<Rows> {
    let column = py.detach(|| {
        let keys = Int8Array::from_value(0, rows);
        DictionaryArray::try_new(keys, Arc::new(StringArray::from(vec![text])))
    });
    let column = column.map_err(Failure::from)?;
    let schema = Schema::new(vec![Field::new(name, column.data_type().clone(), false)]);
    Ok(Rows::new(RecordBatch::try_new(Arc::new(schema), vec![Arc::new(column)]).map_err(Failure::from)?))
}

/// One column without a value in any row, for a table's column of any type.
#[pyfunction]
pub(crate) fn nothing(name: &str, rows: usize) -> PyResult<Rows> {
    let schema = Schema::new(vec![Field::new(name, DataType::Null, true)]);
    let column: ArrayRef = Arc::new(NullArray::new(rows));
    Ok(Rows::new(RecordBatch::try_new(Arc::new(schema), vec![column]).map_err(Failure::from)?))
}

fn check_lengths(fields: &[Field], arrays: &[ArrayRef]) -> Result<(), Failure> {
    let mut all = fields.iter().zip(arrays);
    let Some((first, rows)) = all.next() else { return Err(Failure::input("there are no columns")) };
    match all.find(|(_, array)| array.len() != rows.len()) {
        None => Ok(()),
        Some((other, array)) => {
            let problem = format!(
                "column \"{}\" has {} rows, but column \"{}\" has {}",
                first.name(),
                rows.len(),
                other.name(),
                array.len()
            );
            let across = match (lies_across(array, rows.len()), lies_across(rows, array.len())) {
                (true, _) => other,
                (_, true) => first,
                _ => return Err(Failure::input(problem)),
            };
            let hint = format!("a row of an array is a row of the table: {}.T turns it", across.name());
            Err(Failure::hinted(problem, hint))
        }
    }
}

/// Whether the vectors of a column have as many elements as the other columns have rows: it may be
/// transposed.
fn lies_across(array: &ArrayRef, rows: usize) -> bool {
    matches!(array.data_type(), DataType::FixedSizeList(_, len) if usize::try_from(*len) == Ok(rows))
}

/// A column as Python prepared it.
#[derive(FromPyObject)]
struct Given<'py>(String, Option<String>, Bound<'py, PyAny>, Option<PyBuffer<u8>>, Option<i32>);

/// Metadata key of a column whose missing vectors come from a mask. Masks mark elements, so the missing
/// elements may be what the caller meant.
pub(crate) const OF_MASK_KEY: &str = "atoll.of_mask";

impl Given<'_> {
    fn array(&self) -> PyResult<(Field, ArrayRef)> {
        let Self(name, type_name, values, missing, elements) = self;
        let py = values.py();
        let field = |array: &ArrayRef| Field::new(name, array.data_type().clone(), array.null_count() > 0);
        let Some(type_name) = type_name else {
            // A column of another library, as it is.
            let (described, array) = capsule::array_in(values)?;
            check_plain(name, &described)?;
            return Ok((field(&array), array));
        };
        let data_type: TypeName =
            type_name.parse().map_err(|error| Failure::input(format!("column \"{name}\": {error}")))?;
        let missing = missing.as_ref().map(|missing| missing.to_vec(py)).transpose()?;
        let nulls = missing
            .map(|missing| NullBuffer::new(BooleanBuffer::from_iter(missing.iter().map(|&byte| byte == 0))));
        let Some(elements) = elements else {
            let array = values_in(name, values, data_type.data_type(), nulls)?;
            return Ok((field(&array), array));
        };
        let values = values_in(name, values, data_type.data_type(), None)?;
        let is_of_mask = nulls.as_ref().is_some_and(|nulls| nulls.len() == values.len());
        let vectors = vectors(&values, *elements, nulls)?;
        let mark = (is_of_mask && vectors.null_count() > 0).then(|| (OF_MASK_KEY.to_owned(), String::new()));
        Ok((field(&vectors).with_metadata(mark.into_iter().collect::<HashMap<_, _>>()), vectors))
    }
}

/// Vectors of these elements. `nulls` has a bit for each element or for each vector; a vector whose elements
/// are all missing is missing itself.
fn vectors(values: &ArrayRef, elements: i32, nulls: Option<NullBuffer>) -> PyResult<ArrayRef> {
    let len = usize::try_from(elements).unwrap_or_default();
    let (of_elements, of_vectors) = match nulls.filter(|nulls| nulls.null_count() > 0 && len > 0) {
        None => (None, None),
        Some(nulls) if nulls.len() == values.len() => {
            let is_there = |row: usize| nulls.slice(row * len, len).null_count() < len;
            let of_vectors: NullBuffer = (0..nulls.len() / len).map(is_there).collect();
            (Some(nulls), Some(of_vectors))
        }
        Some(nulls) if nulls.len() * len == values.len() => (Some(nulls.expand(len)), Some(nulls)),
        Some(_) => return Err(misuse("as many marks as values or vectors")),
    };
    let has_gaps = !are_below(of_elements.as_ref(), of_vectors.as_ref(), len);
    let item = Field::new("item", values.data_type().clone(), has_gaps);
    let values = values.to_data().into_builder().nulls(of_elements).build().map_err(Failure::from)?;
    let of_vectors = of_vectors.filter(|nulls| nulls.null_count() > 0);
    let vectors = FixedSizeListArray::try_new(Arc::new(item), elements, make_array(values), of_vectors);
    Ok(Arc::new(vectors.map_err(Failure::from)?))
}

fn values_in(
    name: &str,
    values: &Bound<'_, PyAny>,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> PyResult<ArrayRef> {
    match data_type {
        DataType::Utf8 => {
            let texts: Vec<Option<String>> = values.extract()?;
            check_text_bytes(name, texts.iter().flatten().map(String::len).sum())?;
            let mut builder = StringBuilder::new();
            builder.extend(texts);
            Ok(Arc::new(builder.finish()))
        }
        DataType::Binary => {
            let texts: Vec<Option<Vec<u8>>> = values.extract()?;
            check_text_bytes(name, texts.iter().flatten().map(Vec::len).sum())?;
            let mut builder = BinaryBuilder::new();
            builder.extend(texts);
            Ok(Arc::new(builder.finish()))
        }
        DataType::Boolean => {
            let bytes: Vec<u8> = PyBuffer::get(values)?.to_vec(values.py())?;
            let bits = BooleanBuffer::from_iter(bytes.iter().map(|&byte| byte != 0));
            if nulls.as_ref().is_some_and(|nulls| nulls.len() != bits.len()) {
                return Err(misuse("as many marks as values"));
            }
            Ok(Arc::new(BooleanArray::new(bits, nulls)))
        }
        DataType::Int8 => numbers::<types::Int8Type>(values, nulls),
        DataType::Int16 => numbers::<types::Int16Type>(values, nulls),
        DataType::Int32 => numbers::<types::Int32Type>(values, nulls),
        DataType::Int64 => numbers::<types::Int64Type>(values, nulls),
        DataType::UInt8 => numbers::<types::UInt8Type>(values, nulls),
        DataType::UInt16 => numbers::<types::UInt16Type>(values, nulls),
        DataType::UInt32 => numbers::<types::UInt32Type>(values, nulls),
        DataType::UInt64 => numbers::<types::UInt64Type>(values, nulls),
        DataType::Float32 => numbers::<types::Float32Type>(values, nulls),
        DataType::Float64 => numbers::<types::Float64Type>(values, nulls),
        // Python passes ticks as 64-bit integers.
        DataType::Timestamp(..) | DataType::Duration(_) => {
            let ticks = numbers::<types::Int64Type>(values, nulls)?;
            Ok(retyped(&ticks, data_type.clone())?)
        }
        DataType::Date32 => {
            let days = numbers::<types::Int32Type>(values, nulls)?;
            Ok(retyped(&days, DataType::Date32)?)
        }
        _ => Err(misuse("a type that elements cannot have")),
    }
}

fn numbers<T>(values: &Bound<'_, PyAny>, nulls: Option<NullBuffer>) -> PyResult<ArrayRef>
where
    T: types::ArrowPrimitiveType,
    T::Native: Element,
{
    let copied: Vec<T::Native> = PyBuffer::get(values)?.to_vec(values.py())?;
    Ok(Arc::new(PrimitiveArray::<T>::try_new(copied.into(), nulls).map_err(Failure::from)?))
}
