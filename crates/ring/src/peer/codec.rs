//! Messages between nodes as bytes, and back; no I/O.
//!
//! All numbers are little-endian. Each message travels in a frame of [`atoll_wire`], which adds its length
//! and its checksum.
//!
//! Invariant: bytes from a peer never cause a panic, nor take more memory than what arrived.

use atoll_replica::{
    Entry, Epoch, Incarnation, Message, Moment, Position, Sequence, Slot, SlotMessage, Version,
};
use std::sync::Arc;
use thiserror::Error;

/// What one node sends to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// A message of the replication protocol.
    Message(Message),
    /// Cells of a slot, for a node that has to catch up.
    Piece(Piece),
    /// The sender's clock, in milliseconds since 1970.
    Date(u64),
}

/// Some cells of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) slot: Slot,
    /// The branch of the slot that its sender follows. Each accepted loss starts another one.
    pub(crate) branch: Version,
    /// The last entry applied to the cells; pieces of one transfer share it.
    pub(crate) position: Position,
    /// The date of that entry.
    pub(crate) time_ms: u64,
    /// Numbers the pieces of one transfer, from 0.
    pub(crate) number: u32,
    /// Whether it is the last piece.
    pub(crate) is_last: bool,
    /// Names and values.
    pub(crate) cells: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Bytes that are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a message of a peer is damaged: {problem} at byte {at}")]
pub(crate) struct MessageError {
    problem: &'static str,
    at: usize,
}

const APPEND: u8 = 1;
const APPENDED: u8 = 2;
const REJECTED: u8 = 3;
const LEASE_ASK: u8 = 4;
const LEASE_GRANT: u8 = 5;
const TABLE_IS: u8 = 6;
const PIECE: u8 = 7;
const DATE: u8 = 8;

/// Bytes of a message with one entry, beside the entry's body: the kind, the slot and the epoch; where the
/// entry belongs and what is committed; how many entries there are; the entry's position, its date and the
/// length of its body.
pub(crate) const ONE_ENTRY_BYTES: usize = (1 + 4 + 8) + (16 + 8) + 4 + (16 + 8 + 4);

/// Appends a message to `out`.
pub(crate) fn encode(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Slot { slot, epoch, about } => encode_slot(*slot, *epoch, about, out),
        Message::LeaseAsk { asked_in, round, asked_at, known } => {
            out.push(LEASE_ASK);
            [asked_in.0, *round, asked_at.0, known.0].iter().for_each(|&number| put(number, out));
        }
        Message::LeaseGrant { asked_in, round, asked_at, version } => {
            out.push(LEASE_GRANT);
            [asked_in.0, *round, asked_at.0, version.0].iter().for_each(|&number| put(number, out));
        }
        Message::TableIs { version } => {
            out.push(TABLE_IS);
            put(version.0, out);
        }
    }
}

fn encode_slot(slot: Slot, epoch: Epoch, about: &SlotMessage, out: &mut Vec<u8>) {
    let head = |kind: u8, out: &mut Vec<u8>| {
        out.push(kind);
        out.extend_from_slice(&slot.0.to_le_bytes());
        put(epoch.0, out);
    };
    match about {
        SlotMessage::Append { previous, entries, committed } => {
            head(APPEND, out);
            put_position(*previous, out);
            put(committed.0, out);
            put_entries(entries, out);
        }
        SlotMessage::Appended { matched } => {
            head(APPENDED, out);
            put(matched.0, out);
        }
        SlotMessage::Rejected { hint } => {
            head(REJECTED, out);
            put(hint.0, out);
        }
    }
}

/// Appends a clock reading to `out`.
pub(crate) fn encode_date(date_ms: u64, out: &mut Vec<u8>) {
    out.push(DATE);
    put(date_ms, out);
}

/// Appends cells to `out`.
pub(crate) fn encode_piece(piece: &Piece, out: &mut Vec<u8>) {
    out.push(PIECE);
    out.extend_from_slice(&piece.slot.0.to_le_bytes());
    put(piece.branch.0, out);
    put_position(piece.position, out);
    put(piece.time_ms, out);
    out.extend_from_slice(&piece.number.to_le_bytes());
    out.push(u8::from(piece.is_last));
    out.extend_from_slice(&(piece.cells.len() as u32).to_le_bytes());
    for (name, value) in &piece.cells {
        put_bytes(name, out);
        put_bytes(value, out);
    }
}

/// Appends entries to `out`: their number, then each.
pub(crate) fn put_entries(entries: &[Entry], out: &mut Vec<u8>) {
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for entry in entries {
        put_position(entry.position, out);
        put(entry.time_ms, out);
        put_bytes(&entry.body, out);
    }
}

pub(crate) fn put_position(position: Position, out: &mut Vec<u8>) {
    put(position.epoch.0, out);
    put(position.sequence.0, out);
}

pub(crate) fn put(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads one message, which has to fill `bytes`.
pub(crate) fn decode(bytes: &[u8]) -> Result<Spoken, MessageError> {
    let mut reader = Reader::of(bytes);
    let kind = reader.byte()?;
    let spoken = match kind {
        APPEND | APPENDED | REJECTED => Spoken::Message(decode_slot(kind, &mut reader)?),
        LEASE_ASK => {
            let (asked_in, round) = (Incarnation(reader.number()?), reader.number()?);
            let (asked_at, known) = (Moment(reader.number()?), Version(reader.number()?));
            Spoken::Message(Message::LeaseAsk { asked_in, round, asked_at, known })
        }
        LEASE_GRANT => {
            let (asked_in, round) = (Incarnation(reader.number()?), reader.number()?);
            let (asked_at, version) = (Moment(reader.number()?), Version(reader.number()?));
            Spoken::Message(Message::LeaseGrant { asked_in, round, asked_at, version })
        }
        TABLE_IS => Spoken::Message(Message::TableIs { version: Version(reader.number()?) }),
        PIECE => Spoken::Piece(decode_piece(&mut reader)?),
        DATE => Spoken::Date(reader.number()?),
        _ => return Err(reader.error("an unknown kind")),
    };
    reader.end()?;
    Ok(spoken)
}

fn decode_slot(kind: u8, reader: &mut Reader<'_>) -> Result<Message, MessageError> {
    let (slot, epoch) = (Slot(reader.short()?), Epoch(reader.number()?));
    let about = match kind {
        APPEND => {
            let (previous, committed) = (reader.position()?, Sequence(reader.number()?));
            SlotMessage::Append { previous, committed, entries: reader.entries()? }
        }
        APPENDED => SlotMessage::Appended { matched: Sequence(reader.number()?) },
        _ => SlotMessage::Rejected { hint: Sequence(reader.number()?) },
    };
    Ok(Message::Slot { slot, epoch, about })
}

fn decode_piece(reader: &mut Reader<'_>) -> Result<Piece, MessageError> {
    let (slot, branch) = (Slot(reader.short()?), Version(reader.number()?));
    let (position, time_ms) = (reader.position()?, reader.number()?);
    let (number, is_last) = (reader.short()?, reader.byte()? != 0);
    let count = reader.short()?;
    let mut cells = Vec::new();
    for _ in 0..count {
        cells.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
    }
    Ok(Piece { slot, branch, position, time_ms, number, is_last, cells })
}

/// The rest of a message that is being read.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn error(&self, problem: &'static str) -> MessageError {
        MessageError { problem, at: self.at }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], MessageError> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| self.error("it ends too early"))?;
        self.at += count;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, MessageError> {
        self.take(1).map(|byte| byte.first().copied().unwrap_or_default())
    }

    pub(crate) fn short(&mut self) -> Result<u32, MessageError> {
        let bytes = self.take(4)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    }

    pub(crate) fn number(&mut self) -> Result<u64, MessageError> {
        let bytes = self.take(8)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    pub(crate) fn position(&mut self) -> Result<Position, MessageError> {
        Ok(Position { epoch: Epoch(self.number()?), sequence: Sequence(self.number()?) })
    }

    fn bytes(&mut self) -> Result<&'a [u8], MessageError> {
        let length = self.short()?;
        self.take(length as usize)
    }

    pub(crate) fn entries(&mut self) -> Result<Vec<Entry>, MessageError> {
        let count = self.short()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let (position, time_ms) = (self.position()?, self.number()?);
            entries.push(Entry { position, time_ms, body: Arc::from(self.bytes()?) });
        }
        Ok(entries)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(crate) fn end(&self) -> Result<(), MessageError> {
        if self.is_at_end() { Ok(()) } else { Err(self.error("more than was said")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::encoded;

    fn position(epoch: u64, sequence: u64) -> Position {
        Position { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    fn spoken() -> Vec<Spoken> {
        let entry = |sequence| Entry { position: position(3, sequence), time_ms: 77, body: [9; 5].into() };
        let slot = |about| Spoken::Message(Message::Slot { slot: Slot(16_383), epoch: Epoch(4), about });
        let (entries, previous) = (vec![entry(8), entry(9)], position(2, 7));
        let piece = |is_last| Piece {
            slot: Slot(1),
            branch: Version(3),
            position: position(5, 6),
            time_ms: 8,
            number: 2,
            is_last,
            cells: vec![(b"a".to_vec(), b"".to_vec()), (vec![0; 300], vec![1; 70_000])],
        };
        vec![
            slot(SlotMessage::Append { previous, entries, committed: Sequence(6) }),
            slot(SlotMessage::Append { previous, entries: Vec::new(), committed: Sequence(u64::MAX) }),
            slot(SlotMessage::Appended { matched: Sequence(5) }),
            slot(SlotMessage::Rejected { hint: Sequence(4) }),
            Spoken::Message(Message::LeaseAsk {
                asked_in: Incarnation(1),
                round: 2,
                asked_at: Moment(3),
                known: Version(4),
            }),
            Spoken::Message(Message::LeaseGrant {
                asked_in: Incarnation(5),
                round: 6,
                asked_at: Moment(7),
                version: Version(8),
            }),
            Spoken::Message(Message::TableIs { version: Version(9) }),
            Spoken::Piece(piece(false)),
            Spoken::Piece(piece(true)),
            Spoken::Date(10),
        ]
    }

    #[test]
    fn what_is_said_is_what_is_heard() {
        for spoken in spoken() {
            assert_eq!(decode(&encoded(&spoken)), Ok(spoken));
        }
    }

    #[test]
    fn a_message_with_one_entry_is_as_much_longer_than_its_body_as_it_is_said_to_be() {
        let entry = Entry { position: position(3, 8), time_ms: 77, body: [9; 1_000].into() };
        let (entries, previous) = (vec![entry], position(2, 7));
        let about = SlotMessage::Append { previous, entries, committed: Sequence(6) };
        let message = Message::Slot { slot: Slot(16_383), epoch: Epoch(4), about };
        assert_eq!(encoded(&Spoken::Message(message)).len(), ONE_ENTRY_BYTES + 1_000);
    }

    #[test]
    fn what_is_cut_off_or_has_something_behind_it_is_refused() {
        for spoken in spoken() {
            let bytes = encoded(&spoken);
            (0..bytes.len().min(200))
                .for_each(|end| assert!(decode(&bytes[..end]).is_err(), "{spoken:?} at {end}"));
            assert!(decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn claims_of_much_more_than_arrived_take_no_memory() {
        let mut bytes = Vec::new();
        let about =
            SlotMessage::Append { previous: position(0, 0), entries: Vec::new(), committed: Sequence(0) };
        encode_slot(Slot(0), Epoch(1), &about, &mut bytes);
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decode(&bytes).is_err());
        assert!(decode(&[200]).is_err());
    }
}
