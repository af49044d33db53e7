//! Parquet files: decoded batch by batch, and gone on with without reading what lies before.

use super::batches::{BatchSource, Batches};
use super::source::Input;
use crate::{Format, RowFileError};
use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use std::fs::File;
use std::sync::Arc;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

struct ParquetSource {
    input: Input,
    metadata: ArrowReaderMetadata,
    reader: Option<ParquetRecordBatchReader>,
    /// Rows to pass over.
    offset: usize,
}

pub(super) fn open(input: &Input) -> Result<Batches, RowFileError> {
    let file = input.file()?;
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
    let metadata = metadata.map_err(|error| malformed(input, &error))?;
    let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
    Ok(Batches {
        file: input.name(),
        schema: Arc::clone(metadata.schema()),
        size: input.bytes().map(|bytes| (rows, bytes)),
        batches: Box::new(ParquetSource { input: input.clone(), metadata, reader: None, offset: 0 }),
    })
}

impl ParquetSource {
    fn reader(&mut self) -> Result<&mut ParquetRecordBatchReader, RowFileError> {
        if self.reader.is_none() {
            let file: File = self.input.file()?;
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_batch_size(BATCH_ROWS)
                .with_offset(self.offset);
            self.reader = Some(builder.build().map_err(|error| malformed(&self.input, &error))?);
        }
        let missing = || malformed(&self.input, &"it has no rows");
        self.reader.as_mut().ok_or_else(missing)
    }
}

impl BatchSource for ParquetSource {
    fn next(&mut self) -> Result<Option<RecordBatch>, RowFileError> {
        let batch = self.reader()?.next().transpose();
        batch.map_err(|error| malformed(&self.input, &error))
    }

    fn skip(&mut self, rows: u64) -> Result<u64, RowFileError> {
        let there = u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
        let skipped = rows.min(there);
        self.offset = usize::try_from(skipped).unwrap_or(usize::MAX);
        Ok(skipped)
    }
}

fn malformed(input: &Input, problem: &dyn std::fmt::Display) -> RowFileError {
    RowFileError::Malformed { file: input.name(), format: Format::Parquet, problem: problem.to_string() }
}
