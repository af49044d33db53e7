//! Deltas: records put into a leaf that is not in memory, kept beside the leaf's place.
//!
//! A put need not know what it replaces. Where the leaf is not resident, reading it for one record would cost
//! a read now and the memory of the whole leaf until a checkpoint; a delta costs only the record. Lookups
//! search the delta first, and a reader of the leaf gets page and delta merged (the Bw-tree and LLAMA call
//! such puts blind updates).
//!
//! A checkpoint gives a delta a home: a second page with its records beside that of the leaf, or, once there
//! are many records, one page with both. A delta lies on a page, or on another delta that is shared or whose
//! records are not in memory.
//!
//! Invariant: a delta changes only while it is unshared and has no home.
//! Invariant: a delta with a home equals it. With a second page it may hold the records in memory as well, to
//! save reading them.
//! Invariant: the page at the bottom leaves the current trees when page and records become one page, or
//! together with the delta. A second page leaves them with the first put above it, and its space is not
//! reused before the commit that has the home of what lies above.
//! Invariant: values on disk that a delta replaced are retired once, by the current tree.

mod reading;
mod records;
#[cfg(test)]
mod tests;
mod unread;

pub(crate) use records::{Records, record_bytes, record_len};

use crate::backing::Backing;
use crate::leaf::Leaf;
use crate::meter::{Kind, Meter, Weight};
use crate::node::{Home, PageRef};
use crate::planted::{self, Bug};
use crate::retired::RetiredList;
use crate::threads::{AtomicBool, AtomicU64, RwLock};
use crate::value::Chain;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use unread::Unread;

/// Up to this many bytes of page and delta together, records go beside a leaf; beyond, the leaf is read and
/// perhaps split. A full leaf has a page of 7 KiB, and most puts replace existing records.
const FITTING_BYTES: usize = 9 << 10;

/// A page has its records beside it on disk as long as the page is at least this many times as long as they
/// are. Each checkpoint writes all of the records anew, so with more of them one page of both is soon
/// cheaper; see decision 0024.
const SLIM_PARTS: usize = 4;

/// Where many records come between two checkpoints, few of them are written anew: they may take up to two
/// parts in this many of the page.
const GROWN_PARTS: usize = 5;

/// Records up to this many bytes are copied into a delta put above them: they take no more than another delta
/// would. Longer ones stay where they are, and can be evicted.
const COPIED_BYTES_MAX: usize = DELTA_BYTES;

/// Room that a checkpoint leaves beside a leaf, in bytes.
const ROOM_LEFT_BYTES: usize = 1 << 10;

/// How many bytes longer a merged page may be than page and delta were: one for each record whose value takes
/// one more byte for its length there. Decisions made before the log is written leave this much room, because
/// a checkpoint may merge both until the put is applied.
pub(crate) const MERGED_GROWTH_BYTES_MAX: usize = 192;

/// Memory of a delta without its records, including what holds it.
const DELTA_BYTES: usize = size_of::<Delta>() + 96;

/// The records put into a leaf since its page was written.
pub(crate) struct Delta {
    /// The epoch of the last put.
    pub(crate) birth: u64,
    content: RwLock<Content>,
    /// The number under which the current tree retired the chains that this delta replaced
    /// ([`Backing::next_retirement`]); 0 while it has not.
    retired_as: AtomicU64,
    /// Whether a lookup found something here since the last scan for what to evict.
    was_used: AtomicBool,
    unread: Unread,
}

struct Content {
    base: Base,
    /// None where they are on disk alone.
    records: Option<Records>,
    /// Fields that few deltas need.
    rare: Option<Box<RareFields>>,
    weight: Weight,
}

#[derive(Default)]
struct RareFields {
    /// Chains that the records replaced in what the delta lies on, or, with a home, in its page; none before
    /// both were merged.
    replaced: Option<Vec<Chain>>,
    /// With a home that has everything in one page: chains that the delta below had replaced, for as long as
    /// a check may still ask for them.
    below: Vec<Replaced>,
    /// Records of the page that were looked up while memory was short, kept for the next lookup; only with a
    /// second page.
    seen: Records,
}

/// A chain that a delta replaced, the number under which the current tree retired it, and the epoch in which
/// it was replaced.
struct Replaced {
    retired_as: u64,
    chain: Chain,
    epoch: u64,
}

/// What a delta lies on, or where it lies itself.
#[derive(Clone)]
enum Base {
    Page(PageRef),
    Delta(Arc<Delta>),
    /// At its home, which includes everything that it lay on.
    Home(Home),
}

impl Delta {
    /// An empty delta on a page.
    pub(crate) fn of_page(page: PageRef, epoch: u64, backing: &Backing) -> Self {
        Self::new(Base::Page(page), Records::default(), epoch, backing.meter())
    }

    /// Records beside a page that is lost.
    pub(crate) fn beside_lost(page: PageRef, records: Records, backing: &Backing) -> Self {
        Self::new(Base::Page(page), records, 0, backing.meter())
    }

    /// A changeable successor of `former`, which is shared or has a home.
    pub(crate) fn above(
        former: &Arc<Self>,
        epoch: u64,
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Self {
        let meter = backing.meter();
        if former.birth == epoch
            && let (base @ (Base::Page(_) | Base::Delta(_)), records) = former.copied()
        {
            return Self::new(base, records, epoch, meter);
        }
        retired.superseded(former, epoch);
        match former.home() {
            Some(Home { page, delta: None, .. }) => Self::of_page(page, epoch, backing),
            Some(Home { page, delta: Some(second), .. }) if second.len as usize <= COPIED_BYTES_MAX => {
                match former.content.read().records.clone() {
                    Some(records) => Self::new(Base::Page(page), records, epoch, meter),
                    None => Self::new(Base::Delta(Arc::clone(former)), Records::default(), epoch, meter),
                }
            }
            Some(_) => Self::new(Base::Delta(Arc::clone(former)), Records::default(), epoch, meter),
            None => Self::new(Base::Delta(Arc::clone(former)), Records::default(), epoch, meter),
        }
    }

    /// The delta at this home, whose records were not read yet.
    pub(crate) fn on_disk(home: Home, meter: &Arc<Meter>) -> Self {
        let birth = home.delta.map_or(home.page.birth, |delta| delta.birth);
        let weight = Weight::of(meter, Kind::Beside, 0);
        Self::with(birth, Content { base: Base::Home(home), records: None, rare: None, weight })
    }

    fn new(base: Base, records: Records, birth: u64, meter: &Arc<Meter>) -> Self {
        let weight = Weight::of(meter, Kind::Waiting, 0);
        Self::with(birth, Content { base, records: Some(records), rare: None, weight })
    }

    fn with(birth: u64, mut content: Content) -> Self {
        content.weigh();
        Self {
            birth,
            content: RwLock::new(content),
            retired_as: AtomicU64::new(0),
            was_used: AtomicBool::new(false),
            unread: Unread::default(),
        }
    }

    /// Its home, if a checkpoint wrote it.
    pub(crate) fn home(&self) -> Option<Home> {
        self.content.read().home()
    }

    /// Whether it may change while it is unshared: no checkpoint wrote it.
    pub(crate) fn may_change(&self) -> bool {
        self.home().is_none()
    }

    /// Whether `added` bytes of records may be put beside a page of `page` bytes that has `records` bytes
    /// beside it already.
    pub(crate) fn fits(page: usize, records: usize, added: usize) -> bool {
        page + records + added <= FITTING_BYTES
    }

    /// As [`Delta::fits`], beside a leaf that cannot be read: more fits, because nothing can merge them. If
    /// the leaf can be read after all, a leaf can still hold both: records take up to eight times as much
    /// there as on a page.
    pub(crate) fn fits_unread(page: usize, records: usize, added: usize) -> bool {
        page + records + added <= Leaf::BYTES_MAX / 8
    }

    /// Bytes of the page at the bottom, and of all records above it.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let content = self.content.read();
        let (page, below) = match &content.base {
            Base::Home(home) => {
                return (home.page.len as usize, home.delta.map_or(0, |delta| delta.len as usize));
            }
            Base::Page(page) => (page.len as usize, 0),
            Base::Delta(below) => below.sizes(),
        };
        (page, below + content.records.as_ref().map_or(0, Records::len))
    }

    /// Whether its records go to a page of their own, rather than to one page together with what they lie on.
    pub(crate) fn is_slim(&self) -> bool {
        let (page, records) = self.sizes();
        // With no more room beside it, a leaf would be read by the next put, alone, where a checkpoint reads
        // many together. That does not help a page that is long in itself.
        let has_room =
            Self::fits(page, records, ROOM_LEFT_BYTES) || !Self::fits(page, 0, 2 * ROOM_LEFT_BYTES);
        (records * SLIM_PARTS <= page || self.grows_fast(page, records)) && has_room
    }

    /// Whether so many of the records are new that another second page is cheaper than one page of both,
    /// although they are many. With `n` new bytes at each checkpoint, a page of `P` bytes and merging at `L`,
    /// a leaf costs about `L / 2 + P * n / L` bytes each time, which is least where `L * L` is `2 * P * n`.
    fn grows_fast(&self, page: usize, records: usize) -> bool {
        let is_cheaper = |new: usize| records * records <= 2 * page * new;
        records * GROWN_PARTS <= page * 2 && self.bytes_above_second().is_some_and(is_cheaper)
    }

    /// Bytes of the records above the second page; none where there is no such page, or where its records
    /// were so few that they were copied.
    fn bytes_above_second(&self) -> Option<usize> {
        let content = self.content.read();
        let Base::Delta(below) = &content.base else { return None };
        let own = content.records.as_ref().map_or(0, Records::len);
        match below.home() {
            Some(home) => home.delta.map(|_| own),
            None => below.bytes_above_second().map(|more| more + own),
        }
    }

    /// Puts a record. The delta must be unshared.
    pub(crate) fn put(&mut self, (key, value): (&[u8], &[u8]), epoch: u64) {
        self.birth = epoch;
        let mut content = self.content.write();
        // An earlier merge does not include this record.
        if let Some(rare) = &mut content.rare {
            rare.replaced = None;
        }
        content.records.get_or_insert_default().put(key, value);
        content.weigh();
    }

    /// Shows the value of a key that was put. None if the key is not known here, whether or not the leaf has
    /// it.
    pub(crate) fn find<R>(&self, key: &[u8], show: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let content = self.content.read();
        let of_second = content.records.as_ref().and_then(|records| records.get(key));
        let seen = || content.rare.as_ref().and_then(|rare| rare.seen.get(key));
        if let Some(value) = of_second.or_else(seen) {
            self.note_use();
            return Some(show(value));
        }
        match &content.base {
            Base::Delta(below) => below.find(key, show),
            Base::Page(_) | Base::Home(_) => None,
        }
    }

    /// The page at the bottom.
    pub(crate) fn page(&self) -> PageRef {
        match &self.content.read().base {
            Base::Page(page) => *page,
            Base::Delta(below) => below.page(),
            Base::Home(home) => home.page,
        }
    }

    /// The delta that it lies on, if it lies on one.
    pub(crate) fn below(&self) -> Option<Arc<Self>> {
        match &self.content.read().base {
            Base::Delta(below) => Some(Arc::clone(below)),
            Base::Page(_) | Base::Home(_) => None,
        }
    }

    /// Shows the pages that a checkpoint will read to write this delta.
    pub(crate) fn pages_to_merge(&self, moves: bool, show: &mut impl FnMut(PageRef)) {
        if moves || !self.is_slim() {
            show(self.page());
        }
        self.show_unread(show);
    }

    fn show_unread(&self, show: &mut impl FnMut(PageRef)) {
        let content = self.content.read();
        match &content.base {
            Base::Home(Home { delta: Some(page), .. }) if content.records.is_none() => show(*page),
            Base::Delta(below) => below.show_unread(show),
            Base::Page(_) | Base::Home(_) => {}
        }
    }

    /// Keeps a record of the page that was looked up, while there are too few of them to make the leaf worth
    /// reading.
    pub(crate) fn note_seen(&self, key: &[u8], value: &[u8]) {
        let mut content = self.content.write();
        content.rare.get_or_insert_default().seen.put(key, value);
        content.weigh();
    }

    /// Whether enough records of its page were looked up to make the leaf worth its memory.
    pub(crate) fn has_seen_much(&self, home: &Home) -> bool {
        let content = self.content.read();
        content.rare.as_ref().is_some_and(|rare| rare.seen.len() * 8 > home.page.len as usize)
    }

    /// A copy of what it lies on, and of its records.
    fn copied(&self) -> (Base, Records) {
        let content = self.content.read();
        (content.base.clone(), content.records.clone().unwrap_or_default())
    }

    /// Gives it the home that it was written to. `page` is the second page, if there is one and its records
    /// stay in memory.
    pub(crate) fn settle(&self, home: Home, page: Option<&[u8]>, backing: &Backing) {
        let mut content = self.content.write();
        backing.meter().was_written(content.weight.bytes());
        let base = std::mem::replace(&mut content.base, Base::Home(home));
        if let Base::Delta(below) = &base {
            content.take_over_replaced(below, home.delta.is_none() && backing.is_checked());
        }
        match page {
            // Reuse the present allocation: what a checkpoint allocates lies apart from other allocations and
            // leaves gaps of its own.
            Some(page) => content.records.get_or_insert_default().take_over(page),
            None => content.records = None,
        }
        content.weight = std::mem::take(&mut content.weight).turned_into(Kind::Beside);
        content.weigh();
        drop(content);
        drop(base);
    }

    fn note_use(&self) {
        // Written only if it changes: readers share the cache line.
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a lookup found something here since the last call.
    pub(crate) fn take_use(&self) -> bool {
        self.was_used.swap(false, Ordering::Relaxed)
    }

    /// The bytes that it counts for.
    pub(crate) fn bytes(&self) -> u64 {
        self.content.read().weight.bytes()
    }

    /// Chains that it replaced and that the current tree had not retired when `retirements` was the greatest
    /// number given out, each with the epoch in which it was replaced. The delta must have been merged.
    pub(crate) fn replaced(&self, retirements: u64) -> Vec<(Chain, u64)> {
        let mut all = Vec::new();
        self.show_replaced(&|number| number.load(Ordering::Relaxed), &mut |retired, chain, epoch| {
            all.extend((retired == 0 || retired > retirements).then(|| (chain.clone(), epoch)));
        });
        all
    }

    /// Shows each chain that it replaced, and whether the current tree is to retire it now, under `number`,
    /// or retired it before. `number` is not 0.
    pub(crate) fn retire_replaced(&self, number: u64, show: &mut dyn FnMut(Retirement, &Chain, u64)) {
        // One atomic step: a retirement between a load and a store would be missed.
        let retire = |retired_as: &AtomicU64| {
            retired_as
                .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
                .unwrap_or_else(|before| before)
        };
        self.show_replaced(&retire, &mut |before, chain, birth| {
            show(if before == 0 { Retirement::Now } else { Retirement::Before(before) }, chain, birth);
        });
    }

    /// Shows everything that was replaced, with the number it was retired under according to `look`, and the
    /// epoch in which it was replaced.
    fn show_replaced(&self, look: &dyn Fn(&AtomicU64) -> u64, show: &mut dyn FnMut(u64, &Chain, u64)) {
        let content = self.content.read();
        if let Base::Delta(below) = &content.base {
            below.show_replaced(look, show);
        }
        for Replaced { retired_as, chain, epoch } in content.rare.iter().flat_map(|rare| &rare.below) {
            show(*retired_as, chain, *epoch);
        }
        if let Some(replaced) = content.rare.as_ref().and_then(|rare| rare.replaced.as_ref())
            && !planted::is(Bug::ReplacedForgotten)
        {
            let before = look(&self.retired_as);
            replaced.iter().for_each(|chain| show(before, chain, self.birth));
        }
    }
}

/// When the current tree retired what a delta replaced.
#[derive(Clone, Copy)]
pub(crate) enum Retirement {
    Now,
    /// Before, under this number.
    Before(u64),
}

impl Content {
    fn home(&self) -> Option<Home> {
        match self.base {
            Base::Home(home) => Some(home),
            Base::Page(_) | Base::Delta(_) => None,
        }
    }

    /// Takes over what the delta below had replaced, which is about to be dropped. Retired chains are
    /// gone for good, also from the page, and are kept only for a check that began before.
    fn take_over_replaced(&mut self, below: &Delta, keeps_retired: bool) {
        // Without it the delta was never merged; a later merge finds everything replaced in the page.
        let Some(rare) = &mut self.rare else { return };
        let RareFields { replaced, below: kept, .. } = &mut **rare;
        below.show_replaced(&|number| number.load(Ordering::Relaxed), &mut |retired_as, chain, epoch| {
            if retired_as != 0 {
                kept.extend(keeps_retired.then(|| Replaced { retired_as, chain: chain.clone(), epoch }));
            } else if let Some(replaced) = replaced {
                replaced.push(chain.clone());
            }
        });
    }

    fn weigh(&mut self) {
        let rare = self.rare.as_ref().map_or(0, |rare| size_of::<RareFields>() + rare.seen.capacity());
        let records = self.records.as_ref().map_or(0, Records::capacity);
        self.weight.set((DELTA_BYTES + rare + records) as u64);
    }
}
