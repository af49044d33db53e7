//! Random batches with a column of every type, and the same rows as plain values.

use super::super::Column;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, LargeStringArray,
    PrimitiveArray, RecordBatch, StringArray, StringViewArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A plain value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Truth(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    /// Nanoseconds since 1970.
    Instant(i128),
}

pub(super) type Row = BTreeMap<Column, Cell>;

/// A batch and its rows as plain values.
pub(super) struct Rows {
    pub(super) batch: RecordBatch,
    pub(super) rows: Vec<Row>,
}

pub(super) const TEXTS: [&str; 7] = ["", "a", "ab", "b", "B", "é", "it's"];

pub(super) const INTEGERS: [i128; 20] = [
    0,
    1,
    -1,
    2,
    3,
    -3,
    7,
    127,
    -128,
    255,
    32_768,
    4_294_967_296,
    9_007_199_254_740_991,
    9_007_199_254_740_992,
    9_007_199_254_740_993,
    -9_007_199_254_740_993,
    i64::MAX as i128,
    i64::MIN as i128,
    u64::MAX as i128,
    u64::MAX as i128 - 1,
];

pub(super) const FLOATS: [f64; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.5,
    3.0,
    0.1,
    0.1f32 as f64,
    127.5,
    9_007_199_254_740_992.0,
    9_007_199_254_740_994.0,
    9_223_372_036_854_775_808.0,
    18_446_744_073_709_551_616.0,
    1e300,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f64::MIN_POSITIVE,
];

/// The schema of [`rows`].
pub(super) fn schema() -> Schema {
    rows(&mut Rng::with_seed(0), 1).batch.schema().as_ref().clone()
}

/// A batch that is a slice of a larger one, with nulls in half of its columns.
pub(super) fn rows(random: &mut Rng, count: usize) -> Rows {
    let before = random.usize(..70);
    let mut table = Table { random, count: before + count + 3, columns: Vec::new(), rows: Vec::new() };
    table.rows = vec![Row::new(); table.count];
    table.integers::<Int8Type>("i8");
    table.integers::<Int16Type>("i16");
    table.integers::<Int32Type>("i32");
    table.integers::<Int64Type>("i64");
    table.integers::<UInt8Type>("u8");
    table.integers::<UInt16Type>("u16");
    table.integers::<UInt32Type>("u32");
    table.integers::<UInt64Type>("u64");
    table.floats::<Float16Type>("f16", <Float16Type as ArrowPrimitiveType>::Native::from_f64, |value| {
        value.to_f64()
    });
    table.floats::<Float32Type>("f32", |value| value as f32, f64::from);
    table.floats::<Float64Type>("f64", |value| value, |value| value);
    table.floats::<Float64Type>("odd name", |value| value, |value| value);
    table.instants::<TimestampSecondType>("sec", 1_000_000_000);
    table.instants::<TimestampMillisecondType>("milli", 1_000_000);
    table.instants::<TimestampMicrosecondType>("micro", 1000);
    table.instants::<TimestampNanosecondType>("nano", 1);
    table.instants::<Date32Type>("day", 86_400_000_000_000);
    table.instants::<Date64Type>("date", 1_000_000);
    table.flags();
    table.texts("word", |texts| Arc::new(StringArray::from_iter(texts)));
    table.texts("other", |texts| Arc::new(LargeStringArray::from_iter(texts)));
    table.texts("view", |texts| Arc::new(StringViewArray::from_iter(texts)));
    table.tags();
    table.codes();
    table.vectors();
    table.blobs();
    let fields = table.columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let arrays = table.columns.iter().map(|(_, array)| Arc::clone(array)).collect();
    let batch = RecordBatch::try_new(schema, arrays).unwrap().slice(before, count);
    Rows { batch, rows: table.rows[before..before + count].to_vec() }
}

struct Table<'a> {
    random: &'a mut Rng,
    count: usize,
    columns: Vec<(&'static str, ArrayRef)>,
    rows: Vec<Row>,
}

impl Table<'_> {
    /// Which values are not null: all of them, or most.
    fn valid(&mut self, count: usize) -> Vec<bool> {
        let has_nulls = self.random.bool();
        (0..count).map(|_| !has_nulls || self.random.u8(..4) > 0).collect()
    }

    fn note(&mut self, column: &Column, valid: &[bool], cells: impl IntoIterator<Item = Cell>) {
        for ((row, is_valid), cell) in self.rows.iter_mut().zip(valid).zip(cells) {
            row.insert(column.clone(), if *is_valid { cell } else { Cell::Null });
        }
    }

    /// A column with ordinary values below its nulls.
    fn primitives<T: ArrowPrimitiveType>(
        &mut self,
        name: &'static str,
        values: Vec<T::Native>,
        cell: impl Fn(T::Native) -> Cell,
    ) {
        let valid = self.valid(values.len());
        self.note(&Column::named(name), &valid, values.iter().map(|value| cell(*value)));
        let nulls = NullBuffer::from(valid);
        self.columns.push((name, Arc::new(PrimitiveArray::<T>::new(values.into(), Some(nulls)))));
    }

    fn integers<T: ArrowPrimitiveType>(&mut self, name: &'static str)
    where
        T::Native: TryFrom<i128> + Into<i128> + Copy,
    {
        let fitting: Vec<T::Native> =
            INTEGERS.iter().filter_map(|value| T::Native::try_from(*value).ok()).collect();
        let values = (0..self.count).map(|_| fitting[self.random.usize(..fitting.len())]).collect();
        self.primitives::<T>(name, values, |value| Cell::Integer(value.into()));
    }

    fn floats<T: ArrowPrimitiveType>(
        &mut self,
        name: &'static str,
        store: impl Fn(f64) -> T::Native,
        read: impl Fn(T::Native) -> f64,
    ) {
        let values = (0..self.count).map(|_| store(FLOATS[self.random.usize(..FLOATS.len())])).collect();
        self.primitives::<T>(name, values, |value| Cell::Float(read(value)));
    }

    fn instants<T: ArrowPrimitiveType>(&mut self, name: &'static str, scale: i128)
    where
        T::Native: TryFrom<i128> + Into<i128> + Copy,
    {
        let nanoseconds = (0..self.count).map(|_| instant(self.random)).collect::<Vec<_>>();
        let stored = nanoseconds.iter().map(|instant| T::Native::try_from(instant.div_euclid(scale)));
        let stored =
            stored.map(|stored| stored.unwrap_or_else(|_| panic!("an instant beyond {name}"))).collect();
        let wide = |value: T::Native| -> i128 { value.into() };
        self.primitives::<T>(name, stored, |value| Cell::Instant(wide(value) * scale));
    }

    fn flags(&mut self) {
        for name in ["flag", "mark"] {
            let values: Vec<bool> = (0..self.count).map(|_| self.random.bool()).collect();
            let valid = self.valid(values.len());
            self.note(&Column::named(name), &valid, values.iter().map(|value| Cell::Truth(*value)));
            let array = BooleanArray::new(values.into(), Some(NullBuffer::from(valid)));
            self.columns.push((name, Arc::new(array)));
        }
    }

    fn texts(&mut self, name: &'static str, array: impl Fn(Vec<Option<&'static str>>) -> ArrayRef) {
        let valid = self.valid(self.count);
        let texts: Vec<_> = (0..self.count).map(|_| TEXTS[self.random.usize(..TEXTS.len())]).collect();
        self.note(&Column::named(name), &valid, texts.iter().map(|text| Cell::Text((*text).to_owned())));
        let texts = texts.iter().zip(&valid).map(|(text, is_valid)| is_valid.then_some(*text)).collect();
        self.columns.push((name, array(texts)));
    }

    /// Texts in a dictionary that has one text twice, and a null.
    fn tags(&mut self) {
        let distinct = [Some("a"), Some("b"), None, Some("é"), Some("a"), Some("")];
        let keys: Vec<i16> = (0..self.count).map(|_| self.random.i16(0..distinct.len() as i16)).collect();
        let valid = self.valid(self.count);
        let cells = keys.iter().map(|key| match distinct[*key as usize] {
            Some(text) => Cell::Text(text.to_owned()),
            None => Cell::Null,
        });
        let cells: Vec<_> = cells.collect();
        self.note(&Column::named("tag"), &valid, cells);
        let keys = PrimitiveArray::<Int16Type>::new(keys.into(), Some(NullBuffer::from(valid)));
        let array = DictionaryArray::new(keys, Arc::new(StringArray::from_iter(distinct)));
        self.columns.push(("tag", Arc::new(array)));
    }

    /// Integers in a dictionary.
    fn codes(&mut self) {
        let distinct = [3, -1, i64::MAX, 2];
        let keys: Vec<u8> = (0..self.count).map(|_| self.random.u8(..distinct.len() as u8)).collect();
        let valid = self.valid(self.count);
        let cells: Vec<_> =
            keys.iter().map(|key| Cell::Integer(distinct[usize::from(*key)].into())).collect();
        self.note(&Column::named("code"), &valid, cells);
        let keys = PrimitiveArray::<UInt8Type>::new(keys.into(), Some(NullBuffer::from(valid)));
        let values = PrimitiveArray::<Int64Type>::from_iter_values(distinct);
        self.columns.push(("code", Arc::new(DictionaryArray::new(keys, Arc::new(values)))));
    }

    /// Vectors of three elements, in which a vector or an element may be null.
    fn vectors(&mut self) {
        let values: Vec<f32> =
            (0..self.count * 3).map(|_| FLOATS[self.random.usize(..FLOATS.len())] as f32).collect();
        let (whole, each) = (self.valid(self.count), self.valid(self.count * 3));
        for element in 0..3 {
            let place = |row: usize| row * 3 + element;
            let valid: Vec<_> = (0..self.count).map(|row| whole[row] && each[place(row)]).collect();
            let cells: Vec<_> = (0..self.count).map(|row| Cell::Float(values[place(row)].into())).collect();
            self.note(&Column::element("pos", element as u32), &valid, cells);
        }
        let cells: Vec<_> = (0..self.count).map(|_| Cell::Truth(true)).collect();
        self.note(&Column::named("pos"), &whole, cells);
        let inner = PrimitiveArray::<Float32Type>::new(values.into(), Some(NullBuffer::from(each)));
        let field = Arc::new(Field::new("item", DataType::Float32, true));
        let array = FixedSizeListArray::new(field, 3, Arc::new(inner), Some(NullBuffer::from(whole)));
        self.columns.push(("pos", Arc::new(array)));
    }

    /// A type that expressions cannot handle, apart from its nulls.
    fn blobs(&mut self) {
        let valid = self.valid(self.count);
        let cells: Vec<_> = (0..self.count).map(|_| Cell::Truth(true)).collect();
        self.note(&Column::named("blob"), &valid, cells);
        let values = valid.iter().map(|is_valid| is_valid.then_some(&b"bytes"[..]));
        self.columns.push(("blob", Arc::new(BinaryArray::from_iter(values))));
    }
}

/// An instant near one of a few days, whole in one of several units, within the range of 64-bit nanoseconds.
pub(super) fn instant(random: &mut Rng) -> i128 {
    const DAY: i128 = 86_400_000_000_000;
    let day = i128::from(random.i32(-2..3)) * DAY;
    let unit = [DAY, 1_000_000_000, 1_000_000, 1000, 1][random.usize(..5)];
    day + i128::from(random.i32(-2..3)) * unit
}
