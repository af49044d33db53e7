//! The query of a store URL, `key=value&key=value`, and percent escapes, parsed the same way for every kind
//! of store.
//!
//! Invariant: every key is known, and none is taken twice.

use crate::url::{UrlError, shortened};
use atoll_errors::nearest;
use atoll_options::ValueError;

/// Splits a URL into the part before its query, and the query.
pub(crate) fn split(rest: &str) -> Result<(&str, &str), UrlError> {
    match rest.split_once('#') {
        Some((_, fragment)) => Err(UrlError::Fragment { fragment: shortened(fragment) }),
        None => Ok(rest.split_once('?').unwrap_or((rest, ""))),
    }
}

/// Calls `set` with each known key of the query and its decoded value.
pub(crate) fn read<const N: usize>(
    query: &str,
    known: [&'static str; N],
    mut set: impl FnMut(&'static str, &str) -> Result<(), ValueError>,
) -> Result<(), UrlError> {
    let mut seen = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(UrlError::NotAPair { part: shortened(part) });
        };
        let Some(key) = known.into_iter().find(|key| *key == name) else {
            return Err(UrlError::UnknownKey { key: shortened(name), nearest: nearest(name, known) });
        };
        if seen.contains(&key) {
            return Err(UrlError::Twice { key });
        }
        seen.push(key);
        set(key, &decoded(value)?).map_err(|source| UrlError::Value { key, source })?;
    }
    Ok(())
}

/// Decodes the percent escapes of a text.
pub(crate) fn decoded(text: &str) -> Result<String, UrlError> {
    String::from_utf8(percent_decoded(text)?).map_err(|_| UrlError::Escape { text: shortened(text) })
}

/// Decodes percent escapes to bytes: a path need not be text.
pub(crate) fn percent_decoded(text: &str) -> Result<Vec<u8>, UrlError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == 0 {
            return Err(UrlError::Escape { text: "\\0".to_owned() });
        }
        if *first != b'%' {
            decoded.push(*first);
            rest = tail;
            continue;
        }
        let escape = || UrlError::Escape { text: String::from_utf8_lossy(&rest[..rest.len().min(3)]).into() };
        let [high, low, tail @ ..] = tail else { return Err(escape()) };
        match (hexadecimal(*high), hexadecimal(*low)) {
            (Some(high), Some(low)) if high | low != 0 => decoded.push(high << 4 | low),
            _ => return Err(escape()),
        }
        rest = tail;
    }
    Ok(decoded)
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_options::OptionValue;

    fn read_sizes(query: &str) -> Result<Vec<(&'static str, u32)>, UrlError> {
        let mut found = Vec::new();
        read(query, ["width", "height"], |key, value| {
            found.push((key, u32::parse(value)?));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn known_keys_are_read_in_their_order_and_decoded() {
        assert_eq!(read_sizes("height=%31%32&width=3").unwrap(), [("height", 12), ("width", 3)]);
        assert_eq!(read_sizes("").unwrap(), []);
        assert_eq!(split("a?b?c").unwrap(), ("a", "b?c"));
        assert_eq!(split("a").unwrap(), ("a", ""));
    }

    #[test]
    fn whatever_else_stands_there_is_an_error_that_says_what() {
        let nearest = Some("width");
        assert_eq!(read_sizes("widht=1"), Err(UrlError::UnknownKey { key: "widht".to_owned(), nearest }));
        assert_eq!(read_sizes("width=1&width=1"), Err(UrlError::Twice { key: "width" }));
        assert_eq!(read_sizes("width"), Err(UrlError::NotAPair { part: "width".to_owned() }));
        assert!(matches!(read_sizes("width=x"), Err(UrlError::Value { key: "width", .. })));
        assert_eq!(read_sizes("width=%3"), Err(UrlError::Escape { text: "%3".to_owned() }));
        assert_eq!(split("a#b"), Err(UrlError::Fragment { fragment: "b".to_owned() }));
    }
}
