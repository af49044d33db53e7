//! Commands for the benches whose other half is in Python.
//!
//! `tables-load`, `tables-pack` and `tables-count` serve the bench of tables (`tables/`); those that begin
//! with `cassandra` serve that of Cassandra (`tables/on_cassandra/`).

use crate::peers::EngineError;
use crate::{cassandra, counts};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// A command for the Python half.
#[derive(Subcommand)]
pub enum Half {
    /// Loads the rows of an Arrow file into a table, for the bench of tables.
    #[command(hide = true)]
    TablesLoad(LoadArguments),
    /// Packs a table, for the bench of tables.
    #[command(hide = true)]
    TablesPack(PackArguments),
    /// Asks a table questions and counts the work, for the bench of tables.
    #[command(hide = true)]
    TablesCount(CountArguments),
    /// Writes the rows of an Arrow file into a plain table of Cassandra.
    #[command(hide = true)]
    CassandraRows(RivalArguments),
    /// Writes the rows of an Arrow file as blocks into a plain table of Cassandra.
    #[command(hide = true)]
    CassandraBlobs(RivalArguments),
    /// Runs one statement in CQL.
    #[command(hide = true)]
    CassandraRun(StatementArguments),
    /// Measures what calls of the contract cost on Cassandra.
    #[command(hide = true)]
    CassandraCosts(CostsArguments),
}

#[derive(Args)]
pub struct RivalArguments {
    /// Nodes, separated by commas.
    #[arg(long)]
    contacts: String,
    /// Keyspace of the rival.
    #[arg(long)]
    keyspace: String,
    /// Arrow file of rows.
    #[arg(long)]
    from: PathBuf,
    /// Where the cost goes, as JSON.
    #[arg(long)]
    out: PathBuf,
}

#[derive(Args)]
pub struct StatementArguments {
    /// Nodes, separated by commas.
    #[arg(long)]
    contacts: String,
    /// The statement.
    #[arg(long)]
    statement: String,
}

#[derive(Args)]
pub struct CostsArguments {
    /// URL or folder of the store.
    #[arg(long)]
    store: String,
    /// Nodes, separated by commas; none for a folder.
    #[arg(long)]
    contacts: Option<String>,
    /// Where the costs go, as JSON.
    #[arg(long)]
    out: PathBuf,
}

#[derive(Args)]
pub struct LoadArguments {
    /// Folder of the store.
    #[arg(long)]
    store: PathBuf,
    /// Name of the table.
    #[arg(long)]
    table: String,
    /// Arrow file with a record batch for each step.
    #[arg(long)]
    rows: PathBuf,
    /// Column that names the unit of sampling; rows for none.
    #[arg(long)]
    sample_key: Option<String>,
    /// How many writers share the steps, each as a run of its own.
    #[arg(long, default_value_t = 1)]
    writers: usize,
    /// Load many steps at once, packed as they come, instead of appending each.
    #[arg(long, conflicts_with = "writers")]
    loaded: bool,
    /// Where the cost goes, as JSON.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Args)]
pub struct PackArguments {
    /// Folder of the store.
    #[arg(long)]
    store: PathBuf,
    /// Name of the table.
    #[arg(long)]
    table: String,
    /// Where the cost goes, as JSON.
    #[arg(long)]
    out: PathBuf,
}

#[derive(Args)]
pub struct CountArguments {
    /// Folder of the store.
    #[arg(long)]
    store: PathBuf,
    /// Name of the table.
    #[arg(long)]
    table: String,
    /// The questions, as JSON.
    #[arg(long)]
    questions: PathBuf,
    /// Where the counts go, as JSON.
    #[arg(long)]
    out: PathBuf,
}

/// Runs one command.
pub fn run(half: &Half) -> Result<(), EngineError> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        match half {
            Half::TablesLoad(its) => {
                let sample_key = its.sample_key.as_deref();
                let out = its.out.as_deref();
                let appended = counts::Way::Appended { writers: its.writers };
                let way = if its.loaded { counts::Way::Loaded } else { appended };
                counts::load(&its.store, &its.table, &its.rows, sample_key, way, out).await
            }
            Half::TablesPack(its) => counts::pack(&its.store, &its.table, &its.out).await,
            Half::TablesCount(its) => counts::count(&its.store, &its.table, &its.questions, &its.out).await,
            Half::CassandraRows(its) => {
                cassandra::load_rows(&its.contacts, &its.keyspace, &its.from, &its.out).await
            }
            Half::CassandraBlobs(its) => {
                cassandra::load_blobs(&its.contacts, &its.keyspace, &its.from, &its.out).await
            }
            Half::CassandraRun(its) => cassandra::run(&its.contacts, &its.statement).await,
            Half::CassandraCosts(its) => {
                cassandra::costs(&its.store, its.contacts.as_deref(), &its.out).await
            }
        }
    })
}
