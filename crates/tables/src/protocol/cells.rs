//! The cells of the table's manifest partition, and the one conditional write that commits an edit.

use super::{EditId, ObjectId, SessionId, Version};

/// A cell of the manifest partition. Objects are stored in other partitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cell {
    /// The current version ([`Head`]): the only cell that every edit changes.
    Head,
    /// The edit that made a version, with its id. Written once.
    Edit(Version),
    /// A whole manifest, which bounds the number of edits to read when a version is resolved. Written once,
    /// together with the edit of its version. A long one is split into parts.
    Full(Version),
    /// A part of a long whole manifest, named by the process that writes it. Written once, before the edit of
    /// its version.
    Part(ObjectId, u32),
    /// The mark of the attempts that got their first rows in a version ([`super::AttemptId`]). Written once,
    /// in the write of that version's edit, or before the head of a copy, which has marks from its first
    /// version on; no vacuum removes it. Releases that do not know it pass over it.
    Mark(Version),
    /// A session ([`super::Session`]) and its expiry. Changed by its own process; removed by that process or,
    /// after it has expired, by a vacuum.
    Session(SessionId),
    /// Marks the table as dropped. Put in the same write that removes all other cells; every new session is
    /// created on the condition that it is absent.
    Dropped,
    /// A snapshot and the version that it keeps. Written on the condition that the head has not changed since
    /// the version was found readable.
    Snapshot(Vec<u8>),
}

impl Cell {
    /// The sort key of the cell: a letter for the kind, then the name. Versions are big-endian, so that a
    /// scan yields them in order.
    #[must_use]
    pub fn sort_key(&self) -> Vec<u8> {
        match self {
            Self::Head => b"h".to_vec(),
            Self::Edit(version) => [b"e".as_slice(), &version.0.to_be_bytes()].concat(),
            Self::Full(version) => [b"f".as_slice(), &version.0.to_be_bytes()].concat(),
            Self::Part(object, number) => {
                let (session, sequence) = (object.session.0.to_be_bytes(), object.sequence.to_be_bytes());
                [b"p".as_slice(), &session, &sequence, &number.to_be_bytes()].concat()
            }
            Self::Dropped => b"x".to_vec(),
            Self::Mark(version) => [b"m".as_slice(), &version.0.to_be_bytes()].concat(),
            Self::Session(session) => [b"s".as_slice(), &session.0.to_be_bytes()].concat(),
            Self::Snapshot(name) => [b"n".as_slice(), name].concat(),
        }
    }
}

/// Content of the head cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Head {
    /// The current version.
    pub version: Version,
    /// The version of the whole manifest to start from; the edits after it lead to `version`.
    pub full: Version,
}

impl Head {
    /// The head after the next edit. At least every `edits_max` edits, the new version gets a whole manifest.
    #[must_use]
    pub const fn next(self, edits_max: u64) -> Self {
        let version = self.version.next();
        let full = if version.0.saturating_sub(self.full.0) >= edits_max { version } else { self.full };
        Self { version, full }
    }
}

/// The one conditional write that commits an edit.
///
/// Conditions: the head is `base`, and the session's cell is as the process last wrote it. Mutations: the
/// head becomes `head`, the edit cell of the new version is put, and so is the whole manifest if `head.full`
/// is the new version. Beside them lies a [`Cell::Mark`] if the edit brings the first rows of an attempt. A
/// process may also require that the edit cell of `base` is the one it knows: it is another one only in a
/// store that has lost versions. No rule of the protocol depends on either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    /// The head that must be current.
    pub base: Head,
    /// The head after the write.
    pub head: Head,
    /// The id of the edit.
    pub id: EditId,
}

impl Proposal {
    /// The cells that must be as the process knows them.
    #[must_use]
    pub const fn conditions(&self) -> [Cell; 2] {
        [Cell::Head, Cell::Session(self.id.session)]
    }

    /// The cells that are put.
    #[must_use]
    pub fn mutations(&self) -> Vec<Cell> {
        let mut cells = vec![Cell::Head, Cell::Edit(self.head.version)];
        if self.head.full == self.head.version {
            cells.push(Cell::Full(self.head.version));
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_sort_key_of_its_own_and_versions_sort_by_number() {
        let session = SessionId(u128::MAX);
        let cells = [
            Cell::Edit(Version(255)),
            Cell::Edit(Version(256)),
            Cell::Full(Version(256)),
            Cell::Head,
            Cell::Mark(Version(255)),
            Cell::Mark(Version(256)),
            Cell::Snapshot(b"before the storm".to_vec()),
            Cell::Part(ObjectId { session, sequence: 255 }, 1),
            Cell::Part(ObjectId { session, sequence: 256 }, 0),
            Cell::Session(session),
            Cell::Dropped,
        ];
        let keys: Vec<_> = cells.iter().map(Cell::sort_key).collect();
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_whole_manifest_comes_when_so_many_edits_have_come() {
        let mut head = Head::default();
        let mut whole = Vec::new();
        for _ in 0..130 {
            head = head.next(64);
            if head.full == head.version {
                whole.push(head.version.0);
            }
        }
        assert_eq!(whole, [64, 128]);
    }
}
