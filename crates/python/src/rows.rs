//! Rows that were answered, or that are to be appended: Arrow batches for whoever understands Arrow.

use crate::capsule;
use crate::column::Column;
use crate::error::Failure;
use crate::schema::Schema;
use arrow_array::{RecordBatch, StructArray};
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

/// Rows, in one batch.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Rows {
    pub(crate) batch: RecordBatch,
}

impl Rows {
    pub(crate) fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }

    fn schema_ref(&self) -> SchemaRef {
        self.batch.schema()
    }
}

#[pymethods]
impl Rows {
    fn __len__(&self) -> usize {
        self.batch.num_rows()
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
        self.batch.columns().iter().map(|column| column.get_array_memory_size()).sum()
    }

    /// The column of this name, as NumPy sees it.
    fn column(&self, name: &str) -> PyResult<Column> {
        let column = self.batch.column_by_name(name);
        let column = column.ok_or_else(|| Failure::input(format!("there is no column \"{name}\"")))?;
        Ok(Column::new(column)?)
    }

    /// So many rows from `offset` on, without a copy.
    fn slice(&self, offset: usize, rows: usize) -> Self {
        let offset = offset.min(self.batch.num_rows());
        Self::new(self.batch.slice(offset, rows.min(self.batch.num_rows() - offset)))
    }

    /// A stream of one batch. What the consumer asks for is taken as a wish: the columns come in their own types.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        capsule::stream_out(py, self.schema_ref(), vec![self.batch.clone()])
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        drop(requested_schema);
        capsule::array_out(py, &StructArray::from(self.batch.clone()))
    }

    /// The first column, for `__arrow_c_array__` of a column.
    fn only_column<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let column = self.batch.columns().first().ok_or_else(|| Failure::input("there are no columns"))?;
        capsule::array_out(py, column)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule::schema_out(py, &self.schema_ref())
    }
}
