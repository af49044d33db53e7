//! `atoll table snapshot` and `vacuum`: keeps versions, and removes those that are not needed any more.

use super::TableArguments;
use crate::listing::{self, Side};
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use atoll_tables::protocol::Version;
use clap::{Args, Subcommand};
use serde_json::json;

/// `atoll table snapshot`
#[derive(Args, Debug)]
pub struct Snapshot {
    #[command(subcommand)]
    verb: SnapshotVerb,
}

#[derive(Debug, Subcommand)]
enum SnapshotVerb {
    /// Keep a version of a table under a name, by default the current one
    #[command(after_help = "Examples:
  atoll table snapshot create particles before-the-cut
  atoll table query particles --as-of before-the-cut --count")]
    Create(Create),
    /// List the snapshots of a table, and the version of each
    List(List),
    /// Delete a snapshot; the next vacuum removes what only it kept
    Delete(Delete),
}

#[derive(Args, Debug)]
struct Create {
    #[command(flatten)]
    table: TableArguments,
    /// Name of the snapshot
    name: String,
    /// Version to keep
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

#[derive(Args, Debug)]
struct List {
    #[command(flatten)]
    table: TableArguments,
}

#[derive(Args, Debug)]
struct Delete {
    #[command(flatten)]
    table: TableArguments,
    /// Name of the snapshot
    name: String,
}

impl Snapshot {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        match self.verb {
            SnapshotVerb::Create(verb) => verb.run(session).await,
            SnapshotVerb::List(verb) => verb.run(session).await,
            SnapshotVerb::Delete(verb) => verb.run(session).await,
        }
    }
}

impl Create {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Change).await?;
        let version = table.create_snapshot(&self.name, self.version.map(Version)).await?;
        let name = self.name;
        session.output.either(
            || format!("\"{name}\" keeps version {version}"),
            || json!({ "snapshot": name, "version": version.0 }),
        )
    }
}

impl List {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Read).await?;
        let snapshots = table.snapshots().await?;
        if session.output.is_json() {
            return snapshots.iter().try_for_each(|snapshot| {
                session.output.json(&json!({ "snapshot": snapshot.name, "version": snapshot.version.0, "made_ns": snapshot.made }))
            });
        }
        let entries: Vec<_> =
            snapshots.into_iter().map(|snapshot| [snapshot.name, snapshot.version.to_string()]).collect();
        listing::show(session, [("snapshot", Side::Left), ("version", Side::Right)], &entries)
    }
}

impl Delete {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Change).await?;
        table.delete_snapshot(&self.name).await?;
        if session.output.is_json() { session.output.json(&json!({ "done": true })) } else { Ok(()) }
    }
}

/// `atoll table vacuum`
#[derive(Args, Debug)]
pub struct Vacuum {
    #[command(flatten)]
    table: TableArguments,
}

impl Vacuum {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Change).await?;
        let report = table.vacuum().await?;
        table.close().await?;
        session.output.either(
            || {
                let orphans = match report.orphans {
                    0 => String::new(),
                    count => format!(", and {count} that broken-off writes had left"),
                };
                let are = if report.objects == 1 { "is" } else { "are" };
                let objects = counted(report.objects, "object");
                let gone = format!("{objects} of older versions {are} gone{orphans}");
                format!("{gone}; --as-of reaches back to version {}, and to snapshots", report.oldest)
            },
            || {
                let (oldest, objects) = (report.oldest, report.objects);
                let (orphans, history) = (report.orphans, report.history);
                json!({ "oldest": oldest, "objects": objects, "orphans": orphans, "history": history })
            },
        )
    }
}
