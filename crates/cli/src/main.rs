//! The `atoll` program: lists the verbs, and nothing else.
//!
//! Invariant: this file knows a verb by its name only; its arguments and its code are in its own file.

use atoll_cli::verbs::{completions, config, doctor, kv, ls, ring, serve, store, table};
use atoll_cli::{Failure, GlobalArguments, Session};
use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// A data fabric that stands beside a computation and holds what it produces.
#[derive(Parser)]
#[command(name = "atoll", version, max_term_width = 100, after_help = EXAMPLES)]
struct Atoll {
    #[command(flatten)]
    global: GlobalArguments,
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "Examples:
  atoll kv put --store ./data stations KJFK 'New York'
  atoll kv get --store ./data stations KJFK
  ATOLL_STORE=./data atoll ls
  atoll table sample --store ./data particles 0.01
  atoll doctor /scratch";

#[derive(Subcommand)]
enum Verb {
    /// Read and write cells: put, get, delete, append, cas, wait, scan, import, export
    #[command(subcommand)]
    Kv(kv::Kv),
    /// Sampled tables: create, import, query, sample, export and more
    #[command(subcommand)]
    Table(Box<table::TableVerb>),
    /// Maintain a store: info, check, stats, snapshot, copy, backup, upgrade
    #[command(subcommand)]
    Store(store::StoreVerb),
    /// List partitions, or the keys of a partition
    Ls(ls::Ls),
    /// Own a store and serve it to other processes on this machine
    Serve(serve::Serve),
    /// Run and operate a ring of nodes that serve Redis clients
    #[command(subcommand, visible_alias = "cluster")]
    Ring(ring::RingVerb),
    /// Check how well a folder suits a store, and suggest improvements
    Doctor(doctor::Doctor),
    /// Show the options in effect and where each was set
    #[command(subcommand)]
    Config(config::Config),
    /// Generate a shell completion script
    Completions(completions::Completions),
}

impl Verb {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Kv(verb) => verb.run(session).await,
            Self::Table(verb) => verb.run(session).await,
            Self::Store(verb) => verb.run(session).await,
            Self::Ls(verb) => verb.run(session).await,
            Self::Serve(verb) => verb.run(session).await,
            Self::Ring(verb) => verb.run(session).await,
            Self::Doctor(verb) => verb.run(session),
            Self::Config(verb) => verb.run(session),
            Self::Completions(verb) => verb.run(session, Atoll::command()),
        }
    }
}

fn main() -> ExitCode {
    match atoll_cli::parse::<Atoll>() {
        Ok(atoll) => atoll_cli::execute(&atoll.global, async |session| atoll.verb.run(session).await),
        Err(code) => code,
    }
}
