//! Requests that became several, whose replies become one.

use atoll_replica::Ticket;
use std::collections::HashMap;

/// Requests that became several.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// To which request a part belongs.
    parts: HashMap<Ticket, Ticket>,
    wholes: HashMap<Ticket, Whole>,
}

#[derive(Debug)]
struct Whole {
    /// Parts that are not answered yet.
    left: usize,
    /// What is answered if all goes well, or what went wrong.
    reply: Vec<u8>,
}

impl Gathered {
    /// A request that is answered with this once all of its parts are, or with what went wrong in one of
    /// them.
    pub(crate) fn begin(&mut self, whole: Ticket, parts: Vec<Ticket>, reply: Vec<u8>) {
        self.wholes.insert(whole, Whole { left: parts.len(), reply });
        self.parts.extend(parts.into_iter().map(|part| (part, whole)));
    }

    /// What an answer leads to: itself, the whole that it was the last part of, or nothing yet.
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
        let mut gathered = Gathered::default();
        let ok = || b"+OK\r\n".to_vec();
        gathered.begin(Ticket(9), vec![Ticket(1), Ticket(2)], ok());
        gathered.begin(Ticket(8), vec![Ticket(3)], ok());
        assert_eq!(gathered.take(Ticket(7), ok()), Some((Ticket(7), ok())));
        assert_eq!(gathered.take(Ticket(2), b"-ERR no\r\n".to_vec()), None);
        assert_eq!(gathered.take(Ticket(3), ok()), Some((Ticket(8), ok())));
        assert_eq!(gathered.take(Ticket(1), ok()), Some((Ticket(9), b"-ERR no\r\n".to_vec())));
        assert!(gathered.parts.is_empty() && gathered.wholes.is_empty());
    }
}
