//! Parts that were opened, kept so that the next query need not open them again.
//!
//! What an object holds never changes, so nothing here is ever out of date; it is only forgotten.
//!
//! Invariant: what is kept takes about [`BYTES_MAX`] at most.

use crate::part::Part;
use crate::planted::{self, Bug};
use crate::protocol::{ObjectId, SessionId};
use atoll_store::Buffer;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of all that is kept, about.
/// The directories of some hundred million rows fit; queries of small boxes open few of them.
const BYTES_MAX: usize = 512 << 20;

/// How much larger a directory is in memory than in its object.
const TIMES_LARGER: usize = 5;

/// A part, opened.
#[derive(Clone, Debug)]
pub(super) struct OpenPart {
    pub(super) part: Arc<Part>,
    /// The bytes that were read to open it.
    pub(super) front: Buffer,
}

/// What was opened lately, and before that.
#[derive(Default)]
struct Kept {
    young: HashMap<ObjectId, OpenPart>,
    young_bytes: usize,
    old: HashMap<ObjectId, OpenPart>,
}

/// Opened parts of one table.
#[derive(Default)]
pub(super) struct Parts {
    kept: Mutex<Kept>,
}

impl Parts {
    pub(super) fn get(&self, object: ObjectId) -> Option<OpenPart> {
        let object = told_apart(object);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.young.get(&object) {
            return Some(found.clone());
        }
        let found = kept.old.remove(&object)?;
        kept.keep(object, found.clone());
        Some(found)
    }

    pub(super) fn put(&self, object: ObjectId, part: OpenPart) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(told_apart(object), part);
    }
}

/// By what parts are told apart: their whole name, but for a bug.
fn told_apart(object: ObjectId) -> ObjectId {
    let session = if planted::is(Bug::PartsMixedUp) { SessionId(0) } else { object.session };
    ObjectId { session, ..object }
}

impl Kept {
    fn keep(&mut self, object: ObjectId, part: OpenPart) {
        let filters = part.part.filters_at().map_or(0, |at| at.end - at.start) as usize;
        let bytes = part.front.len() * (1 + TIMES_LARGER) + filters;
        // Half of what may be kept is young; what was not used while that half filled is forgotten.
        if self.young_bytes + bytes > BYTES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(object, part).is_none() {
            self.young_bytes += bytes;
        }
    }
}
