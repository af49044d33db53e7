//! Words that must not get into the repository: reminders of unfinished work, and paths of one machine.

use super::{Finding, Tree};

/// Each forbidden word, and why. In pieces, so that this file passes its own rule.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("to", "do!"), "finish it, or return a typed error"),
    (concat!("TO", "DO"), "finish it, or open an issue"),
    (concat!("FIX", "ME"), "fix it, or open an issue"),
    (concat!("XX", "X"), "fix it, or open an issue"),
    (concat!("HA", "CK"), "do it right, or say why it is right"),
    (concat!("/wo", "rk/"), "use a path below the repository"),
    (concat!("/ro", "ot/"), "use a path below the repository"),
    (concat!("/ho", "me/"), "use a path below the repository, or $HOME"),
    (concat!("/Us", "ers/"), "use a path below the repository, or $HOME"),
];

/// Files that are written by programs.
const GENERATED: &[&str] = &["Cargo.lock"];

/// Lines with a forbidden word.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let written = tree.all().filter(|(path, _)| !GENERATED.iter().any(|name| path.ends_with(name)));
    for (path, text) in written {
        for (number, line) in text.lines().enumerate() {
            for (word, remedy) in FORBIDDEN {
                if stands_alone(line, word) {
                    let place = format!("{path}:{}", number + 1);
                    found.push(Finding::at(place, format!("it says {word:?}"), *remedy));
                }
            }
        }
    }
    found
}

/// Whether `word` is in `line` on its own, not as part of a longer word or as the tail of a path.
fn stands_alone(line: &str, word: &str) -> bool {
    // A word that ends in punctuation may be followed by anything.
    let ends_as_word = word.ends_with(char::is_alphanumeric);
    let goes_on = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next().filter(|_| ends_as_word);
        !before.is_some_and(|character| character.is_alphanumeric() || "_-.~*}".contains(character))
            && !after.is_some_and(goes_on)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        findings(&Tree::of(&[("src/a.rs", text)])).len()
    }

    #[test]
    fn unfinished_business_and_machine_paths_are_found() {
        for (word, _) in FORBIDDEN {
            assert_eq!(count(&format!("before {word} after")), 1, "{word}");
        }
    }

    #[test]
    fn the_plain_words_are_found_with_and_without_a_colon() {
        for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")] {
            assert_eq!(count(&format!("// {word}: handle the error")), 1, "{word}");
            assert_eq!(count(&format!("// {word}(somebody) handle the error")), 1, "{word}");
            assert_eq!(count(&format!("// {word} handle the error")), 1, "{word}");
            assert_eq!(count(&format!("const {word}S: {word}_1, file.{word}{word}")), 0, "{word}");
        }
    }

    #[test]
    fn longer_words_that_end_alike_are_left_alone() {
        assert_eq!(count(concat!("see docs/wo", "rk/flow.md and frame/wo", "rk/")), 0);
        assert_eq!(count("a to-do list"), 0);
    }
}
