//! Integers in the notation of the protocol.

/// Parses an integer: digits, optionally after a minus, without spaces, a plus sign or leading zeros. None
/// for anything else.
///
/// This is what Redis accepts as an integer, in headers as well as in values to increment.
#[must_use]
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    // Accumulates downwards, because there is one more negative number than positive ones.
    let below = digits.iter().try_fold(0_i64, |number, &digit| {
        let value = i64::from(digit.wrapping_sub(b'0'));
        if !digit.is_ascii_digit() {
            return None;
        }
        number.checked_mul(10)?.checked_sub(value)
    })?;
    if is_negative { Some(below) } else { below.checked_neg() }
}

/// A length or count: an integer from zero up to `most`.
pub(crate) fn parse_length(text: &[u8], most: usize) -> Option<usize> {
    parse_integer(text).and_then(|number| usize::try_from(number).ok()).filter(|&length| length <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_written_in_one_way() {
        for number in [0, 1, -1, 9, 10, -10, 1234567890123, i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1] {
            assert_eq!(parse_integer(number.to_string().as_bytes()), Some(number));
        }
        let others = ["", "-", "+1", " 1", "1 ", "01", "-0", "00", "1a", "a", "0x1", "1.0", "--1", "1\0"];
        for text in
            others.into_iter().chain(["9223372036854775808", "-9223372036854775809", "99999999999999999999"])
        {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
