//! `atoll store`: maintenance of a store.

mod check;

use crate::attributes::{parse_attribute, show, shown as shown_attribute};
use crate::listing::{self, Side};
use crate::output::note;
use crate::progress::Progress;
use crate::session::Access;
use crate::text::escape;
use crate::{Failure, Session};
use atoll_open::{BackupReport, CopyProgress, SnapshotDescription, Statistic, StatisticUnit};
use atoll_options::{Size, format_duration};
use atoll_store::{Capabilities, Durability, ErrorKind, StoreError};
use atoll_tables::{Attributes, Table};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Verbs on a store as a whole.
#[derive(Debug, Subcommand)]
pub enum StoreVerb {
    /// Show what the store supports: limits, durability, costs; and its attributes
    #[command(after_help = "Examples:
  atoll store info --store ./data")]
    Info,
    /// Show or set attributes of the store: notes of any kind on what it is for
    #[command(after_help = "Examples:
  atoll store attributes --store ./data
  atoll store attributes --store ./data project=tubes 'cutoffs={\"lj\":2.5}' seed=42
A value is parsed as JSON if possible, and is text otherwise. NAME= removes an attribute; others are kept.")]
    Attributes(AttributesVerb),
    /// Read and verify every byte, and list the damage
    #[command(after_help = "Examples:
  atoll store check --store ./data
Exits with 18 if anything is damaged.")]
    Check,
    /// Show statistics: space, cells, caches
    #[command(after_help = "Examples:
  atoll store stats --store ./data --json")]
    Stats,
    /// Create, list or delete named snapshots of the store
    #[command(subcommand)]
    Snapshot(SnapshotVerb),
    /// Copy a consistent state to another folder, while the store serves
    #[command(after_help = "Examples:
  atoll store copy --store ./data /backup/data-monday
  atoll store copy --store ./data ./before-run-7 --snapshot before-run-7
A copy is an ordinary store: open it with --store.")]
    Copy(Copy),
    /// Create a backup in another folder, or update it, while the store serves
    #[command(after_help = "Examples:
  atoll store backup --store ./data /backup/data
  atoll store backup --store ./data /backup/data --full
The first backup copies everything, later ones only what changed. A backup is an ordinary store: read it with
--store. A backup that was written to is refused by the next one.")]
    Backup(Backup),
    /// Upgrade a store of an older format to the newest, or report that it is up to date
    #[command(after_help = "Examples:
  atoll store upgrade --store ./data
No other command changes the format of a store. A store of a newer format is refused with exit code 21.")]
    Upgrade,
}

/// Verbs on snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotVerb {
    /// Keep the present state under a name
    #[command(after_help = "Examples:
  atoll store snapshot create --store ./data before-run-7")]
    Create {
        /// Name of the snapshot
        name: String,
    },
    /// List the snapshots
    #[command(after_help = "Examples:
  atoll store snapshot list --store ./data")]
    List,
    /// Delete a snapshot, and free the space that only it needs
    #[command(after_help = "Examples:
  atoll store snapshot delete --store ./data before-run-7")]
    Delete {
        /// Name of the snapshot
        name: String,
    },
}

/// `atoll store attributes`
#[derive(Args, Debug)]
pub struct AttributesVerb {
    /// Attributes to set; without any, all are shown
    #[arg(value_name = "NAME=VALUE", value_parser = parse_attribute)]
    noted: Vec<(String, Option<Value>)>,
}

/// `atoll store copy`
#[derive(Args, Debug)]
pub struct Copy {
    /// Folder of the new store; it must be missing or empty
    folder: PathBuf,
    /// Copy the state of this snapshot instead of the present one
    #[arg(long, value_name = "NAME")]
    snapshot: Option<String>,
}

/// `atoll store backup`
#[derive(Args, Debug)]
pub struct Backup {
    /// Folder of the backup: a new one, or that of an earlier backup of this store
    folder: PathBuf,
    /// Copy everything anew, and replace what the folder holds
    #[arg(long)]
    full: bool,
}

const EXPORT_INSTEAD: &str = "`atoll kv export` writes its cells to a file";

impl StoreVerb {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why the verb failed.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Info => info(session).await,
            Self::Attributes(verb) => verb.run(session).await,
            Self::Check => check::check(session).await,
            Self::Stats => stats(session).await,
            Self::Snapshot(verb) => verb.run(session).await,
            Self::Copy(verb) => verb.run(session).await,
            Self::Backup(verb) => verb.run(session).await,
            Self::Upgrade => upgrade(session).await,
        }
    }
}

impl AttributesVerb {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        let access = if self.noted.is_empty() { Access::Read } else { Access::Change };
        let store = session.store(access).await?;
        let attributes = match self.noted.is_empty() {
            true => Table::store_attributes(&*store).await?,
            false => Table::note_store(&*store, &self.noted.into_iter().collect()).await?,
        };
        show(session, &attributes, |_| true)
    }
}

async fn info(session: &Session) -> Result<(), Failure> {
    let opened = session.open(Access::Read).await?;
    let capabilities = opened.store.capabilities();
    let attributes = match Table::store_attributes(&*opened.store).await {
        Ok(attributes) => Ok(attributes),
        // What the store supports is known all the same.
        Err(damage) if damage.kind() == ErrorKind::Corrupt => Err(damage.to_string()),
        Err(error) => return Err(error.into()),
    };
    if session.output.is_json() {
        return session.output.json(&info_json(&opened.place, &capabilities, &attributes));
    }
    let limits = capabilities.limits;
    let classes: Vec<&str> = capabilities.durability.iter().copied().map(Durability::name).collect();
    let rows = [
        ("store", opened.place),
        ("durability", format!("{}; default {}", classes.join(", "), capabilities.durability_default.name())),
        ("partition key", format!("up to {}", Size(limits.partition_key_bytes as u64))),
        ("sort key", format!("up to {}", Size(limits.sort_key_bytes as u64))),
        ("value", format!("up to {}", Size(limits.value_bytes))),
        ("value in a condition", format!("up to {}", Size(limits.condition_bytes as u64))),
        (
            "batch",
            format!("up to {} operations, {}", limits.batch_operations, Size(limits.batch_bytes as u64)),
        ),
        ("scan page", format!("up to {}", Size(limits.page_bytes as u64))),
        ("waits at once", format!("up to {}", capabilities.waiters_max)),
        ("wait latency", format_duration(capabilities.wait_latency)),
        ("round trip", format_duration(capabilities.round_trip)),
        ("best parallelism", capabilities.parallelism_best.to_string()),
        ("request ids", request_memory(&capabilities)),
        (
            "upkeep",
            if opened.maintenance.is_some() { "check, stats, snapshot, copy, backup" } else { "none" }
                .to_owned(),
        ),
    ];
    rows.iter().try_for_each(|(name, text)| session.output.line(format!("{name:<22}{text}")))?;
    let attributes = match attributes {
        Ok(attributes) => attributes,
        Err(problem) => {
            return session.output.line(format!("{:<22}{}", "attributes", escape(problem.as_bytes())));
        }
    };
    // Whatever they hold, each is one line.
    let line = |(name, value): (&String, &Value)| {
        let (name, value) = (escape(name.as_bytes()), escape(shown_attribute(value).as_bytes()));
        format!("{:<22}{name} = {value}", "attribute")
    };
    attributes.iter().map(line).try_for_each(|line| session.output.line(line))
}

fn request_memory(capabilities: &Capabilities) -> String {
    let time = format_duration(capabilities.request_memory);
    match capabilities.request_memory_count {
        0 => format!("remembered for {time}"),
        count => format!("remembered for {time} and the latest {count}"),
    }
}

/// The attributes are null if they cannot be read, and then `attributes_problem` says why.
fn info_json(place: &str, capabilities: &Capabilities, attributes: &Result<Attributes, String>) -> Value {
    let limits = capabilities.limits;
    let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "store": place,
        "attributes": attributes.as_ref().ok(),
        "attributes_problem": attributes.as_ref().err(),
        "durability": capabilities.durability.iter().copied().map(Durability::name).collect::<Vec<_>>(),
        "durability_default": capabilities.durability_default.name(),
        "limits": {
            "partition_key_bytes": limits.partition_key_bytes,
            "sort_key_bytes": limits.sort_key_bytes,
            "value_bytes": limits.value_bytes,
            "condition_bytes": limits.condition_bytes,
            "batch_operations": limits.batch_operations,
            "batch_bytes": limits.batch_bytes,
            "page_bytes": limits.page_bytes,
        },
        "cheap_scans_across_large_values": capabilities.cheap_scans_across_large_values,
        "waiters_max": capabilities.waiters_max,
        "wait_latency_ns": nanoseconds(capabilities.wait_latency),
        "parallelism_best": capabilities.parallelism_best,
        "round_trip_ns": nanoseconds(capabilities.round_trip),
        "request_memory_ns": nanoseconds(capabilities.request_memory),
        "request_memory_count": capabilities.request_memory_count,
    })
}

async fn stats(session: &Session) -> Result<(), Failure> {
    let (maintenance, _) =
        session.maintenance(Access::Read, "statistics", "only stores in folders have them").await?;
    let statistics = maintenance.stats().await?;
    if session.output.is_json() {
        let object: Map<String, Value> =
            statistics.into_iter().map(|figure| (figure.name, Value::from(figure.value))).collect();
        return session.output.json(&Value::Object(object));
    }
    let width = statistics.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    statistics
        .iter()
        .try_for_each(|figure| session.output.line(format!("{:<width$}  {}", figure.name, shown(figure))))
}

/// There is only one format so far, so a store that could be opened has it.
async fn upgrade(session: &Session) -> Result<(), Failure> {
    let hint = "only stores in folders have a format of Atoll";
    let (maintenance, _) = session.maintenance(Access::Read, "an upgrade", hint).await?;
    let format = maintenance.format().await?;
    let features = if format.features.is_empty() { "none".to_owned() } else { format.features.join(", ") };
    session.output.either(
        || format!("format {}, features: {features}; nothing to do", format.number),
        || {
            json!({
                "format": format.number,
                "newest": format.newest,
                "features": format.features,
                "changed": false,
            })
        },
    )
}

fn shown(figure: &Statistic) -> String {
    match figure.unit {
        StatisticUnit::Count => figure.value.to_string(),
        StatisticUnit::Bytes => format!("{} bytes", figure.value),
        StatisticUnit::Nanoseconds => format_duration(Duration::from_nanos(figure.value)),
    }
}

impl SnapshotVerb {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        let access = if matches!(self, Self::List) { Access::Read } else { Access::Change };
        let (maintenance, _) = session.maintenance(access, "a snapshot", EXPORT_INSTEAD).await?;
        match self {
            Self::Create { name } => show_snapshot(session, &maintenance.create_snapshot(&name).await?),
            Self::Delete { name } => {
                maintenance.delete_snapshot(&name).await?;
                if session.output.is_json() {
                    session.output.json(&json!({ "deleted": name }))?;
                }
                Ok(())
            }
            Self::List => {
                let snapshots = maintenance.snapshots().await?;
                if session.output.is_json() {
                    return snapshots.iter().try_for_each(|snapshot| show_snapshot(session, snapshot));
                }
                let entries: Vec<_> = snapshots
                    .into_iter()
                    .map(|snapshot| [snapshot.name, snapshot.sequence.to_string()])
                    .collect();
                listing::show(session, [("snapshot", Side::Left), ("commit", Side::Right)], &entries)
            }
        }
    }
}

fn show_snapshot(session: &Session, snapshot: &SnapshotDescription) -> Result<(), Failure> {
    session.output.either(
        || format!("{}\tcommit {}", snapshot.name, snapshot.sequence),
        || json!({ "name": snapshot.name, "sequence": snapshot.sequence }),
    )
}

impl Copy {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        session.hint_on_interrupt("run the same `atoll store copy` again to start it over");
        session.will_change();
        let report = match session.maintenance(Access::Read, "a copy", EXPORT_INSTEAD).await {
            Err(Failure::Store(StoreError::Unfinished { what: "backup", place }))
                if self.snapshot.is_none() =>
            {
                note(&format!("a backup into {place} was not finished: this is the state it held before"));
                let tell = progress_of_copy(session);
                atoll_open::copy_last_complete(Path::new(&place), &self.folder, tell).await?
            }
            opened => {
                let (maintenance, _) = opened?;
                let (snapshot, tell) = (self.snapshot.as_deref(), progress_of_copy(session));
                maintenance.copy_to(&self.folder, snapshot, tell).await?
            }
        };
        session.output.either(
            || format!("copied {} bytes, the state of commit {}", report.bytes, report.sequence),
            || json!({ "bytes": report.bytes, "sequence": report.sequence }),
        )
    }
}

fn progress_of_copy(session: &Session) -> CopyProgress {
    let progress = Progress::bytes(Some(0), !session.output.is_json());
    Box::new(move |copied, total| {
        progress.set_total(total);
        progress.set(copied, String::new());
    })
}

impl Backup {
    // A door may report how long something took.
    #[allow(clippy::disallowed_methods)]
    async fn run(self, session: &Session) -> Result<(), Failure> {
        let (maintenance, _) = session.maintenance(Access::Change, "a backup", EXPORT_INSTEAD).await?;
        session.hint_on_interrupt("run the same `atoll store backup` again to complete it");
        let start = Instant::now();
        let report = maintenance.backup_to(&self.folder, self.full, progress_of_copy(session)).await?;
        let seconds = start.elapsed().as_secs_f64();
        session.output.either(|| backup_summary(&report, seconds), || json_of(&report, seconds))
    }
}

fn backup_summary(report: &BackupReport, seconds: f64) -> String {
    let deleted = match report.cells_deleted {
        0 => String::new(),
        deleted => format!(", deleted {deleted}"),
    };
    let since = report.since.map(|since| format!(", what changed since commit {since}")).unwrap_or_default();
    format!(
        "copied {} of {} cells{deleted}, {} bytes, in {seconds:.1} s: the state of commit {}{since}",
        report.cells_written, report.cells, report.bytes, report.sequence
    )
}

fn json_of(report: &BackupReport, seconds: f64) -> Value {
    json!({
        "cells": report.cells,
        "cells_written": report.cells_written,
        "cells_deleted": report.cells_deleted,
        "bytes": report.bytes,
        "sequence": report.sequence,
        "since": report.since,
        "seconds": seconds,
    })
}
