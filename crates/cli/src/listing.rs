//! Tables of text for people: a heading over each column, and each cell aligned below it.
//!
//! Invariant: one entry is one line, whatever characters its cells hold.

use crate::text::escape;
use crate::{Failure, Session};

/// The space between two columns.
const GAP: &str = "  ";

/// How the cells of a column are aligned below its heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Left-aligned, for text.
    Left,
    /// Right-aligned, for numbers.
    Right,
}

/// Writes a table; nothing at all if there are no entries.
pub(crate) fn show<const N: usize>(
    session: &Session,
    columns: [(&str, Side); N],
    entries: &[[String; N]],
) -> Result<(), Failure> {
    lines(columns, entries).iter().try_for_each(|line| session.output.line(line))
}

/// The lines of a table. A column that is empty in every entry is left out.
fn lines<const N: usize>(columns: [(&str, Side); N], entries: &[[String; N]]) -> Vec<String> {
    if entries.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(); entries.len() + 1];
    for (place, (name, side)) in columns.into_iter().enumerate() {
        if entries.iter().all(|entry| entry[place].is_empty()) {
            continue;
        }
        let cells = entries.iter().map(|entry| escape(entry[place].as_bytes()));
        let cells: Vec<String> = std::iter::once(name.to_owned()).chain(cells).collect();
        let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip(&cells) {
            let space = " ".repeat(width - cell.chars().count());
            line.push_str(if line.is_empty() { "" } else { GAP });
            match side {
                Side::Left => line.extend([cell, space.as_str()]),
                Side::Right => line.extend([space.as_str(), cell]),
            }
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_stands_below_its_name_and_an_empty_column_is_left_out() {
        let columns = [("run", Side::Left), ("time", Side::Right), ("rows", Side::Right)];
        let entries = [["a", "", "5"], ["a\nb", "", "12345"]].map(|entry| entry.map(str::to_owned));
        assert_eq!(lines(columns, &entries), ["run    rows", "a         5", "a\\nb  12345"]);
        let timed = [["a", "0.5", "5"].map(str::to_owned)];
        assert_eq!(lines(columns, &timed), ["run  time  rows", "a     0.5     5"]);
        assert!(lines(columns, &[]).is_empty());
    }
}
