//! The head of a NumPy array: its columns, and where their values lie in a row.
//!
//! ```text
//! 0x93 "NUMPY" · major version 1 · minor version 1 · length 2 (version 1) or 4 (2, 3) · a Python dictionary
//! ```

use super::Refusal;
use super::item::Item;
use super::literal::Literal;
use arrow_array::{ArrayRef, FixedSizeListArray};
use arrow_schema::{DataType, Field};
use std::io::Read;
use std::sync::Arc;

/// The most bytes of a head; a longer one is damage.
const HEAD_BYTES_MAX: usize = 1 << 20;

/// What to do about fields that are not columns.
const FLAT: &str =
    "save an array whose fields are plain values or vectors, or each field in an array of its own";

/// What to do about a single value that stands for all rows, of which `len` is an error.
const ONE_VALUE: &str = "leave it out, or save numpy.full(len(x), value), where x is an array with all rows";

/// The layout of an array.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) rows: u64,
    pub(super) row_bytes: usize,
    columns: Vec<Column>,
    /// Whether its columns have names of their own.
    is_named: bool,
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    item: Item,
    /// The number of elements of a vector; `None` for a plain value.
    elements: Option<usize>,
    /// The bytes of a row before this column.
    offset: usize,
}

impl Header {
    /// Reads the head of an array.
    pub(super) fn read(bytes: &mut impl Read) -> Result<Self, Refusal> {
        let mut start = [0; 8];
        let exact = |bytes: &mut dyn Read, target: &mut [u8]| {
            bytes.read_exact(target).map_err(|_| "its head is cut off".to_owned())
        };
        exact(bytes, &mut start)?;
        if &start[..6] != b"\x93NUMPY" {
            return Err("it does not begin as a NumPy array does".into());
        }
        let length = match start[6] {
            1 => {
                let mut length = [0; 2];
                exact(bytes, &mut length)?;
                usize::from(u16::from_le_bytes(length))
            }
            2 | 3 => {
                let mut length = [0; 4];
                exact(bytes, &mut length)?;
                u32::from_le_bytes(length) as usize
            }
            version => {
                let what = format!("its format has version {version}; versions up to 3 are supported");
                return Err(Refusal::Unsupported(what, "save it again with numpy.save(name, array)"));
            }
        };
        if length > HEAD_BYTES_MAX {
            return Err("its head is longer than a head can be".into());
        }
        let mut head = vec![0; length];
        exact(bytes, &mut head)?;
        Self::parse(&text_of(start[6], head)?)
    }

    fn parse(head: &str) -> Result<Self, Refusal> {
        let head = Literal::parse(head)?;
        let shape = head.get("shape").and_then(Literal::numbers).ok_or("its head has no shape")?;
        let descr = head.get("descr").ok_or("its head has no type")?;
        let is_fortran = head.get("fortran_order") == Some(&Literal::Boolean(true));
        let (rows, elements) = match shape.as_slice() {
            [rows] => (*rows, None),
            [rows, elements] => (*rows, Some(small(*elements)?)),
            [] => {
                let what = "it is a single value without rows".to_owned();
                return Err(Refusal::Unsupported(what, ONE_VALUE));
            }
            _ => {
                let what = format!("it has {} dimensions; one or two are rows", shape.len());
                return Err(Refusal::Unsupported(what, "save array.reshape(len(array), -1)"));
            }
        };
        if is_fortran && elements.is_some_and(|elements| elements > 1) && rows > 1 {
            let what = "its columns lie one after the other (Fortran order)".to_owned();
            return Err(Refusal::Unsupported(what, "save numpy.ascontiguousarray(array)"));
        }
        match descr {
            Literal::Text(item) => Self::plain(rows, Item::parse(item)?, elements),
            Literal::Sequence(fields) if elements.is_none() => Self::structures(rows, fields),
            _ => {
                let what = "an array of structures has more than one dimension".to_owned();
                Err(Refusal::Unsupported(what, "save array.ravel()"))
            }
        }
    }

    fn plain(rows: u64, item: Item, elements: Option<usize>) -> Result<Self, Refusal> {
        let row_bytes = item.bytes().checked_mul(elements.unwrap_or(1)).ok_or("a row is too large")?;
        let columns = vec![Column { name: String::new(), item, elements, offset: 0 }];
        Ok(checked(Self { rows, row_bytes, columns, is_named: false })?)
    }

    fn structures(rows: u64, fields: &[Literal]) -> Result<Self, Refusal> {
        let mut columns = Vec::new();
        let mut offset: usize = 0;
        for field in fields {
            let parts = field.sequence().ok_or("a field of its type has no name")?;
            let (name, item, shape) = match parts {
                [name, item] => (name, item, None),
                [name, item, shape] => (name, item, Some(shape)),
                _ => return Err("a field of its type cannot be read".into()),
            };
            let within =
                || Refusal::Unsupported("structures within structures cannot be columns".to_owned(), FLAT);
            let item = item.text().ok_or_else(within)?;
            // NumPy fills gaps with nameless fields.
            if let Some(gap) = item.strip_prefix("|V").filter(|_| name.text() == Some("")) {
                let gap: usize = gap.parse().map_err(|_| "a gap of its type has no length".to_owned())?;
                offset = offset.checked_add(gap).ok_or("a row is too large")?;
                continue;
            }
            let item = Item::parse(item)?;
            let elements = match shape.map(|shape| shape.numbers().unwrap_or_default()) {
                None => None,
                Some(shape) => match shape.as_slice() {
                    [elements] => Some(small(*elements)?),
                    _ => {
                        let what = "a field of more than one dimension cannot be a column".to_owned();
                        return Err(Refusal::Unsupported(what, FLAT));
                    }
                },
            };
            let bytes = item.bytes().checked_mul(elements.unwrap_or(1)).ok_or("a row is too large")?;
            let name = name.sequence().map_or(name, |titled| titled.last().unwrap_or(name));
            let name = name.text().ok_or("a field of its type has no name")?.to_owned();
            if !name.is_empty() {
                columns.push(Column { name, item, elements, offset });
            }
            offset = offset.checked_add(bytes).ok_or("a row is too large")?;
        }
        Ok(checked(Self { rows, row_bytes: offset, columns, is_named: true })?)
    }

    /// Names columns that have no names: one name for each element, or one for all.
    pub(super) fn named(mut self, names: &[String], otherwise: &str) -> Result<Self, Refusal> {
        if self.is_named {
            return if names.is_empty() { Ok(self) } else { Err(Refusal::named()) };
        }
        let Some(only) = self.columns.pop() else { return Ok(self) };
        match (names, only.elements) {
            ([], _) => self.columns.push(Column { name: otherwise.to_owned(), ..only }),
            ([name], _) => self.columns.push(Column { name: name.clone(), ..only }),
            (names, Some(elements)) if names.len() == elements => {
                let bytes = only.item.bytes();
                let column = |(place, name): (usize, &String)| Column {
                    name: name.clone(),
                    item: only.item,
                    elements: None,
                    offset: place * bytes,
                };
                self.columns = names.iter().enumerate().map(column).collect();
            }
            (names, elements) => {
                let columns = elements.unwrap_or(1);
                let columns = if columns == 1 { "1 column".to_owned() } else { format!("{columns} columns") };
                let problem = format!("{} names for {columns}", names.len());
                return Err(Refusal::Misfit(
                    problem,
                    "pass as many names to --names as there are columns, or one for all",
                ));
            }
        }
        Ok(self)
    }

    pub(super) fn first_name(&self) -> &str {
        self.columns.first().map_or("", |column| &column.name)
    }

    /// The columns as Arrow fields.
    pub(super) fn fields(&self) -> impl Iterator<Item = Field> {
        self.columns.iter().map(|column| {
            let item = column.item.data_type();
            let data_type = match column.elements {
                None => item,
                Some(elements) => {
                    let elements = i32::try_from(elements).unwrap_or(i32::MAX);
                    DataType::FixedSizeList(Arc::new(element(item)), elements)
                }
            };
            Field::new(&column.name, data_type, column.item.may_be_null())
        })
    }

    /// Decodes the columns of `rows` rows.
    pub(super) fn columns(&self, bytes: &[u8], rows: usize) -> Result<Vec<ArrayRef>, String> {
        let columns = self.columns.iter().map(|column| {
            let values = column.item.values(
                bytes,
                rows,
                self.row_bytes,
                column.offset,
                column.elements.unwrap_or(1),
            )?;
            let Some(elements) = column.elements else { return Ok(values) };
            let item = Arc::new(element(column.item.data_type()));
            let elements = i32::try_from(elements).map_err(|_| "a vector is too long".to_owned())?;
            let vector = FixedSizeListArray::try_new(item, elements, values, None);
            vector.map(|vector| Arc::new(vector) as ArrayRef).map_err(|error| error.to_string())
        });
        columns.collect()
    }
}

/// The text of a head: in Latin-1 up to version 2, of which each byte is a character, and in UTF-8 since.
fn text_of(version: u8, head: Vec<u8>) -> Result<String, String> {
    match version {
        1 | 2 => Ok(head.into_iter().map(char::from).collect()),
        _ => String::from_utf8(head).map_err(|_| "its head is not UTF-8".to_owned()),
    }
}

fn element(data_type: DataType) -> Field {
    Field::new("item", data_type, false)
}

fn small(elements: u64) -> Result<usize, String> {
    let elements = usize::try_from(elements).ok().filter(|elements| (1..=65_536).contains(elements));
    elements.ok_or_else(|| "a vector has 1 to 65536 elements".to_owned())
}

/// Refuses rows of zero bytes, which would never end, and rows of more than 16 MiB, which are damage.
fn checked(header: Header) -> Result<Header, String> {
    if (1..=1 << 24).contains(&header.row_bytes) {
        Ok(header)
    } else {
        Err(format!("a row of it has {} bytes", header.row_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of an array with a column, in a version of the format.
    fn name_in(version: u8, name: &[u8]) -> Option<String> {
        let (before, behind) = ("{'descr': [('", "', '<f8')], 'fortran_order': False, 'shape': (2,)}");
        let head = [before.as_bytes(), name, behind.as_bytes()].concat();
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((head.len() as u16).to_le_bytes()),
            _ => bytes.extend((head.len() as u32).to_le_bytes()),
        }
        bytes.extend(head);
        Header::read(&mut bytes.as_slice()).ok().map(|header| header.first_name().to_owned())
    }

    #[test]
    fn names_are_latin_1_up_to_version_2_and_utf_8_since() {
        for version in [1, 2] {
            assert_eq!(name_in(version, b"gr\xfcn").as_deref(), Some("gr\u{fc}n"), "{version}");
        }
        assert_eq!(name_in(3, "gr\u{fc}n".as_bytes()).as_deref(), Some("gr\u{fc}n"));
        assert_eq!(name_in(3, b"gr\xfcn"), None);
    }
}
