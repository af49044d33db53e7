//! Fair shares of the clients that a slot remembers: no user can crowd out the others.
//!
//! A slot remembers a bounded number of clients, so that its memory is bounded, and clients choose their own
//! names. Once three eighths of the places are taken, a user may hold at most three times as many places as
//! are free. So one user alone leaves more than an eighth to others, and each of several leaves some to the
//! next.
//!
//! Invariant: this is decided at the door of a node, before there is a log entry. What copies do does not
//! depend on it.
//! Invariant: a place counts once, from the first write that asks for it and for as long as the slot
//! remembers its client. If the slot never comes to remember the client, the place stops counting with the
//! answer to the write; time alone never frees a place.

use atoll_keyspace::SESSIONS_MAX;
use atoll_replica::{Slot, Ticket};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// From this many remembered clients on, each further one counts against its user. Clients of writes that are
/// under way at that point are not counted: including them, at most half of all places are uncounted.
const COUNTED_FROM: u64 = SESSIONS_MAX / 2 - UNDER_WAY_MAX;

/// Most writes of a slot under way at a time: this many in its log, and as many held back while the slot
/// changes hands.
const UNDER_WAY_MAX: u64 = 8192;

/// How many times the number of free places one user may hold.
const FREE_PLACES_FACTOR: u64 = 3;

/// Slots checked in one tick, and places checked in each of them. At this rate all places of a full slot are
/// checked within a minute.
const SLOTS_CHECKED: usize = 8;
const PLACES_CHECKED: usize = 64;

/// A client of a slot.
pub(crate) type Client = (Slot, u128);

/// Which user holds which places of which slots.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    slots: BTreeMap<Slot, Places>,
    /// Unanswered writes, each with its client, who keeps the place only if the slot remembers it at the
    /// answer.
    asked: HashMap<Ticket, Client>,
    /// The slot at which the next check begins.
    next: Slot,
    /// Number of checks, of any slots.
    looks: u64,
}

/// The counted places of one slot.
#[derive(Debug, Default)]
struct Places {
    of_clients: BTreeMap<u128, ClientPlace>,
    /// How many places each user has.
    of_users: HashMap<Arc<str>, u64>,
    /// Places of clients that have unanswered writes, whom the slot may not remember yet.
    asked: u64,
    /// The client at which the next check begins.
    next: u128,
    /// The number of the last check that was made for a client without a place.
    looked_with: Option<u64>,
}

#[derive(Debug)]
struct ClientPlace {
    user: Arc<str>,
    /// Unanswered writes of the client.
    asked: u32,
}

impl Shares {
    /// Whether a slot that remembers this many clients counts further ones by user.
    #[inline]
    pub(crate) fn are_counted(remembered: u64) -> bool {
        remembered >= COUNTED_FROM
    }

    /// Takes a place for a client of this user that the slot does not remember; `remembered` is how many
    /// clients it does. Refuses if too few places would be left to other users. The caller reports the ticket
    /// of the client's write to [`Shares::answered`].
    pub(crate) fn take(
        &mut self,
        (slot, client): Client,
        ticket: Ticket,
        user: &str,
        remembered: u64,
        remembers: impl Fn(Client) -> bool,
    ) -> bool {
        let places = self.slots.entry(slot).or_default();
        let mut has_place = places.take(client, user, remembered);
        // A client without a place may ask again as fast as it can, and a check each time would be many times
        // the work of a write.
        if !has_place && places.looked_with != Some(self.looks) {
            places.looked_with = Some(self.looks);
            places.look(|client| remembers((slot, client)));
            has_place = places.take(client, user, remembered);
        }
        if has_place {
            self.asked.insert(ticket, (slot, client));
        }
        has_place
    }

    /// Reports that a write was answered. If the slot does not remember its client now, the place is freed.
    #[inline]
    pub(crate) fn answered(&mut self, ticket: Ticket, remembers: impl Fn(Client) -> bool) {
        let Some((slot, client)) = self.asked.remove(&ticket) else { return };
        if let Some(places) = self.slots.get_mut(&slot) {
            places.answered(client, || remembers((slot, client)));
        }
    }

    /// Checks some places, and frees those whose clients the slot does not remember any more.
    pub(crate) fn look(&mut self, remembers: impl Fn(Client) -> bool) {
        self.looks += 1;
        let from = std::mem::take(&mut self.next);
        let mut more = self.slots.range_mut(from..);
        for (slot, places) in more.by_ref().take(SLOTS_CHECKED) {
            places.look(|client| remembers((*slot, client)));
        }
        self.next = more.next().map_or(Slot(0), |(slot, _)| *slot);
        self.slots.retain(|_, places| !places.of_clients.is_empty());
    }
}

impl Places {
    fn take(&mut self, client: u128, user: &str, remembered: u64) -> bool {
        match self.of_clients.get_mut(&client) {
            Some(place) if place.asked > 0 => {
                place.asked += 1;
                return true;
            }
            // The slot has forgotten the client since.
            Some(_) => self.let_go(client),
            None => {}
        }
        // A write that is done and will be answered at the end of the round counts in both numbers. That can
        // make the free places seem too few, never too many.
        let left = SESSIONS_MAX.saturating_sub(remembered).saturating_sub(self.asked);
        let had = self.of_users.get_key_value(user);
        let (user, count) = had.map_or_else(|| (user.into(), 0), |(user, count)| (Arc::clone(user), *count));
        if count >= left * FREE_PLACES_FACTOR {
            return false;
        }
        self.asked += 1;
        self.of_users.insert(Arc::clone(&user), count + 1);
        self.of_clients.insert(client, ClientPlace { user, asked: 1 });
        true
    }

    fn answered(&mut self, client: u128, is_remembered: impl FnOnce() -> bool) {
        let Some(place) = self.of_clients.get_mut(&client) else { return };
        place.asked -= 1;
        if place.asked == 0 {
            self.asked -= 1;
            if !is_remembered() {
                self.let_go(client);
            }
        }
    }

    fn look(&mut self, remembers: impl Fn(u128) -> bool) {
        let mut more = self.of_clients.range(self.next..);
        let seen = more.by_ref().take(PLACES_CHECKED).filter(|(_, place)| place.asked == 0);
        let gone: Vec<u128> = seen.map(|(client, _)| *client).filter(|client| !remembers(*client)).collect();
        self.next = more.next().map_or(0, |(client, _)| *client);
        gone.into_iter().for_each(|client| self.let_go(client));
    }

    fn let_go(&mut self, client: u128) {
        let Some(place) = self.of_clients.remove(&client) else { return };
        if let Some(count) = self.of_users.get_mut(&place.user) {
            *count -= 1;
            if *count == 0 {
                self.of_users.remove(&place.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SLOT: Slot = Slot(7);

    /// A slot that remembers the clients with names below a number, and these.
    struct Remembering {
        shares: Shares,
        below: u128,
        others: HashSet<u128>,
        names: u128,
    }

    impl Remembering {
        fn so_many(count: u64) -> Self {
            let below = count.into();
            Self { shares: Shares::default(), below, others: HashSet::new(), names: below }
        }

        fn count(&self) -> u64 {
            self.others.len() as u64 + self.below as u64
        }

        fn ask(&mut self, client: u128, ticket: u64, user: &str) -> bool {
            let (below, others, count) = (self.below, &self.others, self.count());
            let remembers = |(_, client)| client < below || others.contains(&client);
            self.shares.take((SLOT, client), Ticket(ticket), user, count, remembers)
        }

        fn answer(&mut self, ticket: u64) {
            let (below, others) = (self.below, &self.others);
            self.shares.answered(Ticket(ticket), |(_, client)| client < below || others.contains(&client));
        }

        /// How many places a user gets, one after another.
        fn fill(&mut self, user: &str) -> u64 {
            let before = self.count();
            while self.ask(self.names, 1, user) {
                self.others.insert(self.names);
                self.answer(1);
                self.names += 1;
            }
            self.count() - before
        }
    }

    #[test]
    fn however_many_places_users_take_there_is_one_for_the_next() {
        let mut slot = Remembering::so_many(COUNTED_FROM);
        assert!(!Shares::are_counted(COUNTED_FROM - 1) && Shares::are_counted(COUNTED_FROM));
        assert_eq!(["a", "b", "c", "d"].map(|user| slot.fill(user)), [30_720, 7_680, 1_920, 480]);
        assert_eq!(slot.fill("a"), 0);
        let another = (Slot(8), 1);
        assert!(slot.shares.take(another, Ticket(2), "a", COUNTED_FROM, |_| true), "it has its own");
    }

    #[test]
    fn what_is_under_way_when_it_begins_to_count_leaves_an_eighth_to_others_all_the_same() {
        // None of a burst was remembered when the last of it asked for a place.
        let uncounted = COUNTED_FROM - 1 + UNDER_WAY_MAX;
        assert!(!Shares::are_counted(COUNTED_FROM - 1));
        let mut slot = Remembering::so_many(uncounted);
        slot.fill("a");
        let left = SESSIONS_MAX - slot.count();
        assert!(left >= SESSIONS_MAX / 8, "{left} are left");
    }

    #[test]
    fn who_is_forgotten_gives_its_place_back_and_who_is_not_remembered_has_none() {
        let mut slot = Remembering::so_many(SESSIONS_MAX - 2);
        assert_eq!(slot.fill("a"), 2);
        slot.shares.look(|_| true);
        assert_eq!(slot.shares.slots[&SLOT].of_users["a"], 2);
        slot.shares.look(|_| false);
        assert!(slot.shares.slots.is_empty() && slot.shares.asked.is_empty());
        let mut slot = Remembering::so_many(SESSIONS_MAX - 2);
        for ticket in 0..100 {
            assert!(slot.ask(u128::MAX - u128::from(ticket), ticket, "a"));
            slot.answer(ticket);
        }
        assert_eq!(slot.fill("a"), 2);
    }

    #[test]
    fn what_is_under_way_counts_once_for_each_client() {
        let mut slot = Remembering::so_many(SESSIONS_MAX - 2);
        assert!((0..100).all(|ticket| slot.ask(u128::MAX, ticket, "a")));
        assert!(slot.ask(u128::MAX - 1, 100, "b"));
        assert!(!slot.ask(u128::MAX - 2, 101, "c"), "both that are left are asked for");
        slot.shares.look(|_| false);
        (0..100).for_each(|ticket| slot.answer(ticket));
        assert!(slot.ask(u128::MAX - 2, 101, "c"), "the first did not come to be remembered");
    }

    #[test]
    fn all_places_are_looked_at_some_at_a_time() {
        let mut slot = Remembering::so_many(COUNTED_FROM);
        let most = PLACES_CHECKED as u64 * 2;
        for ticket in 0..=most {
            assert!(slot.ask(u128::from(COUNTED_FROM + ticket), ticket, "a"));
            slot.shares.answered(Ticket(ticket), |_| true);
        }
        let mut counts = Vec::new();
        while let Some(places) = slot.shares.slots.get(&SLOT) {
            counts.push(places.of_users["a"]);
            slot.shares.look(|_| false);
        }
        assert_eq!(counts, [most + 1, most + 1 - PLACES_CHECKED as u64, 1]);
    }

    #[test]
    fn who_has_no_place_and_asks_on_has_places_looked_at_once_with_each_tick() {
        let mut slot = Remembering::so_many(COUNTED_FROM);
        slot.fill("a");
        let looks = std::cell::Cell::new(0);
        let (names, count) = (slot.names, slot.count());
        let remembers = |_| {
            looks.set(looks.get() + 1);
            true
        };
        for tick in 1..=2 {
            slot.shares.look(|_| true);
            assert!((0..1_000).all(|_| !slot.shares.take((SLOT, names), Ticket(7), "a", count, remembers)));
            assert!(looks.get() <= tick * PLACES_CHECKED, "{}", looks.get());
        }
    }

    #[test]
    fn of_a_slot_that_is_full_nobody_takes_a_place() {
        for remembered in [SESSIONS_MAX, u64::MAX] {
            assert!(!Shares::default().take((SLOT, 1), Ticket(1), "a", remembered, |_| true));
        }
    }
}
