//! Host lists as people and batch schedulers write them: `a:1,b:2`, `node[01-04,07]`, `rack[1-2]n[1-8]:7379`.
//!
//! Invariant: a short list never expands to more than [`HOSTS_MAX`] names.

use std::collections::VecDeque;

/// Most names that a list may expand to.
pub(super) const HOSTS_MAX: usize = 65_536;

/// Expands a list into its names, in order.
///
/// # Errors
/// What is wrong with it.
pub(super) fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for word in words(text)? {
        names.extend(expand_word(word, HOSTS_MAX - names.len())?);
    }
    Ok(names)
}

/// Splits at commas and line ends outside of brackets; an address in brackets, such as `[::1]`, has no comma.
fn words(text: &str) -> Result<Vec<&str>, String> {
    let (mut words, mut begins, mut is_inside) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' if is_inside => return Err("a bracket in brackets".to_owned()),
            '[' => is_inside = true,
            ']' if !is_inside => return Err("a bracket that nothing opened".to_owned()),
            ']' => is_inside = false,
            ',' | '\n' if !is_inside => {
                words.extend(text.get(begins..at));
                begins = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err("a bracket that nothing closes".to_owned());
    }
    words.extend(text.get(begins..));
    Ok(words.into_iter().map(str::trim).filter(|word| !word.is_empty()).collect())
}

/// Expands one word, its brackets from left to right.
fn expand_word(word: &str, most: usize) -> Result<Vec<String>, String> {
    let (mut done, mut left) = (Vec::new(), VecDeque::from([word.to_owned()]));
    while let Some(name) = left.pop_front() {
        let Some((before, inside, behind)) = first_bracket(&name) else {
            done.push(name);
            continue;
        };
        // Pushed to the front in reverse, so that names come out in numerical order.
        for number in numbers(inside, most)?.into_iter().rev() {
            left.push_front(format!("{before}{number}{behind}"));
        }
        if done.len() + left.len() > most {
            return Err(format!("more than {HOSTS_MAX} names"));
        }
    }
    Ok(done)
}

/// The text before, in and after the first brackets with numbers; those of an address hold colons.
fn first_bracket(name: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = name.split_once('[')?;
    let (inside, behind) = rest.split_once(']')?;
    (!inside.contains(':')).then_some((before, inside, behind))
}

/// Expands `01-03,7` to 01, 02, 03 and 7.
fn numbers(text: &str, most: usize) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse::<u32>().ok()).flatten()
        };
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            return Err(format!("[{text}] is not a range such as [01-04,07]"));
        };
        if from > to || (to - from) as usize >= most.saturating_sub(numbers.len()) {
            return Err(format!("[{text}] ends before it begins, or is more than {HOSTS_MAX} names"));
        }
        // Leading zeros set the width of all numbers.
        numbers.extend((from..=to).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_people_and_schedulers_are_understood() {
        let names = |text: &str| expand(text).unwrap().join(" ");
        assert_eq!(names("a:1, b:2\nc\n"), "a:1 b:2 c");
        assert_eq!(names("node[01-04,07]"), "node01 node02 node03 node04 node07");
        assert_eq!(names("node[8-11]:7379,login"), "node8:7379 node9:7379 node10:7379 node11:7379 login");
        assert_eq!(names("r[1-2]n[1,3]"), "r1n1 r1n3 r2n1 r2n3");
        assert_eq!(names("[::1]:7379,[fe80::1]:1"), "[::1]:7379 [fe80::1]:1");
        assert_eq!(names(""), "");
    }

    #[test]
    fn malformed_lists_are_refused_and_no_list_takes_much_memory() {
        for wrong in
            ["a[", "a]", "a[[1]]", "a[1-", "a[]", "a[x]", "a[3-1]", "a[1-99999999]", "a[-1]", "a[1--2]"]
        {
            assert!(expand(wrong).is_err(), "{wrong}");
        }
        assert!(expand("a[0-60000],b[0-60000]").is_err());
        assert!(expand("a[0-999][0-999]").is_err());
        assert!(expand(&"[0-9]".repeat(2_000)).is_err());
    }
}
