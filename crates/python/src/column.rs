//! A column of an answer for NumPy: `__array_interface__` points at Arrow's own memory.
//!
//! NumPy keeps a reference to the object that an array was made from, so the memory lives as long as any
//! array that views it.

use crate::error::{Failure, misuse};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// One column.
#[pyclass(frozen, module = "atoll._atoll")]
pub(crate) struct Column {
    rows: usize,
    /// Elements of a vector; none if the column has no vectors.
    elements: Option<usize>,
    content: Content,
    /// Whether each value is missing; none if no value is.
    missing: Option<Buffer>,
}

enum Content {
    /// Values of a fixed width, with NumPy's name of their type.
    Fixed { values: Buffer, type_name: &'static str },
    /// Texts or bytes.
    Objects(ArrayRef),
}

/// Whether a value of a column, or an element of one of its vectors, is missing.
pub(crate) fn has_missing(array: &dyn Array) -> bool {
    let Some(list) = array.as_fixed_size_list_opt() else { return array.null_count() > 0 };
    let len = usize::try_from(list.value_length()).unwrap_or_default();
    // Slicing a list slices its values.
    let values = list.values().slice(list.value_offset_at(0), list.len() * len);
    list.null_count() > 0 || values.null_count() > 0
}

impl Column {
    pub(crate) fn new(array: &ArrayRef) -> Result<Self, Failure> {
        let rows = array.len();
        let DataType::FixedSizeList(_, len) = array.data_type() else {
            let missing = array.nulls().map(mask);
            return Ok(Self { rows, elements: None, content: content(array)?, missing });
        };
        let list = array.as_fixed_size_list();
        let len = usize::try_from(*len).unwrap_or_default();
        // Slicing a list slices its values.
        let values = list.values().slice(list.value_offset_at(0), rows * len);
        let missing = vector_mask(list.nulls(), values.nulls(), len);
        Ok(Self { rows, elements: Some(len), content: content(&values)?, missing })
    }

    fn shape(&self) -> Vec<usize> {
        [self.rows].into_iter().chain(self.elements).collect()
    }
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.rows
    }

    /// Whether NumPy can view the values as they are; otherwise they become Python objects.
    #[getter]
    fn is_fixed(&self) -> bool {
        matches!(self.content, Content::Fixed { .. })
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match &self.content {
            Content::Fixed { values, type_name } => interface(py, values, type_name, self.shape()),
            Content::Objects(_) => {
                Err(pyo3::exceptions::PyAttributeError::new_err("texts are Python objects"))
            }
        }
    }

    /// Whether each value is missing, as a column of booleans; none if no value is.
    fn missing(&self) -> Option<Self> {
        let values = self.missing.clone()?;
        let content = Content::Fixed { values, type_name: "|b1" };
        Some(Self { rows: self.rows, elements: self.elements, content, missing: None })
    }

    /// Texts or bytes as Python objects, `None` where one is missing.
    fn objects<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let Content::Objects(array) = &self.content else { return Err(misuse("a column of numbers")) };
        match array.data_type() {
            DataType::Utf8 => PyList::new(py, array.as_string::<i32>().iter()),
            _ => PyList::new(py, array.as_binary::<i32>().iter()),
        }
    }
}

/// The array interface that NumPy reads; read-only, since the memory belongs to Arrow.
fn interface<'py>(
    py: Python<'py>,
    values: &Buffer,
    type_name: &str,
    shape: Vec<usize>,
) -> PyResult<Bound<'py, PyDict>> {
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("typestr", type_name)?;
    interface.set_item("shape", pyo3::types::PyTuple::new(py, shape)?)?;
    interface.set_item("data", (values.as_ptr().addr(), true))?;
    Ok(interface)
}

fn content(array: &ArrayRef) -> Result<Content, Failure> {
    let type_name = match array.data_type() {
        DataType::Utf8 | DataType::Binary => return Ok(Content::Objects(array.clone())),
        DataType::Boolean => {
            let values = array.as_boolean().values().iter().map(u8::from).collect::<Vec<u8>>();
            return Ok(Content::Fixed { values: Buffer::from_vec(values), type_name: "|b1" });
        }
        DataType::Date32 => {
            // NumPy counts days in 64 bits.
            let days = array.as_primitive::<arrow_array::types::Date32Type>().values();
            let days = days.iter().map(|&day| i64::from(day)).collect::<Vec<i64>>();
            return Ok(Content::Fixed { values: Buffer::from_vec(days), type_name: "<M8[D]" });
        }
        other => numpy_name(other)
            .ok_or_else(|| Failure::input(format!("NumPy has no type for {other}; use .arrow()")))?,
    };
    let (data, width) = (array.to_data(), array.data_type().primitive_width().unwrap_or(1));
    let values = data.buffers().first().cloned().unwrap_or_else(|| Buffer::from_vec(Vec::<u8>::new()));
    Ok(Content::Fixed {
        values: values.slice_with_length(data.offset() * width, data.len() * width),
        type_name,
    })
}

fn numpy_name(data_type: &DataType) -> Option<&'static str> {
    let name = match data_type {
        DataType::Int8 => "|i1",
        DataType::Int16 => "<i2",
        DataType::Int32 => "<i4",
        DataType::Int64 => "<i8",
        DataType::UInt8 => "|u1",
        DataType::UInt16 => "<u2",
        DataType::UInt32 => "<u4",
        DataType::UInt64 => "<u8",
        DataType::Float32 => "<f4",
        DataType::Float64 => "<f8",
        DataType::Timestamp(TimeUnit::Second, _) => "<M8[s]",
        DataType::Timestamp(TimeUnit::Millisecond, _) => "<M8[ms]",
        DataType::Timestamp(TimeUnit::Microsecond, _) => "<M8[us]",
        DataType::Timestamp(TimeUnit::Nanosecond, _) => "<M8[ns]",
        DataType::Duration(TimeUnit::Second) => "<m8[s]",
        DataType::Duration(TimeUnit::Millisecond) => "<m8[ms]",
        DataType::Duration(TimeUnit::Microsecond) => "<m8[us]",
        DataType::Duration(TimeUnit::Nanosecond) => "<m8[ns]",
        _ => return None,
    };
    Some(name)
}

fn mask(nulls: &NullBuffer) -> Buffer {
    Buffer::from_vec(nulls.iter().map(|is_there| u8::from(!is_there)).collect::<Vec<u8>>())
}

/// The elements that are missing, either themselves or with their vector.
fn vector_mask(vectors: Option<&NullBuffer>, values: Option<&NullBuffer>, len: usize) -> Option<Buffer> {
    let of_vectors = vectors.map(|nulls| nulls.expand(len));
    NullBuffer::union(of_vectors.as_ref(), values)
        .filter(|nulls| nulls.null_count() > 0)
        .map(|nulls| mask(&nulls))
}
