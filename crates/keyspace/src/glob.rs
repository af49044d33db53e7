//! Patterns for keys, as Redis understands them: `*`, `?`, `[a-z]`, `[^a]`, and a backslash that escapes the
//! next byte.

/// Whether a text matches a pattern. Takes at most as many steps as the product of both lengths.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern_at, mut text_at) = (0, 0);
    // The pattern's position after the last star, and the end of the text that the star covers so far.
    let mut star: Option<(usize, usize)> = None;
    while text_at < text.len() {
        let rest = &pattern[pattern_at..];
        if rest.first() == Some(&b'*') {
            pattern_at += 1;
            star = Some((pattern_at, text_at));
        } else if let Some(taken) = matches_one(rest, text[text_at]) {
            pattern_at += taken;
            text_at += 1;
        } else if let Some((behind, end)) = star {
            star = Some((behind, end + 1));
            (pattern_at, text_at) = (behind, end + 1);
        } else {
            return false;
        }
    }
    pattern[pattern_at..].iter().all(|&byte| byte == b'*')
}

/// The most steps that it takes to match a text of this length against a pattern.
pub(crate) fn steps_max(pattern: &[u8], text_bytes: usize) -> u64 {
    // After a star at the end of the pattern nothing is retried.
    let tries_again = pattern.iter().rev().skip(1).any(|&byte| byte == b'*');
    let steps = match tries_again {
        true => pattern.len().saturating_mul(text_bytes),
        false => pattern.len().saturating_add(text_bytes),
    };
    steps as u64
}

/// The literal prefix of every text that matches a pattern.
pub(crate) fn plain_start(pattern: &[u8]) -> Vec<u8> {
    let (mut start, mut left) = (Vec::new(), pattern);
    while let [first, rest @ ..] = left {
        match (first, rest) {
            (b'*' | b'?' | b'[', _) => break,
            (b'\\', [escaped, behind @ ..]) => {
                start.push(*escaped);
                left = behind;
            }
            _ => {
                start.push(*first);
                left = rest;
            }
        }
    }
    start
}

/// The length of the pattern's first element if it matches this byte.
fn matches_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ref set @ ..] => {
            let (holds, taken) = matches_set(set, byte);
            holds.then_some(1 + taken)
        }
        [b'\\', escaped, ..] => (escaped == byte).then_some(2),
        [other, ..] => (other == byte).then_some(1),
    }
}

/// Whether a byte is in a set, and the length of the set's description after the bracket; the closing bracket
/// may be missing.
fn matches_set(set: &[u8], byte: u8) -> (bool, usize) {
    let is_negated = set.first() == Some(&b'^');
    let (mut at, mut holds) = (usize::from(is_negated), false);
    loop {
        match set[at.min(set.len())..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                holds |= escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                holds |= (from.min(to)..=from.max(to)).contains(&byte);
                at += 3;
            }
            [one, ..] => {
                holds |= one == byte;
                at += 1;
            }
        }
    }
    (holds != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_redis() {
        let cases: [(&str, &[&str], &[&str]); 12] = [
            ("", &[""], &["a"]),
            ("*", &["", "a", "ab"], &[]),
            ("a*c", &["ac", "abc", "abcc"], &["a", "ab", "bac"]),
            ("*a*b*", &["ab", "xaxbx"], &["ba"]),
            ("h?llo", &["hello", "hallo"], &["hllo", "heello"]),
            ("h[ae]llo", &["hello", "hallo"], &["hillo"]),
            ("h[^e]llo", &["hallo"], &["hello"]),
            ("h[a-c]llo", &["hbllo"], &["hdllo"]),
            ("h[c-a]llo", &["hbllo"], &["hdllo"]),
            ("\\*a", &["*a"], &["aa"]),
            ("[\\]]", &["]"], &["a"]),
            ("[a", &["a"], &["b", "[a"]),
        ];
        for (pattern, fits, others) in cases {
            for text in fits {
                assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
            }
            for text in others {
                assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn what_a_pattern_begins_with_is_plain_up_to_what_stands_for_others() {
        for (pattern, start) in [
            ("", ""),
            ("*", ""),
            ("run:7:*", "run:7:"),
            ("run:?:*", "run:"),
            ("a[bc]d", "a"),
            (r"a\*b*", "a*b"),
            (r"a\\\[*", r"a\["),
            ("whole", "whole"),
            (r"a\", r"a\"),
        ] {
            assert_eq!(plain_start(pattern.as_bytes()), start.as_bytes(), "{pattern}");
            let text = [start.as_bytes(), b"x"].concat();
            assert!(!pattern.ends_with('*') || pattern.contains('?') || matches(pattern.as_bytes(), &text));
        }
    }

    #[test]
    fn only_a_star_before_the_end_makes_texts_cost_more_than_their_length() {
        for (pattern, steps) in
            [("", 9), ("*", 10), ("run:7:*", 16), ("h?l[lo]", 16), ("*a", 18), ("a*b*", 36)]
        {
            assert_eq!(steps_max(pattern.as_bytes(), 9), steps, "{pattern}");
        }
    }

    #[test]
    fn many_stars_take_no_longer() {
        let (pattern, text) = ("a*".repeat(1000) + "b", "a".repeat(10_000));
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
    }
}
