//! Encoding of every operation of the contract, and of the owner's snapshot operations.
//!
//! A request is one byte of operation and its arguments in the order of the trait. Codes are never reused.

use super::bytes::{DecodeError, Reader, Writer};
use atoll_store::{
    Batch, Buffer, ByteRange, Condition, Direction, Durability, Expectation, Mutation, PartitionQuery, Place,
    Projection, Read, ReadOptions, RequestId, ScanRequest, SortRange, Split, Token, WriteOptions,
};
use std::ops::Bound;
use std::time::Duration;

type Decoded<T> = Result<T, DecodeError>;

/// One call of the contract, as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `get`.
    Get(Vec<u8>, Vec<u8>, ReadOptions),
    /// `get_many`.
    GetMany(Vec<Read>),
    /// `write`.
    Write(Batch, WriteOptions),
    /// `create`.
    Create(Vec<u8>, Vec<u8>, Buffer, WriteOptions),
    /// `delete_partition`.
    DeletePartition(Vec<u8>, WriteOptions),
    /// `scan`.
    Scan(ScanRequest),
    /// `wait`.
    Wait(Vec<u8>, Vec<u8>, Expectation, Duration),
    /// `partition_keys`.
    PartitionKeys(PartitionQuery),
    /// `splits`.
    Splits(u64),
    /// `place`.
    Place(Vec<u8>),
    /// `now`.
    Now,
    /// `sync`.
    Sync,
    /// Creates a named snapshot of the present state.
    CreateSnapshot(String),
    /// Deletes a named snapshot.
    DeleteSnapshot(String),
}

impl Request {
    /// Whether it changes the store.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Write(..)
                | Self::Create(..)
                | Self::DeletePartition(..)
                | Self::CreateSnapshot(_)
                | Self::DeleteSnapshot(_)
        )
    }

    /// The id under which a write may be repeated.
    #[must_use]
    pub const fn request_id(&self) -> Option<RequestId> {
        match self {
            Self::Write(_, options) | Self::Create(_, _, _, options) | Self::DeletePartition(_, options) => {
                options.request
            }
            _ => None,
        }
    }

    /// The class that a write of cells asks for, with none inside for the default; none for other requests.
    #[must_use]
    pub const fn durability(&self) -> Option<Option<Durability>> {
        match self {
            Self::Write(_, options) | Self::Create(_, _, _, options) | Self::DeletePartition(_, options) => {
                Some(options.durability)
            }
            _ => None,
        }
    }

    /// Whether it waits for a value.
    #[must_use]
    pub const fn is_wait(&self) -> bool {
        matches!(self, Self::Wait(..))
    }

    /// The same request with its time shortened by `elapsed`, if its time is limited.
    #[must_use]
    pub fn after(&self, elapsed: Duration) -> Option<Self> {
        let left = self.time()?.saturating_sub(elapsed);
        let mut later = self.clone();
        match &mut later {
            Self::Write(_, options) | Self::Create(_, _, _, options) | Self::DeletePartition(_, options) => {
                options.deadline = Some(left);
            }
            Self::Get(_, _, options) => options.deadline = Some(left),
            Self::Wait(.., time_out) => *time_out = left,
            _ => {}
        }
        Some(later)
    }

    /// How long the caller waits.
    #[must_use]
    pub const fn time(&self) -> Option<Duration> {
        match self {
            Self::Write(_, options) | Self::Create(_, _, _, options) | Self::DeletePartition(_, options) => {
                options.deadline
            }
            Self::Get(_, _, options) => options.deadline,
            Self::Wait(.., time_out) => Some(*time_out),
            _ => None,
        }
    }

    /// Its name in messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Get(..) => "get",
            Self::GetMany(_) => "get_many",
            Self::Write(..) => "write",
            Self::Create(..) => "create",
            Self::DeletePartition(..) => "delete_partition",
            Self::Scan(_) => "scan",
            Self::Wait(..) => "wait",
            Self::PartitionKeys(_) => "partition_keys",
            Self::Splits(_) => "splits",
            Self::Place(_) => "place",
            Self::Now => "now",
            Self::Sync => "sync",
            Self::CreateSnapshot(_) => "create_snapshot",
            Self::DeleteSnapshot(_) => "delete_snapshot",
        }
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Get(partition, sort, options) => {
                to.byte(1);
                to.counted(partition);
                to.counted(sort);
                range(&mut to, options.range);
                to.flag(options.immutable);
                to.option(options.deadline, Writer::duration);
            }
            Self::GetMany(reads) => {
                to.byte(2);
                to.count(reads.len());
                reads.iter().for_each(|one| read(&mut to, one));
            }
            Self::Write(batch, options) => {
                to.byte(3);
                write_options(&mut to, options);
                write_batch(&mut to, batch);
            }
            Self::Create(partition, sort, value, options) => {
                to.byte(4);
                write_options(&mut to, options);
                [partition, sort, value.as_slice()].into_iter().for_each(|bytes| to.counted(bytes));
            }
            Self::DeletePartition(partition, options) => {
                to.byte(5);
                write_options(&mut to, options);
                to.counted(partition);
            }
            Self::Scan(request) => {
                to.byte(6);
                write_scan(&mut to, request);
            }
            Self::Wait(partition, sort, expectation, time_out) => {
                to.byte(7);
                to.counted(partition);
                to.counted(sort);
                let (Expectation::Equals(value) | Expectation::Differs(value)) = expectation;
                to.flag(matches!(expectation, Expectation::Equals(_)));
                to.option(value.as_deref(), Writer::counted);
                to.duration(*time_out);
            }
            Self::PartitionKeys(query) => {
                to.byte(8);
                to.counted(&query.prefix);
                to.option(query.split.as_ref(), split);
                to.count(query.limit);
                token(&mut to, query.resume.as_ref());
            }
            Self::Splits(readers) => {
                to.byte(9);
                to.number(*readers);
            }
            Self::Place(partition) => {
                to.byte(10);
                to.counted(partition);
            }
            Self::Now => to.byte(11),
            Self::Sync => to.byte(12),
            Self::CreateSnapshot(name) => snapshot(&mut to, 13, name),
            Self::DeleteSnapshot(name) => snapshot(&mut to, 14, name),
        }
        to.bytes
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that are not a request.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut from = Reader::new(bytes);
        let request = match from.byte("operation")? {
            1 => Self::Get(key(&mut from)?, key(&mut from)?, read_options(&mut from)?),
            2 => Self::GetMany(from.many(5, "reads", read_one)?),
            3 => {
                let options = read_write_options(&mut from)?;
                Self::Write(read_batch(&mut from)?, options)
            }
            4 => {
                let options = read_write_options(&mut from)?;
                Self::Create(key(&mut from)?, key(&mut from)?, key(&mut from)?.into(), options)
            }
            5 => {
                let options = read_write_options(&mut from)?;
                Self::DeletePartition(key(&mut from)?, options)
            }
            6 => Self::Scan(read_scan(&mut from)?),
            7 => Self::Wait(
                key(&mut from)?,
                key(&mut from)?,
                read_expectation(&mut from)?,
                from.duration("time-out")?,
            ),
            8 => Self::PartitionKeys(PartitionQuery {
                prefix: key(&mut from)?,
                split: from.option("split", read_split)?,
                limit: from.size("limit")?,
                resume: read_token(&mut from)?,
            }),
            9 => Self::Splits(from.number("readers")?),
            10 => Self::Place(key(&mut from)?),
            11 => Self::Now,
            12 => Self::Sync,
            13 => Self::CreateSnapshot(from.text("name")?),
            14 => Self::DeleteSnapshot(from.text("name")?),
            _ => return Err(from.error("operation")),
        };
        from.end(request)
    }
}

fn key(from: &mut Reader<'_>) -> Decoded<Vec<u8>> {
    from.counted("key").map(<[u8]>::to_vec)
}

fn snapshot(to: &mut Writer, operation: u8, name: &str) {
    to.byte(operation);
    to.counted(name.as_bytes());
}

fn range(to: &mut Writer, range: ByteRange) {
    to.number(range.offset);
    to.option(range.len, Writer::number);
}

fn read_range(from: &mut Reader<'_>) -> Decoded<ByteRange> {
    Ok(ByteRange {
        offset: from.number("offset")?,
        len: from.option("length", |from| from.number("length"))?,
    })
}

fn read_options(from: &mut Reader<'_>) -> Decoded<ReadOptions> {
    Ok(ReadOptions {
        range: read_range(from)?,
        immutable: from.flag("immutable")?,
        deadline: from.option("deadline", |from| from.duration("deadline"))?,
    })
}

fn read(to: &mut Writer, read: &Read) {
    to.counted(&read.partition);
    to.counted(&read.sort);
    range(to, read.range);
    to.flag(read.immutable);
}

fn read_one(from: &mut Reader<'_>) -> Decoded<Read> {
    Ok(Read {
        partition: key(from)?,
        sort: key(from)?,
        range: read_range(from)?,
        immutable: from.flag("immutable")?,
    })
}

fn write_options(to: &mut Writer, options: &WriteOptions) {
    to.option(options.durability, durability);
    to.option(options.deadline, Writer::duration);
    to.option(options.request, |to, request| {
        to.bytes.extend_from_slice(&request.client.to_le_bytes());
        to.number(request.sequence);
    });
}

fn read_write_options(from: &mut Reader<'_>) -> Decoded<WriteOptions> {
    Ok(WriteOptions {
        durability: from.option("durability", read_durability)?,
        deadline: from.option("deadline", |from| from.duration("deadline"))?,
        request: from.option("request", |from| {
            let mut client = [0; 16];
            for byte in &mut client {
                *byte = from.byte("client")?;
            }
            Ok(RequestId { client: u128::from_le_bytes(client), sequence: from.number("sequence")? })
        })?,
    })
}

pub(super) fn durability(to: &mut Writer, class: Durability) {
    to.byte(match class {
        Durability::Buffered => 0,
        Durability::Flushed => 1,
        Durability::Synced => 2,
    });
}

pub(super) fn read_durability(from: &mut Reader<'_>) -> Decoded<Durability> {
    let code = from.byte("durability")?;
    Durability::ALL.get(usize::from(code)).copied().ok_or(from.error("durability"))
}

fn write_batch(to: &mut Writer, batch: &Batch) {
    to.counted(&batch.partition);
    to.count(batch.conditions.len());
    for condition in &batch.conditions {
        to.counted(condition.sort());
        let value = if let Condition::Equals(_, value) = condition { Some(value.as_slice()) } else { None };
        to.option(value, Writer::counted);
    }
    to.count(batch.mutations.len());
    for mutation in &batch.mutations {
        write_mutation(to, mutation);
    }
}

fn write_mutation(to: &mut Writer, mutation: &Mutation) {
    match mutation {
        Mutation::Put(sort, value) => {
            to.byte(1);
            to.counted(sort);
            to.counted(value);
        }
        Mutation::Append(sort, value) => {
            to.byte(2);
            to.counted(sort);
            to.counted(value);
        }
        Mutation::Delete(sort) => {
            to.byte(3);
            to.counted(sort);
        }
        Mutation::DeleteRange(range) => {
            to.byte(4);
            sort_range(to, range);
        }
    }
}

fn read_batch(from: &mut Reader<'_>) -> Decoded<Batch> {
    Ok(Batch {
        partition: key(from)?,
        conditions: from.many(2, "conditions", |from| {
            let sort = key(from)?;
            Ok(match from.option("value", |from| from.buffer("value"))? {
                None => Condition::Absent(sort),
                Some(value) => Condition::Equals(sort, value),
            })
        })?,
        mutations: from.many(2, "mutations", |from| match from.byte("mutation")? {
            1 => Ok(Mutation::Put(key(from)?, from.buffer("value")?)),
            2 => Ok(Mutation::Append(key(from)?, from.buffer("value")?)),
            3 => Ok(Mutation::Delete(key(from)?)),
            4 => Ok(Mutation::DeleteRange(read_sort_range(from)?)),
            _ => Err(from.error("mutation")),
        })?,
    })
}

fn sort_range(to: &mut Writer, range: &SortRange) {
    for bound in [&range.from, &range.to] {
        match bound {
            Bound::Unbounded => to.byte(0),
            Bound::Included(sort) => {
                to.byte(1);
                to.counted(sort);
            }
            Bound::Excluded(sort) => {
                to.byte(2);
                to.counted(sort);
            }
        }
    }
}

fn read_sort_range(from: &mut Reader<'_>) -> Decoded<SortRange> {
    let mut bound = || match from.byte("bound")? {
        0 => Ok(Bound::Unbounded),
        1 => key(from).map(Bound::Included),
        2 => key(from).map(Bound::Excluded),
        _ => Err(from.error("bound")),
    };
    Ok(SortRange { from: bound()?, to: bound()? })
}

fn write_scan(to: &mut Writer, request: &ScanRequest) {
    to.counted(&request.partition);
    sort_range(to, &request.range);
    to.flag(request.direction == Direction::Backward);
    match request.projection {
        Projection::KeysOnly => to.byte(0),
        Projection::Values => to.byte(1),
        Projection::Bytes(bytes) => {
            to.byte(2);
            range(to, bytes);
        }
    }
    to.count(request.limit);
    token(to, request.resume.as_ref());
}

fn read_scan(from: &mut Reader<'_>) -> Decoded<ScanRequest> {
    Ok(ScanRequest {
        partition: key(from)?,
        range: read_sort_range(from)?,
        direction: if from.flag("direction")? { Direction::Backward } else { Direction::Forward },
        projection: match from.byte("projection")? {
            0 => Projection::KeysOnly,
            1 => Projection::Values,
            2 => Projection::Bytes(read_range(from)?),
            _ => return Err(from.error("projection")),
        },
        limit: from.size("limit")?,
        resume: read_token(from)?,
    })
}

fn read_expectation(from: &mut Reader<'_>) -> Decoded<Expectation> {
    let equals = from.flag("expectation")?;
    let value = from.option("value", |from| from.buffer("value"))?;
    Ok(if equals { Expectation::Equals(value) } else { Expectation::Differs(value) })
}

pub(super) fn token(to: &mut Writer, token: Option<&Token>) {
    to.option(token, |to, token| to.counted(&token.0));
}

pub(super) fn read_token(from: &mut Reader<'_>) -> Decoded<Option<Token>> {
    from.option("token", |from| key(from).map(Token))
}

pub(super) fn split(to: &mut Writer, split: &Split) {
    to.counted(&split.token.0);
    place(to, &split.place);
}

pub(super) fn read_split(from: &mut Reader<'_>) -> Decoded<Split> {
    Ok(Split { token: Token(key(from)?), place: read_place(from)? })
}

pub(super) fn place(to: &mut Writer, place: &Place) {
    let host = if let Place::Host(host) = place { Some(host.as_bytes()) } else { None };
    to.option(host, Writer::counted);
}

pub(super) fn read_place(from: &mut Reader<'_>) -> Decoded<Place> {
    Ok(from.option("host", |from| from.text("host"))?.map_or(Place::Here, Place::Host))
}
