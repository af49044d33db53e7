//! Archives of NumPy arrays: ZIP files as NumPy writes them, stored or deflated, including ones beyond 4 GiB.
//!
//! Reads the directory at the end of the file and the members it names, side by side, each from a place of
//! its own. They share one file handle: a table may have more columns than a process may open files.

use flate2::CrcReader;
use flate2::read::DeflateDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const END_BYTES: usize = 22;
const END_MAGIC: u32 = 0x0605_4b50;
const LOCATOR_BYTES: u64 = 20;
const LOCATOR_MAGIC: u32 = 0x0706_4b50;
const WIDE_END_BYTES: usize = 56;
const WIDE_END_MAGIC: u32 = 0x0606_4b50;
const ENTRY_BYTES: usize = 46;
const ENTRY_MAGIC: u32 = 0x0201_4b50;
const LOCAL_BYTES: usize = 30;
const LOCAL_MAGIC: u32 = 0x0403_4b50;
/// The most bytes of a directory; a larger one would name a million columns and must be damage.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// The most arrays of an archive, several times as many as a table has columns. Each takes memory while all
/// are read side by side.
const ARRAYS_MAX: usize = 4096;
/// Bytes of a member that are read at a time.
const BUFFER_BYTES: usize = 16 << 10;

/// The directory of an archive.
pub(super) struct Archive {
    file: Arc<File>,
    pub(super) entries: Vec<Entry>,
}

/// A member of an archive.
pub(super) struct Entry {
    pub(super) name: String,
    method: u16,
    checksum: u32,
    packed_bytes: u64,
    offset: u64,
}

/// A member that is being read.
pub(super) struct Member {
    bytes: CrcReader<Unpacked>,
    checksum: u32,
}

enum Unpacked {
    Stored(BufReader<Stretch>),
    Deflated(DeflateDecoder<BufReader<Stretch>>),
}

/// A stretch of a file.
struct Stretch {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Stretch {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(target.len());
        let count = self.file.read_at(&mut target[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

impl Read for Unpacked {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stored(bytes) => bytes.read(target),
            Self::Deflated(bytes) => bytes.read(target),
        }
    }
}

impl Read for Member {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(target)
    }
}

impl Member {
    /// Whether the bytes that were read, to the end, match the checksum.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.bytes.crc().sum() == self.checksum {
            Ok(())
        } else {
            Err("an array does not match its checksum".to_owned())
        }
    }
}

impl Archive {
    /// Reads the directory.
    pub(super) fn open(file: File) -> Result<Self, String> {
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        let (offset, bytes, count) = directory_place(&file, length)?;
        if bytes > DIRECTORY_BYTES_MAX || offset.checked_add(bytes).is_none_or(|end| end > length) {
            return Err("its directory is damaged".to_owned());
        }
        let directory = bytes_at(&file, offset, bytes as usize)?;
        let (mut entries, mut seen) = (Vec::new(), 0);
        let mut rest = directory.as_slice();
        while rest.len() >= ENTRY_BYTES && u32_at(rest, 0) == ENTRY_MAGIC {
            let (entry, used) = entry(rest)?;
            seen += 1;
            if entry.name.ends_with(".npy") {
                entries.push(entry);
            } else {
                // Other files are ignored once their headers have been checked.
                entry.place(&file)?;
            }
            if entries.len() > ARRAYS_MAX {
                return Err(format!("it has more than {ARRAYS_MAX} arrays"));
            }
            rest = rest.get(used..).ok_or("its directory is cut off")?;
        }
        match count.filter(|count| *count != seen) {
            Some(count) => Err(format!("its directory is damaged: {seen} of {count} arrays are in it")),
            None => Ok(Self { file: Arc::new(file), entries }),
        }
    }

    /// Opens one of its members.
    pub(super) fn member(&self, entry: &Entry) -> Result<Member, String> {
        let at = entry.place(&self.file)?;
        let packed = Stretch { file: Arc::clone(&self.file), at, left: entry.packed_bytes };
        let packed = BufReader::with_capacity(BUFFER_BYTES, packed);
        let unpacked = match entry.method {
            0 => Unpacked::Stored(packed),
            8 => Unpacked::Deflated(DeflateDecoder::new(packed)),
            other => {
                return Err(format!(
                    "array \"{}\" is compressed with method {other}, which is not supported",
                    entry.name
                ));
            }
        };
        Ok(Member { bytes: CrcReader::new(unpacked), checksum: entry.checksum })
    }
}

impl Entry {
    /// Where the bytes of the member begin, after a local header that repeats its name.
    fn place(&self, file: &File) -> Result<u64, String> {
        let elsewhere = || format!("array \"{}\" is not where the directory says", self.name);
        let local = bytes_at(file, self.offset, LOCAL_BYTES)?;
        if u32_at(&local, 0) != LOCAL_MAGIC {
            return Err(elsewhere());
        }
        let (name_bytes, extra_bytes) = (u16_at(&local, 26), u16_at(&local, 28));
        let name_place = self.offset.checked_add(LOCAL_BYTES as u64).ok_or_else(elsewhere)?;
        let name = bytes_at(file, name_place, name_bytes.into())?;
        if String::from_utf8_lossy(&name) != self.name {
            return Err(elsewhere());
        }
        Ok(name_place + u64::from(name_bytes) + u64::from(extra_bytes))
    }
}

/// The offset and the length of the directory, and the number of its entries if known.
fn directory_place(file: &File, length: u64) -> Result<(u64, u64, Option<u64>), String> {
    let none = || "it does not end as an archive does".to_owned();
    let tail_bytes = length.min((END_BYTES + 0xffff) as u64);
    let tail = bytes_at(file, length - tail_bytes, tail_bytes as usize)?;
    let last = tail.len().checked_sub(END_BYTES).ok_or_else(none)?;
    let place = (0..=last).rev().find(|place| u32_at(&tail, *place) == END_MAGIC).ok_or_else(none)?;
    let (bytes, offset) = (u32_at(&tail, place + 12), u32_at(&tail, place + 16));
    if bytes != u32::MAX && offset != u32::MAX {
        let count = u16_at(&tail, place + 10);
        // If these fields are at their maximum, the true values may be stored elsewhere.
        return Ok((offset.into(), bytes.into(), (count != u16::MAX).then_some(count.into())));
    }
    let end = length - tail_bytes + place as u64;
    let locator = bytes_at(file, end.checked_sub(LOCATOR_BYTES).ok_or_else(none)?, LOCATOR_BYTES as usize)?;
    if u32_at(&locator, 0) != LOCATOR_MAGIC {
        return Err(none());
    }
    let wide = bytes_at(file, u64_at(&locator, 8), WIDE_END_BYTES)?;
    if u32_at(&wide, 0) != WIDE_END_MAGIC {
        return Err(none());
    }
    Ok((u64_at(&wide, 48), u64_at(&wide, 40), Some(u64_at(&wide, 32))))
}

/// An entry of the directory, and its length in bytes.
fn entry(bytes: &[u8]) -> Result<(Entry, usize), String> {
    let cut = || "its directory is cut off".to_owned();
    let (name_bytes, extra_bytes, comment_bytes) =
        (usize::from(u16_at(bytes, 28)), usize::from(u16_at(bytes, 30)), usize::from(u16_at(bytes, 32)));
    let name = bytes.get(ENTRY_BYTES..ENTRY_BYTES + name_bytes).ok_or_else(cut)?;
    let extra_start = ENTRY_BYTES + name_bytes;
    let extra = bytes.get(extra_start..extra_start + extra_bytes).ok_or_else(cut)?;
    let (packed, unpacked, offset) = (u32_at(bytes, 20), u32_at(bytes, 24), u32_at(bytes, 42));
    let mut wide = wide_numbers(extra).into_iter();
    let mut number = |narrow: u32| {
        if narrow == u32::MAX { wide.next().ok_or_else(cut) } else { Ok(u64::from(narrow)) }
    };
    // In this order, and only the values that do not fit in their fields.
    number(unpacked)?;
    let (packed_bytes, offset) = (number(packed)?, number(offset)?);
    let entry = Entry {
        name: String::from_utf8_lossy(name).into_owned(),
        method: u16_at(bytes, 10),
        checksum: u32_at(bytes, 16),
        packed_bytes,
        offset,
    };
    Ok((entry, extra_start + extra_bytes + comment_bytes))
}

/// The 64-bit numbers in the extra field of an entry.
fn wide_numbers(mut extra: &[u8]) -> Vec<u64> {
    while extra.len() >= 4 {
        let (id, bytes) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(content) = extra.get(4..4 + bytes) else { break };
        if id == 1 {
            return content.chunks_exact(8).map(|number| u64_at(number, 0)).collect();
        }
        extra = &extra[4 + bytes..];
    }
    Vec::new()
}

fn bytes_at(file: &File, offset: u64, bytes: usize) -> Result<Vec<u8>, String> {
    let mut read = vec![0; bytes];
    file.read_exact_at(&mut read, offset).map_err(|error| format!("it is cut off: {error}"))?;
    Ok(read)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
