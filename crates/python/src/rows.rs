//! Rows of answers and of appends: Arrow batches for any tool that understands Arrow.

use crate::capsule;
use crate::column::{Column, has_missing};
use crate::conform::{check_vectors, text_bytes};
use crate::error::Failure;
use crate::pickled::{Reduced, reduced};
use crate::schema::{Schema, without_extensions};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, GenericListArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray,
    make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::concat::{concat, concat_batches};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use std::sync::{Arc, OnceLock};

/// Rows, in one or more batches.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Rows {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// All rows as one batch, made at its first use.
    whole: OnceLock<RecordBatch>,
}

impl Rows {
    pub(crate) fn new(batch: RecordBatch) -> Self {
        let batch = plain(batch);
        Self { schema: batch.schema(), batches: vec![batch], whole: OnceLock::new() }
    }

    /// Rows of one or more batches of one schema.
    pub(crate) fn of_batches(batches: Vec<RecordBatch>) -> Result<Self, Failure> {
        let batches: Vec<RecordBatch> = batches.into_iter().map(plain).collect();
        let schema = batches.first().map(RecordBatch::schema);
        let schema = schema.ok_or_else(|| Failure::input("there are no batches"))?;
        Ok(Self { schema, batches, whole: OnceLock::new() })
    }

    /// All rows in one batch. Several batches are copied without the interpreter lock.
    pub(crate) fn whole(&self, py: Python<'_>) -> Result<RecordBatch, Failure> {
        if let [batch] = self.batches.as_slice() {
            return Ok(batch.clone());
        }
        if let Some(whole) = self.whole.get() {
            return Ok(whole.clone());
        }
        let whole = py.detach(|| concat_batches(&self.schema, &self.batches))?;
        Ok(self.whole.get_or_init(|| whole).clone())
    }

    /// The batches; the one batch of all rows where it was made.
    fn parts(&self) -> &[RecordBatch] {
        self.whole.get().map_or(self.batches.as_slice(), std::slice::from_ref)
    }

    /// The place of the column of this name.
    fn place(&self, name: &str) -> Result<usize, Failure> {
        let found = self.schema.column_with_name(name).map(|(place, _)| place);
        found.ok_or_else(|| Failure::input(format!("there is no column \"{name}\"")))
    }

    fn schema_ref(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    #[getter]
    fn schema(&self) -> Schema {
        Schema(self.schema_ref())
    }

    /// Names of the columns, in their order.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Bytes of memory that the rows take.
    #[getter]
    fn nbytes(&self) -> usize {
        self.batches.iter().map(RecordBatch::get_array_memory_size).sum()
    }

    /// Bytes of memory that `copied` rows take: of a slice only the rows themselves.
    #[getter]
    fn copied_nbytes(&self, py: Python<'_>) -> usize {
        let of_batch = |batch: &RecordBatch| -> usize {
            batch.columns().iter().map(|column| copied_bytes(column.as_ref())).sum()
        };
        py.detach(|| self.batches.iter().map(of_batch).sum())
    }

    /// At most how many bytes the texts take once each row has its own.
    #[getter]
    fn text_bytes(&self) -> usize {
        let columns = self.batches.iter().flat_map(RecordBatch::columns);
        columns.map(text_bytes).fold(0, usize::saturating_add)
    }

    /// The first value of the `step` column that differs from `step`, if any.
    fn other_step(&self, step: u64) -> Option<i128> {
        self.batches.iter().find_map(|batch| atoll_tables::other_step(batch, step))
    }

    /// Copies the rows into memory of their own: the library that they came from may change its memory later.
    fn copied(&self, py: Python<'_>) -> PyResult<Self> {
        let whole = self.whole(py)?;
        check_vectors(&whole)?;
        let copied = py.detach(|| copied(&whole));
        Ok(Self::new(copied.map_err(Failure::from)?))
    }

    /// Whether a value of the column of this name, or an element of its vectors, is missing. Nothing is
    /// copied.
    fn has_missing(&self, name: &str) -> PyResult<bool> {
        let place = self.place(name)?;
        Ok(self.parts().iter().any(|batch| has_missing(batch.column(place).as_ref())))
    }

    /// The column of this name, for NumPy. Of several batches, this column alone is copied.
    fn column(&self, py: Python<'_>, name: &str) -> PyResult<Column> {
        let place = self.place(name)?;
        let parts = self.parts();
        // Making a mask or unpacking bits takes a while, and nothing of Python.
        let column = py.detach(|| {
            let arrays: Vec<&dyn Array> = parts.iter().map(|batch| batch.column(place).as_ref()).collect();
            // A single one is not copied.
            Column::new(&concat(&arrays)?)
        });
        Ok(column?)
    }

    /// A number of rows from `offset` on, without a copy.
    fn slice(&self, offset: usize, rows: usize) -> Self {
        let (mut skipped, mut left) = (offset, rows);
        let mut batches = Vec::new();
        for batch in self.parts() {
            let from = skipped.min(batch.num_rows());
            let taken = left.min(batch.num_rows() - from);
            (skipped, left) = (skipped - from, left - taken);
            if taken > 0 {
                batches.push(batch.slice(from, taken));
            }
            if left == 0 {
                break;
            }
        }
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(self.schema_ref()));
        }
        Self { schema: self.schema_ref(), batches, whole: OnceLock::new() }
    }

    /// A stream of the batches. A schema that the consumer requests is only a wish: the columns keep their
    /// own types.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        capsule::stream_out(py, self.schema_ref(), self.batches.clone())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        capsule::array_out(py, &StructArray::from(self.whole(py)?))
    }

    /// The first column, for `__arrow_c_array__` of a column.
    fn only_column<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let whole = self.whole(py)?;
        let column = whole.columns().first().ok_or_else(|| Failure::input("there are no columns"))?;
        capsule::array_out(py, column)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::schema_out(py, &self.schema_ref())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduced(py, "rows_of_stream", &self.schema, &self.batches)
    }
}

/// The rows without the extension types of their columns, for the reason that [`without_extensions`] has.
fn plain(rows: RecordBatch) -> RecordBatch {
    let schema = without_extensions(rows.schema_ref());
    if Arc::ptr_eq(&schema, rows.schema_ref()) {
        return rows;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    // The types are the same, so that nothing is refused.
    RecordBatch::try_new_with_options(schema, rows.columns().to_vec(), &options).unwrap_or(rows)
}

/// Copies rows into memory of their own.
fn copied(rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    // Joining a single batch would copy nothing.
    let joined = concat_batches(&rows.schema(), [rows, &rows.slice(0, 0)])?;
    let columns = joined.columns().iter().map(|column| -> Result<ArrayRef, ArrowError> {
        match column.data_type() {
            // The texts that the rows have, and no others of the memory that these lie in.
            DataType::Utf8View => Ok(Arc::new(column.as_string_view().gc())),
            DataType::BinaryView => Ok(Arc::new(column.as_binary_view().gc())),
            kind if shares_memory(kind) => copied_data(&column.to_data()).map(make_array),
            _ => Ok(Arc::clone(column)),
        }
    });
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(joined.num_rows()));
    RecordBatch::try_new_with_options(joined.schema(), columns, &options)
}

/// The bytes of a view of a text or of bytes, without the memory that it may point to.
const VIEW_BYTES: usize = 16;

/// The bytes of memory that a copy of a column takes.
fn copied_bytes(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::Utf8View => VIEW_BYTES * column.len() + column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => VIEW_BYTES * column.len() + column.as_binary_view().total_buffer_bytes_used(),
        DataType::List(_) => copied_bytes_of_lists(column.as_list::<i32>()),
        DataType::LargeList(_) => copied_bytes_of_lists(column.as_list::<i64>()),
        // If the size of a slice is unknown, that of its buffers counts.
        _ => column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()),
    }
}

/// The bytes of a copy of lists: slicing them does not slice their values.
fn copied_bytes_of_lists<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> usize {
    let ends = [lists.value_offsets().first(), lists.value_offsets().last()];
    let [first, end] = ends.map(|end| end.map_or(0, |end| end.as_usize()));
    let values = lists.values().slice(first, end.saturating_sub(first));
    size_of::<O>() * (lists.len() + 1) + copied_bytes(values.as_ref())
}

/// Whether joining columns of a type copies only what points to their values: the keys of a dictionary that
/// they share, or the views of texts.
fn shares_memory(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(..) | DataType::Utf8View | DataType::BinaryView => true,
        DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
            shares_memory(item.data_type())
        }
        _ => false,
    }
}

/// Copies all memory of an array.
fn copied_data(data: &ArrayData) -> Result<ArrayData, ArrowError> {
    let copied = |buffer: &Buffer| Buffer::from_slice_ref::<u8, _>(buffer.as_slice());
    let nulls = data.nulls().map(|nulls| {
        NullBuffer::new(BooleanBuffer::new(copied(nulls.buffer()), nulls.offset(), nulls.len()))
    });
    let children = data.child_data().iter().map(copied_data).collect::<Result<Vec<_>, _>>()?;
    let buffers = data.buffers().iter().map(copied).collect();
    data.clone().into_builder().buffers(buffers).nulls(nulls).child_data(children).build()
}
