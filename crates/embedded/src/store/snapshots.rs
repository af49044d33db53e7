//! Named snapshots of a store, made by its owner.

use super::EmbeddedStore;
use crate::attach::Snapshots;
use atoll_store::{StoreError, StoreFuture};

/// The longest name of a snapshot, in bytes.
const NAME_BYTES_MAX: usize = 255;

impl Snapshots for EmbeddedStore {
    fn create_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            check_name(name)?;
            let name = name.to_owned();
            self.off_thread("create_snapshot", move |inner| {
                let commit = inner.engine.create_snapshot(&name);
                commit.map(|commit| commit.sequence).map_err(|error| inner.refused("create_snapshot", error))
            })
            .await
        })
    }

    fn delete_snapshot<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()> {
        let name = name.to_owned();
        Box::pin(self.off_thread("delete_snapshot", move |inner| {
            let deleted = inner.engine.delete_snapshot(&name);
            deleted.map(drop).map_err(|error| inner.refused("delete_snapshot", error))
        }))
    }
}

/// Names are listed one per line, so nothing in a name may break a line.
fn check_name(name: &str) -> Result<(), StoreError> {
    let problem = match name {
        "" => "it is empty".to_owned(),
        _ if name.len() > NAME_BYTES_MAX => format!("it has {} bytes", name.len()),
        _ if name.chars().any(char::is_control) => "it holds control characters".to_owned(),
        _ => return Ok(()),
    };
    let hint = "a name has 1 to 255 bytes of printable text";
    Err(StoreError::InvalidInput { what: "snapshot name", problem, hint })
}
