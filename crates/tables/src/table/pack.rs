//! Packing: what writers appended becomes trees of cubes, in which a query finds its rows at the cost of what it
//! returns.
//!
//! A pack reads one version, writes its objects with `create`, and becomes true by one edit; whoever loses
//! against another packer discards what it wrote and starts again. Small trees are merged into larger ones as in
//! a log-structured merge: a row is written once for each time that a tree grows by [`PackOptions::fan`].
//!
//! Invariant: a pack changes no answer. A crash at any point leaves objects that no version names, and a vacuum
//! takes those.

mod background;
mod input;
mod pace;
mod plan;

use super::codec::tight_box;
use super::ledger::{Fate, create};
use super::{Table, TableError};
use crate::block::BlockError;
use crate::cube::{CubeObject, Shape, Tree};
use crate::protocol::{
    Edit, EditError, Extent, Form, Manifest, ObjectId, Piece, Removal, SessionId, StepRange, Version,
    WeightRange,
};
use crate::threads::{map, threads};
use atoll_store::{Cell, Outcome};
use input::Input;
use pace::Pace;
use plan::Group;
use std::ops::AddAssign;

pub use background::KeepPacked;

/// How often a pack is tried that another packer or a delete overtook.
const ATTEMPTS_MAX: usize = 5;

/// How many times as many rows as for a query it takes until a pack begins another thread: about half a million for each.
const BEHIND_TIMES: usize = 16;

/// How to pack.
#[derive(Clone, Debug, PartialEq)]
pub struct PackOptions {
    /// How trees are cut.
    pub shape: Shape,
    /// Whether everything is to become as few trees as possible, whatever that costs. Otherwise only as much is
    /// rewritten as keeps the number of trees and blocks small.
    pub is_whole: bool,
    /// Blocks are left alone while all of them together have fewer rows than this.
    pub rows_min: u64,
    /// How many trees of about one size become one of the next size, at least 2.
    pub fan: usize,
    /// Bytes of objects that one tree is made from, at most; the memory that a pack takes is about three times
    /// this, and larger tables have several trees.
    pub tree_bytes_max: u64,
    /// Whether blocks are packed however few they are, with the trees that are at most [`PackOptions::fan`] times
    /// as large: what a table at rest deserves.
    pub is_settling: bool,
    /// The share of one processor that a pack may take, above 0 and at most 1. With all of one, a pack of a million rows
    /// and more, which seems to be behind, takes others too.
    pub share: f64,
    /// Bytes that a pack may read and write a second, both together; as many as it can for none.
    pub bytes_per_second: Option<u64>,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self {
            shape: Shape::default(),
            is_whole: false,
            rows_min: 1 << 17,
            fan: 4,
            tree_bytes_max: 512 << 20,
            is_settling: false,
            share: 1.0,
            bytes_per_second: None,
        }
    }
}

impl PackOptions {
    /// Everything into as few trees as possible.
    #[must_use]
    pub fn whole() -> Self {
        Self { is_whole: true, rows_min: 0, ..Self::default() }
    }

    /// Processors that a pack of so many rows may take: one, unless it may have all of its time and has so many rows that
    /// it seems to be behind.
    fn threads(&self, rows: u64) -> usize {
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        if self.share < 1.0 { 1 } else { threads(rows / BEHIND_TIMES) }
    }

    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// [`TableError::PackOptions`] with what is wrong.
    pub fn validate(&self) -> Result<(), TableError> {
        let problem = if self.fan < 2 {
            "the fan of a pack is 2 at least"
        } else if !(self.share > 0.0 && self.share <= 1.0) {
            "the share of a processor lies above 0 and is at most 1"
        } else if self.bytes_per_second == Some(0) {
            "a pack that may move no bytes never ends"
        } else if !self.shape.is_valid() {
            "no number of a shape is 0"
        } else {
            return Ok(());
        };
        Err(TableError::PackOptions { problem })
    }
}

/// What a pack did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PackReport {
    /// The number of the version that it made last; none if there was nothing to do.
    pub version: Option<u64>,
    /// Trees that were written.
    pub trees: u64,
    /// Objects that were replaced, and by how many.
    pub objects_before: u64,
    /// See above.
    pub objects_after: u64,
    /// Cubes that were written.
    pub cubes: u64,
    /// Rows that were written.
    pub rows: u64,
    /// Rows that were left out because they had been struck.
    pub dropped: u64,
    /// Bytes of the objects that were read.
    pub bytes_read: u64,
    /// Bytes of the objects that were written, those of lost races included.
    pub bytes_written: u64,
    /// How often another packer, or a delete, was faster.
    pub lost: u64,
}

impl AddAssign for PackReport {
    fn add_assign(&mut self, more: Self) {
        self.version = more.version.or(self.version);
        self.trees += more.trees;
        self.objects_before += more.objects_before;
        self.objects_after += more.objects_after;
        self.cubes += more.cubes;
        self.rows += more.rows;
        self.dropped += more.dropped;
        self.bytes_read += more.bytes_read;
        self.bytes_written += more.bytes_written;
        self.lost += more.lost;
    }
}

impl Table {
    /// Packs what is worth packing; answers what was done. Doing it again is harmless, in any process.
    ///
    /// # Errors
    /// [`TableError::PackOptions`], [`TableError::Block`] for damage, [`TableError::Edit`] where others were faster
    /// again and again, errors of the store.
    pub async fn pack(&self, options: &PackOptions) -> Result<PackReport, TableError> {
        options.validate()?;
        let mut report = PackReport::default();
        let (mut lost, mut up_to) = (0, None);
        loop {
            let state = self.ledger.current().await?;
            let up_to = *up_to.get_or_insert(state.manifest.version);
            let Some(group) = plan::next(&state.manifest, up_to, options) else { return Ok(report) };
            // What is written has the columns of this table alone, though it be one of a union.
            let table = Self { also: std::sync::Arc::default(), ..self.clone() }.at(&state.manifest)?;
            let packed = match table.pack_group(&state.manifest, &group, options, &mut report).await {
                Err(error) => Err(self.if_vacuumed(state.manifest.version, error).await),
                packed => packed,
            };
            match packed {
                Ok(version) => {
                    report.version = Some(version.0);
                    lost = 0;
                }
                // What is packed here may have been packed, and its pieces swept, meanwhile.
                Err(
                    TableError::Edit(EditError::InputGone { .. })
                    | TableError::Fenced { .. }
                    | TableError::VersionGone { .. },
                ) if lost + 1 < ATTEMPTS_MAX => {
                    lost += 1;
                    report.lost += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes one tree of some pieces.
    async fn pack_group(
        &self,
        manifest: &Manifest,
        group: &Group,
        options: &PackOptions,
        report: &mut PackReport,
    ) -> Result<Version, TableError> {
        let mut pace = Pace::begin(self, options).await?;
        let threads = options.threads(group.rows());
        let input = Input::read(self, manifest, group, threads, &mut pace).await?;
        let dropped = input.dropped;
        let mut add = Vec::new();
        let session = self.ledger.session().await?.id;
        let rows = input.rows.num_rows() as u64;
        let bytes_read = input.bytes;
        if rows > 0 {
            let Input { rows, weights, origins, .. } = input;
            let tree = Tree::grow(&self.schema, rows, weights, origins, &options.shape, threads);
            let tree = tree.map_err(in_new_cubes)?;
            let numbers: Vec<usize> = (0..tree.object_count()).collect();
            for numbers in numbers.chunks(threads) {
                for object in map(numbers, threads, |&number| tree.object(number)) {
                    let object = object.map_err(in_new_cubes)?;
                    let name = self.ledger.new_object_of(session);
                    let partition = self.names.object(name);
                    create(&*self.store, Cell::new(&partition, b""), &object.bytes).await?;
                    report.bytes_written += object.bytes.len() as u64;
                    report.cubes += object.cubes as u64;
                    add.push(piece(name, &object));
                    pace.moved(object.bytes.len());
                    pace.rest().await?;
                }
            }
        }
        let (before, after) = (group.pieces.len() as u64, add.len() as u64);
        let remove = group.pieces.iter().map(|placed| Removal {
            object: placed.piece.object,
            part: placed.piece.part,
            weights: placed.piece.weights,
            rows: placed.piece.rows,
        });
        let written: Vec<ObjectId> = add.iter().map(|piece| piece.object).collect();
        let edit = Edit::Pack { base: manifest.version, remove: remove.collect(), add, dropped };
        report.bytes_read += bytes_read;
        let committed = self.commit_pack(edit, session).await;
        if let Err(error) = &committed
            && error.outcome() == Outcome::Refused
        {
            // No version names them or ever will, and otherwise they would stay as long as this session does; what is
            // left all the same goes with a vacuum.
            let _ = self.remove_objects(&written).await;
        }
        let version = committed?;
        report.trees += u64::from(after > 0);
        report.objects_before += before;
        report.objects_after += after;
        report.rows += rows;
        report.dropped += dropped;
        Ok(version)
    }
}

impl Table {
    /// Makes a pack true, unless the session has ended under which its objects were written: those may be swept
    /// at any time.
    async fn commit_pack(&self, edit: Edit, session: SessionId) -> Result<Version, TableError> {
        let fenced = || TableError::Fenced { table: self.name.clone() };
        // Nobody else ends or begins a session meanwhile.
        let _turn = self.ledger.turn().await;
        if self.ledger.session().await?.id != session {
            return Err(fenced());
        }
        match self.ledger.commit_once(edit).await? {
            Fate::Made(version) => Ok(version),
            Fate::Refused(error) => Err(error.into()),
            Fate::Fenced => Err(fenced()),
            Fate::Forgotten => Err(TableError::Forgotten { table: self.name.clone() }),
        }
    }
}

fn piece(object: ObjectId, encoded: &CubeObject) -> Piece {
    let (first, last) = encoded.steps;
    let run = match encoded.runs.as_slice() {
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

fn in_new_cubes(source: BlockError) -> TableError {
    TableError::Block { object: "new cubes".to_owned(), source }
}
