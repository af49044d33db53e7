//! Values bound to statements, borrowed where they lie.

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
    /// Bytes that were made for this.
    Owned(Vec<u8>),
    /// An `int`.
    Int(i32),
    /// A `bigint`.
    Big(i64),
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
            Self::Owned(bytes) => bytes.as_slice().serialize(column, writer),
            Self::Int(number) => number.serialize(column, writer),
            Self::Big(number) => number.serialize(column, writer),
        }
    }
}
