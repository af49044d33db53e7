//! Canonical keys: the bytes of a key, which are hashed, and the order of its values, which breaks ties.
//!
//! Invariant: equal values have equal bytes, whatever column they come from.
//! Invariant: keys of one table differ in their bytes, except that a null equals a binary value of the one
//! byte 255 where the key is a single binary column.

use super::{Salt, Weight, WeightError};
use crate::lattice::{Kind, Numbers};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};
use std::cmp::Ordering;

/// The key of a null that is the only column: no number is one byte long, and no text begins with 255.
const NULL_KEY: &[u8] = &[u8::MAX];
/// The length that stands for a null among several columns. No bytes follow it.
const NULL_LENGTH: u64 = u64::MAX;

/// The columns of a key, all of the same length.
pub(super) struct KeyColumns {
    columns: Vec<KeyColumn>,
    rows: usize,
}

struct KeyColumn {
    values: KeyValues,
    nulls: Option<NullBuffer>,
}

enum KeyValues {
    /// Eight-byte values, which `order` says how to compare.
    Words {
        bits: ScalarBuffer<u64>,
        order: Kind,
    },
    /// Nanoseconds in sixteen bytes: enough for times of any unit and any range.
    Nanoseconds(Vec<i128>),
    Bytes(BinaryArray),
    LargeBytes(LargeBinaryArray),
    ByteViews(BinaryViewArray),
    FixedBytes(FixedSizeBinaryArray),
    /// A dictionary: the place of each row's value.
    Picks {
        values: Box<KeyColumn>,
        picks: Vec<usize>,
    },
}

impl KeyColumns {
    pub(super) fn new(arrays: &[ArrayRef]) -> Result<Self, WeightError> {
        let expected = arrays.first().ok_or(WeightError::NoColumns)?.len();
        let column = |(column, array): (usize, &ArrayRef)| {
            if array.len() != expected {
                return Err(WeightError::Rows { column, rows: array.len(), expected });
            }
            let not_a_key = || WeightError::NotAKey { column, data_type: array.data_type().clone() };
            KeyColumn::new(array).ok_or_else(not_a_key)
        };
        Ok(Self { columns: arrays.iter().enumerate().map(column).collect::<Result<_, _>>()?, rows: expected })
    }

    pub(super) const fn rows(&self) -> usize {
        self.rows
    }

    /// Compares by the first column whose values differ.
    pub(super) fn compare(&self, left: usize, right: usize) -> Ordering {
        let mut orders = self.columns.iter().map(|column| column.compare(left, right));
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    pub(super) fn weights(&self, salt: Salt) -> Vec<Weight> {
        let mut weights = vec![Weight::LEAST; self.rows];
        self.weigh(salt, &mut weights);
        weights
    }

    /// Sets the weight of each row.
    pub(super) fn weigh(&self, salt: Salt, weights: &mut [Weight]) {
        if let [column] = self.columns.as_slice() {
            return column.weigh(salt, weights);
        }
        if let Some(words) = self.words() {
            return weigh_words(&words, salt, weights);
        }
        let mut key = Vec::new();
        for (row, weight) in weights.iter_mut().enumerate() {
            key.clear();
            self.columns.iter().for_each(|column| column.append(row, &mut key));
            *weight = Weight::of_key(&key, salt);
        }
    }

    /// The bits of all columns, if every value of the key is one word and none is null.
    fn words(&self) -> Option<Vec<&[u64]>> {
        let mut words = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            match &column.values {
                KeyValues::Words { bits, .. } if column.nulls.is_none() => words.push(&bits[..]),
                _ => return None,
            }
        }
        Some(words)
    }
}

/// The weights of keys made of words: all have the same length, so each key overwrites the one before.
fn weigh_words(columns: &[&[u64]], salt: Salt, weights: &mut [Weight]) {
    const WORD: usize = size_of::<u64>();
    let mut key = [(WORD as u64).to_le_bytes(), [0; WORD]].concat().repeat(columns.len());
    for (row, weight) in weights.iter_mut().enumerate() {
        for (part, bits) in key.chunks_exact_mut(2 * WORD).zip(columns) {
            part[WORD..].copy_from_slice(&bits[row].to_le_bytes());
        }
        *weight = Weight::of_key(&key, salt);
    }
}

impl KeyColumn {
    fn new(array: &ArrayRef) -> Option<Self> {
        Some(Self {
            values: KeyValues::new(array)?,
            nulls: array.logical_nulls().filter(|nulls| nulls.null_count() > 0),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Sets the weights of a key that consists of this column alone.
    fn weigh(&self, salt: Salt, weights: &mut [Weight]) {
        let null = Weight::of_key(NULL_KEY, salt);
        match &self.values {
            KeyValues::Words { bits, .. } => {
                let pairs = weights.iter_mut().zip(bits.iter());
                pairs.for_each(|(weight, word)| *weight = Weight::of_key(&word.to_le_bytes(), salt));
            }
            // Each value is hashed once, however many rows have it.
            KeyValues::Picks { values, picks } if values.rows() <= picks.len() => {
                let mut of_values = vec![null; values.rows()];
                values.weigh(salt, &mut of_values);
                let pairs = weights.iter_mut().zip(picks);
                pairs.for_each(|(weight, &pick)| *weight = of_values.get(pick).copied().unwrap_or(null));
            }
            values => {
                let rows = weights.iter_mut().enumerate();
                rows.for_each(|(row, weight)| *weight = values.with(row, |key| Weight::of_key(key, salt)));
            }
        }
        if let Some(nulls) = &self.nulls {
            let pairs = weights.iter_mut().zip(nulls.iter());
            pairs.filter(|(_, is_valid)| !is_valid).for_each(|(weight, _)| *weight = null);
        }
    }

    fn rows(&self) -> usize {
        match &self.values {
            KeyValues::Words { bits, .. } => bits.len(),
            KeyValues::Nanoseconds(values) => values.len(),
            KeyValues::Bytes(array) => array.len(),
            KeyValues::LargeBytes(array) => array.len(),
            KeyValues::ByteViews(array) => array.len(),
            KeyValues::FixedBytes(array) => array.len(),
            KeyValues::Picks { picks, .. } => picks.len(),
        }
    }

    /// Appends the length and the bytes of a row's value, as in a key of several columns.
    fn append(&self, row: usize, key: &mut Vec<u8>) {
        if self.is_null(row) {
            key.extend_from_slice(&NULL_LENGTH.to_le_bytes());
            return;
        }
        self.values.with(row, |bytes| {
            key.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            key.extend_from_slice(bytes);
        });
    }

    /// Null first, then by value: numbers and times in rising order, NaN last, text and bytes bytewise.
    fn compare(&self, left: usize, right: usize) -> Ordering {
        match (self.is_null(left), self.is_null(right)) {
            (false, false) => self.values.compare(left, right),
            (left, right) => right.cmp(&left),
        }
    }
}

impl KeyValues {
    fn new(array: &ArrayRef) -> Option<Self> {
        let data_type = array.data_type();
        Some(match data_type {
            DataType::Boolean => {
                let bits = array.as_boolean_opt()?.values().iter().map(u64::from).collect();
                Self::Words { bits, order: Kind::Unsigned }
            }
            DataType::Utf8 => Self::Bytes(BinaryArray::from(array.as_string_opt::<i32>()?.clone())),
            DataType::LargeUtf8 => {
                Self::LargeBytes(LargeBinaryArray::from(array.as_string_opt::<i64>()?.clone()))
            }
            DataType::Utf8View => Self::ByteViews(array.as_string_view_opt()?.clone().to_binary_view()),
            DataType::Binary => Self::Bytes(array.as_binary_opt::<i32>()?.clone()),
            DataType::LargeBinary => Self::LargeBytes(array.as_binary_opt::<i64>()?.clone()),
            DataType::BinaryView => Self::ByteViews(array.as_binary_view_opt()?.clone()),
            DataType::FixedSizeBinary(_) => Self::FixedBytes(array.as_fixed_size_binary_opt()?.clone()),
            DataType::Dictionary(..) => picks(array)?,
            _ => numbers(Numbers::of(array)?, nanoseconds(data_type)),
        })
    }

    /// Passes the canonical bytes of a row's value to `read`.
    fn with<R>(&self, row: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Words { bits, .. } => read(&bits[row].to_le_bytes()),
            Self::Nanoseconds(values) => read(&values[row].to_le_bytes()),
            Self::Bytes(array) => read(array.value(row)),
            Self::LargeBytes(array) => read(array.value(row)),
            Self::ByteViews(array) => read(array.value(row)),
            Self::FixedBytes(array) => read(array.value(row)),
            Self::Picks { values, picks } => values.values.with(picks[row], read),
        }
    }

    fn compare(&self, left: usize, right: usize) -> Ordering {
        match self {
            Self::Words { bits, order } => rank(bits[left], *order).cmp(&rank(bits[right], *order)),
            Self::Nanoseconds(values) => values[left].cmp(&values[right]),
            Self::Bytes(array) => array.value(left).cmp(array.value(right)),
            Self::LargeBytes(array) => array.value(left).cmp(array.value(right)),
            Self::ByteViews(array) => array.value(left).cmp(array.value(right)),
            Self::FixedBytes(array) => array.value(left).cmp(array.value(right)),
            Self::Picks { values, picks } => values.values.compare(picks[left], picks[right]),
        }
    }
}

/// An integer that sorts like the value with these bits.
const fn rank(bits: u64, order: Kind) -> u64 {
    const SIGN: u64 = 1 << 63;
    match order {
        Kind::Unsigned => bits,
        Kind::Signed => bits ^ SIGN,
        Kind::Float if bits & SIGN == 0 => bits | SIGN,
        Kind::Float => !bits,
    }
}

/// Numbers as words; times as nanoseconds.
fn numbers(numbers: Numbers, nanoseconds_a_unit: Option<i128>) -> KeyValues {
    match (numbers, nanoseconds_a_unit) {
        (Numbers::Signed(values), Some(unit)) => {
            KeyValues::Nanoseconds(values.iter().map(|&value| i128::from(value) * unit).collect())
        }
        (Numbers::Signed(values), None) => {
            let rows = values.len();
            KeyValues::Words { bits: ScalarBuffer::new(values.into_inner(), 0, rows), order: Kind::Signed }
        }
        (Numbers::Unsigned(bits), _) => KeyValues::Words { bits, order: Kind::Unsigned },
        (Numbers::Float(values), _) => {
            let bits = values.iter().map(|&value| canonical_float(value).to_bits()).collect();
            KeyValues::Words { bits, order: Kind::Float }
        }
    }
}

/// Maps both zeros to one value, and all NaNs to one value.
fn canonical_float(value: f64) -> f64 {
    const NAN: f64 = f64::from_bits(0x7FF8_0000_0000_0000);
    if value.is_nan() {
        NAN
    } else if value == 0.0 {
        0.0
    } else {
        value
    }
}

/// Nanoseconds in one unit of a time; `None` for other types.
const fn nanoseconds(data_type: &DataType) -> Option<i128> {
    use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
    const DAY: i128 = 86_400_000_000_000;
    match data_type {
        Date32 => Some(DAY),
        Date64 => Some(1_000_000),
        Timestamp(unit, _) | Time32(unit) | Time64(unit) | Duration(unit) => Some(match unit {
            TimeUnit::Second => 1_000_000_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        }),
        _ => None,
    }
}

fn picks(array: &ArrayRef) -> Option<KeyValues> {
    let dictionary = array.as_any_dictionary_opt()?;
    if dictionary.values().is_empty() {
        // Every row is null, and values below nulls are never read; a single null stands for all of them.
        let value = arrow_array::new_null_array(dictionary.values().data_type(), 1);
        let values = Box::new(KeyColumn::new(&value)?);
        return Some(KeyValues::Picks { values, picks: vec![0; array.len()] });
    }
    let values = Box::new(KeyColumn::new(dictionary.values())?);
    Some(KeyValues::Picks { values, picks: dictionary.normalized_keys() })
}
