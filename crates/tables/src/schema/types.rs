//! The types a column may have, and their names in stored schemas and in messages.

use super::suggestion::suggest_type;
use arrow_schema::{DataType, Field, TimeUnit};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest vector in a column.
const VECTOR_LEN_MAX: i32 = 65_536;

/// Bytes that the numbers of a row take in memory in a column of this type; 0 for a type without numbers.
pub(crate) fn number_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeList(item, len) => number_bytes(item.data_type()).saturating_mul(*len as u64),
        other => other.primitive_width().unwrap_or(0) as u64,
    }
}

/// A column type, by its name.
///
/// Names are Arrow's type strings in lower case: `int64`, `float32`, `utf8`, `timestamp[ns, UTC]`,
/// `fixed_size_list[float64, 3]`, which may also be written `float64[3]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeName(DataType);

/// The name is not a column type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a column type{}; there are {}", question(.meant.as_deref()), TypeName::SUPPORTED)]
pub struct UnknownType {
    /// The name.
    pub name: String,
    /// The type that is probably meant, as users write it.
    pub meant: Option<String>,
}

fn question(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

pub(super) const PLAIN: &[(&str, DataType)] = &[
    ("bool", DataType::Boolean),
    ("int8", DataType::Int8),
    ("int16", DataType::Int16),
    ("int32", DataType::Int32),
    ("int64", DataType::Int64),
    ("uint8", DataType::UInt8),
    ("uint16", DataType::UInt16),
    ("uint32", DataType::UInt32),
    ("uint64", DataType::UInt64),
    ("float32", DataType::Float32),
    ("float64", DataType::Float64),
    ("utf8", DataType::Utf8),
    ("binary", DataType::Binary),
    ("date32", DataType::Date32),
    ("timestamp[s]", DataType::Timestamp(TimeUnit::Second, None)),
    ("timestamp[ms]", DataType::Timestamp(TimeUnit::Millisecond, None)),
    ("timestamp[us]", DataType::Timestamp(TimeUnit::Microsecond, None)),
    ("timestamp[ns]", DataType::Timestamp(TimeUnit::Nanosecond, None)),
    ("duration[s]", DataType::Duration(TimeUnit::Second)),
    ("duration[ms]", DataType::Duration(TimeUnit::Millisecond)),
    ("duration[us]", DataType::Duration(TimeUnit::Microsecond)),
    ("duration[ns]", DataType::Duration(TimeUnit::Nanosecond)),
];

impl TypeName {
    /// The supported types, for messages.
    pub const SUPPORTED: &'static str = "bool, int8 to int64, uint8 to uint64, float32, float64, utf8, binary, date32, \
         timestamp and duration in s, ms, us or ns, and vectors of fixed length of numbers";

    /// The name of a type, if columns may have it.
    #[must_use]
    pub fn of(data_type: &DataType) -> Option<Self> {
        let held = match data_type {
            DataType::Timestamp(..) => true,
            DataType::FixedSizeList(item, len) => {
                (1..=VECTOR_LEN_MAX).contains(len)
                    && item.data_type().is_numeric()
                    && is_plain(item.data_type())
            }
            plain => is_plain(plain),
        };
        held.then(|| Self(data_type.clone()))
    }

    /// The name as users write it; that of a vector is `float64[3]`.
    #[must_use]
    pub fn to_typed(&self) -> String {
        match &self.0 {
            DataType::FixedSizeList(item, len) => {
                let null = if item.is_nullable() { "?" } else { "" };
                format!("{}{null}[{len}]", Self(item.data_type().clone()))
            }
            _ => self.to_string(),
        }
    }

    /// The name of any type for messages: as users write it, or, for a type that columns cannot have, Arrow's
    /// name in lower case.
    #[must_use]
    pub fn told(data_type: &DataType) -> String {
        Self::of(data_type).map_or_else(|| data_type.to_string().to_lowercase(), |name| name.to_typed())
    }

    /// The type.
    #[must_use]
    pub fn data_type(&self) -> &DataType {
        &self.0
    }
}

fn is_plain(data_type: &DataType) -> bool {
    PLAIN.iter().any(|(_, plain)| plain == data_type)
}

/// Whether values of this type have an order that regions can use.
pub(super) fn is_ordered_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(..) | DataType::Date32 | DataType::Duration(_) => true,
        plain => plain.is_numeric() && is_plain(plain),
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain =
            |wanted: &DataType| PLAIN.iter().find(|(_, plain)| plain == wanted).map(|(name, _)| *name);
        match &self.0 {
            DataType::Timestamp(unit, Some(zone)) => {
                write!(formatter, "timestamp[{}, {zone}]", unit_name(*unit))
            }
            DataType::FixedSizeList(item, len) => {
                let null = if item.is_nullable() { "?" } else { "" };
                let element = plain(item.data_type()).unwrap_or("unknown");
                write!(formatter, "fixed_size_list[{element}{null}, {len}]")
            }
            other => formatter.write_str(plain(other).unwrap_or("unknown")),
        }
    }
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

impl FromStr for TypeName {
    type Err = UnknownType;

    fn from_str(name: &str) -> Result<Self, UnknownType> {
        let unknown = || UnknownType { name: name.to_owned(), meant: suggest_type(name) };
        if let Some((_, plain)) = PLAIN.iter().find(|(plain, _)| *plain == name) {
            return Ok(Self(plain.clone()));
        }
        let (outer, inner) =
            name.strip_suffix(']').and_then(|name| name.split_once('[')).ok_or_else(unknown)?;
        if inner.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::from_str(&format!("fixed_size_list[{outer}, {inner}]")).map_err(|_| unknown());
        }
        let (first, second) = inner.split_once(", ").ok_or_else(unknown)?;
        let data_type = match outer {
            "timestamp" => match Self::from_str(&format!("timestamp[{first}]")).map(|name| name.0) {
                Ok(DataType::Timestamp(unit, None)) if !second.is_empty() => {
                    DataType::Timestamp(unit, Some(second.into()))
                }
                _ => return Err(unknown()),
            },
            "fixed_size_list" => {
                let (element, nullable) =
                    first.strip_suffix('?').map_or((first, false), |first| (first, true));
                let element = Self::from_str(element).map_err(|_| unknown())?;
                let len = second.parse().map_err(|_| unknown())?;
                DataType::FixedSizeList(Arc::new(Field::new("item", element.0, nullable)), len)
            }
            _ => return Err(unknown()),
        };
        Self::of(&data_type).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back_as_the_type_it_names() {
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()));
        let vector =
            |nullable| DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, nullable)), 3);
        let all = PLAIN.iter().map(|(_, plain)| plain.clone()).chain([zoned, vector(false), vector(true)]);
        for data_type in all {
            let name = TypeName::of(&data_type).unwrap();
            assert_eq!(name.to_string().parse::<TypeName>().unwrap(), name, "{name}");
            assert_eq!(name.to_typed().parse::<TypeName>().unwrap(), name, "{name}");
        }
        let short: TypeName = "float32?[3]".parse().unwrap();
        assert_eq!(short.to_string(), "fixed_size_list[float32?, 3]");
        assert_eq!(short.to_typed(), "float32?[3]");
    }

    #[test]
    fn names_of_no_type_are_refused_with_what_there_is() {
        for name in [
            "",
            "int65",
            "timestamp[]",
            "timestamp[fs]",
            "timestamp[ns, ]",
            "fixed_size_list[utf8, 3]",
            "utf8[3]",
            "float64[]",
            "float64[0]",
            "fixed_size_list[float64, 0]",
            "fixed_size_list[float64, 99999999999]",
            "fixed_size_list[fixed_size_list[float64, 3], 3]",
        ] {
            let refused = name.parse::<TypeName>().unwrap_err().to_string();
            assert!(refused.contains("float32"), "{refused}");
        }
    }

    #[test]
    fn what_a_type_is_called_elsewhere_is_answered_with_its_name_here() {
        let refused = |name: &str| name.parse::<TypeName>().unwrap_err();
        for (name, meant) in [
            ("float", "float64"),
            ("Double", "float64"),
            ("int", "int64"),
            ("(3)f4", "float32[3]"),
            ("(3,)double", "float64[3]"),
            ("float[3]", "float64[3]"),
            ("flaot64", "float64"),
            ("string", "utf8"),
            ("datetime64", "timestamp[us]"),
        ] {
            let error = refused(name);
            assert_eq!(error.meant.as_deref(), Some(meant), "{name}");
            assert!(error.to_string().contains(&format!("; did you mean {meant}?; there are ")), "{error}");
            assert!(meant.parse::<TypeName>().is_ok());
        }
        for name in ["", "utf8[3]", "float64[0]", "(0)f4", "(x)f4", "()", "matrix", &"f".repeat(200)] {
            assert_eq!(refused(name).meant, None, "{name}");
        }
    }
}
