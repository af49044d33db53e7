//! Guesses which type is meant by a name that is not a type: names from other tools, NumPy's vectors, and
//! typos.

use super::types::PLAIN;
use super::{TypeName, most_similar};
use arrow_schema::{DataType, Field};
use std::sync::Arc;

/// The names of types elsewhere. In Python and SQL a float has 64 bits, in Arrow it has 32, so such names are
/// only suggested, never accepted.
const FOREIGN_NAMES: &[(&[&str], &str)] = &[
    (&["float", "double", "real", "f8"], "float64"),
    (&["single", "f4"], "float32"),
    (&["int", "integer", "long", "i8"], "int64"),
    (&["uint", "u8"], "uint64"),
    (&["i4"], "int32"),
    (&["str", "string", "text", "varchar"], "utf8"),
    (&["bytes", "blob"], "binary"),
    (&["boolean"], "bool"),
    (&["date"], "date32"),
    (&["datetime", "datetime64", "timestamp"], "timestamp[us]"),
    (&["timedelta", "timedelta64", "duration"], "duration[us]"),
];

/// The least similarity, from 0 to 1, of a name and a typo of it.
const SIMILARITY_MIN: f64 = 0.6;

/// The type that is probably meant, as users write it.
pub(super) fn suggest_type(name: &str) -> Option<String> {
    // The distance of two words is quadratic in their length, and nobody mistypes a hundred characters.
    if name.len() > 100 {
        return None;
    }
    let name = name.trim().to_lowercase();
    let vector = match name.strip_prefix('(') {
        Some(rest) => rest.split_once(')').map(|(length, element)| (element, length.trim_end_matches(','))),
        None => name.strip_suffix(']').and_then(|name| name.split_once('[')),
    };
    let is_number = |length: &str| !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    match vector {
        Some((element, length)) if is_number(length) => {
            let item = Arc::new(Field::new("item", suggest_scalar(element)?, false));
            TypeName::of(&DataType::FixedSizeList(item, length.parse().ok()?))
        }
        _ => TypeName::of(&suggest_scalar(&name)?),
    }
    // Made from the data type. Parsing a name instead would come back here if it failed.
    .map(|meant| meant.to_typed())
}

/// The scalar type that is meant.
fn suggest_scalar(name: &str) -> Option<DataType> {
    let called = FOREIGN_NAMES.iter().find(|(names, _)| names.contains(&name)).map(|(_, here)| *here);
    let closest = || most_similar(name, PLAIN.iter().map(|(plain, _)| *plain), SIMILARITY_MIN);
    let meant = called.or_else(closest)?;
    PLAIN.iter().find(|(plain, _)| *plain == meant).map(|(_, data_type)| data_type.clone())
}
