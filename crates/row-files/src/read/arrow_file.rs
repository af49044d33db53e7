//! Arrow IPC: files, also known as Feather, and streams.
//!
//! Invariant: a stream that was cut is an error, and so is one that something follows: neither is taken for a
//! smaller stream.

use super::arrow_claims::{Claims, End};
use super::batches::{BatchSource, Batches};
use super::source::Input;
use crate::{Format, RowFileError};
use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, SchemaRef};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

/// The first bytes of a file; a stream lacks them.
const FILE_MAGIC: &[u8] = b"ARROW1";

struct IpcSource {
    file: String,
    batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
    claims: Claims,
}

pub(super) fn open(input: &Input) -> Result<Batches, RowFileError> {
    let mut file = input.file(Format::Arrow)?;
    let mut start = Vec::new();
    let begun = (&mut file).take(FILE_MAGIC.len() as u64).read_to_end(&mut start);
    begun.and_then(|_| file.seek(SeekFrom::Start(0))).map_err(|source| input.read_error(source))?;
    // A second handle, with a position of its own.
    let looked_at = input.file(Format::Arrow)?;
    let opened = if start == FILE_MAGIC { of_file(file, looked_at) } else { of_stream(file, looked_at) };
    let (schema, batches, claims) = opened.map_err(|error| malformed(input.name(), &error))?;
    let batches = Box::new(IpcSource { file: input.name(), batches, claims });
    Ok(Batches { file: input.name(), schema, size: None, batches })
}

type Opened = (SchemaRef, Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>, Claims);

fn of_file(file: File, looked_at: File) -> Result<Opened, ArrowError> {
    let claims = Claims::of_file(looked_at)?;
    let reader = FileReader::try_new(BufReader::new(file), None)?;
    Ok((reader.schema(), Box::new(reader), claims))
}

fn of_stream(file: File, looked_at: File) -> Result<Opened, ArrowError> {
    let reader = StreamReader::try_new(BufReader::new(file), None)?;
    Ok((Arc::clone(&reader.schema()), Box::new(reader), Claims::of_stream(looked_at)))
}

impl BatchSource for IpcSource {
    /// Returns whole batches, as the writer made them.
    fn next(&mut self, _: usize) -> Result<Option<RecordBatch>, RowFileError> {
        let next = self.claims.check_next().and_then(|()| self.batches.next().transpose());
        let next = next.map_err(|error| malformed(self.file.clone(), &error))?;
        if next.is_none() {
            self.check_end()?;
        }
        Ok(next)
    }
}

impl IpcSource {
    /// Refuses a stream that was cut between two batches, and one behind which there is another.
    fn check_end(&mut self) -> Result<(), RowFileError> {
        let end = self.claims.end();
        let file = self.file.clone();
        match end {
            Ok(End::Whole) => Ok(()),
            Ok(End::Unmarked) => Err(RowFileError::Torn {
                file,
                problem: "its stream has no end mark, which the writer adds when it is closed".to_owned(),
            }),
            Ok(End::Followed) => Err(RowFileError::Malformed {
                file,
                format: Format::Arrow,
                problem: "something follows the end of its stream; if that is another stream, give it a file of its own"
                    .to_owned(),
            }),
            Err(source) => Err(RowFileError::Read { file, source }),
        }
    }
}

fn malformed(file: String, error: &ArrowError) -> RowFileError {
    RowFileError::Malformed { file, format: Format::Arrow, problem: error.to_string() }
}
