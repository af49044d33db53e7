//! The first frame between two nodes: which node dials, in which incarnation, of which ring, which node it
//! means, and the secret of the ring.
//!
//! Invariant: nothing from a peer is processed before its greeting is accepted.
//! Invariant: no node accepts messages that were meant for another one, even if that one had this address
//! before.

use crate::token::Token;
use atoll_replica::{Incarnation, NodeId};

/// Which node dials which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// The ring of the node. Young rings have the same small incarnations and epochs.
    pub(crate) ring: u64,
    /// The node that is meant: addresses are reused.
    pub(crate) to: NodeId,
}

const MAGIC: &[u8; 8] = b"ATOLLPR6";
/// Why a node of another ring is refused.
pub(super) const OTHER_RING: &str = "it is a node of another ring";

const HEAD_BYTES: usize = MAGIC.len() + 4 + 8 + 8 + 4;

/// Longest greeting with a secret, in bytes.
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

    /// Whether this is the greeting of an incompatible build, which has another version.
    pub(crate) fn is_of_other_build(bytes: &[u8]) -> bool {
        let (name, version) = MAGIC.split_at(MAGIC.len() - 1);
        bytes.strip_prefix(name).is_some_and(|rest| rest.first().is_some_and(|said| !version.contains(said)))
    }

    /// Decodes a greeting; none if it is malformed or the secret is wrong.
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

    /// Whether the greeting node has an incarnation, and with it a ring.
    pub(crate) fn has_begun(&self) -> bool {
        self.incarnation != Incarnation::default()
    }

    /// Why the node that greets as `me` refuses this greeting, if it does. Before it has an incarnation it
    /// does not know its ring.
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
        let head = b"ATOLLPR6\x07\0\0\0\x03\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0";
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
        // It learns its ring together with its incarnation.
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
        assert_eq!(Greeting::decode(b"ATOLLPR6", None), None);
    }

    #[test]
    fn a_build_that_does_not_know_all_entries_of_logs_is_no_node_of_the_ring() {
        let mut bytes = Vec::new();
        GREETING.encode(None, &mut bytes);
        for before in [b"ATOLLPR1", b"ATOLLPR2", b"ATOLLPR3", b"ATOLLPR4"] {
            bytes.splice(..MAGIC.len(), *before);
            assert_eq!(Greeting::decode(&bytes, None), None, "{}", before.escape_ascii());
            assert!(Greeting::is_of_other_build(&bytes));
        }
        for stranger in [&b"GET / HTTP/1.1"[..], MAGIC, b"ATOLLPR"] {
            assert!(!Greeting::is_of_other_build(stranger), "{}", stranger.escape_ascii());
        }
    }
}
