//! Dates as people write them.

use rustls::pki_types::UnixTime;

/// The day of a moment in UTC, as `2026-11-25`.
pub(crate) fn day(time: UnixTime) -> String {
    // Years that begin on the first of March, counted from the year 0, have their leap days at the end.
    let days = time.as_secs() / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn days_are_those_of_the_calendar() {
        let of = |seconds| day(UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        assert_eq!(of(0), "1970-01-01");
        assert_eq!(of(951_782_399), "2000-02-28");
        assert_eq!(of(951_782_400), "2000-02-29");
        assert_eq!(of(1_735_689_599), "2024-12-31");
        assert_eq!(of(1_764_028_800), "2025-11-25");
        assert_eq!(of(4_107_542_400), "2100-03-01");
    }
}
