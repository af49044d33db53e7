//! Deltas: what was put into a leaf that is not in memory, kept beside the place of the leaf.
//!
//! A put need not know what it replaces. Where the leaf is not resident, reading it for one record would cost a read
//! now and the leaf's whole memory until a checkpoint; a delta costs the record. Lookups look there first, whoever reads the
//! leaf gets both merged, and the checkpoint merges what is left into pages (Bw-tree and LLAMA call such puts blind
//! updates).
//!
//! A delta lies on a page, or on a delta of an epoch before, which a running checkpoint is about to make a page of.
//!
//! Invariant: a delta changes only while nobody shares it; once its home is set, it equals the page there and has let go of
//! its records and of what it lay on.
//! Invariant: the page under a delta without a home is not used for anything else: it died with the epoch in which the
//! delta began, and the commit that lets go of that epoch has the delta's home.
//! Invariant: values on disk that a delta replaced are retired once, by the current tree.

use crate::backing::Backing;
use crate::checksum::key_hash;
use crate::codec::{Decoder, Encode};
use crate::frames::Purpose;
use crate::leaf::{Leaf, Record, SharedLeaf};
use crate::meter::{Kind, Meter, Weight};
use crate::node::{HomeCell, Node, PageRef};
use crate::page;
use crate::planted::{self, Bug};
use crate::retired::RetiredList;
use crate::threads::{AtomicBool, RwLock};
use crate::value::{Chain, Stored};
use crate::{Damage, EngineError};
use std::cmp::Ordering as Order;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Bytes of page and delta together up to which records go beside a leaf: beyond, the leaf is read and perhaps split. A full
/// leaf has a page of 7 KiB, and most puts replace what is there.
const FITTING_BYTES: usize = 9 << 10;

/// Bytes by which a merged page may be longer than the page and the delta were: one for each record whose value takes a byte
/// more for its length there. What is decided before the log is written leaves as much, for a checkpoint may merge both
/// until it is done.
pub(crate) const MERGED_MORE: usize = 192;

/// What a delta takes beside its records, with what holds it.
const DELTA_BYTES: usize = size_of::<Delta>() + 96;

/// Bytes that a record takes in a delta, at most.
pub(crate) fn record_bytes(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + 6
}

/// What was put into a leaf since its page was written.
pub(crate) struct Delta {
    /// The epoch of the last put.
    pub(crate) birth: u64,
    home: HomeCell,
    content: RwLock<Content>,
    /// Chains that its records replaced in what it lies on, once somebody merged both.
    replaced: OnceLock<Vec<Chain>>,
    /// Whether the current tree has retired them.
    was_told: AtomicBool,
}

struct Content {
    /// None once the delta has a home.
    base: Option<Base>,
    records: Records,
    weight: Weight,
}

/// What a delta lies on.
#[derive(Clone)]
enum Base {
    Page(PageRef),
    Delta(Arc<Delta>),
}

impl Delta {
    /// Nothing yet, on a page that leaves the current tree therefore.
    pub(crate) fn of_page(page: PageRef, epoch: u64, backing: &Backing, retired: &mut RetiredList) -> Self {
        retired.page(page, epoch + 1);
        Self::new(Base::Page(page), Records::default(), epoch, backing.meter())
    }

    /// What `former` is, which somebody shares or a page has, to be changed.
    pub(crate) fn of_delta(
        former: &Arc<Self>,
        epoch: u64,
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Self {
        let copied = (former.birth == epoch).then(|| former.copied()).flatten();
        if let Some((base, records)) = copied {
            return Self::new(base, records, epoch, backing.meter());
        }
        match former.home() {
            Some(home) => Self::of_page(home, epoch, backing, retired),
            None => {
                retired.delta(former, epoch);
                Self::new(Base::Delta(Arc::clone(former)), Records::default(), epoch, backing.meter())
            }
        }
    }

    fn new(base: Base, records: Records, birth: u64, meter: &Arc<Meter>) -> Self {
        let weight = Weight::of(meter, Kind::Waiting, 0);
        let mut content = Content { base: Some(base), records, weight };
        content.weigh();
        let (home, replaced, was_told) = Default::default();
        Self { birth, home, content: RwLock::new(content), replaced, was_told }
    }

    /// Where the page lies that has it, if one does.
    pub(crate) fn home(&self) -> Option<PageRef> {
        self.home.get()
    }

    /// Whether it may change while nobody shares it: no page has it, and none was about to. After a checkpoint that failed
    /// what it replaced was told already, so that what comes now goes into another one above it.
    pub(crate) fn may_change(&self) -> bool {
        self.home().is_none() && !self.was_told.load(Ordering::Relaxed)
    }

    /// Whether a page of so many bytes may have `added` bytes more beside it, where there are `records` of them.
    pub(crate) fn fits(page: usize, records: usize, added: usize) -> bool {
        page + records + added <= FITTING_BYTES
    }

    /// As [`Delta::fits`], for this one.
    pub(crate) fn takes(&self, added: usize) -> bool {
        let (page, records) = self.sizes();
        Self::fits(page, records, added)
    }

    /// Bytes of the page at the bottom, and of all records above it.
    fn sizes(&self) -> (usize, usize) {
        let content = self.content.read();
        let (page, below) = match (self.home(), &content.base) {
            (Some(home), _) => return (home.len as usize, 0),
            (None, Some(Base::Page(page))) => (page.len as usize, 0),
            (None, Some(Base::Delta(below))) => below.sizes(),
            (None, None) => (usize::MAX / 2, 0),
        };
        (page, below + content.records.len())
    }

    /// Puts a record. Nobody shares the delta.
    pub(crate) fn put(&mut self, (key, value): (&[u8], &[u8]), epoch: u64) {
        self.birth = epoch;
        // What was merged before does not know this record.
        self.replaced.take();
        let mut content = self.content.write();
        content.records.put(key, value);
        content.weigh();
    }

    /// Shows the value of a key that was put; none if it is not known here, whether the leaf has it or not.
    pub(crate) fn find<R>(&self, key: &[u8], show: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let content = self.content.read();
        if let Some(value) = content.records.get(key) {
            return Some(show(value));
        }
        match &content.base {
            Some(Base::Delta(below)) => below.find(key, show),
            _ => None,
        }
    }

    /// The page at the bottom, which whoever merges it will read.
    pub(crate) fn page(&self) -> Option<PageRef> {
        self.home().or_else(|| match &self.content.read().base {
            Some(Base::Page(page)) => Some(*page),
            Some(Base::Delta(below)) => below.page(),
            None => None,
        })
    }

    /// The leaf that page and delta add up to. It has no home and nobody may change it: what is true is the delta.
    pub(crate) fn read(&self, backing: &Backing) -> Result<SharedLeaf, EngineError> {
        loop {
            if let Some(home) = self.home() {
                return leaf_at(&home, backing);
            }
            let Some((base, records)) = self.copied() else { continue };
            let below = match &base {
                Base::Page(page) => leaf_at(page, backing),
                Base::Delta(delta) => delta.read(backing),
            };
            // With a home the page below is needed no more, and what was read there may be something else.
            if self.home().is_some() && !planted::is(Bug::DeltaReadOnce) {
                continue;
            }
            return self.merged(&below?, &records, backing);
        }
    }

    fn merged(&self, below: &Leaf, records: &Records, backing: &Backing) -> Result<SharedLeaf, EngineError> {
        let (all, replaced) = merge(below, records);
        if !Leaf::can_hold(below.prefix(), &all) {
            return Err(backing.corrupt(self.page().map_or(0, |page| page.offset), Damage::PageContent));
        }
        let mut leaf = Leaf::build(below.prefix(), below.birth, &all, 0, Purpose::Reading);
        if let Some(fresh) = leaf.get_mut() {
            fresh.count_in_as(backing.meter(), false);
        }
        let _ = self.replaced.set(replaced);
        Ok(leaf)
    }

    /// What it lies on, and its records; none once it has a home.
    fn copied(&self) -> Option<(Base, Records)> {
        let content = self.content.read();
        Some((content.base.clone()?, content.records.clone()))
    }

    /// Gives it the home that it was written to.
    pub(crate) fn settle(&self, home: PageRef, meter: &Meter) {
        self.home.settle(home);
        let mut content = self.content.write();
        let (base, records) = (content.base.take(), std::mem::take(&mut content.records));
        meter.was_written(content.weight.bytes());
        content.weight.set(0);
        drop(content);
        drop((base, records));
    }

    /// Chains that it replaced and the current tree has not let go of, each with the epoch in which it should have. The delta
    /// was merged.
    pub(crate) fn replaced(&self) -> Vec<(Chain, u64)> {
        self.collect_replaced(|was_told| was_told.load(Ordering::Relaxed))
    }

    /// As [`Delta::replaced`], for the current tree to let go of them: told once.
    pub(crate) fn take_replaced(&self) -> Vec<(Chain, u64)> {
        self.collect_replaced(|was_told| was_told.swap(true, Ordering::Relaxed))
    }

    fn collect_replaced(&self, was_told: fn(&AtomicBool) -> bool) -> Vec<(Chain, u64)> {
        let mut all = match &self.content.read().base {
            Some(Base::Delta(below)) => below.collect_replaced(was_told),
            _ => Vec::new(),
        };
        if let Some(replaced) = self.replaced.get()
            && !was_told(&self.was_told)
            && !planted::is(Bug::ReplacedForgotten)
        {
            all.extend(replaced.iter().map(|chain| (chain.clone(), self.birth)));
        }
        all
    }
}

impl Content {
    fn weigh(&mut self) {
        self.weight.set((DELTA_BYTES + self.records.bytes.capacity()) as u64);
    }
}

fn leaf_at(home: &PageRef, backing: &Backing) -> Result<SharedLeaf, EngineError> {
    match page::read(home, backing)? {
        Node::Leaf(leaf) => Ok(leaf),
        Node::Inner(_) => Err(backing.corrupt(home.offset, Damage::PageContent)),
    }
}

/// The records of a leaf with those of a delta put in, and the chains that these replaced.
fn merge<'a>(below: &'a Leaf, records: &'a Records) -> (Vec<Record<'a>>, Vec<Chain>) {
    let (mut all, mut replaced) = (Vec::with_capacity(below.len() + 16), Vec::new());
    let mut at = 0;
    for (key, value) in records.iter() {
        let place = below.locate(key, usize::MAX);
        let (Ok(slot) | Err(slot)) = place;
        all.extend((at..slot).map(|slot| below.record(slot)));
        if let Ok(slot) = place
            && let Stored::Chain(chain) = below.value(slot)
        {
            replaced.push(chain.clone());
        }
        all.push(Record { key: [key, &[]], fingerprint: key_hash(key), value: Stored::Inline(value) });
        at = slot + usize::from(place.is_ok());
    }
    all.extend((at..below.len()).map(|slot| below.record(slot)));
    (all, replaced)
}

/// Records in the order of their keys, one behind the other: length of the key, key, length of the value, value.
#[derive(Clone, Default)]
struct Records {
    bytes: Vec<u8>,
}

impl Records {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = Decoder::new(&self.bytes);
        // What was encoded here decodes.
        std::iter::from_fn(move || Some((rest.bytes().ok()?, rest.bytes().ok()?)))
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.iter()
            .take_while(|(other, _)| *other <= key)
            .find(|(other, _)| *other == key)
            .map(|(_, value)| value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let mut rest = Decoder::new(&self.bytes);
        let (mut start, mut end) = (self.bytes.len(), self.bytes.len());
        loop {
            let at = rest.position();
            let (Ok(other), Ok(_)) = (rest.bytes(), rest.bytes()) else { break };
            match other.cmp(key) {
                Order::Less => {}
                Order::Equal => {
                    (start, end) = (at, rest.position());
                    break;
                }
                Order::Greater => {
                    (start, end) = (at, at);
                    break;
                }
            }
        }
        let mut record = Vec::with_capacity(record_bytes(key, value));
        record.put_bytes(key);
        record.put_bytes(value);
        let more = record.len().saturating_sub(end - start);
        if self.bytes.capacity() - self.bytes.len() < more {
            // In small steps: there may be as many deltas as leaves.
            self.bytes.reserve_exact(more + self.bytes.len() / 8);
        }
        self.bytes.splice(start..end, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn records_are_those_that_were_put_last_in_the_order_of_their_keys() {
        let mut records = Records::default();
        let mut model = BTreeMap::new();
        for step in 0..500u32 {
            let (number, len) = (step.wrapping_mul(7919) % 97, step % 41);
            let (key, value) = (format!("key {number}"), vec![step as u8; len as usize]);
            records.put(key.as_bytes(), &value);
            model.insert(key.into_bytes(), value);
            assert!(records.iter().eq(model.iter().map(|(key, value)| (&**key, &**value))), "step {step}");
        }
        for number in 0..200 {
            let key = format!("key {number}").into_bytes();
            assert_eq!(records.get(&key), model.get(&key).map(Vec::as_slice), "{number}");
        }
    }
}
