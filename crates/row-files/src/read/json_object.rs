//! One line of JSON as the members of an object: names, with texts for their values.
//!
//! Invariant: a name occurs once; of two members with one name, neither can be preferred.
//! Invariant: a number is kept as its text, however many digits it has.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// What a member does that is valid JSON, but not a value for a column.
pub(super) const NESTED: &str = "holds lists or objects within, which no column can hold";

/// A value in textual form.
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    /// Whether it was quoted.
    pub(super) is_quoted: bool,
}

/// The value of a member; `None` for null.
pub(super) type Cell = Option<Text>;

/// The value of a member, or a list of values.
pub(super) enum Member {
    Plain(Cell),
    List(Vec<Cell>),
}

/// The members of a record.
pub(super) type Fields = Vec<(String, Member)>;

/// The members of a line, or the reason why it is not a record.
pub(super) fn fields_of(line: &[u8]) -> Result<Fields, String> {
    // JSON has no byte order mark, but some programs write one.
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let Members(record) =
        serde_json::from_slice(line.trim_ascii_end()).map_err(|error| no_object(&told(&error)))?;
    let mut names: Vec<&str> = record.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(no_object(&format_args!("\"{}\" is there twice", twice[0])));
    }
    let members = record.into_iter().map(|(name, value)| {
        let member = member_of(&name, value)?;
        Ok((name, member))
    });
    members.collect()
}

/// What is wrong with a line and where; the parser sees a single line, so its line number is left out.
fn told(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

fn no_object(why: &dyn fmt::Display) -> String {
    format!("it is not a JSON object: {why}")
}

fn member_of(name: &str, value: &RawValue) -> Result<Member, String> {
    if !value.get().starts_with('[') {
        return Ok(Member::Plain(text_of(name, value)?));
    }
    let elements: Vec<&RawValue> =
        serde_json::from_str(value.get()).map_err(|error| no_object(&told(&error)))?;
    Ok(Member::List(elements.into_iter().map(|element| text_of(name, element)).collect::<Result<_, _>>()?))
}

fn text_of(name: &str, value: &RawValue) -> Result<Cell, String> {
    let text = value.get();
    Ok(match text.as_bytes() {
        [b'n', ..] => None,
        [b'[' | b'{', ..] => {
            return Err(format!("\"{name}\" {NESTED}"));
        }
        [b'"', ..] => {
            let text: String = serde_json::from_str(text).map_err(|error| no_object(&told(&error)))?;
            Some(Text { bytes: text.into_bytes(), is_quoted: true })
        }
        plain => Some(Text { bytes: plain.to_vec(), is_quoted: false }),
    })
}

/// The names and values of an object in their original order.
struct Members<'de>(Vec<(String, &'de RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members<'de>, A::Error> {
        let mut record = Vec::new();
        while let Some(member) = members.next_entry()? {
            record.push(member);
        }
        Ok(Members(record))
    }
}
