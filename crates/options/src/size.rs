//! Sizes in bytes: `512MiB`, `1.5GiB`, `100 kB`, `4096`.
//!
//! Invariant: [`Size`] parses back exactly what it shows.

use crate::error::shortened;
use crate::number::{Decimal, ScaleError};
use crate::{OptionValue, ValueError};
use std::fmt;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Size(pub u64);

const EXPECTED: &str = "a size such as 512MiB, 1.5GiB, 100kB or 4096";

const UNITS: [(&str, u64); 12] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("bytes", 1),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
];

impl OptionValue for Size {
    const EXPECTED: &'static str = EXPECTED;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ValueError::Empty { expected: EXPECTED });
        }
        let form = || ValueError::Form { text: shortened(text), expected: EXPECTED };
        let (number, rest) = Decimal::split(text).ok_or_else(form)?;
        let unit = rest.trim_start();
        let bytes = match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
            Some((_, bytes)) => *bytes,
            None if unit.is_empty() => 1,
            // "512M" means 2^20 to some and 10^6 to others.
            None => return Err(ValueError::Unit { unit: shortened(unit), expected: EXPECTED }),
        };
        number.times(bytes).map(Size).map_err(|error| match error {
            ScaleError::TooLarge => {
                ValueError::TooLarge { text: shortened(text), max: "16383PiB".to_owned() }
            }
            ScaleError::TooFine => ValueError::TooFine { text: shortened(text), unit: "bytes" },
        })
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = UNITS[..6].iter().find(|(_, bytes)| self.0 != 0 && self.0.is_multiple_of(*bytes));
        match binary {
            Some((unit, bytes)) => write!(f, "{}{unit}", self.0 / bytes),
            None => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512MiB", 512 << 20),
            ("1.5GiB", 3 << 29),
            (" 100 kB ", 100_000),
            ("1mib", 1 << 20),
            ("7 bytes", 7),
            ("2TB", 2_000_000_000_000),
        ] {
            assert_eq!(Size::parse(text), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn a_wrong_size_says_what_is_wrong_with_it() {
        let error = |text| Size::parse(text).unwrap_err().to_string();
        assert_eq!(error(""), format!("it is empty; {EXPECTED} was expected"));
        assert_eq!(error("512M"), format!("\"M\" is not a unit; {EXPECTED} was expected"));
        assert_eq!(error("lots"), format!("\"lots\" is not {EXPECTED}"));
        assert_eq!(error("-1"), format!("\"-1\" is not {EXPECTED}"));
        assert_eq!(error("0.3B"), "\"0.3B\" is not a whole number of bytes");
        assert!(error("99999999PiB").contains("too large"));
    }

    #[test]
    fn what_a_size_shows_is_what_it_reads() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..10_000 {
            let size = Size(random.u64(..) >> random.u32(0..64) << random.u32(0..16));
            assert_eq!(Size::parse(&size.show()), Ok(size));
        }
    }
}
