//! Random identifiers, drawn from the system.

use crate::CouncilError;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// Draws 64 random bits from the system: no two draws can be expected to be the same.
pub(crate) fn draw() -> Result<u64, CouncilError> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let read = getrandom(rest, GetRandomFlags::empty());
        filled += read.map_err(|error| CouncilError::System {
            action: "draw a random number",
            source: io::Error::from(error),
        })?;
    }
    Ok(u64::from_le_bytes(bytes))
}
