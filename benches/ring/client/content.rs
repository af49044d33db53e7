//! The expected content of each key: bytes that follow from the key and the version, so that every reply
//! can be judged.
//!
//! A value has one piece after a set, and one more after each append. A piece has its key and its version
//! in hexadecimal, followed by bytes of every kind, line ends among them, from an offset that depends on
//! both. So a value of another key, an older one, one that is truncated, shifted or has a flipped bit is
//! distinguished from the right one.

/// Length of a key.
pub const KEY_BYTES: usize = 15;
/// Length of a value after a set, and of what an append adds.
pub const PIECE_BYTES: usize = 132;
const NAME_BYTES: usize = 16;
const BODY_BYTES: usize = PIECE_BYTES - NAME_BYTES;
const POOL_BYTES: usize = 1 << 14;
const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";

/// The bytes of which pieces are made.
pub struct Pieces {
    pool: Vec<u8>,
}

impl Pieces {
    /// Generates the bytes; the same seed gives the same bytes.
    pub fn seeded(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self { pool: (0..POOL_BYTES + BODY_BYTES).map(|_| random.u8(..)).collect() }
    }

    /// The name of a key.
    pub fn key(key: u32) -> [u8; KEY_BYTES] {
        let mut name = *b"atoll0000000000";
        let mut rest = key;
        let mut at = KEY_BYTES;
        while rest > 0 {
            at -= 1;
            name[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        name
    }

    /// A piece.
    pub fn piece(&self, key: u32, version: u32) -> [u8; PIECE_BYTES] {
        let mut piece = [0; PIECE_BYTES];
        piece[..NAME_BYTES].copy_from_slice(&name(key, version));
        piece[NAME_BYTES..].copy_from_slice(self.body(key, version));
        piece
    }

    /// Whether these bytes are that piece.
    pub fn is_piece(&self, key: u32, version: u32, bytes: &[u8]) -> bool {
        let Some((start, body)) = bytes.split_at_checked(NAME_BYTES) else { return false };
        start == name(key, version) && body == self.body(key, version)
    }

    /// Whether these bytes are what the key must hold; no bytes if it must hold nothing.
    pub fn is_held(&self, key: u32, held: ExpectedValue, bytes: &[u8]) -> bool {
        let mut pieces = bytes.chunks(PIECE_BYTES).zip(held.first..);
        bytes.len() == held.bytes() && pieces.all(|(piece, version)| self.is_piece(key, version, piece))
    }

    fn body(&self, key: u32, version: u32) -> &[u8] {
        let mixed = (u64::from(key) << 32 | u64::from(version)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let from = (mixed >> 40) as usize % POOL_BYTES;
        &self.pool[from..from + BODY_BYTES]
    }
}

fn name(key: u32, version: u32) -> [u8; NAME_BYTES] {
    let number = u64::from(key) << 32 | u64::from(version);
    let mut name = [0; NAME_BYTES];
    for (at, digit) in name.iter_mut().enumerate() {
        *digit = HEXADECIMAL[(number >> (60 - 4 * at)) as usize & 15];
    }
    name
}

/// The expected content of a key: a number of pieces, beginning with a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedValue {
    /// The version of the first piece.
    pub first: u32,
    /// How many pieces; 0 if the key was never set.
    pub pieces: u32,
}

impl ExpectedValue {
    /// Its length in bytes.
    pub const fn bytes(self) -> usize {
        self.pieces as usize * PIECE_BYTES
    }

    const fn next_version(self) -> u32 {
        self.first.wrapping_add(self.pieces)
    }
}

/// The expected content of every key of a server, according to the requests that were sent.
///
/// Only one connection sends requests about a key, and a server answers those of a connection in their
/// order. So it is always certain what a reply must be.
pub struct Model {
    held: Vec<ExpectedValue>,
}

impl Model {
    /// The model of an empty server.
    pub fn empty(keys: u32) -> Self {
        Self { held: vec![ExpectedValue::default(); keys as usize] }
    }

    /// How many keys there are.
    pub fn keys(&self) -> u32 {
        self.held.len() as u32
    }

    /// The expected content of the key.
    pub fn held(&self, key: u32) -> ExpectedValue {
        self.held[key as usize]
    }

    /// Sets the key; returns the version of its only piece.
    pub fn set(&mut self, key: u32) -> u32 {
        let held = &mut self.held[key as usize];
        *held = ExpectedValue { first: held.next_version(), pieces: 1 };
        held.first
    }

    /// Appends a piece; returns its version.
    pub fn append(&mut self, key: u32) -> u32 {
        let held = &mut self.held[key as usize];
        let version = held.next_version();
        held.pieces += 1;
        version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_pieces_have_the_length_that_the_bars_are_about() {
        let pieces = Pieces::seeded(1);
        for key in [0, 7, 99_999, u32::MAX] {
            assert_eq!(Pieces::key(key).len(), 15);
            assert_eq!(pieces.piece(key, 3).len(), 132);
        }
        assert_eq!(&Pieces::key(99_999), b"atoll0000099999");
        assert_eq!(&Pieces::key(u32::MAX), b"atoll4294967295");
    }

    #[test]
    fn any_other_value_is_told_from_the_right_one() {
        let pieces = Pieces::seeded(2);
        let mut model = Model::empty(10);
        let first = model.set(4);
        let second = model.append(4);
        let held = model.held(4);
        let right = [pieces.piece(4, first), pieces.piece(4, second)].concat();
        assert!(pieces.is_held(4, held, &right));
        for bit in (0..right.len() * 8).step_by(7) {
            let mut flipped = right.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!pieces.is_held(4, held, &flipped), "bit {bit}");
        }
        assert!(!pieces.is_held(4, held, &right[..right.len() - 1]), "cut");
        assert!(!pieces.is_held(4, held, &right[..PIECE_BYTES]), "an append is missing");
        assert!(!pieces.is_held(5, held, &right), "of another key");
        let swapped = [pieces.piece(4, second), pieces.piece(4, first)].concat();
        assert!(!pieces.is_held(4, held, &swapped), "in another order");
        model.set(4);
        assert!(!pieces.is_held(4, model.held(4), &right), "older");
        assert!(!pieces.is_held(4, model.held(4), &right[..PIECE_BYTES]), "older, of the same length");
    }

    #[test]
    fn a_version_is_never_used_twice_for_a_key() {
        let mut model = Model::empty(1);
        let versions = [model.set(0), model.append(0), model.append(0), model.set(0), model.append(0)];
        assert!(versions.is_sorted_by(|earlier, later| earlier < later), "{versions:?}");
    }
}
