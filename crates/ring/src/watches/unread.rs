//! Ends watches on slots that this node may not read any more although its table says that it leads them.
//! Such a node is cut off from the others: another one may lead the slots by now, and what is written there
//! does not come here.
//!
//! Invariant: a watch is ended only if its slot could not be read at any look for as long as reads wait, and
//! then with the error with which they are refused.

use super::Watches;
use super::watch::slot_of_place;
use atoll_replica::{Moment, Refusal, Slot};
use std::collections::{HashMap, HashSet};

/// How often the watches are looked at for that, in microseconds: it takes a look at every key.
const LOOK_EACH_US: u64 = 250_000;

/// The slots that could not be read lately.
#[derive(Debug, Default)]
pub(super) struct Unread {
    looked_at: Moment,
    /// Since when each of them could not be read, and the round of questions to the other copies that was to
    /// come then: where they confirm each read, they have to answer this round or a later one.
    slots: HashMap<Slot, (Moment, u64)>,
}

impl Watches {
    /// Ends watches on slots that could not be read for `patience_us`. To be called in each round while the
    /// configuration group is silent. `may_read` says whether a read may be answered that came before a
    /// round; `coming` is the next round.
    pub(crate) fn end_unread(
        &mut self,
        now: Moment,
        (patience_us, coming): (u64, u64),
        may_read: impl Fn(Slot, u64) -> bool,
    ) {
        if now < self.unread.looked_at.after(LOOK_EACH_US) {
            return;
        }
        self.unread.looked_at = now;
        let before = std::mem::take(&mut self.unread.slots);
        let watched: HashSet<Slot> = self.by_place.keys().map(|place| slot_of_place(place)).collect();
        let mut over: HashSet<Slot> = HashSet::new();
        for slot in watched {
            let (since, round) = before.get(&slot).copied().unwrap_or((now, coming));
            if may_read(slot, round) {
                continue;
            }
            if now > since.after(patience_us) {
                over.insert(slot);
            } else {
                self.unread.slots.insert(slot, (since, round));
            }
        }
        if !over.is_empty() {
            let why = format!("CLUSTERDOWN {}", Refusal::NoLease);
            self.refuse_where(|slot| over.contains(&slot).then(|| why.clone()));
        }
    }

    /// Forgets which slots could not be read, since the configuration group answers.
    pub(crate) fn forget_unread(&mut self) {
        self.unread.slots.clear();
    }
}
