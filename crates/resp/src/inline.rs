//! Requests that a person types: words on a line, quoted if they contain spaces.

use crate::ProtocolError;
use std::ops::Range;

/// Splits a line into words. Their bytes are appended to `text`, and their positions there to `words`.
///
/// Double quotes allow `\n \r \t \b \a \xHH` and a backslash before any other byte; single quotes allow only
/// `\'`.
pub(crate) fn split(
    line: &[u8],
    text: &mut Vec<u8>,
    words: &mut Vec<Range<usize>>,
) -> Result<(), ProtocolError> {
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let start = text.len();
        rest = word(rest, text)?.trim_ascii_start();
        words.push(start..text.len());
    }
    Ok(())
}

/// Takes one word; returns the rest of the line.
fn word<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [b'"', inside @ ..] => return quoted(inside, text),
            [b'\'', inside @ ..] => return plainly_quoted(inside, text),
            [byte, ..] if byte.is_ascii_whitespace() || *byte == 0 => return Ok(&rest[1..]),
            [byte, behind @ ..] => {
                text.push(*byte);
                behind
            }
        };
    }
}

fn quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, behind) = match rest {
            [b'"', behind @ ..] => return ended(behind),
            [b'\\', b'x', high, low, behind @ ..] if let Some(byte) = hex(*high, *low) => (byte, behind),
            [b'\\', escaped, behind @ ..] => (unescaped(*escaped), behind),
            [byte, behind @ ..] => (*byte, behind),
            [] => return Err(ProtocolError::Quotes),
        };
        text.push(byte);
        rest = behind;
    }
}

fn plainly_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, behind) = match rest {
            [b'\'', behind @ ..] => return ended(behind),
            [b'\\', b'\'', behind @ ..] => (b'\'', behind),
            [byte, behind @ ..] => (*byte, behind),
            [] => return Err(ProtocolError::Quotes),
        };
        text.push(byte);
        rest = behind;
    }
}

/// After a closing quote, only a space or the end of the line may follow.
fn ended(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest {
        [byte, ..] if !byte.is_ascii_whitespace() => Err(ProtocolError::Quotes),
        rest => Ok(rest),
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let (mut text, mut words) = (Vec::new(), Vec::new());
        split(line, &mut text, &mut words)?;
        Ok(words.into_iter().map(|word| text[word].to_vec()).collect())
    }

    #[test]
    fn a_line_is_cut_at_spaces_and_quotes_keep_them() {
        let cases: [(&str, &[&str]); 9] = [
            ("", &[]),
            ("   ", &[]),
            ("PING", &["PING"]),
            ("  SET  a\tb ", &["SET", "a", "b"]),
            (r#"SET "a b" 'c d'"#, &["SET", "a b", "c d"]),
            (r#"SET "\x41\n\t\"\\" '\'\n'"#, &["SET", "A\n\t\"\\", "'\\n"]),
            (r#"SET "" ''"#, &["SET", "", ""]),
            (r#"a"b c""#, &["ab c"]),
            (r#""\xg1""#, &["xg1"]),
        ];
        for (line, expected) in cases {
            let expected: Vec<Vec<u8>> = expected.iter().map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(words(line.as_bytes()), Ok(expected), "{line:?}");
        }
    }

    #[test]
    fn a_quote_ends_and_stands_alone() {
        for line in [r#"""#, r#"SET "a"#, "'a", r#""a"b"#, "'a'b", r#""a\""#, "'a\\'"] {
            assert_eq!(words(line.as_bytes()), Err(ProtocolError::Quotes), "{line:?}");
        }
    }
}
