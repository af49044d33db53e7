//! Splits: a query divided among readers, by where the objects that can answer it lie.
//!
//! A store with places names for each object the host that has it, so that a reader beside that host reads
//! locally; one without has all of them here. A split is an ordinary query of some of the objects of one
//! version; one of several tables asked as one is of some objects of each.
//!
//! Invariant: every object that can answer a query is in exactly one of its splits.

use super::asked::Asked;
use super::source::{Piece, pieces};
use super::{OfObjects, Query, Table, TableError, Union};
use crate::protocol::{Manifest, ObjectId, Version};
use atoll_store::Place;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Questions for places that are open at a time.
const OPEN: usize = 64;

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
    /// A query divided among about so many readers: all splits together are its answer, each row once, of the
    /// version that is current now or that the query names. There is one at least, and no more than objects
    /// that can answer.
    ///
    /// Where objects lie on several hosts, each split is of one of them, and each host has at least one.
    /// Splits take about equal bytes, but no object is divided. Nothing is read for it but what the version
    /// names.
    ///
    /// # Errors
    /// [`TableError::Indivisible`] for a query of the first units or rows, [`TableError::NoReaders`] for
    /// none; as [`Table::query`].
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

    /// What each object of a version has for a query, and where it lies.
    async fn shares(&self, query: &Query, manifest: &Manifest) -> Result<Vec<Share>, TableError> {
        let table = self.at(manifest)?;
        let mut asked = Asked::count(&table, query)?;
        let pieces = pieces(&table, &mut asked, manifest)?;
        table.placed(shares_of(&pieces, &asked)).await
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

impl Union {
    /// A query divided among about so many readers, as [`Table::splits`]: a split may have objects of several
    /// tables.
    ///
    /// Each knows the versions of the tables, so that another handle of the union answers it as well.
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

/// Refuses what cannot be divided.
fn check_divisible(query: &Query, readers: usize) -> Result<(), TableError> {
    if readers == 0 {
        return Err(TableError::NoReaders);
    }
    if query.units.is_some() || query.limit.is_some() {
        return Err(TableError::Indivisible);
    }
    Ok(())
}

/// What an object has for a query.
#[derive(Clone, Debug)]
struct Share {
    /// Of several tables the place of its own.
    table: usize,
    object: ObjectId,
    /// Who has it; none for this machine.
    host: Option<String>,
    rows: u64,
    bytes: u64,
}

/// What each object has for a query, as far as that can be told without opening it.
fn shares_of(pieces: &[Piece], asked: &Asked) -> Vec<Share> {
    let mut shares: BTreeMap<ObjectId, Share> = BTreeMap::new();
    for piece in pieces {
        let (rows, bytes) = piece.about(asked);
        let none = Share { table: 0, object: piece.object, host: None, rows: 0, bytes: 0 };
        let share = shares.entry(piece.object).or_insert(none);
        share.rows += rows;
        share.bytes += bytes;
    }
    shares.into_values().collect()
}

/// Shares as about so many splits, each on one host; `part` is the query of some of them.
fn divided(shares: Vec<Share>, readers: usize, part: impl Fn(&[Share]) -> Query) -> Vec<QuerySplit> {
    let total = shares.iter().map(|share| share.bytes).fold(0, u64::saturating_add);
    let mut by_host: BTreeMap<Option<String>, Vec<Share>> = BTreeMap::new();
    for share in shares {
        by_host.entry(share.host.clone()).or_default().push(share);
    }
    // A query that nothing can answer has a split without objects, so that whoever reads it learns the
    // columns.
    if by_host.is_empty() {
        by_host.insert(None, Vec::new());
    }
    let split = |host: &Option<String>, shares: &[Share]| QuerySplit {
        query: part(shares),
        place: host.clone().map_or(Place::Here, Place::Host),
        rows: shares.iter().map(|share| share.rows).sum(),
        bytes: shares.iter().map(|share| share.bytes).sum(),
    };
    let of_host = |(host, shares): (Option<String>, Vec<Share>)| {
        let parts = readers_of(&shares, total, readers);
        deal(shares, parts).iter().map(|shares| split(&host, shares)).collect::<Vec<_>>()
    };
    by_host.into_iter().flat_map(of_host).collect()
}

/// How many of the readers read what one host has.
fn readers_of(shares: &[Share], total: u64, readers: usize) -> usize {
    let bytes: u64 = shares.iter().map(|share| share.bytes).sum();
    let part = readers as f64 * bytes as f64 / total.max(1) as f64;
    (part.round() as usize).clamp(1, shares.len().max(1))
}

/// Deals shares out so that each part has about as many bytes: the largest first, each to the part that has
/// least.
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
