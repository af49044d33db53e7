//! Parquet files: decoded batch by batch, and gone on with without reading what lies before.

use super::batches::{BatchSource, Batches};
use super::int96::Seconds;
use super::source::Input;
use crate::{Format, RowFileError};
use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::ParquetMetaData;
use std::fs::File;
use std::sync::Arc;

/// Most rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

struct ParquetSource {
    input: Input,
    metadata: ArrowReaderMetadata,
    reader: Option<ParquetRecordBatchReader>,
    /// Rows to pass over.
    offset: usize,
    /// Instants that have to be read twice.
    seconds: Option<Seconds>,
}

/// Opens a file of which columns with some names, as the file has them, are wanted.
pub(super) fn open(input: &Input, is_wanted: impl Fn(&str) -> bool) -> Result<Batches, RowFileError> {
    let file = input.file()?;
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
    let metadata = metadata.map_err(|error| malformed(input, &error))?;
    let seconds = Seconds::of(&metadata, is_wanted).map_err(|error| malformed(input, &error))?;
    let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
    Ok(Batches {
        file: input.name(),
        schema: Arc::clone(metadata.schema()),
        size: input.bytes().map(|bytes| (rows, bytes)),
        batches: Box::new(ParquetSource { input: input.clone(), metadata, reader: None, offset: 0, seconds }),
    })
}

impl ParquetSource {
    fn reader(&mut self, bytes_max: usize) -> Result<&mut ParquetRecordBatchReader, RowFileError> {
        if self.reader.is_none() {
            let file: File = self.input.file()?;
            let rows = rows_at_a_time(self.metadata.metadata(), bytes_max);
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_batch_size(rows)
                .with_offset(self.offset);
            if let Some(seconds) = &mut self.seconds {
                let begun = seconds.begin(self.input.file()?, rows, self.offset);
                begun.map_err(|error| malformed(&self.input, &error))?;
            }
            self.reader = Some(builder.build().map_err(|error| malformed(&self.input, &error))?);
        }
        let missing = || malformed(&self.input, &"it has no rows");
        self.reader.as_mut().ok_or_else(missing)
    }
}

impl BatchSource for ParquetSource {
    fn next(&mut self, bytes_max: usize) -> Result<Option<RecordBatch>, RowFileError> {
        let batch = self.reader(bytes_max)?.next().transpose();
        let batch = batch.map_err(|error| malformed(&self.input, &error))?;
        if let (Some(batch), Some(seconds)) = (&batch, &mut self.seconds) {
            seconds.check(batch, &self.input.name())?;
        }
        Ok(batch)
    }

    fn skip(&mut self, rows: u64) -> Result<u64, RowFileError> {
        let there = u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
        let skipped = rows.min(there);
        self.offset = usize::try_from(skipped).unwrap_or(usize::MAX);
        Ok(skipped)
    }
}

/// How many rows take about so many bytes, by what the file says of its widest row group.
fn rows_at_a_time(metadata: &ParquetMetaData, bytes_max: usize) -> usize {
    let widths = metadata.row_groups().iter().map(|group| group.total_byte_size() / group.num_rows().max(1));
    let widest = widths.max().and_then(|width| usize::try_from(width).ok()).unwrap_or(0);
    (bytes_max / widest.max(1)).clamp(1, BATCH_ROWS)
}

fn malformed(input: &Input, problem: &dyn std::fmt::Display) -> RowFileError {
    RowFileError::Malformed { file: input.name(), format: Format::Parquet, problem: problem.to_string() }
}
