//! Counts of work: what questions touch, read and request, taken below the tables, at the store's contract.
//!
//! The Python half of the bench writes rows and questions to files and starts this program; what comes back is one
//! object for each question. Counts do not depend on the machine, so they are the figures that noise cannot touch.
//!
//! Invariant: the figures are those of a store that was opened anew, with nothing of the table in memory.

mod adapter;
mod ask;
mod load;
mod questions;

pub use ask::count;
pub use load::load;

use crate::peers::EngineError;
use atoll_store::Store;
use std::path::Path;
use std::sync::Arc;

/// Opens a folder as any user would.
async fn open(folder: &Path) -> Result<Arc<dyn Store>, EngineError> {
    let url = folder.to_str().ok_or("the folder's name is not UTF-8")?;
    Ok(atoll_open::open(url, &atoll_open::OpenOptions::default()).await?)
}
