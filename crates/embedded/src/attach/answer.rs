//! Encoding of the contract's answers: a value of the operation's type, or an error.

use super::bytes::{DecodeError, Reader, Writer};
use super::fault::{read_error, write_error};
use super::request::{durability, place, read_durability, read_place, read_split, read_token, split, token};
use atoll_store::{
    Buffer, Capabilities, Limits, PartitionPage, Place, ScanEntry, ScanPage, Split, StoreError, Timestamp,
    Waited, Written,
};

type Decoded<T> = Result<T, DecodeError>;

/// A value that can be sent in an answer.
pub(crate) trait Travels: Sized {
    fn write(&self, to: &mut Writer);
    fn read(from: &mut Reader<'_>) -> Decoded<Self>;
}

/// The bytes of an answer.
pub(crate) fn encode<T: Travels>(answer: &Result<T, StoreError>) -> Vec<u8> {
    let mut to = Writer::default();
    write_answer(&mut to, answer);
    to.bytes
}

/// Reads an answer: the store's result, or an error if the bytes are no answer.
pub(crate) fn decode<T: Travels>(bytes: &[u8]) -> Decoded<Result<T, StoreError>> {
    let mut from = Reader::new(bytes);
    let answer = read_answer(&mut from)?;
    from.end(answer)
}

fn write_answer<T: Travels>(to: &mut Writer, answer: &Result<T, StoreError>) {
    to.flag(answer.is_ok());
    match answer {
        Ok(value) => value.write(to),
        Err(error) => write_error(to, error),
    }
}

fn read_answer<T: Travels>(from: &mut Reader<'_>) -> Decoded<Result<T, StoreError>> {
    Ok(if from.flag("outcome")? { Ok(T::read(from)?) } else { Err(read_error(from)?) })
}

/// The bytes of one answer of many, with the index of its read.
pub(crate) fn encode_one(index: usize, answer: &Result<Option<Buffer>, StoreError>) -> Vec<u8> {
    let mut to = Writer::default();
    to.count(index);
    write_answer(&mut to, answer);
    to.bytes
}

/// Reads one answer of many.
pub(crate) fn decode_one(bytes: &[u8]) -> Decoded<(usize, Result<Option<Buffer>, StoreError>)> {
    let mut from = Reader::new(bytes);
    let answer = (from.size("index")?, read_answer(&mut from)?);
    from.end(answer)
}

impl Travels for () {
    fn write(&self, _: &mut Writer) {}

    fn read(_: &mut Reader<'_>) -> Decoded<Self> {
        Ok(())
    }
}

/// The commit sequence number of a snapshot.
impl Travels for u64 {
    fn write(&self, to: &mut Writer) {
        to.number(*self);
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        from.number("sequence")
    }
}

impl Travels for Option<Buffer> {
    fn write(&self, to: &mut Writer) {
        to.option(self.as_deref(), Writer::counted);
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        from.option("value", |from| from.buffer("value"))
    }
}

impl Travels for Written {
    fn write(&self, to: &mut Writer) {
        durability(to, self.durability);
        to.flag(self.repeated);
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self { durability: read_durability(from)?, repeated: from.flag("repeated")? })
    }
}

impl Travels for ScanPage {
    fn write(&self, to: &mut Writer) {
        to.count(self.entries.len());
        for entry in &self.entries {
            to.counted(&entry.sort);
            to.counted(&entry.value);
            to.number(entry.value_bytes);
        }
        token(to, self.resume.as_ref());
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        let entries = from.many(3, "entries", |from| {
            Ok(ScanEntry {
                sort: from.counted("sort key")?.to_vec(),
                value: from.buffer("value")?,
                value_bytes: from.number("length")?,
            })
        })?;
        Ok(Self { entries, resume: read_token(from)? })
    }
}

impl Travels for Waited {
    fn write(&self, to: &mut Writer) {
        let met = if let Self::Met(value) = self { Some(value) } else { None };
        to.option(met, |to, value| value.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        Ok(from.option("wait", Option::<Buffer>::read)?.map_or(Self::TimedOut, Self::Met))
    }
}

impl Travels for PartitionPage {
    fn write(&self, to: &mut Writer) {
        to.count(self.partitions.len());
        self.partitions.iter().for_each(|partition| to.counted(partition));
        token(to, self.resume.as_ref());
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        let partitions =
            from.many(1, "partitions", |from| from.counted("partition key").map(<[u8]>::to_vec))?;
        Ok(Self { partitions, resume: read_token(from)? })
    }
}

impl Travels for Vec<Split> {
    fn write(&self, to: &mut Writer) {
        to.count(self.len());
        self.iter().for_each(|one| split(to, one));
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        from.many(2, "splits", read_split)
    }
}

impl Travels for Place {
    fn write(&self, to: &mut Writer) {
        place(to, self);
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        read_place(from)
    }
}

impl Travels for Timestamp {
    fn write(&self, to: &mut Writer) {
        to.number(self.0);
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        from.number("time").map(Self)
    }
}

impl Travels for Capabilities {
    fn write(&self, to: &mut Writer) {
        let limits = &self.limits;
        for size in [limits.partition_key_bytes, limits.sort_key_bytes, limits.condition_bytes] {
            to.count(size);
        }
        to.number(limits.value_bytes);
        for size in [limits.batch_operations, limits.batch_bytes, limits.page_bytes] {
            to.count(size);
        }
        to.count(self.durability.len());
        self.durability.iter().for_each(|&class| durability(to, class));
        durability(to, self.durability_default);
        to.flag(self.cheap_scans_across_large_values);
        to.count(self.waiters_max);
        to.duration(self.wait_latency);
        to.count(self.parallelism_best);
        to.duration(self.round_trip);
        to.duration(self.request_memory);
        to.count(self.request_memory_count);
    }

    fn read(from: &mut Reader<'_>) -> Decoded<Self> {
        let limits = Limits {
            partition_key_bytes: from.size("limit")?,
            sort_key_bytes: from.size("limit")?,
            condition_bytes: from.size("limit")?,
            value_bytes: from.number("limit")?,
            batch_operations: from.size("limit")?,
            batch_bytes: from.size("limit")?,
            page_bytes: from.size("limit")?,
        };
        Ok(Self {
            limits,
            durability: from.many(1, "durability", read_durability)?,
            durability_default: read_durability(from)?,
            cheap_scans_across_large_values: from.flag("cheap scans")?,
            waiters_max: from.size("waiters")?,
            wait_latency: from.duration("wait latency")?,
            parallelism_best: from.size("parallelism")?,
            round_trip: from.duration("round trip")?,
            request_memory: from.duration("request memory")?,
            request_memory_count: from.size("request memory")?,
        })
    }
}
