//! Space for which the disk had no room: others are allocated in its place, and it counts as a hole.

use super::{BLOCK, Extent, Space, UNIT};
use atoll_errors::ErrorKind;

impl Space {
    /// Whether free space that is known to have blocks is preferred to what fits best.
    pub(crate) fn avoid_holes(&mut self, avoids: bool) {
        self.free.avoids_holes = avoids;
    }

    /// Another extent in the place of `refused`, a writer's, which stays allocated. Only free space of the
    /// file will do.
    pub(crate) fn allocate_instead(&mut self, refused: Extent) -> Option<Extent> {
        let len = refused.len.next_multiple_of(UNIT);
        let offset = self.free.fitting(len.next_multiple_of(BLOCK))?;
        let extent = Extent { offset, len };
        self.free.carve(extent);
        let taken =
            if self.in_flight.contains(&refused) { &mut self.in_flight } else { &mut self.since_freeze };
        taken.push(extent);
        Some(extent)
    }

    /// Takes back an extent that could not be written, and must not be tried again at once if the disk had no
    /// room for it.
    pub(crate) fn give_back(&mut self, extent: Extent, error: ErrorKind) {
        match error {
            ErrorKind::OutOfSpace => self.refuse(extent),
            _ => self.cancel(extent),
        }
    }

    /// Takes back an allocation of a writer for which the disk had no room.
    pub(crate) fn refuse(&mut self, extent: Extent) {
        self.since_freeze.retain(|other| *other != extent);
        self.released(&[(extent, true)]);
    }
}
