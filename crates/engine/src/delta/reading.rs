//! Reading what a delta adds up to: the leaf, or all records for the checkpoint.

use super::records::filter_bits;
use super::{Base, Delta, Records};
use crate::backing::Backing;
use crate::checksum::key_hash;
use crate::frames::Purpose;
use crate::leaf::{Leaf, Record, SharedLeaf};
use crate::node::{Home, Node, PageRef};
use crate::page;
use crate::planted::{self, Bug};
use crate::value::{Chain, Stored};
use crate::{Damage, EngineError};

impl Delta {
    /// The leaf that all of it adds up to. Nobody may change it: what is true is the delta.
    pub(crate) fn read(&self, backing: &Backing) -> Result<SharedLeaf, EngineError> {
        loop {
            if let Some(home) = self.home() {
                let below = leaf_at(&home.page, backing)?;
                if home.delta.is_none() || planted::is(Bug::SecondPageIgnored) {
                    return Ok(below);
                }
                if let Some(leaf) = self.merged(&below, &self.records_of(&home, backing)?, true, backing)? {
                    return Ok(leaf);
                }
                continue;
            }
            let Some((base, records)) = self.copied() else { continue };
            let below = match &base {
                Base::Page(page) => leaf_at(page, backing),
                Base::Delta(delta) => delta.read(backing),
            };
            // With a home what lay below is needed no more, and what was read there may be something else.
            if self.home().is_some() && !planted::is(Bug::DeltaReadOnce) {
                continue;
            }
            if let Some(leaf) = self.merged(&below?, &records, false, backing)? {
                return Ok(leaf);
            }
        }
    }

    /// The leaf that records and what is below them add up to; none if the delta got a home meanwhile, for what it
    /// replaced is then something else.
    fn merged(
        &self,
        below: &Leaf,
        records: &Records,
        has_home: bool,
        backing: &Backing,
    ) -> Result<Option<SharedLeaf>, EngineError> {
        let belong = records.iter().all(|(key, _)| key.starts_with(below.prefix()));
        let (all, replaced) = if belong { merge(below, records) } else { Default::default() };
        if !belong || !Leaf::can_hold(below.prefix(), &all) {
            return Err(backing.corrupt(self.page().offset, Damage::PageContent));
        }
        let mut leaf = Leaf::build(below.prefix(), below.birth, &all, 0, Purpose::Reading);
        if let Some(fresh) = leaf.get_mut() {
            fresh.count_in_as(backing.meter(), false);
        }
        let mut content = self.content.write();
        if self.home().is_some() != has_home && !planted::is(Bug::DeltaReadOnce) {
            return Ok(None);
        }
        content.replaced.get_or_insert(replaced);
        Ok(Some(leaf))
    }

    /// The records of its second page, which stay in memory from now on if there is room.
    fn records_of(&self, home: &Home, backing: &Backing) -> Result<Records, EngineError> {
        let Some(page) = home.delta else { return Ok(Records::default()) };
        if let Some(records) = &self.content.read().records {
            return Ok(records.clone());
        }
        let records = Records::read(&page, backing)?;
        if !backing.has_spare(records.len() as u64) {
            return Ok(records);
        }
        let mut content = self.content.write();
        content.records.get_or_insert_with(|| records.clone());
        content.weigh();
        Ok(records)
    }

    /// Reads the records of its second page, if the key may be among them and they are not in memory; whether that was so.
    pub(crate) fn bring_in_for(
        &self,
        key: &[u8],
        home: &Home,
        backing: &Backing,
    ) -> Result<bool, EngineError> {
        let bits = filter_bits(key);
        let is_wanted = home.filter & bits == bits && self.content.read().records.is_none();
        if is_wanted {
            self.records_of(home, backing)?;
            self.note_use();
        }
        Ok(is_wanted)
    }

    /// All records above the page at the bottom, for the checkpoint that gives it a home.
    pub(crate) fn all_records(&self, backing: &Backing) -> Result<Records, EngineError> {
        if let Some(home) = self.home() {
            return self.records_of(&home, backing);
        }
        match self.copied() {
            Some((Base::Delta(below), newer)) => {
                let mut records = below.all_records(backing)?;
                if planted::is(Bug::OlderRecordsLost) {
                    return Ok(newer);
                }
                records.put_all(&newer);
                Ok(records)
            }
            Some((Base::Page(_), records)) => Ok(records),
            None => Ok(Records::default()),
        }
    }
}

pub(crate) fn leaf_at(home: &PageRef, backing: &Backing) -> Result<SharedLeaf, EngineError> {
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
