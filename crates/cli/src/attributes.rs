//! Attributes as they are typed and shown: of a store, a table, a run or a step.

use crate::{Failure, Session};
use atoll_tables::Attributes;
use serde_json::{Value, json};

/// Parses an attribute: the value as JSON, or else as text; none if nothing follows the `=`. A whole number
/// that would be rounded is refused: another one would be kept than was written.
pub(crate) fn parse_attribute(text: &str) -> Result<(String, Option<Value>), String> {
    let (name, value) = text.split_once('=').ok_or("it is not NAME=VALUE")?;
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    if value.is_empty() {
        return Ok((name.to_owned(), None));
    }
    let Ok(parsed) = serde_json::from_str::<Value>(value) else {
        return Ok((name.to_owned(), Some(value.into())));
    };
    match rounded_within(value) {
        None => Ok((name.to_owned(), Some(parsed))),
        Some(number) => Err(format!(
            "{number} is no whole number of 64 bits and would be rounded; in double quotes it is kept as a text, as in \
             '{name}=\"{number}\"'"
        )),
    }
}

/// The first number in a JSON text that is written as an integer and does not fit 64 bits.
fn rounded_within(json: &str) -> Option<String> {
    let (mut is_text, mut is_escaped) = (false, false);
    let outside_texts = json.chars().map(|character| {
        let is_quote = character == '"' && !is_escaped;
        is_escaped = is_text && character == '\\' && !is_escaped;
        is_text ^= is_quote;
        if is_text || is_quote { ' ' } else { character }
    });
    let outside_texts: String = outside_texts.collect();
    let mut words =
        outside_texts.split(|character: char| character.is_whitespace() || "[]{},:".contains(character));
    let is_rounded = |word: &&str| {
        let digits = word.strip_prefix('-').unwrap_or(word);
        let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_whole && word.parse::<i64>().is_err() && word.parse::<u64>().is_err()
    };
    words.find(is_rounded).map(str::to_owned)
}

/// Shows attributes: as JSON all of them, and to people those whose names are for people.
pub(crate) fn show(
    session: &Session,
    attributes: &Attributes,
    is_for_people: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    if session.output.is_json() {
        return session.output.json(&json!(attributes));
    }
    let told = attributes.iter().filter(|(name, _)| is_for_people(name));
    told.map(|(name, value)| format!("{name}\t{}", shown(value)))
        .try_for_each(|line| session.output.line(line))
}

/// A value for people: a text as it is, anything else as JSON.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_json_or_else_a_text_and_nothing_removes_it() {
        let value = |text: &str| parse_attribute(text).unwrap().1;
        assert_eq!(value("a=18446744073709551615"), Some(json!(u64::MAX)));
        assert_eq!(value("a=[-9223372036854775808, 1.5e300]"), Some(json!([i64::MIN, 1.5e300])));
        assert_eq!(value("a=tube.in"), Some(json!("tube.in")));
        assert_eq!(value("a=99999999999999999999 or so"), Some(json!("99999999999999999999 or so")));
        assert_eq!(value("a="), None);
    }

    #[test]
    fn a_whole_number_that_would_be_rounded_is_refused_unless_it_is_a_text() {
        for text in ["18446744073709551616", "-9223372036854775809", "[1, {\"b\\\"\": 99999999999999999999}]"]
        {
            let told = parse_attribute(&format!("a={text}")).unwrap_err();
            assert!(told.contains("double quotes"), "{text}: {told}");
        }
        for text in ["\"18446744073709551616\"", "[\"\\\" 18446744073709551616\"]", "1.8e19"] {
            assert!(parse_attribute(&format!("a={text}")).is_ok(), "{text}");
        }
    }
}
