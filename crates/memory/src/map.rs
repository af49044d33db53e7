//! The map of sorted maps, and what each operation means on it.
//!
//! Invariant: a partition in the map has at least one cell.
//! Invariant: a refused batch leaves the map as it was.

use crate::splits::SplitPart;
use atoll_store::{
    Batch, Buffer, ByteRange, Cell, Conflict, Direction, Limits, Mutation, PartitionKey, PartitionPage,
    PartitionQuery, Projection, ScanEntry, ScanPage, ScanRequest, SortKey, SortRange, StoreError,
};
use std::collections::BTreeMap;
use std::ops::Bound;

type Partition = BTreeMap<SortKey, Buffer>;

/// Every cell of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    partitions: BTreeMap<PartitionKey, Partition>,
}

impl Map {
    pub(crate) fn get(&self, cell: Cell<'_>) -> Option<&Buffer> {
        self.partitions.get(cell.partition)?.get(cell.sort)
    }

    /// Checks the conditions, then applies the mutations in order.
    pub(crate) fn write(&mut self, batch: &Batch, limits: &Limits) -> Result<(), StoreError> {
        for (at, condition) in batch.conditions.iter().enumerate() {
            let actual = self.get(Cell::new(&batch.partition, condition.sort()));
            if !condition.holds(actual.map(Buffer::as_slice)) {
                let conflict = Conflict::new(at, condition.sort().to_vec(), actual);
                return Err(StoreError::Conflict(Box::new(conflict)));
            }
        }
        let partition = self.partitions.entry(batch.partition.clone()).or_default();
        let result = apply(partition, &batch.mutations, limits);
        if partition.is_empty() {
            self.partitions.remove(&batch.partition);
        }
        result
    }

    /// One page of a scan whose token was opened as `after`.
    pub(crate) fn scan(&self, request: &ScanRequest, after: Option<SortKey>, limits: &Limits) -> ScanPage {
        let range = rest(request, after);
        let empty = Partition::new();
        let partition = self.partitions.get(&request.partition).unwrap_or(&empty);
        let mut page = ScanPage { entries: Vec::new(), resume: None };
        let mut page_bytes = 0;
        for (sort, value) in in_order(partition, &range, request.direction) {
            let entry = project(sort, value, request.projection);
            page_bytes += entry.sort.len() + entry.value.len();
            let is_full = page.entries.len() == request.limit || page_bytes > limits.page_bytes;
            // The first entry is taken however large it is.
            if let (true, Some(last)) = (is_full, page.entries.last()) {
                page.resume = Some(request.token_after(&last.sort));
                break;
            }
            page.entries.push(entry);
        }
        page
    }

    /// One page of the partition keys of a part, after the key `after` from the token.
    pub(crate) fn partition_keys(
        &self,
        query: &PartitionQuery,
        part: SplitPart,
        after: Option<&PartitionKey>,
        limits: &Limits,
    ) -> PartitionPage {
        let from = after.map_or(Bound::Included(&query.prefix), Bound::Excluded);
        let keys = self.partitions.range::<PartitionKey, _>((from, Bound::Unbounded)).map(|(key, _)| key);
        let mut page = PartitionPage { partitions: Vec::new(), resume: None };
        let mut page_bytes = 0;
        for key in keys.take_while(|key| key.starts_with(&query.prefix)).filter(|key| part.contains(key)) {
            page_bytes += key.len();
            let is_full = page.partitions.len() == query.limit || page_bytes > limits.page_bytes;
            if let (true, Some(last)) = (is_full, page.partitions.last()) {
                page.resume = Some(query.token_after(last));
                break;
            }
            page.partitions.push(key.clone());
        }
        page
    }
}

/// Applies all mutations, or none if one of them would exceed a limit.
fn apply(partition: &mut Partition, mutations: &[Mutation], limits: &Limits) -> Result<(), StoreError> {
    let mut undo = Vec::new();
    for mutation in mutations {
        if let Err(error) = apply_one(partition, mutation, limits, &mut undo) {
            for (sort, value) in undo.into_iter().rev() {
                set(partition, sort, value);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn apply_one(
    partition: &mut Partition,
    mutation: &Mutation,
    limits: &Limits,
    undo: &mut Vec<(SortKey, Option<Buffer>)>,
) -> Result<(), StoreError> {
    let mut change = |sort: &SortKey, value: Option<Buffer>| {
        let former = set(partition, sort.clone(), value);
        undo.push((sort.clone(), former));
    };
    match mutation {
        Mutation::Put(sort, value) => change(sort, Some(value.to_owned_alone())),
        Mutation::Delete(sort) => change(sort, None),
        Mutation::Append(sort, bytes) => {
            let former = partition.get(sort).cloned().unwrap_or_default();
            let len = former.len() + bytes.len();
            limits.check_value(len as u64)?;
            let value = Buffer::concat(len, [former.as_slice(), bytes]);
            undo.push((sort.clone(), set(partition, sort.clone(), Some(value))));
        }
        Mutation::DeleteRange(range) => {
            let doomed: Vec<_> =
                in_order(partition, range, Direction::Forward).map(|(sort, _)| sort.clone()).collect();
            for sort in doomed {
                let former = partition.remove(&sort);
                undo.push((sort, former));
            }
        }
    }
    Ok(())
}

fn set(partition: &mut Partition, sort: SortKey, value: Option<Buffer>) -> Option<Buffer> {
    match value {
        Some(value) => partition.insert(sort, value),
        None => partition.remove(&sort),
    }
}

/// The rest of a scan's range, after the key at which the previous page ended.
fn rest(request: &ScanRequest, after: Option<SortKey>) -> SortRange {
    let mut range = request.range.clone();
    match (request.direction, after) {
        (_, None) => {}
        (Direction::Forward, Some(last)) => range.from = Bound::Excluded(last),
        (Direction::Backward, Some(last)) => range.to = Bound::Excluded(last),
    }
    range
}

fn in_order<'a>(
    partition: &'a Partition,
    range: &SortRange,
    direction: Direction,
) -> Box<dyn Iterator<Item = (&'a SortKey, &'a Buffer)> + 'a> {
    // An ordered map panics when asked for an inverted range.
    if range.is_empty() {
        return Box::new(std::iter::empty());
    }
    let within = partition.range::<SortKey, _>((range.from.as_ref(), range.to.as_ref()));
    match direction {
        Direction::Forward => Box::new(within),
        Direction::Backward => Box::new(within.rev()),
    }
}

fn project(sort: &SortKey, value: &Buffer, projection: Projection) -> ScanEntry {
    let bytes = match projection {
        Projection::KeysOnly => Buffer::new(),
        Projection::Values => value.clone(),
        Projection::Bytes(range) => part_of(value, range),
    };
    ScanEntry { sort: sort.clone(), value: bytes, value_bytes: value.len() as u64 }
}

/// The bytes of `value` in `range`.
pub(crate) fn part_of(value: &Buffer, range: ByteRange) -> Buffer {
    let (start, end) = range.within(value.len() as u64);
    value.slice(start as usize..end as usize)
}
