//! Refuses tables that have rows in common: one table under two names, such as two hosts of a ring, or beside
//! a copy of its store. Every such row would count twice.
//!
//! Copies of a store from before its first rows are different tables, although they have one identity: a
//! store may be a template of others. So the rows decide, by the objects that hold them.
//!
//! A pack moves rows to objects that the other table never named, so objects that a pack or a delete replaced
//! count too, if both tables still show some step alike. Once a vacuum has forgotten them, the marks of
//! attempts decide ([`AttemptId`]): a copy has those of its original, and a step that both show of an attempt
//! with one mark counts as the same rows. Attempts from before there were marks have none; of those, a packed
//! copy can no longer be told from a table of its own.

use super::Table;
use crate::TableError;
use crate::protocol::{AttemptId, Manifest, ObjectId, Run};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Refuses tables of which two have rows in common in these versions, as far as their objects and marks tell.
pub(super) async fn check_distinct(tables: &[Table], manifests: &[Arc<Manifest>]) -> Result<(), TableError> {
    let mut of_identity: BTreeMap<u128, Vec<(usize, &Manifest)>> = BTreeMap::new();
    for ((place, table), manifest) in (1..).zip(tables).zip(manifests) {
        of_identity.entry(table.identity()).or_default().push((place, &**manifest));
    }
    let several: Vec<_> = of_identity.into_values().filter(|alike| alike.len() > 1).collect();
    for alike in several {
        let mut first_with: BTreeMap<ObjectId, usize> = BTreeMap::new();
        for (place, manifest) in &alike {
            for piece in manifest.pieces.keys() {
                let first = *first_with.entry(piece.object).or_insert(*place);
                if first != *place {
                    return Err(TableError::SameTable { first, second: *place });
                }
            }
        }
        check_replaced(&alike)?;
        check_marks(tables, &alike).await?;
    }
    Ok(())
}

/// Refuses two tables that know an object in common, even if it was replaced since, and show a step alike.
fn check_replaced(alike: &[(usize, &Manifest)]) -> Result<(), TableError> {
    let mut known_to: BTreeMap<ObjectId, Vec<(usize, &Manifest)>> = BTreeMap::new();
    for (place, manifest) in alike {
        let objects = manifest.pieces.keys().map(|key| key.object).chain(manifest.retired.keys().copied());
        for object in objects.collect::<BTreeSet<_>>() {
            known_to.entry(object).or_default().push((*place, *manifest));
        }
    }
    // Most pairs have many objects in common or none, so each is compared once.
    let mut pairs: BTreeMap<(usize, usize), (&Manifest, &Manifest)> = BTreeMap::new();
    for known in known_to.values() {
        for (at, (first, one)) in known.iter().enumerate() {
            pairs
                .extend(known.iter().skip(at + 1).map(|(second, other)| ((*first, *second), (*one, *other))));
        }
    }
    match pairs.into_iter().find(|(_, (one, other))| show_a_step_alike(one, other)) {
        Some(((first, second), _)) => Err(TableError::SameTable { first, second }),
        None => Ok(()),
    }
}

/// Refuses two tables that show a step alike, of an attempt that has one mark in both.
async fn check_marks(tables: &[Table], alike: &[(usize, &Manifest)]) -> Result<(), TableError> {
    let mut marked: BTreeMap<(AttemptId, u128), Vec<(usize, &Manifest)>> = BTreeMap::new();
    for (place, manifest) in alike {
        let Some(table) = place.checked_sub(1).and_then(|at| tables.get(at)) else { continue };
        for marks in table.ledger.marks_of(manifest.shown_attempts()).await? {
            marked.entry(marks).or_default().push((*place, *manifest));
        }
    }
    for ((attempt, _), there) in &marked {
        for (at, (first, one)) in there.iter().enumerate() {
            let mut later = there.iter().skip(at + 1);
            if let Some((second, _)) = later.find(|(_, other)| show_alike_of(attempt, one, other)) {
                return Err(TableError::SameTable { first: *first, second: *second });
            }
        }
    }
    Ok(())
}

/// Whether both show a step of the same run, attempt, time and number of rows. Two tables that know an object
/// in common and do not have lost, one or the other, all rows that they had in common.
fn show_a_step_alike(one: &Manifest, other: &Manifest) -> bool {
    one.runs.iter().any(|(name, run)| other.runs.get(name).is_some_and(|others| has_alike(run, others, None)))
}

/// The same for the steps of one attempt.
fn show_alike_of(attempt: &AttemptId, one: &Manifest, other: &Manifest) -> bool {
    let runs = one.runs.get(&attempt.run).zip(other.runs.get(&attempt.run));
    runs.is_some_and(|(run, others)| has_alike(run, others, Some(attempt.attempt)))
}

/// Whether both runs have a step with rows alike, of this attempt if one is given.
fn has_alike(run: &Run, others: &Run, attempt: Option<u64>) -> bool {
    let steps = run.complete.iter().filter(|(_, there)| !there.is_deleted && there.rows > 0);
    let mut shown = steps.filter(|(_, there)| attempt.is_none_or(|only| there.attempt == only));
    shown.any(|(step, there)| others.complete.get(step) == Some(there))
}
