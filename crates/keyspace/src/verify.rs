//! Checks whether the cells of a slot agree with each other, with its counters, and with those of other
//! copies.

use crate::KeyspaceError;
use crate::cell::{self, CellName, DEADLINE, FIELD, HEAD, SESSION, SESSION_USE};
use crate::cells::{CellRef, Cells};
use crate::head::{HEAD_BYTES_MAX, Head, Kind};
use crate::session::Session;
use crate::state::SlotState;
use atoll_engine::Direction;
use std::hash::Hasher;
use std::ops::{Bound, ControlFlow};
use twox_hash::XxHash3_64;

/// A digest of cells in the order in which they are visited.
pub(crate) struct Digest(XxHash3_64);

impl Digest {
    /// The digest of a slot.
    pub(crate) fn of<C: Cells>(cells: &C, slot: u16, state: &SlotState) -> Result<u64, KeyspaceError> {
        let mut digest = Self(XxHash3_64::with_seed(0));
        digest.add(&state.encode());
        let (from, to) = cell::all_of(slot);
        visit(cells, (&from, &to), |name, value| {
            digest.add(name);
            let value = value.to_value();
            digest.add(&value.read(0, value.len())?);
            Ok(())
        })?;
        Ok(digest.0.finish())
    }

    /// Lengths are included so that different sequences of byte strings differ.
    fn add(&mut self, bytes: &[u8]) {
        self.0.write(&(bytes.len() as u64).to_le_bytes());
        self.0.write(bytes);
    }
}

/// Visits a range of cells until `look` fails.
fn visit<C: Cells>(
    cells: &C,
    (from, to): (&[u8], &[u8]),
    mut look: impl FnMut(&[u8], CellRef<'_>) -> Result<(), KeyspaceError>,
) -> Result<(), KeyspaceError> {
    let mut failed = Ok(());
    cells.visit((Bound::Included(from), Bound::Excluded(to)), Direction::Forward, |name, value| {
        failed = look(name, value);
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed
}

/// Checks that the cells of a slot agree with each other and with its state.
pub(crate) fn verify<C: Cells>(cells: &C, slot: u16, state: &SlotState) -> Result<(), KeyspaceError> {
    let wrong = |what| Err(KeyspaceError::Corrupt { what });
    let mut found = SlotContents::default();
    let (from, to) = cell::all_of(slot);
    visit(cells, (&from, &to), |name, value| found.add(name, &value))?;
    if found.keys.len() as u64 != state.keys {
        return wrong("the number of keys");
    }
    if found.sessions.len() as u64 != state.sessions || found.uses != state.sessions {
        return wrong("the number of sessions");
    }
    for (client, session) in &found.sessions {
        if session.used_ms < state.oldest_use_ms {
            return wrong("the first use of all sessions");
        }
        if cells.value(&CellName::session_use(slot, session.used_ms, *client))?.is_none() {
            return wrong("when a session was in use");
        }
    }
    let (mut fields, mut deadlines) = (0, 0);
    for (key, head) in &found.keys {
        if let Some(deadline) = head.deadline_ms {
            deadlines += 1;
            if deadline < state.soonest_ms {
                return wrong("the first of all deadlines");
            }
            if cells.value(&CellName::deadline(slot, deadline, key))?.is_none() {
                return wrong("a deadline");
            }
        }
        if let Kind::Hash { fields: counted } = head.kind {
            let mut seen = 0;
            let range = (&*CellName::fields(slot, key), &*CellName::fields_end(slot, key));
            visit(cells, range, |_, _| {
                seen += 1;
                Ok(())
            })?;
            if counted == 0 || seen != counted {
                return wrong("the number of fields");
            }
            fields += counted;
        }
    }
    match (fields == found.fields, deadlines == found.deadlines) {
        (true, true) => Ok(()),
        (false, _) => wrong("a field without a hash"),
        (_, false) => wrong("a deadline without a key"),
    }
}

/// The keys, fields, deadlines and sessions found in the cells of a slot.
#[derive(Default)]
struct SlotContents {
    keys: Vec<(Vec<u8>, Head)>,
    fields: u64,
    deadlines: u64,
    sessions: Vec<(u128, Session)>,
    uses: u64,
}

impl SlotContents {
    fn add(&mut self, name: &[u8], value: &CellRef<'_>) -> Result<(), KeyspaceError> {
        match name.get(2) {
            Some(&HEAD) => {
                let head = Head::decode(&value.to_value().read(0, HEAD_BYTES_MAX as u64)?)?;
                self.keys.push((cell::key_of_head(name).to_vec(), head));
            }
            Some(&FIELD) => self.fields += 1,
            Some(&DEADLINE) if value.is_empty() => self.deadlines += 1,
            Some(&SESSION) => {
                let client = name.get(3..).and_then(|client| client.try_into().ok());
                let client = client.ok_or(KeyspaceError::Corrupt { what: "the client of a session" })?;
                let session = Session::decode(&value.to_value().read(0, u64::MAX)?)?;
                self.sessions.push((u128::from_be_bytes(client), session));
            }
            Some(&SESSION_USE) if value.is_empty() => self.uses += 1,
            _ => return Err(KeyspaceError::Corrupt { what: "the kind" }),
        }
        Ok(())
    }
}
