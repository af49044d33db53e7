//! The byte formats of the toy store: events, whole states, log groups, superblocks.
//!
//! Invariant: decoding never panics; malformed bytes decode to `None`.

use crate::state::{Content, Event, Key, Mutation, RangeMove, State, TREES};
use std::ops::Bound;
use twox_hash::XxHash3_64;

pub(super) const GROUP_HEADER_BYTES: usize = 48;
pub(super) const SUPERBLOCK_BYTES: usize = 64;

/// Reads bytes from the front.
pub(super) struct Source<'a>(pub(super) &'a [u8]);

impl<'a> Source<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(usize::try_from(len).ok()?)
    }

    fn tree(&mut self) -> Option<usize> {
        self.byte().map(usize::from).filter(|tree| *tree < TREES)
    }

    fn bound(&mut self) -> Option<Bound<Key>> {
        Some(match self.byte()? {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.bytes()?.into()),
            2 => Bound::Excluded(self.bytes()?.into()),
            _ => return None,
        })
    }

    fn name(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn mutation(&mut self) -> Option<Mutation> {
        let tag = self.byte()?;
        let tree = self.tree()?;
        Some(match tag {
            0 => Mutation::Put { tree, key: self.bytes()?.into(), value: self.bytes()?.into() },
            1 => Mutation::Append { tree, key: self.bytes()?.into(), bytes: self.bytes()?.into() },
            2 => Mutation::Delete { tree, key: self.bytes()?.into() },
            3 => Mutation::DeleteRange { tree, range: (self.bound()?, self.bound()?) },
            _ => return None,
        })
    }

    /// Decodes an event. With `partial`, an incomplete batch yields the changes that can be decoded.
    pub(super) fn event(&mut self, partial: bool) -> Option<Event> {
        Some(match self.byte()? {
            0 => {
                let mut batch = Vec::new();
                for _ in 0..self.number()? {
                    match self.mutation() {
                        Some(mutation) => batch.push(mutation),
                        None if partial => break,
                        None => return None,
                    }
                }
                Event::Write(batch)
            }
            1 => Event::CreateSnapshot(self.name()?),
            2 => Event::DeleteSnapshot(self.name()?),
            3 => Event::Move(RangeMove::SplitOff {
                tree: self.tree()?,
                to: self.tree()?,
                at: self.bytes()?.into(),
            }),
            4 => Event::Move(RangeMove::Absorb { tree: self.tree()?, from: self.tree()? }),
            _ => return None,
        })
    }

    fn content(&mut self) -> Option<Content> {
        let mut content = Content::default();
        for _ in 0..self.number()? {
            content.put(self.tree()?, &self.bytes()?.into(), self.bytes()?.into());
        }
        Some(content)
    }

    pub(super) fn state(&mut self) -> Option<State> {
        let mut state = State { content: self.content()?, ..State::default() };
        for _ in 0..self.number()? {
            let name = self.name()?;
            state.snapshots.insert(name, self.content()?);
        }
        Some(state)
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn put_bound(out: &mut Vec<u8>, bound: &Bound<Key>) {
    match bound {
        Bound::Unbounded => out.push(0),
        Bound::Included(key) => {
            out.push(1);
            put_bytes(out, key);
        }
        Bound::Excluded(key) => {
            out.push(2);
            put_bytes(out, key);
        }
    }
}

fn put_mutation(out: &mut Vec<u8>, mutation: &Mutation) {
    let (tag, tree) = match mutation {
        Mutation::Put { tree, .. } => (0, *tree),
        Mutation::Append { tree, .. } => (1, *tree),
        Mutation::Delete { tree, .. } => (2, *tree),
        Mutation::DeleteRange { tree, .. } => (3, *tree),
    };
    out.extend([tag, tree as u8]);
    match mutation {
        Mutation::Put { key, value: bytes, .. } | Mutation::Append { key, bytes, .. } => {
            put_bytes(out, key);
            put_bytes(out, bytes);
        }
        Mutation::Delete { key, .. } => put_bytes(out, key),
        Mutation::DeleteRange { range, .. } => {
            put_bound(out, &range.0);
            put_bound(out, &range.1);
        }
    }
}

pub(super) fn put_event(out: &mut Vec<u8>, event: &Event) {
    match event {
        Event::Write(batch) => {
            out.push(0);
            out.extend((batch.len() as u64).to_le_bytes());
            batch.iter().for_each(|mutation| put_mutation(out, mutation));
        }
        Event::CreateSnapshot(name) => {
            out.push(1);
            put_bytes(out, name.as_bytes());
        }
        Event::DeleteSnapshot(name) => {
            out.push(2);
            put_bytes(out, name.as_bytes());
        }
        Event::Move(RangeMove::SplitOff { tree, at, to }) => {
            out.extend([3, *tree as u8, *to as u8]);
            put_bytes(out, at);
        }
        Event::Move(RangeMove::Absorb { tree, from }) => out.extend([4, *tree as u8, *from as u8]),
    }
}

fn put_content(out: &mut Vec<u8>, content: &Content) {
    out.extend((content.entries().count() as u64).to_le_bytes());
    for (tree, key, value) in content.entries() {
        out.push(tree as u8);
        put_bytes(out, key);
        put_bytes(out, value);
    }
}

pub(super) fn put_state(out: &mut Vec<u8>, state: &State) {
    put_content(out, &state.content);
    out.extend((state.snapshots.len() as u64).to_le_bytes());
    for (name, content) in &state.snapshots {
        put_bytes(out, name.as_bytes());
        put_content(out, content);
    }
}

/// Where everything is on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) number: u64,
    /// How often the store was opened. Without it, a group that happens to be rewritten byte for byte after
    /// a crash would lead on to groups that the crash had cut off.
    pub(super) openings: u64,
    pub(super) dump_at: u64,
    pub(super) dump_len: u64,
    pub(super) dump_hash: u64,
    pub(super) log_at: u64,
}

impl Superblock {
    const MAGIC: u64 = u64::from_le_bytes(*b"toystore");

    pub(super) fn encode(&self) -> Vec<u8> {
        let fields = [
            Self::MAGIC,
            self.number,
            self.openings,
            self.dump_at,
            self.dump_len,
            self.dump_hash,
            self.log_at,
        ];
        let mut out: Vec<u8> = fields.into_iter().flat_map(u64::to_le_bytes).collect();
        out.extend(XxHash3_64::oneshot(&out).to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; SUPERBLOCK_BYTES]) -> Option<Self> {
        let mut source = Source(bytes);
        let magic = source.number()?;
        let superblock = Self {
            number: source.number()?,
            openings: source.number()?,
            dump_at: source.number()?,
            dump_len: source.number()?,
            dump_hash: source.number()?,
            log_at: source.number()?,
        };
        let is_whole = XxHash3_64::oneshot(&bytes[..SUPERBLOCK_BYTES - 8]) == source.number()?;
        (magic == Self::MAGIC && is_whole).then_some(superblock)
    }
}

/// The header of a log group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupHeader {
    pub(super) epoch: u64,
    pub(super) opening: u64,
    pub(super) len: u64,
    /// The log position up to which the log was synced when the group was written.
    pub(super) synced_to: u64,
    /// The hash of the previous group.
    pub(super) previous: u64,
    pub(super) hash: u64,
}

impl GroupHeader {
    pub(super) fn seal(mut self, payload: &[u8]) -> Self {
        self.hash = self.hash_with(payload);
        self
    }

    pub(super) fn hash_with(&self, payload: &[u8]) -> u64 {
        let fields = [self.epoch, self.opening, self.len, self.synced_to, self.previous];
        let seed = XxHash3_64::oneshot(&fields.map(u64::to_le_bytes).concat());
        XxHash3_64::oneshot_with_seed(seed, payload)
    }

    pub(super) fn encode(&self) -> [u8; GROUP_HEADER_BYTES] {
        let mut out = [0; GROUP_HEADER_BYTES];
        let fields = [self.epoch, self.opening, self.len, self.synced_to, self.previous, self.hash];
        for (slot, field) in out.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8; GROUP_HEADER_BYTES]) -> Option<Self> {
        let mut source = Source(bytes);
        Some(Self {
            epoch: source.number()?,
            opening: source.number()?,
            len: source.number()?,
            synced_to: source.number()?,
            previous: source.number()?,
            hash: source.number()?,
        })
    }
}
