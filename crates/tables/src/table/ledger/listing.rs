//! Lists the cells of one kind. The first letter of a sort key gives the kind.

use super::super::TableError;
use super::super::entries::all_entries;
use super::Ledger;
use crate::protocol::{Cell, Version};
use atoll_store::{Buffer, Projection, ScanEntry, ScanRequest, SortRange};
use std::collections::BTreeSet;

impl Ledger {
    /// The cells of the same kind as `kind`: the rest of the sort key after the letter, and the value.
    pub(in crate::table) async fn cells_of(&self, kind: Cell) -> Result<Vec<(Vec<u8>, Buffer)>, TableError> {
        let found = self.list(kind, None, Projection::Values).await?;
        Ok(found.into_iter().map(|entry| (rest(&entry), entry.value)).collect())
    }

    /// The rest of the sort key after the letter, of all cells of the same kind as `kind`.
    pub(in crate::table) async fn names_of(&self, kind: Cell) -> Result<Vec<Vec<u8>>, TableError> {
        let found = self.list(kind, None, Projection::KeysOnly).await?;
        Ok(found.iter().map(rest).collect())
    }

    /// The versions below `end` that have a cell of this kind.
    pub(in crate::table) async fn versions_of(
        &self,
        kind: fn(Version) -> Cell,
        end: Version,
    ) -> Result<BTreeSet<Version>, TableError> {
        let found = self.list(kind(Version::EMPTY), Some(kind(end)), Projection::KeysOnly).await?;
        let number = |entry| Some(Version(u64::from_be_bytes(rest(entry).try_into().ok()?)));
        Ok(found.iter().filter_map(number).collect())
    }

    /// The cells with the letter of `kind`, before `end` if that is given.
    async fn list(
        &self,
        kind: Cell,
        end: Option<Cell>,
        projection: Projection,
    ) -> Result<Vec<ScanEntry>, TableError> {
        let letter = kind.sort_key()[..1].to_vec();
        let end = end.map_or_else(|| vec![letter[0] + 1], |cell| cell.sort_key());
        let range = SortRange::half_open(letter, end);
        let request = ScanRequest { range, projection, ..ScanRequest::all(self.partition.as_slice()) };
        Ok(all_entries(&*self.store, request).await?)
    }
}

/// The sort key without its first letter.
fn rest(entry: &ScanEntry) -> Vec<u8> {
    entry.sort[1..].to_vec()
}
