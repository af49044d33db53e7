//! Entry points for the fuzzer: what another node may send, before and after it has identified itself.

use crate::Token;
use crate::peer::codec::{decode, encode, encode_date, encode_piece};
use crate::peer::{Greeting, Spoken};
use atoll_replica::{Entry, Incarnation, Message, NodeId, SlotMessage};

/// How many bytes of memory a message may take for each byte that arrived. Names and values are worst: an
/// empty pair arrives in 8 bytes and is two vectors, in a list that may have grown to twice its length.
const HELD_PER_BYTE: usize = 12;

/// How many bytes a short message may take beyond that: a list begins with room for four.
const HELD_BESIDES: usize = 256;

/// A secret that a fuzzer finds in its seeds, and another one of the same length.
const SECRETS: [&[u8]; 2] = [b"0123456789abcdef", b"0123456789abcdeg"];

/// Decodes the bytes as a message of another node.
///
/// Returns whether they are one, so that a fuzzer sees that it gets past the surface.
///
/// # Panics
/// If the message takes much more memory than the bytes, or is another one after it was encoded.
#[must_use]
pub fn message(bytes: &[u8]) -> bool {
    let Ok(spoken) = decode(bytes) else { return false };
    let (held, most) = (held(&spoken), bytes.len() * HELD_PER_BYTE + HELD_BESIDES);
    assert!(held <= most, "{} bytes take {held} bytes of memory", bytes.len());
    let again = encoded(&spoken);
    assert_eq!(again.len(), bytes.len(), "each message has one length");
    assert_eq!(decode(&again), Ok(spoken), "it is another one after it was encoded");
    true
}

/// Decodes the bytes as a greeting; the first byte says whether the ring has a secret.
///
/// Returns whether they are one, so that a fuzzer sees that it gets past the surface.
///
/// # Panics
/// If the greeting is another one after it was encoded, or another secret is good for it too.
#[must_use]
pub fn greeting(bytes: &[u8]) -> bool {
    let Some((choice, bytes)) = bytes.split_first() else { return false };
    let [secret, other] = SECRETS.map(Token::new);
    let secret = secret.filter(|_| choice & 1 > 0);
    let is_of_other_build = Greeting::is_of_other_build(bytes);
    let Some(greeting) = Greeting::decode(bytes, secret.as_ref()) else { return false };
    assert!(!is_of_other_build, "a greeting of this build is one of another build");
    let mut again = Vec::new();
    greeting.encode(secret.as_ref(), &mut again);
    assert_eq!(again, bytes, "each greeting has one form");
    assert_eq!(Greeting::decode(bytes, other.as_ref()), None, "another secret is good for it too");
    let me = Greeting { node: NodeId(9), incarnation: Incarnation(1), ring: greeting.ring, to: NodeId(0) };
    let is_for_me = greeting.to == me.node && greeting.node != me.node;
    assert_eq!(greeting.refusal(&me).is_none(), is_for_me, "a greeting that means another node");
    true
}

/// How much memory the lists and texts of a message take.
fn held(spoken: &Spoken) -> usize {
    match spoken {
        Spoken::Message(Message::Slot { about: SlotMessage::Append { entries, .. }, .. }) => {
            let bodies: usize = entries.iter().map(|entry| entry.body.len()).sum();
            entries.capacity() * size_of::<Entry>() + bodies
        }
        Spoken::Piece(piece) => {
            let texts = piece.cells.iter().map(|(name, value)| name.capacity() + value.capacity());
            piece.cells.capacity() * size_of::<(Vec<u8>, Vec<u8>)>() + texts.sum::<usize>()
        }
        Spoken::Message(_) | Spoken::Date(_) => 0,
    }
}

/// The bytes of what one node sends to another.
pub(crate) fn encoded(spoken: &Spoken) -> Vec<u8> {
    let mut bytes = Vec::new();
    match spoken {
        Spoken::Message(message) => encode(message, &mut bytes),
        Spoken::Piece(piece) => encode_piece(piece, &mut bytes),
        Spoken::Date(date_ms) => encode_date(*date_ms, &mut bytes),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.map(|path| (path.display().to_string(), std::fs::read(path).unwrap())).collect()
    }

    #[test]
    fn every_seed_gets_past_the_surface() {
        let (messages, greetings) = (seeds("peer"), seeds("greeting"));
        assert!(messages.len() >= 5 && greetings.len() >= 2);
        messages.iter().for_each(|(name, bytes)| assert!(message(bytes), "{name}"));
        greetings.iter().for_each(|(name, bytes)| assert!(greeting(bytes), "{name}"));
    }

    #[test]
    fn what_is_cut_or_flipped_anywhere_makes_no_panic() {
        type Target = fn(&[u8]) -> bool;
        let targets: [(&str, Target); 2] = [("peer", message), ("greeting", greeting)];
        for (target, takes) in targets {
            for (_, whole) in seeds(target) {
                for at in 0..whole.len() {
                    let _ = takes(&whole[..at]);
                    for bit in 0..8 {
                        let mut flipped = whole.clone();
                        flipped[at] ^= 1 << bit;
                        let _ = takes(&flipped);
                    }
                }
            }
        }
    }
}
