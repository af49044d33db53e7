//! How many clients each user had a slot remember lately, where it remembers many: nobody is to take the places of all others.
//!
//! A slot remembers so many clients and no more, whoever they are, so that its memory is bounded; and a name is chosen by whoever writes. From half of its
//! places on a user may take three times as many as are left for all: one alone leaves an eighth to others, and each of
//! several leaves some to the next.
//!
//! Invariant: it is judged at the door of a node, before there is an entry in a log; what copies do does not depend on it.
//! Invariant: nothing is kept of slots that remember few, nor for longer than clients are remembered.

use atoll_keyspace::{SESSION_MS_MIN, SESSIONS_MAX};
use atoll_replica::{Moment, Slot};
use std::collections::HashMap;

/// From so many remembered clients on it is counted whose they are.
const COUNTED_FROM: u64 = SESSIONS_MAX / 2;

/// So many times what is left a user may take.
const SHARE: u64 = 3;

/// Behind this time what a user took may be forgotten.
const LASTS_US: u64 = (SESSION_MS_MIN + 120_000) * 1_000;

/// What users took of the places of slots.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    taken: HashMap<(Slot, Box<str>), Taken>,
}

#[derive(Debug)]
struct Taken {
    count: u64,
    since: Moment,
}

impl Shares {
    /// Whether it is to be asked who wants one more place of a slot that remembers so many clients.
    #[inline]
    pub(crate) fn are_counted(remembered: u64) -> bool {
        remembered >= COUNTED_FROM
    }

    /// Takes a place of a slot for a user, of a slot that remembers so many; not if that would leave too few to others.
    pub(crate) fn take(&mut self, slot: Slot, user: &str, remembered: u64, now: Moment) -> bool {
        let fresh = || Taken { count: 0, since: now };
        let taken = self.taken.entry((slot, user.into())).or_insert_with(fresh);
        if is_over(taken, now) {
            *taken = fresh();
        }
        let has_place = taken.count < SESSIONS_MAX.saturating_sub(remembered) * SHARE;
        taken.count += u64::from(has_place);
        has_place
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Moment) {
        self.taken.retain(|_, taken| !is_over(taken, now));
    }
}

fn is_over(taken: &Taken, now: Moment) -> bool {
    now >= taken.since.after(LASTS_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = Slot(7);

    /// How many places a user gets of a slot that remembers so many.
    fn taken(shares: &mut Shares, user: &str, remembered: &mut u64, now: Moment) -> u64 {
        let before = *remembered;
        while shares.take(SLOT, user, *remembered, now) {
            *remembered += 1;
        }
        *remembered - before
    }

    #[test]
    fn however_many_places_users_take_there_is_one_for_the_next() {
        let (mut shares, mut remembered, now) = (Shares::default(), COUNTED_FROM, Moment(5));
        assert!(!Shares::are_counted(COUNTED_FROM - 1) && Shares::are_counted(COUNTED_FROM));
        let of_each = ["a", "b", "c", "d"].map(|user| taken(&mut shares, user, &mut remembered, now));
        assert_eq!(of_each, [24_576, 6_144, 1_536, 384]);
        assert_eq!(taken(&mut shares, "a", &mut remembered, now), 0);
        assert!(shares.take(Slot(8), "a", COUNTED_FROM, now), "another slot has its own");
        let later = now.after(LASTS_US);
        assert!(taken(&mut shares, "a", &mut remembered, later) > 0);
        shares.tick(later);
        assert_eq!(shares.taken.len(), 1);
    }

    #[test]
    fn of_a_slot_that_is_full_nobody_takes_a_place() {
        let mut shares = Shares::default();
        assert!(!shares.take(SLOT, "a", SESSIONS_MAX, Moment(5)));
        assert!(!shares.take(SLOT, "a", u64::MAX, Moment(5)));
    }
}
