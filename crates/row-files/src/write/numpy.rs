//! NumPy: a structured array (`.npy`), or an archive with an array for each column (`.npz`).
//!
//! The head of an array holds the number of its rows, and an archive holds one column behind the other, so
//! columns are gathered in chunks in a scratch file first.
//!
//! ```text
//! scratch file: chunk 0 · chunk 1 · ...      each of the same number of rows; the last rows stay in memory
//! chunk: all values of column 0 · all values of column 1 · ...
//! ```
//!
//! Invariant: what is written is read back unchanged by [`crate::open`]; rows for which that would not hold
//! are an error.

mod column;
mod head;
mod zip;

use super::scratch::Scratch;
use super::{RowWriter, Target, write_error};
use crate::{Format, RowFileError};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use column::Column;
use flate2::Crc;
use head::{array_of, array_of_structures};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use zip::Zip;

/// The bytes of a chunk, unless a single row is longer.
const CHUNK_BYTES: usize = 1 << 20;

/// The most bytes of a row of an array that are read back, and of a row of all arrays of an archive.
const ROW_BYTES_MAX: usize = 1 << 24;
const ROW_OF_ALL_BYTES_MAX: usize = 64 << 20;

pub(super) struct NumpyWriter {
    target: Target,
    name: String,
    is_archive: bool,
    columns: Vec<Column>,
    scratch: Scratch,
    /// Created once there is a whole chunk.
    file: Option<BufWriter<File>>,
    chunk_rows: usize,
    /// Whole chunks in the file.
    chunks: u64,
    /// The values of each column that are in no chunk yet.
    pending: Vec<Vec<u8>>,
    pending_rows: usize,
    /// Of the values of each column in chunks.
    checksums: Vec<Crc>,
}

impl NumpyWriter {
    /// Refuses columns that an array cannot hold.
    pub(super) fn new(
        format: Format,
        schema: &Schema,
        target: Target,
        name: String,
        scratch: Scratch,
    ) -> Result<Self, RowFileError> {
        let columns = schema.fields().iter().map(|field| Column::of(field)).collect::<Result<Vec<_>, _>>()?;
        let is_archive = format == Format::Npz;
        let row_bytes: usize = columns.iter().map(Column::bytes).sum();
        let widest = columns.iter().map(Column::bytes).max().unwrap_or(0);
        let longest = if is_archive { widest } else { row_bytes };
        if longest == 0 || longest > ROW_BYTES_MAX || row_bytes > ROW_OF_ALL_BYTES_MAX {
            return Err(RowFileError::Unsupported {
                what: format!("a row of {row_bytes} bytes cannot be written as {format}"),
                hint: "select other columns with --columns, or write Parquet or Arrow IPC",
            });
        }
        // Checked before there are rows.
        if is_archive {
            check_members(&columns)?;
        } else {
            head::structure(&columns)?;
        }
        Ok(Self {
            target,
            name,
            is_archive,
            scratch,
            file: None,
            chunk_rows: (CHUNK_BYTES / row_bytes.max(1)).max(1),
            chunks: 0,
            pending: vec![Vec::new(); columns.len()],
            pending_rows: 0,
            checksums: columns.iter().map(|_| Crc::new()).collect(),
            columns,
        })
    }

    fn rows(&self) -> u64 {
        self.chunks * self.chunk_rows as u64 + self.pending_rows as u64
    }

    /// Moves a whole chunk to the scratch file.
    fn put_chunk(&mut self) -> Result<(), RowFileError> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::with_capacity(64 << 10, self.scratch.file()?)),
        };
        for (values, checksum) in self.pending.iter_mut().zip(&mut self.checksums) {
            file.write_all(values).map_err(|source| self.scratch.failure(source))?;
            checksum.update(values);
            values.clear();
        }
        self.chunks += 1;
        self.pending_rows = 0;
        Ok(())
    }

    /// Reads chunks from the scratch file.
    fn chunk_reader(&mut self) -> Result<Option<ChunkReader>, RowFileError> {
        let Some(file) = self.file.take() else { return Ok(None) };
        let file = file.into_inner().map_err(|error| self.scratch.failure(error.into_error()))?;
        Ok(Some(ChunkReader { file, scratch: self.scratch.clone() }))
    }

    /// Writes the columns side by side.
    fn write_structures(mut self) -> Result<Target, RowFileError> {
        let head = array_of_structures(&self.columns, self.rows())?;
        let failed = |source| write_error(&self.name, source);
        self.target.write_all(&head).map_err(failed)?;
        let widths: Vec<usize> = self.columns.iter().map(Column::bytes).collect();
        let row_bytes: usize = widths.iter().sum();
        let mut side_by_side = Vec::new();
        if let Some(mut reader) = self.chunk_reader()? {
            let mut chunk = vec![0; self.chunk_rows * row_bytes];
            for number in 0..self.chunks {
                reader.read(number * chunk.len() as u64, &mut chunk)?;
                let mut rest = chunk.as_slice();
                let mut columns = Vec::with_capacity(widths.len());
                for width in &widths {
                    let (values, behind) = rest.split_at(width * self.chunk_rows);
                    columns.push(values);
                    rest = behind;
                }
                interleave(&columns, &widths, self.chunk_rows, &mut side_by_side);
                let failed = |source| write_error(&self.name, source);
                self.target.write_all(&side_by_side).map_err(failed)?;
            }
        }
        let columns: Vec<&[u8]> = self.pending.iter().map(Vec::as_slice).collect();
        interleave(&columns, &widths, self.pending_rows, &mut side_by_side);
        self.target.write_all(&side_by_side).map_err(|source| write_error(&self.name, source))?;
        Ok(self.target)
    }

    /// Writes an array for each column.
    fn write_archive(mut self) -> Result<Target, RowFileError> {
        let (rows, chunk_rows) = (self.rows(), self.chunk_rows);
        let mut reader = self.chunk_reader()?;
        let row_bytes: usize = self.columns.iter().map(Column::bytes).sum();
        let chunk_bytes = (row_bytes * chunk_rows) as u64;
        let (name, mut zip) = (self.name, Zip::new(self.target));
        let failed = |source| write_error(&name, source);
        let (mut before, mut values) = (0, Vec::new());
        for ((column, last), mut checksum) in self.columns.iter().zip(&self.pending).zip(self.checksums) {
            let head = array_of(column, rows);
            checksum.update(last);
            let mut whole = Crc::new();
            whole.update(&head);
            whole.combine(&checksum);
            let bytes = head.len() as u64 + rows * column.bytes() as u64;
            zip.begin(&format!("{}.npy", column.name()), bytes, whole.sum()).map_err(failed)?;
            zip.write(&head).map_err(failed)?;
            if let Some(reader) = &mut reader {
                values.resize(column.bytes() * chunk_rows, 0);
                for number in 0..self.chunks {
                    reader.read(number * chunk_bytes + before, &mut values)?;
                    zip.write(&values).map_err(failed)?;
                }
            }
            zip.write(last).map_err(failed)?;
            before += (column.bytes() * chunk_rows) as u64;
        }
        zip.finish().map_err(failed)
    }
}

/// Reads parts of chunks again.
struct ChunkReader {
    file: File,
    scratch: Scratch,
}

impl ChunkReader {
    fn read(&mut self, at: u64, target: &mut [u8]) -> Result<(), RowFileError> {
        let read = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(target));
        read.map_err(|source| self.scratch.failure(source))
    }
}

/// Refuses names of columns that would be files outside of the folder in which somebody unpacks the archive,
/// and names of which NumPy would find only one: it takes `x` and `x.npy` for the same array.
fn check_members(columns: &[Column]) -> Result<(), RowFileError> {
    for name in columns.iter().map(Column::name) {
        let is_outside = name.starts_with(['/', '\\']) || name.split(['/', '\\']).any(|part| part == "..");
        let plain = name.strip_suffix(".npy");
        let is_twice = plain.is_some_and(|plain| columns.iter().any(|other| other.name() == plain));
        let problem = match (is_outside, is_twice) {
            (true, _) => "leads out of the folder in which an archive is unpacked",
            (_, true) => "is the file of another column in an archive",
            _ => continue,
        };
        return Err(RowFileError::Unsupported {
            what: format!("the name of column {name:?} {problem}"),
            hint: "leave the column out with --columns, or write Parquet or Arrow IPC",
        });
    }
    Ok(())
}

/// Puts the values of columns side by side, row by row, in place of what `target` held.
fn interleave(columns: &[&[u8]], widths: &[usize], rows: usize, target: &mut Vec<u8>) {
    target.clear();
    let mut values: Vec<_> =
        columns.iter().zip(widths).map(|(values, width)| values.chunks_exact((*width).max(1))).collect();
    for _ in 0..rows {
        for value in values.iter_mut().filter_map(Iterator::next) {
            target.extend_from_slice(value);
        }
    }
}

impl RowWriter for NumpyWriter {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), RowFileError> {
        let mut from = 0;
        while from < rows.num_rows() {
            let count = (self.chunk_rows - self.pending_rows).min(rows.num_rows() - from);
            let before = self.rows();
            for ((column, values), pending) in self.columns.iter().zip(rows.columns()).zip(&mut self.pending)
            {
                column.push(values.slice(from, count).as_ref(), before, pending)?;
            }
            from += count;
            self.pending_rows += count;
            if self.pending_rows == self.chunk_rows {
                self.put_chunk()?;
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Target, RowFileError> {
        if self.is_archive { self.write_archive() } else { self.write_structures() }
    }
}
