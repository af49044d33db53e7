//! The tables in the guide agree with the code.

#![allow(clippy::unwrap_used, clippy::panic)]

use atoll_errors::ErrorKind;
use std::path::Path;

/// The rows `| exit code | kind | ... |` of the guide.
fn rows() -> Vec<(u8, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/README.md");
    let text = std::fs::read_to_string(page).unwrap();
    let cells = text.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    cells.filter_map(|cells| Some((cells.get(1)?.parse().ok()?, cells.get(2)?.to_string()))).collect()
}

#[test]
fn the_guide_lists_every_error_kind_with_its_exit_code() {
    let listed = rows();
    for kind in ErrorKind::ALL {
        let row = (kind.names().exit, kind.code().to_owned());
        assert!(listed.contains(&row), "the guide does not say {row:?}");
    }
    // The table has one more row than there are kinds: a usage error is not an error of a store.
    assert_eq!(listed.len(), ErrorKind::ALL.len() + 1, "{listed:?}");
}
