//! The types that an option can have.

use crate::ValueError;
use crate::error::shortened;
use std::path::PathBuf;

/// A type that an option can have: parsed from text, shown as text.
///
/// `parse` reads back whatever `show` writes as the same value.
pub trait OptionValue: Sized {
    /// The form of a valid text, to complete the sentence "this is not ...".
    const EXPECTED: &'static str;

    /// Parses the value.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    fn parse(text: &str) -> Result<Self, ValueError>;

    /// The value as text.
    fn show(&self) -> String;
}

impl OptionValue for bool {
    const EXPECTED: &'static str = "true or false";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(ValueError::Form { text: shortened(text), expected: Self::EXPECTED }),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Unsigned integers, up to the largest value of their type.
macro_rules! whole_number {
    ($($number:ty),+) => { $(
        impl OptionValue for $number {
            const EXPECTED: &'static str = "a whole number";

            fn parse(text: &str) -> Result<Self, ValueError> {
                let text = text.trim();
                if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(ValueError::Form { text: shortened(text), expected: Self::EXPECTED });
                }
                text.parse().map_err(|_| ValueError::TooLarge {
                    text: shortened(text),
                    max: <$number>::MAX.to_string(),
                })
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+ };
}

whole_number!(u8, u16, u32, u64, usize);

impl OptionValue for String {
    const EXPECTED: &'static str = "a text";

    fn parse(text: &str) -> Result<Self, ValueError> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl OptionValue for PathBuf {
    const EXPECTED: &'static str = "a path";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() {
            return Err(ValueError::Empty { expected: Self::EXPECTED });
        }
        Ok(Self::from(text))
    }

    fn show(&self) -> String {
        self.to_string_lossy().into_owned()
    }
}

/// A value that may be missing, written as `none`.
impl<T: OptionValue> OptionValue for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.trim().eq_ignore_ascii_case("none") { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), T::show)
    }
}

/// Declares an enum whose variants are chosen by name.
///
/// ```
/// atoll_options::choice! {
///     /// When to use colours.
///     pub enum Color: "auto, always or never" {
///         /// On terminals.
///         Auto = "auto",
///         /// Everywhere.
///         Always = "always",
///         /// Nowhere.
///         Never = "never",
///     }
/// }
/// use atoll_options::OptionValue;
/// assert_eq!(Color::parse("never"), Ok(Color::Never));
/// ```
#[macro_export]
macro_rules! choice {
    ($(#[$meta:meta])* $visibility:vis enum $name:ident: $expected:literal {
        $( $(#[$variant_meta:meta])* $variant:ident = $text:literal, )+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name { $( $(#[$variant_meta])* $variant, )+ }

        impl $name {
            /// The texts of all variants, in the order in which they are shown.
            $visibility const WORDS: &'static [&'static str] = &[$( $text, )+];
        }

        impl $crate::OptionValue for $name {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Result<Self, $crate::ValueError> {
                match text.trim() {
                    $( $text => Ok(Self::$variant), )+
                    other => Err($crate::ValueError::Form {
                        text: other.chars().take(60).collect(),
                        expected: $expected,
                    }),
                }
            }

            fn show(&self) -> String {
                match self { $( Self::$variant => $text, )+ }.to_owned()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_reads_its_form_and_refuses_others() {
        assert_eq!(bool::parse(" Yes "), Ok(true));
        assert!(bool::parse("maybe").is_err());
        assert_eq!(u16::parse("65535"), Ok(65535));
        assert_eq!(u16::parse("65536").unwrap_err().to_string(), "\"65536\" is too large; the most is 65535");
        assert!(u16::parse("+1").is_err());
        assert_eq!(Option::<u8>::parse("none"), Ok(None));
        assert_eq!(Option::<u8>::parse("3"), Ok(Some(3)));
        assert!(PathBuf::parse("").is_err());
    }
}
