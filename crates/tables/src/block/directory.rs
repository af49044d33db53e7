//! The directory of a block: where its bands and slices lie, and the weight range of each band.
//!
//! Invariant: decoding is total, and its allocations are bounded by the bytes given.

use super::{BlockError, HEAD_BYTES, checksum, damaged};
use crate::Weight;
use crate::lattice::{Extent, Scalar};

const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLBLK");

/// The newest known format. Formats 1 and 2 store the weights of a band as a slice in front of its columns.
/// Format 2 has slices of a single value; format 1 is the same without these.
const FORMAT: u32 = 3;

/// The last format whose bands have a slice of weights.
const LAST_WITH_WEIGHTS: u32 = 2;

/// The most rows that one byte of an id column can stand for: those of a column of bits.
const ROWS_A_BYTE: u64 = 8;

const EXTENT_BYTES: usize = 24;
const SLICE_BYTES: usize = 24;
const BAND_FIXED_BYTES: usize = 24;

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Whether bands have a slice of weights, as they do up to [`LAST_WITH_WEIGHTS`].
    pub(super) has_weights: bool,
    pub(super) directory_bytes: u32,
    pub(super) rows: u64,
    pub(super) block_bytes: u64,
    pub(super) schema: u64,
    pub(super) directory_sum: u64,
}

impl Head {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.directory_bytes.to_le_bytes());
        let words = [self.rows, self.block_bytes, self.schema, self.directory_sum];
        for (place, word) in words.into_iter().enumerate() {
            bytes[16 + place * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&bytes[..HEAD_BYTES - 8]);
        bytes[HEAD_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BlockError> {
        let mut fields = Fields::new(bytes.get(..HEAD_BYTES).ok_or_else(|| damaged("it has no head"))?);
        if fields.u64()? != MAGIC {
            return Err(damaged("it does not begin as a block does"));
        }
        let format = fields.u32()?;
        let head = Self {
            has_weights: format <= LAST_WITH_WEIGHTS,
            directory_bytes: fields.u32()?,
            rows: fields.u64()?,
            block_bytes: fields.u64()?,
            schema: fields.u64()?,
            directory_sum: fields.u64()?,
        };
        let (_zero, sum) = (fields.u64()?, fields.u64()?);
        if sum != checksum(&bytes[..HEAD_BYTES - 8]) {
            return Err(damaged("its head does not match its checksum"));
        }
        if format > FORMAT {
            return Err(BlockError::NewerFormat { found: format, supported: FORMAT });
        }
        Ok(head)
    }
}

/// The place and the checksum of some bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Offset in the block.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Checksum of the bytes.
    pub checksum: u64,
}

/// One band.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Number of rows, at least one.
    pub rows: u32,
    /// The weight of its first row.
    pub least: Weight,
    /// The weight of its last row.
    pub greatest: Weight,
    /// The extent of its rows in each index column.
    pub extents: Vec<Extent>,
    /// The slice of the weights, in blocks of format 2 and earlier. Newer blocks leave weights out, as they
    /// follow from the sample key.
    pub weights: Option<Slice>,
    /// One slice for each column of the table.
    pub slices: Vec<Slice>,
}

/// The layout of a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Directory {
    /// Rows in the block.
    pub rows: u64,
    /// Length of the block in bytes.
    pub bytes: u64,
    /// The bands, lightest first.
    pub bands: Vec<Band>,
}

impl Directory {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (columns, index) =
            self.bands.first().map_or((0, 0), |band| (band.slices.len(), band.extents.len()));
        let mut bytes = Vec::new();
        for word in [columns as u32, index as u32, self.bands.len() as u32, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for band in &self.bands {
            bytes.extend_from_slice(&band.rows.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&band.least.get().to_le_bytes());
            bytes.extend_from_slice(&band.greatest.get().to_le_bytes());
            band.extents.iter().for_each(|extent| put_extent(extent, &mut bytes));
            for slice in &band.slices {
                for word in [slice.offset, slice.bytes, slice.checksum] {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
        bytes
    }

    /// The encoded length of a directory in bytes.
    pub(super) fn encoded_bytes(bands: usize, index_columns: usize, slices: usize) -> usize {
        16 + bands * (BAND_FIXED_BYTES + index_columns * EXTENT_BYTES + slices * SLICE_BYTES)
    }

    /// Reads the directory that belongs to `head`, for a table with the given numbers of columns and index
    /// columns. `ids` are the places of the id columns.
    pub(super) fn decode(
        head: &Head,
        bytes: &[u8],
        columns: usize,
        index_columns: usize,
        ids: &[usize],
    ) -> Result<Self, BlockError> {
        if checksum(bytes) != head.directory_sum {
            return Err(damaged("its directory does not match its checksum"));
        }
        let mut fields = Fields::new(bytes);
        let counts = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?].map(|count| count as usize);
        let [slices, extents, bands, _zero] = counts;
        let is_empty = bands == 0;
        if !is_empty && (slices != columns + usize::from(head.has_weights) || extents != index_columns) {
            return Err(damaged("its directory describes other columns"));
        }
        if bytes.len() != Self::encoded_bytes(bands, extents, slices) {
            return Err(damaged("its directory has the wrong length"));
        }
        let bands =
            (0..bands).map(|_| decode_band(&mut fields, head, extents, slices)).collect::<Result<_, _>>()?;
        let directory = Self { rows: head.rows, bytes: head.block_bytes, bands };
        directory.check(ids)?;
        Ok(directory)
    }

    fn check(&self, ids: &[usize]) -> Result<(), BlockError> {
        let rows: u64 = self.bands.iter().map(|band| u64::from(band.rows)).sum();
        if rows != self.rows {
            return Err(damaged("its bands do not have as many rows as the block"));
        }
        let is_rising = self.bands.iter().all(|band| band.least <= band.greatest && band.rows > 0)
            && self.bands.windows(2).all(|pair| pair[0].greatest <= pair[1].least);
        if !is_rising {
            return Err(damaged("its bands are not in the order of their weights"));
        }
        let slices = self.bands.iter().flat_map(Band::all_slices);
        let lies_inside =
            |slice: &Slice| slice.offset.checked_add(slice.bytes).is_some_and(|end| end <= self.bytes);
        if !slices.into_iter().all(lies_inside) {
            return Err(damaged("a slice lies outside the block"));
        }
        // Weights and at least one id column are never written once for all rows. A band's memory is
        // therefore bounded by its own bytes.
        let has_rows = |band: &Band| {
            let bytes = ids.iter().filter_map(|&place| band.slices.get(place)).chain(&band.weights);
            bytes.map(|slice| slice.bytes).max().unwrap_or(0).saturating_mul(ROWS_A_BYTE)
                >= u64::from(band.rows)
        };
        if !self.bands.iter().all(has_rows) {
            return Err(damaged("a band has fewer ids than rows"));
        }
        Ok(())
    }
}

impl Band {
    /// The slices of its columns, preceded by that of its weights if it has one.
    fn all_slices(&self) -> impl Iterator<Item = &Slice> {
        self.weights.iter().chain(&self.slices)
    }
}

fn decode_band(
    fields: &mut Fields<'_>,
    head: &Head,
    extents: usize,
    slices: usize,
) -> Result<Band, BlockError> {
    let (rows, _zero) = (fields.u32()?, fields.u32()?);
    let weight = |number| Weight::new(number).ok_or_else(|| damaged("a weight is zero"));
    let (least, greatest) = (weight(fields.u64()?)?, weight(fields.u64()?)?);
    let extents = (0..extents).map(|_| fields.extent()).collect::<Result<_, _>>()?;
    let mut slice = || Ok(Slice { offset: fields.u64()?, bytes: fields.u64()?, checksum: fields.u64()? });
    let weights = head.has_weights.then(&mut slice).transpose()?;
    let slices = (0..slices - usize::from(head.has_weights)).map(|_| slice());
    let slices = slices.collect::<Result<_, BlockError>>()?;
    Ok(Band { rows, least, greatest, extents, weights, slices })
}

fn put_extent(extent: &Extent, bytes: &mut Vec<u8>) {
    let (kind, least, greatest) = match extent.range() {
        None => (0, 0, 0),
        Some((Scalar::Signed(least), Scalar::Signed(greatest))) => (1, least as u64, greatest as u64),
        Some((Scalar::Unsigned(least), Scalar::Unsigned(greatest))) => (2, least, greatest),
        Some((Scalar::Float(least), Scalar::Float(greatest))) => (3, least.to_bits(), greatest.to_bits()),
        Some(_) => unreachable!("both ends of an extent are of one column"),
    };
    bytes.extend_from_slice(&[kind, u8::from(extent.has_incomparable()), 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&least.to_le_bytes());
    bytes.extend_from_slice(&greatest.to_le_bytes());
}

/// Reads fields from front to back.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BlockError> {
        let (first, rest) =
            self.rest.split_first_chunk().ok_or_else(|| damaged("its directory is cut off"))?;
        self.rest = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, BlockError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, BlockError> {
        self.take().map(u64::from_le_bytes)
    }

    fn extent(&mut self) -> Result<Extent, BlockError> {
        let [kind, has_incomparable, ..] = self.take::<8>()?;
        let (least, greatest) = (self.u64()?, self.u64()?);
        let range = match kind {
            0 => None,
            1 => Some((Scalar::Signed(least as i64), Scalar::Signed(greatest as i64))),
            2 => Some((Scalar::Unsigned(least), Scalar::Unsigned(greatest))),
            3 => Some((Scalar::Float(f64::from_bits(least)), Scalar::Float(f64::from_bits(greatest)))),
            _ => return Err(damaged("an extent has an unknown kind")),
        };
        if range
            .is_some_and(|(least, greatest)| least.partial_cmp(&greatest).is_none_or(|order| order.is_gt()))
        {
            return Err(damaged("the ends of an extent are reversed"));
        }
        Ok(Extent::new(range, has_incomparable != 0))
    }
}
