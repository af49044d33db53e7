//! The directory of an object of cubes: which cubes, which bands, what they span and where they lie.
//!
//! ```text
//! head:      magic 8 | format 4 | directory length 4 | rows 8 | length of all bands 8 | schema 8
//!            | directory sum 8 | length of the statistics 4, for which there is room and which nobody writes yet
//!            | length of the filters 4 | head sum 8
//! directory: layers of cubes 4 | bands 4 | columns of a band 4 | index columns 4 | runs 4 | step column + 1 4
//!            | runs: (length 4, name)… | axes: (cell exponent 4, low 16, bits 4)…
//!            | words: levels, codes, sides, layers and numbers of bands of the layers of the cubes
//!            | words: rows, least and greatest weights, marks of the bands
//!            | for each index column, words: flags, least and greatest values of the bands
//!            | for each column, words: lengths in the bands | 8 zero bytes
//! ```
//!
//! Weights keep their upper half only: a band's least is rounded down, its greatest up, a mark down. Words are
//! packed as [`super::words`] says.
//!
//! Invariant: decoding is total, and allocates no more than the bytes given allow.

use super::words::{SLACK_BYTES, put_words, read_words};
use super::{CubeId, MARK_ROWS, Root};
use crate::block::{BlockError, HEAD_BYTES, checksum, damaged};
use crate::lattice::{Axis, Extent, Kind, Scalar, Span};
use crate::protocol::RunId;
use crate::{TableSchema, Weight};
use arrow_schema::DataType;
use std::ops::Range;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLCUB");

/// The newest format that is known. The first had no filters, and zeros for the lengths.
const FORMAT: u32 = 2;

/// More cubes or bands than this an object never has: a band holds a row at least, and takes some bytes.
const BANDS_MAX: usize = 1 << 18;

/// What stands at the head of an object of cubes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) directory_bytes: u32,
    pub(super) rows: u64,
    pub(super) bands_bytes: u64,
    pub(super) schema: u64,
    pub(super) directory_sum: u64,
    pub(super) statistics_bytes: u32,
    pub(super) filters_bytes: u32,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.directory_bytes.to_le_bytes());
        let sections = u64::from(self.filters_bytes) << 32 | u64::from(self.statistics_bytes);
        let words = [self.rows, self.bands_bytes, self.schema, self.directory_sum, sections];
        for (place, word) in words.into_iter().enumerate() {
            bytes[16 + place * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&bytes[..HEAD_BYTES - 8]);
        bytes[HEAD_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BlockError> {
        let bytes = bytes.get(..HEAD_BYTES).ok_or_else(|| damaged("it has no head"))?;
        let mut fields = Fields { rest: bytes };
        if fields.u64()? != MAGIC {
            return Err(damaged("it does not begin as an object of cubes does"));
        }
        let (found, directory_bytes) = (fields.u32()?, fields.u32()?);
        let [rows, bands_bytes, schema, directory_sum] =
            [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let (statistics_bytes, filters_bytes, sum) = (fields.u32()?, fields.u32()?, fields.u64()?);
        if sum != checksum(&bytes[..HEAD_BYTES - 8]) {
            return Err(damaged("its head does not match its checksum"));
        }
        if found > FORMAT {
            return Err(BlockError::NewerFormat { found, supported: FORMAT });
        }
        Ok(Self {
            directory_bytes,
            rows,
            bands_bytes,
            schema,
            directory_sum,
            statistics_bytes,
            filters_bytes,
        })
    }
}

/// A layer of a cube of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CubeEntry {
    /// Which cube of its tree.
    pub id: CubeId,
    /// Which layer of the cube; 0 is the lightest.
    pub layer: u8,
    /// The places of its bands.
    pub bands: Range<usize>,
}

/// A band of a cube.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BandEntry {
    pub(super) rows: u32,
    /// No row is lighter.
    pub(super) least: Weight,
    /// No row is heavier.
    pub(super) greatest: Weight,
    /// For each [`MARK_ROWS`] rows but the first: no row from there on is lighter.
    pub(super) marks: Vec<Weight>,
    pub(super) extents: Vec<Extent>,
    /// Where it begins, counted from the first band.
    pub(super) offset: u64,
    /// How long its columns are, seals included.
    pub(super) lengths: Vec<u64>,
}

/// What lies where in an object of cubes.
#[derive(Clone, Debug, PartialEq)]
pub struct CubeDirectory {
    /// The lattice of the tree.
    pub root: Root,
    /// The runs that its rows come from; a band has a column of places in this list if there are several.
    pub runs: Vec<RunId>,
    /// The column that is the step in which each row was written; if there is none, a band has a column of steps.
    pub step_column: Option<usize>,
    /// The layers of the cubes, in their order in the object: all lightest ones first, then cube by cube.
    pub cubes: Vec<CubeEntry>,
    pub(super) bands: Vec<BandEntry>,
    /// What each layer spans.
    pub(super) spans: Vec<Vec<Extent>>,
}

impl CubeDirectory {
    pub(super) const fn new(root: Root, runs: Vec<RunId>, step_column: Option<usize>) -> Self {
        Self { root, runs, step_column, cubes: Vec::new(), bands: Vec::new(), spans: Vec::new() }
    }

    /// Rows of all cubes.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.bands.iter().map(|band| u64::from(band.rows)).sum()
    }

    /// Columns of a band beside those of the table: the run if there are several, the step if no column is it.
    pub(super) const fn hidden_columns(&self) -> usize {
        (self.runs.len() > 1) as usize + self.step_column.is_none() as usize
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
        self.put_cubes(&mut bytes);
        self.put_bands(columns, &mut bytes);
        bytes.extend_from_slice(&[0; SLACK_BYTES]);
        bytes
    }

    fn put_cubes(&self, bytes: &mut Vec<u8>) {
        let mut put = |word: &dyn Fn(&CubeEntry) -> u64| {
            put_words(&self.cubes.iter().map(word).collect::<Vec<_>>(), bytes);
        };
        put(&|cube| cube.id.level.into());
        put(&|cube| cube.id.code);
        put(&|cube| cube.id.is_side.into());
        put(&|cube| cube.layer.into());
        put(&|cube| cube.bands.len() as u64);
    }

    fn put_bands(&self, columns: usize, bytes: &mut Vec<u8>) {
        let mut put = |word: &dyn Fn(&BandEntry) -> u64| {
            put_words(&self.bands.iter().map(word).collect::<Vec<_>>(), bytes);
        };
        put(&|band| band.rows.into());
        put(&|band| band.least.get() >> 32);
        put(&|band| band.greatest.get() >> 32);
        let marks = self.bands.iter().flat_map(|band| &band.marks);
        put_words(&marks.map(|mark| mark.get() >> 32).collect::<Vec<_>>(), bytes);
        let mut put = |word: &dyn Fn(&BandEntry) -> u64| {
            put_words(&self.bands.iter().map(word).collect::<Vec<_>>(), bytes);
        };
        for (axis, of_axis) in self.root.axes().iter().enumerate() {
            let rank = Rank::of(of_axis.data_type());
            put(&|band| flags(&band.extents[axis]));
            put(&|band| band.extents[axis].range().map_or(0, |(least, _)| rank.rank(least)));
            put(&|band| band.extents[axis].range().map_or(0, |(_, greatest)| rank.rank(greatest)));
        }
        for column in 0..columns {
            put(&|band| band.lengths[column]);
        }
    }

    /// Reads the directory of an object with this head.
    pub(super) fn decode(head: &Head, schema: &TableSchema, bytes: &[u8]) -> Result<Self, BlockError> {
        if checksum(bytes) != head.directory_sum {
            return Err(damaged("its directory does not match its checksum"));
        }
        let mut fields = Fields { rest: bytes };
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = fields.u32()? as usize;
        }
        let [cubes, bands, columns, axes, runs, step_column] = counts;
        let (step_column, of_table) = (step_column.checked_sub(1), schema.columns().fields().len());
        let about_others = axes != schema.index().len() || step_column.is_some_and(|place| place >= of_table);
        if about_others || cubes > bands || bands > BANDS_MAX {
            return Err(damaged("its directory is about other columns"));
        }
        let runs = (0..runs).map(|_| fields.run()).collect::<Result<_, _>>()?;
        let root = fields.root(schema)?;
        let mut directory = Self::new(root, runs, step_column);
        if bands > 0 && columns != of_table + directory.hidden_columns() {
            return Err(damaged("its directory is about other columns"));
        }
        directory.cubes = fields.cubes(cubes, bands)?;
        directory.bands = fields.bands(bands, columns, &directory.root)?;
        directory.check(head)?;
        directory.spans =
            directory.cubes.iter().map(|cube| span(&directory.bands[cube.bands.clone()])).collect();
        Ok(directory)
    }

    fn check(&self, head: &Head) -> Result<(), BlockError> {
        let is_rising = |band: &BandEntry| {
            let marks = || band.marks.iter();
            band.rows > 0 && band.least <= band.greatest && marks().chain([&band.greatest]).is_sorted()
        };
        let end = self.bands.last().map_or(0, |band| band.offset + band.lengths.iter().sum::<u64>());
        // What lies in front of the bands is added to it.
        let is_odd = end != head.bands_bytes || end > u64::MAX / 2;
        if self.rows() != head.rows || is_odd || !self.bands.iter().all(is_rising) {
            return Err(damaged("its directory contradicts itself"));
        }
        Ok(())
    }
}

/// The smallest box around some bands.
pub(super) fn span(bands: &[BandEntry]) -> Vec<Extent> {
    let Some((first, others)) = bands.split_first() else { return Vec::new() };
    let mut joined = first.extents.clone();
    for band in others {
        joined.iter_mut().zip(&band.extents).for_each(|(joined, extent)| *joined = joined.joined(extent));
    }
    joined
}

const HAS_RANGE: u64 = 1;
const HAS_INCOMPARABLE: u64 = 2;

fn flags(extent: &Extent) -> u64 {
    let range = if extent.range().is_some() { HAS_RANGE } else { 0 };
    range | if extent.has_incomparable() { HAS_INCOMPARABLE } else { 0 }
}

/// How the ends of extents become words.
#[derive(Clone, Copy)]
struct Rank {
    kind: Kind,
    is_single: bool,
}

const SIGN: u64 = 1 << 63;

impl Rank {
    fn of(data_type: &DataType) -> Self {
        let is_single = matches!(data_type, DataType::Float32 | DataType::Float16);
        // An axis is of numbers or times.
        Self { kind: Kind::of(data_type).unwrap_or(Kind::Unsigned), is_single }
    }

    fn rank(self, scalar: Scalar) -> u64 {
        match scalar {
            Scalar::Signed(value) => value as u64 ^ SIGN,
            Scalar::Unsigned(value) => value,
            // Exact, since such a column has no other values.
            Scalar::Float(value) if self.is_single => u64::from((value as f32).to_bits()),
            Scalar::Float(value) => value.to_bits(),
        }
    }

    fn scalar(self, rank: u64) -> Scalar {
        match self.kind {
            Kind::Signed => Scalar::Signed((rank ^ SIGN) as i64),
            Kind::Unsigned => Scalar::Unsigned(rank),
            Kind::Float if self.is_single => Scalar::Float(f32::from_bits(rank as u32).into()),
            Kind::Float => Scalar::Float(f64::from_bits(rank)),
        }
    }
}

/// Fields one after the other.
struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BlockError> {
        let cut_off = || damaged("its directory is cut off");
        let (first, rest) = self.rest.split_first_chunk().ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, BlockError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, BlockError> {
        self.take().map(u64::from_le_bytes)
    }

    fn words(&mut self, count: usize) -> Result<Vec<u64>, BlockError> {
        let (words, rest) = read_words(self.rest, count)?;
        self.rest = rest;
        Ok(words)
    }

    fn run(&mut self) -> Result<RunId, BlockError> {
        let bytes = self.u32()? as usize;
        let name = self.rest.split_at_checked(bytes);
        let (name, rest) = name.ok_or_else(|| damaged("its directory is cut off"))?;
        self.rest = rest;
        let name = std::str::from_utf8(name).map_err(|_| damaged("the name of a run is no text"))?;
        Ok(RunId::from(name))
    }

    fn root(&mut self, schema: &TableSchema) -> Result<Root, BlockError> {
        let (mut axes, mut spans) = (Vec::new(), Vec::new());
        for &index in schema.index() {
            let cell_exponent = self.take().map(i32::from_le_bytes)?;
            let low = self.take().map(i128::from_le_bytes)?;
            let bits = u8::try_from(self.u32()?).ok();
            let span = bits.and_then(|bits| Span::new(low, bits));
            axes.push(Axis::with_cells(schema.index_type(index), cell_exponent)?);
            spans.push(span.ok_or_else(|| damaged("its root is no root"))?);
        }
        Ok(Root::new(axes, spans))
    }

    fn cubes(&mut self, cubes: usize, bands: usize) -> Result<Vec<CubeEntry>, BlockError> {
        let (levels, codes) = (self.words(cubes)?, self.words(cubes)?);
        let (sides, layers, counts) = (self.words(cubes)?, self.words(cubes)?, self.words(cubes)?);
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

    fn bands(&mut self, bands: usize, columns: usize, root: &Root) -> Result<Vec<BandEntry>, BlockError> {
        let rows = self.words(bands)?;
        let (least, greatest) = (self.words(bands)?, self.words(bands)?);
        let marks_of = |rows: u64| (rows as usize).div_ceil(MARK_ROWS).saturating_sub(1);
        let total = rows.iter().fold(0_usize, |sum, rows| sum.saturating_add(marks_of(*rows)));
        if rows.iter().any(|&rows| rows > u32::MAX.into()) || total > BANDS_MAX * 64 {
            return Err(damaged("a band has too many rows"));
        }
        let mut marks = self.words(total)?.into_iter().map(from_upper);
        let mut extents = vec![Vec::with_capacity(root.axes().len()); bands];
        for axis in root.axes() {
            let rank = Rank::of(axis.data_type());
            let (flags, low, high) = (self.words(bands)?, self.words(bands)?, self.words(bands)?);
            for (place, extents) in extents.iter_mut().enumerate() {
                extents.push(extent(flags[place], rank.scalar(low[place]), rank.scalar(high[place]))?);
            }
        }
        let lengths = (0..columns).map(|_| self.words(bands)).collect::<Result<Vec<_>, _>>()?;
        let mut offset = 0_u64;
        let mut entries = Vec::with_capacity(bands);
        for (place, extents) in extents.into_iter().enumerate() {
            let lengths: Vec<u64> = lengths.iter().map(|of_column| of_column[place]).collect();
            let end = lengths.iter().try_fold(offset, |end, length| end.checked_add(*length));
            let marks = marks.by_ref().take(marks_of(rows[place])).collect();
            let (least, greatest) = (from_upper(least[place]), up_from_upper(greatest[place]));
            let rows = rows[place] as u32;
            entries.push(BandEntry { rows, least, greatest, marks, extents, offset, lengths });
            offset = end.ok_or_else(|| damaged("its bands are too long"))?;
        }
        Ok(entries)
    }
}

fn extent(flags: u64, least: Scalar, greatest: Scalar) -> Result<Extent, BlockError> {
    let range = (flags & HAS_RANGE != 0).then_some((least, greatest));
    if range.is_some() && least.partial_cmp(&greatest).is_none_or(std::cmp::Ordering::is_gt) {
        return Err(damaged("an extent is inside out"));
    }
    Ok(Extent::new(range, flags & HAS_INCOMPARABLE != 0))
}

/// The lightest weight with this upper half.
pub(super) fn from_upper(upper: u64) -> Weight {
    Weight::new(upper << 32).unwrap_or(Weight::LEAST)
}

/// The heaviest weight with this upper half.
pub(super) fn up_from_upper(upper: u64) -> Weight {
    Weight::new(upper << 32 | u64::from(u32::MAX)).unwrap_or(Weight::LEAST)
}
