//! Pages on disk: the encoding of leaves and inner nodes.
//!
//! Pages are packed tightly, one behind the other, and vary in length. The checksum lies in the referrer.
//!
//! ```text
//! leaf:   1 | prefix | count | record…   record: suffix | value
//!         value: 2 * length, bytes  |  2 * pieces + 1, piece…   piece: home, length, checksum, birth
//! inner:  2 | children | child… | pivot…  child: place | place + 1, place of the delta, its filter
//!         place: offset, length, checksum, birth
//! ```
//! Beside a leaf there may be a page of records put since ([`crate::delta`]). Offsets are multiples of
//! [`UNIT`], and an offset that is one more says that there is such a page.
//!
//! Lengths and numbers are varints, except checksums (u64); strings are length-prefixed.
//!
//! Invariant: decoding is total; a page that passes its checksum and still does not decode is corrupt.

use crate::backing::{Backing, Reading};
use crate::checksum::key_hash;
use crate::codec::{Decoder, Encode, Malformed};
use crate::frames::Purpose;
use crate::leaf::{Leaf, Record};
use crate::node::{Home, HomeCell, Inner, Node, PageRef};
use crate::planted::{self, Bug};
use crate::slot::Slot;
use crate::space::UNIT;
use crate::superblock::DATA_START;
use crate::value::{Chain, INLINE_BELOW, Piece, Stored};
use crate::{Damage, EngineError, KEY_MAX};
use std::sync::Arc;

const LEAF: u8 = 1;
const INNER: u8 = 2;

/// Most inner nodes below each other: with two children each, they would lead to more leaves than there can
/// be. A longer path leads in a circle, or through forged pages.
const LEVELS_MAX: u8 = 64;

/// Before memory is allocated for a page longer than this, which is unusual, the length of the file is
/// checked.
const LONG_PAGE_BYTES: u64 = 1 << 20;

/// Reads and verifies the page of a node with `level` inner nodes above it.
pub(crate) fn read(
    home: &PageRef,
    level: u8,
    reading: Reading,
    backing: &Backing,
) -> Result<Node, EngineError> {
    let bytes = read_bytes(home, reading, backing)?;
    let mut node =
        decode(&bytes, home, level).map_err(|Malformed| backing.corrupt(home.offset, Damage::PageContent))?;
    match &mut node {
        Node::Leaf(leaf) => {
            if let Some(fresh) = leaf.get_mut() {
                fresh.count_in(backing.meter());
            }
        }
        Node::Inner(inner) => {
            if let Some(fresh) = Arc::get_mut(inner) {
                fresh.count_in(backing.meter());
            }
        }
    }
    Ok(node)
}

/// Reads and verifies the bytes of a page.
pub(crate) fn read_bytes(
    home: &PageRef,
    reading: Reading,
    backing: &Backing,
) -> Result<Vec<u8>, EngineError> {
    if home.is_lost() {
        return Err(backing.corrupt(home.offset, Damage::PageChecksum));
    }
    let len = u64::from(home.len);
    if len > LONG_PAGE_BYTES
        && backing.disk().map_or(Ok(0), |disk| disk.len())? < home.offset.saturating_add(len)
    {
        return Err(backing.corrupt(home.offset, Damage::PageChecksum));
    }
    let mut bytes = vec![0; home.len as usize];
    backing.read_as(reading, home.offset, &mut bytes)?;
    if backing.checksum(&bytes) != home.checksum && !planted::is(Bug::PageChecksumIgnored) {
        return Err(backing.corrupt(home.offset, Damage::PageChecksum));
    }
    Ok(bytes)
}

/// Encodes the page of a leaf; `home_of` says where its pieces lie.
pub(crate) fn encode_leaf(leaf: &Leaf, home_of: impl Fn(&Piece) -> u64, page: &mut Vec<u8>) {
    page.put_u8(LEAF);
    page.put_bytes(leaf.prefix());
    page.put_varint(leaf.len() as u64);
    for slot in 0..leaf.len() {
        page.put_bytes(leaf.suffix(slot));
        match leaf.value(slot) {
            Stored::Inline(bytes) => {
                page.put_varint(bytes.len() as u64 * 2);
                page.extend_from_slice(bytes);
            }
            Stored::Chain(chain) => encode_chain(chain, &home_of, page),
        }
    }
}

fn encode_chain(chain: &Chain, home_of: &impl Fn(&Piece) -> u64, page: &mut Vec<u8>) {
    let pieces = chain.pieces();
    page.put_varint(pieces.len() as u64 * 2 + 1);
    for piece in pieces {
        page.put_varint(home_of(piece));
        page.put_varint(u64::from(piece.len()));
        page.put_u64(piece.checksum());
        page.put_varint(piece.birth());
    }
}

/// Encodes the page of an inner node whose children lie at `homes`.
pub(crate) fn encode_inner(inner: &Inner, homes: &[Home], page: &mut Vec<u8>) {
    page.put_u8(INNER);
    page.put_varint(homes.len() as u64);
    for home in homes {
        encode_home(home, page);
    }
    for pivot in inner.pivots() {
        page.put_bytes(pivot);
    }
}

pub(crate) fn encode_ref(home: &PageRef, page: &mut Vec<u8>) {
    page.put_varint(home.offset);
    page.put_varint(u64::from(home.len));
    page.put_u64(home.checksum);
    page.put_varint(home.birth);
}

/// Encodes a place, and that of the delta beside it if there is one.
pub(crate) fn encode_home(home: &Home, page: &mut Vec<u8>) {
    let Home { page: own, delta, filter } = home;
    encode_ref(&PageRef { offset: own.offset + u64::from(delta.is_some()), ..*own }, page);
    if let Some(delta) = delta {
        encode_ref(delta, page);
        page.put_u64(*filter);
    }
}

pub(crate) fn decode_home(page: &mut Decoder<'_>) -> Result<Home, Malformed> {
    let own = decode_ref(page)?;
    Ok(match own.offset % UNIT {
        1 => {
            let own = PageRef { offset: own.offset - 1, ..own };
            Home { page: own, delta: Some(decode_ref(page)?), filter: page.u64()? }
        }
        _ => Home::from(own),
    })
}

pub(crate) fn decode_ref(page: &mut Decoder<'_>) -> Result<PageRef, Malformed> {
    Ok(PageRef {
        offset: page.word()?,
        len: u32::try_from(page.varint()?).map_err(|_| Malformed)?,
        checksum: page.u64()?,
        birth: page.word()?,
    })
}

/// Decodes a page that was read from `home`, with `level` inner nodes above it.
pub(crate) fn decode(bytes: &[u8], home: &PageRef, level: u8) -> Result<Node, Malformed> {
    let mut page = Decoder::new(bytes);
    let node = match page.u8()? {
        LEAF => decode_leaf(&mut page, home)?,
        INNER if level < LEVELS_MAX => decode_inner(&mut page, home, level)?,
        _ => return Err(Malformed),
    };
    if page.is_at_end() { Ok(node) } else { Err(Malformed) }
}

fn decode_leaf(page: &mut Decoder<'_>, home: &PageRef) -> Result<Node, Malformed> {
    let prefix = page.bytes()?;
    if prefix.len() > KEY_MAX {
        return Err(Malformed);
    }
    let count = page.count(2)?;
    let start = *page;
    // Chains first, so that records can refer to them while the leaf is built.
    let mut chains = Vec::new();
    for _ in 0..count {
        page.bytes()?;
        if let Entry::Chain(chain) = decode_value(page)? {
            chains.push(chain);
        }
    }
    let mut again = start;
    let mut next_chain = chains.iter();
    let mut records: Vec<Record<'_>> = Vec::with_capacity(count);
    let mut hashed = prefix.to_vec();
    for _ in 0..count {
        let suffix = again.bytes()?;
        let value = match decode_value(&mut again)? {
            Entry::Inline(bytes) => Stored::Inline(bytes),
            Entry::Chain(_) => Stored::Chain(next_chain.next().ok_or(Malformed)?),
        };
        if records.last().is_some_and(|last| last.key[1] >= suffix)
            || !(1..=KEY_MAX).contains(&(prefix.len() + suffix.len()))
        {
            return Err(Malformed);
        }
        hashed.truncate(prefix.len());
        hashed.extend_from_slice(suffix);
        records.push(Record { key: [prefix, suffix], fingerprint: key_hash(&hashed), value });
    }
    if !Leaf::can_hold(prefix, &records) {
        return Err(Malformed);
    }
    let mut leaf = Leaf::build(prefix, home.birth, &records, 0, Purpose::Reading);
    if let Some(fresh) = leaf.get_mut() {
        fresh.home = HomeCell::at(*home);
    }
    Ok(Node::Leaf(leaf))
}

enum Entry<'a> {
    Inline(&'a [u8]),
    Chain(Chain),
}

fn decode_value<'a>(page: &mut Decoder<'a>) -> Result<Entry<'a>, Malformed> {
    let tag = page.varint()?;
    let number = usize::try_from(tag / 2).map_err(|_| Malformed)?;
    if tag % 2 == 0 {
        if number >= INLINE_BELOW {
            return Err(Malformed);
        }
        return Ok(Entry::Inline(page.take(number)?));
    }
    if number == 0 {
        return Err(Malformed);
    }
    let mut pieces = Vec::new();
    for _ in 0..number {
        let home = page.word()?;
        if home < DATA_START {
            return Err(Malformed);
        }
        let len = u32::try_from(page.varint()?).map_err(|_| Malformed)?;
        pieces.push(Piece::on_disk(home, len, page.u64()?, page.word()?));
    }
    let chain = Chain::from_pieces(pieces);
    if chain.len() > crate::value::VALUE_MAX { Err(Malformed) } else { Ok(Entry::Chain(chain)) }
}

fn decode_inner(page: &mut Decoder<'_>, home: &PageRef, level: u8) -> Result<Node, Malformed> {
    let count = page.count(11)?;
    if count == 0 {
        return Err(Malformed);
    }
    let mut children = Vec::with_capacity(count);
    for _ in 0..count {
        children.push(Slot::below(decode_home(page)?, level + 1));
    }
    let mut pivots: Vec<Box<[u8]>> = Vec::with_capacity(count - 1);
    for _ in 1..count {
        let pivot = page.bytes()?;
        if pivot.len() > KEY_MAX || pivots.last().is_some_and(|last| &**last >= pivot) {
            return Err(Malformed);
        }
        pivots.push(pivot.into());
    }
    Ok(Node::Inner(Arc::new(Inner::read_from(*home, level, pivots, children))))
}
