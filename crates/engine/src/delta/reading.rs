//! Reading the sum of a delta and what it lies on: the leaf, or all records for the checkpoint.

use super::records::filter_bits;
use super::{Base, Delta, Records};
use crate::backing::{Backing, Reading};
use crate::frames::Purpose;
use crate::leaf::{Leaf, Record, SharedLeaf};
use crate::node::{Home, Node, PageRef};
use crate::page;
use crate::planted::{self, Bug};
use crate::tree::HashedKey;
use crate::value::{Chain, Stored};
use crate::{Damage, EngineError};
use std::time::Duration;

impl Delta {
    /// The leaf that everything adds up to. It must not be changed: the delta remains the truth.
    pub(crate) fn read(&self, reading: Reading, backing: &Backing) -> Result<SharedLeaf, EngineError> {
        loop {
            if let Some(home) = self.home() {
                let below = leaf_at(&home.page, reading, backing)?;
                if home.delta.is_none() || planted::is(Bug::SecondPageIgnored) {
                    return Ok(below);
                }
                let records = self.records_of(&home, reading, backing)?;
                if let Some(leaf) = self.merged(&below, &records, true, backing)? {
                    return Ok(leaf);
                }
                continue;
            }
            let (base, records) = self.copied();
            let below = match &base {
                Base::Page(page) => leaf_at(page, reading, backing),
                Base::Delta(delta) => delta.read(reading, backing),
                Base::Home(_) => continue,
            };
            // With a home the base is not needed any more, and its space may have been reused before it was
            // read.
            if self.home().is_some() && !planted::is(Bug::DeltaReadOnce) {
                continue;
            }
            if let Some(leaf) = self.merged(&below?, &records, false, backing)? {
                return Ok(leaf);
            }
        }
    }

    /// The leaf that records and the leaf below them add up to. None if the delta got a home meanwhile: what
    /// it replaced then refers to another page.
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
        // The epoch 0 keeps it from being taken for a leaf that may be changed in place.
        let mut leaf = Leaf::build(below.prefix(), 0, &all, 0, Purpose::Reading);
        if let Some(fresh) = leaf.get_mut() {
            fresh.count_in_as(backing.meter(), false);
        }
        let mut content = self.content.write();
        if content.home().is_some() != has_home && !planted::is(Bug::DeltaReadOnce) {
            return Ok(None);
        }
        content.rare.get_or_insert_default().replaced.get_or_insert(replaced);
        Ok(Some(leaf))
    }

    /// The records of its second page, which stay in memory from here on if there is room.
    fn records_of(&self, home: &Home, reading: Reading, backing: &Backing) -> Result<Records, EngineError> {
        let Some(page) = home.delta else { return Ok(Records::default()) };
        if let Some(records) = &self.content.read().records {
            return Ok(records.clone());
        }
        let records = Records::read(&page, reading, backing)?;
        if !backing.has_spare(records.len() as u64) {
            return Ok(records);
        }
        let mut content = self.content.write();
        content.records.get_or_insert_with(|| records.clone());
        content.weigh();
        Ok(records)
    }

    /// Reads the records of its second page, if the key may be among them and they are not in memory. Returns
    /// whether to look the key up there once more, which is also so if another thread read them since the
    /// caller looked and the key is among them. Never so where that would find nothing new: the caller would
    /// read the page again and again.
    pub(crate) fn bring_in_for(
        &self,
        key: &[u8],
        home: &Home,
        backing: &Backing,
    ) -> Result<bool, EngineError> {
        let bits = filter_bits(key);
        if home.filter & bits != bits {
            return Ok(false);
        }
        let is_there = self.content.read().records.as_ref().map(|records| records.get(key).is_some());
        if let Some(is_there) = is_there {
            return Ok(is_there && !planted::is(Bug::BroughtInUnseen));
        }
        let records = self.records_of(home, Reading::One, backing)?;
        self.note_use();
        if self.content.read().records.is_some() {
            return Ok(true);
        }
        // There is no room for all of them, as beside a leaf that cannot be read there may be many.
        let Some(value) = records.get(key) else { return Ok(false) };
        self.note_seen(key, value);
        Ok(true)
    }

    /// Reads the records above the page at the bottom that are not in memory, and returns whether there were
    /// any. They stay in memory, whatever room there is, for lookups that cannot read the page.
    pub(crate) fn bring_in(&self, backing: &Backing) -> Result<bool, EngineError> {
        let second = match (self.below(), self.home()) {
            (Some(below), _) => return below.bring_in(backing),
            (None, Some(Home { delta: Some(second), .. })) if self.content.read().records.is_none() => second,
            (None, _) => return Ok(false),
        };
        let records = Records::read(&second, Reading::One, backing)?;
        // They are not what goes when room is made for them.
        self.note_use();
        let mut content = self.content.write();
        content.records.get_or_insert(records);
        content.weigh();
        Ok(true)
    }

    /// Shows all records above the page at the bottom, for the checkpoint that gives the delta a home, and
    /// whether more were lost on a second page that is damaged. A second page that the disk fails to read is
    /// an error, until that has lasted for long; `now` is the time.
    pub(crate) fn show_all_records<R>(
        &self,
        backing: &Backing,
        now: Duration,
        show: impl FnOnce(&Records, bool) -> R,
    ) -> Result<R, EngineError> {
        {
            let content = self.content.read();
            if let (Base::Page(_), Some(records)) = (&content.base, &content.records) {
                return Ok(show(records, false));
            }
        }
        let (records, is_lossy) = self.all_records(backing, Some(now))?;
        Ok(show(&records, is_lossy))
    }

    /// As many of them as can be read, for a salvage.
    pub(crate) fn readable_records(&self, backing: &Backing) -> Records {
        self.all_records(backing, None).map(|(records, _)| records).unwrap_or_default()
    }

    /// All records above the page at the bottom, and whether some below them are lost. A checkpoint gives the
    /// time.
    fn all_records(&self, backing: &Backing, now: Option<Duration>) -> Result<(Records, bool), EngineError> {
        match self.copied() {
            (Base::Home(home), _) => match self.records_of(&home, Reading::Along, backing) {
                Err(error) if error.is_damage() => self.read_again(&home, &error, backing, now),
                read => {
                    self.unread.end();
                    Ok((read?, false))
                }
            },
            (Base::Delta(below), newer) => {
                let (mut records, is_lossy) = below.all_records(backing, now)?;
                if planted::is(Bug::OlderRecordsLost) {
                    return Ok((newer, is_lossy));
                }
                records.put_all(&newer);
                Ok((records, is_lossy))
            }
            (Base::Page(_), records) => Ok((records, false)),
        }
    }

    /// Reads the records of its second page once more after this error, because what is given up is never
    /// asked for again. Returns none, and that they are lost, if they are given up.
    ///
    /// A disk that fails to read may recover, and its data may be intact: then the checkpoint fails, and a
    /// later one tries again, but not for ever.
    fn read_again(
        &self,
        home: &Home,
        before: &EngineError,
        backing: &Backing,
        now: Option<Duration>,
    ) -> Result<(Records, bool), EngineError> {
        let error = match self.records_of(home, Reading::One, backing) {
            Err(error) if error.is_damage() => error,
            read => {
                self.unread.end();
                return Ok((read?, false));
            }
        };
        let is_damaged = before.is_corrupt() && error.is_corrupt();
        if !is_damaged && !now.is_some_and(|now| self.unread.note_failure(now)) {
            return Err(error);
        }
        tracing::error!(store = backing.name(), %error, "records beside a leaf are damaged; the leaf is lost");
        Ok((Records::default(), true))
    }
}

fn leaf_at(home: &PageRef, reading: Reading, backing: &Backing) -> Result<SharedLeaf, EngineError> {
    match page::read(home, 0, reading, backing)? {
        Node::Leaf(leaf) => Ok(leaf),
        Node::Inner(_) => Err(backing.corrupt(home.offset, Damage::PageContent)),
    }
}

/// The records of a leaf with those of a delta put in, and the chains that these replaced.
fn merge<'a>(below: &'a Leaf, records: &'a Records) -> (Vec<Record<'a>>, Vec<Chain>) {
    let (mut all, mut replaced) = (Vec::with_capacity(below.len() + 16), Vec::new());
    let mut at = 0;
    for (key, value) in records.iter() {
        let key = HashedKey::new(key);
        let place = below.locate(&key);
        let (Ok(slot) | Err(slot)) = place;
        all.extend((at..slot).map(|slot| below.record(slot)));
        if let Ok(slot) = place
            && let Stored::Chain(chain) = below.value(slot)
        {
            replaced.push(chain.clone());
        }
        let (fingerprint, value) = (key.fingerprint, Stored::Inline(value));
        all.push(Record { key: [key.bytes, &[]], fingerprint, value });
        at = slot + usize::from(place.is_ok());
    }
    all.extend((at..below.len()).map(|slot| below.record(slot)));
    (all, replaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_disk::{Disk, MemoryDisk};
    use std::sync::Arc;

    /// Room for two pages of a usual lookup.
    const MEMORY_BYTES: u64 = 24 << 10;

    fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    fn value(number: u32) -> [u8; 100] {
        [number as u8; 100]
    }

    /// A delta on disk whose second page has the records of the even numbers below `count`, and its home. The
    /// filter lets every key through.
    fn on_disk(count: u32) -> (Backing, Delta, Home) {
        let mut records = Records::default();
        (0..count).step_by(2).for_each(|number| records.put(&key(number), &value(number)));
        let mut page = Vec::new();
        records.encode(&mut page);
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::with_bytes(page.clone()));
        let backing = Backing::new(Some(disk), 7, MEMORY_BYTES);
        let second =
            PageRef { offset: 0, len: page.len() as u32, checksum: backing.checksum(&page), birth: 1 };
        let home = Home { page: PageRef::default(), delta: Some(second), filter: u64::MAX };
        let delta = Delta::on_disk(home, backing.meter());
        (backing, delta, home)
    }

    #[test]
    fn a_lookup_is_sent_back_only_to_what_is_there_though_the_records_find_no_room() {
        // All of them find room, and then there is none for so many.
        for (count, is_kept) in [(20, true), (600, false)] {
            let (backing, delta, home) = on_disk(count);
            let found =
                |number: u32| delta.find(&key(number), |found| assert_eq!(found, value(number))).is_some();
            for number in [4, 8] {
                assert_eq!(found(number), is_kept && number == 8, "{count} records, number {number}");
                let is_nearer = delta.bring_in_for(&key(number), &home, &backing).unwrap();
                assert!(is_nearer && found(number), "{count} records, number {number}");
            }
            assert_eq!(delta.content.read().records.is_some(), is_kept);
            assert!(!delta.bring_in_for(&key(5), &home, &backing).unwrap(), "{count} records have no 5");
            assert!(!found(5));
        }
    }

    #[test]
    fn records_that_were_brought_in_without_room_are_not_the_first_to_go() {
        let (backing, delta, _) = on_disk(600);
        assert!(delta.bring_in(&backing).unwrap());
        assert!(delta.take_use());
        assert!(!delta.bring_in(&backing).unwrap(), "they are there");
    }
}
