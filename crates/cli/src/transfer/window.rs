//! Windows: bounded parts of the source, sorted into batches by partition.
//!
//! Invariant: within a window the records of a partition keep their order, and windows are written one after
//! the other; so of two records for one cell the later one wins.

use crate::transfer::{RESERVED_PREFIX, Record, RecordReader, SourcePosition, TransferError};
use atoll_store::{Batch, Cell, Limits};
use std::collections::HashMap;

/// The bookkeeping of more records than this costs more memory than their bytes.
const RECORDS_MAX: usize = 20_000;

/// A bounded part of the source.
pub(crate) struct Window {
    /// For each partition its batches in order.
    pub(crate) partitions: Vec<Vec<Batch>>,
    /// Number of records.
    pub(crate) records: u64,
    /// Bytes of their keys and values.
    pub(crate) bytes: u64,
    /// Bad records that were skipped.
    pub(crate) skipped: u64,
    /// Where the next window starts.
    pub(crate) end: SourcePosition,
    /// Checksum of the source before that place.
    pub(crate) checksum: u64,
}

/// Makes windows of the records of a reader.
pub(crate) struct Windows {
    reader: Box<dyn RecordReader>,
    limits: Limits,
    bytes_max: usize,
    unit: &'static str,
    skips_left: u64,
    skipped: u64,
    end: SourcePosition,
    on_skip: Box<dyn FnMut(&TransferError) + Send>,
    failed: Option<TransferError>,
    is_done: bool,
}

impl Windows {
    /// Windows of about `bytes_max` bytes from `start` on; skips up to `skips` bad records.
    pub(crate) fn new(
        reader: Box<dyn RecordReader>,
        start: SourcePosition,
        limits: Limits,
        bytes_max: usize,
        unit: &'static str,
        skips: u64,
        on_skip: Box<dyn FnMut(&TransferError) + Send>,
    ) -> Self {
        Self {
            reader,
            limits,
            bytes_max,
            unit,
            skips_left: skips,
            skipped: 0,
            end: start,
            on_skip,
            failed: None,
            is_done: false,
        }
    }

    /// The next window. A failure is returned after the window of the good records before it.
    pub(crate) fn next(&mut self) -> Result<Option<Window>, TransferError> {
        if let Some(failed) = self.failed.take() {
            self.is_done = true;
            return Err(failed);
        }
        let mut batches = Batches::new(self.limits);
        let skipped_before = self.skipped;
        while !self.is_done && batches.bytes < self.bytes_max && batches.records < RECORDS_MAX {
            match self.step(&mut batches) {
                Ok(true) => {}
                Ok(false) => self.is_done = true,
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        let skipped = self.skipped - skipped_before;
        if batches.records == 0 && skipped == 0 {
            return self.failed.take().map_or(Ok(None), Err);
        }
        Ok(Some(Window {
            records: batches.records as u64,
            bytes: batches.bytes as u64,
            partitions: batches.partitions.into_iter().map(|partition| partition.batches).collect(),
            skipped,
            end: self.end,
            checksum: self.reader.tracked().checksum(),
        }))
    }

    /// Takes one record; false at the end.
    fn step(&mut self, batches: &mut Batches) -> Result<bool, TransferError> {
        let Some(parsed) = self.reader.next()? else { return Ok(false) };
        let fits = parsed.record.and_then(|record| batches.check(&record).map(|()| record));
        match fits {
            Ok(record) => batches.add(record),
            Err(problem) => self.skip(parsed.line, problem)?,
        }
        self.end = parsed.end;
        self.reader.tracked().use_to(parsed.end.offset);
        Ok(true)
    }

    fn skip(&mut self, line: u64, problem: String) -> Result<(), TransferError> {
        let file = self.reader.tracked().name().to_owned();
        let error = TransferError::Record { file, unit: self.unit, line, problem, skipped: self.skipped };
        if self.skips_left == 0 {
            return Err(error);
        }
        self.skips_left -= 1;
        self.skipped += 1;
        (self.on_skip)(&error);
        Ok(())
    }
}

/// Records sorted by partition, cut into batches at the limits of the store.
struct Batches {
    limits: Limits,
    places: HashMap<Vec<u8>, usize>,
    partitions: Vec<PartitionBatches>,
    records: usize,
    bytes: usize,
}

struct PartitionBatches {
    batches: Vec<Batch>,
    bytes_in_last: usize,
}

impl Batches {
    fn new(limits: Limits) -> Self {
        Self { limits, places: HashMap::new(), partitions: Vec::new(), records: 0, bytes: 0 }
    }

    fn check(&self, record: &Record) -> Result<(), String> {
        // No export writes them, and the progress of this import itself is there.
        if record.partition.starts_with(RESERVED_PREFIX) {
            return Err("the partition belongs to Atoll itself".to_owned());
        }
        let cell = self.limits.check_cell(Cell::new(&record.partition, &record.sort));
        let fits = cell.and_then(|()| self.limits.check_value(record.value.len() as u64));
        fits.map_err(|error| error.to_string())
    }

    fn add(&mut self, record: Record) {
        self.records += 1;
        self.bytes += record.bytes();
        let at = *self.places.entry(record.partition.clone()).or_insert_with(|| {
            self.partitions.push(PartitionBatches { batches: Vec::new(), bytes_in_last: 0 });
            self.partitions.len() - 1
        });
        let partition = &mut self.partitions[at];
        let bytes = record.sort.len() + record.value.len();
        let fits = |last: &mut Batch| {
            last.operations() < self.limits.batch_operations
                && partition.bytes_in_last + bytes <= self.limits.batch_bytes
        };
        let (batch, before) = match partition.batches.pop_if(fits) {
            Some(batch) => (batch, partition.bytes_in_last),
            None => (Batch::on(record.partition), 0),
        };
        partition.batches.push(batch.put(record.sort, record.value));
        partition.bytes_in_last = before + bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::Mutation;

    #[test]
    fn batches_keep_order_and_stay_within_the_limits() {
        let limits = Limits { batch_operations: 3, batch_bytes: 20, ..Limits::CONTRACT };
        let mut batches = Batches::new(limits);
        let mut random = fastrand::Rng::with_seed(4);
        let mut expected: HashMap<Vec<u8>, Vec<Vec<u8>>> = HashMap::new();
        for at in 0..500_u16 {
            let partition = vec![random.u8(1..5)];
            let value = vec![1; random.usize(0..30)];
            let sort = at.to_be_bytes().to_vec();
            expected.entry(partition.clone()).or_default().push(sort.clone());
            batches.add(Record { partition, sort, value });
        }
        for partition in &batches.partitions {
            let mut sorts = Vec::new();
            for batch in &partition.batches {
                assert!(limits.check_batch(batch).is_ok(), "{batch:?}");
                sorts.extend(batch.mutations.iter().map(|mutation| match mutation {
                    Mutation::Put(sort, _) => sort.clone(),
                    other => panic!("{other:?}"),
                }));
            }
            assert_eq!(Some(&sorts), expected.get(&partition.batches[0].partition));
        }
    }
}
