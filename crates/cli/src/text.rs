//! Bytes as text on a command line, and back: plain, escaped, hexadecimal, base64.
//!
//! Invariant: `decode(encode(bytes)) == bytes` for every encoding but plain text, which escapes what it
//! cannot show.

use atoll_row_files::escaped;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use std::fmt::{self, Write};
use std::path::Path;

/// How keys and values are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// As it is.
    #[default]
    Text,
    /// With \xNN, \n, \r, \t, \0 and \\ for what cannot be shown.
    Escaped,
    /// Two hexadecimal digits per byte.
    Hex,
    /// Base64 with padding.
    Base64,
}

/// Why a text cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// An escape that does not exist or is incomplete.
    #[error("\"{found}\" at character {at} is not an escape")]
    Escape {
        /// What was found.
        found: String,
        /// The character at which it starts, from 1.
        at: usize,
    },
    /// Not two hexadecimal digits a byte.
    #[error("it is not hexadecimal: {problem}")]
    Hex {
        /// What is wrong.
        problem: &'static str,
    },
    /// Not base64.
    #[error("it is not base64")]
    Base64(#[from] base64::DecodeError),
}

impl TextError {
    /// What to type instead.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Escape { .. } => "escapes are \\xNN, \\n, \\r, \\t, \\0 and \\\\",
            Self::Hex { .. } => "write two of 0-9 a-f for each byte, such as 00ff10",
            Self::Base64(_) => "write base64 with padding, such as AP8Q",
        }
    }
}

impl Encoding {
    /// The bytes of a text.
    pub(crate) fn decode(self, text: &str) -> Result<Vec<u8>, TextError> {
        match self {
            Self::Text => Ok(text.as_bytes().to_vec()),
            Self::Escaped => unescape(text),
            Self::Hex => from_hex(text),
            Self::Base64 => Ok(STANDARD.decode(text)?),
        }
    }

    /// The text of bytes, always one line.
    pub(crate) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Text | Self::Escaped => escape(bytes),
            Self::Hex => bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            }),
            Self::Base64 => STANDARD.encode(bytes),
        }
    }
}

/// A count with its noun: `1 row`, `2 rows`.
pub(crate) fn counted(count: impl fmt::Display, one: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {one}{ending}")
}

/// A word quoted for the shell, if it needs quotes.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A path as one word of the shell.
pub(crate) fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// Names for a message: each at most so long and not too many, whatever a file calls its columns.
pub(crate) fn listed(names: &[String]) -> String {
    const NAMES_MAX: usize = 30;
    let shown = |name: &String| match name.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", escaped(name[..end].chars())),
        None => escaped(name.chars()),
    };
    let more = names.len().saturating_sub(NAMES_MAX);
    let mut text = names.iter().take(NAMES_MAX).map(shown).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

/// The bytes as text, with escapes for control characters, backslashes and what is not UTF-8.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&escaped(chunk.valid().chars()));
        escape_bytes(chunk.invalid(), &mut text);
    }
    text
}

fn escape_bytes(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// The bytes of an escaped text.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, TextError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut characters = text.chars().enumerate();
    while let Some((at, character)) = characters.next() {
        if character != '\\' {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let wrong = |found: String| TextError::Escape { found: format!("\\{found}"), at: at + 1 };
        match characters.next().map(|(_, kind)| kind) {
            Some('\\') => bytes.push(b'\\'),
            Some('n') => bytes.push(b'\n'),
            Some('r') => bytes.push(b'\r'),
            Some('t') => bytes.push(b'\t'),
            Some('0') => bytes.push(0),
            Some('x') => {
                let digits: String = characters.by_ref().take(2).map(|(_, digit)| digit).collect();
                match from_hex(&digits).as_deref() {
                    Ok([byte]) => bytes.push(*byte),
                    _ => return Err(wrong(format!("x{digits}"))),
                }
            }
            other => return Err(wrong(other.map(String::from).unwrap_or_default())),
        }
    }
    Ok(bytes)
}

fn from_hex(text: &str) -> Result<Vec<u8>, TextError> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    if !text.len().is_multiple_of(2) {
        return Err(TextError::Hex { problem: "the number of digits is odd" });
    }
    let bytes = text.as_bytes().chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    bytes.collect::<Option<_>>().ok_or(TextError::Hex { problem: "it has characters other than 0-9 and a-f" })
}

/// The beginning of a value for a message, with its length when it is not whole.
pub(crate) fn shortened(bytes: &[u8], whole_bytes: u64) -> String {
    let shown = &bytes[..bytes.len().min(200)];
    if shown.len() as u64 == whole_bytes {
        format!("\"{}\"", escape(shown))
    } else {
        format!("\"{}\"... ({whole_bytes} bytes)", escape(shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_every_binary_encoding() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..random.usize(0..20)).map(|_| random.u8(..)).collect();
            for encoding in [Encoding::Escaped, Encoding::Hex, Encoding::Base64] {
                let text = encoding.encode(&bytes);
                assert!(!text.contains(char::is_control), "{text:?}");
                assert_eq!(encoding.decode(&text).as_ref(), Ok(&bytes), "{encoding:?} {text}");
            }
        }
    }

    #[test]
    fn readable_text_is_shown_as_it_is() {
        assert_eq!(escape("Zürich 北京".as_bytes()), "Zürich 北京");
        assert_eq!(escape(b"a\tb\\\xff\x07"), "a\\tb\\\\\\xff\\x07");
    }

    #[test]
    fn wrong_escapes_are_named_with_their_place() {
        assert_eq!(unescape("ab\\q").unwrap_err().to_string(), "\"\\q\" at character 3 is not an escape");
        assert_eq!(unescape("\\x4").unwrap_err().to_string(), "\"\\x4\" at character 1 is not an escape");
        assert!(unescape("\\").is_err());
        assert!(Encoding::Hex.decode("abc").is_err());
        assert!(Encoding::Hex.decode("zz").is_err());
        assert!(Encoding::Hex.decode("é").is_err());
        assert!(Encoding::Base64.decode("!").is_err());
    }

    #[test]
    fn a_shell_takes_each_word_for_itself() {
        assert_eq!(quoted("/a/b-c_d.e"), "/a/b-c_d.e");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
