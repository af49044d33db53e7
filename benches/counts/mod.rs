//! Counts of work: what questions touch, read and request, counted below the tables, at the store's
//! contract.
//!
//! The Python half of the bench writes rows and questions to files and starts this program, which returns
//! one object for each question. Counts do not depend on the machine, so noise cannot affect them.
//!
//! Invariant: a table is opened afresh before it is asked; what it keeps in memory from one question to the
//! next counts as it would for a user.
//! counts as it would for a user.

mod adapter;
mod ask;
mod load;
mod pack;
mod questions;

pub use ask::count;
pub use load::{Rows, Way, load, write_into};
pub use pack::pack;

use crate::peers::EngineError;
use atoll_store::Store;
use std::path::Path;
use std::sync::Arc;

/// Opens a folder or a URL as a user would.
pub async fn open(folder: &Path) -> Result<Arc<dyn Store>, EngineError> {
    let url = folder.to_str().ok_or("the folder's name is not UTF-8")?;
    Ok(atoll_open::open(url, &atoll_open::OpenOptions::default()).await?)
}
