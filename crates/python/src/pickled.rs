//! Rows and schemas as bytes: streams of Arrow, which is how Python pickles them.

use crate::error::Failure;
use crate::rows::Rows;
use crate::schema::Schema;
use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::Cursor;

/// The function that makes the object again, and the bytes to pass to it.
pub(crate) type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>,));

/// The batches as a stream, for the function of this name to read.
pub(crate) fn reduced<'py>(
    py: Python<'py>,
    read_by: &str,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> PyResult<Reduced<'py>> {
    let stream = py.detach(|| stream_of(schema, batches)).map_err(Failure::from)?;
    Ok((py.import("atoll._atoll")?.getattr(read_by)?, (PyBytes::new(py, &stream),)))
}

fn stream_of(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    writer.into_inner()
}

/// Rows that were pickled.
#[pyfunction]
pub(crate) fn rows_of_stream(py: Python<'_>, stream: &[u8]) -> PyResult<Rows> {
    let read = || {
        let reader = StreamReader::try_new(Cursor::new(stream), None)?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>()?;
        concat_batches(&schema, &batches)
    };
    Ok(Rows::new(py.detach(read).map_err(Failure::from)?))
}

/// A schema that was pickled.
#[pyfunction]
pub(crate) fn schema_of_stream(stream: &[u8]) -> PyResult<Schema> {
    let reader = StreamReader::try_new(Cursor::new(stream), None).map_err(Failure::from)?;
    Ok(Schema(reader.schema()))
}
