//! One line of JSON as the members of an object: names, and texts for their values.
//!
//! Invariant: a name stands for one member; which of two is meant nobody can tell.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// A value as a text.
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    /// Whether it stands in quotes.
    pub(super) is_quoted: bool,
}

/// None for null.
pub(super) type Cell = Option<Text>;

/// What stands behind a name.
pub(super) enum Member {
    Plain(Cell),
    List(Vec<Cell>),
}

/// The members of one record.
pub(super) type Fields = Vec<(String, Member)>;

/// The members of a line, or why it is no record.
pub(super) fn fields_of(line: &[u8]) -> Result<Fields, String> {
    // A byte order mark is no JSON, and some programs write one.
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let Members(record) =
        serde_json::from_slice(line).map_err(|error| format!("it is no JSON object: {error}"))?;
    let mut fields = Vec::with_capacity(record.len());
    for (name, value) in record {
        match value {
            Value::Array(elements) => {
                let texts = elements.iter().map(|element| text_of(&name, element));
                let list = Member::List(texts.collect::<Result<_, _>>()?);
                fields.push((name, list));
            }
            value => {
                let text = text_of(&name, &value)?;
                fields.push((name, Member::Plain(text)));
            }
        }
    }
    Ok(fields)
}

fn text_of(name: &str, value: &Value) -> Result<Cell, String> {
    let plain = |bytes: String| Some(Text { bytes: bytes.into_bytes(), is_quoted: false });
    Ok(match value {
        Value::Null => None,
        Value::Bool(value) => plain(value.to_string()),
        Value::Number(number) => plain(number.to_string()),
        Value::String(text) => Some(Text { bytes: text.clone().into_bytes(), is_quoted: true }),
        Value::Array(_) | Value::Object(_) => {
            return Err(format!("\"{name}\" holds lists or objects within, which no column can hold"));
        }
    })
}

/// An object whose members have a name each.
struct Members(Map<String, Value>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members, A::Error> {
        let mut record = Map::new();
        while let Some((name, value)) = members.next_entry::<String, Value>()? {
            // Which of the two is meant nobody can tell.
            if record.contains_key(&name) {
                return Err(A::Error::custom(format!("\"{name}\" is there twice")));
            }
            record.insert(name, value);
        }
        Ok(Members(record))
    }
}
