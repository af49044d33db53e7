//! The source of the bytes of a file, and how many of them have been read.

use crate::compression::MAGIC_BYTES;
use crate::{Compression, Format, RowFileError};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// A file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Standard,
    /// A file.
    File(PathBuf),
}

impl Input {
    /// The name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Standard => "standard input".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// The length in bytes, if it is known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Standard => None,
            Self::File(path) => {
                path.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
            }
        }
    }

    /// Opens it for reading from front to back.
    pub(super) fn stream(&self, format: Format) -> Result<RecordStream, RowFileError> {
        let mut inner: Box<dyn Read + Send> = match self {
            Self::Standard => Box::new(io::stdin()),
            Self::File(path) => Box::new(self.open(path)?),
        };
        // A pipe cannot be read twice, so the bytes that were inspected are put in front again.
        let start = self.start(&mut inner, format)?;
        let inner = Box::new(io::Cursor::new(start).chain(inner));
        Ok(RecordStream { inner, kept: Vec::new(), start: 0, released: 0, read: 0, is_at_end: false })
    }

    /// Opens it for reading in any order, which a pipe does not support.
    pub(super) fn file(&self, format: Format) -> Result<File, RowFileError> {
        match self {
            Self::File(path) if path.is_file() || !path.exists() => {
                let mut file = self.open(path)?;
                self.start(&mut file, format)?;
                file.rewind().map_err(|source| self.read_error(source))?;
                Ok(file)
            }
            Self::Standard | Self::File(_) => Err(RowFileError::Unsupported {
                what: format!("{} is not a file, and this format cannot be read sequentially", self.name()),
                hint: "write it to a file first; CSV, JSON Lines and LAMMPS dumps may come through a pipe",
            }),
        }
    }

    /// Reads the first bytes, and refuses those of a file that is compressed as a whole.
    fn start(&self, bytes: &mut dyn Read, format: Format) -> Result<Vec<u8>, RowFileError> {
        let mut start = Vec::with_capacity(MAGIC_BYTES);
        let read = bytes.take(MAGIC_BYTES as u64).read_to_end(&mut start);
        read.map_err(|source| self.read_error(source))?;
        match Compression::of_start(&start) {
            None => Ok(start),
            Some(compression) => Err(RowFileError::Compressed { input: self.clone(), compression, format }),
        }
    }

    fn open(&self, path: &Path) -> Result<File, RowFileError> {
        File::open(path).map_err(|source| RowFileError::Open { file: self.name(), source })
    }

    pub(super) fn read_error(&self, source: io::Error) -> RowFileError {
        RowFileError::Read { file: self.name(), source }
    }
}

/// The most bytes of a record; in a longer one, a quote was never closed.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 20;

/// A stream that keeps the bytes since the last record, so that lines can be counted when a record is bad.
pub(super) struct RecordStream {
    inner: Box<dyn Read + Send>,
    kept: Vec<u8>,
    /// The offset of `kept` in the stream.
    start: u64,
    /// The number of bytes of `kept` that are no longer needed.
    released: usize,
    read: u64,
    /// Whether a read has met the end of the stream.
    is_at_end: bool,
}

impl RecordStream {
    /// A stream of bytes in memory.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self {
            inner: Box::new(io::Cursor::new(bytes)),
            kept: Vec::new(),
            start: 0,
            released: 0,
            read: 0,
            is_at_end: false,
        }
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Whether a read has met the end of the stream.
    pub(super) const fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Releases the bytes before this offset.
    pub(super) fn release_to(&mut self, offset: u64) {
        let released = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.released = released.min(self.kept.len());
    }

    /// The bytes from this offset on, as far as they have not been released.
    pub(super) fn since(&self, offset: u64) -> &[u8] {
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.kept.get(from..).unwrap_or_default()
    }

    /// The number of line ends directly at this offset.
    pub(super) fn line_ends_at(&self, offset: u64) -> u64 {
        let line_ends = self.since(offset).iter().take_while(|byte| b"\r\n".contains(byte));
        line_ends.filter(|&&byte| byte == b'\n').count() as u64
    }
}

impl Read for RecordStream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.kept.drain(..self.released);
        self.start += self.released as u64;
        self.released = 0;
        if self.kept.len() > RECORD_BYTES_MAX {
            let problem =
                format!("a record is longer than {RECORD_BYTES_MAX} bytes: is a quote never closed?");
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        // A file that grew since its end was met would go on within a record that was taken for whole.
        if self.is_at_end {
            return Ok(0);
        }
        let read = self.inner.read(target)?;
        self.kept.extend_from_slice(&target[..read]);
        self.read += read as u64;
        self.is_at_end = read == 0 && !target.is_empty();
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file to which something is written each time that its end was met.
    struct Growing(Vec<&'static [u8]>);

    impl Read for Growing {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let next = self.0.remove(0);
            target[..next.len()].copy_from_slice(next);
            Ok(next.len())
        }
    }

    #[test]
    fn what_is_written_behind_the_end_that_was_met_is_not_taken_for_a_record_of_its_own() {
        let inner = Box::new(Growing(vec![&b"x\n0.1"[..], b"", b"875\n2\n"]));
        let mut stream = RecordStream { inner, ..RecordStream::of(Vec::new()) };
        let mut text = String::new();
        for _ in 0..2 {
            stream.read_to_string(&mut text).unwrap();
        }
        assert_eq!((text.as_str(), stream.bytes_read(), stream.is_at_end()), ("x\n0.1", 5, true));
    }
}
