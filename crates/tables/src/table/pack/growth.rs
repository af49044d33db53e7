//! Growth: a tree of cubes becomes objects of the store, and these become part of a version.
//!
//! While objects are on their way, the next ones are encoded: who packs waits for a store only where that is
//! the slower of the two.
//!
//! Invariant: what is named in an edit was acknowledged by the store before.

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

/// Objects that are on their way at the same time, at most.
pub(super) const ON_THEIR_WAY_MAX: usize = 16;

/// A tree as it lies in the store.
pub(super) struct Grown {
    pub(super) pieces: Vec<Piece>,
    pub(super) cubes: u64,
}

impl Table {
    /// Creates the objects of a tree, in the name of a session: all of them, or, on an error, none that
    /// stays.
    pub(super) async fn write_tree(
        &self,
        tree: &Tree,
        session: SessionId,
        threads: usize,
        pace: &mut Pace<'_>,
    ) -> Result<Grown, TableError> {
        let (mut begun, mut on_their_way) = (Vec::new(), FuturesOrdered::new());
        let growing = async {
            let mut grown = Grown { pieces: Vec::with_capacity(tree.object_count()), cubes: 0 };
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
                // They begin, or go on, and are heard of once they are done.
                while let Some(Some(piece)) = on_their_way.next().now_or_never() {
                    grown.pieces.push(piece?);
                }
                while on_their_way.len() > ON_THEIR_WAY_MAX {
                    grown.pieces.extend(on_their_way.next().await.transpose()?);
                }
                pace.rest().await?;
            }
            while let Some(piece) = on_their_way.next().await {
                grown.pieces.push(piece?);
            }
            Ok(grown)
        };
        let grown: Result<Grown, TableError> = growing.await;
        if grown.is_err() {
            // No version will name them, and no vacuum takes them as long as this session lasts, in which the
            // same may be tried again and again. None comes after it was removed once all have ended.
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

    /// Makes an edit true that names new objects, unless the session has ended under which they were written:
    /// those may be swept at any time, and unless the table has some of these ids already. They go if the
    /// edit is true in no version.
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
            // No version names them or ever will, and otherwise they would stay as long as this session does;
            // what is left all the same goes with a vacuum.
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
        // Nobody else ends or begins a session meanwhile.
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
    // Tight, so that a sample leaves out what lies deep without opening it.
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
