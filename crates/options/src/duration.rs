//! Durations: `2s`, `500ms`, `1h30min`, `1.5d`.
//!
//! Invariant: [`parse_duration`] reads back exactly what [`format_duration`] writes, up to 2^64 nanoseconds
//! (584 years), which is the longest duration.

use crate::error::shortened;
use crate::number::{Decimal, ScaleError};
use crate::{OptionValue, ValueError};
use std::time::Duration;

const EXPECTED: &str = "a duration such as 2s, 500ms, 10min or 1h30min";

const UNITS: [(&str, u64); 10] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
    ("m", 60_000_000_000),
    ("µs", 1000),
    ("μs", 1000),
];

/// Parses one or several numbers with units, which are added up.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    let mut rest = text.trim();
    match rest {
        "" => return Err(ValueError::Empty { expected: EXPECTED }),
        "0" => return Ok(Duration::ZERO),
        _ => {}
    }
    let too_large = || ValueError::TooLarge { text: shortened(text), max: "584 years".to_owned() };
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = Decimal::split(rest)
            .ok_or_else(|| ValueError::Form { text: shortened(text), expected: EXPECTED })?;
        let after = after.trim_start();
        let unit_end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        if unit.is_empty() {
            return Err(ValueError::NoUnit { text: shortened(text), expected: EXPECTED });
        }
        let Some((_, nanoseconds)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(ValueError::Unit { unit: shortened(unit), expected: EXPECTED });
        };
        let part = number.times(*nanoseconds).map_err(|error| match error {
            ScaleError::TooLarge => too_large(),
            ScaleError::TooFine => ValueError::TooFine { text: shortened(text), unit: "nanoseconds" },
        })?;
        total = total.checked_add(part).ok_or_else(too_large)?;
        rest = next.trim_start();
    }
    Ok(Duration::from_nanos(total))
}

/// The shortest exact form with one unit.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    let unit = UNITS[..7].iter().find(|(_, size)| nanoseconds.is_multiple_of(u128::from(*size)));
    let (name, size) = unit.copied().unwrap_or(("ns", 1));
    format!("{}{name}", nanoseconds / u128::from(size))
}

impl OptionValue for Duration {
    const EXPECTED: &'static str = EXPECTED;

    fn parse(text: &str) -> Result<Self, ValueError> {
        parse_duration(text)
    }

    fn show(&self) -> String {
        format_duration(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_one_or_several_units() {
        for (text, milliseconds) in [
            ("0", 0),
            ("2s", 2000),
            ("500ms", 500),
            ("1h30min", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1.5 s", 1500),
            ("1d", 86_400_000),
            ("2000us", 2),
            ("2000µs", 2),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn a_wrong_duration_says_what_is_wrong_with_it() {
        let error = |text| parse_duration(text).unwrap_err().to_string();
        assert_eq!(error("5"), format!("\"5\" has no unit; {EXPECTED} was expected"));
        assert_eq!(error("5 weeks"), format!("\"weeks\" is not a unit; {EXPECTED} was expected"));
        assert_eq!(error("soon"), format!("\"soon\" is not {EXPECTED}"));
        assert_eq!(error("0.5ns"), "\"0.5ns\" is not a whole number of nanoseconds");
        assert!(error("1000000d").contains("too large"));
        assert!(error("18446744073709551615ns 1ns").contains("too large"));
    }

    #[test]
    fn what_a_duration_shows_is_what_it_reads() {
        let mut random = fastrand::Rng::with_seed(12);
        for _ in 0..10_000 {
            let duration = Duration::from_nanos(random.u64(..) >> random.u32(0..64));
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
    }
}
