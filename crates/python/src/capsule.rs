//! The Arrow PyCapsule interface: columns that come in and go out without a copy.
//!
//! Exporting is safe Rust: Arrow's structures move into a capsule that drops them. Importing trusts a
//! pointer: the producer of a capsule with that name promises that it points at the structure.

// Importing reads what another library put into a capsule: the interface is defined in terms of C.
#![allow(unsafe_code)]

use crate::error::Failure;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader, StructArray, make_array};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use atoll_tables::TypeName;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::ffi::CStr;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// Columns as a stream of batches, for `__arrow_c_stream__`.
pub(crate) fn stream_out<'py>(
    py: Python<'py>,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let batches = batches.into_iter().map(Ok::<_, ArrowError>);
    let reader: Box<dyn RecordBatchReader + Send> =
        Box::new(arrow_array::RecordBatchIterator::new(batches, schema));
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// A schema, for `__arrow_c_schema__`.
pub(crate) fn schema_out<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(Failure::from)?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// One array with its type, for `__arrow_c_array__`.
pub(crate) fn array_out<'py>(py: Python<'py>, array: &dyn Array) -> PyResult<Bound<'py, PyTuple>> {
    let (array, schema) = to_ffi(&array.to_data()).map_err(Failure::from)?;
    let schema = PyCapsule::new_with_value(py, schema, SCHEMA)?;
    let array = PyCapsule::new_with_value(py, array, ARRAY)?;
    PyTuple::new(py, [schema, array])
}

/// Reads the batches of an object with `__arrow_c_stream__`. A lazy producer runs in here, without the
/// interpreter lock, which it may need on other threads. A signal ends the reading between two batches.
pub(crate) fn stream_in(object: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let (py, stream) = (object.py(), stream_of(object)?);
    let reader = py.detach(move || RecordBatchStreamReader::try_new(stream));
    let mut reader = reader.map_err(|error| unread(py, error))?;
    let read = batches_of(py, &mut reader);
    let schema = reader.schema();
    // Also without the lock: a producer that ends early may wait for its threads.
    py.detach(move || drop(reader));
    Ok((schema, read?))
}

fn batches_of(py: Python<'_>, reader: &mut RecordBatchStreamReader) -> PyResult<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    loop {
        let next = py.detach(|| reader.next());
        py.check_signals()?;
        match next {
            Some(batch) => batches.push(batch.map_err(|error| unread(py, error))?),
            None => return Ok(batches),
        }
    }
}

/// The error of a producer. Ctrl-C while its own Python code runs arrives as a text, and stays Ctrl-C.
fn unread(py: Python<'_>, error: ArrowError) -> PyErr {
    if let Err(signal) = py.check_signals() {
        return signal;
    }
    let text = error.to_string();
    if text.contains("KeyboardInterrupt") {
        PyKeyboardInterrupt::new_err(text)
    } else {
        Failure::from(error).into()
    }
}

/// The schema of an object with `__arrow_c_stream__`, without its batches.
pub(crate) fn schema_of_stream(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let (py, stream) = (object.py(), stream_of(object)?);
    let read = py.detach(move || RecordBatchStreamReader::try_new(stream).map(|reader| reader.schema()));
    read.map_err(|error| unread(py, error))
}

fn stream_of(object: &Bound<'_, PyAny>) -> PyResult<FFI_ArrowArrayStream> {
    let capsule = object.call_method0("__arrow_c_stream__")?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(STREAM))?;
    // SAFETY: the name says that this is an `ArrowArrayStream`, which lives as long as the capsule. It is
    // moved out: what stays behind is an empty one, so that the capsule releases nothing a second time.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr().cast()) })
}

/// The schema of an object with `__arrow_c_schema__`.
pub(crate) fn schema_in(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    Ok(Schema::try_from(&described(object)?).map_err(Failure::from)?.into())
}

/// The one column that an object with `__arrow_c_schema__` describes.
pub(crate) fn field_in(object: &Bound<'_, PyAny>) -> PyResult<Field> {
    Ok(Field::try_from(&described(object)?).map_err(Failure::from)?)
}

fn described(object: &Bound<'_, PyAny>) -> PyResult<FFI_ArrowSchema> {
    let capsule = object.call_method0("__arrow_c_schema__")?;
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?;
    // SAFETY: the name says that this is an `ArrowSchema`; it is moved out, as above.
    Ok(unsafe { FFI_ArrowSchema::from_raw(pointer.as_ptr().cast()) })
}

/// Imports the array of an object with `__arrow_c_array__`: a column, or a batch as an array of structs. The
/// field has what the type of the array does not say, such as an extension type.
pub(crate) fn array_in(object: &Bound<'_, PyAny>) -> PyResult<(Field, ArrayRef)> {
    let pair = object.call_method0("__arrow_c_array__")?;
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?;
    let array = array.pointer_checked(Some(ARRAY))?;
    // SAFETY: the names say what these are; both are moved out, as above, and belong together, as the
    // interface promises of the pair. `from_ffi` trusts their lengths, which the interface promises as well.
    let (field, imported) = unsafe {
        let schema = FFI_ArrowSchema::from_raw(schema.as_ptr().cast());
        let imported = from_ffi(FFI_ArrowArray::from_raw(array.as_ptr().cast()), &schema);
        (Field::try_from(&schema), imported)
    };
    let imported = imported.map_err(Failure::from)?;
    Ok((field.map_err(Failure::from)?, make_array(imported)))
}

/// Converts an array of structs to a batch.
pub(crate) fn batch_of(array: &ArrayRef) -> Result<RecordBatch, Failure> {
    let structs = array.as_any().downcast_ref::<StructArray>();
    let structs = structs.ok_or_else(|| {
        Failure::input(format!(
            "a table's rows have several columns; this is {}",
            TypeName::told(array.data_type())
        ))
    })?;
    if structs.null_count() > 0 {
        return Err(Failure::input("a row as a whole must not be null"));
    }
    Ok(RecordBatch::from(structs))
}
