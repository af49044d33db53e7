//! Stored forms of everything but rows: human-readable JSON, except heads and whole manifests.
//!
//! Heads and session cells are compared as bytes when an edit is committed, so each content has exactly one
//! encoding.

mod bytes;
mod edits;
mod marks;
mod old;
mod tight;
mod whole;

pub(super) use edits::{edit_from_json, edit_to_json};
pub(super) use marks::{mark_from_json, mark_to_json};
pub(super) use tight::{extents_of, tight_box};
pub(super) use whole::{Whole, join_whole, whole_from_bytes, whole_to_bytes};

use super::ledger::SnapshotCell;
use super::{Attributes, Entry, Stage, TableError};
use crate::TableSchema;
use crate::protocol::{Head, Version};
use serde::{Deserialize, Serialize};

/// The format that cells are written with.
const FORMAT: u64 = 1;

/// The newest known format: that of edits which the first release does not know.
const FORMAT_NEWEST: u64 = 2;

#[derive(Serialize, Deserialize)]
struct StoredEntry {
    format: u64,
    id: String,
    schema: serde_json::Value,
    /// Also set for an arriving copy, so that releases that do not know of copies treat it as dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dropped: bool,
    /// Id of the table that this one is to become a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arriving: Option<String>,
}

pub(super) fn entry_to_json(entry: &Entry) -> String {
    // A schema always serializes to valid JSON.
    let schema = serde_json::from_str(&entry.schema.to_json()).unwrap_or_default();
    let arriving = match entry.stage {
        Stage::Arriving { from } => Some(id_to_text(from)),
        Stage::Live | Stage::Dropped => None,
    };
    let (id, dropped) = (id_to_text(entry.id), entry.stage != Stage::Live);
    to_json(&StoredEntry { format: FORMAT, id, schema, dropped, arriving })
}

pub(super) fn entry_from_json(table: &str, text: &[u8]) -> Result<Entry, TableError> {
    let stored: StoredEntry = from_json(table, "its entry", text)?;
    let number =
        |id: &str| u128::from_str_radix(id, 16).map_err(|_| damaged(table, "its id is not a number"));
    let id = number(&stored.id)?;
    let schema = TableSchema::from_json(&stored.schema.to_string())?;
    let stage = match (stored.dropped, stored.arriving) {
        (false, _) => Stage::Live,
        (true, None) => Stage::Dropped,
        (true, Some(from)) => Stage::Arriving { from: number(&from)? },
    };
    Ok(Entry { id, schema, stage })
}

fn id_to_text(id: u128) -> String {
    format!("{id:032x}")
}

/// Encodes a head: a format byte and two big-endian numbers.
pub(super) fn head_to_bytes(head: Head) -> Vec<u8> {
    [&[FORMAT as u8][..], &head.version.0.to_be_bytes(), &head.full.0.to_be_bytes()].concat()
}

pub(super) fn head_from_bytes(table: &str, bytes: &[u8]) -> Result<Head, TableError> {
    let words = bytes.split_first().filter(|(format, words)| **format == FORMAT as u8 && words.len() == 16);
    let (_, words) = words.ok_or_else(|| damaged(table, "its head cannot be read"))?;
    let word = |place: usize| words[place..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
    // No table reaches such a version; the bound lets later code add to a version without overflow.
    let head = Head { version: Version(word(0)), full: Version(word(8)) };
    let is_possible = head.full <= head.version && head.version < Version(u64::MAX / 2);
    if is_possible { Ok(head) } else { Err(damaged(table, "its head names an impossible version")) }
}

#[derive(Serialize, Deserialize)]
struct StoredSession {
    format: u64,
    from: u64,
    /// Time in nanoseconds of the store's clock.
    expires: u64,
}

pub(super) fn session_to_json(from: Version, expires: u64) -> String {
    to_json(&StoredSession { format: FORMAT, from: from.0, expires })
}

/// The lowest version that a session holds, and its expiry time.
pub(super) fn session_from_json(table: &str, text: &[u8]) -> Result<(Version, u64), TableError> {
    let stored: StoredSession = from_json(table, "a session", text)?;
    Ok((Version(stored.from), stored.expires))
}

#[derive(Serialize, Deserialize)]
struct StoredSnapshot {
    format: u64,
    version: u64,
    /// Time in nanoseconds of the store's clock.
    made: u64,
}

pub(super) fn snapshot_to_json(SnapshotCell { version, made }: SnapshotCell) -> String {
    to_json(&StoredSnapshot { format: FORMAT, version: version.0, made })
}

pub(super) fn snapshot_from_json(table: &str, text: &[u8]) -> Result<SnapshotCell, TableError> {
    let stored: StoredSnapshot = from_json(table, "a snapshot", text)?;
    Ok(SnapshotCell { version: Version(stored.version), made: stored.made })
}

pub(super) fn attributes_to_json(attributes: &Attributes) -> String {
    to_json(attributes)
}

pub(super) fn attributes_from_json(table: &str, text: &[u8]) -> Result<Attributes, TableError> {
    serde_json::from_slice(text)
        .map_err(|error| damaged(table, &format!("attributes cannot be read: {error}")))
}

fn to_json(stored: &impl Serialize) -> String {
    // The keys are strings and the numbers plain, so serialization cannot fail.
    serde_json::to_string(stored).unwrap_or_default()
}

fn from_json<'a, T: Deserialize<'a>>(table: &str, what: &str, text: &'a [u8]) -> Result<T, TableError> {
    #[derive(Deserialize)]
    struct Format {
        format: u64,
    }
    let unreadable = |error: serde_json::Error| damaged(table, &format!("{what} cannot be read: {error}"));
    let Format { format } = serde_json::from_slice(text).map_err(unreadable)?;
    if format > FORMAT_NEWEST {
        let newer = crate::SchemaError::NewerFormat { found: format, supported: FORMAT_NEWEST };
        return Err(newer.into());
    }
    serde_json::from_slice(text).map_err(unreadable)
}

pub(super) fn damaged(table: &str, problem: &str) -> TableError {
    TableError::Damaged { table: table.to_owned(), problem: problem.to_owned() }
}
