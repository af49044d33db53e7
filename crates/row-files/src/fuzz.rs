//! Entry points for the fuzzer: accept any bytes and must not panic.

use crate::read::fuzz::{Source, numpy, text_reader};
use crate::{PartLimits, RowReader};

/// Reads the bytes as a file of rows, in the format that the first byte selects, with the columns that the
/// file itself declares.
///
/// Returns whether any row was read, so that a fuzzer can tell when it gets past the surface.
#[must_use]
pub fn rows(bytes: &[u8]) -> bool {
    let [choice, rest @ ..] = bytes else { return false };
    match choice % 4 {
        0 => text_reader(Source::Csv, rest).is_some_and(read),
        1 => text_reader(Source::Dump, rest).is_some_and(read),
        2 => numpy(rest),
        _ => text_reader(Source::JsonLines, rest).is_some_and(read),
    }
}

fn read(mut reader: Box<dyn RowReader>) -> bool {
    let limits = PartLimits { rows: 100, bytes: 1 << 16 };
    let (mut rows, mut end) = (0, 0);
    while let Ok(Some(part)) = reader.next(limits) {
        assert!(part.end > end, "a part of nothing would never end");
        end = part.end;
        rows += part.rows.num_rows();
    }
    rows > 0
}

#[cfg(test)]
mod tests {
    use super::rows;
    use std::path::Path;

    #[test]
    fn every_seed_gets_past_the_surface() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/rows");
        let seeds: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(seeds.len() >= 3);
        for seed in seeds {
            assert!(rows(&std::fs::read(&seed).unwrap()), "{}", seed.display());
        }
    }

    #[test]
    fn what_is_cut_or_flipped_anywhere_makes_no_panic() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/rows");
        for seed in std::fs::read_dir(folder).unwrap() {
            let whole = std::fs::read(seed.unwrap().path()).unwrap();
            for at in 0..whole.len() {
                let _ = rows(&whole[..at]);
                for bit in 0..8 {
                    let mut flipped = whole.clone();
                    flipped[at] ^= 1 << bit;
                    let _ = rows(&flipped);
                }
            }
        }
    }
}
