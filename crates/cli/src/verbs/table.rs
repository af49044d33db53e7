//! `atoll table`: sampled tables.

mod add_column;
mod append;
mod attributes;
mod copy;
mod create;
mod dump_box;
mod estimate;
mod explain;
mod export;
mod gather;
mod import;
mod info;
mod pack;
mod query;
mod question;
mod remove;
mod renames;
mod rows_out;
mod runs;
mod snapshot;

use crate::session::Access;
use crate::{Failure, Session};
use atoll_store::{Store, StoreError};
use atoll_tables::protocol::Version;
use atoll_tables::{Table, TableError};
use clap::{Args, Subcommand};
use std::sync::Arc;

/// Verbs on tables.
#[derive(Debug, Subcommand)]
pub enum TableVerb {
    /// Create a table, from a list of columns or from a file that has them
    #[command(after_help = "Examples:
  atoll table create particles --column pid:uint64,step:int64,type:int32? \\
      --column x:float64,y:float64,z:float64 --id pid,step --sample-key pid --index x,y,z,step
  atoll table create weather --like weather.csv --id station,time --index time,temperature
  atoll table create again --schema particles.json
`atoll table info particles --schema` writes such a schema. A `?` after a type makes the column nullable.")]
    Create(create::Create),
    /// Add a column to a table: existing rows have no value in it, new rows may
    #[command(after_help = "Examples:
  atoll table add-column particles charge:float32 --unit e --description 'partial charge'
Earlier versions are queried without the column. Writers that do not know the column continue as before.")]
    AddColumn(add_column::AddColumn),
    /// Show or set attributes of a table, a run or a step: notes of any kind, and the periodic cell
    #[command(after_help = "Examples:
  atoll table attributes particles 'cell={\"axes\":[\"x\",\"y\",\"z\"],\"lengths\":[10,10,null]}'
  atoll table attributes particles --run run-7 temperature=300 deck=tube.in
  atoll table attributes particles --run run-7 --step 400
A value is parsed as JSON if possible, and is text otherwise. NAME= removes an attribute; others are kept.")]
    Attributes(attributes::AttributesVerb),
    /// List the tables of a store
    #[command(after_help = "Examples:
  atoll table list --store ./data")]
    List(runs::List),
    /// Show what a table consists of
    #[command(after_help = "Examples:
  atoll table info particles
  atoll table info particles --schema > particles.json")]
    Info(info::Info),
    /// Show the first rows of a table in the order of their weights, which are a sample of it
    #[command(after_help = "Examples:
  atoll table head particles
  atoll table head particles --rows 20 --columns pid,x --where 'type = 2'")]
    Head(query::Head),
    /// Query a table: all rows of a box that meet a condition, or a sample of them
    #[command(after_help = "Examples:
  atoll table query particles --box x=0:1,step=100: --where 'type = 2' --columns pid,x,vz
  atoll table query particles --sample 0.01 --output sample.parquet
  atoll table query particles --first 1000 --format csv
  atoll table query particles --where 'vz > 0.5' --count
  atoll table query particles --box x=0:1 --min step --max step
  atoll table query particles --box step=100: --output last.dump --bounds 0:10,0:10,0:10
Rows are returned in the order of their weights, so that the first rows of any answer are a sample of it; in a
LAMMPS dump they are ordered by step.")]
    Query(query::Query),
    /// Sample a table: like `query --sample`, with the share as an argument
    #[command(after_help = "Examples:
  atoll table sample particles 0.01
  atoll table sample particles 0.001 --box x=0:1 --output sample.csv
The same share gives the same rows every time, and a larger share gives those and more.")]
    Sample(query::Sample),
    /// Estimate a number from a sample, with an interval: a mean, a sum, a share, a quantile
    #[command(after_help = "Examples:
  atoll table estimate particles --mean vz --within 1%
  atoll table estimate particles --mean vz --box x=0:1 --sample 0.01 --confidence 0.99
  atoll table estimate particles --quantile vz:0.5 --within 0.1sd
  atoll table estimate particles --share 'type = 2' --sample 0.01 --json
  atoll table estimate particles --mean vz --group-by type --sample 0.05
--within reads as many rows as the width takes. Without it the sample is that of --sample, --first and
--limit; without these all rows are read, and the answer is exact.")]
    Estimate(estimate::Estimate),
    /// Show what a query would read, without reading it
    #[command(after_help = "Examples:
  atoll table explain particles --box x=0:1 --sample 0.01")]
    Explain(explain::Explain),
    /// Import a file into a table, as a run of its own
    #[command(after_help = "Examples:
  atoll table import particles run-7.csv
  atoll table import particles dump.lammpstrj --rename id=pid --ignore-extra
  zcat more.csv.gz | atoll table import particles - --format csv --run more
Formats are CSV, JSON Lines, Parquet, Arrow IPC (.arrow, .feather), NumPy (.npy, .npz) and LAMMPS text dumps.
An interrupted import continues where it stopped when the same command runs again.")]
    Import(import::Import),
    /// List the steps of each run, with times and row counts
    #[command(after_help = "Examples:
  atoll table steps particles --run run-7 --last 5
  atoll table steps particles --runs")]
    Steps(runs::Steps),
    /// Show steps as they become complete, until interrupted
    #[command(after_help = "Examples:
  atoll table follow particles
  atoll table follow particles --run run-7 --count 1
  atoll table follow particles --all --timeout 10min --json")]
    Follow(runs::Follow),
    /// Append the rows of a file as one step of a run
    #[command(after_help = "Examples:
  atoll table append particles step-400.parquet --run run-7 --step 400 --time 2.0")]
    Append(append::Append),
    /// Write the rows of a table to a file, in the order of their weights
    #[command(after_help = "Examples:
  atoll table export particles particles.parquet
  atoll table export particles part.csv --box x=0:1 --columns pid,x
  atoll table export particles arrays.npz --columns pid,x,y,z
  atoll table export particles run-7.dump --run run-7 --rename pid=id
The first rows of the file are a sample of it, as are the first row groups of a Parquet file. A LAMMPS dump is
ordered by step instead. NumPy arrays and LAMMPS dumps are put together in a temporary file beside the file, and
refuse missing values and what else they cannot hold.")]
    Export(export::Export),
    /// Copy a table to another store, such as a ring, or to another name, with its rows, runs, steps and
    /// attributes unchanged
    #[command(after_help = "Examples:
  atoll table copy particles --store ./data --to ring://node-1:7379
  atoll table copy particles --as before-run-8
Both tables give the same samples. Older versions and snapshots are not copied. Running the same command again
continues an interrupted copy.")]
    Copy(copy::Copy),
    /// Gather the rows of a table from several stores
    #[command(after_help = "Examples:
  atoll table gather particles --store ./all --from ./node-1 --from ./node-2
Each store becomes a run of the table, in its state when gathering it begins. Running the same command again
continues where it stopped; it reports rows that a store got meanwhile, but does not gather them.")]
    Gather(gather::Gather),
    /// Pack a table, so that queries read less; safe at any time, even beside writers
    #[command(after_help = "Examples:
  atoll table pack particles
  atoll table pack particles --whole --share 0.5")]
    Pack(pack::Pack),
    /// Create, list or delete named snapshots of a table
    Snapshot(snapshot::Snapshot),
    /// Remove what only older versions need, except for those that a snapshot keeps
    #[command(after_help = "Examples:
  atoll table vacuum particles
Versions before the current one can no longer be queried then. Rows deleted by a condition stay in their
objects until the table is packed: run `atoll table pack --whole` first.")]
    Vacuum(snapshot::Vacuum),
    /// Delete rows: of a run, of steps, or those that meet a condition
    #[command(after_help = "Examples:
  atoll table delete particles --run run-7 --steps 900:
  atoll table delete particles --where 'x is nan'
Earlier versions keep the rows: query them with --as-of.")]
    Delete(remove::Delete),
    /// Drop a table with all its versions
    #[command(after_help = "Examples:
  atoll table drop particles")]
    Drop(remove::Drop),
}

impl TableVerb {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why the verb failed.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Create(verb) => verb.run(session).await,
            Self::AddColumn(verb) => verb.run(session).await,
            Self::Attributes(verb) => verb.run(session).await,
            Self::Pack(verb) => verb.run(session).await,
            Self::Copy(verb) => verb.run(session).await,
            Self::Gather(verb) => verb.run(session).await,
            Self::List(verb) => verb.run(session).await,
            Self::Steps(verb) => verb.run(session).await,
            Self::Follow(verb) => verb.run(session).await,
            Self::Delete(verb) => verb.run(session).await,
            Self::Drop(verb) => verb.run(session).await,
            Self::Info(verb) => verb.run(session).await,
            Self::Head(verb) => verb.run(session).await,
            Self::Query(verb) => verb.run(session).await,
            Self::Sample(verb) => verb.run(session).await,
            Self::Estimate(verb) => verb.run(session).await,
            Self::Snapshot(verb) => verb.run(session).await,
            Self::Vacuum(verb) => verb.run(session).await,
            Self::Explain(verb) => verb.run(session).await,
            Self::Import(verb) => verb.run(session).await,
            Self::Append(verb) => verb.run(session).await,
            Self::Export(verb) => verb.run(session).await,
        }
    }
}

/// The table that a verb works on.
#[derive(Args, Clone, Debug)]
struct TableArguments {
    /// Name of the table
    table: String,
}

impl TableArguments {
    /// Opens the table in an existing store.
    async fn open(&self, session: &Session, access: Access) -> Result<Table, Failure> {
        self.open_in(&existing_store(session, access).await?).await
    }

    /// Opens the table; if it does not exist, the failure names those that do.
    async fn open_in(&self, store: &Arc<dyn Store>) -> Result<Table, Failure> {
        match Table::open(Arc::clone(store), &self.table).await {
            Err(TableError::NotFound { name }) => {
                let tables = Table::list(&**store).await?;
                let present = tables.into_iter().map(|table| table.name).collect();
                Err(Failure::NoTable { table: name, present })
            }
            opened => Ok(opened?),
        }
    }
}

/// Opens an existing store: among the verbs on tables only those that create a table create a store.
async fn existing_store(session: &Session, access: Access) -> Result<Arc<dyn Store>, Failure> {
    session.store(access).await.map_err(|failure| match failure {
        Failure::Store(error @ StoreError::NotFound { .. }) if error.hint().is_none() => {
            Failure::NoStore(error)
        }
        other => other,
    })
}

/// The version given by its number, or by the name of a snapshot.
async fn version_called(table: &Table, said: Option<&str>) -> Result<Option<Version>, Failure> {
    let Some(said) = said else { return Ok(None) };
    match said.parse() {
        Ok(number) => Ok(Some(Version(number))),
        Err(_) => match table.snapshot_version(said).await {
            Err(TableError::NoSnapshot { .. }) if is_number(said) => Err(Failure::Usage {
                problem: format!("\"{said}\" is not a version"),
                hint: "versions are whole numbers from 0, and `atoll table info TABLE` shows the current one; or name a snapshot"
                    .to_owned(),
            }),
            found => Ok(Some(found?)),
        },
    }
}

/// Whether a text is a whole number: it may be a version number, even one that no version has.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses the pair of a flag such as `--rename id=pid`.
fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.to_owned(), to.to_owned())),
        _ => Err("it is not NAME=VALUE".to_owned()),
    }
}

/// Parses a delimiter of fields.
fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("a delimiter is one ASCII character, such as ; or \\t".to_owned()),
    }
}
