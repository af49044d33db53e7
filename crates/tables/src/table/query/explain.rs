//! Explains what answering a query would read, judging by the directories alone.

use super::bound_query::BoundQuery;
use super::reading::Reading;
use super::{Query, Table, TableError, Work};
use crate::protocol::Manifest;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// What answering a query would take. Directories were read for it, rows were not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Name of the table.
    pub table: String,
    /// The version that would be read.
    pub version: u64,
    /// The filter in the grammar's notation; `None` if the query has none.
    pub filter: Option<String>,
    /// The part of the filter that rules out whole bands: for each index column the least and greatest value
    /// of matching rows, both inclusive, as strings.
    pub bounds: Vec<Within>,
    /// The share of all weights at which the query begins.
    pub share_from: f64,
    /// The share of all weights up to which the bands to be read at first reach: less than requested if the
    /// query has a limit.
    pub share_to: f64,
    /// Columns that would be read, including those of the filter and the id.
    pub columns: Vec<String>,
    /// Blocks in the version.
    pub blocks: u64,
    /// Blocks whose directories were read.
    pub blocks_opened: u64,
    /// Bands in these blocks.
    pub bands_seen: u64,
    /// Bands that would be read.
    pub bands: u64,
    /// Rows in them.
    pub rows: u64,
    /// Approximate number of these rows with requested weights; the filter may rule out more.
    pub rows_expected: u64,
    /// Bytes that would be read for them, including gaps between them.
    pub bytes: u64,
    /// Number of requests for these bytes.
    pub requests: u64,
    /// Whether more may have to be read: the query has a limit, and the filter determines how far to read.
    pub may_go_on: bool,
    /// Work spent on the directories.
    pub work: Work,
}

/// The range of one index column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Within {
    /// Name of the column.
    pub column: String,
    /// The least value; `None` if unbounded.
    pub low: Option<String>,
    /// The greatest value; `None` if unbounded.
    pub high: Option<String>,
}

impl Table {
    /// Describes what answering a query would read, without reading rows.
    ///
    /// # Errors
    /// As [`Table::query`].
    pub async fn explain(&self, query: &Query) -> Result<Explanation, TableError> {
        self.restart_if_vacuumed(query, explain_of).await
    }
}

async fn explain_of(table: Table, query: &Query, manifest: Arc<Manifest>) -> Result<Explanation, TableError> {
    let asked = BoundQuery::rows(&table, query)?;
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
