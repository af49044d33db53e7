//! Fetching: reads ranges of objects, many at once, merging ranges that are close together.
//!
//! Invariant: at most [`IN_FLIGHT_BYTES_MAX`] bytes, or a single range, are in flight at a time.

use super::{Table, TableError, Work};
use crate::protocol::ObjectId;
use atoll_store::{Buffer, ByteRange, Read};
use futures::StreamExt;

/// Gaps between two ranges up to this length are read rather than skipped: a request costs more.
const GAP_BYTES: u64 = 4 << 10;

/// Number of requests that an answer may take in any case; number that a round of it may take even if
/// earlier rounds took those; and number of bytes for which it may take one more. If there would be more
/// requests, the shortest gaps are read as well.
const REQUESTS: u64 = 28;
const REQUESTS_MORE: u64 = 10;
const BYTES_EACH: u64 = 1_600_000;

/// Limit on the bytes of gaps read for that, as a multiple of the bytes needed.
const GAPS_MAX: u64 = 3;

/// Beyond that limit, only short gaps are read: up to this length, or up to this part of the bytes needed,
/// and no more bytes of them than arrive in the time of some dozen requests. A longer gap takes longer than
/// the request that it saves.
const SHORT_GAP_BYTES: u64 = 32 << 10;
const SHORT_GAP_PART: u64 = 4;
const SHORT_GAPS_BYTES_MAX: u64 = 8 << 20;

/// Maximum length of a request for several ranges, so that a large object arrives in parts that overlap.
const REQUEST_BYTES_MAX: u64 = 4 << 20;

/// Maximum number of bytes requested before the first of them are used.
const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;

/// A range of bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) object: ObjectId,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Range {
    pub(super) fn bytes(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// The requests for some ranges, and which range lies in which request.
pub(super) struct Requests {
    pub(super) merged: Vec<Range>,
    /// All ranges as (request, range), sorted by their position.
    within: Vec<(usize, usize)>,
}

impl Requests {
    /// Merges ranges that are close together into one request. The answer that they are for has taken `taken`
    /// requests in earlier rounds.
    pub(super) fn of(ranges: &[Range], taken: u64) -> Self {
        let mut sorted: Vec<usize> = (0..ranges.len()).collect();
        sorted.sort_by_key(|&place| ranges[place]);
        let (gap, mut last_gaps) = gap_to_read(ranges, &sorted, taken);
        let (mut merged, mut within) = (Vec::<Range>::new(), Vec::with_capacity(ranges.len()));
        for place in sorted {
            let range = ranges[place];
            match merged.last_mut() {
                Some(last) if joins(last, &range, gap, &mut last_gaps) => last.to = last.to.max(range.to),
                _ => merged.push(range),
            }
            within.push((merged.len() - 1, place));
        }
        Self { merged, within }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.merged.iter().map(Range::bytes).fold(0, u64::saturating_add)
    }

    /// The ranges that lie in a request.
    fn ranges_of(&self, request: usize) -> impl Iterator<Item = usize> {
        let from = self.within.partition_point(|&(of, _)| of < request);
        self.within[from..].iter().take_while(move |&&(of, _)| of == request).map(|&(_, range)| range)
    }

    /// The end of the requests from `from` on that may be in flight together.
    fn wave(&self, from: usize) -> usize {
        let mut bytes = 0_u64;
        let mut fits = |range: &&Range| {
            bytes = bytes.saturating_add(range.bytes());
            bytes <= IN_FLIGHT_BYTES_MAX
        };
        from + self.merged[from..].iter().take_while(&mut fits).count().max(1)
    }
}

/// The number of requests for `needed` bytes of an answer that has taken `taken` requests before.
fn requests_allowed(needed: u64, taken: u64) -> usize {
    let left = REQUESTS.saturating_sub(taken).max(REQUESTS_MORE);
    usize::try_from(left.saturating_add(needed / BYTES_EACH)).unwrap_or(usize::MAX)
}

/// The maximum length of gaps between ranges, in the order `sorted`, that are read rather than skipped; and
/// how many gaps of exactly that length, since there may be more of them than are worth reading.
fn gap_to_read(ranges: &[Range], sorted: &[usize], taken: u64) -> (u64, usize) {
    let mut gaps = Vec::new();
    let (mut needed, mut objects) = (0_u64, 0);
    let mut last: Option<Range> = None;
    for range in sorted.iter().map(|&place| ranges[place]) {
        needed = needed.saturating_add(range.bytes());
        match &mut last {
            Some(last) if last.object == range.object => {
                let gap = range.from.saturating_sub(last.to);
                gaps.extend((gap > GAP_BYTES).then_some(gap));
                last.to = last.to.max(range.to);
            }
            _ => {
                objects += 1;
                last = Some(range);
            }
        }
    }
    gaps.sort_unstable();
    let too_many = (objects + gaps.len()).saturating_sub(requests_allowed(needed, taken));
    let short = SHORT_GAP_BYTES.max(needed / SHORT_GAP_PART);
    let mut bytes = 0_u64;
    let worth = gaps.iter().take(too_many).take_while(|gap| {
        bytes = bytes.saturating_add(**gap);
        let is_short = **gap <= short && bytes <= SHORT_GAPS_BYTES_MAX;
        is_short || bytes <= needed.saturating_mul(GAPS_MAX)
    });
    let worth = worth.count();
    let gap = worth.checked_sub(1).map_or(GAP_BYTES, |last| gaps[last]);
    (gap, worth - gaps.partition_point(|shorter| *shorter < gap).min(worth))
}

fn joins(last: &Range, next: &Range, gap: u64, last_gaps: &mut usize) -> bool {
    let between = next.from.saturating_sub(last.to);
    let is_last = between > GAP_BYTES && between == gap;
    let is_near = next.object == last.object && between <= gap && (!is_last || *last_gaps > 0);
    let joins = is_near && (next.to <= last.to || next.to - last.from <= REQUEST_BYTES_MAX);
    *last_gaps -= usize::from(joins && is_last);
    joins
}

impl Table {
    /// Fetches ranges; hands over each with its index as soon as its bytes have arrived. The answer that they
    /// are for has taken `taken` requests in earlier rounds.
    pub(super) async fn fetch(
        &self,
        ranges: &[Range],
        taken: u64,
        work: &mut Work,
        mut arrived: impl FnMut(usize, Buffer) -> Result<(), TableError>,
    ) -> Result<(), TableError> {
        let requests = Requests::of(ranges, taken);
        let mut from = 0;
        while from < requests.merged.len() {
            let to = requests.wave(from);
            let reads = requests.merged[from..to].iter().map(|range| self.read_of(range)).collect();
            let mut answers = self.store.get_many(reads);
            while let Some((place, answer)) = answers.next().await {
                let request = requests.merged[from + place];
                let bytes = answer?.ok_or_else(|| self.missing(request.object))?;
                work.requests += 1;
                work.bytes += bytes.len() as u64;
                for place in requests.ranges_of(from + place) {
                    let start = (ranges[place].from - request.from) as usize;
                    let end = start + ranges[place].bytes() as usize;
                    arrived(place, bytes.slice(start..end))?;
                }
            }
            from = to;
        }
        Ok(())
    }

    /// Fetches ranges and returns them in order. A range that exceeds its object is cut to it.
    pub(super) async fn fetch_all(
        &self,
        ranges: &[Range],
        work: &mut Work,
    ) -> Result<Vec<Buffer>, TableError> {
        let mut fetched = vec![Buffer::new(); ranges.len()];
        let arrived = |place: usize, bytes| {
            fetched[place] = bytes;
            Ok(())
        };
        self.fetch(ranges, 0, work, arrived).await?;
        Ok(fetched)
    }

    fn read_of(&self, range: &Range) -> Read {
        Read {
            range: ByteRange::new(range.from, range.bytes()),
            immutable: true,
            ..Read::new(self.names.object(range.object), b"")
        }
    }

    pub(super) fn missing(&self, object: ObjectId) -> TableError {
        TableError::ObjectGone { table: self.name.clone(), object }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::SessionId;
    use crate::seeds::for_seeds;

    fn range(object: u64, from: u64, to: u64) -> Range {
        Range { object: ObjectId { session: SessionId(1), sequence: object }, from, to }
    }

    #[test]
    fn near_ranges_of_an_object_are_one_request_and_others_are_not() {
        let near = Requests::of(&[range(1, 9000, 9100), range(1, 0, 100), range(1, 120, 5000)], 0);
        assert_eq!(near.merged, [range(1, 0, 9100)]);
        let far = Requests::of(&[range(1, 0, 100), range(1, 101 + GAP_BYTES, 9000), range(2, 100, 200)], 0);
        assert_eq!(far.merged.len(), 3);
        let long = REQUEST_BYTES_MAX - 10;
        assert_eq!(Requests::of(&[range(1, 0, long), range(1, long, long + 20)], 0).merged.len(), 2);
    }

    #[test]
    fn ranges_of_any_length_are_added_up_without_overflow() {
        let all = Requests::of(&[range(1, 0, u64::MAX), range(2, 0, u64::MAX), range(3, 0, 1)], 0);
        assert_eq!((all.bytes(), all.wave(0)), (u64::MAX, 1));
    }

    /// A hundred ranges of `bytes` bytes, each gap a little longer than the previous one.
    fn spread(bytes: u64, gap: u64) -> Vec<Range> {
        let from = |at: u64| at * (bytes + gap) + at * at * 10;
        (0..100).map(|at| range(1, from(at), from(at) + bytes)).collect()
    }

    #[test]
    fn many_ranges_far_apart_become_few_requests_unless_the_gaps_are_too_long() {
        let count = |ranges: &[Range]| Requests::of(ranges, 0).merged.len() as u64;
        assert_eq!(count(&spread(5000, 4_500)), REQUESTS);
        assert_eq!(count(&spread(5000, 45_000)), REQUESTS, "a few megabytes are worth it");
        assert_eq!(count(&spread(5000, 45_000)[..20]), 20, "few need not become fewer");
        let far = Requests::of(&spread(5000, 450_000), 0);
        assert_eq!(far.merged.len(), 100 - 3, "three times what is needed is three of these gaps");
        assert!(far.bytes() <= 100 * 5000 * (1 + GAPS_MAX), "{}", far.bytes());
        assert_eq!(requests_allowed(25 * BYTES_EACH, 0), REQUESTS as usize + 25);
    }

    #[test]
    fn a_large_answer_reads_longer_gaps_than_a_small_one() {
        // Ten ranges in each of ten objects, a hundred kilobytes apart.
        let of = |bytes: u64| {
            let from = |at: u64| at % 10 * (bytes + 100_000);
            let ranges = (0..100).map(|at| range(at / 10, from(at), from(at) + bytes));
            Requests::of(&ranges.collect::<Vec<_>>(), 0).merged.len()
        };
        assert_eq!(of(40_000), requests_allowed(100 * 40_000, 0));
        assert_eq!(of(1600), 100 - 4, "three times what is needed is four of these gaps");
    }

    #[test]
    fn gaps_that_are_all_as_long_are_read_as_far_as_they_may_be() {
        let alike = |gap: u64| {
            let from = |at: u64| at * (100 + gap);
            Requests::of(&(0..1000).map(|at| range(1, from(at), from(at) + 100)).collect::<Vec<_>>(), 0)
        };
        let read = SHORT_GAPS_BYTES_MAX / 30_000;
        assert_eq!(alike(30_000).merged.len() as u64, 1000 - read);
        assert_eq!(alike(30_000).bytes(), 1000 * 100 + read * 30_000);
        assert_eq!(alike(2_000_000).bytes(), 1000 * 100, "one of them is more than may be read");
    }

    #[test]
    fn a_small_answer_from_all_over_a_large_table_reads_no_long_gaps() {
        // The path of a particle: a band of 1,600 bytes here and there in twenty objects; every other gap is
        // short.
        let path = |at: u64| {
            let from = at / 2 * 500_000 + at % 2 * 20_000;
            range(at / 5, from, from + 1600)
        };
        let path: Vec<Range> = (0..100).map(path).collect();
        let requests = Requests::of(&path, 0);
        let needed: u64 = path.iter().map(Range::bytes).sum();
        assert_eq!(needed, 160_000);
        assert!(requests.bytes() <= needed * 8, "{} bytes for {needed}", requests.bytes());
        assert!(requests.merged.len() <= 60, "{}", requests.merged.len());
    }

    #[test]
    fn rounds_of_one_answer_share_its_requests() {
        let count = |taken| Requests::of(&spread(5000, 4_500), taken).merged.len() as u64;
        assert_eq!([0, 12, 17].map(count), [REQUESTS, REQUESTS - 12, REQUESTS - 17]);
        assert_eq!([25, 1000].map(count), [REQUESTS_MORE; 2], "a late round may take some as well");
    }

    #[test]
    fn every_range_lies_in_the_request_that_it_is_found_under() {
        for_seeds("every_range_lies_in_the_request", 200, |random| {
            let ranges: Vec<Range> = (0..random.usize(..60))
                .map(|_| {
                    let from = random.u64(..3 * REQUEST_BYTES_MAX);
                    range(random.u64(..3), from, from + random.u64(..REQUEST_BYTES_MAX * 2))
                })
                .collect();
            let requests = Requests::of(&ranges, random.u64(..2 * REQUESTS));
            let mut seen = vec![0; ranges.len()];
            for (request, merged) in requests.merged.iter().enumerate() {
                for place in requests.ranges_of(request) {
                    let inside = merged.from <= ranges[place].from && ranges[place].to <= merged.to;
                    assert!(inside && merged.object == ranges[place].object);
                    seen[place] += 1;
                }
            }
            assert!(seen.iter().all(|&times| times == 1), "{seen:?}");
            let mut from = 0;
            while from < requests.merged.len() {
                let to = requests.wave(from);
                let bytes: u64 = requests.merged[from..to].iter().map(Range::bytes).sum();
                assert!(to > from && (bytes <= IN_FLIGHT_BYTES_MAX || to == from + 1));
                from = to;
            }
        });
    }
}
