//! Explaining: what answering a query would read, told by the directories alone.

use super::asked::Asked;
use super::reading::Reading;
use super::{Query, Table, TableError, Work};
use crate::protocol::Manifest;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// What answering a query would take. Directories were read for it, rows were not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The table.
    pub table: String,
    /// The version.
    pub version: u64,
    /// The filter, as the grammar writes it; none for everything.
    pub filter: Option<String>,
    /// The part of the filter that leaves out whole bands: for each index column the least and greatest value
    /// that can answer, both included, as texts.
    pub bounds: Vec<Within>,
    /// From which share of all weights on.
    pub share_from: f64,
    /// Up to which share of all weights the bands that would be read at first reach: less than the query asks
    /// for if it has a limit.
    pub share_to: f64,
    /// Columns that would be read, the filter's and the id's included.
    pub columns: Vec<String>,
    /// Blocks that the version has.
    pub blocks: u64,
    /// Blocks whose directories were read.
    pub blocks_opened: u64,
    /// Bands of these.
    pub bands_seen: u64,
    /// Bands that would be read.
    pub bands: u64,
    /// Rows in them.
    pub rows: u64,
    /// About how many of these have weights that are asked for; the filter may leave out more.
    pub rows_expected: u64,
    /// Bytes that would be read for them, gaps between them included.
    pub bytes: u64,
    /// In so many requests.
    pub requests: u64,
    /// Whether reading may have to go on: there is a limit, and the filter decides how far.
    pub may_go_on: bool,
    /// What reading the directories took.
    pub work: Work,
}

/// What one index column must lie within.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Within {
    /// The column.
    pub column: String,
    /// The least value; none where it is open.
    pub low: Option<String>,
    /// The greatest value; none where it is open.
    pub high: Option<String>,
}

impl Table {
    /// What answering a query would read.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub async fn explain(&self, query: &Query) -> Result<Explanation, TableError> {
        self.again_if_vacuumed(query, explain_of).await
    }
}

async fn explain_of(table: Table, query: &Query, manifest: Arc<Manifest>) -> Result<Explanation, TableError> {
    let asked = Asked::rows(&table, query)?;
    let bounds = asked.bounds.explained();
    let mut reading = Reading::open(&table, asked, &manifest, query.reach()).await?;
    let to_read = reading.what_next().await?;
    let field = |&place: &usize| table.schema.columns().field(place).name().clone();
    Ok(Explanation {
        table: table.name.clone(),
        version: manifest.version.0,
        filter: query.filter.as_ref().map(ToString::to_string),
        bounds,
        share_from: query.window.after().share(),
        share_to: to_read.cut.share(),
        columns: reading.columns().iter().map(field).collect(),
        blocks: reading.work().blocks,
        blocks_opened: reading.opened(),
        bands_seen: reading.bands_seen(),
        bands: to_read.bands,
        rows: to_read.rows,
        rows_expected: to_read.rows_expected,
        bytes: to_read.bytes,
        requests: to_read.requests,
        may_go_on: to_read.may_go_on,
        work: reading.work(),
    })
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table \"{}\", version {}", self.table, self.version)?;
        writeln!(f, "  filter   {}", self.filter.as_deref().unwrap_or("none"))?;
        for Within { column, low, high } in &self.bounds {
            let end = |end: &Option<String>| end.clone().unwrap_or_else(|| "…".to_owned());
            writeln!(f, "  prunes   {column} from {} to {}", end(low), end(high))?;
        }
        let more = if self.may_go_on { ", then further if too few rows satisfy the filter" } else { "" };
        writeln!(f, "  weights  {:.6} to {:.6} of 1{more}", self.share_from, self.share_to)?;
        writeln!(f, "  columns  {}", self.columns.join(", "))?;
        writeln!(
            f,
            "  opened   {} of {} blocks: {} requests, {} bytes",
            self.blocks_opened, self.blocks, self.work.requests, self.work.bytes
        )?;
        write!(
            f,
            "  reads    {} of {} bands: {} rows (about {} with these weights), {} bytes in {} requests",
            self.bands, self.bands_seen, self.rows, self.rows_expected, self.bytes, self.requests
        )
    }
}
