//! Finding commands by name: one look into a hash table that the compiler builds from the table of commands.
//!
//! Names are compared as 16-byte numbers, in lower case and padded with zeros, so no name may be longer.

use super::{COMMANDS, Specification};

/// Longest name of a command, in bytes.
const NAME_BYTES_MAX: usize = 16;

/// Buckets of the hash table, several times as many as there are commands; a collision takes the next free
/// bucket.
const BUCKETS: usize = 512;

/// Marks a bucket without a command.
const NO_COMMAND: u16 = u16::MAX;

/// The names as numbers, and for each bucket the index of a command.
static NAMES: [u128; COMMANDS.len()] = names();
static PLACES: [u16; BUCKETS] = places();

/// The command of this name, ignoring case.
#[must_use]
pub fn find(name: &[u8]) -> Option<&'static Specification> {
    find_place(name).and_then(|place| COMMANDS.get(usize::from(place)))
}

/// The index of that command in [`COMMANDS`].
#[must_use]
pub fn find_place(name: &[u8]) -> Option<u16> {
    let mut lower = [0; NAME_BYTES_MAX];
    lower.get_mut(..name.len())?.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let number = u128::from_le_bytes(lower);
    let mut bucket = bucket_of(number);
    loop {
        let place = *PLACES.get(bucket)?;
        match NAMES.get(usize::from(place)) {
            // The name may have zero bytes at its end, which makes it another one.
            Some(found) if *found == number => return is_as_long(place, name).then_some(place),
            Some(_) => bucket = (bucket + 1) % BUCKETS,
            None => return None,
        }
    }
}

fn is_as_long(place: u16, name: &[u8]) -> bool {
    COMMANDS.get(usize::from(place)).is_some_and(|row| row.name.len() == name.len())
}

const fn bucket_of(number: u128) -> usize {
    let folded = (number as u64) ^ ((number >> 64) as u64).rotate_left(29);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize % BUCKETS
}

const fn names() -> [u128; COMMANDS.len()] {
    let mut names = [0; COMMANDS.len()];
    let mut place = 0;
    while place < COMMANDS.len() {
        let name = COMMANDS[place].name.as_bytes();
        let mut at = name.len();
        while at > 0 {
            at -= 1;
            names[place] = names[place] << 8 | name[at] as u128;
        }
        place += 1;
    }
    names
}

const fn places() -> [u16; BUCKETS] {
    let names = names();
    let mut places = [NO_COMMAND; BUCKETS];
    let mut place = 0;
    while place < names.len() {
        let mut bucket = bucket_of(names[place]);
        while places[bucket] != NO_COMMAND {
            bucket = (bucket + 1) % BUCKETS;
        }
        places[bucket] = place as u16;
        place += 1;
    }
    places
}

const _: () =
    assert!(COMMANDS.len() * 2 < BUCKETS, "a search that finds nothing has to meet a free place soon");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_in_any_letters_at_its_place_and_nothing_else_is() {
        for (place, row) in COMMANDS.iter().enumerate() {
            assert!(row.name.len() <= NAME_BYTES_MAX, "{}", row.name);
            for name in [row.name.to_owned(), row.name.to_uppercase()] {
                assert_eq!(find_place(name.as_bytes()).map(usize::from), Some(place), "{name}");
            }
            for wrong in [format!("{}\0", row.name), format!("{} ", row.name), format!("\0{}", row.name)] {
                assert_eq!(find_place(wrong.as_bytes()), None, "{wrong:?}");
            }
        }
        let random = |random: &mut fastrand::Rng| (0..random.usize(..20)).map(|_| random.u8(..)).collect();
        let mut source = fastrand::Rng::with_seed(11);
        for _ in 0..100_000 {
            let name: Vec<u8> = random(&mut source);
            let known = COMMANDS.iter().position(|row| row.name.as_bytes().eq_ignore_ascii_case(&name));
            assert_eq!(find_place(&name).map(usize::from), known, "{name:?}");
        }
        for name in ["", "g", "gett", "abcdefghijklmnopqrstuvwxyz", "\0", "append\0\0\0\0\0\0\0\0\0\0"] {
            assert!(find(name.as_bytes()).is_none(), "{name}");
        }
    }
}
