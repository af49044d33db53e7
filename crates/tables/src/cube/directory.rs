//! The directory of an object of cubes: its cubes and bands, their extents, and where they lie.
//!
//! ```text
//! layers of cubes 4 | bands 4 | columns of a band 4 | index columns 4 | runs 4 | step column + 1 4
//! | runs: (length 4, name)… | axes: (cell exponent 4, low 16, bits 4)…
//! | words: levels, codes, sides, layers and numbers of bands of the layers of the cubes
//! | for each index column, words: flags, least and greatest values of the layers
//! | the bands, as `bands` says | 8 zero bytes
//! ```
//!
//! Invariant: decoding is total, and allocates no more than the bytes given allow or [`BANDS_MAX`] bands
//! take.

use super::bands::{BANDS_MAX, BandHead, Bands, NewBand, extents_at, find_extents, put_bands, put_extents};
use super::fields::Fields;
use super::head::Head;
use super::rank::Rank;
use super::words::{SLACK_BYTES, put_words};
use super::{CubeId, Root};
use crate::block::{BlockError, checksum, damaged};
use crate::lattice::{Axis, Extent, Span, joined};
use crate::protocol::RunId;
use crate::{TableSchema, Weight};
use std::ops::Range;
use std::sync::Arc;

/// A layer of a cube in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CubeEntry {
    /// The cube in its tree.
    pub id: CubeId,
    /// The layer of the cube; 0 is the lightest.
    pub layer: u8,
    /// The places of its bands.
    pub bands: Range<usize>,
}

/// The directory of an object that is being written.
#[derive(Clone, Debug)]
pub(super) struct NewDirectory {
    pub(super) root: Root,
    pub(super) runs: Vec<RunId>,
    pub(super) step_column: Option<usize>,
    pub(super) cubes: Vec<CubeEntry>,
    pub(super) bands: Vec<NewBand>,
}

/// The layout of an object of cubes.
#[derive(Clone, Debug)]
pub struct CubeDirectory {
    /// The lattice of the tree.
    pub root: Root,
    /// The runs of its rows. If there are several, each band has a hidden column of places in this list.
    pub runs: Arc<[RunId]>,
    /// The column that equals the step in which each row was written. Without one, each band has a hidden
    /// column of steps.
    pub step_column: Option<usize>,
    /// The layers of the cubes in the order of the object: all lightest ones first, then cube by cube.
    pub cubes: Vec<CubeEntry>,
    rows: u64,
    pub(super) bands: Bands,
    /// The extents of each layer.
    pub(super) spans: Vec<Vec<Extent>>,
    /// Bounds of the weights of each layer: the least and the greatest.
    pub(super) weights: Vec<(Weight, Weight)>,
}

/// The number of hidden columns of a band: the run if there are several, and the step if no column equals it.
const fn hidden_columns(runs: &[RunId], step_column: Option<usize>) -> usize {
    (runs.len() > 1) as usize + step_column.is_none() as usize
}

fn ranks(root: &Root) -> Vec<Rank> {
    root.axes().iter().map(|axis| Rank::of(axis.data_type())).collect()
}

impl NewDirectory {
    pub(super) const fn new(root: Root, runs: Vec<RunId>, step_column: Option<usize>) -> Self {
        Self { root, runs, step_column, cubes: Vec::new(), bands: Vec::new() }
    }

    pub(super) fn rows(&self) -> u64 {
        self.bands.iter().map(|band| u64::from(band.head.rows)).sum()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let columns = self.bands.first().map_or(0, |band| band.lengths.len());
        let step_column = self.step_column.map_or(0, |place| place + 1);
        let axes = self.root.axes().len();
        for count in [self.cubes.len(), self.bands.len(), columns, axes, self.runs.len(), step_column] {
            bytes.extend_from_slice(&(count as u32).to_le_bytes());
        }
        for run in &self.runs {
            bytes.extend_from_slice(&(run.0.len() as u32).to_le_bytes());
            bytes.extend_from_slice(run.0.as_bytes());
        }
        for (axis, span) in self.root.axes().iter().zip(self.root.spans()) {
            bytes.extend_from_slice(&axis.cell_exponent().to_le_bytes());
            bytes.extend_from_slice(&span.low().to_le_bytes());
            bytes.extend_from_slice(&u32::from(span.bits()).to_le_bytes());
        }
        let ranks = ranks(&self.root);
        self.put_cubes(&ranks, &mut bytes);
        put_bands(&self.bands, &ranks, columns, &mut bytes);
        bytes.extend_from_slice(&[0; SLACK_BYTES]);
        bytes
    }

    fn put_cubes(&self, ranks: &[Rank], bytes: &mut Vec<u8>) {
        let mut put = |word: &dyn Fn(&CubeEntry) -> u64| {
            put_words(&self.cubes.iter().map(word).collect::<Vec<_>>(), bytes);
        };
        put(&|cube| cube.id.level.into());
        put(&|cube| cube.id.code);
        put(&|cube| cube.id.is_side.into());
        put(&|cube| cube.layer.into());
        put(&|cube| cube.bands.len() as u64);
        let span = |cube: &CubeEntry| {
            joined(self.bands[cube.bands.clone()].iter().map(|band| band.extents.as_slice()))
        };
        let spans: Vec<Vec<Extent>> = self.cubes.iter().map(span).collect();
        put_extents(spans.iter().map(Vec::as_slice), ranks, bytes);
    }
}

impl CubeDirectory {
    /// The number of rows of all cubes.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// The number of hidden columns of a band: the run if there are several, and the step if no column equals
    /// it.
    pub(super) fn hidden_columns(&self) -> usize {
        hidden_columns(&self.runs, self.step_column)
    }

    /// Reads the directory of an object with this head.
    pub(super) fn decode(head: &Head, schema: &TableSchema, bytes: &[u8]) -> Result<Self, BlockError> {
        if checksum(bytes) != head.directory_sum {
            return Err(damaged("its directory does not match its checksum"));
        }
        let mut fields = Fields::new(bytes);
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = fields.u32()? as usize;
        }
        let [cubes, bands, columns, axes, runs, step_column] = counts;
        let (step_column, of_table) = (step_column.checked_sub(1), schema.columns().fields().len());
        let about_others = axes != schema.index().len() || step_column.is_some_and(|place| place >= of_table);
        if about_others || cubes > bands || bands > BANDS_MAX {
            return Err(damaged("its directory describes other columns"));
        }
        let runs = (0..runs).map(|_| fields.run()).collect::<Result<Arc<[_]>, _>>()?;
        let root = read_root(&mut fields, schema)?;
        if bands > 0 && columns != of_table + hidden_columns(&runs, step_column) {
            return Err(damaged("its directory describes other columns"));
        }
        let ranks = ranks(&root);
        let cubes = read_cubes(&mut fields, cubes, bands)?;
        let spans = find_extents(&mut fields, &ranks, cubes.len())?;
        let spans = (0..cubes.len()).map(|cube| extents_at(&spans, bytes, cube).collect()).collect();
        let bands = Bands::decode(&mut fields, bytes, bands, &ranks, columns)?;
        let rows = bands.heads().iter().map(|band| u64::from(band.rows)).sum();
        // Where the bands end is added to the bytes in front of them later; the bound rules out an overflow.
        if rows != head.rows || bands.end() != head.bands_bytes || bands.end() > u64::MAX / 2 {
            return Err(damaged("its directory contradicts itself"));
        }
        let weights = cubes.iter().map(|cube| weights(&bands.heads()[cube.bands.clone()])).collect();
        Ok(Self { root, runs, step_column, cubes, rows, bands, spans, weights })
    }
}

/// The least and the greatest weight of some bands.
fn weights(bands: &[BandHead]) -> (Weight, Weight) {
    let least = bands.iter().map(|band| band.least).min().unwrap_or(Weight::GREATEST);
    let greatest = bands.iter().map(|band| band.greatest).max().unwrap_or(least);
    (least, greatest)
}

fn read_root(fields: &mut Fields<'_>, schema: &TableSchema) -> Result<Root, BlockError> {
    let (mut axes, mut spans) = (Vec::new(), Vec::new());
    for &index in schema.index() {
        let cell_exponent = fields.take().map(i32::from_le_bytes)?;
        let low = fields.take().map(i128::from_le_bytes)?;
        let bits = u8::try_from(fields.u32()?).ok();
        let span = bits.and_then(|bits| Span::new(low, bits));
        axes.push(Axis::with_cells(schema.index_type(index), cell_exponent)?);
        spans.push(span.ok_or_else(|| damaged("its root is not a root"))?);
    }
    Ok(Root::new(axes, spans))
}

fn read_cubes(fields: &mut Fields<'_>, cubes: usize, bands: usize) -> Result<Vec<CubeEntry>, BlockError> {
    let (levels, codes) = (fields.words(cubes)?, fields.words(cubes)?);
    let (sides, layers, counts) = (fields.words(cubes)?, fields.words(cubes)?, fields.words(cubes)?);
    let mut from = 0_usize;
    let mut entries = Vec::with_capacity(cubes);
    for (place, count) in counts.into_iter().enumerate() {
        let to = usize::try_from(count).ok().and_then(|count| from.checked_add(count));
        let to = to.filter(|to| *to <= bands).ok_or_else(|| damaged("its cubes have too many bands"))?;
        let small = |number: u64| u8::try_from(number).map_err(|_| damaged("a cube lies too deep"));
        let id = CubeId { level: small(levels[place])?, code: codes[place], is_side: sides[place] != 0 };
        entries.push(CubeEntry { id, layer: small(layers[place])?, bands: from..to });
        from = to;
    }
    if from == bands { Ok(entries) } else { Err(damaged("a band is in no cube")) }
}
