//! NumPy: a single array (`.npy`), or an archive with one array for each column (`.npz`).
//!
//! A structured array has a column for each field. A two-dimensional array has a column for each name it is
//! given, or is a single vector column.
//!
//! Invariant: no row of an archive is returned before the checksums of all its arrays have been verified.

mod archive;
mod header;
mod item;
mod literal;

use super::ReadOptions;
use super::batches::{BatchSource, Batches};
use super::source::{Input, RECORD_BYTES_MAX};
use crate::{Format, RowFileError};
use archive::{Archive, Member};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use header::Header;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

/// The most rows that are decoded at a time.
const BATCH_ROWS: u64 = 8192;

/// An array that is being read.
struct Array {
    header: Header,
    bytes: Stream,
    left: u64,
}

enum Stream {
    File(BufReader<std::fs::File>),
    Member(Box<Member>),
}

impl Read for Stream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(target),
            Self::Member(member) => member.read(target),
        }
    }
}

struct NumpySource {
    file: String,
    format: Format,
    schema: SchemaRef,
    arrays: Vec<Array>,
    /// The archive, until it has been verified.
    unverified: Option<Input>,
}

/// Why an array is refused.
#[derive(Debug)]
enum Refusal {
    /// Its contents contradict its head, or it has no head.
    Damaged(String),
    /// It is intact, but no table can hold it: what it is, and what to do about it.
    Unsupported(String, &'static str),
    /// It is intact, but does not fit the request: what is wrong, and what to do about it.
    Misfit(String, &'static str),
}

impl Refusal {
    /// Names were given for columns that have names.
    fn named() -> Self {
        let problem = "its columns have names of their own".to_owned();
        Self::Misfit(problem, "leave out --names; --rename FROM=TO renames a column")
    }

    fn of(self, input: &Input, format: Format) -> RowFileError {
        let file = input.name();
        match self {
            Self::Damaged(problem) => RowFileError::Malformed { file, format, problem },
            Self::Unsupported(problem, hint) => {
                RowFileError::Unsupported { what: format!("{file} cannot be read: {problem}"), hint }
            }
            Self::Misfit(problem, hint) => RowFileError::Misfit { file, problem, hint },
        }
    }

    /// The same refusal, for one array of an archive.
    fn of_array(self, name: &str) -> Self {
        let of = |text: String| format!("array \"{name}\": {text}");
        match self {
            Self::Damaged(problem) => Self::Damaged(of(problem)),
            Self::Unsupported(problem, hint) => Self::Unsupported(of(problem), hint),
            Self::Misfit(problem, hint) => Self::Misfit(of(problem), hint),
        }
    }
}

impl From<String> for Refusal {
    fn from(problem: String) -> Self {
        Self::Damaged(problem)
    }
}

impl From<&str> for Refusal {
    fn from(problem: &str) -> Self {
        Self::Damaged(problem.to_owned())
    }
}

/// Opens an array or an archive of arrays.
pub(super) fn open(input: &Input, format: Format, options: &ReadOptions) -> Result<Batches, RowFileError> {
    let wrong = |refusal: Refusal| refusal.of(input, format);
    let arrays = match format {
        Format::Npz if !options.columns.is_empty() => return Err(wrong(Refusal::named())),
        Format::Npz => archive_arrays(input, &wrong)?,
        _ => {
            let mut bytes = Stream::File(BufReader::with_capacity(256 << 10, input.file(format)?));
            let header = Header::read(&mut bytes).map_err(&wrong)?;
            let header = header.named(&options.columns, &stem(input)).map_err(&wrong)?;
            vec![Array { left: header.rows, header, bytes }]
        }
    };
    let rows = arrays.first().map_or(0, |array| array.header.rows);
    if let Some(other) = arrays.iter().find(|array| array.header.rows != rows) {
        let (name, there) = (other.header.first_name(), other.header.rows);
        let problem = format!("array \"{name}\" has {there} rows where the first one has {rows}");
        return Err(wrong(Refusal::Misfit(problem, "save arrays of one length, one for each column")));
    }
    let row_bytes = arrays.iter().map(|array| array.header.row_bytes).fold(0, usize::saturating_add);
    if row_bytes > RECORD_BYTES_MAX {
        let problem = format!("a row of all its arrays has {row_bytes} bytes, more than {RECORD_BYTES_MAX}");
        return Err(wrong(Refusal::Unsupported(
            problem,
            "save fewer arrays or shorter vectors in one archive",
        )));
    }
    let fields = arrays.iter().flat_map(|array| array.header.fields());
    let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
    let unverified = (format == Format::Npz).then(|| input.clone());
    let source = NumpySource { file: input.name(), format, schema: Arc::clone(&schema), arrays, unverified };
    let size = input.bytes().map(|bytes| (rows, bytes));
    Ok(Batches { file: input.name(), schema, size, batches: Box::new(source) })
}

/// Reads the first rows of an array in memory. Returns the number of columns.
pub(super) fn read_bytes(mut bytes: &[u8]) -> Option<usize> {
    let header = Header::read(&mut bytes).ok()?.named(&[], "value").ok()?;
    let rows = (bytes.len() / header.row_bytes).min(BATCH_ROWS as usize);
    header.columns(bytes, rows).ok().map(|columns| columns.len())
}

fn archive_arrays(
    input: &Input,
    wrong: &impl Fn(Refusal) -> RowFileError,
) -> Result<Vec<Array>, RowFileError> {
    let damaged = |problem: String| wrong(Refusal::Damaged(problem));
    let archive = Archive::open(input.file(Format::Npz)?).map_err(damaged)?;
    let mut arrays = Vec::new();
    for entry in &archive.entries {
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name).to_owned();
        let mut bytes = Stream::Member(Box::new(archive.member(entry).map_err(damaged)?));
        let header = Header::read(&mut bytes).map_err(|refusal| wrong(refusal.of_array(&name)))?;
        let header = header.named(&[], &name).map_err(wrong)?;
        arrays.push(Array { left: header.rows, header, bytes });
    }
    if arrays.is_empty() {
        return Err(damaged("there is no array in it".to_owned()));
    }
    Ok(arrays)
}

/// Reads all arrays of an archive to the end, to verify their checksums.
fn verify(input: &Input, wrong: &impl Fn(String) -> RowFileError) -> Result<(), RowFileError> {
    let archive = Archive::open(input.file(Format::Npz)?).map_err(wrong)?;
    for entry in &archive.entries {
        let mut member = archive.member(entry).map_err(wrong)?;
        io::copy(&mut member, &mut io::sink()).map_err(|error| wrong(error.to_string()))?;
        member.check().map_err(wrong)?;
    }
    Ok(())
}

fn stem(input: &Input) -> String {
    match input {
        Input::Standard => "value".to_owned(),
        Input::File(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

impl BatchSource for NumpySource {
    fn next(&mut self, bytes_max: usize) -> Result<Option<RecordBatch>, RowFileError> {
        let row_bytes: usize = self.arrays.iter().map(|array| array.header.row_bytes).sum();
        let rows_max = (bytes_max / row_bytes.max(1)).clamp(1, BATCH_ROWS as usize) as u64;
        let rows = self.arrays.first().map_or(0, |array| array.left.min(rows_max));
        let (file, format) = (self.file.clone(), self.format);
        let wrong = |problem: String| RowFileError::Malformed { file: file.clone(), format, problem };
        if let Some(input) = self.unverified.take() {
            verify(&input, &wrong)?;
        }
        if rows == 0 {
            for array in &mut self.arrays {
                array.end().map_err(wrong)?;
            }
            return Ok(None);
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for array in &mut self.arrays {
            columns.extend(array.read(rows).map_err(wrong)?);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        batch.map(Some).map_err(|error| wrong(error.to_string()))
    }
}

impl Array {
    fn read(&mut self, rows: u64) -> Result<Vec<ArrayRef>, String> {
        let count = usize::try_from(rows).map_err(|_| "a row is too large".to_owned())?;
        let mut bytes = vec![0; count * self.header.row_bytes];
        self.bytes.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                format!("it ends early: {} rows of {} are missing", self.left, self.header.rows)
            }
            _ => error.to_string(),
        })?;
        self.left -= rows;
        self.header.columns(&bytes, count)
    }

    /// Checks that nothing follows the last row.
    fn end(&mut self) -> Result<(), String> {
        match self.bytes.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err("something follows the last row".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}
