//! The format that a store has on disk, for callers that consider an upgrade.
//!
//! A store of a newer format is refused when it is opened, and so is one with a feature that this build does
//! not know: one that is needed to read refuses every opening, one that is needed to write refuses an opening
//! for writing, and an optional one refuses none.

use crate::engine::Engine;
use crate::superblock::{DELTAS, FORMAT, MOVED_RANGES, UNCOUNTED};
use std::sync::atomic::Ordering;

/// Every feature that a build has to know to read a store, with its name for people.
const NAMES: [(u64, &str); 3] =
    [(MOVED_RANGES, "moved-ranges"), (UNCOUNTED, "uncounted-trees"), (DELTAS, "records-beside-leaves")];

/// The format of an open store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its number.
    pub number: u32,
    /// The newest format that this build writes.
    pub newest: u32,
    /// Names of the features that a build has to know to read it.
    pub features: Vec<&'static str>,
}

impl Engine {
    /// The format of the store.
    #[must_use]
    pub fn format(&self) -> Format {
        let noted = self.shared.features.load(Ordering::Relaxed);
        let features = NAMES.into_iter().filter(|(bit, _)| noted & bit != 0).map(|(_, name)| name).collect();
        Format { number: FORMAT, newest: FORMAT, features }
    }
}

#[cfg(test)]
mod tests {
    use super::NAMES;
    use crate::checksum::checksum;
    use crate::superblock::{COPIES, KNOWN_TO_READ};
    use crate::{Durability, Engine, EngineError, Options};
    use atoll_disk::{Disk, MemoryDisk};
    use atoll_errors::ErrorKind;
    use std::sync::Arc;

    /// A bit that no feature has.
    const BIT: u32 = 41;

    fn options(read_only: bool) -> Options {
        Options { background: false, log_segment_bytes: 64 << 10, read_only, ..Options::default() }
    }

    /// The bytes of a store with one record, whose superblocks both have the unknown bit in the features at
    /// `offset`.
    fn with_unknown_feature(offset: usize) -> Vec<u8> {
        let disk = Arc::new(MemoryDisk::new());
        let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options(false)).unwrap();
        engine.tree("t").unwrap().put(b"key", b"value", Durability::Synced).unwrap();
        engine.close().unwrap();
        let mut bytes = disk.to_bytes();
        for copy in COPIES {
            let superblock = &mut bytes[copy as usize..][..4096];
            superblock[offset + BIT as usize / 8] |= 1 << (BIT % 8);
            let sum = checksum(u64::from_le_bytes(*b"ATOLLST1"), &superblock[..4088]);
            superblock[4088..].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    /// Checks what opening the bytes does; returns the bytes after that.
    fn after_opening(bytes: &[u8], read_only: bool, refused_to_write: Option<bool>) -> Vec<u8> {
        let disk = Arc::new(MemoryDisk::with_bytes(bytes.to_vec()));
        let opened = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options(read_only));
        match (opened, refused_to_write) {
            (Ok(engine), None) => {
                let value = engine.tree("t").unwrap().get(b"key").unwrap().unwrap();
                assert_eq!(*value.to_buffer().unwrap(), *b"value");
                assert!(engine.check().unwrap().damage.is_empty());
                engine.close().unwrap();
            }
            (Err(EngineError::NewerFeature { store, bit, to_write }), Some(expected)) => {
                assert_eq!((bit, to_write), (BIT, expected));
                let error = EngineError::NewerFeature { store, bit, to_write };
                assert_eq!(error.kind(), ErrorKind::NewerFormat);
                let text = error.to_string();
                assert!(text.contains("feature bit 41") && text.contains("use a newer atoll"), "{text}");
            }
            (opened, expected) => panic!("{:?}, not {expected:?}", opened.err()),
        }
        disk.to_bytes()
    }

    #[test]
    fn an_unknown_feature_refuses_what_it_is_needed_for_and_nothing_else() {
        let to_read = with_unknown_feature(16);
        assert!(after_opening(&to_read, true, Some(false)) == to_read);
        assert!(after_opening(&to_read, false, Some(false)) == to_read);
        let to_write = with_unknown_feature(24);
        assert!(after_opening(&to_write, true, None) == to_write, "reading changes nothing");
        assert!(after_opening(&to_write, false, Some(true)) == to_write, "nor does a refusal");
        let optional = with_unknown_feature(32);
        assert!(after_opening(&optional, true, None) == optional);
        let written = after_opening(&optional, false, None);
        for copy in COPIES {
            assert_eq!(
                written[copy as usize + 32..][..8],
                [0; 8],
                "a build that does not know it has written"
            );
        }
    }

    #[test]
    fn every_feature_that_is_needed_to_read_a_store_has_a_name() {
        assert_eq!(NAMES.iter().fold(0, |bits, (bit, _)| bits | bit), KNOWN_TO_READ);
    }
}
