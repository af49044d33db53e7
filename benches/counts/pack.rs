//! Packs everything into as few trees as possible and measures the cost.

use super::open;
use crate::measure::cpu_seconds;
use crate::peers::EngineError;
use atoll_tables::{PackOptions, PackReport, Table};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The cost of packing.
#[derive(Serialize)]
struct Packed {
    /// From opening the store until the new version was in effect.
    seconds: f64,
    /// CPU seconds of all threads in that time.
    cpu_seconds: f64,
    /// Bytes of the objects that now make up the table.
    bytes: u64,
    /// The report of the pack itself.
    report: PackReport,
}

/// Packs a table and writes the cost to `out`.
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
