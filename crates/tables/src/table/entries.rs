//! Reads a scan to its end, page by page.
//!
//! Only for data that is small compared with the rows of a table: names, edits, snapshots.

use atoll_store::{ScanEntry, ScanRequest, Store, StoreError};

/// The entries of all pages, in scan order.
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
