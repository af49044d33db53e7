//! Parquet files: decoded batch by batch; skipped rows are not read.
//!
//! A dictionary makes a few bytes of a long text that repeats. How many rows are decoded at a time therefore
//! follows from what they take decoded: from the metadata, and, since older writers leave the sizes of texts
//! out there, from the rows that were decoded before.

use super::batches::{BatchSource, Batches};
use super::int96::Seconds;
use super::source::Input;
use crate::{Format, RowFileError, bytes_of};
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use std::fs::File;
use std::sync::Arc;

/// The most rows that are decoded at a time.
const BATCH_ROWS: usize = 8192;

/// The rows that are decoded first if the metadata lacks the sizes of texts.
const PROBE_ROWS: usize = 64;

/// The batches after which there may be more rows in one: a reader that begins anew passes over the rows of
/// its row group again, which has to be seldom.
const BATCHES_BEFORE_MORE: usize = 64;

struct ParquetSource {
    input: Input,
    metadata: ArrowReaderMetadata,
    reader: Option<ParquetRecordBatchReader>,
    /// Where the next batch begins: the number of rows that were skipped or read.
    offset: usize,
    /// None until something is read.
    pace: Option<Pace>,
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
        batches: Box::new(ParquetSource {
            input: input.clone(),
            metadata,
            reader: None,
            offset: 0,
            pace: None,
            seconds,
        }),
    })
}

impl ParquetSource {
    fn reader(&mut self, bytes_max: usize) -> Result<&mut ParquetRecordBatchReader, RowFileError> {
        if self.reader.is_none() {
            let file: File = self.input.file(Format::Parquet)?;
            let pace = self.pace.get_or_insert_with(|| Pace::new(self.metadata.metadata(), bytes_max));
            let rows = pace.rows;
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
        loop {
            let batch = match self.reader(bytes_max)?.next().transpose() {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(None),
                Err(error) if is_too_much(&error) && self.pace.as_mut().is_some_and(Pace::halve) => {
                    self.reader = None;
                    continue;
                }
                Err(error) => return Err(malformed(&self.input, &error)),
            };
            if let Some(seconds) = &mut self.seconds {
                seconds.check(&batch, &self.input.name())?;
            }
            self.offset = self.offset.saturating_add(batch.num_rows());
            if self.pace.as_mut().is_some_and(|pace| pace.adapt(&batch)) {
                self.reader = None;
            }
            return Ok(Some(batch));
        }
    }

    fn skip(&mut self, rows: u64) -> Result<u64, RowFileError> {
        let there = u64::try_from(self.metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
        let skipped = rows.min(there);
        self.offset = usize::try_from(skipped).unwrap_or(usize::MAX);
        Ok(skipped)
    }
}

/// How many rows are decoded at a time.
struct Pace {
    rows: usize,
    /// What the metadata admits.
    rows_max: usize,
    bytes_max: usize,
    /// Whether the metadata has the sizes of all texts.
    is_told: bool,
    /// The batches since `rows` changed. The first batch admits every change.
    batches: usize,
}

impl Pace {
    fn new(metadata: &ParquetMetaData, bytes_max: usize) -> Self {
        let rows_max = rows_at_a_time(metadata, bytes_max);
        let is_told = metadata.row_groups().iter().flat_map(|group| group.columns()).all(tells_its_size);
        let rows = if is_told { rows_max } else { rows_max.min(PROBE_ROWS) };
        Self { rows, rows_max, bytes_max, is_told, batches: BATCHES_BEFORE_MORE }
    }

    /// Adapts to what the rows of a batch take. Returns whether the next ones have another number of rows.
    fn adapt(&mut self, batch: &RecordBatch) -> bool {
        if self.is_told || batch.num_rows() == 0 {
            return false;
        }
        self.batches = self.batches.saturating_add(1);
        let row_bytes = bytes_of(batch).div_ceil(batch.num_rows()).max(1);
        let fitting = (self.bytes_max / row_bytes).clamp(1, self.rows_max);
        let is_less = fitting < self.rows / 2;
        let is_more = fitting / 2 >= self.rows && self.batches > BATCHES_BEFORE_MORE;
        if is_less || is_more {
            (self.rows, self.batches) = (fitting, 0);
        }
        is_less || is_more
    }

    /// Takes half as many rows; false if it is one already.
    const fn halve(&mut self) -> bool {
        let is_possible = self.rows > 1;
        if is_possible {
            (self.rows, self.batches) = (self.rows / 2, 0);
        }
        is_possible
    }
}

/// Whether the texts of a batch take more than its offsets can count.
fn is_too_much(error: &ArrowError) -> bool {
    error.to_string().contains("index overflow")
}

fn number(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Whether the metadata has what the values take when they are decoded. Other values than texts have a width.
fn tells_its_size(column: &ColumnChunkMetaData) -> bool {
    column.column_descr().physical_type() != Type::BYTE_ARRAY
        || column.unencoded_byte_array_data_bytes().is_some()
}

/// What the values of a column of a row group take when they are decoded, as far as the metadata tells.
fn decoded_bytes(column: &ColumnChunkMetaData) -> u64 {
    let width = match column.column_descr().physical_type() {
        // A text has an offset besides its bytes.
        Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 4,
        Type::INT64 | Type::INT96 | Type::DOUBLE => 8,
        Type::FIXED_LEN_BYTE_ARRAY => number(column.column_descr().type_length().into()),
        _ => 0,
    };
    let texts = number(column.unencoded_byte_array_data_bytes().unwrap_or(0));
    let decoded = number(column.num_values()).saturating_mul(width).saturating_add(texts);
    decoded.max(number(column.uncompressed_size()))
}

/// The number of rows that take about `bytes_max` bytes anywhere in the file, by the metadata of its row
/// groups. A few wide rows do not slow down the others.
fn rows_at_a_time(metadata: &ParquetMetaData, bytes_max: usize) -> usize {
    let groups = metadata.row_groups().iter().map(|group| {
        let bytes = group.columns().iter().map(decoded_bytes).fold(0, u64::saturating_add);
        (number(group.num_rows()), bytes.max(number(group.total_byte_size())))
    });
    let groups = Groups::of(groups);
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
