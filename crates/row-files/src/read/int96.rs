//! Parquet's 96-bit instants, as Spark, Impala and Hive wrote them: a day, and nanoseconds of the day.
//!
//! They are read as nanoseconds since 1970, which cover the years from 1677 to 2262 and silently wrap beyond
//! these. They are therefore also read as seconds.
//!
//! Invariant: an instant that does not fit in nanoseconds is an error.

use crate::RowFileError;
use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, TimestampSecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type;
use parquet::errors::ParquetError;
use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

/// The 96-bit instants of a file, read as seconds.
pub(super) struct Seconds {
    metadata: ArrowReaderMetadata,
    /// The places of their columns.
    places: Vec<usize>,
    reader: Option<ParquetRecordBatchReader>,
}

impl Seconds {
    /// The instants among the wanted columns of a file; `None` if there are none.
    pub(super) fn of(
        metadata: &ArrowReaderMetadata,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<Self>, ParquetError> {
        let columns = metadata.parquet_schema();
        let schema = metadata.schema();
        let is_instant = |place: &usize| {
            let field = schema.field(*place);
            matches!(field.data_type(), DataType::Timestamp(TimeUnit::Nanosecond, _))
                && is_wanted(field.name())
        };
        let places: BTreeSet<usize> = (0..columns.num_columns())
            .filter(|leaf| columns.column(*leaf).physical_type() == Type::INT96)
            .map(|leaf| columns.get_column_root_idx(leaf))
            .filter(is_instant)
            .collect();
        if places.is_empty() {
            return Ok(None);
        }
        let fields = schema.fields().iter().enumerate().map(|(place, field)| {
            let field = field.as_ref().clone();
            match field.data_type() {
                DataType::Timestamp(_, zone) if places.contains(&place) => {
                    let seconds = DataType::Timestamp(TimeUnit::Second, zone.clone());
                    field.with_data_type(seconds)
                }
                _ => field,
            }
        });
        let schema = Schema::new_with_metadata(fields.collect::<Vec<Field>>(), schema.metadata().clone());
        let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
        let metadata = ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options)?;
        Ok(Some(Self { metadata, places: places.into_iter().collect(), reader: None }))
    }

    /// Begins to read them in batches of `rows` rows, after skipping `offset` rows.
    pub(super) fn begin(&mut self, file: File, rows: usize, offset: usize) -> Result<(), ParquetError> {
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), self.places.iter().copied());
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_projection(mask)
            .with_batch_size(rows)
            .with_offset(offset);
        self.reader = Some(builder.build()?);
        Ok(())
    }

    /// Compares the next rows, which were read as nanoseconds, with their seconds.
    pub(super) fn check(&mut self, rows: &RecordBatch, file: &str) -> Result<(), RowFileError> {
        let value = |place: usize, problem: String| RowFileError::Value {
            file: file.to_owned(),
            column: rows.schema().field(place).name().clone(),
            problem,
        };
        let first = self.places.first().copied().unwrap_or(0);
        let lost = || value(first, "its instants cannot be read twice".to_owned());
        let seconds = self.reader.as_mut().and_then(Iterator::next).ok_or_else(lost)?;
        let seconds = seconds.map_err(|error| value(first, error.to_string()))?;
        for (at, &place) in self.places.iter().enumerate() {
            let exact = seconds.column(at).as_primitive::<TimestampSecondType>();
            let column = rows.column(place).as_primitive::<TimestampNanosecondType>();
            // The second of an instant before 1970 may be rounded either way, depending on how the file
            // counts; an instant that wrapped is off by 2^64 ns.
            let is_other = |row: &usize| (column.value(*row) / 1_000_000_000).abs_diff(exact.value(*row)) > 1;
            if let Some(row) = (0..column.len()).filter(|row| column.is_valid(*row)).find(is_other) {
                let second = exact.value(row);
                let problem = format!(
                    "an instant {second} s from 1970 is outside of the years 1677 to 2262, which nanoseconds hold"
                );
                return Err(value(place, problem));
            }
        }
        Ok(())
    }
}
