//! All that a scan finds, page after page.
//!
//! Only for what is few beside the rows of a table: its names, its edits, its snapshots.

use atoll_store::{ScanEntry, ScanRequest, Store, StoreError};

/// The entries of all pages, in the order of the scan.
pub(in crate::table) async fn all_entries(
    store: &dyn Store,
    mut request: ScanRequest,
) -> Result<Vec<ScanEntry>, StoreError> {
    let mut entries = Vec::new();
    loop {
        let page = store.scan(request.clone()).await?;
        entries.extend(page.entries);
        request.resume = page.resume;
        if request.resume.is_none() {
            return Ok(entries);
        }
    }
}
