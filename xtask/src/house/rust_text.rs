//! Blanks out everything in Rust source that is not code. Precise enough to count braces, and no more.
//!
//! Invariant: the blanked text has the same lines as the source.

/// The source with comments and the contents of literals replaced by spaces.
pub fn blanked(source: &str) -> String {
    let characters: Vec<char> = source.chars().collect();
    let mut blank = String::with_capacity(source.len());
    let mut at = 0;
    while at < characters.len() {
        let end = match literal_end(&characters, at) {
            Some(end) => end,
            None => {
                blank.push(characters[at]);
                at += 1;
                continue;
            }
        };
        let hidden = &characters[at..end.min(characters.len())];
        blank.extend(hidden.iter().map(|&character| if character == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    blank
}

/// Where the comment or literal that starts at `at` ends; `None` if none starts there.
fn literal_end(text: &[char], at: usize) -> Option<usize> {
    let next = text.get(at + 1).copied();
    match text[at] {
        '/' if next == Some('/') => Some(line_end(text, at)),
        '/' if next == Some('*') => Some(block_comment_end(text, at)),
        '"' => Some(string_end(text, at)),
        'r' if !follows_word(text, at) => raw_string_end(text, at),
        '\'' => character_end(text, at),
        _ => None,
    }
}

/// Whether the character before `at` belongs to a word. `br"` still starts a raw string.
fn follows_word(text: &[char], at: usize) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let Some(before) = at.checked_sub(1).map(|before| text[before]) else { return false };
    let is_prefix = matches!(before, 'b' | 'c') && !at.checked_sub(2).is_some_and(|two| is_word(text[two]));
    is_word(before) && !is_prefix
}

fn line_end(text: &[char], at: usize) -> usize {
    text[at..].iter().position(|&character| character == '\n').map_or(text.len(), |length| at + length)
}

fn block_comment_end(text: &[char], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) if depth == 1 => return at + 2,
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    text.len()
}

fn string_end(text: &[char], mut at: usize) -> usize {
    at += 1;
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn raw_string_end(text: &[char], at: usize) -> Option<usize> {
    let hashes = text[at + 1..].iter().take_while(|&&character| character == '#').count();
    let opening = at + 1 + hashes;
    if text.get(opening) != Some(&'"') {
        return None;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = &text[opening + 1..];
    let length = body.windows(closing.len()).position(|window| window == closing);
    Some(length.map_or(text.len(), |length| opening + 1 + length + closing.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn character_end(text: &[char], at: usize) -> Option<usize> {
    match (text.get(at + 1), text.get(at + 2)) {
        (Some('\\'), _) => {
            text[at + 3..].iter().position(|&character| character == '\'').map(|length| at + 4 + length)
        }
        (Some(_), Some('\'')) => Some(at + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> String {
        blanked(source).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_are_blank() {
        assert_eq!(code("a // {\nb /* { /* { */ } */ c"), "a b c");
        assert_eq!(code("x(\"{\\\"{\", '{', '\\'', '\\u{7b}', b'{')"), "x( , , , , b )");
        assert_eq!(code("r\"{\" br#\"\"{\"# for"), "b for");
    }

    #[test]
    fn lifetimes_and_words_that_end_in_r_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code("for(\"{\")"), "for( )");
    }

    #[test]
    fn lines_stay_where_they_were() {
        let source = "\"a\nb\"\n/* c\nd */\n";
        assert_eq!(blanked(source).lines().count(), source.lines().count());
    }
}
