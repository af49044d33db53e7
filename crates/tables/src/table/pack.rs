//! Packing: rewrites what writers appended as trees of cubes, in which the cost of a query is proportional to
//! what it returns.
//!
//! A pack reads one version, writes its objects with `create`, and commits one edit. A pack that loses
//! against another packer discards what it wrote and starts again. Small trees are merged into larger ones,
//! as in a log-structured merge tree: a row is rewritten each time its tree grows by a factor of
//! [`PackOptions::fan`].
//!
//! Invariant: a pack changes no answer, except for the order of rows of equal weight and id. A crash at any
//! point leaves objects that no version names, which a vacuum removes.

mod background;
mod growth;
mod input;
mod load;
mod loader;
mod pace;
mod plan;
mod progress;
mod stop;

use super::ledger::Fate;
use super::{Table, TableError};
use crate::block::BlockError;
use crate::cube::{Shape, Tree};
use crate::protocol::{Edit, EditError, Manifest, ObjectId, Removal, Version};
use crate::threads::threads;
use input::Input;
use pace::Pace;
use plan::{Bounds, Group, Horizon};
use progress::Telling;
use std::ops::AddAssign;
use stop::Stop;

pub use background::KeepPacked;
pub(super) use background::LEASE_KEY;
pub use load::WholeStep;
pub use loader::Loader;
pub use progress::PackProgress;

/// How often a pack that lost to another packer or a delete is tried.
const ATTEMPTS_MAX: usize = 5;

/// During packing, the process keeps this many times the bytes of a tree's rows instead of returning them to
/// the system. That is more than a tree takes (see [`PackOptions::tree_bytes_max`]), so the next tree finds
/// its memory allocated.
const TREE_TIMES: usize = 6;

/// A pack needs this many times as many rows as a query to start another thread: about half a million rows
/// per thread.
const BEHIND_TIMES: usize = 16;

/// Options of a pack.
#[derive(Clone, Debug, PartialEq)]
pub struct PackOptions {
    /// How trees are divided into cubes and bands.
    pub shape: Shape,
    /// Whether to rewrite everything into as few trees as possible, whatever the cost. Otherwise only as much
    /// is rewritten as keeps the number of trees and blocks small.
    pub is_whole: bool,
    /// Blocks are not packed while all of them together have fewer rows than this.
    pub rows_min: u64,
    /// How many trees of similar size are merged into one of the next size; at least 2.
    pub fan: usize,
    /// Maximum number of bytes of rows that one tree is made from, in objects or in memory, whichever are
    /// more: values that are all equal, or null, take no space until they are unpacked. Rows of less than 27
    /// bytes (43 with more than four index columns) count as somewhat more, for what a tree keeps beside each
    /// row. A pack needs about four times this much memory, 2 GiB by default (docs/guide/bad-input.md has the
    /// measurement). Larger tables have several trees. An existing tree is packed as a whole, even if it
    /// exceeds the limit by now.
    pub tree_bytes_max: u64,
    /// Whether to pack blocks however few they are, together with the trees that are at most
    /// [`PackOptions::fan`] times as large, and then each tree that as many deletes strike. Meant for a table
    /// at rest.
    pub is_settling: bool,
    /// The share of one processor that a pack may use, above 0 and at most 1. With a share of 1, a pack of a
    /// million rows or more, which suggests a backlog, uses several processors.
    pub share: f64,
    /// Maximum number of bytes that a pack reads and writes per second, both together; unlimited if `None`.
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
    /// Packs everything into as few trees as possible.
    #[must_use]
    pub fn whole() -> Self {
        Self { is_whole: true, rows_min: 0, ..Self::default() }
    }

    /// Number of threads for a pack of this many rows: one, unless it may use a whole processor and has so
    /// many rows that there seems to be a backlog.
    fn threads(&self, rows: u64) -> usize {
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        if self.share < 1.0 { 1 } else { threads(rows / BEHIND_TIMES) }
    }

    /// Checks that the options are valid.
    ///
    /// # Errors
    /// [`TableError::PackOptions`] with the problem.
    pub fn validate(&self) -> Result<(), TableError> {
        let problem = if self.fan < 2 {
            "the fan of a pack must be at least 2"
        } else if !(self.share > 0.0 && self.share <= 1.0) {
            "the share of a processor must be above 0 and at most 1"
        } else if self.bytes_per_second == Some(0) {
            "a pack that may move no bytes never ends"
        } else if !self.shape.is_valid() {
            "no number of a shape may be 0"
        } else {
            return Ok(());
        };
        Err(TableError::PackOptions { problem })
    }
}

/// What a pack did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PackReport {
    /// The last version that it made; `None` if there was nothing to do.
    pub version: Option<u64>,
    /// Trees written.
    pub trees: u64,
    /// Objects that were replaced.
    pub objects_before: u64,
    /// Objects that replaced them.
    pub objects_after: u64,
    /// Cubes written.
    pub cubes: u64,
    /// Rows written.
    pub rows: u64,
    /// Rows left out because they had been struck.
    pub dropped: u64,
    /// Bytes of the objects read.
    pub bytes_read: u64,
    /// Bytes of the objects written, including those of lost races.
    pub bytes_written: u64,
    /// How often another packer or a delete was faster.
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
    /// Packs whatever is worth packing; reports what was done. Idempotent, and safe in any process. What
    /// others append, load or pack in the meantime is left to the next call.
    ///
    /// # Errors
    /// [`TableError::PackOptions`], [`TableError::Block`] for damage, [`TableError::Edit`] if others were
    /// faster again and again, errors of the store.
    pub async fn pack(&self, options: &PackOptions) -> Result<PackReport, TableError> {
        self.pack_with_progress(options, &|_| {}).await
    }

    /// Packs as [`Table::pack`] does, and calls `told` with the progress: as each object has been read or
    /// written, and as each tree is done.
    ///
    /// # Errors
    /// Those of [`Table::pack`].
    pub async fn pack_with_progress(
        &self,
        options: &PackOptions,
        told: &(dyn Fn(PackProgress) + Send + Sync),
    ) -> Result<PackReport, TableError> {
        self.pack_until(options, told, &Stop::never()).await
    }

    /// Packs until nothing is worth packing or the signal is given. In the latter case, the tree in progress
    /// is discarded, and the report has those before it.
    async fn pack_until(
        &self,
        options: &PackOptions,
        told: &(dyn Fn(PackProgress) + Send + Sync),
        stop: &Stop,
    ) -> Result<PackReport, TableError> {
        options.validate()?;
        let mut report = PackReport::default();
        let (mut lost, mut horizon, mut moved) = (0, None, 0);
        while !stop.is_given() {
            let state = self.ledger.current().await?;
            let horizon = horizon.get_or_insert_with(|| Horizon::at(state.manifest.version));
            // New objects have only the columns of this table, even if it is part of a union.
            let table = Self { also: std::sync::Arc::default(), ..self.clone() }.at(&state.manifest)?;
            let batch_bytes = self.store.capabilities().limits.batch_bytes;
            let bounds = Bounds::new(&table.schema, batch_bytes);
            let Some(group) = plan::next(&state.manifest, horizon, bounds, options) else {
                break;
            };
            let telling = Telling::new(told, moved, group.bytes_of_objects(), group.bytes_after());
            let packed = table.pack_group(&state.manifest, &group, options, &mut report, telling, stop).await;
            let packed = match packed {
                Err(error) => Err(self.if_vacuumed(state.manifest.version, error).await),
                packed => packed,
            };
            match packed {
                Ok(version) => {
                    report.version = Some(version.0);
                    horizon.made(version);
                    (lost, moved) = (0, telling.end());
                }
                // Another packer may have packed these pieces in the meantime, and a vacuum removed them.
                Err(
                    TableError::Edit(EditError::InputGone { .. })
                    | TableError::Fenced { .. }
                    | TableError::VersionGone { .. },
                ) if lost + 1 < ATTEMPTS_MAX => {
                    lost += 1;
                    report.lost += 1;
                }
                Err(TableError::Stopped) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }

    /// Packs one group of pieces into one tree.
    async fn pack_group(
        &self,
        manifest: &Manifest,
        group: &Group,
        options: &PackOptions,
        report: &mut PackReport,
        telling: Telling<'_>,
        stop: &Stop,
    ) -> Result<Version, TableError> {
        let mut pace = Pace::begin(self, options).await?.telling(telling).until(stop);
        let threads = options.threads(group.rows());
        let input = Input::read(self, manifest, group, threads, &mut pace).await?;
        let dropped = input.dropped;
        let mut add = Vec::new();
        let session = self.ledger.session().await?.id;
        let rows = input.rows.num_rows() as u64;
        let bytes_read = input.bytes;
        if rows > 0 {
            let Input { rows, weights, origins, .. } = input;
            let tree = Tree::grow(&self.schema, rows, weights.into_vec(), origins, &options.shape, threads);
            let written = self.write_tree(&tree.map_err(in_new_cubes)?, session, threads, &mut pace).await?;
            report.bytes_written += written.pieces.iter().map(|piece| piece.bytes).sum::<u64>();
            report.cubes += written.cubes;
            add = written.pieces;
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
        let version = match self.commit_written(edit, session, &written, Vec::new()).await? {
            Fate::Made(version, _) => version,
            Fate::Refused(error) => return Err(error.into()),
            Fate::Fenced => return Err(TableError::Fenced { table: self.name.clone() }),
            Fate::Forgotten => return Err(TableError::Forgotten { table: self.name.clone() }),
        };
        report.trees += u64::from(after > 0);
        report.objects_before += before;
        report.objects_after += after;
        report.rows += rows;
        report.dropped += dropped;
        Ok(version)
    }
}

fn in_new_cubes(source: BlockError) -> TableError {
    TableError::Block { object: "new cubes".to_owned(), source }
}
