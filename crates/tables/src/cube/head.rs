//! The head of an object of cubes: the lengths of its sections, and checksums of what is read first.
//!
//! ```text
//! magic 8 | format 4 | directory length 4 | rows 8 | length of all bands 8 | schema 8 | directory sum 8
//! | length of the statistics 4 | length of the filters 4 | head sum 8
//! ```
//! Room is reserved for statistics; no release writes them yet.
//!
//! Invariant: a head that decodes is intact and of a format that this release reads.

use super::fields::Fields;
use crate::block::{BlockError, HEAD_BYTES, checksum, damaged};

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLCUB");

/// The only format that is read; earlier ones were never released.
const FORMAT: u32 = 3;

/// The head of an object of cubes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) directory_bytes: u32,
    pub(super) rows: u64,
    pub(super) bands_bytes: u64,
    pub(super) schema: u64,
    pub(super) directory_sum: u64,
    pub(super) statistics_bytes: u32,
    pub(super) filters_bytes: u32,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.directory_bytes.to_le_bytes());
        let sections = u64::from(self.filters_bytes) << 32 | u64::from(self.statistics_bytes);
        let words = [self.rows, self.bands_bytes, self.schema, self.directory_sum, sections];
        for (place, word) in words.into_iter().enumerate() {
            bytes[16 + place * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&bytes[..HEAD_BYTES - 8]);
        bytes[HEAD_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BlockError> {
        let bytes = bytes.get(..HEAD_BYTES).ok_or_else(|| damaged("it has no head"))?;
        let mut fields = Fields::new(bytes);
        if fields.u64()? != MAGIC {
            return Err(damaged("it does not begin as an object of cubes does"));
        }
        let (found, directory_bytes) = (fields.u32()?, fields.u32()?);
        let [rows, bands_bytes, schema, directory_sum] =
            [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let (statistics_bytes, filters_bytes, sum) = (fields.u32()?, fields.u32()?, fields.u64()?);
        if sum != checksum(&bytes[..HEAD_BYTES - 8]) {
            return Err(damaged("its head does not match its checksum"));
        }
        if found > FORMAT {
            return Err(BlockError::NewerFormat { found, supported: FORMAT });
        }
        if found < FORMAT {
            let problem = format!("it has format {found}, which no release wrote; append the rows again");
            return Err(damaged(problem));
        }
        Ok(Self {
            directory_bytes,
            rows,
            bands_bytes,
            schema,
            directory_sum,
            statistics_bytes,
            filters_bytes,
        })
    }
}
