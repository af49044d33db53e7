//! Rows near a point of a periodic cell, and boxes that extend beyond its boundary, in packed and unpacked
//! tables.

use crate::run;
use crate::seeds::for_seeds;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use atoll_memory::MemoryStore;
use atoll_tables::expression::{Cell, Expression, parse_box};
use atoll_tables::protocol::BlockId;
use atoll_tables::{
    AttributesOf, Boundary, CELL_ATTRIBUTE, PackOptions, Query, Roles, Table, TableSchema, column,
};
use fastrand::Rng;
use std::sync::Arc;

const AXES: [&str; 3] = ["x", "y", "z"];
const LENGTHS: [f64; 3] = [10.0, 8.0, 6.0];
const TILTS: [f64; 3] = [2.0, -1.0, 1.5];
const ROWS: usize = 4000;

fn schema() -> TableSchema {
    let numbers = AXES.map(|name| column(name, DataType::Float64, false));
    let columns: Vec<_> = [column("pid", DataType::Int64, false)].into_iter().chain(numbers).collect();
    let index = AXES.map(str::to_owned).to_vec();
    let roles = Roles { id: vec!["pid".to_owned()], index, ..Roles::default() };
    TableSchema::new(Schema::new(columns), &roles).unwrap()
}

/// Positions all over a cell that may lean.
fn some_places(random: &mut Rng, tilts: [f64; 3]) -> Vec<[f64; 3]> {
    let place = |random: &mut Rng| {
        let parts: [f64; 3] = std::array::from_fn(|_| random.f64());
        let [x, y, z] = std::array::from_fn(|axis| parts[axis] * LENGTHS[axis]);
        [x + parts[1] * tilts[0] + parts[2] * tilts[1], y + parts[2] * tilts[2], z]
    };
    (0..ROWS).map(|_| place(random)).collect()
}

async fn table_of(places: &[[f64; 3]]) -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    for (step, places) in places.chunks(ROWS / 4).enumerate() {
        let first = (step * ROWS / 4) as i64;
        let pids = Int64Array::from_iter_values(first..first + places.len() as i64);
        let axis = |axis: usize| -> ArrayRef {
            Arc::new(places.iter().map(|place| place[axis]).collect::<Float64Array>())
        };
        let columns: Vec<ArrayRef> = vec![Arc::new(pids), axis(0), axis(1), axis(2)];
        let rows = RecordBatch::try_new(Arc::clone(table.schema().columns()), columns).unwrap();
        let id = BlockId { run: "run".into(), attempt: 1, step: step as u64, rank: 0 };
        table.append(id, &rows).await.unwrap();
    }
    table
}

/// Rows with an image, shifted by at most three edges each way, that satisfies `holds`.
fn brute(places: &[[f64; 3]], tilts: [f64; 3], holds: impl Fn([f64; 3]) -> bool) -> Vec<i64> {
    let edges = || (-3..=3).map(f64::from);
    let images = || edges().flat_map(move |k| edges().flat_map(move |j| edges().map(move |i| (i, j, k))));
    let is_there = |place: &[f64; 3]| {
        images().any(|(i, j, k)| {
            let x = place[0] - i * LENGTHS[0] - j * tilts[0] - k * tilts[1];
            holds([x, place[1] - j * LENGTHS[1] - k * tilts[2], place[2] - k * LENGTHS[2]])
        })
    };
    (0_i64..).zip(places).filter(|(_, place)| is_there(place)).map(|(pid, _)| pid).collect()
}

/// The particles that a filter finds, and the number of rows touched.
async fn found(table: &Table, filter: Expression) -> (Vec<i64>, u64) {
    let query = Query::default().filter(filter);
    let answer = table.query(&query).await.unwrap();
    assert_eq!(table.count(&query).await.unwrap().rows as usize, answer.rows.num_rows());
    let mut pids = answer.rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    pids.sort_unstable();
    (pids, answer.work.rows_touched)
}

#[test]
fn what_is_near_or_in_a_box_behind_the_boundary_is_what_its_images_are() {
    for_seeds("what_is_near_or_in_a_box_behind_the_boundary", 6, |random| {
        run(async {
            let tilts = if random.bool() { TILTS } else { [0.0; 3] };
            let places = some_places(random, tilts);
            let table = table_of(&places).await;
            let cell = Cell::new(&LENGTHS, &tilts).unwrap();
            let boundary = Boundary::new(&AXES.map(str::to_owned), &[], cell).unwrap();
            let cell = [(CELL_ATTRIBUTE.to_owned(), Some(boundary.to_json()))].into();
            table.note(AttributesOf::Table, &cell).await.unwrap();
            let boundary = table.boundary(Some("run"), Some(3)).await.unwrap().unwrap();
            let mut touched = 0;
            for round in 0..24 {
                if round == 12 {
                    table.pack(&PackOptions::whole()).await.unwrap();
                    touched = 0;
                }
                let point: [f64; 3] = std::array::from_fn(|axis| random.f64() * LENGTHS[axis]);
                let radius = 0.3 + random.f64() * 1.5;
                let expected = brute(&places, tilts, |place| {
                    let away: [f64; 3] = std::array::from_fn(|axis| place[axis] - point[axis]);
                    away.iter().map(|away| away * away).sum::<f64>() <= radius * radius
                });
                let near = found(&table, boundary.near(&point, radius).unwrap()).await;
                assert_eq!(near.0, expected, "near {point:?} by {radius}");
                touched += near.1;
                // Across a corner of the cell.
                let ends: [(f64, f64); 3] = std::array::from_fn(|axis| {
                    let low = LENGTHS[axis] - random.f64() * 2.0;
                    (low, low + 1.0 + random.f64() * 2.0)
                });
                let side = |axis: usize| format!("{}={:?}:{:?}", AXES[axis], ends[axis].0, ends[axis].1);
                let sides = parse_box(&[side(0), side(1), side(2)].join(", ")).unwrap();
                let within =
                    |place: [f64; 3]| (0..3).all(|axis| (ends[axis].0..ends[axis].1).contains(&place[axis]));
                let expected = brute(&places, tilts, within);
                let boxed = found(&table, boundary.wrapped(&sides).unwrap().unwrap()).await;
                assert_eq!(boxed.0, expected, "{sides:?}");
                touched += boxed.1;
            }
            let all = (24 * ROWS) as u64;
            assert!(touched * 2 < all, "{touched} of {all} rows were touched of a packed table");
        });
    });
}

#[tokio::test]
async fn a_step_has_its_own_cell_or_that_of_its_run_or_of_the_table() {
    let table = table_of(&[[0.0; 3]; 4]).await;
    assert_eq!(table.boundary(Some("run"), Some(1)).await.unwrap(), None);
    let of = |length: f64| {
        let cell = Cell::new(&[length], &[]).unwrap();
        Boundary::new(&["x".to_owned()], &[], cell).unwrap()
    };
    let kept = |length: f64| [(CELL_ATTRIBUTE.to_owned(), Some(of(length).to_json()))].into();
    table.note(AttributesOf::Table, &kept(1.0)).await.unwrap();
    table.note(AttributesOf::Run("run"), &kept(2.0)).await.unwrap();
    table.note(AttributesOf::Step("run", 7), &kept(3.0)).await.unwrap();
    let boundary = async |run, step| table.boundary(run, step).await.unwrap();
    assert_eq!(boundary(None, None).await, Some(of(1.0)));
    assert_eq!(boundary(Some("other"), Some(7)).await, Some(of(1.0)));
    assert_eq!(boundary(Some("run"), Some(6)).await, Some(of(2.0)));
    assert_eq!(boundary(Some("run"), Some(7)).await, Some(of(3.0)));
    // Adding another attribute leaves the cell as it is.
    let deck = [("deck".to_owned(), Some("tube.in".into()))].into();
    table.note(AttributesOf::Run("run"), &deck).await.unwrap();
    assert_eq!(boundary(Some("run"), None).await, Some(of(2.0)));
    let wrong = [(CELL_ATTRIBUTE.to_owned(), Some("cube".into()))].into();
    assert!(table.note(AttributesOf::Table, &wrong).await.is_err());
}
