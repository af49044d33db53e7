//! Entry point for the fuzzer: any bytes may come in, nothing may panic.

use crate::{Location, OpenOptions, StoreUrl};

/// Reads the bytes as a store URL.
///
/// Returns whether they name a store, so that a fuzzer sees that it gets past the surface.
#[must_use]
pub fn url(bytes: &[u8]) -> bool {
    let Ok(url) = StoreUrl::parse(&String::from_utf8_lossy(bytes)) else { return false };
    if let Location::Folder(path) = &url.location {
        assert!(!path.as_os_str().is_empty(), "a folder without a name");
    }
    let _ = url.apply_to(&OpenOptions::default());
    true
}
