//! Rows for tests: particles with every kind of value that index columns can hold.

use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray, UInt8Array,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use atoll_tables::{Roles, Salt, TableSchema, Weight, column, weights};
use fastrand::Rng;
use std::sync::Arc;

/// Milliseconds from 1970 to 2026.
pub const EPOCH_MS: i64 = 1_767_225_600_000;

pub const NAMES: [&str; 3] = ["", "fluid", "wall"];

/// A row and its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Particle {
    pub pid: i64,
    pub step: i64,
    pub x: f64,
    /// May be null, NaN or infinite.
    pub y: Option<f64>,
    pub time_ms: i64,
    pub kind: u8,
    pub vz: f32,
    pub name: Option<&'static str>,
    /// The value in the added column.
    pub charge: Option<f32>,
    pub weight: Weight,
}

/// A table of particles, sampled by row or by particle.
pub fn schema(samples_entities: bool, salt: u64) -> TableSchema {
    let columns = Schema::new(vec![
        column("pid", DataType::Int64, false),
        column("step", DataType::Int64, false),
        column("x", DataType::Float64, false),
        column("y", DataType::Float64, true),
        column("time", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        column("kind", DataType::UInt8, false),
        column("vz", DataType::Float32, false),
        column("name", DataType::Utf8, true),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles = Roles {
        id: names(&["pid", "step"]),
        sample_key: if samples_entities { names(&["pid"]) } else { Vec::new() },
        index: names(&["x", "y", "time", "step"]),
        salt,
    };
    TableSchema::new(columns, &roles).unwrap()
}

/// A schema whose position is a vector; its first two elements replace `x` and `y` as index columns.
pub fn schema_of_vectors(samples_entities: bool, salt: u64) -> TableSchema {
    let plain = schema(samples_entities, salt);
    let mut columns: Vec<Arc<Field>> = plain.columns().fields().iter().cloned().collect();
    columns.splice(2..4, [column("pos", DataType::FixedSizeList(element(), 3), false)]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles = Roles { index: names(&["pos[0]", "pos[1]", "time", "step"]), ..plain.roles() };
    TableSchema::new(Schema::new(columns), &roles).unwrap()
}

/// Either schema.
pub fn any_schema(random: &mut Rng) -> TableSchema {
    let (samples_entities, salt) = (random.bool(), random.u64(..3));
    match random.u8(..3) {
        0 => schema_of_vectors(samples_entities, salt),
        _ => schema(samples_entities, salt),
    }
}

fn element() -> Arc<Field> {
    column("item", DataType::Float64, true)
}

/// A condition on `x` and `y`, in terms of the columns that the schema has in their place.
pub fn said_of(schema: &TableSchema, condition: &str) -> String {
    if schema.columns().column_with_name("pos").is_none() {
        return condition.to_owned();
    }
    let word = |word: &str| match word.trim_start_matches('(') {
        "x" => word.replace('x', "pos[0]"),
        "y" => word.replace('y', "pos[1]"),
        _ => word.to_owned(),
    };
    let condition = condition.replace("near((x, y)", "near((pos[0], pos[1])");
    condition.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Some particles in one step: they drift, so that steps lie apart.
pub fn some(random: &mut Rng, schema: &TableSchema, step: i64, pids: std::ops::Range<i64>) -> Vec<Particle> {
    let mut rows: Vec<Particle> = pids
        .map(|pid| Particle {
            pid,
            step,
            x: random.f64() + step as f64 * 0.1,
            y: match random.u8(..40) {
                0 => None,
                1 => Some(f64::NAN),
                2 => Some(f64::INFINITY),
                _ => Some(random.f64()),
            },
            time_ms: EPOCH_MS + step * 60_000 + random.i64(0..1000),
            kind: random.u8(..4),
            vz: random.f32(),
            name: (random.u8(..10) > 0).then(|| random.choice(NAMES).unwrap()),
            charge: None,
            weight: Weight::new(1).unwrap(),
        })
        .collect();
    random.shuffle(&mut rows);
    let batch = batch(schema, &rows);
    let key: Vec<ArrayRef> =
        schema.sample_key().iter().map(|&place| Arc::clone(batch.column(place))).collect();
    let weights = weights(&key, Salt(schema.salt())).unwrap();
    rows.iter_mut().zip(weights).for_each(|(row, weight)| row.weight = weight);
    rows
}

/// The rows as columns of a table.
pub fn batch(schema: &TableSchema, rows: &[Particle]) -> RecordBatch {
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.pid).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.step).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.x).collect::<Float64Array>()),
        Arc::new(rows.iter().map(|row| row.y).collect::<Float64Array>()),
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.time_ms))),
        Arc::new(rows.iter().map(|row| row.kind).collect::<UInt8Array>()),
        Arc::new(rows.iter().map(|row| row.vz).collect::<Float32Array>()),
        Arc::new(rows.iter().map(|row| row.name).collect::<StringArray>()),
    ];
    if schema.columns().column_with_name("pos").is_some() {
        let elements = rows.iter().flat_map(|row| [Some(row.x), row.y, Some(f64::from(row.vz))]);
        let elements = Arc::new(elements.collect::<Float64Array>());
        let vectors: ArrayRef = Arc::new(FixedSizeListArray::new(element(), 3, elements, None));
        columns.splice(2..4, [vectors]);
    }
    if schema.columns().column_with_name("charge").is_some() {
        columns.push(Arc::new(rows.iter().map(|row| row.charge).collect::<Float32Array>()));
    }
    RecordBatch::try_new(Arc::clone(schema.columns()), columns).unwrap()
}
