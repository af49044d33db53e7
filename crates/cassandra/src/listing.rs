//! Partition keys in the order of their tokens, and how the ring is divided among readers.
//!
//! A split is a list of ranges of tokens that share a first replica, so that a reader beside it reads locally.
//!
//! Invariant: the ranges of all splits together hold every token exactly once.

use crate::codec::KIND_CELL;
use crate::store::Shared;
use atoll_store::{PartitionKey, PartitionPage, PartitionQuery, Place, Split, StoreError, Token};
use bytes::Bytes;
use scylla::routing::Token as RingToken;
use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

/// Partitions that one request looks at.
const LOOKED_AT: i32 = 1000;

/// More readers than this gain nothing.
const SPLITS_MAX: usize = 1024;

/// From a token to another one, both included.
type TokenRange = (i64, i64);

/// One page of partition keys.
pub(crate) async fn page(shared: &Arc<Shared>, query: PartitionQuery) -> Result<PartitionPage, StoreError> {
    let last = query.check()?;
    let ranges = match &query.split {
        None => vec![(i64::MIN, i64::MAX)],
        Some(split) => decode(&split.token)?,
    };
    let mut cursor = last;
    let mut page = PartitionPage { partitions: Vec::new(), resume: None };
    let mut page_bytes = 0;
    for range in ranges {
        // The ranges of a split are in order, so those before the last key are done.
        let Some(seen) = seen(shared, range, cursor.as_deref()) else { continue };
        let found = look(shared, range, seen).await?;
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

/// Behind which key a range goes on: none for its beginning. Nothing at all if the range is done.
fn seen<'a>(shared: &Shared, range: TokenRange, cursor: Option<&'a [u8]>) -> Option<Option<&'a [u8]>> {
    let Some(last) = cursor else { return Some(None) };
    match shared.token(last) {
        Some(token) if token > range.1 => None,
        Some(token) if token >= range.0 => Some(Some(last)),
        _ => Some(None),
    }
}

/// The next partitions of a range.
async fn look(shared: &Arc<Shared>, range: TokenRange, last: Option<&[u8]>) -> Result<Looked, StoreError> {
    let link = &shared.link;
    let answer = match last {
        None => link.rows("listing", &link.statements.plain.list, &(range.0, range.1, LOOKED_AT)).await?,
        Some(last) => {
            link.rows("listing", &link.statements.plain.list_after, &(last, range.1, LOOKED_AT)).await?
        }
    };
    let rows = answer.rows::<(Bytes, Option<i8>, i64)>().map_err(|error| link.not_understood(&error))?;
    let after = last.map(|last| (shared.token(last), last));
    let mut looked = Looked { keys: Vec::with_capacity(answer.rows_num()), is_done: true };
    looked.is_done = answer.rows_num() < LOOKED_AT as usize;
    for row in rows {
        let (key, kind, token) = row.map_err(|error| link.not_understood(&error))?;
        // Keys that share a token are in the order of their bytes.
        let is_behind = after.is_none_or(|(of_last, last)| of_last != Some(token) || &key[..] > last);
        if is_behind {
            looked.keys.push((key.to_vec(), kind == Some(KIND_CELL)));
        }
    }
    Ok(looked)
}

/// Partitions in their order.
struct Looked {
    /// Their keys, and whether they have cells.
    keys: Vec<(PartitionKey, bool)>,
    /// Whether no more are in the range.
    is_done: bool,
}

/// The ring, dealt out to about `readers` readers.
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
            splits.push(Split { token: encode(part), place: place_of(host) });
        }
    }
    Ok(splits)
}

/// The ranges between the tokens of the ring, which together are all tokens.
fn ring(shared: &Shared) -> Vec<TokenRange> {
    let state = shared.link.session.get_cluster_state();
    let mut ends: Vec<i64> = state.replica_locator().ring().iter().map(|(token, _)| token.value()).collect();
    ends.push(i64::MAX);
    ends.sort_unstable();
    ends.dedup();
    let mut from = i64::MIN;
    let mut ranges = Vec::with_capacity(ends.len());
    for end in ends {
        ranges.push((from, end));
        from = end.saturating_add(1);
    }
    ranges
}

/// Each range cut into so many parts of about the same size.
fn cut(ranges: &[TokenRange], parts: usize) -> Vec<TokenRange> {
    let mut pieces = Vec::with_capacity(ranges.len() * parts);
    for &(from, to) in ranges {
        let width = (i128::from(to) - i128::from(from) + 1) / parts.max(1) as i128;
        let mut start = i128::from(from);
        for part in 1..=parts {
            let end = if part == parts { i128::from(to) } else { start + width - 1 };
            // A range of fewer tokens than parts leaves some of them empty.
            if start <= end {
                pieces.push((start as i64, end as i64));
            }
            start = end.max(start - 1) + 1;
        }
    }
    pieces
}

/// The first replica of a token.
fn host_of(shared: &Shared, token: i64) -> Option<IpAddr> {
    let state = shared.link.session.get_cluster_state();
    let replicas = state.get_token_endpoints(&shared.link.options.keyspace, "cells", RingToken::new(token));
    replicas.first().map(|(node, _)| node.address.ip())
}

/// Where a partition lies.
pub(crate) fn place(shared: &Shared, partition: &[u8]) -> Place {
    place_of(shared.token(partition).and_then(|token| host_of(shared, token)))
}

/// An address of this machine is here: only its own can be bound.
fn place_of(host: Option<IpAddr>) -> Place {
    match host {
        None => Place::Here,
        Some(host) if UdpSocket::bind((host, 0)).is_ok() => Place::Here,
        Some(host) => Place::Host(host.to_string()),
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
        problem: "this store did not give it out".into(),
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
    let is_in_order =
        ranges.iter().all(|(from, to)| from <= to) && ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
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
    fn a_split_is_read_back_and_a_foreign_one_is_refused() {
        let ranges = vec![(i64::MIN, -1), (5, 5), (7, i64::MAX)];
        assert_eq!(decode(&encode(&ranges)).unwrap(), ranges);
        for foreign in [&b""[..], b"garbage", &[VERSION], &encode(&[(5, 4)]).0, &encode(&[(1, 5), (5, 9)]).0]
        {
            assert!(decode(&Token(foreign.to_vec())).is_err(), "{foreign:?}");
        }
    }
}
