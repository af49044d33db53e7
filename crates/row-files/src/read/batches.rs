//! Files that have batches of their own size, read as parts of the wanted size.

use super::ReadOptions;
use super::convert::BatchConverter;
use crate::{Part, PartLimits, RowFileError, RowReader, bytes_of, rows_within};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;

/// The most bytes of a batch, even if its rows are only skipped.
const PASSED_BYTES_MAX: usize = 32 << 20;

/// A file of batches.
pub(super) struct Batches {
    pub(super) file: String,
    pub(super) schema: SchemaRef,
    /// The number of rows in the file, and its length in bytes.
    pub(super) size: Option<(u64, u64)>,
    pub(super) batches: Box<dyn BatchSource>,
}

/// A source of the batches of a file.
pub(super) trait BatchSource: Send {
    /// The next batch, of about `bytes_max` bytes at most unless it is a single row; `None` at the end.
    fn next(&mut self, bytes_max: usize) -> Result<Option<RecordBatch>, RowFileError>;

    /// Skips rows from the beginning where that costs less than reading them. Returns how many were skipped.
    fn skip(&mut self, _rows: u64) -> Result<u64, RowFileError> {
        Ok(0)
    }
}

/// Reads parts from batches.
pub(super) struct BatchReader {
    source: Batches,
    converter: BatchConverter,
    /// The rest of a batch that was larger than a part.
    rest: Option<RecordBatch>,
    rows: u64,
    failed: Option<RowFileError>,
    is_done: bool,
}

impl BatchReader {
    pub(super) fn new(
        source: Batches,
        wanted: &SchemaRef,
        options: &ReadOptions,
    ) -> Result<Self, RowFileError> {
        let converter = BatchConverter::new(source.file.clone(), &source.schema, wanted, options)?;
        Ok(Self { source, converter, rest: None, rows: 0, failed: None, is_done: false })
    }

    /// At most `rows_max` of the rows that have not been read yet. A single row may exceed `bytes_max`.
    fn take(&mut self, rows_max: usize, bytes_max: usize) -> Result<Option<RecordBatch>, RowFileError> {
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.source.batches.next(bytes_max.min(PASSED_BYTES_MAX))? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let fitting = rows_within(&batch, bytes_max).min(rows_max);
        if fitting < batch.num_rows() {
            self.rest = Some(batch.slice(fitting, batch.num_rows() - fitting));
            return Ok(Some(batch.slice(0, fitting)));
        }
        Ok(Some(batch))
    }

    fn gather(&mut self, limits: PartLimits) -> (Vec<RecordBatch>, usize) {
        let (mut gathered, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while !self.is_done && rows < limits.rows && bytes < limits.bytes {
            let taken = self.take(limits.rows - rows, limits.bytes - bytes);
            match taken.and_then(|batch| batch.map(|batch| self.converter.convert(&batch)).transpose()) {
                // However many batches without rows follow each other, they are not the end.
                Ok(Some(fitted)) if fitted.num_rows() == 0 => {}
                Ok(Some(fitted)) => {
                    rows += fitted.num_rows();
                    bytes += bytes_of(&fitted).max(1);
                    gathered.push(fitted);
                }
                Ok(None) => self.is_done = true,
                Err(error) => {
                    self.failed = Some(error);
                    self.is_done = true;
                }
            }
        }
        (gathered, rows)
    }
}

impl RowReader for BatchReader {
    fn next(&mut self, limits: PartLimits) -> Result<Option<Part>, RowFileError> {
        let (gathered, rows) = self.gather(limits);
        let Some(first) = gathered.first().filter(|_| rows > 0) else {
            return self.failed.take().map_or(Ok(None), Err);
        };
        self.rows += rows as u64;
        let part = concat_batches(&first.schema(), &gathered).map_err(|error| RowFileError::Value {
            file: self.source.file.clone(),
            column: first.schema().field(0).name().clone(),
            problem: error.to_string(),
        })?;
        Ok(Some(Part { rows: part, end: self.rows, bad: Vec::new() }))
    }

    fn skip(&mut self, records: u64) -> Result<u64, RowFileError> {
        self.rows = self.source.batches.skip(records)?;
        while self.rows < records {
            let left = usize::try_from(records - self.rows).unwrap_or(usize::MAX);
            match self.take(left, usize::MAX)? {
                Some(batch) => self.rows += batch.num_rows() as u64,
                None => break,
            }
        }
        Ok(self.rows)
    }

    fn bytes_read(&self) -> u64 {
        let Some((rows, bytes)) = self.source.size.filter(|(rows, _)| *rows > 0) else { return 0 };
        u64::try_from(u128::from(bytes) * u128::from(self.rows) / u128::from(rows)).unwrap_or(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array};
    use std::sync::Arc;

    struct Given(std::vec::IntoIter<RecordBatch>);

    impl BatchSource for Given {
        fn next(&mut self, _: usize) -> Result<Option<RecordBatch>, RowFileError> {
            Ok(self.0.next())
        }
    }

    #[test]
    fn batches_without_rows_are_not_the_end_however_many_they_are() {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let whole = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let schema = whole.schema();
        let none = vec![whole.slice(0, 0); 1000];
        let all = [none.clone(), vec![whole.clone()], none.clone(), vec![whole], none].concat();
        let batches = Box::new(Given(all.into_iter()));
        let source = Batches { file: "a".to_owned(), schema: Arc::clone(&schema), size: None, batches };
        let mut reader = BatchReader::new(source, &schema, &ReadOptions::default()).unwrap();
        let limits = PartLimits { rows: 100, bytes: 64 };
        let mut rows = 0;
        while let Some(part) = reader.next(limits).unwrap() {
            assert!(part.rows.num_rows() > 0);
            rows += part.rows.num_rows();
        }
        assert_eq!(rows, 6);
    }
}
