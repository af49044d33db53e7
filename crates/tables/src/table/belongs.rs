//! Maps a partition of a store to the table content it holds, for a user who found damage there and wants to
//! know which rows to import again, or which attributes to set again.

use super::entries::all_entries;
use super::names::{Names, REGISTRY, STORE_ATTRIBUTES};
use super::{Stage, Table, TableError, codec};
use crate::protocol::StepRange;
use atoll_store::{ScanRequest, Store};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The table that a partition belongs to, and what of that table it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Belongs {
    /// Name of the table; empty for what belongs to the store as a whole.
    pub table: String,
    /// What the partition holds.
    pub what: Belonging,
}

/// A kind of table content.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Belonging {
    /// Rows that the current version names.
    Rows {
        /// Number of rows, including those deleted since.
        rows: u64,
        /// The runs that wrote them; empty if that cannot be told without reading the rows.
        runs: Vec<String>,
        /// The first of their steps, and the first step after them, if there is one.
        steps: (u64, Option<u64>),
    },
    /// Rows that only earlier versions name, or none.
    EarlierRows,
    /// The versions and their contents.
    Versions,
    /// Attributes of the table and its runs.
    Attributes,
    /// Attributes of the store as a whole.
    StoreAttributes,
}

impl fmt::Display for Belongs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.table;
        match &self.what {
            Belonging::Rows { rows, runs, steps } => {
                write!(formatter, "{rows} rows of table \"{table}\"")?;
                match runs.as_slice() {
                    [] => write!(formatter, ", of several runs")?,
                    [run] => write!(formatter, ", run \"{run}\"")?,
                    runs => write!(formatter, ", runs \"{}\"", runs.join("\", \""))?,
                }
                match *steps {
                    (0, None) => Ok(()),
                    (from, None) => write!(formatter, ", steps from {from} on"),
                    (from, Some(to)) if to == from + 1 => write!(formatter, ", step {from}"),
                    (from, Some(to)) => write!(formatter, ", steps {from} to {}", to.saturating_sub(1)),
                }
            }
            Belonging::EarlierRows => {
                write!(formatter, "rows that only earlier versions of table \"{table}\" have")
            }
            Belonging::Versions => write!(formatter, "the versions of table \"{table}\""),
            Belonging::Attributes => write!(formatter, "the attributes of table \"{table}\""),
            Belonging::StoreAttributes => write!(formatter, "the attributes of the store"),
        }
    }
}

impl Table {
    /// Which content of which table a partition of a store holds; `None` if it belongs to no table, and not
    /// to the store as a whole.
    ///
    /// # Errors
    /// If the list of tables, or the current version of the table, cannot be read.
    pub async fn that_has(store: &Arc<dyn Store>, partition: &[u8]) -> Result<Option<Belongs>, TableError> {
        if partition == STORE_ATTRIBUTES {
            return Ok(Some(Belongs { table: String::new(), what: Belonging::StoreAttributes }));
        }
        for found in all_entries(&**store, ScanRequest::all(REGISTRY)).await? {
            let table = String::from_utf8_lossy(&found.sort).into_owned();
            let entry = codec::entry_from_json(&table, &found.value)?;
            let names = Names::of(entry.id);
            let what = if partition == names.manifest() {
                Belonging::Versions
            } else if partition == names.attributes() {
                Belonging::Attributes
            } else if partition.starts_with(&names.objects()) && entry.stage == Stage::Live {
                Self::open(Arc::clone(store), &table).await?.rows_in(partition).await?
            } else {
                continue;
            };
            return Ok(Some(Belongs { table, what }));
        }
        Ok(None)
    }

    /// The rows of the current version in the partition of an object.
    async fn rows_in(&self, partition: &[u8]) -> Result<Belonging, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        let (mut rows, mut runs, mut steps) = (0, BTreeSet::new(), None::<StepRange>);
        let mut is_of_several = false;
        for (_, placed) in manifest.pieces.iter() {
            let piece = &placed.piece;
            if self.names.object(piece.object) != partition {
                continue;
            }
            rows += piece.rows;
            match &piece.extent.run {
                Some(run) => drop(runs.insert(run.to_string())),
                None => is_of_several = true,
            }
            let other = piece.extent.steps;
            steps = Some(steps.map_or(other, |known| StepRange {
                from: known.from.min(other.from),
                to: known.to.zip(other.to).map(|(one, other)| one.max(other)),
            }));
        }
        if is_of_several {
            runs.clear();
        }
        Ok(match steps {
            Some(steps) => {
                Belonging::Rows { rows, runs: runs.into_iter().collect(), steps: (steps.from, steps.to) }
            }
            None => Belonging::EarlierRows,
        })
    }
}
