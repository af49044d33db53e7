//! Reading cubes: the byte ranges of an object that a query needs, and the rows in them.
//!
//! No I/O happens here: the caller reads the ranges and hands the bytes in.

use super::directory::CubeDirectory;
use super::filter::Filters;
use super::head::Head;
use super::write::{SEAL_BYTES, seal};
use super::{Growing, GrowingOrigins, Origins, column};
use crate::block::{BlockError, HEAD_BYTES, Wanted, damaged, schema_sum};
use crate::expression::Verdict;
use crate::lattice::Extent;
use crate::part::{BandFacts, BandOfRows, Layer};
use crate::weight::{Window, weights};
use crate::{Salt, TableSchema, Weight};
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Schema};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The most entities that are looked for in the filter of a band. With more, some would match by chance
/// anyway, and the lookups would take longer than decoding the band.
const ENTITIES_SOUGHT_MAX: usize = 128;

/// An object of cubes whose directory has been read.
#[derive(Clone, Debug)]
pub struct CubeReader {
    schema: Arc<TableSchema>,
    directory: CubeDirectory,
    /// The extents of the bands of each layer, unpacked when first needed.
    extents: Vec<OnceLock<Vec<Extent>>>,
    /// Where the filters lie; empty if there are none.
    filters_at: Range<u64>,
    /// The filters, once they have been read.
    filters: OnceLock<Filters>,
    /// Where the bands begin.
    bands_at: u64,
}

/// A band of which columns are read.
struct BandColumns {
    rows: usize,
    /// Offset, counted from the first band, and length of each of its columns.
    columns: Vec<(u64, u64)>,
}

impl CubeReader {
    /// Length of head and directory together, from the first [`HEAD_BYTES`] bytes of an object.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`].
    pub fn front_bytes(head: &[u8]) -> Result<u64, BlockError> {
        Ok(HEAD_BYTES as u64 + u64::from(Head::decode(head)?.directory_bytes))
    }

    /// As [`crate::part::Part::schema_sum`].
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`].
    pub fn schema_sum(head: &[u8]) -> Result<u64, BlockError> {
        Ok(Head::decode(head)?.schema)
    }

    /// As [`crate::part::Part::column_count`].
    pub(crate) fn column_count(&self) -> usize {
        self.schema.columns().fields().len()
    }

    /// Opens an object of a table from its front: head and directory.
    ///
    /// # Errors
    /// [`BlockError::Damaged`], [`BlockError::NewerFormat`], [`BlockError::OtherSchema`].
    pub fn open(schema: Arc<TableSchema>, front: &[u8]) -> Result<Self, BlockError> {
        let head = Head::decode(front)?;
        if head.schema != schema_sum(&schema) {
            return Err(BlockError::OtherSchema);
        }
        let end = HEAD_BYTES + head.directory_bytes as usize;
        let directory = front.get(HEAD_BYTES..end).ok_or_else(|| damaged("its directory is cut off"))?;
        let directory = CubeDirectory::decode(&head, &schema, directory)?;
        let filters_at = end as u64 + u64::from(head.statistics_bytes);
        let bands_at = filters_at + u64::from(head.filters_bytes);
        let (filters_at, filters) = (filters_at..bands_at, OnceLock::new());
        let extents = vec![OnceLock::new(); directory.cubes.len()];
        Ok(Self { schema, directory, extents, filters_at, filters, bands_at })
    }

    /// The layout of the object.
    #[must_use]
    pub const fn directory(&self) -> &CubeDirectory {
        &self.directory
    }

    /// As [`crate::part::Part::filters_at`].
    #[must_use]
    pub fn filters_at(&self) -> Option<Range<u64>> {
        Some(self.filters_at.clone()).filter(|filters| !filters.is_empty())
    }

    /// As [`crate::part::Part::has_filters`].
    #[must_use]
    pub fn has_filters(&self) -> bool {
        self.filters.get().is_some()
    }

    /// As [`crate::part::Part::keep_filters`].
    ///
    /// # Errors
    /// [`BlockError::Damaged`].
    pub fn keep_filters(&self, bytes: &[u8]) -> Result<(), BlockError> {
        let filters = Filters::decode(bytes, self.directory.bands.heads())?;
        // Another thread that read the filters meanwhile has read the same bytes.
        self.filters.get_or_init(|| filters);
        Ok(())
    }

    /// As [`crate::part::Part::rows_of`].
    #[must_use]
    pub fn rows_of(&self, place: usize, weights: &[Weight]) -> Option<Range<usize>> {
        let band = self.directory.bands.heads()[place];
        match self.filters.get().filter(|_| weights.len() <= ENTITIES_SOUGHT_MAX) {
            None => Some(0..band.rows as usize),
            Some(filters) => filters.rows(place, band, weights),
        }
    }

    /// The number of bands.
    #[must_use]
    pub fn band_count(&self) -> usize {
        self.directory.bands.heads().len()
    }

    /// As [`crate::part::Part::judged_layers`].
    pub fn judged_layers(&self, window: Window, judge: impl Fn(&[Extent]) -> Verdict) -> Vec<Layer> {
        let layer = |(place, span): (usize, &Vec<Extent>)| {
            let (least, greatest) = self.directory.weights[place];
            let (lightest, _) = window.clipped(least, greatest)?;
            let verdict = judge(span);
            (verdict != Verdict::Never).then_some(Layer { place, lightest, verdict })
        };
        self.directory.spans.iter().enumerate().filter_map(layer).collect()
    }

    /// As [`crate::part::Part::judged_bands_of`].
    pub fn judged_bands_of(
        &self,
        layer: &Layer,
        window: Window,
        judge: impl Fn(&[Extent]) -> Verdict,
        mut found: impl FnMut(usize, Verdict),
    ) {
        let bands = self.directory.cubes[layer.place].bands.clone();
        let within = bands.clone().filter(|&place| {
            let band = self.directory.bands.heads()[place];
            window.clipped(band.least, band.greatest).is_some()
        });
        // A verdict that holds for a whole layer need not be asked of each band.
        if layer.verdict == Verdict::Always {
            within.for_each(|place| found(place, layer.verdict));
            return;
        }
        let axes = self.directory.root.axes().len();
        let extents = self.extents_of(layer.place);
        for place in within {
            let verdict = judge(&extents[(place - bands.start) * axes..][..axes]);
            if verdict != Verdict::Never {
                found(place, verdict);
            }
        }
    }

    /// As [`crate::part::Part::layer_extent`].
    pub(crate) fn layer_extent(&self, layer: &Layer, window: Window, axis: usize) -> Option<(Extent, bool)> {
        let extent = *self.directory.spans.get(layer.place)?.get(axis)?;
        let (least, greatest) = *self.directory.weights.get(layer.place)?;
        Some((extent, window.clipped(least, greatest) == Some((least, greatest))))
    }

    /// As [`crate::part::Part::band_extent`].
    pub(crate) fn band_extent(&self, place: usize, axis: usize) -> Option<Extent> {
        self.directory.bands.extents(place).nth(axis)
    }

    /// The extents of the bands of a layer.
    fn extents_of(&self, layer: usize) -> &[Extent] {
        self.extents[layer].get_or_init(|| {
            let bands = self.directory.cubes[layer].bands.clone();
            bands.flat_map(|place| self.directory.bands.extents(place)).collect()
        })
    }

    /// As [`crate::part::Part::facts`].
    #[must_use]
    pub fn facts(&self, place: usize, window: Window) -> BandFacts {
        let band = self.directory.bands.heads()[place];
        let decoded = self.directory.bands.decoded(place, window).len() as u64;
        BandFacts { rows: band.rows.into(), decoded, least: band.least, greatest: band.greatest }
    }

    /// The length of all columns of a band in bytes.
    pub(crate) fn band_bytes(&self, place: usize) -> u64 {
        self.directory.bands.bytes(place)
    }

    /// As [`crate::part::Part::slices`].
    #[must_use]
    pub fn slices(&self, place: usize, columns: &[usize], with_origins: bool) -> Vec<(u64, u64)> {
        let of_band: Vec<_> = self.columns_at(place).collect();
        self.columns_of(columns, with_origins).into_iter().map(|column| of_band[column]).collect()
    }

    /// Offset and length of each column of a band, hidden ones included.
    pub(crate) fn columns_at(&self, place: usize) -> impl Iterator<Item = (u64, u64)> {
        self.directory.bands.columns(place).map(|(offset, length)| (self.bands_at + offset, length))
    }

    /// Where a band lies, if `columns` are all of its columns.
    pub(crate) fn whole(&self, place: usize, columns: &[usize]) -> Option<(u64, u64)> {
        // No column is named twice.
        let is_whole = columns.len() == self.directory.bands.column_count();
        is_whole.then(|| self.all_at(place))
    }

    /// Where a band lies, with all its columns.
    pub(crate) fn all_at(&self, place: usize) -> (u64, u64) {
        let bands = &self.directory.bands;
        (self.bands_at + bands.offset(place), bands.bytes(place))
    }

    /// The columns to read for a query: the wanted ones, those of the sample key and, if wanted, those of the
    /// origin.
    pub(crate) fn columns_of(&self, wanted: &[usize], with_origins: bool) -> Vec<usize> {
        let mut columns = wanted.to_vec();
        let key = self.schema.sample_key().iter();
        columns.extend(key.filter(|place| !wanted.contains(place)));
        if with_origins {
            let first = self.schema.columns().fields().len();
            columns.extend(first..first + self.directory.hidden_columns());
            let step = self.directory.step_column.filter(|place| !columns.contains(place));
            columns.extend(step);
        }
        columns
    }

    /// The rows of a band whose weights are in the window, from the bytes of its slices; their weights; and
    /// their origins, if these are wanted.
    ///
    /// # Errors
    /// [`BlockError::Damaged`] where bytes do not match their seal.
    pub fn rows(
        &self,
        place: usize,
        wanted: Wanted<'_>,
        with_origins: bool,
        slices: &[impl AsRef<[u8]>],
    ) -> Result<BandOfRows, BlockError> {
        let columns = self.columns_of(wanted.columns, with_origins);
        let (band, range) = self.band(place, &wanted, columns.len() == slices.len())?;
        let mut arrays = Vec::with_capacity(columns.len());
        for (&column, slice) in columns.iter().zip(slices) {
            arrays.push(self.column(&band, column, range.clone(), slice.as_ref())?);
        }
        let array = |place: &usize| {
            let at = columns.iter().position(|column| column == place);
            at.map(|at| Arc::clone(&arrays[at])).ok_or_else(|| damaged("a column of a band was not read"))
        };
        let key = self.schema.sample_key().iter().map(array).collect::<Result<Vec<_>, _>>()?;
        let weights = weights(&key, Salt(self.schema.salt()))?;
        if !weights.is_sorted() {
            return Err(damaged("rows of a band are not in the order of their weights"));
        }
        let kept = wanted.window.slice(&weights);
        let origins = if with_origins { Some(self.origins(range.len(), array)?) } else { None };
        let of_answer = arrays[..wanted.columns.len()].iter();
        let of_answer = of_answer.map(|array| array.slice(kept.start, kept.len())).collect();
        let rows = self.batch(wanted.columns, of_answer, kept.len())?;
        let weights = weights[kept.clone()].to_vec();
        Ok(BandOfRows { rows, weights, origins: origins.map(|origins| origins.slice(kept)) })
    }

    /// The rows of a band that are decoded for a window, and which of these are certain to be in it.
    pub(crate) fn rows_in(&self, place: usize, window: Window) -> (Range<usize>, Range<usize>) {
        let bands = &self.directory.bands;
        let (decoded, certain) = (bands.decoded(place, window), bands.certain(place, window));
        let from = certain.start.clamp(decoded.start, decoded.end);
        (decoded.clone(), from..certain.end.clamp(from, decoded.end))
    }

    /// Appends rows of one column of a band, all or those that are kept, to a growing column. The bytes are
    /// those of the column, which begins `at` bytes from the front of the object.
    ///
    /// # Errors
    /// [`BlockError::Damaged`] where bytes do not match their seal; the growing column is unusable
    /// afterwards.
    pub(crate) fn append(
        &self,
        place: usize,
        rows: Range<usize>,
        kept: Option<&BooleanBuffer>,
        (at, bytes): (u64, &[u8]),
        grown: &mut Growing,
    ) -> Result<(), BlockError> {
        self.verify((at.saturating_sub(self.bands_at), bytes.len() as u64), bytes)?;
        let of_band = self.directory.bands.heads()[place].rows as usize;
        match kept {
            None => grown.append(of_band, rows, bytes),
            Some(kept) => grown.append_some(of_band, rows, kept, bytes),
        }
    }

    /// Appends all rows of all columns of a band to growing columns, from the bytes of the whole object, and
    /// their origins. Steps that a column of the table holds are left at 0. Returns the number of rows.
    ///
    /// # Errors
    /// [`BlockError::Damaged`] where bytes do not match their seal; the growing columns are unusable
    /// afterwards.
    pub(crate) fn append_all(
        &self,
        place: usize,
        object: &[u8],
        columns: &mut [Growing],
        origins: &mut GrowingOrigins,
    ) -> Result<usize, BlockError> {
        let rows = self.directory.bands.heads()[place].rows as usize;
        let of_column = |(offset, length): (u64, u64)| {
            let from = self.bands_at.checked_add(offset)?;
            let (from, end) = (from as usize, usize::try_from(from.checked_add(length)?).ok()?);
            object.get(from..end)
        };
        let mut hidden = Vec::new();
        for (column, at) in self.directory.bands.columns(place).enumerate() {
            let bytes = of_column(at).ok_or_else(|| damaged("it is cut off"))?;
            self.verify(at, bytes)?;
            match columns.get_mut(column) {
                Some(grown) => grown.append(rows, 0..rows, bytes)?,
                None => hidden.push(column::decode(&self.type_of(column), rows, 0..rows, bytes)?),
            }
        }
        let directory = &self.directory;
        if let ([run], Some(_)) = (&*directory.runs, directory.step_column) {
            origins.append_alike(run, 0, rows);
            return Ok(rows);
        }
        let first = self.column_count();
        let array = |column: &usize| {
            let hidden = column.checked_sub(first).and_then(|place| hidden.get(place).cloned());
            // The steps are filled in from that column later.
            let is_step = Some(*column) == directory.step_column;
            hidden
                .or_else(|| is_step.then(|| Arc::new(UInt64Array::from(vec![0; rows])) as ArrayRef))
                .ok_or_else(|| damaged("a column of a band was not read"))
        };
        origins.append(&self.origins(rows, array)?);
        Ok(rows)
    }

    /// The columns of a band, and the rows of it that are decoded for `wanted`.
    fn band(
        &self,
        place: usize,
        wanted: &Wanted<'_>,
        is_whole: bool,
    ) -> Result<(BandColumns, Range<usize>), BlockError> {
        let (rows, range) = self.rows_to_decode(place, wanted, is_whole)?;
        Ok((BandColumns { rows, columns: self.directory.bands.columns(place).collect() }, range))
    }

    /// The number of rows of a band, and the range of them that is decoded for `wanted`.
    fn rows_to_decode(
        &self,
        place: usize,
        wanted: &Wanted<'_>,
        is_whole: bool,
    ) -> Result<(usize, Range<usize>), BlockError> {
        let bands = &self.directory.bands;
        let head = bands.heads().get(place).filter(|_| is_whole);
        let head = head.ok_or_else(|| damaged("not all slices of a band were read"))?;
        let range = bands.decoded(place, wanted.window);
        let range = wanted.rows.map_or(range.clone(), |(from, to)| {
            let from = range.start.max(from as usize);
            from..range.end.min(to as usize).max(from)
        });
        Ok((head.rows as usize, range))
    }

    /// Decodes rows of one column of a band.
    fn column(
        &self,
        band: &BandColumns,
        column: usize,
        rows: Range<usize>,
        bytes: &[u8],
    ) -> Result<ArrayRef, BlockError> {
        self.verify(band.columns[column], bytes)?;
        column::decode(&self.type_of(column), band.rows, rows, bytes)
    }

    /// Refuses bytes that are not those of the column of a band at this offset and of this length.
    fn verify(&self, (offset, length): (u64, u64), bytes: &[u8]) -> Result<(), BlockError> {
        let sealed = bytes.len().checked_sub(SEAL_BYTES).map(|at| bytes.split_at(at));
        let (payload, found) = sealed.ok_or_else(|| damaged("a column has no seal"))?;
        let is_whole = bytes.len() as u64 == length;
        if !is_whole || found != seal(payload, offset).to_le_bytes() {
            let at = self.bands_at + offset;
            return Err(damaged(format!("the {} bytes at offset {at} do not match their seal", bytes.len())));
        }
        Ok(())
    }

    fn type_of(&self, column: usize) -> DataType {
        let of_table = self.schema.columns().fields();
        match column.checked_sub(of_table.len()) {
            None => of_table[column].data_type().clone(),
            Some(0) if self.directory.runs.len() > 1 => DataType::UInt32,
            Some(_) => DataType::UInt64,
        }
    }

    fn origins(
        &self,
        rows: usize,
        array: impl Fn(&usize) -> Result<ArrayRef, BlockError>,
    ) -> Result<Origins, BlockError> {
        let first = self.schema.columns().fields().len();
        let odd = || damaged("the origins of a band make no sense");
        let has_runs = self.directory.runs.len() > 1;
        let runs = if has_runs {
            array(&first)?.as_primitive_opt::<UInt32Type>().ok_or_else(odd)?.values().to_vec()
        } else {
            vec![0; rows]
        };
        let steps = match self.directory.step_column {
            Some(place) => super::origin::steps_of(&array(&place)?).ok_or_else(odd)?,
            None => {
                let steps = array(&(first + usize::from(has_runs)))?;
                steps.as_primitive_opt::<UInt64Type>().ok_or_else(odd)?.values().to_vec()
            }
        };
        Origins::new(Arc::clone(&self.directory.runs), runs, steps).ok_or_else(odd)
    }

    fn batch(
        &self,
        places: &[usize],
        columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<RecordBatch, BlockError> {
        let fields = places.iter().map(|&place| Arc::clone(&self.schema.columns().fields()[place]));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        // A null in a column that allows none is damage that no seal revealed.
        RecordBatch::try_new_with_options(schema, columns, &options)
            .map_err(|error| damaged(error.to_string()))
    }
}
