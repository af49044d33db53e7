//! One task waits for a result, another one delivers it: waiting costs nothing until the value changes. In
//! practice the two are different processes that open the same folder.
//!
//! Run it with `cargo run -p atoll-open --example wait_for_result -- ./jobs`.

use atoll_open::OpenOptions;
use atoll_store::{Buffer, Cell, Durability, Expectation, Store, Waited, WriteOptions};
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "./jobs".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&folder, &mut std::io::stdout().lock()))
}

/// Opens the store, and lets a worker deliver while the caller waits.
pub(crate) async fn run(folder: &str, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let store = atoll_open::open(folder, &OpenOptions::default()).await?;
    let worker = tokio::spawn(deliver(Arc::clone(&store)));
    let state = Cell::new(b"jobs/17", b"state");
    let done = Expectation::Equals(Some(Buffer::from(b"done".to_vec())));
    match store.wait(state, done, Duration::from_secs(60)).await? {
        Waited::Met(_) => {
            let result = store.get(Cell::new(b"jobs/17", b"result"), Default::default()).await?;
            let text = result.map(|value| String::from_utf8_lossy(&value).into_owned());
            writeln!(out, "the job delivered {}", text.as_deref().unwrap_or("nothing"))?;
        }
        Waited::TimedOut => writeln!(out, "the job is still not done")?,
    }
    worker.await??;
    store.close().await?;
    Ok(())
}

/// Writes the result before the state, so that a reader who sees `done` finds the result.
async fn deliver(store: Arc<dyn Store>) -> Result<(), atoll_store::StoreError> {
    let must_survive_power_loss = WriteOptions::durable(Durability::Synced);
    store.put(Cell::new(b"jobs/17", b"result"), b"42", must_survive_power_loss).await?;
    store.put(Cell::new(b"jobs/17", b"state"), b"done", must_survive_power_loss).await?;
    Ok(())
}
