//! `atoll kv`: read and write cells.

mod cell;
mod scan;
mod transfer;
mod wait;

use crate::cells::EncodingArguments;
use crate::{Failure, Session};
use clap::{Args, Subcommand};

/// Verbs on cells.
#[derive(Debug, Subcommand)]
pub enum Kv {
    /// Set a cell
    #[command(after_help = "Examples:
  atoll kv put --store ./data stations KJFK 'New York'
  atoll kv put --store ./data images map-1 - < map.png
  atoll kv put --store ./data --hex 00ff 01 'cafe'")]
    Put(cell::Put),
    /// Write the value of a cell to standard output
    #[command(after_help = "Examples:
  atoll kv get --store ./data stations KJFK
  atoll kv get --store ./data images map-1 > map.png
  atoll kv get --store ./data images map-1 --offset 16 --length 8 --hex
Exits with 10 if there is no such cell.")]
    Get(cell::Get),
    /// Remove a cell, a range of cells, or a whole partition
    #[command(after_help = "Examples:
  atoll kv delete --store ./data stations KJFK
  atoll kv delete --store ./data stations --prefix K
  atoll kv delete --store ./data stations --all")]
    Delete(cell::Delete),
    /// Append bytes to a cell
    #[command(after_help = "Examples:
  atoll kv append --store ./data logs 2026-11-20 'one more line'
  date | atoll kv append --store ./data logs 2026-11-20 -")]
    Append(cell::Append),
    /// Set a cell if it holds the expected value
    #[command(after_help = "Examples:
  atoll kv cas --store ./data locks job-17 me --expect-absent
  atoll kv cas --store ./data counters runs 8 --expect 7
Exits with 11 if the cell holds another value, and shows that value.")]
    Cas(cell::Cas),
    /// Wait until a cell holds a value, or changes
    #[command(after_help = "Examples:
  atoll kv wait --store ./data jobs 17 --equals done --timeout 10min
  atoll kv wait --store ./data jobs 17 --exists
Writes the value that ended the wait. Exits with 17 if the time runs out.")]
    Wait(wait::Wait),
    /// List the cells of a partition in order
    #[command(after_help = "Examples:
  atoll kv scan --store ./data stations
  atoll kv scan --store ./data stations --from KA --to KM --limit 10
  atoll kv scan --store ./data stations --prefix K --reverse --json
Text output is one `KEY<tab>VALUE` per line, with \\xNN escapes for bytes that are not text.")]
    Scan(scan::Scan),
    /// Import cells from JSON Lines, CSV or binary
    #[command(after_help = "Examples:
  atoll kv import --store ./data cells.jsonl
  atoll kv import --store ./data flights.csv --partition-columns carrier,flight --sort-column time_hour
  zcat cells.jsonl.gz | atoll kv import --store ./data - --format jsonl
An interrupted import of a file continues where it stopped when the same command runs again.")]
    Import(transfer::ImportArguments),
    /// Export cells as JSON Lines, CSV or binary
    #[command(after_help = "Examples:
  atoll kv export --store ./data cells.jsonl
  atoll kv export --store ./data - --format csv --partition stations
  atoll kv export --store ./data backup.atoll")]
    Export(transfer::ExportArguments),
}

impl Kv {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why the verb failed.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Put(verb) => verb.run(session).await,
            Self::Get(verb) => verb.run(session).await,
            Self::Delete(verb) => verb.run(session).await,
            Self::Append(verb) => verb.run(session).await,
            Self::Cas(verb) => verb.run(session).await,
            Self::Wait(verb) => verb.run(session).await,
            Self::Scan(verb) => verb.run(session).await,
            Self::Import(verb) => verb.run(session).await,
            Self::Export(verb) => verb.run(session).await,
        }
    }
}

/// The keys of one cell on the command line.
#[derive(Args, Clone, Debug)]
struct CellArguments {
    /// Partition key
    #[arg(allow_negative_numbers = true)]
    partition: String,
    /// Sort key; '' for the empty one
    #[arg(allow_negative_numbers = true)]
    sort: String,
    #[command(flatten)]
    encoding: EncodingArguments,
}

impl CellArguments {
    fn keys(&self) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let partition = self.encoding.decode("the partition key", &self.partition)?;
        Ok((partition, self.encoding.decode("the sort key", &self.sort)?))
    }
}
