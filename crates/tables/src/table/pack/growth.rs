//! Growth: writes the objects of a tree of cubes and commits them to a version.
//!
//! While some objects are being stored, the next ones are encoded: a pack waits for the store only where that
//! is the slower of the two.
//!
//! Invariant: the store has acknowledged every object before an edit names it.

use super::super::codec::tight_box;
use super::super::ledger::{Fate, create};
use super::super::query::{NewIds, Repeats};
use super::super::{Table, TableError};
use super::in_new_cubes;
use super::pace::Pace;
use crate::cube::{CubeObject, Tree};
use crate::protocol::{Edit, Extent, Form, ObjectId, Piece, RunId, SessionId, StepRange, WeightRange};
use crate::room::give_back_object;
use crate::threads::map;
use atoll_store::{Cell, Outcome};
use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt};
use std::sync::Arc;

/// Maximum number of objects being stored concurrently.
pub(super) const OBJECTS_IN_FLIGHT_MAX: usize = 16;

/// A tree written to the store.
pub(super) struct WrittenTree {
    pub(super) pieces: Vec<Piece>,
    pub(super) cubes: u64,
}

impl Table {
    /// Creates the objects of a tree under a session: all of them or, on an error, none that stays.
    pub(super) async fn write_tree(
        &self,
        tree: &Tree,
        session: SessionId,
        threads: usize,
        pace: &mut Pace<'_>,
    ) -> Result<WrittenTree, TableError> {
        let (mut begun, mut on_their_way) = (Vec::new(), FuturesOrdered::new());
        let growing = async {
            let mut grown = WrittenTree { pieces: Vec::with_capacity(tree.object_count()), cubes: 0 };
            let numbers: Vec<usize> = (0..tree.object_count()).collect();
            for numbers in numbers.chunks(threads) {
                for object in map(numbers, threads, |&number| tree.object(number)) {
                    let object = object.map_err(in_new_cubes)?;
                    grown.cubes += object.cubes as u64;
                    pace.moved(object.bytes.len());
                    let name = self.ledger.new_object_of(session);
                    begun.push(name);
                    on_their_way.push_back(self.create_cubes(name, object));
                }
                // Polls the writes, so that they start or continue, and collects those that are done.
                while let Some(Some(piece)) = on_their_way.next().now_or_never() {
                    grown.pieces.push(piece?);
                }
                while on_their_way.len() > OBJECTS_IN_FLIGHT_MAX {
                    grown.pieces.extend(on_their_way.next().await.transpose()?);
                }
                pace.rest().await?;
            }
            while let Some(piece) = on_their_way.next().await {
                grown.pieces.push(piece?);
            }
            Ok(grown)
        };
        let grown: Result<WrittenTree, TableError> = growing.await;
        if grown.is_err() {
            // No version will name these objects, and no vacuum removes them while this session lasts, in
            // which the same may be tried again and again. All writes must end first, so that none creates an
            // object after its removal.
            while on_their_way.next().await.is_some() {}
            let _ = self.remove_objects(&begun).await;
        }
        grown
    }

    async fn create_cubes(&self, name: ObjectId, object: CubeObject) -> Result<Piece, TableError> {
        let partition = self.names.object(name);
        create(&*self.store, Cell::new(&partition, b""), &object.bytes).await?;
        let piece = piece(name, &object);
        give_back_object(object.bytes);
        Ok(piece)
    }

    /// Commits an edit that names new objects, unless the table already has some of the ids, or the session
    /// has ended under which the objects were written, since those may be removed at any time. Removes the
    /// objects if the edit is in no version.
    pub(super) async fn commit_written(
        &self,
        edit: Edit,
        session: SessionId,
        written: &[ObjectId],
        ids: Vec<Arc<NewIds>>,
    ) -> Result<Fate, TableError> {
        let committed = self.commit_under(edit, session, ids).await;
        let is_refused = match &committed {
            Ok(fate) => matches!(fate, Fate::Refused(_) | Fate::Fenced),
            Err(error) => error.outcome() == Outcome::Refused,
        };
        if is_refused {
            // No version names them or ever will, and they would stay as long as this session. What is not
            // removed here goes with a vacuum.
            let _ = self.remove_objects(written).await;
        }
        committed
    }

    async fn commit_under(
        &self,
        edit: Edit,
        session: SessionId,
        ids: Vec<Arc<NewIds>>,
    ) -> Result<Fate, TableError> {
        // The turn keeps others from ending or beginning a session in the meantime.
        let _turn = self.ledger.turn().await;
        if self.ledger.session().await?.id != session {
            return Ok(Fate::Fenced);
        }
        let mut repeats = Repeats::of(self, ids);
        self.ledger.commit_checked(edit, Some(&mut repeats)).await
    }
}

fn piece(object: ObjectId, encoded: &CubeObject) -> Piece {
    let (first, last) = encoded.steps;
    let run: Option<RunId> = match encoded.runs.as_slice() {
        [run] => Some(run.clone()),
        _ => None,
    };
    // A tight range lets a sample skip deep cubes without opening them.
    let (least, greatest) = encoded.weights;
    let weights = WeightRange { from: least.get(), to: greatest.get().checked_add(1) };
    Piece {
        object,
        part: 0,
        form: Form::Cube,
        weights,
        rows: encoded.rows,
        bytes: encoded.bytes.len() as u64,
        front_bytes: encoded.front_bytes,
        extent: Extent { run, steps: StepRange { from: first, to: last.checked_add(1) } },
        tight: Some(tight_box(&encoded.extents)),
    }
}
