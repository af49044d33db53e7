//! Values bound to statements, borrowed from where they lie.

use scylla::cluster::metadata::ColumnType;
use scylla::serialize::SerializationError;
use scylla::serialize::value::SerializeValue;
use scylla::serialize::writers::{CellWriter, WrittenCellProof};

/// One bound value.
#[derive(Clone, Debug)]
pub(crate) enum Bind<'a> {
    /// No value.
    Null,
    /// Bytes.
    Bytes(&'a [u8]),
    /// A checksum and the bytes behind it.
    Sealed(u64, &'a [u8]),
    /// An `int`.
    Int(i32),
    /// A `bigint`.
    Big(i64),
}

impl Bind<'_> {
    /// The bytes of the value as it is sent, without its length.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Null => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Sealed(_, bytes) => size_of::<u64>() as u64 + bytes.len() as u64,
            Self::Int(_) => size_of::<i32>() as u64,
            Self::Big(_) => size_of::<i64>() as u64,
        }
    }
}

impl SerializeValue for Bind<'_> {
    fn serialize<'b>(
        &self,
        column: &ColumnType<'_>,
        writer: CellWriter<'b>,
    ) -> Result<WrittenCellProof<'b>, SerializationError> {
        match self {
            Self::Null => Ok(writer.set_null()),
            Self::Bytes(bytes) => bytes.serialize(column, writer),
            Self::Sealed(sum, bytes) => {
                let mut value = writer.into_value_builder();
                value.append_bytes(&sum.to_be_bytes());
                value.append_bytes(bytes);
                Ok(value.finish().map_err(SerializationError::new)?)
            }
            Self::Int(number) => number.serialize(column, writer),
            Self::Big(number) => number.serialize(column, writer),
        }
    }
}
