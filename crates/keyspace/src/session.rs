//! A session: the latest writes of a client, which a slot remembers so that none is done twice.
//!
//! ```text
//! time of use, floor, then for each write: its number, the length of its answer, its answer
//! ```
//! Numbers have eight bytes and lengths two, little-endian. An answer of length zero stands for `OK`.
//!
//! Invariant: for a write below the floor that is not listed it is unknown whether it was done.

use crate::{KeyspaceError, REQUESTS_MAX};

/// The answer of most writes.
const OK: &[u8] = b"+OK\r\n";

/// The writes of a client that a slot remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// When it was last in use, approximately, in milliseconds since 1970.
    pub(crate) used_ms: u64,
    floor: u64,
    /// In the order of their numbers.
    writes: Vec<(u64, Vec<u8>)>,
}

/// What is known about a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known<'a> {
    /// It was not done.
    Fresh,
    /// It was done, with this answer.
    Done(&'a [u8]),
    /// It is too old to know.
    Forgotten,
}

impl Session {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, KeyspaceError> {
        Self::read(bytes).ok_or(KeyspaceError::Corrupt { what: "a session" })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |bytes: &mut &[u8]| {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            Some(u64::from_le_bytes(*number))
        };
        let mut rest = bytes;
        let (used_ms, floor) = (number(&mut rest)?, number(&mut rest)?);
        let mut writes = Vec::new();
        while !rest.is_empty() {
            let sequence = number(&mut rest)?;
            let (length, behind) = rest.split_first_chunk()?;
            let (answer, behind) = behind.split_at_checked(u16::from_le_bytes(*length).into())?;
            rest = behind;
            writes.push((sequence, if answer.is_empty() { OK.to_vec() } else { answer.to_vec() }));
        }
        Some(Self { used_ms, floor, writes })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.used_ms.to_le_bytes(), self.floor.to_le_bytes()].concat();
        for (sequence, answer) in &self.writes {
            let answer = if answer == OK { &[][..] } else { answer };
            let length = u16::try_from(answer.len()).unwrap_or(u16::MAX);
            bytes.extend_from_slice(&sequence.to_le_bytes());
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(answer);
        }
        bytes
    }

    /// What is known about a write.
    pub(crate) fn known(&self, sequence: u64) -> Known<'_> {
        match self.writes.binary_search_by_key(&sequence, |(sequence, _)| *sequence) {
            Ok(place) => self.writes.get(place).map_or(Known::Fresh, |(_, answer)| Known::Done(answer)),
            Err(_) if sequence < self.floor => Known::Forgotten,
            Err(_) => Known::Fresh,
        }
    }

    /// Remembers the answer of a write. Forgets the writes below the floor, and the one with the lowest
    /// number if there are too many.
    pub(crate) fn remember(&mut self, sequence: u64, floor: u64, answer: &[u8]) {
        self.floor = self.floor.max(floor);
        self.writes.retain(|(other, _)| *other >= floor);
        let place = self.writes.partition_point(|(other, _)| *other < sequence);
        self.writes.insert(place, (sequence, answer.to_vec()));
        if self.writes.len() > REQUESTS_MAX {
            let (lowest, _) = self.writes.remove(0);
            self.floor = self.floor.max(lowest.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_as_they_were_written_and_cut_ones_are_none() {
        let mut session = Session { used_ms: 7, ..Session::default() };
        session.remember(9, 0, OK);
        session.remember(3, 0, b":12\r\n");
        let bytes = session.encode();
        assert_eq!(Session::decode(&bytes).unwrap(), session);
        for cut in (0..bytes.len()).filter(|cut| ![16, 31].contains(cut)) {
            assert!(Session::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn the_latest_writes_are_known_and_nothing_below_them_is_taken_for_new() {
        let mut session = Session::default();
        let last = REQUESTS_MAX as u64 + 9;
        for sequence in (0..=last).filter(|sequence| *sequence != 20) {
            session.remember(sequence, 0, b":1\r\n");
        }
        assert_eq!(session.known(20), Known::Fresh, "it is late, and nobody took its place");
        assert_eq!(session.known(last), Known::Done(b":1\r\n"));
        assert_eq!(session.known(last + 1), Known::Fresh);
        assert_eq!(session.known(8), Known::Forgotten);
        session.remember(20, 0, OK);
        assert_eq!((session.known(9), session.known(20)), (Known::Forgotten, Known::Done(OK)));
        session.remember(u64::MAX, 0, OK);
        assert_eq!(session.known(u64::MAX), Known::Done(OK));
    }

    #[test]
    fn what_is_never_asked_for_again_is_let_go_of() {
        let mut session = Session::default();
        (1..=9).for_each(|sequence| session.remember(sequence, sequence.saturating_sub(2), OK));
        assert_eq!(session.writes.len(), 3);
        assert_eq!((session.known(6), session.known(7)), (Known::Forgotten, Known::Done(OK)));
    }
}
