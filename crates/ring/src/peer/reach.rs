//! Whether a node was reached lately. A connection that opens and ends at once reached another process, or a
//! node that refuses this one.

use atoll_replica::Moment;

/// How reachable one node is.
#[derive(Debug)]
pub(super) struct Reach {
    /// Since when there is a connection, if there is one.
    open_since: Option<Moment>,
    /// When the node was last reached, or last looked for elsewhere.
    last: Moment,
}

/// How long a connection has to be open for its node to count as reached, in microseconds.
const STEADY_US: u64 = 1_000_000;

/// After this time without being reached, a node is looked up again, in microseconds.
pub(super) const SOUGHT_AFTER_US: u64 = 3_000_000;

impl Reach {
    pub(super) fn new(now: Moment) -> Self {
        Self { open_since: None, last: now }
    }

    /// Whether the node counts as reached now. A node that is dialled again is seen without a connection in
    /// between.
    pub(super) fn look(&mut self, is_open: bool, now: Moment) -> bool {
        if !is_open {
            self.open_since = None;
            return false;
        }
        let is_steady = now >= self.open_since.get_or_insert(now).after(STEADY_US);
        if is_steady {
            self.last = now;
        }
        is_steady
    }

    /// Whether the node is to be looked up again. If so, it is not due again for a while.
    pub(super) fn is_to_be_sought(&mut self, now: Moment) -> bool {
        let is_due = now >= self.last.after(SOUGHT_AFTER_US);
        if is_due {
            self.last = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_whose_connections_end_at_once_is_looked_for_every_three_seconds() {
        let mut reach = Reach::new(Moment(0));
        let sought = |reach: &mut Reach, is_open: &dyn Fn(u64) -> bool| {
            let seconds = (0..100).filter(|tenth| {
                let now = Moment(tenth * 100_000);
                reach.look(is_open(*tenth), now);
                reach.is_to_be_sought(now)
            });
            seconds.collect::<Vec<_>>()
        };
        assert_eq!(sought(&mut reach, &|_| false), [30, 60, 90]);
        assert_eq!(sought(&mut Reach::new(Moment(0)), &|tenth| tenth % 2 == 1), [30, 60, 90]);
        assert!(sought(&mut Reach::new(Moment(0)), &|_| true).is_empty());
        assert_eq!(sought(&mut Reach::new(Moment(0)), &|tenth| tenth < 50), [79]);
    }
}
