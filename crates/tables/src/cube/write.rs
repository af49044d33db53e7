//! Writing a tree: rows into cubes, cubes into bands, bands into objects.

use super::bands::NewBand;
use super::directory::{CubeEntry, NewDirectory};
use super::filter::{put_filter, seal_filters};
use super::head::Head;
use super::tree::{Cube, CubeId, Places, Root, grow};
use super::{Origins, Shape, band, column};
use crate::block::{BlockError, HEAD_BYTES, check, checksum, damaged, schema_sum};
use crate::lattice::{Extent, joined};
use crate::{IndexColumn, TableSchema, Weight};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow_select::take::take_record_batch;
use std::sync::Arc;

/// Bytes of a seal.
pub(super) const SEAL_BYTES: usize = 8;

/// An object of a tree, encoded.
#[derive(Clone, Debug)]
pub struct CubeObject {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How many of them, at its front, tell what lies where.
    pub front_bytes: u64,
    /// What its rows span in each index column.
    pub extents: Vec<Extent>,
    /// Rows in it.
    pub rows: u64,
    /// Cubes in it.
    pub cubes: usize,
    /// The least and the greatest weight of its rows.
    pub weights: (Weight, Weight),
    /// The runs of its rows.
    pub runs: Vec<crate::protocol::RunId>,
    /// The first and the last step of its rows.
    pub steps: (u64, u64),
}

/// What one object holds: layers of cubes.
type Portion = Vec<Layer>;

/// One layer of a cube, in bands.
#[derive(Debug)]
struct Layer {
    cube: CubeId,
    layer: u8,
    bands: Vec<band::BandRows>,
}

/// Rows grown into a tree, ready to be encoded object by object.
#[derive(Debug)]
pub struct Tree<'r> {
    schema: &'r TableSchema,
    rows: &'r RecordBatch,
    weights: &'r [Weight],
    origins: &'r Origins,
    root: Root,
    portions: Vec<Portion>,
}

impl<'r> Tree<'r> {
    /// Grows a tree over rows that are in the order of (weight, id).
    ///
    /// # Errors
    /// As [`crate::block::encode_block`].
    pub fn grow(
        schema: &'r TableSchema,
        rows: &'r RecordBatch,
        weights: &'r [Weight],
        origins: &'r Origins,
        shape: &Shape,
    ) -> Result<Self, BlockError> {
        check(schema, rows)?;
        if weights.len() != rows.num_rows() || origins.rows() != rows.num_rows() || !weights.is_sorted() {
            return Err(damaged("rows to pack have no weights and origins in their order"));
        }
        let root = Root::around(schema, rows)?;
        let places = root.places(schema, rows)?;
        let row_bytes = rows.get_array_memory_size() / rows.num_rows().max(1) + 1;
        let steps = step_column(schema, rows, origins.steps());
        let is_steps = |index: &IndexColumn| index.element.is_none() && Some(index.place) == steps;
        let steps_axis = schema.index().iter().position(is_steps);
        let portions = portions(grow(&places, shape), &places, steps_axis, shape, row_bytes);
        Ok(Self { schema, rows, weights, origins, root, portions })
    }

    /// Encodes its objects, one after another.
    pub fn objects(&self) -> impl Iterator<Item = Result<CubeObject, BlockError>> {
        self.portions.iter().map(|portion| self.encode_object(portion))
    }

    fn encode_object(&self, portion: &Portion) -> Result<CubeObject, BlockError> {
        let order: Vec<u32> =
            portion.iter().flat_map(|layer| layer.bands.iter().flatten().copied()).collect();
        let origins = self.origins.taken(&order);
        let weights: Vec<Weight> = order.iter().map(|&row| self.weights[row as usize]).collect();
        let rows = take_record_batch(self.rows, &UInt32Array::from(order))?;
        let hidden = Hidden::of(self.schema, &rows, &origins);
        let mut directory = NewDirectory::new(self.root.clone(), hidden.names.clone(), hidden.step_column);
        let (mut bytes, mut filters, mut from) = (Vec::new(), Vec::new(), 0);
        for layer in portion {
            let first = directory.bands.len();
            for band in &layer.bands {
                let range = from..from + band.len();
                from = range.end;
                let columns: Vec<ArrayRef> =
                    rows.columns().iter().map(|column| column.slice(range.start, range.len())).collect();
                let columns = [columns, hidden.slices(range.start, range.len())].concat();
                let weights = &weights[range];
                directory.bands.push(encode_band(self.schema, &columns, weights, &mut bytes)?);
                if self.schema.samples_entities() {
                    put_filter(weights, &mut filters);
                }
            }
            let bands = first..directory.bands.len();
            directory.cubes.push(CubeEntry { id: layer.cube, layer: layer.layer, bands });
        }
        if !filters.is_empty() {
            seal_filters(&mut filters);
        }
        let sections = Sections { filters, bands: bytes };
        Ok(assemble(self.schema, directory, &sections, &weights, &origins))
    }
}

/// Which cubes share an object: those of one level that follow each other along the curve through their codes.
/// A sample needs whole levels, from the root down, and a box a stretch of each.
fn portions(
    mut cubes: Vec<Cube>,
    places: &Places,
    steps_axis: Option<usize>,
    shape: &Shape,
    row_bytes: usize,
) -> Vec<Portion> {
    cubes.sort_by_key(|cube| cube.id);
    let all: Vec<u32> = cubes.iter().flat_map(|cube| cube.rows.iter().copied()).collect();
    let scale = band::scale(places, &all, steps_axis);
    let mut portions: Vec<Portion> = Vec::new();
    let mut bytes = usize::MAX;
    for cube in cubes {
        let of_cube = cube.rows.len() * row_bytes;
        if bytes.saturating_add(of_cube) > shape.object_bytes {
            portions.push(Portion::new());
            bytes = 0;
        }
        bytes += of_cube;
        let layers = band::layers(&cube, places, &scale, shape).into_iter();
        let layers = (0..).zip(layers).map(|(layer, bands)| Layer { cube: cube.id, layer, bands });
        if let Some(portion) = portions.last_mut() {
            portion.extend(layers);
        }
    }
    // A sample reads the beginning of an object, its lightest layers. The others lie cube by cube, since who needs
    // those is in a box and needs all layers of few cubes: one stretch for each, not one for each layer.
    portions.iter_mut().for_each(|portion| portion.sort_by_key(|layer| layer.layer.min(1)));
    portions
}

/// What a row keeps beside its columns.
struct Hidden {
    names: Vec<crate::protocol::RunId>,
    /// The column that is the step of every row.
    step_column: Option<usize>,
    columns: Vec<ArrayRef>,
}

impl Hidden {
    fn of(schema: &TableSchema, rows: &RecordBatch, origins: &Origins) -> Self {
        let mut names: Vec<_> = origins.runs().to_vec();
        names.sort_unstable();
        names.dedup();
        let place = |run: &u32| names.binary_search(run).unwrap_or_default() as u32;
        let runs: Vec<u32> = origins.runs().iter().map(place).collect();
        let step_column = step_column(schema, rows, origins.steps());
        let mut columns: Vec<ArrayRef> = Vec::new();
        if names.len() > 1 {
            columns.push(Arc::new(UInt32Array::from(runs)));
        }
        if step_column.is_none() {
            columns.push(Arc::new(UInt64Array::from(origins.steps().to_vec())));
        }
        let names = names.iter().map(|&run| origins.names()[run as usize].clone()).collect();
        Self { names, step_column, columns }
    }

    fn slices(&self, from: usize, rows: usize) -> Vec<ArrayRef> {
        self.columns.iter().map(|column| column.slice(from, rows)).collect()
    }
}

/// A column that holds the step already, as the tables of most simulations do.
fn step_column(schema: &TableSchema, rows: &RecordBatch, steps: &[u64]) -> Option<usize> {
    (0..schema.columns().fields().len()).find(|&place| {
        let found = super::origin::steps_of(rows.column(place));
        found.is_some_and(|found| found == steps)
    })
}

fn encode_band(
    schema: &TableSchema,
    columns: &[ArrayRef],
    weights: &[Weight],
    bytes: &mut Vec<u8>,
) -> Result<NewBand, BlockError> {
    let extents = schema.index_values(columns)?.iter().map(Extent::of).collect::<Result<_, _>>()?;
    let mut lengths = Vec::with_capacity(columns.len());
    for column in columns {
        let start = bytes.len();
        column::encode(column, bytes)?;
        let seal = seal(&bytes[start..], start as u64);
        bytes.extend_from_slice(&seal.to_le_bytes());
        lengths.push((bytes.len() - start) as u64);
    }
    Ok(NewBand::new(weights, extents, lengths))
}

/// What follows a column: a checksum that also knows where the column lies, counted from the first band.
pub(super) fn seal(column: &[u8], offset: u64) -> u64 {
    twox_hash::XxHash3_64::oneshot_with_seed(offset, column)
}

/// What follows the directory.
struct Sections {
    filters: Vec<u8>,
    bands: Vec<u8>,
}

fn assemble(
    schema: &TableSchema,
    directory: NewDirectory,
    sections: &Sections,
    weights: &[Weight],
    origins: &Origins,
) -> CubeObject {
    let encoded = directory.encode();
    let head = Head {
        directory_bytes: encoded.len() as u32,
        rows: directory.rows(),
        bands_bytes: sections.bands.len() as u64,
        schema: schema_sum(schema),
        directory_sum: checksum(&encoded),
        statistics_bytes: 0,
        filters_bytes: sections.filters.len() as u32,
    };
    // A portion has a row at least.
    let least = |weight: Option<&Weight>| weight.copied().unwrap_or(Weight::LEAST);
    let (first, last) = (origins.steps().iter().min(), origins.steps().iter().max());
    CubeObject {
        front_bytes: (HEAD_BYTES + encoded.len()) as u64,
        extents: joined(directory.bands.iter().map(|band| band.extents.as_slice())),
        bytes: [&head.encode()[..], &encoded, &sections.filters, &sections.bands].concat(),
        rows: directory.rows(),
        cubes: directory.cubes.iter().filter(|cube| cube.layer == 0).count(),
        weights: (least(weights.iter().min()), least(weights.iter().max())),
        steps: (first.copied().unwrap_or_default(), last.copied().unwrap_or_default()),
        runs: directory.runs,
    }
}
