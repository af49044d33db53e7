//! The binary format: length-prefixed records, each with its checksum, and an end that counts them.
//!
//! ```text
//! header   8 B "ATOLLKV\n" · u32 version (1) · u32 checksum of the 12 bytes before
//! record   u32 partition bytes (1 or more) · u32 sort bytes · u32 value bytes
//!          u64 checksum of these 12 bytes and the content · partition · sort · value
//! end      u32 0 · u32 0 · u32 0 · u64 checksum of these 12 bytes and the count · u64 count of records
//! ```
//! Numbers are little-endian; checksums are XXH3-64, in the header its lower half.
//!
//! Invariant: a file truncated at any point, also between two records, is distinguished from a complete one.
//! Invariant: no length beyond the limits of the contract is trusted, so a bad file costs no memory.

use crate::transfer::{Parsed, Record, RecordReader, SourcePosition, Tracked, TransferError};
use atoll_store::Limits;
use std::hash::Hasher;
use std::io::{self, BufReader, Read, Write};
use twox_hash::XxHash3_64;

const MAGIC: &[u8; 8] = b"ATOLLKV\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const PREFIX_BYTES: usize = 20;

/// Reads records from the binary format.
pub(crate) struct BinaryReader {
    source: BufReader<Tracked>,
    place: SourcePosition,
    is_at_end: bool,
}

impl BinaryReader {
    /// Reads `source`, starting with the header if `place` is the beginning.
    pub(crate) fn new(source: Tracked, place: SourcePosition) -> Result<Self, TransferError> {
        let source = BufReader::with_capacity(64 << 10, source);
        let mut reader = Self { source, place, is_at_end: false };
        if place.offset == 0 {
            reader.read_header()?;
        }
        Ok(reader)
    }

    fn read_header(&mut self) -> Result<(), TransferError> {
        let mut header = [0; HEADER_BYTES];
        let read = self.fill(&mut header)?;
        let file = self.source.get_ref().name().to_owned();
        if !header.starts_with(MAGIC) || read < MAGIC.len() {
            return Err(TransferError::NotBinary { file });
        }
        if read < HEADER_BYTES {
            return Err(TransferError::Torn { file, offset: 0, problem: "the header is cut off" });
        }
        let found = u32_at(&header, 8);
        if u32_at(&header, 12) != header_checksum(&header[..12]) {
            return Err(TransferError::Damaged {
                file,
                offset: 0,
                problem: "the header does not match its checksum",
            });
        }
        if found != VERSION {
            return Err(TransferError::NewerFormat { file, found, supported: VERSION });
        }
        self.place.offset = HEADER_BYTES as u64;
        Ok(())
    }

    /// Fills the target as far as the source reaches.
    fn fill(&mut self, target: &mut [u8]) -> Result<usize, TransferError> {
        let mut filled = 0;
        while filled < target.len() {
            match self.source.read(&mut target[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.source.get_ref().failure(error, self.place.lines + 1)),
            }
        }
        Ok(filled)
    }

    fn fill_whole(&mut self, target: &mut [u8], problem: &'static str) -> Result<(), TransferError> {
        if self.fill(target)? == target.len() { Ok(()) } else { Err(self.torn(problem)) }
    }

    fn torn(&self, problem: &'static str) -> TransferError {
        TransferError::Torn {
            file: self.source.get_ref().name().to_owned(),
            offset: self.place.offset,
            problem,
        }
    }

    fn damaged(&self, problem: &'static str) -> TransferError {
        TransferError::Damaged {
            file: self.source.get_ref().name().to_owned(),
            offset: self.place.offset,
            problem,
        }
    }

    fn read_content(&mut self, prefix: &[u8; PREFIX_BYTES]) -> Result<Record, TransferError> {
        let limits = Limits::CONTRACT;
        let partition_bytes = length(prefix, 0, limits.partition_key_bytes as u64);
        let sort_bytes = length(prefix, 4, limits.sort_key_bytes as u64);
        let value_bytes = length(prefix, 8, limits.value_bytes);
        let (Some(partition_bytes), Some(sort_bytes), Some(value_bytes)) =
            (partition_bytes, sort_bytes, value_bytes)
        else {
            return Err(self.damaged("a length is beyond every limit"));
        };
        let mut hasher = XxHash3_64::new();
        hasher.write(&prefix[..12]);
        let mut part = |reader: &mut Self, bytes: usize| {
            let mut content = vec![0; bytes];
            reader.fill_whole(&mut content, "a record is cut")?;
            hasher.write(&content);
            Ok(content)
        };
        let record = Record {
            partition: part(self, partition_bytes)?,
            sort: part(self, sort_bytes)?,
            value: part(self, value_bytes)?,
        };
        if hasher.finish() != u64_at(prefix, 12) {
            return Err(self.damaged("a record does not match its checksum"));
        }
        Ok(record)
    }

    fn read_end(&mut self, prefix: &[u8; PREFIX_BYTES]) -> Result<(), TransferError> {
        let mut count = [0; 8];
        self.fill_whole(&mut count, "the end mark is cut off")?;
        if prefix[..12] != [0; 12] || end_checksum(&count) != u64_at(prefix, 12) {
            return Err(self.damaged("the end mark does not match its checksum"));
        }
        if u64::from_le_bytes(count) != self.place.lines {
            return Err(self.damaged("the end mark counts another number of records"));
        }
        if self.fill(&mut [0])? != 0 {
            return Err(self.damaged("something follows the end mark"));
        }
        self.is_at_end = true;
        Ok(())
    }
}

impl RecordReader for BinaryReader {
    fn next(&mut self) -> Result<Option<Parsed>, TransferError> {
        if self.is_at_end {
            return Ok(None);
        }
        let mut prefix = [0; PREFIX_BYTES];
        match self.fill(&mut prefix)? {
            0 => return Err(self.torn("the end mark is missing")),
            PREFIX_BYTES => {}
            _ => return Err(self.torn("a record is cut")),
        }
        if u32_at(&prefix, 0) == 0 {
            self.read_end(&prefix)?;
            return Ok(None);
        }
        let record = self.read_content(&prefix)?;
        let line = self.place.lines + 1;
        self.place = SourcePosition {
            offset: self.place.offset + (PREFIX_BYTES + record.bytes()) as u64,
            lines: line,
        };
        Ok(Some(Parsed { record: Ok(record), line, end: self.place }))
    }

    fn tracked(&mut self) -> &mut Tracked {
        self.source.get_mut()
    }
}

/// Writes the header.
pub(crate) fn write_header(target: &mut dyn Write) -> io::Result<()> {
    let mut header = MAGIC.to_vec();
    header.extend(VERSION.to_le_bytes());
    header.extend(header_checksum(&header).to_le_bytes());
    target.write_all(&header)
}

/// Writes one record.
pub(crate) fn write_record(record: &Record, target: &mut dyn Write) -> io::Result<()> {
    let mut lengths = [0; 12];
    for (at, bytes) in [&record.partition, &record.sort, &record.value].into_iter().enumerate() {
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        lengths[at * 4..at * 4 + 4].copy_from_slice(&length.to_le_bytes());
    }
    let mut hasher = XxHash3_64::new();
    for part in [&lengths[..], &record.partition, &record.sort, &record.value] {
        hasher.write(part);
    }
    target.write_all(&lengths)?;
    target.write_all(&hasher.finish().to_le_bytes())?;
    target.write_all(&record.partition)?;
    target.write_all(&record.sort)?;
    target.write_all(&record.value)
}

/// Writes the end.
pub(crate) fn write_end(count: u64, target: &mut dyn Write) -> io::Result<()> {
    let count = count.to_le_bytes();
    target.write_all(&[0; 12])?;
    target.write_all(&end_checksum(&count).to_le_bytes())?;
    target.write_all(&count)
}

fn header_checksum(bytes: &[u8]) -> u32 {
    (XxHash3_64::oneshot(bytes) & u64::from(u32::MAX)) as u32
}

fn end_checksum(count: &[u8; 8]) -> u64 {
    let mut hasher = XxHash3_64::new();
    hasher.write(&[0; 12]);
    hasher.write(count);
    hasher.finish()
}

fn length(prefix: &[u8; PREFIX_BYTES], at: usize, max: u64) -> Option<usize> {
    let bytes = u64::from(u32_at(prefix, at));
    if bytes <= max { usize::try_from(bytes).ok() } else { None }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_header(&mut bytes).unwrap();
        records.iter().for_each(|record| write_record(record, &mut bytes).unwrap());
        write_end(records.len() as u64, &mut bytes).unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>, TransferError> {
        let source = Tracked::new(Box::new(io::Cursor::new(bytes.to_vec())), "test".into());
        let mut reader = BinaryReader::new(source, SourcePosition::default())?;
        let mut records = Vec::new();
        while let Some(parsed) = reader.next()? {
            records.push(parsed.record.unwrap());
        }
        Ok(records)
    }

    fn samples() -> Vec<Record> {
        let record =
            |at: u8| Record { partition: vec![at + 1], sort: vec![0; at.into()], value: vec![at; 9] };
        (0..4).map(record).collect()
    }

    #[test]
    fn a_whole_file_reads_back_as_it_was_written() {
        assert_eq!(read(&file(&samples())).unwrap(), samples());
        assert_eq!(read(&file(&[])).unwrap(), []);
    }

    #[test]
    fn a_file_cut_at_any_byte_is_an_error_and_never_a_shorter_file() {
        let whole = file(&samples());
        for cut in 0..whole.len() {
            let error = read(&whole[..cut]).unwrap_err();
            let expected = if cut < MAGIC.len() { "NotBinary" } else { "Torn" };
            assert!(format!("{error:?}").starts_with(expected), "cut at {cut}: {error:?}");
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_is_an_error() {
        let whole = file(&samples());
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                assert!(read(&flipped).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_newer_version_says_so() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(header_checksum(&bytes).to_le_bytes());
        assert!(matches!(read(&bytes), Err(TransferError::NewerFormat { found: 2, .. })));
    }
}
