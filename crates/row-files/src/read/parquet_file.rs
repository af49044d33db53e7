//! Parquet files: decoded batch by batch; skipped rows are not read.

use super::batches::{BatchSource, Batches};
use super::int96::Seconds;
use super::source::Input;
use crate::{Format, RowFileError};
use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use std::fs::File;
use std::sync::Arc;

/// The most rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

struct ParquetSource {
    input: Input,
    metadata: ArrowReaderMetadata,
    reader: Option<ParquetRecordBatchReader>,
    /// The number of rows to skip.
    offset: usize,
    /// Instants that have to be read a second time.
    seconds: Option<Seconds>,
}

/// Opens a file, of which the columns that pass `is_wanted`, by their names in the file, are read.
pub(super) fn open(input: &Input, is_wanted: impl Fn(&str) -> bool) -> Result<Batches, RowFileError> {
    let file = input.file(Format::Parquet)?;
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
    let metadata = metadata.map_err(|error| refused(input, &error))?;
    check_compression(input, metadata.metadata())?;
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
            let file: File = self.input.file(Format::Parquet)?;
            let rows = rows_at_a_time(self.metadata.metadata(), bytes_max);
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_batch_size(rows)
                .with_offset(self.offset);
            if let Some(seconds) = &mut self.seconds {
                let begun = seconds.begin(self.input.file(Format::Parquet)?, rows, self.offset);
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

/// The number of rows that take about `bytes_max` bytes anywhere in the file, by the metadata of its row
/// groups. A few wide rows do not slow down the others.
fn rows_at_a_time(metadata: &ParquetMetaData, bytes_max: usize) -> usize {
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    let groups = metadata.row_groups().iter();
    let groups = Groups::of(groups.map(|group| (number(group.num_rows()), number(group.total_byte_size()))));
    let (bytes_max, widest) = (bytes_max as u64, groups.most_bytes(1));
    // A single row that is wider has to be decoded whatever it takes.
    let limit = if widest > bytes_max { bytes_max.saturating_add(widest) } else { bytes_max };
    let (mut fitting, mut exceeding) = (1, BATCH_ROWS + 1);
    while exceeding - fitting > 1 {
        let middle = fitting.midpoint(exceeding);
        match groups.most_bytes(middle as u64) <= limit {
            true => fitting = middle,
            false => exceeding = middle,
        }
    }
    fitting
}

/// The rows and bytes of row groups, assuming that all rows of a group take the same.
struct Groups {
    /// The rows and bytes before each group, and then those of the whole file.
    places: Vec<(u64, u64)>,
}

impl Groups {
    fn of(groups: impl Iterator<Item = (u64, u64)>) -> Self {
        let (mut places, mut end) = (vec![(0, 0)], (0_u64, 0_u64));
        for (rows, bytes) in groups.filter(|(rows, _)| *rows > 0) {
            end = (end.0.saturating_add(rows), end.1.saturating_add(bytes));
            places.push(end);
        }
        Self { places }
    }

    /// The bytes before a row.
    fn before(&self, row: u64) -> u64 {
        let next = self.places.partition_point(|(rows, _)| *rows <= row);
        let (first, bytes) = next.checked_sub(1).map_or((0, 0), |group| self.places[group]);
        let Some((end, bytes_end)) = self.places.get(next) else { return bytes };
        let within = u128::from(row - first) * u128::from(bytes_end - bytes) / u128::from(end - first);
        bytes + u64::try_from(within).unwrap_or(u64::MAX)
    }

    /// The most bytes that `rows` consecutive rows take. The maximum is reached at a start or an end of a
    /// group.
    fn most_bytes(&self, rows: u64) -> u64 {
        let around = |(at, bytes): &(u64, u64)| {
            let behind = self.before(at.saturating_add(rows)) - bytes;
            behind.max(bytes - self.before(at.saturating_sub(rows)))
        };
        self.places.iter().map(around).max().unwrap_or(0)
    }
}

/// Checks that the compression of all columns is supported, since all of them are read.
fn check_compression(input: &Input, metadata: &ParquetMetaData) -> Result<(), RowFileError> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    for column in columns {
        let compression = match column.compression() {
            Compression::BROTLI(_) => "brotli",
            Compression::LZO => "LZO",
            _ => continue,
        };
        let (file, column) = (input.name(), column.column_path().string());
        return Err(RowFileError::Unsupported {
            what: format!("{file} cannot be read: its column \"{column}\" is compressed with {compression}"),
            hint: "snappy, zstd, gzip and LZ4 are read: write it again with one of them",
        });
    }
    Ok(())
}

/// Why a file cannot be opened: an unknown feature or encryption is not damage.
fn refused(input: &Input, error: &ParquetError) -> RowFileError {
    let text = error.to_string();
    if matches!(error, ParquetError::NYI(_)) || text.contains("ncrypt") {
        return RowFileError::Unsupported {
            what: format!("{} cannot be read: {text}", input.name()),
            hint: "write it again without encryption and with common encodings",
        };
    }
    malformed(input, error)
}

fn malformed(input: &Input, problem: &dyn std::fmt::Display) -> RowFileError {
    RowFileError::Malformed { file: input.name(), format: Format::Parquet, problem: problem.to_string() }
}
