//! Requests that are split into several, whose replies become one.

use atoll_replica::Ticket;
use std::collections::HashMap;

/// Requests that are split into several.
#[derive(Debug, Default)]
pub(crate) struct SplitRequests {
    /// The request that each part belongs to.
    parts: HashMap<Ticket, Ticket>,
    wholes: HashMap<Ticket, Whole>,
}

#[derive(Debug)]
struct Whole {
    /// Parts without an answer yet.
    left: usize,
    /// The reply if all parts succeed, or the error of one.
    reply: Vec<u8>,
}

impl SplitRequests {
    /// Registers a split request. It is answered with `reply` once all parts are, or with the error of a
    /// part.
    pub(crate) fn begin(&mut self, whole: Ticket, parts: Vec<Ticket>, reply: Vec<u8>) {
        self.wholes.insert(whole, Whole { left: parts.len(), reply });
        self.parts.extend(parts.into_iter().map(|part| (part, whole)));
    }

    /// Takes an answer. Returns the answer of the request that is complete with it: itself, or the whole
    /// whose last part it was.
    pub(crate) fn take(&mut self, ticket: Ticket, reply: Vec<u8>) -> Option<(Ticket, Vec<u8>)> {
        let Some(whole) = self.parts.remove(&ticket) else { return Some((ticket, reply)) };
        let gathered = self.wholes.get_mut(&whole)?;
        gathered.left -= 1;
        if reply.first() == Some(&b'-') {
            gathered.reply = reply;
        }
        if gathered.left > 0 {
            return None;
        }
        let gathered = self.wholes.remove(&whole)?;
        Some((whole, gathered.reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_is_answered_once_by_its_last_part_and_with_what_went_wrong() {
        let mut requests = SplitRequests::default();
        let ok = || b"+OK\r\n".to_vec();
        requests.begin(Ticket(9), vec![Ticket(1), Ticket(2)], ok());
        requests.begin(Ticket(8), vec![Ticket(3)], ok());
        assert_eq!(requests.take(Ticket(7), ok()), Some((Ticket(7), ok())));
        assert_eq!(requests.take(Ticket(2), b"-ERR no\r\n".to_vec()), None);
        assert_eq!(requests.take(Ticket(3), ok()), Some((Ticket(8), ok())));
        assert_eq!(requests.take(Ticket(1), ok()), Some((Ticket(9), b"-ERR no\r\n".to_vec())));
        assert!(requests.parts.is_empty() && requests.wholes.is_empty());
    }
}
