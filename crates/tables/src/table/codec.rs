//! What is stored of a table beside its rows, as JSON that a person can read.
//!
//! Heads and session cells are compared as bytes when an edit becomes true, so one content has one encoding.

use super::{Entry, TableError};
use crate::TableSchema;
use crate::protocol::{
    Block, BlockId, Edit, EditId, Extent, Head, Life, Manifest, ObjectId, Piece, Placed, Removal, Run, RunId,
    Scope, SessionId, StepRange, Tombstone, Version, WeightRange,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The newest format that is known, of each kind of cell.
const FORMAT: u64 = 1;

#[derive(Serialize, Deserialize)]
struct StoredEntry {
    format: u64,
    id: String,
    schema: serde_json::Value,
}

pub(super) fn entry_to_json(entry: &Entry) -> String {
    // A schema writes valid JSON.
    let schema = serde_json::from_str(&entry.schema.to_json()).unwrap_or_default();
    to_json(&StoredEntry { format: FORMAT, id: format!("{:032x}", entry.id), schema })
}

pub(super) fn entry_from_json(table: &str, text: &[u8]) -> Result<Entry, TableError> {
    let stored: StoredEntry = from_json(table, "its entry", text)?;
    let id = u128::from_str_radix(&stored.id, 16).map_err(|_| damaged(table, "its id is no number"))?;
    Ok(Entry { id, schema: TableSchema::from_json(&stored.schema.to_string())? })
}

/// A head: a format byte and two numbers, big-endian.
pub(super) fn head_to_bytes(head: Head) -> Vec<u8> {
    [&[FORMAT as u8][..], &head.version.0.to_be_bytes(), &head.full.0.to_be_bytes()].concat()
}

pub(super) fn head_from_bytes(table: &str, bytes: &[u8]) -> Result<Head, TableError> {
    let words = bytes.split_first().filter(|(format, words)| **format == FORMAT as u8 && words.len() == 16);
    let (_, words) = words.ok_or_else(|| damaged(table, "its head cannot be read"))?;
    let word = |place: usize| words[place..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
    Ok(Head { version: Version(word(0)), full: Version(word(8)) })
}

#[derive(Serialize, Deserialize)]
struct StoredSession {
    format: u64,
    from: u64,
    /// Nanoseconds of the store's clock.
    expires: u64,
}

pub(super) fn session_to_json(from: Version, expires: u64) -> String {
    to_json(&StoredSession { format: FORMAT, from: from.0, expires })
}

#[derive(Serialize, Deserialize)]
struct StoredPiece {
    object: (String, u64),
    part: u32,
    weights: (u64, Option<u64>),
    rows: u64,
    run: Option<String>,
    steps: (u64, Option<u64>),
}

#[derive(Serialize, Deserialize)]
struct StoredPlaced {
    piece: StoredPiece,
    born: u64,
    clean_to: u64,
}

#[derive(Serialize, Deserialize)]
struct StoredScope {
    run: Option<String>,
    steps: (u64, Option<u64>),
    expression: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredBlock {
    run: String,
    attempt: u64,
    step: u64,
    rank: u32,
    piece: Option<StoredPiece>,
}

#[derive(Serialize, Deserialize)]
struct StoredRemoval {
    object: (String, u64),
    part: u32,
    weights: (u64, Option<u64>),
    rows: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredEdit {
    Begin { run: String, attempt: u64, ranks: u32 },
    Append { blocks: Vec<StoredBlock> },
    Pack { base: u64, remove: Vec<StoredRemoval>, add: Vec<StoredPiece>, dropped: u64 },
    Delete { scope: StoredScope },
    RaiseFloor { to: u64 },
    Forget { objects: Vec<(String, u64)> },
}

#[derive(Serialize, Deserialize)]
struct StoredNamedEdit {
    format: u64,
    session: String,
    sequence: u64,
    edit: StoredEdit,
}

pub(super) fn edit_to_json(id: EditId, edit: &Edit) -> String {
    let session = session_name(id.session);
    to_json(&StoredNamedEdit { format: FORMAT, session, sequence: id.sequence, edit: edit.into() })
}

pub(super) fn edit_from_json(table: &str, text: &[u8]) -> Result<(EditId, Edit), TableError> {
    let stored: StoredNamedEdit = from_json(table, "an edit", text)?;
    let session = session_of(&stored.session).ok_or_else(|| damaged(table, "an edit has no session"))?;
    let edit = edit_of(stored.edit).ok_or_else(|| damaged(table, "an edit names no object"))?;
    Ok((EditId { session, sequence: stored.sequence }, edit))
}

/// The blocks of one step that have come: by rank, none for a rank without rows.
type StoredRanks = Vec<(u32, Option<StoredPlaced>)>;

#[derive(Serialize, Deserialize)]
struct StoredRun {
    attempt: u64,
    ranks: u32,
    published: Option<u64>,
    complete: Vec<(u64, u64)>,
    arriving: Vec<(u64, StoredRanks)>,
}

#[derive(Serialize, Deserialize)]
struct StoredManifest {
    format: u64,
    version: u64,
    floor: u64,
    pieces: Vec<StoredPlaced>,
    runs: BTreeMap<String, StoredRun>,
    tombstones: Vec<(u64, StoredScope)>,
    retired: Vec<((String, u64), u64, u64)>,
}

pub(super) fn manifest_to_json(manifest: &Manifest) -> String {
    let runs = manifest.runs.iter().map(|(name, run)| (name.0.to_string(), StoredRun::from(run)));
    let tombstones = manifest.tombstones.iter();
    let retired = manifest.retired.iter();
    to_json(&StoredManifest {
        format: FORMAT,
        version: manifest.version.0,
        floor: manifest.floor.0,
        pieces: manifest.pieces.values().map(StoredPlaced::from).collect(),
        runs: runs.collect(),
        tombstones: tombstones.map(|one| (one.version.0, StoredScope::from(&one.scope))).collect(),
        retired: retired.map(|(object, life)| (object_name(*object), life.born.0, life.retired.0)).collect(),
    })
}

pub(super) fn manifest_from_json(table: &str, text: &[u8]) -> Result<Manifest, TableError> {
    let stored: StoredManifest = from_json(table, "a manifest", text)?;
    manifest_of(stored).ok_or_else(|| damaged(table, "a manifest names no object"))
}

fn manifest_of(stored: StoredManifest) -> Option<Manifest> {
    let mut manifest =
        Manifest { version: Version(stored.version), floor: Version(stored.floor), ..Manifest::default() };
    for placed in stored.pieces {
        let placed = placed_of(placed)?;
        manifest.pieces.insert(placed.piece.key(), placed);
    }
    for (name, run) in stored.runs {
        manifest.runs.insert(RunId::from(name.as_str()), run_of(run)?);
    }
    let tombstones = stored.tombstones.into_iter();
    manifest.tombstones = tombstones
        .map(|(version, scope)| Tombstone { version: Version(version), scope: scope_of(scope) })
        .collect();
    for (object, born, retired) in stored.retired {
        let life = Life { born: Version(born), retired: Version(retired) };
        manifest.retired.insert(object_of(&object)?, life);
    }
    Some(manifest)
}

impl From<&Piece> for StoredPiece {
    fn from(piece: &Piece) -> Self {
        Self {
            object: object_name(piece.object),
            part: piece.part,
            weights: (piece.weights.from, piece.weights.to),
            rows: piece.rows,
            run: piece.extent.run.as_ref().map(|run| run.0.to_string()),
            steps: (piece.extent.steps.from, piece.extent.steps.to),
        }
    }
}

fn piece_of(stored: StoredPiece) -> Option<Piece> {
    Some(Piece {
        object: object_of(&stored.object)?,
        part: stored.part,
        weights: weights_of(stored.weights),
        rows: stored.rows,
        extent: Extent { run: stored.run.as_deref().map(RunId::from), steps: steps_of(stored.steps) },
    })
}

impl From<&Placed> for StoredPlaced {
    fn from(placed: &Placed) -> Self {
        Self { piece: (&placed.piece).into(), born: placed.born.0, clean_to: placed.clean_to.0 }
    }
}

fn placed_of(stored: StoredPlaced) -> Option<Placed> {
    let (born, clean_to) = (Version(stored.born), Version(stored.clean_to));
    Some(Placed { piece: piece_of(stored.piece)?, born, clean_to })
}

impl From<&Scope> for StoredScope {
    fn from(scope: &Scope) -> Self {
        Self {
            run: scope.run.as_ref().map(|run| run.0.to_string()),
            steps: (scope.steps.from, scope.steps.to),
            expression: scope.expression.as_deref().map(str::to_owned),
        }
    }
}

fn scope_of(stored: StoredScope) -> Scope {
    Scope {
        run: stored.run.as_deref().map(RunId::from),
        steps: steps_of(stored.steps),
        expression: stored.expression.map(Into::into),
    }
}

impl From<&Run> for StoredRun {
    fn from(run: &Run) -> Self {
        let ranks = |ranks: &BTreeMap<u32, Option<Placed>>| {
            ranks.iter().map(|(rank, placed)| (*rank, placed.as_ref().map(Into::into))).collect()
        };
        Self {
            attempt: run.attempt,
            ranks: run.ranks,
            published: run.published,
            complete: run.complete.iter().map(|(step, attempt)| (*step, *attempt)).collect(),
            arriving: run.arriving.iter().map(|(step, blocks)| (*step, ranks(blocks))).collect(),
        }
    }
}

fn run_of(stored: StoredRun) -> Option<Run> {
    let mut arriving = BTreeMap::new();
    for (step, blocks) in stored.arriving {
        let mut ranks = BTreeMap::new();
        for (rank, placed) in blocks {
            let placed = match placed {
                Some(placed) => Some(placed_of(placed)?),
                None => None,
            };
            ranks.insert(rank, placed);
        }
        arriving.insert(step, ranks);
    }
    let complete = stored.complete.into_iter().collect();
    Some(Run {
        attempt: stored.attempt,
        ranks: stored.ranks,
        published: stored.published,
        complete,
        arriving,
    })
}

impl From<&Edit> for StoredEdit {
    fn from(edit: &Edit) -> Self {
        match edit {
            Edit::Begin { run, attempt, ranks } => {
                Self::Begin { run: run.0.to_string(), attempt: *attempt, ranks: *ranks }
            }
            Edit::Append { blocks } => Self::Append { blocks: blocks.iter().map(stored_block).collect() },
            Edit::Pack { base, remove, add, dropped } => Self::Pack {
                base: base.0,
                remove: remove.iter().map(stored_removal).collect(),
                add: add.iter().map(Into::into).collect(),
                dropped: *dropped,
            },
            Edit::Delete { scope } => Self::Delete { scope: scope.into() },
            Edit::RaiseFloor { to } => Self::RaiseFloor { to: to.0 },
            Edit::Forget { objects } => {
                Self::Forget { objects: objects.iter().map(|object| object_name(*object)).collect() }
            }
        }
    }
}

fn stored_block(block: &Block) -> StoredBlock {
    let BlockId { run, attempt, step, rank } = &block.id;
    let piece = block.piece.as_ref().map(Into::into);
    StoredBlock { run: run.0.to_string(), attempt: *attempt, step: *step, rank: *rank, piece }
}

fn stored_removal(removal: &Removal) -> StoredRemoval {
    StoredRemoval {
        object: object_name(removal.object),
        part: removal.part,
        weights: (removal.weights.from, removal.weights.to),
        rows: removal.rows,
    }
}

fn edit_of(stored: StoredEdit) -> Option<Edit> {
    Some(match stored {
        StoredEdit::Begin { run, attempt, ranks } => Edit::Begin { run: run.as_str().into(), attempt, ranks },
        StoredEdit::Append { blocks } => {
            Edit::Append { blocks: blocks.into_iter().map(block_of).collect::<Option<_>>()? }
        }
        StoredEdit::Pack { base, remove, add, dropped } => Edit::Pack {
            base: Version(base),
            remove: remove.into_iter().map(removal_of).collect::<Option<_>>()?,
            add: add.into_iter().map(piece_of).collect::<Option<_>>()?,
            dropped,
        },
        StoredEdit::Delete { scope } => Edit::Delete { scope: scope_of(scope) },
        StoredEdit::RaiseFloor { to } => Edit::RaiseFloor { to: Version(to) },
        StoredEdit::Forget { objects } => {
            Edit::Forget { objects: objects.iter().map(object_of).collect::<Option<_>>()? }
        }
    })
}

fn block_of(stored: StoredBlock) -> Option<Block> {
    let piece = match stored.piece {
        Some(piece) => Some(piece_of(piece)?),
        None => None,
    };
    let run = stored.run.as_str().into();
    let id = BlockId { run, attempt: stored.attempt, step: stored.step, rank: stored.rank };
    Some(Block { id, piece })
}

fn removal_of(stored: StoredRemoval) -> Option<Removal> {
    let object = object_of(&stored.object)?;
    Some(Removal { object, part: stored.part, weights: weights_of(stored.weights), rows: stored.rows })
}

fn weights_of((from, to): (u64, Option<u64>)) -> WeightRange {
    WeightRange { from, to }
}

fn steps_of((from, to): (u64, Option<u64>)) -> StepRange {
    StepRange { from, to }
}

fn object_name(object: ObjectId) -> (String, u64) {
    (session_name(object.session), object.sequence)
}

fn object_of((session, sequence): &(String, u64)) -> Option<ObjectId> {
    Some(ObjectId { session: session_of(session)?, sequence: *sequence })
}

fn session_name(session: SessionId) -> String {
    format!("{:032x}", session.0)
}

fn session_of(name: &str) -> Option<SessionId> {
    u128::from_str_radix(name, 16).ok().map(SessionId)
}

fn to_json(stored: &impl Serialize) -> String {
    // Strings as keys and plain numbers: nothing here can fail to be written.
    serde_json::to_string(stored).unwrap_or_default()
}

fn from_json<'a, T: Deserialize<'a>>(table: &str, what: &str, text: &'a [u8]) -> Result<T, TableError> {
    #[derive(Deserialize)]
    struct Format {
        format: u64,
    }
    let unreadable = |error: serde_json::Error| damaged(table, &format!("{what} cannot be read: {error}"));
    let Format { format } = serde_json::from_slice(text).map_err(unreadable)?;
    if format > FORMAT {
        let newer = crate::SchemaError::NewerFormat { found: format, supported: FORMAT };
        return Err(newer.into());
    }
    serde_json::from_slice(text).map_err(unreadable)
}

pub(super) fn damaged(table: &str, problem: &str) -> TableError {
    TableError::Damaged { table: table.to_owned(), problem: problem.to_owned() }
}
