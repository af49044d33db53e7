//! The first frame between two nodes: who dials, in which life, of which ring, whom it means, and that it
//! knows the secret of the ring.
//!
//! Invariant: nothing of a peer is heard before its greeting was found right.
//! Invariant: no node takes words that were meant for another one, though that one was where this one is now.

use crate::token::Token;
use atoll_replica::{Incarnation, NodeId};

/// Who dials whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// The ring that it is a node of: lives and epochs of young rings are the same small numbers.
    pub(crate) ring: u64,
    /// Who is meant: addresses are given out again.
    pub(crate) to: NodeId,
}

const MAGIC: &[u8; 8] = b"ATOLLPR4";
/// Why a node of another ring is not listened to.
pub(super) const OTHER_RING: &str = "it is a node of another ring";

const HEAD_BYTES: usize = MAGIC.len() + 4 + 8 + 8 + 4;

/// What a greeting with a secret has at most.
pub(crate) const GREETING_BYTES_MAX: usize = HEAD_BYTES + 1024;

impl Greeting {
    pub(crate) fn encode(self, token: Option<&Token>, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.node.0.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.ring.to_le_bytes());
        out.extend_from_slice(&self.to.0.to_le_bytes());
        out.extend_from_slice(token.map(Token::text).unwrap_or_default());
    }

    /// Whether a node of a build with which this one forms no ring speaks there: it greets in another
    /// version.
    pub(crate) fn is_of_other_build(bytes: &[u8]) -> bool {
        let (name, version) = MAGIC.split_at(MAGIC.len() - 1);
        bytes.strip_prefix(name).is_some_and(|rest| rest.first().is_some_and(|said| !version.contains(said)))
    }

    /// Who dials, if that is a greeting and the secret is right.
    pub(crate) fn decode(bytes: &[u8], token: Option<&Token>) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (node, rest) = rest.split_first_chunk::<4>()?;
        let (incarnation, rest) = rest.split_first_chunk::<8>()?;
        let (ring, rest) = rest.split_first_chunk::<8>()?;
        let (to, secret) = rest.split_first_chunk::<4>()?;
        let is_right = token.map_or(secret.is_empty(), |token| token.is(secret));
        is_right.then_some(Self {
            node: NodeId(u32::from_le_bytes(*node)),
            incarnation: Incarnation(u64::from_le_bytes(*incarnation)),
            ring: u64::from_le_bytes(*ring),
            to: NodeId(u32::from_le_bytes(*to)),
        })
    }

    /// Whether who greets so has a life, and with it a ring.
    pub(crate) fn has_begun(&self) -> bool {
        self.incarnation != Incarnation::default()
    }

    /// Why the node that greets as `me` does not listen to who greets so, if it does not. Before it has a
    /// life it does not know its ring.
    pub(crate) fn refusal(&self, me: &Self) -> Option<String> {
        if self.node == me.node {
            return Some("it says that it is this node itself".to_owned());
        }
        if me.has_begun() && self.ring != me.ring {
            return Some(OTHER_RING.to_owned());
        }
        let is_meant = self.to == me.node;
        (!is_meant).then(|| {
            let (from, to, here) = (self.node.0, self.to.0, me.node.0);
            format!("node {from} looks for node {to} here, and this is node {here}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: Greeting =
        Greeting { node: NodeId(7), incarnation: Incarnation(3), ring: 0x0102_0304_0506_0708, to: NodeId(9) };

    #[test]
    fn a_greeting_is_these_bytes() {
        let mut bytes = Vec::new();
        GREETING.encode(Token::new(b"0123456789abcdef").as_ref(), &mut bytes);
        let head = b"ATOLLPR4\x07\0\0\0\x03\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0";
        assert_eq!(bytes, [&head[..], b"0123456789abcdef"].concat());
    }

    #[test]
    fn who_means_another_node_or_is_of_another_ring_is_refused() {
        let me = Greeting { node: NodeId(9), incarnation: Incarnation(1), to: NodeId(0), ..GREETING };
        assert_eq!(GREETING.refusal(&me), None);
        let refused = |greeting: Greeting, me: &Greeting, part: &str| {
            let why = greeting.refusal(me).unwrap();
            assert!(why.contains(part), "{why}");
        };
        refused(
            Greeting { to: NodeId(2), ..GREETING },
            &me,
            "node 7 looks for node 2 here, and this is node 9",
        );
        refused(Greeting { node: NodeId(9), ..GREETING }, &me, "this node itself");
        refused(Greeting { ring: 1, ..GREETING }, &me, "another ring");
        // Which ring it is of it hears with its life.
        let early = Greeting { incarnation: Incarnation::default(), ring: 0, ..me };
        assert_eq!(GREETING.refusal(&early), None);
    }

    #[test]
    fn a_greeting_needs_the_secret_of_the_ring() {
        let greeting = GREETING;
        let (right, wrong) =
            (Token::new(b"0123456789abcdef").unwrap(), Token::new(b"0123456789abcdeg").unwrap());
        let encoded = |token: Option<&Token>| {
            let mut bytes = Vec::new();
            greeting.encode(token, &mut bytes);
            bytes
        };
        assert_eq!(Greeting::decode(&encoded(Some(&right)), Some(&right)), Some(greeting));
        assert_eq!(Greeting::decode(&encoded(None), None), Some(greeting));
        assert_eq!(Greeting::decode(&encoded(Some(&wrong)), Some(&right)), None);
        assert_eq!(Greeting::decode(&encoded(None), Some(&right)), None);
        assert_eq!(Greeting::decode(&encoded(Some(&right)), None), None);
        assert_eq!(Greeting::decode(b"ATOLLPR4", None), None);
    }

    #[test]
    fn a_build_that_does_not_know_all_entries_of_logs_is_no_node_of_the_ring() {
        let mut bytes = Vec::new();
        GREETING.encode(None, &mut bytes);
        for before in [b"ATOLLPR1", b"ATOLLPR2", b"ATOLLPR3"] {
            bytes.splice(..MAGIC.len(), *before);
            assert_eq!(Greeting::decode(&bytes, None), None, "{}", before.escape_ascii());
            assert!(Greeting::is_of_other_build(&bytes));
        }
        for stranger in [&b"GET / HTTP/1.1"[..], MAGIC, b"ATOLLPR"] {
            assert!(!Greeting::is_of_other_build(stranger), "{}", stranger.escape_ascii());
        }
    }
}
