//! Writing a tree: rows into cubes, cubes into bands, bands into objects.

use super::bands::{BANDS_MAX, NewBand};
use super::directory::{CubeEntry, NewDirectory};
use super::filter::{put_filter, seal_filters};
use super::head::Head;
use super::hidden::HiddenOfTree;
use super::layers::{self, BandRows};
use super::origin::says_steps;
use super::reorder::rearranged;
use super::sizes::RowBytes;
use super::source::{Room, Source};
use super::tree::{AXES_FEW, CubeId, Root, Spot};
use super::{Origins, Shape};
use crate::block::{BlockError, HEAD_BYTES, check, checksum, damaged, schema_sum};
use crate::lattice::{Extent, joined};
use crate::protocol::RunId;
use crate::room::{Lent, buffer, object};
use crate::threads::{map, map_owned};
use crate::weight::order_of_rows;
use crate::{IndexColumn, TableSchema, Weight};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_buffer::ScalarBuffer;
use atoll_store::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// Length of a seal in bytes.
pub(super) const SEAL_BYTES: usize = 8;

/// An encoded object of a tree.
#[derive(Clone, Debug)]
pub struct CubeObject {
    /// The encoded object.
    pub bytes: Buffer,
    /// Length of head and directory together, at its front.
    pub front_bytes: u64,
    /// The extent of its rows in each index column.
    pub extents: Vec<Extent>,
    /// Number of rows.
    pub rows: u64,
    /// Number of cubes that begin in it.
    pub cubes: usize,
    /// The least and the greatest weight of its rows.
    pub weights: (Weight, Weight),
    /// The runs of its rows.
    pub runs: Vec<RunId>,
    /// The first and the last step of its rows.
    pub steps: (u64, u64),
}

/// A layer of a cube, or some bands of one.
#[derive(Debug)]
struct Layer {
    cube: CubeId,
    layer: u8,
    /// Whether the cube begins with it.
    is_first: bool,
    /// The range of rows of each band.
    bands: Vec<Range<usize>>,
}

/// The planned contents of one object.
#[derive(Debug)]
struct Portion {
    layers: Vec<Layer>,
    /// The approximate size of its rows in bytes.
    bytes: usize,
}

/// Rows grown into a tree, ready to be encoded object by object.
#[derive(Debug)]
pub struct Tree {
    schema: Arc<TableSchema>,
    root: Root,
    /// The columns of the table, in the final order of the rows: a band is a few consecutive rows.
    sources: Vec<Source>,
    weights: Lent<Weight>,
    hidden: HiddenOfTree,
    /// The contents of each object.
    portions: Vec<Portion>,
}

impl Tree {
    /// Grows a tree over rows in any order, on `threads` threads. The result depends neither on the threads
    /// nor on the order of the rows, unless two rows share a weight and an id.
    ///
    /// # Errors
    /// As [`crate::block::encode_block`].
    pub fn grow(
        schema: &Arc<TableSchema>,
        rows: RecordBatch,
        weights: Vec<Weight>,
        origins: Origins,
        shape: &Shape,
        threads: usize,
    ) -> Result<Self, BlockError> {
        let weights = Lent::from(weights);
        check(schema, &rows)?;
        if weights.len() != rows.num_rows() || origins.rows() != rows.num_rows() {
            return Err(damaged("the numbers of rows, weights and origins differ"));
        }
        let root = Root::around(schema, &rows)?;
        let step_column = step_column(rows.columns(), origins.steps());
        let is_steps = |index: &IndexColumn| index.element.is_none() && Some(index.place) == step_column;
        let steps_axis = schema.index().iter().position(is_steps);
        let sizes = RowBytes::of(&rows);
        let shape = &shape.with_rows_of(sizes.mean());
        let is_few = root.axes().len() <= AXES_FEW;
        let divided = if is_few { divided::<AXES_FEW> } else { divided::<{ crate::INDEX_COLUMNS_MAX }> };
        let cubes = divided(schema, &rows, &weights, &root, steps_axis, shape, threads)?;
        let (portions, order) = portions(cubes, shape, &sizes);
        let weights = Lent::collect(order.len(), order.iter().map(|&row| weights[row as usize]));
        let hidden = HiddenOfTree::of(origins, step_column, &order);
        let columns = in_order(rows, order, threads)?;
        Ok(Self {
            schema: Arc::clone(schema),
            root,
            sources: columns.iter().map(Source::of).collect(),
            weights,
            hidden,
            portions,
        })
    }

    /// The number of objects of the tree.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.portions.len()
    }

    /// Encodes the objects, one after another.
    pub fn objects(&self) -> impl Iterator<Item = Result<CubeObject, BlockError>> {
        (0..self.object_count()).map(|number| self.object(number))
    }

    /// Encodes one object; objects are numbered from 0.
    ///
    /// # Errors
    /// As [`crate::block::encode_block`].
    ///
    /// # Panics
    /// Never for a number below [`Tree::object_count`].
    pub fn object(&self, number: usize) -> Result<CubeObject, BlockError> {
        let portion = &self.portions[number];
        let cubes = portion.layers.iter().filter(|layer| layer.is_first).count();
        let bands = || portion.layers.iter().flat_map(|layer| &layer.bands);
        let all = bands().map(|band| band.start).min().unwrap_or(0)
            ..bands().map(|band| band.end).max().unwrap_or(0);
        let hidden = self.hidden.of_object(&self.sources, all.clone());
        let mut directory = NewDirectory::new(self.root.clone(), hidden.names.clone(), hidden.step_column);
        // Packed rows hardly ever take more than unpacked ones.
        let mut bytes = Lent::new(portion.bytes);
        let (mut filters, mut room) = (Vec::new(), Room::default());
        for layer in &portion.layers {
            let first = directory.bands.len();
            for band in &layer.bands {
                let weights = &self.weights[band.clone()];
                let (extents, mut lengths) = self.put_band(band, &mut room, &mut bytes)?;
                for source in &hidden.columns {
                    let of_object = band.start - all.start..band.end - all.start;
                    lengths.push(source.put(of_object, &mut room, &mut bytes)?);
                }
                directory.bands.push(NewBand::new(weights, extents, lengths));
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
        let of_object = &self.weights[all];
        // A portion has at least one row.
        let least = of_object.iter().min().copied().unwrap_or(Weight::LEAST);
        let weights = (least, of_object.iter().max().copied().unwrap_or(least));
        let sections = Sections { filters, bands: bytes };
        Ok(assemble(&self.schema, directory, &sections, cubes, weights, hidden.steps))
    }

    /// Appends the columns of a band. Returns its extents and the lengths of its columns.
    fn put_band(
        &self,
        rows: &Range<usize>,
        room: &mut Room,
        bytes: &mut Vec<u8>,
    ) -> Result<(Vec<Extent>, Vec<u64>), BlockError> {
        let mut lengths = Vec::with_capacity(self.sources.len() + 2);
        for source in &self.sources {
            lengths.push(source.put(rows.clone(), room, bytes)?);
        }
        let extent = |index: &IndexColumn| -> Result<Extent, BlockError> {
            let source = &self.sources[index.place];
            if index.element.is_none() {
                return source.extent(rows.clone());
            }
            Ok(Extent::of(&index.of_column(&source.column().slice(rows.start, rows.len()))?)?)
        };
        Ok((self.schema.index().iter().map(extent).collect::<Result<_, _>>()?, lengths))
    }
}

/// The cubes of a tree with their rows, in layers and bands.
type Cubes = Vec<(CubeId, Vec<BandRows>)>;

fn divided<const AXES: usize>(
    schema: &TableSchema,
    rows: &RecordBatch,
    weights: &[Weight],
    root: &Root,
    steps_axis: Option<usize>,
    shape: &Shape,
    threads: usize,
) -> Result<Cubes, BlockError> {
    let id: Vec<ArrayRef> = schema.id().iter().map(|&place| Arc::clone(rows.column(place))).collect();
    let places = root.places::<AXES>(schema, rows)?;
    let scale = layers::scale(places.spread(), steps_axis);
    let divided = places.divided(&order_of_rows(weights, &id, threads)?, shape);
    drop(places);
    let mut cubes = divided.cubes();
    cubes.sort_by_key(|(id, _)| *id);
    let cut = |(id, rows): &(CubeId, &[Spot<AXES>])| (*id, layers::cut_layers(rows, &scale, shape));
    Ok(map(&cubes, threads, cut))
}

/// An object that is being filled.
#[derive(Default)]
struct FilledObject {
    layers: Vec<(CubeId, u8, bool, BandRows)>,
    /// The approximate size of its rows in bytes.
    bytes: usize,
    bands: usize,
}

/// Fills objects one after the other.
struct ObjectFiller<'r> {
    objects: Vec<FilledObject>,
    /// The most bytes of an object.
    bytes_max: usize,
    sizes: &'r RowBytes,
}

impl ObjectFiller<'_> {
    /// The bytes of the last object.
    fn bytes(&self) -> usize {
        self.objects.last().map_or(0, |object| object.bytes)
    }

    /// The bands of the last object.
    fn bands(&self) -> usize {
        self.objects.last().map_or(0, |object| object.bands)
    }

    /// Begins the next object.
    fn begin(&mut self) {
        self.objects.push(FilledObject::default());
    }

    /// Adds a cube: whole where there is room, otherwise at the start of a new object. A cube that exceeds an
    /// object, as rows without a place and wide rows may, continues in the next one. A layer may end after
    /// any band, since readers look at the layers of one object alone.
    fn add(&mut self, cube: CubeId, layers: Vec<BandRows>) {
        let of_cube: usize = layers.iter().map(|layer| self.sizes.of_rows(&layer.rows)).sum();
        let bands: usize = layers.iter().map(|layer| layer.ends.len()).sum();
        let is_full = self.bytes() + of_cube > self.bytes_max || self.bands() + bands > BANDS_MAX;
        if self.objects.is_empty() || is_full {
            self.begin();
        }
        let mut is_first = true;
        for (layer, rows) in (0..).zip(layers) {
            let mut left = Some(rows.cut_at(self.bytes_max, self.sizes));
            while let Some(mut rows) = left {
                let room = self.bytes_max.saturating_sub(self.bytes());
                let has_room = self.bands() < BANDS_MAX && rows.begins_within(room, self.sizes);
                if self.bytes() > 0 && !has_room {
                    self.begin();
                }
                let room = (self.bytes_max.saturating_sub(self.bytes()), BANDS_MAX - self.bands());
                left = rows.split_off(room, self.sizes);
                if let Some(object) = self.objects.last_mut() {
                    object.bytes += self.sizes.of_rows(&rows.rows);
                    object.bands += rows.ends.len();
                    object.layers.push((cube, layer, is_first, rows));
                }
                is_first = false;
            }
        }
    }
}

/// Assigns cubes to objects. Cubes of one level that follow each other along the curve through their codes
/// share an object, since a sample needs whole levels from the root down, and a box a stretch of each.
/// Returns also the order of the rows over all objects.
fn portions(cubes: Cubes, shape: &Shape, sizes: &RowBytes) -> (Vec<Portion>, Lent<u32>) {
    let rows = cubes.iter().flat_map(|(_, layers)| layers).map(|layer| layer.rows.len()).sum();
    let mut filler = ObjectFiller { objects: Vec::new(), bytes_max: shape.object_bytes, sizes };
    cubes.into_iter().for_each(|(cube, layers)| filler.add(cube, layers));
    let mut objects = filler.objects;
    // A sample reads the beginning of an object: its lightest layers. The others lie cube by cube, since a
    // query that needs them asks for a box, and needs all layers of a few cubes: one stretch for each cube,
    // not one for each layer.
    objects.iter_mut().for_each(|object| object.layers.sort_by_key(|(_, layer, ..)| (*layer).min(1)));
    let mut order = Lent::new(rows);
    let mut placed = |(cube, layer, is_first, rows): (CubeId, u8, bool, BandRows)| {
        let from = order.len();
        order.extend_from_slice(&rows.rows);
        let bands = rows.bands().map(|band| from + band.start..from + band.end).collect();
        Layer { cube, layer, is_first, bands }
    };
    let portion = |FilledObject { layers, bytes, .. }| Portion {
        layers: layers.into_iter().map(&mut placed).collect(),
        bytes,
    };
    let portions = objects.into_iter().map(portion).collect();
    (portions, order)
}

/// Reorders columns, one after the other, and frees the old ones on the way. What is read at random then
/// stays in a cache as long as possible.
fn in_order(rows: RecordBatch, order: Lent<u32>, threads: usize) -> Result<Vec<ArrayRef>, BlockError> {
    let (_, columns, _) = rows.into_parts();
    let order = UInt32Array::new(ScalarBuffer::from(buffer(order)), None);
    map_owned(columns, threads, |column| rearranged(&column, &order)).into_iter().collect()
}

/// A column that equals the step of every row, as the tables of most simulations have.
fn step_column(columns: &[ArrayRef], steps: &[u64]) -> Option<usize> {
    columns.iter().position(|column| says_steps(column, steps))
}

/// The seal that follows a column: a checksum that also covers where the column lies, counted from the first
/// band.
pub(super) fn seal(column: &[u8], offset: u64) -> u64 {
    twox_hash::XxHash3_64::oneshot_with_seed(offset, column)
}

/// The sections that follow the directory.
struct Sections {
    filters: Vec<u8>,
    bands: Lent<u8>,
}

fn assemble(
    schema: &TableSchema,
    directory: NewDirectory,
    sections: &Sections,
    cubes: usize,
    weights: (Weight, Weight),
    steps: (u64, u64),
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
    let (head, filters, bands) = (head.encode(), &sections.filters, &sections.bands);
    let parts = [head.as_slice(), encoded.as_slice(), filters.as_slice(), bands.as_slice()];
    let bytes = parts.iter().map(|part| part.len()).sum();
    CubeObject {
        front_bytes: (HEAD_BYTES + encoded.len()) as u64,
        extents: joined(directory.bands.iter().map(|band| band.extents.as_slice())),
        bytes: object(bytes, parts),
        rows: directory.rows(),
        cubes,
        weights,
        steps,
        runs: directory.runs,
    }
}
