//! Which type is meant by what is none: names of other tools, NumPy's ways to write a vector, and slips.

use super::types::PLAIN;
use super::{TypeName, likest};
use arrow_schema::{DataType, Field};
use std::sync::Arc;

/// What types are called elsewhere. That a float has 64 bits holds in Python and SQL, and in Arrow it has 32:
/// such names are asked about and never taken.
const ELSEWHERE: &[(&[&str], &str)] = &[
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

/// How alike a name and a slip of it are at least, from 0 to 1.
const ALIKE: f64 = 0.6;

/// The type that is meant, perhaps, as it is typed.
pub(super) fn meant(name: &str) -> Option<String> {
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
            let item = Arc::new(Field::new("item", one(element)?, false));
            TypeName::of(&DataType::FixedSizeList(item, length.parse().ok()?))
        }
        _ => TypeName::of(&one(&name)?),
    }
    // Not by its name, which would be asked about again if it were none.
    .map(|meant| meant.to_typed())
}

/// The type of one value that is meant.
fn one(name: &str) -> Option<DataType> {
    let called = ELSEWHERE.iter().find(|(names, _)| names.contains(&name)).map(|(_, here)| *here);
    let likest = || likest(name, PLAIN.iter().map(|(plain, _)| *plain), ALIKE);
    let meant = called.or_else(likest)?;
    PLAIN.iter().find(|(plain, _)| *plain == meant).map(|(_, data_type)| data_type.clone())
}
