//! The JSON whole manifests of the first tables, without times and rows of steps. Only read, never written.

use super::edits::{StoredPiece, StoredScope, object_of, piece_of, scope_of};
use super::{TableError, damaged, from_json};
use crate::protocol::{Arrived, Life, Manifest, Placed, Published, Run, RunId, Tombstone, Version};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct StoredPlaced {
    piece: StoredPiece,
    born: u64,
    clean_to: u64,
}

/// The blocks received of one step, by rank; `None` for a rank without rows.
type StoredRanks = Vec<(u32, Option<StoredPlaced>)>;

#[derive(Deserialize)]
struct StoredRun {
    attempt: u64,
    ranks: u32,
    published: Option<u64>,
    complete: Vec<(u64, u64)>,
    arriving: Vec<(u64, StoredRanks)>,
}

#[derive(Deserialize)]
struct StoredManifest {
    version: u64,
    floor: u64,
    pieces: Vec<StoredPlaced>,
    runs: BTreeMap<String, StoredRun>,
    tombstones: Vec<(u64, StoredScope)>,
    retired: Vec<((String, u64), u64, u64)>,
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
    let mut runs = Vec::new();
    let rows = rows_of_steps(&manifest);
    for (name, run) in stored.runs {
        let rows = |step| rows.get(&(name.as_str(), step)).copied().unwrap_or_default();
        let run = run_of(run, rows)?;
        runs.push((RunId::from(name.as_str()), run));
    }
    manifest.runs.extend(runs);
    let tombstones = stored.tombstones.into_iter();
    manifest.tombstones = tombstones
        .map(|(version, scope)| Tombstone { version: Version(version), scope: scope_of(scope) })
        .collect();
    for (object, born, retired) in stored.retired {
        let life = Life { born: Version(born), retired: Version(retired) };
        manifest.retired.insert(object_of(&object)?, life);
    }
    manifest.count();
    Some(manifest)
}

/// The rows of each step, added up from its blocks: nothing was packed in this format.
fn rows_of_steps(manifest: &Manifest) -> BTreeMap<(&str, u64), u64> {
    let mut rows = BTreeMap::new();
    for Placed { piece, .. } in manifest.pieces.values() {
        if let Some(run) = &piece.extent.run {
            *rows.entry((&*run.0, piece.extent.steps.from)).or_default() += piece.rows;
        }
    }
    rows
}

fn placed_of(stored: StoredPlaced) -> Option<Placed> {
    let (born, clean_to) = (Version(stored.born), Version(stored.clean_to));
    Some(Placed { piece: piece_of(stored.piece)?, born, clean_to })
}

fn run_of(stored: StoredRun, rows: impl Fn(u64) -> u64) -> Option<Run> {
    let mut arriving = BTreeMap::new();
    for (step, blocks) in stored.arriving {
        let mut ranks = BTreeMap::new();
        for (rank, placed) in blocks {
            let placed = match placed {
                Some(placed) => Some(placed_of(placed)?),
                None => None,
            };
            ranks.insert(rank, Arrived { time: None, placed });
        }
        arriving.insert(step, ranks);
    }
    let published =
        |(step, attempt)| (step, Published { attempt, time: None, rows: rows(step), is_deleted: false });
    Some(Run {
        attempt: stored.attempt,
        ranks: stored.ranks,
        published: stored.published,
        complete: stored.complete.into_iter().map(published).collect(),
        arriving,
    })
}
