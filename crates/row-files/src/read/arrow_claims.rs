//! Checks the places and lengths that an Arrow file claims, which no checksum covers and its reader trusts.
//!
//! The reader panics on a block or a buffer of a negative length, and on a buffer beyond the end of its
//! message. A compressed buffer begins with its uncompressed length: the decoder allocates that much memory
//! before it looks at a byte, with ZSTD at least where the frame does not contradict the length, and failing
//! to allocate ends the process.
//!
//! Invariant: no block is read that is not within the file, and no buffer that is not within its block.
//! Invariant: no buffer is decompressed that claims more than its codec can make of its bytes, or more than
//! there is memory for. The reader of the file reports any other damage.

use arrow_ipc::reader::read_footer_length;
use arrow_ipc::{Block, CompressionType, Message, MessageHeader, root_as_footer, root_as_message};
use arrow_schema::ArrowError;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// The most that LZ4 can expand one byte to.
const LZ4_EXPANSION_MAX: u64 = 256;

/// The expansion limit of ZSTD: a block has three bytes of header and at least one of content, and yields at
/// most 128 KiB.
const ZSTD_EXPANSION_MAX: u64 = (128 << 10) / 4;

/// Claims below this size are not tested against the available memory.
const CLAIM_TRIED_FROM: u64 = 16 << 20;

/// Length of the length field in front of a buffer.
const LENGTH_BYTES: u64 = 8;

/// The fewest bytes in front of the body of a block: a marker, a length, and a message.
const BLOCK_HEAD_BYTES_MIN: u64 = 8;

/// The marker in front of a message's length, missing only in very old files.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The end mark of a stream: a message of no length.
const END_MARK: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The end mark of very old streams, which have no continuation markers.
const OLD_END_MARK: [u8; 4] = [0; 4];

/// How a file ends, once its reader has no more batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With what ends it, and nothing else.
    Whole,
    /// Without an end mark, or within it.
    Unmarked,
    /// There are bytes behind the end mark.
    Followed,
}

/// Checks the buffers of a file, one batch ahead of its reader.
pub(super) struct Claims {
    file: File,
    pending: PendingBatches,
}

/// The batches that have not been checked yet.
enum PendingBatches {
    Blocks(std::vec::IntoIter<Block>),
    /// All messages from this offset on.
    Stream(u64),
}

impl Claims {
    /// Claims of a file that has a footer. What the reader loads on opening is checked at once.
    pub(super) fn of_file(mut file: File) -> Result<Self, ArrowError> {
        let (dictionaries, batches) = blocks(&mut file).unwrap_or_default();
        for block in dictionaries {
            check_block(&mut file, &block)?;
        }
        Ok(Self { file, pending: PendingBatches::Blocks(batches.into_iter()) })
    }

    pub(super) const fn of_stream(file: File) -> Self {
        Self { file, pending: PendingBatches::Stream(0) }
    }

    /// Checks the next batch, and any messages before it.
    pub(super) fn check_next(&mut self) -> Result<(), ArrowError> {
        match &mut self.pending {
            PendingBatches::Blocks(blocks) => {
                blocks.next().map_or(Ok(()), |block| check_block(&mut self.file, &block))
            }
            PendingBatches::Stream(at) => {
                while let Some((bytes, body)) = bytes_at(&mut self.file, *at) {
                    let Ok(message) = root_as_message(&bytes) else { break };
                    let Ok(length) = u64::try_from(message.bodyLength()) else { break };
                    check(&mut self.file, &message, (body, length))?;
                    *at = body.saturating_add(length);
                    if message.header_type() == MessageHeader::RecordBatch {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// How the file ends, after the last batch was checked. The reader of a stream takes the first end mark
    /// for the end, whatever follows, and the end of the file as well. A file has a footer, which was read.
    pub(super) fn end(&mut self) -> io::Result<End> {
        let PendingBatches::Stream(at) = self.pending else { return Ok(End::Whole) };
        self.file.seek(SeekFrom::Start(at))?;
        let mut rest = Vec::new();
        (&mut self.file).take(END_MARK.len() as u64 + 1).read_to_end(&mut rest)?;
        Ok(match rest.strip_prefix(&END_MARK).or_else(|| rest.strip_prefix(&OLD_END_MARK)) {
            Some([]) => End::Whole,
            Some(_) => End::Followed,
            None => End::Unmarked,
        })
    }
}

/// The places of the dictionaries and batches in the footer; `None` if the footer cannot be read.
fn blocks(file: &mut File) -> Option<(Vec<Block>, Vec<Block>)> {
    let mut end = [0; 10];
    let at = file.seek(SeekFrom::End(-10)).ok()?;
    file.read_exact(&mut end).ok()?;
    let length = read_footer_length(end).ok()? as u64;
    let bytes = read_at(file, at.checked_sub(length)?, length).ok()?;
    let footer = root_as_footer(&bytes).ok()?;
    let dictionaries = footer.dictionaries().into_iter().flatten().copied().collect();
    Some((dictionaries, footer.recordBatches().into_iter().flatten().copied().collect()))
}

/// Checks that a block lies in the file, and the buffers of its message.
fn check_block(file: &mut File, block: &Block) -> Result<(), ArrowError> {
    let claimed = [block.offset(), block.metaDataLength().into(), block.bodyLength()];
    let [Ok(at), Ok(length), Ok(body)] = claimed.map(u64::try_from) else {
        return Err(damaged("a block of it has a negative place or length"));
    };
    let end = at.checked_add(length).and_then(|end| end.checked_add(body));
    let file_length = file.seek(SeekFrom::End(0))?;
    if length < BLOCK_HEAD_BYTES_MIN || end.is_none_or(|end| end > file_length) {
        return Err(damaged("a block of it does not lie in the file"));
    }
    let bytes = read_at(file, at, length)?;
    let before = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    // The reader would look for the message in the body as well, where nothing was checked.
    let message = root_as_message(bytes.get(before..).unwrap_or_default());
    let message = message.map_err(|_| damaged("a block of it does not begin with a message"))?;
    check(file, &message, (at.saturating_add(length), body))
}

fn damaged(problem: &str) -> ArrowError {
    ArrowError::IpcError(problem.to_owned())
}

/// The message at an offset of a stream, and where its body begins; `None` at the end.
fn bytes_at(file: &mut File, at: u64) -> Option<(Vec<u8>, u64)> {
    let number = |file: &mut File, at: u64| <[u8; 4]>::try_from(read_at(file, at, 4).ok()?).ok();
    let first = number(file, at)?;
    let (length, begin) = match first == CONTINUATION {
        true => (number(file, at.checked_add(4)?)?, at.checked_add(8)?),
        false => (first, at.checked_add(4)?),
    };
    let length = u64::try_from(i32::from_le_bytes(length)).ok().filter(|length| *length > 0)?;
    Some((read_at(file, begin, length).ok()?, begin.checked_add(length)?))
}

/// Checks the buffers of a message whose body has this place and length.
fn check(file: &mut File, message: &Message<'_>, (body, length): (u64, u64)) -> Result<(), ArrowError> {
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|batch| batch.data()),
        _ => None,
    };
    let mut buffers = Vec::new();
    for buffer in batch.as_ref().and_then(|batch| batch.buffers()).into_iter().flatten() {
        let place = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
        match place {
            (Ok(from), Ok(bytes)) if from.checked_add(bytes).is_some_and(|end| end <= length) => {
                buffers.push((from, bytes));
            }
            _ => return Err(damaged("a buffer of it does not lie in its block")),
        }
    }
    let codec = batch.and_then(|batch| batch.compression()).map(|compression| compression.codec());
    let (name, expansion_max) = match codec {
        Some(CompressionType::LZ4_FRAME) => ("LZ4", LZ4_EXPANSION_MAX),
        Some(CompressionType::ZSTD) => ("ZSTD", ZSTD_EXPANSION_MAX),
        // The reader refuses any other codec.
        _ => return Ok(()),
    };
    for (from, bytes) in buffers {
        let Some(compressed) = bytes.checked_sub(LENGTH_BYTES) else { continue };
        let Ok(claimed) = read_at(file, body.saturating_add(from), LENGTH_BYTES) else { continue };
        // A negative length marks a buffer that is not compressed.
        let claimed = <[u8; 8]>::try_from(claimed).map_or(0, i64::from_le_bytes);
        let Ok(claimed) = u64::try_from(claimed) else { continue };
        let problem = if claimed > compressed.saturating_mul(expansion_max) {
            "which is impossible"
        } else if !has_memory_for(claimed) {
            "for which there is no memory"
        } else {
            continue;
        };
        let said = format!("{compressed} bytes of {name} claim to expand to {claimed} bytes, {problem}");
        return Err(ArrowError::IpcError(said));
    }
    Ok(())
}

/// Whether the system would allocate this much.
fn has_memory_for(bytes: u64) -> bool {
    let is_given = |bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
    bytes < CLAIM_TRIED_FROM || usize::try_from(bytes).is_ok_and(is_given)
}

/// Exactly `length` bytes from the offset `at`.
fn read_at(file: &mut File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    // Grows with the bytes that exist, whatever the length says.
    let read = file.take(length).read_to_end(&mut bytes)?;
    if read as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
