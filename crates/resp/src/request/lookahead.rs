//! A look ahead at the keys of requests that are about to be parsed.
//!
//! Invariant: this is a guess. It ends at a request that is incomplete or malformed, and may return words
//! that are not keys.

/// Requests with more arguments end the look ahead: they cost more than a guess is worth.
const ARGUMENTS_MAX: usize = 8;

/// The second words of the requests at the front of `input`, which are mostly keys.
pub fn keys_ahead(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = input;
    std::iter::from_fn(move || {
        let (key, behind) = key_of_first(rest)?;
        rest = behind;
        Some(key)
    })
}

/// The second word of the first request in `input`, and the bytes after that request.
fn key_of_first(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = number_behind(b'*', input)?;
    if !(2..=ARGUMENTS_MAX).contains(&count) {
        return None;
    }
    let (_, rest) = string(rest)?;
    let (key, mut rest) = string(rest)?;
    for _ in 2..count {
        (_, rest) = string(rest)?;
    }
    Some((key, rest))
}

fn string(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number_behind(b'$', input)?;
    let (string, end) = rest.split_at_checked(length)?;
    Some((string, end.strip_prefix(b"\r\n")?))
}

/// The number on a line that begins with `mark`.
fn number_behind(mark: u8, input: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, mut rest) = input.split_first()?;
    if first != mark {
        return None;
    }
    let mut number = 0_usize;
    loop {
        match rest.split_first()? {
            (digit @ b'0'..=b'9', behind) => {
                number = number.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
                rest = behind;
            }
            (b'\r', behind) => return Some((number, behind.strip_prefix(b"\n")?)),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_request;

    fn keys(input: &[u8]) -> Vec<&[u8]> {
        keys_ahead(input).collect()
    }

    #[test]
    fn every_whole_request_tells_its_second_word() {
        let mut input = Vec::new();
        for words in [&["SET", "one", "1"][..], &["GET", ""], &["SET", "three", "3\r\n*2", "PX", "9"]] {
            write_request(&mut input, words);
        }
        assert_eq!(keys(&input), [&b"one"[..], b"", b"three"]);
        for end in 0..input.len() {
            let told = keys(&input[..end]);
            assert!(told.len() < 3 && [&b"one"[..], b"", b"three"].starts_with(&told), "{end}: {told:?}");
        }
    }

    #[test]
    fn nonsense_ends_it_and_is_not_followed() {
        let huge = format!("*2\r\n$3\r\nGET\r\n${}9\r\na\r\n", usize::MAX);
        let inputs: [&[u8]; 8] = [
            b"",
            b"PING\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"*9999999999999999999999\r\n$3\r\nGET\r\n$1\r\na\r\n",
            b"*-1\r\n",
            b"*2\r\n$3\r\nGET\r\n$-1\r\n",
            b"*2\r\n$3\r\nGET\r\n:1\r\n",
            huge.as_bytes(),
        ];
        for input in inputs {
            assert!(keys(input).is_empty(), "{input:?}");
        }
    }
}
