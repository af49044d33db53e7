//! Commands about deadlines.

use super::Done;
use super::reading::{FoundKey, Reading};
use super::writing::Writing;
use crate::cells::{Cells, Changes};
use crate::head::{Head, Kind};
use atoll_resp::{Deadline, ExpiryRule, Unit};

impl<C: Cells> Reading<'_, C> {
    pub(super) fn lifetime(&mut self, key: &[u8], unit: Unit, is_absolute: bool) -> Done {
        let number = match self.find(key)?.map(|found| found.head.deadline_ms) {
            None => -2,
            Some(None) => -1,
            Some(Some(deadline)) => {
                let from = if is_absolute { 0 } else { self.now_ms };
                let milliseconds = i64::try_from(deadline.saturating_sub(from)).unwrap_or(i64::MAX);
                match unit {
                    Unit::Milliseconds => milliseconds,
                    Unit::Seconds => milliseconds.saturating_add(500) / 1000,
                }
            }
        };
        self.integer(number)
    }
}

impl<C: Cells, W: Changes> Writing<'_, '_, C, W> {
    /// A deadline as a time; one before 1970 counts as 1970.
    pub(super) fn date_of(&self, deadline: Deadline) -> u64 {
        let now = i64::try_from(self.reading.now_ms).unwrap_or(i64::MAX);
        let date = match deadline {
            Deadline::After(milliseconds) => now.saturating_add(milliseconds),
            Deadline::At(date) => date,
        };
        u64::try_from(date).unwrap_or(0)
    }

    pub(super) fn expire(&mut self, key: &[u8], deadline: Deadline, rule: ExpiryRule) -> Done {
        let date = self.date_of(deadline);
        let is_set = match self.find(key)? {
            Some(found) if permits(rule, found.head.deadline_ms, date) => {
                self.set_deadline(key, &found, Some(date))?;
                true
            }
            _ => false,
        };
        self.reading.integer(i64::from(is_set))
    }

    pub(super) fn persist(&mut self, key: &[u8]) -> Done {
        let found = self.find(key)?.filter(|found| found.head.deadline_ms.is_some());
        if let Some(found) = &found {
            self.set_deadline(key, found, None)?;
        }
        self.reading.integer(i64::from(found.is_some()))
    }

    /// Gives a key another deadline, or none; a deadline that has passed deletes the key.
    pub(super) fn set_deadline(
        &mut self,
        key: &[u8],
        found: &FoundKey<'_, C>,
        deadline_ms: Option<u64>,
    ) -> Done {
        let old = found.head;
        if deadline_ms.is_some_and(|deadline| deadline <= self.reading.now_ms) {
            self.remove(key, old);
            return Ok(());
        }
        if deadline_ms == old.deadline_ms {
            return Ok(());
        }
        let head = Head { deadline_ms, ..old };
        match old.kind {
            Kind::String => self.put_head(key, Some(old), head, &found.string()?),
            Kind::Hash { .. } => self.put_head(key, Some(old), head, &[]),
        }
        Ok(())
    }

    /// Deletes keys that still have exactly these deadlines.
    pub(crate) fn expire_exactly(&mut self, keys: &[(&[u8], u64)]) -> Done {
        let mut distinct = keys.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let mut count = 0;
        for (key, deadline) in distinct {
            let found = self.reading.look(key)?;
            if let Some(found) = found.filter(|found| found.head.deadline_ms == Some(deadline)) {
                self.remove(key, found.head);
                count += 1;
            }
        }
        self.reading.count(count)
    }
}

/// Whether a rule permits a new deadline in place of the old one; no deadline counts as later than all.
fn permits(rule: ExpiryRule, old: Option<u64>, date: u64) -> bool {
    let is_earlier = old.is_none_or(|old| date < old);
    let is_later = old.is_some_and(|old| date > old);
    let is_against = (rule.if_none && old.is_some())
        || (rule.if_some && old.is_none())
        || (rule.if_later && !is_later)
        || (rule.if_earlier && !is_earlier);
    !is_against
}
