//! Tracks which owner has buffered writes, which only its memory may hold: if that owner is lost, the next
//! `sync` must report it.
//!
//! Invariant: a sync that succeeds covers every write that was acknowledged before it was called.

use parking_lot::Mutex;

/// The buffered writes, by the numbers of the connections over which they were acknowledged.
#[derive(Debug, Default)]
pub(super) struct Buffered(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// The connection of the last buffered write; 0 for none since the last sync.
    under: u64,
    /// Whether a connection with buffered writes was replaced.
    is_lost: bool,
    /// The number of all buffered writes so far.
    count: u64,
}

impl Buffered {
    /// Notes that the owner at the end of connection `number` acknowledged a buffered write.
    pub(super) fn wrote(&self, number: u64) {
        let mut state = self.0.lock();
        state.is_lost |= state.under != 0 && state.under != number;
        state.under = number;
        state.count += 1;
    }

    /// What a sync that is called now has to cover.
    pub(super) fn now(&self) -> State {
        *self.0.lock()
    }

    /// Notes that a sync was answered over connection `number`, and returns whether it covers `to_cover`. A
    /// loss is reported once.
    pub(super) fn synced(&self, to_cover: State, number: u64) -> bool {
        let mut state = self.0.lock();
        if state.count == to_cover.count {
            *state = State { count: state.count, ..State::default() };
        } else {
            state.is_lost = false;
        }
        !to_cover.is_lost && (to_cover.under == 0 || to_cover.under == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync(of: &Buffered, number: u64) -> bool {
        of.synced(of.now(), number)
    }

    #[test]
    fn a_sync_covers_what_its_owner_was_given() {
        let buffered = Buffered::default();
        assert!(sync(&buffered, 1), "nothing was written");
        buffered.wrote(1);
        assert!(sync(&buffered, 1));
        assert!(sync(&buffered, 2), "the owner before had everything on its disk");
    }

    #[test]
    fn what_a_lost_owner_was_given_is_told_once() {
        let buffered = Buffered::default();
        buffered.wrote(1);
        assert!(!sync(&buffered, 2));
        assert!(sync(&buffered, 2));
        buffered.wrote(2);
        buffered.wrote(3);
        assert!(!sync(&buffered, 3), "the last write is there, the one before may not be");
        assert!(sync(&buffered, 3));
    }

    #[test]
    fn a_write_beside_a_sync_is_for_the_next_one() {
        let buffered = Buffered::default();
        buffered.wrote(1);
        let to_cover = buffered.now();
        buffered.wrote(1);
        assert!(buffered.synced(to_cover, 1));
        assert!(!sync(&buffered, 2));
    }
}
