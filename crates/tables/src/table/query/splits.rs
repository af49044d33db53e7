//! Splits: a query divided among readers, by where the objects that can answer it lie.
//!
//! A store with places names for each object the host that has it, so that a reader beside that host reads locally; one
//! without has all of them here. A split is an ordinary query of some of the objects of one version.
//!
//! Invariant: every object that can answer a query is in exactly one of its splits.

use super::asked::Asked;
use super::source::{Piece, pieces};
use super::{Query, Table, TableError};
use crate::protocol::{Manifest, ObjectId, SessionId};
use atoll_store::Place;
use futures::{StreamExt, TryStreamExt};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Questions for places that are open at a time.
const OPEN: usize = 64;

/// Bytes of the name of an object.
const NAME_BYTES: usize = 24;

/// The objects of whose rows alone a query is: those of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfObjects {
    names: Arc<BTreeSet<ObjectId>>,
}

impl OfObjects {
    fn new(names: impl IntoIterator<Item = ObjectId>) -> Self {
        Self { names: Arc::new(names.into_iter().collect()) }
    }

    /// As bytes, to be sent to another process.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes =
            |name: &ObjectId| [&name.session.0.to_be_bytes()[..], &name.sequence.to_be_bytes()].concat();
        self.names.iter().flat_map(bytes).collect()
    }

    /// What [`OfObjects::to_bytes`] made.
    ///
    /// # Errors
    /// [`TableError::NoSplit`] for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TableError> {
        let (names, rest) = bytes.as_chunks::<NAME_BYTES>();
        if !rest.is_empty() {
            return Err(TableError::NoSplit);
        }
        let name = |bytes: &[u8; NAME_BYTES]| {
            let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
            let (session, sequence) = bytes.split_at(16);
            ObjectId { session: SessionId(number(session)), sequence: number(sequence) as u64 }
        };
        Ok(Self::new(names.iter().map(name)))
    }

    pub(super) fn has(&self, object: ObjectId) -> bool {
        self.names.contains(&object)
    }

    /// Refuses objects that a version does not have: they are of another one, or of another table.
    pub(super) fn check(&self, manifest: &Manifest) -> Result<(), TableError> {
        let there = manifest.pieces.keys().filter(|key| self.has(key.object)).map(|key| key.object);
        let there: BTreeSet<ObjectId> = there.collect();
        if there.len() == self.names.len() { Ok(()) } else { Err(TableError::NoSplit) }
    }
}

/// A share of a query, for one reader.
#[derive(Clone, Debug, PartialEq)]
pub struct QuerySplit {
    /// What it asks: the query of one version, of some of its objects.
    pub query: Query,
    /// Where these lie.
    pub place: Place,
    /// Rows that they have of the weights that are asked for, about: a condition leaves out more.
    pub rows: u64,
    /// Bytes that they take, as packed, about: less is read where a condition or the columns leave some out.
    pub bytes: u64,
}

impl Table {
    /// A query divided among about so many readers: all splits together are its answer, each row once, of the version
    /// that is current now or that the query names. There is one at least, and no more than objects that can answer.
    ///
    /// Where objects lie on several hosts, each split is of one of them, and each host has at least one. Splits take
    /// about equal bytes, but no object is divided. Nothing is read for it but what the version names.
    ///
    /// # Errors
    /// [`TableError::Indivisible`] for a query of the first units or rows, [`TableError::NoReaders`] for none; as
    /// [`Table::query`].
    pub async fn splits(&self, query: &Query, readers: usize) -> Result<Vec<QuerySplit>, TableError> {
        if readers == 0 {
            return Err(TableError::NoReaders);
        }
        if query.units.is_some() || query.limit.is_some() {
            return Err(TableError::Indivisible);
        }
        let manifest = self.manifest_for(query).await?;
        let table = self.at(&manifest)?;
        let mut asked = Asked::count(&table, query)?;
        let pieces = pieces(&table, &mut asked, &manifest)?;
        let shares = table.placed(shares(&pieces, &asked)).await?;
        let total = shares.iter().map(|share| share.bytes).fold(0, u64::saturating_add);
        let mut by_host: BTreeMap<Option<String>, Vec<Share>> = BTreeMap::new();
        for share in shares {
            by_host.entry(share.host.clone()).or_default().push(share);
        }
        // A query that nothing can answer has a split without objects, so that whoever reads it learns the columns.
        if by_host.is_empty() {
            by_host.insert(None, Vec::new());
        }
        let split = |host: &Option<String>, shares: Vec<Share>| QuerySplit {
            query: Query {
                objects: Some(OfObjects::new(shares.iter().map(|share| share.object))),
                as_of: Some(manifest.version),
                ..query.clone()
            },
            place: host.clone().map_or(Place::Here, Place::Host),
            rows: shares.iter().map(|share| share.rows).sum(),
            bytes: shares.iter().map(|share| share.bytes).sum(),
        };
        let of_host = |(host, shares): (Option<String>, Vec<Share>)| {
            let parts = readers_of(&shares, total, readers);
            deal(shares, parts).into_iter().map(|shares| split(&host, shares)).collect::<Vec<_>>()
        };
        Ok(by_host.into_iter().flat_map(of_host).collect())
    }

    /// Where the objects of shares lie.
    async fn placed(&self, shares: Vec<Share>) -> Result<Vec<Share>, TableError> {
        let placed = futures::stream::iter(shares).map(|share| async move {
            let place = self.store.place(&self.names.object(share.object)).await?;
            let host = match place {
                Place::Here => None,
                Place::Host(host) => Some(host),
            };
            Ok::<_, TableError>(Share { host, ..share })
        });
        placed.buffered(OPEN).try_collect().await
    }
}

/// What an object has for a query.
#[derive(Clone, Debug)]
struct Share {
    object: ObjectId,
    /// Who has it; none for this machine.
    host: Option<String>,
    rows: u64,
    bytes: u64,
}

/// What each object has for a query, as far as that can be told without opening it.
fn shares(pieces: &[Piece], asked: &Asked) -> Vec<Share> {
    let mut shares: BTreeMap<ObjectId, Share> = BTreeMap::new();
    for piece in pieces {
        let (rows, bytes) = piece.about(asked);
        let none = Share { object: piece.object, host: None, rows: 0, bytes: 0 };
        let share = shares.entry(piece.object).or_insert(none);
        share.rows += rows;
        share.bytes += bytes;
    }
    shares.into_values().collect()
}

/// How many of the readers read what one host has.
fn readers_of(shares: &[Share], total: u64, readers: usize) -> usize {
    let bytes: u64 = shares.iter().map(|share| share.bytes).sum();
    let part = readers as f64 * bytes as f64 / total.max(1) as f64;
    (part.round() as usize).clamp(1, shares.len().max(1))
}

/// Deals shares out so that each part has about as many bytes: the largest first, each to the part that has least.
fn deal(mut shares: Vec<Share>, parts: usize) -> Vec<Vec<Share>> {
    shares.sort_by_key(|share| (Reverse(share.bytes), share.object));
    let mut dealt: Vec<(u64, Vec<Share>)> = vec![(0, Vec::new()); parts];
    for share in shares {
        let least = dealt.iter_mut().min_by_key(|(bytes, shares)| (*bytes, shares.len()));
        if let Some((bytes, shares)) = least {
            *bytes += share.bytes;
            shares.push(share);
        }
    }
    dealt.into_iter().map(|(_, shares)| shares).collect()
}
