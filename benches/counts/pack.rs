//! Packing: everything into as few trees as possible, and what that took.

use super::open;
use crate::measure::cpu_seconds;
use crate::peers::EngineError;
use atoll_tables::{PackOptions, PackReport, Table};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// What packing took.
#[derive(Serialize)]
struct Packed {
    /// From the open store until the new version was true.
    seconds: f64,
    /// CPU seconds of all threads, for that.
    cpu_seconds: f64,
    /// Bytes of the objects that the table consists of now.
    bytes: u64,
    /// What the pack says of itself.
    report: PackReport,
}

/// Packs a table, and writes what it took to `out`.
pub async fn pack(folder: &Path, table: &str, out: &Path) -> Result<(), EngineError> {
    let store = open(folder).await?;
    let table = Table::open(Arc::clone(&store), table).await?;
    let (before, started) = (cpu_seconds(), Instant::now());
    let report = table.pack(&PackOptions::whole()).await?;
    let (cpu_seconds, seconds) = (cpu_seconds() - before, started.elapsed().as_secs_f64());
    let packed = Packed { seconds, cpu_seconds, bytes: table.info().await?.bytes, report };
    std::fs::write(out, serde_json::to_string(&packed)?)?;
    drop(table);
    store.close().await?;
    Ok(())
}
