//! The first frame between two nodes: who dials, in which life, and that it knows the secret of the ring.
//!
//! Invariant: nothing of a peer is heard before its greeting was found right.

use crate::token::Token;
use atoll_replica::{Incarnation, NodeId};

/// Who dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
}

const MAGIC: &[u8; 8] = b"ATOLLPR3";
const HEAD_BYTES: usize = MAGIC.len() + 4 + 8;

/// What a greeting with a secret has at most.
pub(crate) const GREETING_BYTES_MAX: usize = HEAD_BYTES + 1024;

impl Greeting {
    pub(crate) fn encode(self, token: Option<&Token>, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.node.0.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(token.map(Token::text).unwrap_or_default());
    }

    /// Whether a node of a build with which this one forms no ring speaks there: it greets in another version.
    pub(crate) fn is_of_other_build(bytes: &[u8]) -> bool {
        let (name, version) = MAGIC.split_at(MAGIC.len() - 1);
        bytes.strip_prefix(name).is_some_and(|rest| rest.first().is_some_and(|said| !version.contains(said)))
    }

    /// Who dials, if that is a greeting and the secret is right.
    pub(crate) fn decode(bytes: &[u8], token: Option<&Token>) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (node, rest) = rest.split_first_chunk::<4>()?;
        let (incarnation, secret) = rest.split_first_chunk::<8>()?;
        let is_right = token.map_or(secret.is_empty(), |token| token.is(secret));
        is_right.then_some(Self {
            node: NodeId(u32::from_le_bytes(*node)),
            incarnation: Incarnation(u64::from_le_bytes(*incarnation)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_needs_the_secret_of_the_ring() {
        let greeting = Greeting { node: NodeId(7), incarnation: Incarnation(3) };
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
        assert_eq!(Greeting::decode(b"ATOLLPR3", None), None);
    }

    #[test]
    fn a_build_that_does_not_know_all_entries_of_logs_is_no_node_of_the_ring() {
        let mut bytes = Vec::new();
        Greeting { node: NodeId(7), incarnation: Incarnation(3) }.encode(None, &mut bytes);
        for before in [b"ATOLLPR1", b"ATOLLPR2"] {
            bytes.splice(..MAGIC.len(), *before);
            assert_eq!(Greeting::decode(&bytes, None), None, "{}", before.escape_ascii());
            assert!(Greeting::is_of_other_build(&bytes));
        }
        for stranger in [&b"GET / HTTP/1.1"[..], MAGIC, b"ATOLLPR"] {
            assert!(!Greeting::is_of_other_build(stranger), "{}", stranger.escape_ascii());
        }
    }
}
