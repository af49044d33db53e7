//! Pages: of a scan, and of the list of partitions.

use super::keys::{self, KeyRange};
use atoll_engine::{Direction as EngineDirection, EngineError, Tree, Value};
use atoll_store::{
    Buffer, Direction, Limits, PartitionKey, PartitionPage, PartitionQuery, Projection, ScanEntry, ScanPage,
    ScanRequest, SortKey,
};
use std::ops::{Bound, ControlFlow};

/// One entry of a page, its bytes perhaps still on disk.
struct Found {
    sort: SortKey,
    value: Option<Value>,
    value_bytes: u64,
}

/// One atomic page of a scan; reads from disk where it must.
pub(crate) fn scan(
    tree: &Tree,
    request: &ScanRequest,
    after: Option<SortKey>,
    limits: &Limits,
) -> Result<ScanPage, EngineError> {
    let mut range = request.range.clone();
    match (request.direction, after) {
        (_, None) => {}
        (Direction::Forward, Some(last)) => range.from = Bound::Excluded(last),
        (Direction::Backward, Some(last)) => range.to = Bound::Excluded(last),
    }
    let mut page = ScanPage { entries: Vec::new(), resume: None };
    if range.is_empty() {
        return Ok(page);
    }
    let (found, is_full) = find(tree, request, &range, limits)?;
    for found in found {
        let value = match (&found.value, request.projection) {
            (Some(value), Projection::Values) => value.to_buffer()?,
            (Some(value), Projection::Bytes(range)) => {
                let (from, to) = range.within(found.value_bytes);
                value.read(from, to - from)?
            }
            _ => Buffer::new(),
        };
        page.entries.push(ScanEntry { sort: found.sort, value, value_bytes: found.value_bytes });
    }
    if let (true, Some(last)) = (is_full, page.entries.last()) {
        page.resume = Some(request.token_after(&last.sort));
    }
    Ok(page)
}

/// The entries of a page, all as of one moment, and whether there are more.
fn find(
    tree: &Tree,
    request: &ScanRequest,
    range: &atoll_store::SortRange,
    limits: &Limits,
) -> Result<(Vec<Found>, bool), EngineError> {
    let keys = KeyRange::of(&request.partition, range);
    let direction = match request.direction {
        Direction::Forward => EngineDirection::Forward,
        Direction::Backward => EngineDirection::Backward,
    };
    let mut found: Vec<Found> = Vec::new();
    let mut page_bytes = 0;
    let mut is_full = false;
    tree.scan(keys.bounds(), direction, |key, value| {
        let sort = &key[keys.start_len..];
        let value_bytes = value.len();
        let taken = match request.projection {
            Projection::KeysOnly => 0,
            Projection::Values => value_bytes,
            Projection::Bytes(range) => {
                let (from, to) = range.within(value_bytes);
                to - from
            }
        };
        page_bytes += sort.len() as u64 + taken;
        // The first entry goes in however large it is.
        if found.len() == request.limit || (page_bytes > limits.page_bytes as u64 && !found.is_empty()) {
            is_full = true;
            return ControlFlow::Break(());
        }
        let value = (request.projection != Projection::KeysOnly).then(|| value.to_value());
        found.push(Found { sort: sort.to_vec(), value, value_bytes });
        ControlFlow::Continue(())
    })?;
    Ok((found, is_full))
}

/// One of several parts of a store: the partitions from `from` (included) to `to` (excluded).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Option<Vec<u8>>,
}

/// One page of partition keys.
pub(crate) fn list(
    tree: &Tree,
    query: &PartitionQuery,
    part: &Part,
    after: Option<PartitionKey>,
    limits: &Limits,
) -> Result<PartitionPage, EngineError> {
    let mut page = PartitionPage { partitions: Vec::new(), resume: None };
    let mut page_bytes = 0;
    let mut from = keys::listing_start(&query.prefix).max(keys::listing_start(&part.from));
    if let Some(after) = after {
        from = from.max(keys::partition_end(&after));
    }
    while let Some(next) = next_partition(tree, &from)? {
        let is_past = part.to.as_ref().is_some_and(|to| next >= *to);
        if is_past || !next.starts_with(&query.prefix) {
            break;
        }
        page_bytes += next.len();
        let is_full = page.partitions.len() == query.limit || page_bytes > limits.page_bytes;
        if let (true, Some(last)) = (is_full, page.partitions.last()) {
            page.resume = Some(query.token_after(last));
            break;
        }
        from = keys::partition_end(&next);
        page.partitions.push(next);
    }
    Ok(page)
}

/// The partition of the first key from `from` on.
fn next_partition(tree: &Tree, from: &[u8]) -> Result<Option<PartitionKey>, EngineError> {
    let mut next = None;
    tree.scan((Bound::Included(from), Bound::Unbounded), EngineDirection::Forward, |key, _| {
        next = keys::split(key).map(|(partition, _)| partition);
        ControlFlow::Break(())
    })?;
    Ok(next)
}
