//! The bytes of an import: where they come from, and the checksum of those that were used.
//!
//! Invariant: the checksum at a position covers exactly the bytes before it, however far ahead was read.

use crate::transfer::TransferError;
use atoll_store::Limits;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

/// The size limit of a record: the largest cell of a store, in the longest text that an export writes of it,
/// and some slack.
pub(crate) const RECORD_BYTES_MAX: usize = ESCAPED_BYTES_MAX * CELL_BYTES_MAX + (1 << 20);

/// The longest text of a byte: `\xNN` in CSV. JSON Lines has base64 instead where a text would be longer.
const ESCAPED_BYTES_MAX: usize = 4;

/// The bytes of the largest cell, with its keys.
const CELL_BYTES_MAX: usize = {
    let limits = Limits::CONTRACT;
    limits.value_bytes as usize + limits.partition_key_bytes + limits.sort_key_bytes
};

/// Where an import reads from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Standard input.
    Standard,
    /// A file.
    File(PathBuf),
}

impl Input {
    /// How messages name it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Standard => "standard input".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Its length in bytes, if it is known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Standard => None,
            Self::File(path) => {
                path.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
            }
        }
    }

    /// The file, if it can be read again: only then is progress recorded.
    pub(crate) fn repeatable(&self) -> Option<&Path> {
        match self {
            Self::File(path) if path.is_file() => Some(path),
            _ => None,
        }
    }

    /// Checks that the input can be read, before any other work. A pipe is left alone: opening and closing it
    /// would end the process that writes to it.
    pub(crate) fn check(&self) -> Result<(), TransferError> {
        match self {
            Self::File(path) if path.is_dir() => Err(TransferError::Read {
                file: self.name(),
                offset: 0,
                source: io::ErrorKind::IsADirectory.into(),
            }),
            Self::File(path) if path.is_file() || path.metadata().is_err() => self.open_file(path).map(drop),
            _ => Ok(()),
        }
    }

    /// Opens the input at its beginning.
    pub(crate) fn open(&self) -> Result<Tracked, TransferError> {
        let inner: Box<dyn Read + Send> = match self {
            Self::Standard => Box::new(io::stdin()),
            Self::File(path) => Box::new(self.open_file(path)?),
        };
        Ok(Tracked::new(inner, self.name()))
    }

    /// Opens a repeatable input at `offset`, after computing the checksum of everything before it.
    ///
    /// None if the file is shorter than that.
    pub(crate) fn open_at(&self, path: &Path, offset: u64) -> Result<Option<Tracked>, TransferError> {
        let mut file = self.open_file(path)?;
        let read_error = |source| TransferError::Read { file: self.name(), offset, source };
        let mut hasher = XxHash3_64::new();
        let mut left = offset;
        let mut chunk = vec![0; 256 << 10];
        while left > 0 {
            let wanted = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match file.read(&mut chunk[..wanted]).map_err(read_error)? {
                0 => return Ok(None),
                read => {
                    hasher.write(&chunk[..read]);
                    left -= read as u64;
                }
            }
        }
        file.seek(SeekFrom::Start(offset)).map_err(read_error)?;
        let mut tracked = Tracked::new(Box::new(file), self.name());
        tracked.hasher = hasher;
        tracked.start = offset;
        Ok(Some(tracked))
    }

    fn open_file(&self, path: &Path) -> Result<File, TransferError> {
        File::open(path).map_err(|source| TransferError::Open { file: self.name(), source })
    }
}

/// A source that keeps what was read but not yet used, so that the checksum can stop between two records.
pub(crate) struct Tracked {
    inner: Box<dyn Read + Send>,
    name: String,
    hasher: XxHash3_64,
    /// What was read from `start` on.
    kept: Vec<u8>,
    /// Bytes before `kept`, all of them in the checksum.
    start: u64,
    /// Bytes of `kept` that belong to finished records.
    used: usize,
    /// Whether a read has met the end of the source.
    is_at_end: bool,
}

impl Tracked {
    pub(crate) fn new(inner: Box<dyn Read + Send>, name: String) -> Self {
        Self { inner, name, hasher: XxHash3_64::new(), kept: Vec::new(), start: 0, used: 0, is_at_end: false }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the end of the source was reached.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// What was read from `offset` on, none of it in a finished record.
    pub(crate) fn since(&self, offset: u64) -> &[u8] {
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.kept.get(from..).unwrap_or_default()
    }

    /// The number of line end bytes at `offset`, before any other byte.
    pub(crate) fn line_ends_at(&self, offset: u64) -> u64 {
        let line_ends = self.since(offset).iter().take_while(|byte| b"\r\n".contains(byte));
        line_ends.filter(|&&byte| byte == b'\n').count() as u64
    }

    /// Marks everything before `offset` as part of finished records.
    pub(crate) fn use_to(&mut self, offset: u64) {
        let used = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.used = used.min(self.kept.len());
    }

    /// The checksum of the finished records.
    pub(crate) fn checksum(&mut self) -> u64 {
        self.settle();
        self.hasher.finish()
    }

    fn settle(&mut self) {
        self.hasher.write(&self.kept[..self.used]);
        self.kept.drain(..self.used);
        self.start += self.used as u64;
        self.used = 0;
        // One large record must not keep its memory until the end of the import.
        if self.kept.capacity() > 4 << 20 && self.kept.len() < 1 << 20 {
            self.kept.shrink_to(1 << 20);
        }
    }

    /// The error of a failed read; a record that is too long has one of its own.
    pub(crate) fn failure(&self, source: io::Error, line: u64) -> TransferError {
        let file = self.name.clone();
        if source.get_ref().is_some_and(|inner| inner.is::<RecordTooLong>()) {
            return TransferError::TooLong { file, line, bytes_max: RECORD_BYTES_MAX as u64 };
        }
        TransferError::Read { file, offset: self.start + self.kept.len() as u64, source }
    }
}

/// Marks a record beyond the size limit inside an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("the record has no end")]
struct RecordTooLong;

impl Read for Tracked {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.settle();
        if self.kept.len() > RECORD_BYTES_MAX {
            return Err(io::Error::other(RecordTooLong));
        }
        // A file that grew since its end was met would go on within a record that was taken for whole.
        if self.is_at_end {
            return Ok(0);
        }
        let read = self.inner.read(target)?;
        self.is_at_end = read == 0 && !target.is_empty();
        self.kept.extend_from_slice(&target[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Encoding;
    use crate::transfer::{Record, csv_rows, json_lines};

    #[test]
    fn the_largest_cell_can_be_imported_from_whatever_an_export_writes_of_it() {
        let times = Limits::CONTRACT.value_bytes as usize / 1024;
        for byte in 0..=u8::MAX {
            let record = Record { partition: vec![byte], sort: Vec::new(), value: vec![byte; 1024] };
            for encoding in [Encoding::Escaped, Encoding::Base64] {
                let [_, _, value] = csv_rows::fields(&record, encoding);
                // Between quotes, those within are doubled.
                let bytes = value.len() + value.matches('"').count();
                assert!(bytes * times < RECORD_BYTES_MAX, "byte {byte} in {encoding:?}");
            }
            let mut line = Vec::new();
            json_lines::write_line(&record, &mut line).unwrap();
            assert!(line.len() * times < RECORD_BYTES_MAX, "byte {byte} in JSON Lines");
        }
    }

    /// A file to which something is written each time that its end was met.
    struct Growing(std::collections::VecDeque<&'static [u8]>);

    impl Read for Growing {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            let next = self.0.pop_front().unwrap_or_default();
            target[..next.len()].copy_from_slice(next);
            Ok(next.len())
        }
    }

    #[test]
    fn what_is_written_behind_the_end_that_was_met_is_not_read() {
        let inner = Box::new(Growing([&b"a,b,c\np,s,12"[..], b"", b"34\n"].into()));
        let mut tracked = Tracked::new(inner, "test".into());
        let mut bytes = Vec::new();
        for _ in 0..2 {
            tracked.read_to_end(&mut bytes).unwrap();
        }
        assert_eq!((bytes.as_slice(), tracked.is_at_end()), (&b"a,b,c\np,s,12"[..], true));
        // What will be read when the import goes on is not in the checksum.
        tracked.use_to(bytes.len() as u64);
        assert_eq!(tracked.checksum(), XxHash3_64::oneshot(&bytes));
    }

    #[test]
    fn the_checksum_covers_exactly_what_was_used() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
        let mut random = fastrand::Rng::with_seed(3);
        let mut tracked = Tracked::new(Box::new(io::Cursor::new(bytes.clone())), "test".into());
        let mut chunk = [0; 4096];
        let (mut read, mut used) = (0, 0);
        while used < bytes.len() {
            if read < bytes.len() {
                read += tracked.read(&mut chunk).unwrap();
            }
            used += random.usize(0..=read - used);
            tracked.use_to(used as u64);
            if random.u8(..) < 64 || used == bytes.len() {
                assert_eq!(tracked.checksum(), XxHash3_64::oneshot(&bytes[..used]));
            }
        }
    }
}
