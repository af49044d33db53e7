//! Parquet and Arrow IPC.

use super::{RowWriter, Target, arrow_error, write_error};
use crate::RowFileError;
use arrow_array::RecordBatch;
use arrow_ipc::writer::FileWriter;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use std::io;

/// Rows of a row group. If rows are in weight order, reading the first groups gives a sample.
const GROUP_ROWS: usize = 64 << 10;

pub(super) struct ParquetWriter {
    writer: ArrowWriter<Target>,
    name: String,
}

impl ParquetWriter {
    pub(super) fn new(schema: &SchemaRef, target: Target, name: String) -> Result<Self, RowFileError> {
        let level = ZstdLevel::try_new(3).unwrap_or_default();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        match ArrowWriter::try_new(target, SchemaRef::clone(schema), Some(properties)) {
            Ok(writer) => Ok(Self { writer, name }),
            Err(error) => Err(parquet_error(&name, error)),
        }
    }
}

impl RowWriter for ParquetWriter {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), RowFileError> {
        self.writer.write(rows).map_err(|error| parquet_error(&self.name, error))
    }

    fn finish(self: Box<Self>) -> Result<Target, RowFileError> {
        let Self { writer, name } = *self;
        writer.into_inner().map_err(|error| parquet_error(&name, error))
    }
}

fn parquet_error(file: &str, error: ParquetError) -> RowFileError {
    let source = match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => *source,
            Err(other) => io::Error::other(other.to_string()),
        },
        other => io::Error::other(other.to_string()),
    };
    write_error(file, source)
}

pub(super) struct IpcWriter {
    writer: FileWriter<Target>,
    name: String,
}

impl IpcWriter {
    pub(super) fn new(schema: &SchemaRef, target: Target, name: String) -> Result<Self, RowFileError> {
        match FileWriter::try_new(target, schema) {
            Ok(writer) => Ok(Self { writer, name }),
            Err(error) => Err(arrow_error(&name, error)),
        }
    }
}

impl RowWriter for IpcWriter {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), RowFileError> {
        self.writer.write(rows).map_err(|error| arrow_error(&self.name, error))
    }

    fn finish(self: Box<Self>) -> Result<Target, RowFileError> {
        let Self { writer, name } = *self;
        // This ends the file as well.
        writer.into_inner().map_err(|error| arrow_error(&name, error))
    }
}
