//! The head of an array: its type and its number of rows, as a Python dictionary.

use super::column::Column;
use crate::RowFileError;

/// The head of a structured array with a field for each column.
pub(super) fn array_of_structures(columns: &[Column], rows: u64) -> Result<Vec<u8>, RowFileError> {
    Ok(head(&structure(columns)?, &format!("({rows},)")))
}

/// The head of an array of one column: of two dimensions for vectors.
pub(super) fn array_of(column: &Column, rows: u64) -> Vec<u8> {
    let shape = match column.elements() {
        None => format!("({rows},)"),
        Some(elements) => format!("({rows}, {elements})"),
    };
    head(&format!("'{}'", column.kind()), &shape)
}

/// The type of a structured array.
pub(super) fn structure(columns: &[Column]) -> Result<String, RowFileError> {
    let fields = columns.iter().map(|column| {
        let (name, kind) = (quoted(column.name())?, column.kind());
        Ok(match column.elements() {
            None => format!("({name}, '{kind}')"),
            Some(elements) => format!("({name}, '{kind}', ({elements},))"),
        })
    });
    Ok(format!("[{}]", fields.collect::<Result<Vec<String>, RowFileError>>()?.join(", ")))
}

/// A name as a Python text. A name that would need an escape is refused: not every reader undoes them.
fn quoted(name: &str) -> Result<String, RowFileError> {
    match (name.contains('\\'), name.contains('\''), name.contains('"')) {
        (false, false, _) => Ok(format!("'{name}'")),
        (false, true, false) => Ok(format!("\"{name}\"")),
        _ => Err(RowFileError::Unsupported {
            what: format!("the name of column {name:?} cannot be written into the head of a NumPy array"),
            hint: "leave the column out with --columns, or write a NumPy archive, .npz",
        }),
    }
}

/// A whole head: padded, so that the values behind it are aligned, and in the oldest version of the format
/// that holds it.
fn head(descr: &str, shape: &str) -> Vec<u8> {
    let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    let padded = |prefix: usize| {
        let blanks = (64 - (prefix + text.len() + 1) % 64) % 64;
        format!("{text}{}\n", " ".repeat(blanks))
    };
    let mut bytes = b"\x93NUMPY".to_vec();
    let narrow = padded(10);
    match u16::try_from(narrow.len()) {
        Ok(length) if text.is_ascii() => {
            bytes.extend_from_slice(&[1, 0]);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(narrow.as_bytes());
        }
        _ => {
            let wide = padded(12);
            // From version 3 on a head is UTF-8. It is far shorter than 4 GiB.
            bytes.extend_from_slice(&[if text.is_ascii() { 2 } else { 3 }, 0]);
            bytes.extend_from_slice(&u32::try_from(wide.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(wide.as_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{DataType, Field};

    fn column(name: &str) -> Column {
        Column::of(&Field::new(name, DataType::Float64, false)).unwrap()
    }

    #[test]
    fn a_head_is_aligned_and_says_what_numpy_says() {
        let head = array_of_structures(&[column("x"), column("it's")], 7).unwrap();
        assert_eq!((head.len() % 64, head.last(), &head[6..8]), (0, Some(&b'\n'), &[1, 0][..]));
        let text = String::from_utf8_lossy(&head[10..]).into_owned();
        let expected =
            "{'descr': [('x', '<f8'), (\"it's\", '<f8')], 'fortran_order': False, 'shape': (7,), }";
        assert_eq!(text.trim_end(), expected);
        assert_eq!(usize::from(u16::from_le_bytes([head[8], head[9]])), head.len() - 10);
    }

    #[test]
    fn the_version_is_the_oldest_that_holds_the_names() {
        let version = |columns: &[Column]| {
            let head = array_of_structures(columns, 1).unwrap();
            assert_eq!(head.len() % 64, 0);
            head[6]
        };
        let many: Vec<Column> = (0..999).map(|number| column(&format!("{number:0>90}"))).collect();
        assert_eq!((version(&[column("x")]), version(&many), version(&[column("gr\u{fc}n")])), (1, 2, 3));
    }

    #[test]
    fn a_name_that_needs_an_escape_is_refused() {
        for name in ["a\\b", "'\""] {
            assert!(structure(&[column(name)]).is_err(), "{name}");
        }
    }
}
