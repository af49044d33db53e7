//! Lists partition keys in the order of their tokens, and divides the ring among readers.
//!
//! A split is a list of token ranges that share their first replica, so that a reader next to that replica
//! reads locally.
//!
//! Of several keys with the same token (one pair in 2^64) a listing may omit some.
//!
//! Invariant: the ranges of all splits together hold every token exactly once.

use crate::codec::KIND_CELL;
use crate::failure::{REMEDY_FOR_TOMBSTONES, told};
use crate::link::Link;
use crate::near::{Toward, is_here, is_within};
use crate::store::Shared;
use atoll_store::{ErrorKind, PartitionKey, PartitionPage, PartitionQuery, Place, Split, StoreError, Token};
use bytes::Bytes;
use scylla::routing::Token as RingToken;
use scylla::statement::prepared::PreparedStatement;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Rows read with one request. A page ends within a partition, and the next one begins behind it. Asking for
/// one row of each partition would be the obvious way, but Cassandra 5.0.5 fails such a query (PER PARTITION
/// LIMIT, DISTINCT) once ranges were deleted in partitions that lie in several files.
const ROWS: i32 = 1000;

/// Partitions in a page if each of them needs a request of its own.
const STEPS: usize = 100;

/// More readers than this gain nothing.
const SPLITS_MAX: usize = 1024;

/// A range of tokens, both ends included.
type TokenRange = (i64, i64);

/// The first token that a key can have. Cassandra takes the one below it for "no bound".
const FIRST: i64 = i64::MIN + 1;

/// One page of partition keys.
pub(crate) async fn page(shared: &Arc<Shared>, query: PartitionQuery) -> Result<PartitionPage, StoreError> {
    let last = query.check()?;
    let ranges = match &query.split {
        None => vec![(FIRST, i64::MAX)],
        Some(split) => decode(&split.token)?,
    };
    let mut cursor = last;
    let mut page = PartitionPage { partitions: Vec::new(), resume: None };
    let mut page_bytes = 0;
    for range in ranges {
        let Some(range) = rest(shared, range, cursor.as_deref()) else { continue };
        let found = look(shared, range, query.split.is_some()).await?;
        for (key, has_cells) in found.keys {
            let mine = key.strip_prefix(shared.link.options.namespace.as_slice());
            if let Some(mine) = mine.filter(|mine| has_cells && mine.starts_with(&query.prefix)) {
                page_bytes += mine.len();
                if page.partitions.len() == query.limit || page_bytes > shared.limits.page_bytes {
                    page.resume = cursor.map(|last| query.token_after(&last));
                    return Ok(page);
                }
                page.partitions.push(mine.to_vec());
            }
            cursor = Some(key);
        }
        if !found.is_done {
            page.resume = cursor.map(|last| query.token_after(&last));
            return Ok(page);
        }
    }
    Ok(page)
}

/// The part of a range behind a key; none if the range is exhausted. The ranges of a split are in order.
fn rest(shared: &Shared, range: TokenRange, cursor: Option<&[u8]>) -> Option<TokenRange> {
    let Some(last) = cursor else { return Some(range) };
    let from = shared.token(last).checked_add(1)?.max(range.0);
    (from <= range.1).then_some((from, range.1))
}

/// Reads the next partitions of a range.
async fn look(shared: &Arc<Shared>, range: TokenRange, is_split: bool) -> Result<Looked, StoreError> {
    let link = &shared.link;
    let mut list = link.statements.plain.list.clone();
    // The driver derives no token from a range and would ask any node.
    if let Some(host) = host_of(shared, range.1).filter(|_| is_split) {
        list.set_load_balancing_policy(Some(Toward::policy(
            host,
            link.options.within(),
            Arc::clone(&link.profiles.routes),
        )));
    }
    if let Some(looked) = rows_of(link, &list, range, ROWS).await? {
        return Ok(looked);
    }
    // Expired rows sort behind all others of their partition, so a query for its first row alone meets none
    // of them.
    let mut looked = Looked { keys: Vec::new(), is_done: false };
    let mut from = range.0;
    while looked.keys.len() < STEPS {
        let found = rows_of(link, &list, (from, range.1), 1).await?.ok_or_else(|| too_dead(link))?;
        looked.keys.extend(found.keys);
        let next = looked.keys.last().and_then(|(key, _)| shared.token(key).checked_add(1));
        match next.filter(|next| !found.is_done && *next <= range.1) {
            Some(next) => from = next,
            None => return Ok(Looked { is_done: true, ..looked }),
        }
    }
    Ok(looked)
}

fn too_dead(link: &Link) -> StoreError {
    told(
        ErrorKind::Unavailable,
        format!(
            "{} cannot be listed: a partition begins with more deleted rows than a node passes over",
            link.place
        ),
        REMEDY_FOR_TOMBSTONES,
    )
}

/// The partitions among the first `most` rows of a range; none if the read met too many tombstones.
async fn rows_of(
    link: &Link,
    list: &PreparedStatement,
    range: TokenRange,
    most: i32,
) -> Result<Option<Looked>, StoreError> {
    let Some(answer) = link.rows_among_dead("listing", list, &(range.0, range.1, most)).await? else {
        return Ok(None);
    };
    let rows = answer.rows::<(Bytes, i8)>().map_err(|error| link.not_understood(&error))?;
    let mut looked = Looked { keys: Vec::new(), is_done: answer.rows_num() < most as usize };
    for row in rows {
        let (key, kind) = row.map_err(|error| link.not_understood(&error))?;
        // Cells sort before all other rows, so the first row of a partition shows whether it has any.
        if looked.keys.last().is_none_or(|(last, _)| *last != key) {
            looked.keys.push((key.to_vec(), kind == KIND_CELL));
        }
    }
    Ok(Some(looked))
}

/// Partitions in token order.
struct Looked {
    /// Their keys, and whether they have cells.
    keys: Vec<(PartitionKey, bool)>,
    /// Whether the range holds no more.
    is_done: bool,
}

/// Divides the ring among about `readers` readers.
pub(crate) fn splits(shared: &Shared, readers: usize) -> Result<Vec<Split>, StoreError> {
    if readers == 0 {
        return Err(StoreError::InvalidInput {
            what: "number of readers",
            problem: "it is 0".into(),
            hint: "ask for at least one split",
        });
    }
    let readers = readers.min(SPLITS_MAX);
    let mut by_host: BTreeMap<Option<IpAddr>, Vec<TokenRange>> = BTreeMap::new();
    for range in ring(shared) {
        by_host.entry(host_of(shared, range.1)).or_default().push(range);
    }
    let mut splits = Vec::new();
    let hosts = by_host.len().max(1);
    for (host, ranges) in by_host {
        let parts = readers.div_ceil(hosts);
        let pieces = cut(&ranges, parts.div_ceil(ranges.len().max(1)));
        let each = pieces.len().div_ceil(parts).max(1);
        for part in pieces.chunks(each) {
            splits.push(Split { token: encode(part), place: place_of(shared, host) });
        }
    }
    Ok(splits)
}

/// The ranges between the tokens of the ring, which together cover all tokens.
fn ring(shared: &Shared) -> Vec<TokenRange> {
    let state = shared.link.session.get_cluster_state();
    let mut ends: Vec<i64> = state.replica_locator().ring().iter().map(|(token, _)| token.value()).collect();
    ends.push(i64::MAX);
    between(ends)
}

/// The ranges that end at these tokens, which must include the last token there is.
fn between(mut ends: Vec<i64>) -> Vec<TokenRange> {
    ends.sort_unstable();
    ends.dedup();
    let mut from = FIRST;
    let mut ranges = Vec::with_capacity(ends.len());
    for end in ends.into_iter().filter(|end| *end >= FIRST) {
        ranges.push((from, end));
        from = end.saturating_add(1);
    }
    ranges
}

/// Cuts each range into this many parts of about the same size.
fn cut(ranges: &[TokenRange], parts: usize) -> Vec<TokenRange> {
    let mut pieces = Vec::with_capacity(ranges.len() * parts);
    for &(from, to) in ranges {
        let width = (i128::from(to) - i128::from(from) + 1) / parts.max(1) as i128;
        let mut start = i128::from(from);
        for part in 1..=parts {
            let end = if part == parts { i128::from(to) } else { start + width - 1 };
            // With fewer tokens than parts, some parts are empty.
            if start <= end {
                pieces.push((start as i64, end as i64));
            }
            start = end.max(start - 1) + 1;
        }
    }
    pieces
}

/// The first replica of a token, among those that may be asked.
fn host_of(shared: &Shared, token: i64) -> Option<IpAddr> {
    let state = shared.link.session.get_cluster_state();
    let replicas = state.get_token_endpoints(&shared.link.options.keyspace, "cells", RingToken::new(token));
    let within = shared.link.options.within();
    let mut near = replicas.iter().filter(|(node, _)| is_within(within, node.datacenter.as_deref()));
    near.next().map(|(node, _)| node.address.ip())
}

/// Where a partition lies.
pub(crate) fn place(shared: &Shared, partition: &[u8]) -> Place {
    place_of(shared, host_of(shared, shared.token(partition)))
}

fn place_of(shared: &Shared, host: Option<IpAddr>) -> Place {
    let is_here = |host| match shared.link.options.beside {
        Some(beside) => beside == host,
        None => is_here(host),
    };
    match host {
        Some(host) if !is_here(host) => Place::Host(host.to_string()),
        _ => Place::Here,
    }
}

const VERSION: u8 = 1;

fn encode(ranges: &[TokenRange]) -> Token {
    let mut bytes = vec![VERSION];
    for (from, to) in ranges {
        bytes.extend_from_slice(&from.to_be_bytes());
        bytes.extend_from_slice(&to.to_be_bytes());
    }
    Token(bytes)
}

fn decode(token: &Token) -> Result<Vec<TokenRange>, StoreError> {
    let foreign = || StoreError::InvalidInput {
        what: "split",
        problem: "this store did not return it".into(),
        hint: "pass a split of the same store unchanged",
    };
    let (&VERSION, rest) = token.0.split_first().ok_or_else(foreign)? else { return Err(foreign()) };
    let (pairs, rest) = rest.as_chunks::<16>();
    let ranges: Vec<TokenRange> = pairs
        .iter()
        .map(|pair| {
            let number = i128::from_be_bytes(*pair);
            ((number >> 64) as i64, number as i64)
        })
        .collect();
    let is_in_order = ranges.iter().all(|(from, to)| FIRST <= *from && from <= to)
        && ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
    if rest.is_empty() && !ranges.is_empty() && is_in_order { Ok(ranges) } else { Err(foreign()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_ranges_hold_every_token_once() {
        for ranges in [vec![(i64::MIN, i64::MAX)], vec![(i64::MIN, -5), (-4, -4), (-3, i64::MAX)]] {
            for parts in [1, 2, 3, 7, 1024] {
                let pieces = cut(&ranges, parts);
                assert_eq!(pieces.first().map(|piece| piece.0), Some(i64::MIN));
                assert_eq!(pieces.last().map(|piece| piece.1), Some(i64::MAX));
                assert!(pieces.iter().all(|(from, to)| from <= to));
                assert!(pieces.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "{parts} parts");
            }
        }
    }

    #[test]
    fn no_range_ends_where_cassandra_sees_no_bound() {
        // A node may own the lowest token.
        let ranges = between(vec![5, i64::MIN, i64::MAX, 5, FIRST]);
        assert_eq!(ranges, [(FIRST, FIRST), (FIRST + 1, 5), (6, i64::MAX)]);
        assert_eq!(between(vec![i64::MAX]), [(FIRST, i64::MAX)]);
    }

    #[test]
    fn a_split_is_read_back_and_a_foreign_one_is_refused() {
        let ranges = vec![(FIRST, -1), (5, 5), (7, i64::MAX)];
        assert_eq!(decode(&encode(&ranges)).unwrap(), ranges);
        for foreign in [&b""[..], b"garbage", &[VERSION], &encode(&[(5, 4)]).0, &encode(&[(1, 5), (5, 9)]).0]
        {
            assert!(decode(&Token(foreign.to_vec())).is_err(), "{foreign:?}");
        }
    }
}
