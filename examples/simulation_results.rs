//! A simulation writes what it computes, one atomic step after the other, and another part of the program
//! reads a range of it in order.
//!
//! Run it with `cargo run -p atoll-open --example simulation_results -- ./results`.

use atoll_open::OpenOptions;
use atoll_store::{Batch, ScanRequest, SortRange, Store, StoreError, WriteOptions};
use std::error::Error;
use std::io::Write;
use std::ops::Bound;

/// Steps of the toy simulation.
const STEPS: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "./results".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&folder, &mut std::io::stdout().lock()))
}

/// Opens the store, computes, and reads the end of the run back.
pub(crate) async fn run(folder: &str, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let store = atoll_open::open(folder, &OpenOptions::default()).await?;
    let first = resume_at(&*store).await?;
    for step in first..STEPS {
        record(&*store, step).await?;
    }
    writeln!(out, "computed {} steps", STEPS - first)?;

    // Sort keys are compared byte by byte, so numbers are written with leading zeros.
    let range = SortRange {
        from: Bound::Included(b"energy/00017".to_vec()),
        to: Bound::Excluded(b"energy0".to_vec()),
    };
    let page = store.scan(ScanRequest { range, ..ScanRequest::all("run-7") }).await?;
    for entry in page.entries {
        writeln!(
            out,
            "{} = {}",
            String::from_utf8_lossy(&entry.sort),
            String::from_utf8_lossy(&entry.value)
        )?;
    }
    store.close().await?;
    Ok(())
}

/// The first step that is not in the store: 0, or the one at which an earlier run was interrupted.
async fn resume_at(store: &dyn Store) -> Result<u32, Box<dyn Error>> {
    let done = store.get(atoll_store::Cell::new(b"run-7", b"steps"), Default::default()).await?;
    Ok(match done {
        Some(value) => std::str::from_utf8(&value)?.parse()?,
        None => 0,
    })
}

/// Writes the results of one step and the count of steps together: after a crash both are there, or neither.
/// The condition refuses the step if another process computed it meanwhile.
async fn record(store: &dyn Store, step: u32) -> Result<(), StoreError> {
    let energy = -1.25 - f64::from(step) / 1000.0;
    let before = (step > 0).then(|| step.to_string().into_bytes());
    let batch = Batch::on("run-7")
        .if_is("steps", before)
        .put("steps", (step + 1).to_string().into_bytes())
        .put(format!("energy/{step:05}"), format!("{energy:.3}").into_bytes());
    store.write(batch, WriteOptions::default()).await.map(drop)
}
