//! Refuses tables that have rows in common: one table under two names, such as two hosts of a ring, or beside
//! a copy of its store. Every such row would count twice.
//!
//! Copies of a store from before its first rows are different tables, although they have one identity: a
//! store may be a template of others. So the rows decide, by the objects that hold them.

use super::Table;
use crate::TableError;
use crate::protocol::{Manifest, ObjectId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Refuses tables of which two have an object in common in these versions.
pub(super) fn check_distinct(tables: &[Table], manifests: &[Arc<Manifest>]) -> Result<(), TableError> {
    let mut of_identity: BTreeMap<u128, Vec<(usize, &Manifest)>> = BTreeMap::new();
    for ((place, table), manifest) in (1..).zip(tables).zip(manifests) {
        of_identity.entry(table.identity()).or_default().push((place, &**manifest));
    }
    for (_, alike) in of_identity.into_iter().filter(|(_, alike)| alike.len() > 1) {
        let mut first_with: BTreeMap<ObjectId, usize> = BTreeMap::new();
        for (place, manifest) in alike {
            for piece in manifest.pieces.keys() {
                let first = *first_with.entry(piece.object).or_insert(place);
                if first != place {
                    return Err(TableError::SameTable { first, second: place });
                }
            }
        }
    }
    Ok(())
}
