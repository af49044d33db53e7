//! Columns added to a table: earlier rows have no value in them, whichever handles know of the column, and
//! whatever is packed.

use crate::rows::schema;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::expression::Expression;
use atoll_tables::protocol::{BlockId, EditError, Version};
use atoll_tables::{PackOptions, Query, Table, TableError, TableSchema, Union, column};
use std::collections::HashMap;
use std::sync::Arc;

const ROWS: i64 = 1000;

fn charge(unit: &str) -> Field {
    let metadata = HashMap::from([("unit".to_owned(), unit.to_owned())]);
    Field::new("charge", DataType::Float32, true).with_metadata(metadata)
}

/// The rows of a step; with a charge, which some of them lack.
fn rows(step: u64, charged: bool) -> RecordBatch {
    let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("pid", Arc::new((0..ROWS).collect::<Int64Array>()), false),
        ("step", Arc::new(Int64Array::from(vec![step as i64; ROWS as usize])), false),
        ("x", Arc::new((0..ROWS).map(|pid| pid as f64 / ROWS as f64).collect::<Float64Array>()), false),
    ];
    if charged {
        let charges = (0..ROWS).map(|pid| (pid % 4 > 0).then_some(pid as f32));
        columns.push(("charge", Arc::new(charges.collect::<Float32Array>()), true));
    }
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

async fn append(table: &Table, step: u64, charged: bool) -> Version {
    let id = BlockId { run: "run".into(), attempt: 1, step, rank: 0 };
    table.append(id, &rows(step, charged)).await.unwrap()
}

/// A table with one step without the column, one with it, and another one without.
async fn old_and_new(store: &Arc<dyn Store>) -> Table {
    let table = Table::create(Arc::clone(store), "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    append(&table, 1, false).await;
    table.add_column(charge("e")).await.unwrap();
    append(&table, 2, true).await;
    append(&table, 3, false).await;
    table
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

async fn count(table: &Table, filter: &str) -> u64 {
    let query = Query::default().filter(Expression::parse(filter).unwrap());
    let counted = table.count(&query).await.unwrap().rows;
    assert_eq!(table.query(&query).await.unwrap().rows.num_rows() as u64, counted, "{filter}");
    let scanned = table.scan(&query).await.unwrap().batches;
    assert_eq!(scanned.iter().map(RecordBatch::num_rows).sum::<usize>() as u64, counted, "{filter}");
    counted
}

/// Checks that every row has exactly the charge it was written with.
async fn check(table: &Table) {
    let answer = table.query(&Query::default()).await.unwrap().rows;
    assert_eq!(answer.schema().field(3), &charge("e"));
    let (pid, step) =
        (answer.column(0).as_primitive::<Int64Type>(), answer.column(1).as_primitive::<Int64Type>());
    let charges = answer.column(3).as_primitive::<Float32Type>();
    for row in 0..answer.num_rows() {
        let expected = (step.value(row) == 2 && pid.value(row) % 4 > 0).then(|| pid.value(row) as f32);
        let found = charges.is_valid(row).then(|| charges.value(row));
        assert_eq!(found, expected, "particle {} of step {}", pid.value(row), step.value(row));
    }
    assert_eq!(answer.num_rows() as i64, 3 * ROWS);
    let of = ROWS as u64;
    assert_eq!(count(table, "charge is null").await, 2 * of + of / 4);
    assert_eq!(count(table, "charge is not null and x < 0.5").await, of * 3 / 8);
    assert_eq!(count(table, "charge >= 500").await, of * 3 / 8);
    assert_eq!(count(table, "not (charge >= 500)").await, of * 3 / 8);
    assert_eq!(count(table, "charge is null or charge < 2").await, 2 * of + of / 4 + 1);
    let some = table.query(&Query::default().select(["charge", "pid"]).sample(0.3).unwrap()).await.unwrap();
    let mean = some.rows.column(0).as_primitive::<Float32Type>();
    assert!((mean.len() - mean.null_count()) > 0 && mean.null_count() > mean.len() / 2);
}

#[tokio::test]
async fn old_rows_have_no_value_in_a_new_column_packed_and_not() {
    let store = memory();
    let table = old_and_new(&store).await;
    check(&table).await;
    table.pack(&PackOptions { rows_min: 0, ..PackOptions::default() }).await.unwrap();
    check(&table).await;
    append(&table, 4, true).await;
    table.delete(None, Some(4..5), None).await.unwrap();
    table.pack(&PackOptions::whole()).await.unwrap();
    check(&table).await;
    check(&Table::open(store, "run").await.unwrap()).await;
}

#[tokio::test]
async fn cubes_from_before_a_column_answer_beside_blocks_from_after_it() {
    let store = memory();
    let table = Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    append(&table, 1, false).await;
    table.pack(&PackOptions::whole()).await.unwrap();
    table.add_column(charge("e")).await.unwrap();
    append(&table, 2, true).await;
    append(&table, 3, false).await;
    check(&table).await;
    table.pack(&PackOptions::whole()).await.unwrap();
    check(&table).await;
}

/// Appends a step in which half of the rows have a vector.
async fn append_spectra(table: &Table, step: u64, elements: i32) {
    let spectrum = |pid: i64| (0..elements).map(move |place| Some((pid + i64::from(place)) as f32));
    let spectra = (0..ROWS).map(|pid| (pid % 2 > 0).then(|| spectrum(pid)));
    let spectra = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(spectra, elements);
    let bare = rows(step, false);
    let field = Field::new("spectrum", spectra.data_type().clone(), true);
    let fields: Vec<_> = bare.schema().fields().iter().cloned().chain([Arc::new(field)]).collect();
    let columns = bare.columns().iter().cloned().chain([Arc::new(spectra) as ArrayRef]).collect();
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let id = BlockId { run: "run".into(), attempt: 1, step, rank: 0 };
    table.append(id, &rows).await.unwrap();
}

#[tokio::test]
async fn vectors_that_rows_do_not_have_take_no_room_in_a_tree() {
    let table = Table::create(memory(), "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    for step in 1..=2 {
        append(&table, step, false).await;
    }
    let elements = 4096;
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let spectrum = Field::new("spectrum", DataType::FixedSizeList(item, elements), true);
    table.add_column(spectrum).await.unwrap();
    let packed = table.pack(&PackOptions::whole()).await.unwrap();
    assert_eq!(packed.rows, 2 * ROWS as u64);
    assert!(packed.bytes_written < 200_000, "{} bytes for rows without vectors", packed.bytes_written);
    append_spectra(&table, 3, elements).await;
    let packed = table.pack(&PackOptions::whole()).await.unwrap();
    assert_eq!(packed.rows, 3 * ROWS as u64);
    // Beside vectors, a null takes the bits of a packed value and never all of its bytes.
    let all = packed.rows * elements as u64 * 4;
    assert!(packed.bytes_written < all / 3, "{} bytes of {all}", packed.bytes_written);
    assert_eq!(count(&table, "spectrum is null").await, 5 * ROWS as u64 / 2);
    let answer = table.query(&Query::default().select(["pid", "spectrum"])).await.unwrap().rows;
    let (pid, spectra) =
        (answer.column(0).as_primitive::<Int64Type>(), answer.column(1).as_fixed_size_list());
    for row in (0..answer.num_rows()).filter(|&row| spectra.is_valid(row)) {
        let found = spectra.value(row);
        let expected = (0..elements).map(|place| (pid.value(row) + i64::from(place)) as f32);
        assert!(found.as_primitive::<Float32Type>().values().iter().copied().eq(expected), "row {row}");
    }
}

#[tokio::test]
async fn whoever_has_not_noticed_a_column_asks_and_appends_all_the_same() {
    let store = memory();
    let first = Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    first.begin("run", 1, 1).await.unwrap();
    let second = Table::open(Arc::clone(&store), "run").await.unwrap();
    append(&second, 1, false).await;
    first.add_column(charge("e")).await.unwrap();
    assert_eq!(second.schema().columns().fields().len(), 3, "nobody told it yet");
    append(&second, 2, true).await;
    assert_eq!(second.schema().columns().fields().len(), 4);
    let third = Table::open(Arc::clone(&store), "run").await.unwrap();
    third.add_column(Field::new("mass", DataType::Float64, true)).await.unwrap();
    append(&first, 3, false).await;
    let answer = second.query(&Query::default()).await.unwrap().rows;
    assert_eq!((answer.num_columns(), answer.column(4).null_count()), (5, 3 * ROWS as usize));
    assert_eq!(count(&second, "mass is null and charge is not null").await, ROWS as u64 * 3 / 4);
}

#[tokio::test]
async fn an_older_version_has_the_columns_that_it_had() {
    let store = memory();
    let table = Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let before = append(&table, 1, false).await;
    let added = table.add_column(charge("e")).await.unwrap();
    let columns = async |version| {
        let answer = table.query(&Query::default().as_of(version)).await.unwrap();
        answer.rows.num_columns()
    };
    assert_eq!((columns(before).await, columns(added).await), (3, 4));
    let asked = Query::default().filter(Expression::parse("charge is null").unwrap());
    assert!(matches!(table.query(&asked.clone().as_of(before)).await, Err(TableError::Filter(_))));
    assert_eq!(table.query(&asked.as_of(added)).await.unwrap().rows.num_rows(), ROWS as usize);
}

#[tokio::test]
async fn a_column_is_added_once_and_another_of_its_name_is_refused() {
    let store = memory();
    let table = Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    let other = Table::open(Arc::clone(&store), "run").await.unwrap();
    let version = table.add_column(charge("e")).await.unwrap();
    assert_eq!(table.add_column(charge("e")).await.unwrap(), version);
    assert_eq!(other.add_column(charge("e")).await.unwrap(), version);
    assert!(matches!(other.add_column(charge("C")).await, Err(TableError::Schema(_))));
    let absent = Field::new("mass", DataType::Float32, false);
    assert!(matches!(table.add_column(absent).await, Err(TableError::Schema(_))));
    let (one, two) = (charge("e").with_name("q"), charge("C").with_name("q"));
    let outcomes = futures::future::join(table.add_column(one), other.add_column(two)).await;
    let refused = [outcomes.0, outcomes.1].into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(matches!(refused[0], TableError::Schema(_) | TableError::Edit(EditError::ColumnThere { .. })));
}

#[tokio::test]
async fn a_table_is_made_again_with_the_schema_that_it_had_or_has() {
    let store = memory();
    let table = old_and_new(&store).await;
    let again = Table::create(Arc::clone(&store), "run", schema()).await.unwrap();
    assert_eq!(again.schema(), table.schema());
    let now = table.schema().as_ref().clone();
    assert!(Table::create(Arc::clone(&store), "run", now.clone()).await.is_ok());
    let other = schema().with_added([column("mass", DataType::Float32, true)]).unwrap();
    let refused = Table::create(Arc::clone(&store), "run", other).await;
    assert!(matches!(refused, Err(TableError::Exists { .. })));
}

/// A schema of which the first column has a note.
fn noted(schema: &TableSchema, key: &str, text: &str) -> TableSchema {
    let mut fields: Vec<Field> = schema.columns().fields().iter().map(|field| (**field).clone()).collect();
    fields[0] = fields[0].clone().with_metadata(HashMap::from([(key.to_owned(), text.to_owned())]));
    TableSchema::new(Schema::new(fields), &schema.roles()).unwrap()
}

#[tokio::test]
async fn a_table_is_the_same_whatever_libraries_noted_on_its_columns_and_at_any_of_its_states() {
    let store = memory();
    let table = Table::create(Arc::clone(&store), "run", noted(&schema(), "unit", "1")).await.unwrap();
    for name in ["mass", "spin"] {
        table.add_column(Field::new(name, DataType::Float64, true)).await.unwrap();
    }
    let with_mass =
        noted(&schema(), "unit", "1").with_added([column("mass", DataType::Float64, true)]).unwrap();
    let create = async |schema: TableSchema| Table::create(Arc::clone(&store), "run", schema).await;
    let for_rows =
        async |schema: TableSchema| Table::create_for_rows(Arc::clone(&store), "run", schema).await;
    // The schema that the table had in between, and one with a note that belongs to no table.
    assert!(create(with_mass.clone()).await.is_ok());
    let mut fields: Vec<Field> = with_mass.columns().fields().iter().map(|field| (**field).clone()).collect();
    let notes =
        [("unit", "1"), ("PARQUET:field_id", "7")].map(|(key, text)| (key.to_owned(), text.to_owned()));
    fields[0] = fields[0].clone().with_metadata(HashMap::from(notes));
    let of_library = TableSchema::new(Schema::new(fields), &with_mass.roles()).unwrap();
    assert!(create(of_library).await.is_ok());
    // Without the unit, or with a description, it is another table, which can take the rows all the same.
    for other in [schema(), noted(&with_mass, "description", "a number")] {
        let refused = create(other.clone()).await;
        assert!(matches!(refused, Err(TableError::Exists { .. })), "{refused:?}");
        assert!(for_rows(other.clone()).await.is_ok() && table.takes_rows_of(&other));
    }
    // Another unit keeps rows apart, and so does a column that the table never had in that place.
    let grams = noted(&with_mass, "unit", "g");
    let charge = schema().with_added([column("charge", DataType::Float64, true)]).unwrap();
    for (other, differs) in [(grams, "the unit of column"), (charge, "it has a column \"mass\"")] {
        let refused = for_rows(other.clone()).await.unwrap_err();
        assert!(refused.to_string().contains(differs) && !table.takes_rows_of(&other), "{refused}");
    }
}

#[tokio::test]
async fn a_union_has_the_columns_of_all_and_nulls_where_a_table_has_none() {
    let (one, two) = (memory(), memory());
    let new = old_and_new(&one).await;
    let old = Table::create(Arc::clone(&two), "run", schema()).await.unwrap();
    old.begin("run", 1, 1).await.unwrap();
    append(&old, 5, false).await;
    old.add_column(Field::new("mass", DataType::Float64, true)).await.unwrap();
    for tables in [vec![new.clone(), old.clone()], vec![old.clone(), new.clone()]] {
        let union = Union::new(tables).unwrap();
        let names = ["charge", "mass", "step"];
        let answer = union.query(&Query::default().select(names)).await.unwrap().rows;
        assert_eq!(answer.num_rows() as i64, 4 * ROWS);
        let whole = union.query(&Query::default()).await.unwrap().rows;
        assert_eq!(whole.num_columns(), 5);
        let charged = answer.num_rows() - answer.column(0).null_count();
        assert_eq!((charged as i64, answer.column(1).null_count()), (ROWS * 3 / 4, answer.num_rows()));
        let filter = Expression::parse("mass is null and charge is null and x < 0.5").unwrap();
        let asked = Query::default().filter(filter);
        assert_eq!(union.count(&asked).await.unwrap().rows as i64, ROWS / 2 * 3 + ROWS / 8);
        assert!(union.explain(&asked).await.is_ok());
    }
    old.add_column(charge("C")).await.unwrap();
    let refused = Union::new(vec![new, old]).unwrap_err().to_string();
    assert!(refused.contains("column \"charge\" of table 2"), "{refused}");
    assert!(refused.contains("unit C") && refused.contains("unit e"), "{refused}");
}

#[tokio::test]
async fn a_table_of_a_union_is_packed_with_its_own_columns() {
    let (one, two) = (memory(), memory());
    let new = old_and_new(&one).await;
    let old = Table::create(Arc::clone(&two), "run", schema()).await.unwrap();
    old.begin("run", 1, 1).await.unwrap();
    append(&old, 5, false).await;
    let union = Union::new(vec![new, old]).unwrap();
    union.tables()[1].pack(&PackOptions::whole()).await.unwrap();
    let again = Table::open(two, "run").await.unwrap().query(&Query::default()).await.unwrap().rows;
    assert_eq!((again.num_rows() as i64, again.num_columns()), (ROWS, 3));
}
