//! Keeps blocks that bypass the page cache away from windows, which are pages of that cache.
//!
//! A cache page may span more than a block: 64 KiB where the processor's pages are that long, and on some
//! file systems as much as was read ahead at once. A block that bypasses the cache next to a window could
//! share such a page with it. The system drops that page for the block. A concurrent copy into the window has
//! the page read again, with the old contents of the block, and makes all of it dirty; then those old
//! contents are written over the block. open(2) warns of that.
//!
//! Invariant: while a window exists, no write that bypasses the cache is under way to a page that the window
//! may share.

use parking_lot::{Condvar, Mutex};
use std::ops::Range;
use std::sync::Arc;

/// No cache page is longer, or begins elsewhere than at a multiple of its length.
const PAGE_BYTES_MAX: u64 = 2 << 20;

/// The ranges of a file that are being written in either way.
#[derive(Debug, Default)]
pub(crate) struct PageExclusion {
    active: Mutex<ActiveRanges>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct ActiveRanges {
    /// Pages in which windows may lie.
    windows: Vec<Range<u64>>,
    /// Ranges that are being written past the cache.
    past: Vec<Range<u64>>,
}

/// Registers a window for as long as it lives.
#[derive(Debug)]
pub(crate) struct WindowGuard {
    exclusion: Arc<PageExclusion>,
    pages: Range<u64>,
}

/// Registers a write past the cache for as long as it lives.
pub(crate) struct BypassGuard<'a> {
    exclusion: &'a PageExclusion,
    range: Range<u64>,
}

impl PageExclusion {
    /// Registers a window on this range, and waits for writes past the cache that are under way there.
    pub(crate) fn register_window(self: &Arc<Self>, range: &Range<u64>) -> WindowGuard {
        let end = range.end.checked_next_multiple_of(PAGE_BYTES_MAX).unwrap_or(u64::MAX);
        let pages = range.start / PAGE_BYTES_MAX * PAGE_BYTES_MAX..end;
        let mut now = self.active.lock();
        // From here on no further one begins.
        now.windows.push(pages.clone());
        self.ended.wait_while(&mut now, |now| now.past.iter().any(|past| meet(past, &pages)));
        drop(now);
        WindowGuard { exclusion: Arc::clone(self), pages }
    }

    /// The beginning of a range that can be written in one way, with a pass if that way is past the cache.
    pub(crate) fn first_part(&self, range: Range<u64>) -> (Range<u64>, Option<BypassGuard<'_>>) {
        let mut now = self.active.lock();
        let near = now.windows.iter().filter(|pages| meet(pages, &range)).min_by_key(|pages| pages.start);
        match near.cloned() {
            Some(pages) if pages.start <= range.start => (range.start..range.end.min(pages.end), None),
            near => {
                let range = range.start..near.map_or(range.end, |pages| pages.start);
                now.past.push(range.clone());
                (range.clone(), Some(BypassGuard { exclusion: self, range }))
            }
        }
    }
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Removes one of possibly several equal ranges.
fn take_out(ranges: &mut Vec<Range<u64>>, range: &Range<u64>) {
    if let Some(place) = ranges.iter().position(|other| other == range) {
        ranges.swap_remove(place);
    }
}

impl Drop for WindowGuard {
    fn drop(&mut self) {
        take_out(&mut self.exclusion.active.lock().windows, &self.pages);
    }
}

impl Drop for BypassGuard<'_> {
    fn drop(&mut self) {
        take_out(&mut self.exclusion.active.lock().past, &self.range);
        self.exclusion.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The parts of a range, and whether each goes past the cache.
    fn parts(exclusion: &PageExclusion, mut range: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut parts = Vec::new();
        while !range.is_empty() {
            let (part, passing) = exclusion.first_part(range.clone());
            range.start = part.end;
            parts.push((part, passing.is_some()));
        }
        parts
    }

    #[test]
    fn what_lies_in_pages_of_windows_goes_through_the_cache_and_the_rest_past_it() {
        let exclusion = Arc::new(PageExclusion::default());
        assert_eq!(parts(&exclusion, 0..20 * MIB), [(0..20 * MIB, true)]);
        let first = exclusion.register_window(&(5 * MIB..7 * MIB));
        let second = exclusion.register_window(&(10 * MIB + 4096..12 * MIB));
        let all = [
            (0..4 * MIB, true),
            (4 * MIB..8 * MIB, false),
            (8 * MIB..10 * MIB, true),
            (10 * MIB..12 * MIB, false),
            (12 * MIB..20 * MIB, true),
        ];
        assert_eq!(parts(&exclusion, 0..20 * MIB), all);
        assert_eq!(parts(&exclusion, 7 * MIB..7 * MIB + 4096), [(7 * MIB..7 * MIB + 4096, false)]);
        assert_eq!(parts(&exclusion, 8 * MIB..8 * MIB + 4096), [(8 * MIB..8 * MIB + 4096, true)]);
        // A window that begins where another one ends, as on the next segment of a log.
        let third = exclusion.register_window(&(7 * MIB..8 * MIB));
        drop(first);
        assert_eq!(
            parts(&exclusion, 4 * MIB..8 * MIB),
            [(4 * MIB..6 * MIB, true), (6 * MIB..8 * MIB, false)]
        );
        drop((second, third));
        assert_eq!(parts(&exclusion, 0..20 * MIB), [(0..20 * MIB, true)]);
        let now = exclusion.active.lock();
        assert!(now.windows.is_empty() && now.past.is_empty(), "{now:?}");
    }

    #[test]
    fn a_window_waits_for_what_is_under_way_to_its_pages_and_for_nothing_else() {
        let exclusion = Arc::new(PageExclusion::default());
        let (_, elsewhere) = exclusion.first_part(0..2 * MIB);
        let (range, passing) = exclusion.first_part(2 * MIB..3 * MIB);
        assert!(range == (2 * MIB..3 * MIB) && passing.is_some() && elsewhere.is_some());
        let (told, is_there) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let window = exclusion.register_window(&(3 * MIB..4 * MIB));
                told.send(()).unwrap();
                drop(window);
            });
            // It has registered its range, and still waits.
            while exclusion.active.lock().windows.is_empty() {
                std::thread::yield_now();
            }
            assert!(
                exclusion.first_part(2 * MIB..3 * MIB).1.is_none(),
                "past the cache to where a window begins"
            );
            assert!(is_there.try_recv().is_err());
            drop(passing);
            is_there.recv().unwrap();
        });
    }
}
