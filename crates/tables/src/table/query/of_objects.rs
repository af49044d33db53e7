//! Restricts a query to some objects, as a split does, with an encoding that can be sent to another process.
//!
//! Invariant: the bytes for one table are never mistaken for those for several tables, which have one byte
//! more than a multiple of the name length.

use super::TableError;
use crate::protocol::{Manifest, ObjectId, SessionId, Version};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Length of an object's name, in bytes.
const NAME_BYTES: usize = 24;

/// First byte of the encoding for several tables. Then follow, for each table, its version, the number of
/// objects and their names. The total length is never a multiple of the length of a name.
const SEVERAL_TABLES: u8 = 1;

/// The objects that a query is restricted to: those of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfObjects(Names);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    /// For a single table.
    One(Arc<BTreeSet<ObjectId>>),
    /// For each table of a union, by index, in the given version of it.
    Each(Arc<[(Version, Arc<BTreeSet<ObjectId>>)]>),
}

impl OfObjects {
    pub(super) fn new(names: impl IntoIterator<Item = ObjectId>) -> Self {
        Self(Names::One(Arc::new(names.into_iter().collect())))
    }

    /// The objects of each table of a union, in the given version of it.
    pub(super) fn of_each(names: Vec<(Version, BTreeSet<ObjectId>)>) -> Self {
        Self(Names::Each(names.into_iter().map(|(version, names)| (version, Arc::new(names))).collect()))
    }

    /// The versions of the tables of a union; `None` unless these are objects of that many tables.
    pub(super) fn versions(&self, tables: usize) -> Option<Vec<Version>> {
        match &self.0 {
            Names::Each(names) if names.len() == tables => {
                Some(names.iter().map(|(version, _)| *version).collect())
            }
            _ => None,
        }
    }

    /// The objects of the table at an index.
    pub(super) fn of_table(&self, place: usize) -> Self {
        match &self.0 {
            Names::One(_) => self.clone(),
            Names::Each(names) => {
                Self(Names::One(names.get(place).map(|(_, names)| Arc::clone(names)).unwrap_or_default()))
            }
        }
    }

    /// Encodes the objects, to be sent to another process.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes =
            |name: &ObjectId| [&name.session.0.to_be_bytes()[..], &name.sequence.to_be_bytes()].concat();
        let all = |names: &BTreeSet<ObjectId>| names.iter().flat_map(bytes).collect::<Vec<u8>>();
        match &self.0 {
            Names::One(names) => all(names),
            Names::Each(each) => {
                let of_table = |(version, names): &(Version, Arc<BTreeSet<ObjectId>>)| {
                    [&version.0.to_be_bytes()[..], &(names.len() as u64).to_be_bytes(), &all(names)].concat()
                };
                std::iter::once(SEVERAL_TABLES).chain(each.iter().flat_map(of_table)).collect()
            }
        }
    }

    /// Decodes the output of [`OfObjects::to_bytes`].
    ///
    /// # Errors
    /// [`TableError::NoSplit`] for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TableError> {
        if bytes.len().is_multiple_of(NAME_BYTES) {
            return Ok(Self::new(names_of(bytes)));
        }
        let [SEVERAL_TABLES, rest @ ..] = bytes else { return Err(TableError::NoSplit) };
        let (mut each, mut rest) = (Vec::new(), rest);
        while !rest.is_empty() {
            let (version, names, behind) = table_of(rest).ok_or(TableError::NoSplit)?;
            each.push((version, names_of(names).collect()));
            rest = behind;
        }
        Ok(Self::of_each(each))
    }

    /// Whether an object is included; for a single table.
    pub(super) fn has(&self, object: ObjectId) -> bool {
        matches!(&self.0, Names::One(names) if names.contains(&object))
    }

    /// Refuses objects that a version does not have, since they are of another version or table.
    pub(super) fn check(&self, manifest: &Manifest) -> Result<(), TableError> {
        let Names::One(names) = &self.0 else { return Err(TableError::NoSplit) };
        let there = manifest.pieces.keys().filter(|key| names.contains(&key.object)).map(|key| key.object);
        let there: BTreeSet<ObjectId> = there.collect();
        if there.len() == names.len() { Ok(()) } else { Err(TableError::NoSplit) }
    }
}

/// Decodes the first table: its version, the bytes of its names, and the rest.
fn table_of(bytes: &[u8]) -> Option<(Version, &[u8], &[u8])> {
    let (version, rest) = bytes.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u64::from_be_bytes(*count)).ok()?.checked_mul(NAME_BYTES)?;
    let (names, behind) = rest.split_at_checked(length)?;
    Some((Version(u64::from_be_bytes(*version)), names, behind))
}

/// Decodes the names from a multiple of their length.
fn names_of(bytes: &[u8]) -> impl Iterator<Item = ObjectId> + '_ {
    let name = |bytes: &[u8; NAME_BYTES]| {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
        let (session, sequence) = bytes.split_at(16);
        ObjectId { session: SessionId(number(session)), sequence: number(sequence) as u64 }
    };
    bytes.as_chunks().0.iter().map(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: u64) -> ObjectId {
        ObjectId { session: SessionId(u128::from(number) << 70 | 5), sequence: number }
    }

    #[test]
    fn objects_of_one_table_and_of_several_travel_as_bytes() {
        let names = |numbers: std::ops::Range<u64>| numbers.map(object).collect::<BTreeSet<_>>();
        for count in [0, 1, 2, 24] {
            let one = OfObjects::new(names(0..count));
            assert_eq!(OfObjects::from_bytes(&one.to_bytes()).unwrap(), one);
            for tables in 1..30 {
                let each: Vec<_> =
                    (0..tables).map(|table| (Version(table), names(table..table + count))).collect();
                let each = OfObjects::of_each(each);
                let bytes = each.to_bytes();
                assert_eq!(OfObjects::from_bytes(&bytes).unwrap(), each);
                for length in 0..bytes.len() {
                    let cut = OfObjects::from_bytes(&bytes[..length]);
                    assert!(!cut.is_ok_and(|cut| cut == each), "{length} of {} bytes", bytes.len());
                }
            }
        }
        assert!(
            OfObjects::from_bytes(&[2; 17]).is_err() && OfObjects::from_bytes(&[SEVERAL_TABLES; 17]).is_err()
        );
    }

    #[test]
    fn objects_are_of_as_many_tables_as_there_are_versions() {
        let each =
            OfObjects::of_each(vec![(Version(3), [object(1)].into()), (Version(5), [object(2)].into())]);
        assert_eq!(each.versions(2), Some(vec![Version(3), Version(5)]));
        assert_eq!((each.versions(1), OfObjects::new([object(1)]).versions(1)), (None, None));
        assert!(each.of_table(1).has(object(2)) && !each.of_table(0).has(object(2)) && !each.has(object(2)));
    }
}
