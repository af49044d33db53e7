//! Timestamps as RFC 3339 texts, to and from nanoseconds since 1970 in UTC.
//!
//! Invariant: `parse(show(n)) == n` for every nanosecond of the years 0001 to 9999.

const NANOSECONDS: i128 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Parses `2026-01-01`, `2026-01-01T12:30`, `2026-01-01 12:30:00.25`, the last two also with `Z` or `+01:00`.
///
/// A text without a zone is in UTC. Fractions go down to the nanosecond.
///
/// # Errors
/// What is wrong with the text.
pub(super) fn parse(text: &str) -> Result<i128, &'static str> {
    let mut rest = Rest(text.as_bytes());
    let day = rest.day()?;
    if rest.0.is_empty() {
        return Ok(i128::from(day * DAY_SECONDS) * NANOSECONDS);
    }
    if !(rest.take(b'T') || rest.take(b't') || rest.take(b' ')) {
        return Err("the time begins with T, as in 2026-01-01T12:30:00Z");
    }
    let (hour, minute) = rest.hour_and_minute()?;
    let (mut second, mut nanosecond) = (0, 0);
    if rest.take(b':') {
        second = rest.digits(2)?;
        nanosecond = if rest.take(b'.') { rest.fraction()? } else { 0 };
    }
    if second > 59 {
        return Err("a minute has the seconds 00 to 59");
    }
    let offset = rest.offset()?;
    if !rest.0.is_empty() {
        return Err("something follows the time");
    }
    let seconds = day * DAY_SECONDS + hour * 3600 + minute * 60 + second - offset;
    let nanoseconds = i128::from(seconds) * NANOSECONDS + i128::from(nanosecond);
    if is_in_range(nanoseconds) { Ok(nanoseconds) } else { Err("the years go from 0001 to 9999") }
}

/// Whether an instant lies in the years 0001 to 9999, which have a textual form.
fn is_in_range(nanoseconds: i128) -> bool {
    let first = i128::from(days_from_civil(1, 1, 1) * DAY_SECONDS) * NANOSECONDS;
    let end = i128::from(days_from_civil(10_000, 1, 1) * DAY_SECONDS) * NANOSECONDS;
    (first..end).contains(&nanoseconds)
}

/// Writes an instant in UTC, with as many fractional digits as it needs.
///
/// An instant out of range, which only code can build, is written as the nearest one in range.
pub(super) fn show(nanoseconds: i128) -> String {
    let first = i128::from(days_from_civil(1, 1, 1) * DAY_SECONDS) * NANOSECONDS;
    let end = i128::from(days_from_civil(10_000, 1, 1) * DAY_SECONDS) * NANOSECONDS;
    let nanoseconds = nanoseconds.clamp(first, end - 1);
    let seconds = i64::try_from(nanoseconds.div_euclid(NANOSECONDS)).unwrap_or(0);
    let (year, month, day) = civil_from_days(seconds.div_euclid(DAY_SECONDS));
    let second = seconds.rem_euclid(DAY_SECONDS);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = format!(".{:09}", nanoseconds.rem_euclid(NANOSECONDS));
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// The unread rest of a text.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.0.first() == Some(&byte);
        if is_next {
            self.0 = &self.0[1..];
        }
        is_next
    }

    fn digits(&mut self, count: usize) -> Result<i64, &'static str> {
        let Some((digits, rest)) = self.0.split_at_checked(count) else {
            return Err("digits are missing at its end");
        };
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err("the form is 2026-01-01T12:30:00Z, each number with all of its digits");
        }
        self.0 = rest;
        Ok(digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    }

    /// Days since 1970.
    fn day(&mut self) -> Result<i64, &'static str> {
        let year = self.digits(4)?;
        let first_dash = self.take(b'-');
        let month = self.digits(2)?;
        let second_dash = self.take(b'-');
        let day = self.digits(2)?;
        if !(first_dash && second_dash) {
            return Err("the form of a day is 2026-01-01");
        }
        if year == 0 {
            return Err("the years go from 0001 to 9999");
        }
        if !(1..=12).contains(&month) {
            return Err("a year has the months 01 to 12");
        }
        if day < 1 || civil_from_days(days_from_civil(year, month, day)) != (year, month, day) {
            return Err("the month has no such day");
        }
        Ok(days_from_civil(year, month, day))
    }

    fn hour_and_minute(&mut self) -> Result<(i64, i64), &'static str> {
        let hour = self.digits(2)?;
        if !self.take(b':') {
            return Err("the form of a time is 12:30:00");
        }
        let minute = self.digits(2)?;
        if hour > 23 || minute > 59 {
            return Err("a day has the hours 00 to 23, an hour the minutes 00 to 59");
        }
        Ok((hour, minute))
    }

    /// Nanoseconds.
    fn fraction(&mut self) -> Result<i64, &'static str> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=9).contains(&count) {
            return Err("a fraction of a second has 1 to 9 digits");
        }
        let digits = self.digits(count)?;
        Ok((count..9).fold(digits, |number, _| number * 10))
    }

    /// The offset of the zone from UTC in seconds, positive to the east.
    fn offset(&mut self) -> Result<i64, &'static str> {
        if self.0.is_empty() || self.take(b'Z') || self.take(b'z') {
            return Ok(0);
        }
        let sign = if self.take(b'+') {
            1
        } else if self.take(b'-') {
            -1
        } else {
            return Err("the zone is Z or of the form +01:00");
        };
        let (hour, minute) = self.hour_and_minute()?;
        Ok(sign * (hour * 3600 + minute * 60))
    }
}

/// Days from 1970-01-01 to a day of the Gregorian calendar; months from 1.
///
/// Algorithm: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`], from the same source.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_are_read_as_what_they_are() {
        assert_eq!(parse("1970-01-01"), Ok(0));
        assert_eq!(parse("2000-03-01T00:00:00Z"), Ok(951_868_800 * NANOSECONDS));
        assert_eq!(parse("2026-01-01 00:00"), Ok(1_767_225_600 * NANOSECONDS));
        assert_eq!(parse("2026-01-01T01:30:00+01:30"), Ok(1_767_225_600 * NANOSECONDS));
        assert_eq!(parse("1969-12-31T23:59:59.999999999Z"), Ok(-1));
        assert_eq!(parse("2001-09-09T01:46:40.5-00:00"), Ok(1_000_000_000_500_000_000));
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-00-10",
            "2026-01-00",
            "2026-01-32",
            "0000-01-01",
            "2026-01-01T",
            "2026-01-01T24:00:00",
            "2026-01-01T12:60",
            "2026-01-01T12:30:60",
            "2026/01/01",
            "2026-01-01T12:30:00.",
            "2026-01-01T12:30:00.0000000001",
            "2026-01-01T12:30:00 CET",
            "2026-1-1",
            "2026-01-01T12:30:00Zz",
            "9999-12-31T23:59:59-01:00",
            "0001-01-01T00:00:00+00:01",
            "２０２６-01-01",
            "2026-01-01X12:30",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("2024-02-29").is_ok());
        assert!(parse("1900-02-29").is_err());
    }

    #[test]
    fn every_instant_is_read_back_from_what_is_shown() {
        let mut random = fastrand::Rng::with_seed(3);
        let first = parse("0001-01-01").unwrap();
        let last = parse("9999-12-31T23:59:59.999999999Z").unwrap();
        for _ in 0..20_000 {
            let instant = random.i128(first..=last);
            let instant = instant - instant % [1, 1000, NANOSECONDS, 3600 * NANOSECONDS][random.usize(..4)];
            assert_eq!(parse(&show(instant)), Ok(instant), "{}", show(instant));
        }
        assert_eq!(show(first), "0001-01-01T00:00:00Z");
        assert_eq!(show(last), "9999-12-31T23:59:59.999999999Z");
        assert_eq!(show(last + 1), show(last));
    }
}
