//! A real process that owns a store until another one takes it over.
//!
//! Invariant: the process prints a number only after the synced write of that number returned, and `fenced`
//! with the token of its heir as its last words.

use atoll_disk::{FileDisk, Mode};
use atoll_engine::{Durability, Engine, EngineError, Options};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// An owner that is never fenced ends after so many writes, and fails.
const WRITES_MAX: u64 = 20_000;
/// A checkpoint after every so many writes, so that a claim may meet one.
const CHECKPOINT_EVERY: u64 = 50;

/// Options of every owner of such a store.
#[must_use]
pub fn options() -> Options {
    Options { log_segment_bytes: 256 << 10, memory_bytes: 16 << 20, ..Options::default() }
}

/// The value of a number.
#[must_use]
pub fn value(number: u64) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(10) { 2000 } else { 50 }]
}

/// Writes numbers, each synced, until another owner claims the store.
///
/// # Errors
/// Any error but the one of a claim; [`EngineError::Closed`] if there was no claim.
pub fn write_until_fenced(path: &Path, token: u64) -> Result<(), EngineError> {
    let disk = FileDisk::open(path, Mode::Create)?;
    let engine = Engine::attach(Arc::new(disk), token, options())?;
    let tree = engine.tree("t")?;
    let mut out = std::io::stdout().lock();
    for number in 0..WRITES_MAX {
        let put = tree.put(&number.to_be_bytes(), &value(number), Durability::Synced);
        let wrote = match put {
            Ok(_) => {
                let told = writeln!(out, "{number}").and_then(|()| out.flush());
                if told.is_err() {
                    break;
                }
                if number % CHECKPOINT_EVERY == 0 { engine.checkpoint().map(|_| ()) } else { Ok(()) }
            }
            Err(error) => Err(error),
        };
        match wrote {
            Ok(()) => {}
            Err(EngineError::Fenced { newest, .. }) => {
                // A parent that does not listen any more has failed already.
                let _ = writeln!(out, "fenced {newest}").and_then(|()| out.flush());
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Err(EngineError::Closed { store: path.display().to_string() })
}
