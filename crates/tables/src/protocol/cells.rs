//! Cells: what the protocol keeps in the table's manifest partition, and the one write that makes an edit
//! true.

use super::{EditId, ObjectId, SessionId, Version};

/// One cell of the manifest partition. Objects lie in other partitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cell {
    /// Which version is current ([`Head`]): the only cell that every edit changes.
    Head,
    /// The edit that made a version, with its id: written once.
    Edit(Version),
    /// A whole manifest, so that resolving reads few edits: written once, with the edit of its version. A
    /// long one lies in parts.
    Full(Version),
    /// A part of a long whole manifest, under a name of its writer's: written before the edit whose version
    /// it is of, and once.
    Part(ObjectId, u32),
    /// A session ([`super::Session`]) and its expiry: changed by its own process, removed by it or, once it
    /// has expired, by a vacuum.
    Session(SessionId),
    /// Says that the table was dropped: put with the removal of all others, and the condition of every new
    /// session is that it is absent.
    Dropped,
    /// A snapshot: the version that it keeps. Written under the condition that the head is as it was when
    /// the version was found readable.
    Snapshot(Vec<u8>),
}

impl Cell {
    /// Its sort key: a letter for the kind, then the name; versions are big-endian, so that a scan sees them
    /// in their order.
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
            Self::Session(session) => [b"s".as_slice(), &session.0.to_be_bytes()].concat(),
            Self::Snapshot(name) => [b"n".as_slice(), name].concat(),
        }
    }
}

/// What the head says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Head {
    /// The version that is current.
    pub version: Version,
    /// The whole manifest to start from; the edits after it lead to the version.
    pub full: Version,
}

impl Head {
    /// The head after the next edit. After `edits_max` edits it comes with a whole manifest.
    #[must_use]
    pub const fn next(self, edits_max: u64) -> Self {
        let version = self.version.next();
        let full = if version.0.saturating_sub(self.full.0) >= edits_max { version } else { self.full };
        Self { version, full }
    }
}

/// The one conditional write that makes an edit true.
///
/// Conditions: the head is `base`, and the session's cell is as the process last wrote it. Mutations: the
/// head becomes `head`, the edit's cell of the new version is put, and the whole manifest if `head.full` says
/// so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    /// What the head has to be.
    pub base: Head,
    /// What the head will be.
    pub head: Head,
    /// The edit's name.
    pub id: EditId,
}

impl Proposal {
    /// The cells that have to be as the process knows them.
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
