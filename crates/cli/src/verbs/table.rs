//! `atoll table`: sampled tables.

mod add_column;
mod append;
mod ask;
mod attributes;
mod copy;
mod create;
mod describe;
mod estimate;
mod explain;
mod export;
mod gather;
mod import;
mod pack;
mod query;
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
    /// Make a table, from its columns or from a file that has them
    #[command(after_help = "Examples:
  atoll table create particles --column pid:uint64,step:int64,type:int32? \\
      --column x:float64,y:float64,z:float64 --id pid,step --sample-key pid --index x,y,z,step
  atoll table create weather --like weather.csv --id station,time --index time,temperature
  atoll table create again --schema particles.json
`atoll table info particles --schema` writes such a schema. A `?` behind a type lets the column be null.")]
    Create(create::Create),
    /// Add a column to a table: rows that are there have no value in it, rows that come may
    #[command(after_help = "Examples:
  atoll table add-column particles charge:float32 --unit e --description 'partial charge'
Versions before it are asked without the column. Writers that know nothing of it go on as before.")]
    AddColumn(add_column::AddColumn),
    /// Show or set attributes of a table, of a run or of a step: anything that is worth noting, and the
    /// periodic cell
    #[command(after_help = "Examples:
  atoll table attributes particles 'cell={\"axes\":[\"x\",\"y\",\"z\"],\"lengths\":[10,10,null]}'
  atoll table attributes particles --run run-7 temperature=300 deck=tube.in
  atoll table attributes particles --run run-7 --step 400
A value is JSON where it can be read so, and a text otherwise; NAME= takes one away. Setting keeps the others.")]
    Attributes(attributes::AttributesVerb),
    /// List the tables of a store
    #[command(after_help = "Examples:
  atoll table list --store ./data")]
    List(runs::List),
    /// Show what a table is made of
    #[command(after_help = "Examples:
  atoll table info particles
  atoll table info particles --schema > particles.json")]
    Info(describe::Info),
    /// Show the first rows of a table, in the order of their weights: a sample
    #[command(after_help = "Examples:
  atoll table head particles
  atoll table head particles --rows 20 --columns pid,x --where 'type = 2'")]
    Head(query::Head),
    /// Answer a question: all rows of a box that meet a condition, or a sample of them
    #[command(after_help = "Examples:
  atoll table query particles --box x=0:1,step=100: --where 'type = 2' --columns pid,x,vz
  atoll table query particles --sample 0.01 --output sample.parquet
  atoll table query particles --first 1000 --format csv
  atoll table query particles --where 'vz > 0.5' --count
Rows come in the order of their weights, so that any beginning of the answer is a sample of it.")]
    Query(query::Query),
    /// A sample: `query --sample`, with the share as an argument
    #[command(after_help = "Examples:
  atoll table sample particles 0.01
  atoll table sample particles 0.001 --box x=0:1 --output sample.csv
The same share gives the same rows every time, and a larger one gives these and more.")]
    Sample(query::Sample),
    /// Estimate a number from a sample, with an interval: a mean, a sum, a share, a quantile
    #[command(after_help = "Examples:
  atoll table estimate particles --mean vz --within 1%
  atoll table estimate particles --mean vz --box x=0:1 --sample 0.01 --confidence 0.99
  atoll table estimate particles --quantile vz:0.5 --within 0.1sd
  atoll table estimate particles --share 'type = 2' --sample 0.01 --json
  atoll table estimate particles --mean vz --group-by type --sample 0.05
--within reads as much as that takes; without it the sample is what --sample, --first and --limit say, and
all rows if they say nothing, which is exact.")]
    Estimate(estimate::Estimate),
    /// Tell what answering a question would read, without reading it
    #[command(after_help = "Examples:
  atoll table explain particles --box x=0:1 --sample 0.01")]
    Explain(explain::Explain),
    /// Read a file into a table, as a run of its own
    #[command(after_help = "Examples:
  atoll table import particles run-7.csv
  atoll table import particles dump.lammpstrj --rename id=pid --ignore-extra
  zcat more.csv.gz | atoll table import particles - --format csv --run more
CSV, JSON Lines, Parquet, Arrow IPC (.arrow, .feather), NumPy (.npy, .npz) and LAMMPS text dumps
are read.
An import that was interrupted goes on where it was when the same command runs again.")]
    Import(import::Import),
    /// List the steps of each run, with their times and rows
    #[command(after_help = "Examples:
  atoll table steps particles --run run-7 --last 5
  atoll table steps particles --runs")]
    Steps(runs::Steps),
    /// Show steps as they become complete, until it is interrupted
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
Any beginning of the file is a sample of it: of a Parquet file, the first row groups.")]
    Export(export::Export),
    /// Copy a table to another store, a ring say, or to another name: its rows, runs, steps and attributes as
    /// they are
    #[command(after_help = "Examples:
  atoll table copy particles --store ./data --to ring://node-1:7379
  atoll table copy particles --as before-run-8
Both give the same samples. Older versions and snapshots do not come along. The same command goes on with a copy that
was interrupted.")]
    Copy(copy::Copy),
    /// Bring the rows of the same table in several stores together
    #[command(after_help = "Examples:
  atoll table gather particles --store ./all --from ./node-1 --from ./node-2
Each store becomes a run of the table, as it is when that begins. The same command goes on where it was; what a store
got meanwhile is told, and not gathered.")]
    Gather(gather::Gather),
    /// Pack a table, so that questions read less; harmless at any time, and beside writers
    #[command(after_help = "Examples:
  atoll table pack particles
  atoll table pack particles --whole --share 0.5")]
    Pack(pack::Pack),
    /// Keep versions of a table under names, list them, forget them
    Snapshot(snapshot::Snapshot),
    /// Remove what only older versions need, but for those that a snapshot keeps
    #[command(after_help = "Examples:
  atoll table vacuum particles
Versions before the current one can be asked no longer then. Rows that were deleted by a condition lie in their
objects until the table is packed: `atoll table pack --whole` before it.")]
    Vacuum(snapshot::Vacuum),
    /// Delete rows: of a run, of steps, or those that meet a condition
    #[command(after_help = "Examples:
  atoll table delete particles --run run-7 --steps 900:
  atoll table delete particles --where 'x is nan'
Versions before keep the rows: ask them with --as-of.")]
    Delete(remove::Delete),
    /// Drop a table, with all its versions
    #[command(after_help = "Examples:
  atoll table drop particles")]
    Drop(remove::Drop),
}

impl TableVerb {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why it could not do what was asked.
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
        self.open_in(&store_there(session, access).await?).await
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
async fn store_there(session: &Session, access: Access) -> Result<Arc<dyn Store>, Failure> {
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
                problem: format!("\"{said}\" is no version"),
                hint: "versions are whole numbers from 0, and `atoll table info TABLE` tells the current one; or name a snapshot"
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
