//! Splits: divide a query among readers, by the location of the objects that can match.
//!
//! A store with locations names the host of each object, so that a reader beside that host reads locally; in
//! other stores, all objects are local. A split is an ordinary query of some objects of one version; a split
//! of a union has some objects of each table.
//!
//! Invariant: every object that can match a query is in exactly one of its splits.

use super::bound_query::BoundQuery;
use super::source::{CandidatePiece, pieces};
use super::{OfObjects, Query, Table, TableError, Union};
use crate::protocol::{Manifest, ObjectId, Version};
use atoll_store::Place;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Number of concurrent lookups of locations.
const LOOKUPS_AT_ONCE: usize = 64;

/// A share of a query, for one reader.
#[derive(Clone, Debug, PartialEq)]
pub struct QuerySplit {
    /// The query, restricted to one version and some of its objects.
    pub query: Query,
    /// Where these objects are stored.
    pub place: Place,
    /// Approximate number of their rows with requested weights; a filter leaves out more.
    pub rows: u64,
    /// Approximate number of bytes of these rows, as packed; less is read if the filter or the columns leave
    /// some out.
    pub bytes: u64,
}

impl Table {
    /// Divides a query among `readers` readers. All splits together are its answer, each row once, on
    /// the version that is current now or that the query names. There is at least one split, and at most one
    /// per object that can match.
    ///
    /// If objects are stored on several hosts, each split is for one host, and each host has at least one.
    /// There are fewer splits than readers only if there are fewer objects, and more only if there are more
    /// hosts.
    /// Splits have about equal bytes, but no object is divided. Reads nothing but the manifest.
    ///
    /// # Errors
    /// [`TableError::Indivisible`] for a query with a limit on units or rows, [`TableError::NoReaders`] for
    /// zero readers; as [`Table::query`].
    pub async fn splits(&self, query: &Query, readers: usize) -> Result<Vec<QuerySplit>, TableError> {
        check_divisible(query, readers)?;
        let manifest = self.manifest_for(query).await?;
        let shares = self.shares(query, &manifest).await?;
        let part = |shares: &[Share]| Query {
            objects: Some(OfObjects::new(shares.iter().map(|share| share.object))),
            as_of: Some(manifest.version),
            ..query.clone()
        };
        Ok(divided(shares, readers, part))
    }

    /// What each object of a version contributes to a query, and where it is stored.
    async fn shares(&self, query: &Query, manifest: &Manifest) -> Result<Vec<Share>, TableError> {
        let table = self.at(manifest)?;
        let mut asked = BoundQuery::count(&table, query)?;
        let pieces = pieces(&table, &mut asked, manifest)?;
        table.placed(shares_of(&pieces, &asked)).await
    }

    /// Looks up where the objects of shares are stored.
    async fn placed(&self, shares: Vec<Share>) -> Result<Vec<Share>, TableError> {
        let placed = futures::stream::iter(shares).map(|share| async move {
            let place = self.store.place(&self.names.object(share.object)).await?;
            let host = match place {
                Place::Here => None,
                Place::Host(host) => Some(host),
            };
            Ok::<_, TableError>(Share { host, ..share })
        });
        placed.buffered(LOOKUPS_AT_ONCE).try_collect().await
    }
}

impl Union {
    /// Divides a query among `readers` readers, as [`Table::splits`]. A split may have objects of
    /// several tables.
    ///
    /// Each split carries the versions of the tables, so that another handle of the union can answer it.
    ///
    /// # Errors
    /// As [`Table::splits`] and [`Union::query`].
    pub async fn splits(&self, query: &Query, readers: usize) -> Result<Vec<QuerySplit>, TableError> {
        check_divisible(query, readers)?;
        self.ask(query, || self.splits_once(query, readers)).await
    }

    async fn splits_once(&self, query: &Query, readers: usize) -> Result<Vec<QuerySplit>, TableError> {
        let (union, version, of_each, manifests) = self.pinned(query).await?;
        let asked = union.tables().iter().zip(&of_each).zip(&manifests);
        let of_tables = asked.map(|((table, of), manifest)| table.shares(of, manifest));
        let mut shares = Vec::new();
        for (table, of_table) in try_join_all(of_tables).await?.into_iter().enumerate() {
            shares.extend(of_table.into_iter().map(|share| Share { table, ..share }));
        }
        let versions: Vec<Version> = manifests.iter().map(|manifest| manifest.version).collect();
        let part = |shares: &[Share]| {
            let objects =
                |place| shares.iter().filter(move |share| share.table == place).map(|share| share.object);
            let of_each =
                versions.iter().enumerate().map(|(place, version)| (*version, objects(place).collect()));
            Query {
                objects: Some(OfObjects::of_each(of_each.collect())),
                as_of: Some(version),
                ..query.clone()
            }
        };
        Ok(divided(shares, readers, part))
    }
}

/// Refuses queries that cannot be divided.
fn check_divisible(query: &Query, readers: usize) -> Result<(), TableError> {
    if readers == 0 {
        return Err(TableError::NoReaders);
    }
    if query.units.is_some() || query.limit.is_some() {
        return Err(TableError::Indivisible);
    }
    Ok(())
}

/// What an object contributes to a query.
#[derive(Clone, Debug)]
struct Share {
    /// Index of its table in a union.
    table: usize,
    object: ObjectId,
    /// The host that stores it; `None` for this machine.
    host: Option<String>,
    rows: u64,
    bytes: u64,
}

/// What each object contributes to a query, as far as that can be told without opening it.
fn shares_of(pieces: &[CandidatePiece], asked: &BoundQuery) -> Vec<Share> {
    let mut shares: BTreeMap<ObjectId, Share> = BTreeMap::new();
    for piece in pieces {
        let (rows, bytes) = piece.about(asked);
        let none = Share { table: 0, object: piece.object, host: None, rows: 0, bytes: 0 };
        let share = shares.entry(piece.object).or_insert(none);
        share.rows = share.rows.saturating_add(rows);
        share.bytes = share.bytes.saturating_add(bytes);
    }
    shares.into_values().collect()
}

/// Divides shares into `readers` splits, each on one host. `part` makes the query for some shares.
fn divided(shares: Vec<Share>, readers: usize, part: impl Fn(&[Share]) -> Query) -> Vec<QuerySplit> {
    let mut by_host: BTreeMap<Option<String>, Vec<Share>> = BTreeMap::new();
    for share in shares {
        by_host.entry(share.host.clone()).or_default().push(share);
    }
    // A query that nothing can match gets one split without objects, so that its reader learns the columns.
    if by_host.is_empty() {
        by_host.insert(None, Vec::new());
    }
    let split = |host: &Option<String>, shares: &[Share]| QuerySplit {
        query: part(shares),
        place: host.clone().map_or(Place::Here, Place::Host),
        rows: shares.iter().map(|share| share.rows).fold(0, u64::saturating_add),
        bytes: shares.iter().map(|share| share.bytes).fold(0, u64::saturating_add),
    };
    let parts = parts_of(by_host.values(), readers);
    let of_host = |((host, shares), parts): ((Option<String>, Vec<Share>), usize)| {
        deal(shares, parts).iter().map(|shares| split(&host, shares)).collect::<Vec<_>>()
    };
    by_host.into_iter().zip(parts).flat_map(of_host).collect()
}

/// How many readers read what each host stores: one at least, and each further one goes where a reader has
/// the most bytes. No host has more readers than objects.
fn parts_of<'a>(hosts: impl Iterator<Item = &'a Vec<Share>>, readers: usize) -> Vec<usize> {
    let hosts: Vec<(u64, usize)> = hosts
        .map(|shares| {
            let bytes = shares.iter().map(|share| share.bytes).fold(0, u64::saturating_add);
            (bytes, shares.len())
        })
        .collect();
    let mut parts = vec![1_usize; hosts.len()];
    // By what a reader of the host has to read: about as many bytes, of several equal ones the first host.
    let waiting = |host: usize, parts: usize| {
        let (bytes, objects) = hosts[host];
        (objects > parts).then(|| (bytes / parts as u64, Reverse(host)))
    };
    let mut most: BinaryHeap<_> = (0..hosts.len()).filter_map(|host| waiting(host, 1)).collect();
    for _ in hosts.len()..readers {
        let Some((_, Reverse(host))) = most.pop() else { break };
        parts[host] += 1;
        most.extend(waiting(host, parts[host]));
    }
    parts
}

/// Deals out shares so that each part has about equal bytes: the largest first, each to the part that has the
/// least.
fn deal(mut shares: Vec<Share>, parts: usize) -> Vec<Vec<Share>> {
    shares.sort_by_key(|share| (Reverse(share.bytes), share.object));
    let mut dealt: Vec<(u64, Vec<Share>)> = vec![(0, Vec::new()); parts];
    for share in shares {
        let least = dealt.iter_mut().min_by_key(|(bytes, shares)| (*bytes, shares.len()));
        if let Some((bytes, shares)) = least {
            *bytes = bytes.saturating_add(share.bytes);
            shares.push(share);
        }
    }
    dealt.into_iter().map(|(_, shares)| shares).collect()
}
