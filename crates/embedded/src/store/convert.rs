//! The engine's errors in the contract's terms.

use atoll_disk::DiskError;
use atoll_engine::EngineError;
use atoll_errors::ErrorKind;
use atoll_store::StoreError;
use std::sync::Arc;

/// Converts a failed operation of the engine into the contract's error; `what` is the operation, `place` the
/// store.
#[must_use]
pub fn refused(what: &'static str, place: &str, error: EngineError) -> StoreError {
    let place = place.to_owned();
    if error.is_unknown() {
        let reason = error.to_string();
        return StoreError::Unknown { what, reason, source: Some(Arc::new(error)) };
    }
    match error {
        EngineError::Size { what, actual, max, .. } => StoreError::Limit { what, actual, max },
        EngineError::NewerFormat { found, supported, .. } => {
            StoreError::NewerFormat { place, found, supported }
        }
        EngineError::NewerFeature { bit, to_write, .. } => StoreError::NewerFeature { place, bit, to_write },
        EngineError::ReadOnly { .. } => StoreError::ReadOnly { place },
        EngineError::Closed { .. } => StoreError::closed(place),
        EngineError::NoSnapshot { name } => StoreError::NotFound { what: "snapshot", name },
        EngineError::SnapshotExists { name } => StoreError::Exists { what: "snapshot", name },
        EngineError::Corrupt { offset, problem, .. } => {
            StoreError::Corrupt { place: format!("{place} at offset {offset}"), problem: problem.to_string() }
        }
        EngineError::Superseded { .. } => {
            StoreError::Superseded { what: format!("the state of {place} that was read") }
        }
        EngineError::NotYetAStore { .. } => StoreError::NotFound { what: "store", name: place },
        EngineError::NotAStore { .. } => StoreError::InvalidInput {
            what: "store",
            problem: format!("{place} holds something that is not an Atoll store"),
            hint: "name the folder of a store, or an empty one for a new store",
        },
        EngineError::Poisoned { .. } | EngineError::Broken { .. } | EngineError::Fenced { .. } => {
            StoreError::Unavailable { place, reason: error.to_string(), source: None }
        }
        error => match error.kind() {
            ErrorKind::OutOfSpace => StoreError::OutOfSpace { place, source: Some(Arc::new(error)) },
            ErrorKind::ReadOnly if is_denied(&error) => StoreError::Denied { place, source: Arc::new(error) },
            ErrorKind::ReadOnly => StoreError::ReadOnly { place },
            ErrorKind::Corrupt => StoreError::Corrupt { place, problem: told(&error) },
            _ => StoreError::Failed { what, place, source: Arc::new(error) },
        },
    }
}

/// Whether the medium is writable, but this user may not write to it.
fn is_denied(error: &EngineError) -> bool {
    matches!(error, EngineError::Disk(disk) if disk.source.kind() == std::io::ErrorKind::PermissionDenied)
}

/// What is wrong with the bytes. For a file that is too short, the offset explains little, so the text says
/// that it was cut.
fn told(error: &EngineError) -> String {
    let is_short = |disk: &DiskError| disk.source.kind() == std::io::ErrorKind::UnexpectedEof;
    match error {
        EngineError::Disk(disk) if is_short(disk) => format!(
            "{error}: the file ends before that; it was cut, or only a part of it was copied: copy it again from where it is whole"
        ),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_only_writing_needs_leads_to_reading() {
        for to_write in [true, false] {
            let error = EngineError::NewerFeature { store: "./s/store.atoll".to_owned(), bit: 3, to_write };
            let error = refused("open", "./s", error);
            assert_eq!(error.kind(), ErrorKind::NewerFormat);
            assert!(error.to_string().starts_with("./s has feature bit 3, which"), "{error}");
            let hint = error.hint().unwrap();
            assert!(
                hint.starts_with("use a newer atoll") && hint.contains("mode=read") == to_write,
                "{hint}"
            );
        }
    }
}
