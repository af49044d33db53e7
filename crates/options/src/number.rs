//! Decimal numbers with a unit, computed exactly, without floating point.

/// An unsigned number as written: `digits` times ten to the power of minus `decimals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    digits: u128,
    decimals: u32,
}

/// Why a number times its unit is not representable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleError {
    TooLarge,
    TooFine,
}

impl Decimal {
    /// Splits `text` into the number at its front and the rest; none if it does not begin with a number, or
    /// with one of more digits than any size or duration has.
    pub(crate) fn split(text: &str) -> Option<(Self, &str)> {
        let whole = text.bytes().take_while(u8::is_ascii_digit).count();
        let (mut decimals, mut end) = (0, whole);
        if text[whole..].starts_with('.') {
            decimals = text[whole + 1..].bytes().take_while(u8::is_ascii_digit).count();
            end = whole + 1 + decimals;
            if decimals == 0 {
                return None;
            }
        }
        if whole == 0 || whole + decimals > 30 {
            return None;
        }
        let digits = text[..end].replace('.', "").parse().ok()?;
        Some((Self { digits, decimals: u32::try_from(decimals).ok()? }, &text[end..]))
    }

    /// The number times `unit`, if that is a whole number below 2^64.
    pub(crate) fn times(self, unit: u64) -> Result<u64, ScaleError> {
        let scaled = self.digits.checked_mul(u128::from(unit)).ok_or(ScaleError::TooLarge)?;
        let divisor = 10u128.pow(self.decimals);
        if scaled % divisor != 0 {
            return Err(ScaleError::TooFine);
        }
        u64::try_from(scaled / divisor).map_err(|_| ScaleError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_scaled_exactly_or_refused() {
        let scaled = |text: &str, unit| Decimal::split(text).map(|(number, _)| number.times(unit));
        assert_eq!(scaled("1.5", 1 << 30), Some(Ok(3 << 29)));
        assert_eq!(scaled("0.1", 1 << 10), Some(Err(ScaleError::TooFine)));
        assert_eq!(scaled("18446744073709551615", 1), Some(Ok(u64::MAX)));
        assert_eq!(scaled("18446744073709551616", 1), Some(Err(ScaleError::TooLarge)));
        assert_eq!(scaled("999999999999999999999999999999", u64::MAX), Some(Err(ScaleError::TooLarge)));
        for nonsense in ["", ".5", "1.", "-1", "x", "1234567890123456789012345678901"] {
            assert_eq!(scaled(nonsense, 1), None, "{nonsense}");
        }
    }
}
