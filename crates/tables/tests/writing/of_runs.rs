//! Queries of some runs, by name and by attributes, before and after packing, of one table and of several.

use super::rows::{block, create, open, rows};
use atoll_memory::MemoryStore;
use atoll_store::{ErrorKind, Store};
use atoll_tables::expression::Expression;
use atoll_tables::protocol::RunId;
use atoll_tables::{
    AttributesOf, OfRuns, PackOptions, Query, Readable, RunSummary, Table, TableError, Union,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Three runs of two steps of 20, 30 and 40 rows.
async fn three_runs() -> (Arc<dyn Store>, Table) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    for (place, run) in ["a", "b", "c"].into_iter().enumerate() {
        table.begin(run, 1, 1).await.unwrap();
        for step in 1..3 {
            let rows = rows(step, 1000 * place as i64, 20 + 10 * place);
            table.append(block(run, 1, step, 0), &rows).await.unwrap();
        }
    }
    (store, table)
}

fn of(runs: &[&str]) -> Query {
    Query::default().of_runs(OfRuns::new(runs.iter().copied()))
}

/// The number of rows of a query, found in every possible way.
async fn count(table: &Table, query: &Query) -> Result<usize, TableError> {
    let rows = table.query(query).await?.rows.num_rows();
    assert_eq!(table.count(query).await?.rows as usize, rows);
    let scanned = table.scan(query).await?.batches;
    assert_eq!(scanned.iter().map(|batch| batch.num_rows()).sum::<usize>(), rows);
    Ok(rows)
}

async fn judge(table: &Table) {
    let cases = [(&["a"][..], 40), (&["b"], 60), (&["a", "c"], 120), (&["a", "b", "c"], 180), (&[], 0)];
    for (runs, wanted) in cases {
        assert_eq!(count(table, &of(runs)).await.unwrap(), wanted, "{runs:?}");
    }
    let both = of(&["a", "b"]).of_runs(OfRuns::new(["b", "c"]));
    assert_eq!(count(table, &both).await.unwrap(), 60, "of both at once");
    let left = of(&["b"]).filter(Expression::parse("step = 1").unwrap());
    assert_eq!(count(table, &left).await.unwrap(), 30);
    let refused = count(table, &of(&["a", "bb"])).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.hint().as_deref()),
        (ErrorKind::NotFound, Some("did you mean \"b\"?"))
    );
}

#[tokio::test]
async fn the_steps_that_a_query_may_return_are_those_with_rows_of_its_version_and_its_runs() {
    let (_store, table) = three_runs().await;
    let before = table.version().await.unwrap();
    // A run that began and has no rows, one whose rows are gone, and a block of a step that is not complete.
    table.begin("d", 1, 1).await.unwrap();
    table.delete(Some("b"), None, None).await.unwrap();
    table.begin("e", 1, 2).await.unwrap();
    table.append(block("e", 1, 7, 0), &rows(7, 9000, 5)).await.unwrap();
    let asked = async |query: Query| {
        let steps = table.steps_asked(&query).await.unwrap();
        steps.into_iter().map(|(run, steps)| format!("{run}{steps:?}")).collect::<Vec<_>>()
    };
    assert_eq!(asked(Query::default()).await, ["a[1, 2]", "c[1, 2]"]);
    assert_eq!(asked(Query::default().with_arriving()).await, ["a[1, 2]", "c[1, 2]", "e[7]"]);
    assert_eq!(asked(of(&["b", "c", "d"])).await, ["c[1, 2]"]);
    assert_eq!(asked(of(&["b", "c"]).as_of(before)).await, ["b[1, 2]", "c[1, 2]"]);
}

#[tokio::test]
async fn rows_of_a_run_are_those_that_it_wrote_however_they_lie() {
    let (store, table) = three_runs().await;
    judge(&table).await;
    table.pack(&PackOptions { is_whole: true, ..PackOptions::default() }).await.unwrap();
    assert!(table.info().await.unwrap().cubes > 0 && table.info().await.unwrap().blocks == 0);
    judge(&open(&store).await).await;
    table.delete(Some("b"), Some(1..2), None).await.unwrap();
    assert_eq!(count(&table, &of(&["b"])).await.unwrap(), 30, "beside a tombstone");
}

#[tokio::test]
async fn of_several_tables_none_is_passed_over_whose_attributes_do_not_fit() {
    let (_, left) = three_runs().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let right = create(&store).await;
    right.begin("d", 1, 1).await.unwrap();
    right.append(block("d", 1, 1, 0), &rows(1, 9000, 5)).await.unwrap();
    let note = async |table: &Table, run: &str, value: Value| {
        let temperature = [("temperature".to_owned(), Some(value))].into();
        table.note(AttributesOf::Run(run), &temperature).await.unwrap();
    };
    note(&left, "a", json!(310)).await;
    let both = Readable::Many(Union::new(vec![left, right.clone()]).unwrap());
    let hot = Expression::parse("temperature > 300").unwrap();
    assert_eq!(both.runs_where(&hot).await.unwrap().len(), 1, "a table that never heard of it has none");
    note(&right, "d", json!("310")).await;
    let refused = both.runs_where(&hot).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    note(&right, "d", json!([310])).await;
    let refused = both.runs_where(&hot).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
}

#[tokio::test]
async fn runs_of_several_tables_are_asked_as_those_of_one() {
    let (_, left) = three_runs().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let right = create(&store).await;
    right.begin("d", 1, 1).await.unwrap();
    right.append(block("d", 1, 1, 0), &rows(1, 9000, 5)).await.unwrap();
    for (table, run, name, value) in
        [(&left, "a", "temperature", json!(310)), (&right, "d", "pressure", json!(2))]
    {
        table.note(AttributesOf::Run(run), &[(name.to_owned(), Some(value))].into()).await.unwrap();
    }
    let both = Readable::Many(Union::new(vec![left, right]).unwrap());
    let found = async |condition: &str| {
        let runs = both.runs_where(&Expression::parse(condition).unwrap()).await?;
        Ok::<_, TableError>(runs.into_iter().map(|run| run.name).collect::<Vec<_>>())
    };
    assert_eq!(found("temperature is null").await.unwrap(), ["b", "c", "d"]);
    assert_eq!(found("temperature > 300 or pressure > 1").await.unwrap(), ["a", "d"]);
    assert_eq!(found("temperature > 300").await.unwrap(), ["a"]);
    let refused = found("presure > 1").await.unwrap_err();
    assert_eq!(refused.hint().as_deref(), Some("did you mean pressure?"));
}

#[tokio::test]
async fn of_several_tables_each_need_not_have_every_run() {
    let (_, left) = three_runs().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let right = create(&store).await;
    right.begin("d", 1, 1).await.unwrap();
    right.append(block("d", 1, 1, 0), &rows(1, 9000, 5)).await.unwrap();
    let union = Union::new(vec![left, right]).unwrap();
    for (runs, wanted) in [(&["a"][..], 40), (&["d"], 5), (&["a", "d"], 45)] {
        assert_eq!(union.query(&of(runs)).await.unwrap().rows.num_rows(), wanted);
        assert_eq!(union.count(&of(runs)).await.unwrap().rows as usize, wanted);
        assert!(union.explain(&of(runs)).await.is_ok());
    }
    let refused = union.query(&of(&["a", "e"])).await.unwrap_err();
    assert!(matches!(refused, TableError::NoRun { run, .. } if run == "e"));
}

#[tokio::test]
async fn runs_of_one_name_in_two_tables_are_two() {
    let (_, left) = three_runs().await;
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let right = create(&store).await;
    right.begin("a", 1, 1).await.unwrap();
    right.append(block("a", 1, 1, 0), &rows(1, 9000, 5)).await.unwrap();
    for (table, temperature) in [(&left, 300), (&right, 310)] {
        let changes = [("temperature".to_owned(), Some(json!(temperature)))].into();
        table.note(AttributesOf::Run("a"), &changes).await.unwrap();
    }
    let both = Readable::Many(Union::new(vec![left, right]).unwrap());
    let hot = Expression::parse("temperature > 301").unwrap();
    let found = both.runs_where_of_each(&hot).await.unwrap();
    let names = |runs: Vec<RunSummary>| runs.into_iter().map(|run| RunId::from(run.name.as_str())).collect();
    let meant = OfRuns::of_each(found.into_iter().map(names).collect());
    let rows_of = async |runs: OfRuns| both.count(&Query::default().of_runs(runs)).await.unwrap().rows;
    assert_eq!(rows_of(meant.clone()).await, 5);
    assert_eq!(rows_of(OfRuns::new(["a"])).await, 45, "a name is that of each table");
    assert_eq!(rows_of(meant.intersection(&OfRuns::new(["a", "b"]))).await, 5);
    assert_eq!(rows_of(OfRuns::new(["b"]).intersection(&meant)).await, 0);
    assert_eq!(rows_of(meant.intersection(&meant)).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_several_note_at_once_is_all_there() {
    let (store, table) = three_runs().await;
    let (mut tasks, other) = (tokio::task::JoinSet::new(), open(&store).await);
    for (place, table) in [table.clone(), other, table.clone()].into_iter().enumerate() {
        tasks.spawn(async move {
            for number in 0..200 {
                let changes = [(format!("of.{place}.{number}"), Some(json!(number)))].into();
                table.note(AttributesOf::Run("a"), &changes).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(table.attributes(AttributesOf::Run("a")).await.unwrap().len(), 600);
    let gone = [("of.0.0".to_owned(), None), ("never".to_owned(), None)].into();
    assert_eq!(table.note(AttributesOf::Run("a"), &gone).await.unwrap().len(), 599);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_what_several_note_as_new_the_first_stays_and_all_are_told_it() {
    let (store, table) = three_runs().await;
    let (mut tasks, other) = (tokio::task::JoinSet::new(), open(&store).await);
    for (place, table) in [table.clone(), other, table.clone()].into_iter().enumerate() {
        tasks.spawn(async move {
            let own = [("version".to_owned(), json!(place)), (format!("of.{place}"), json!(1))].into();
            table.note_new(AttributesOf::Run("a"), &own).await.unwrap()["version"].clone()
        });
    }
    let told = tasks.join_all().await;
    let noted = table.attributes(AttributesOf::Run("a")).await.unwrap();
    assert_eq!(noted.len(), 4, "{noted:?}");
    assert!(told.iter().all(|version| *version == noted["version"]), "{told:?}, {noted:?}");
    let late = [("version".to_owned(), json!(9))].into();
    assert_eq!(table.note_new(AttributesOf::Run("a"), &late).await.unwrap(), noted);
}

#[tokio::test]
async fn runs_are_found_by_what_was_noted_of_them() {
    let (_, table) = three_runs().await;
    let note = |run: &'static str, attributes: Value| {
        let table = table.clone();
        let attributes = serde_json::from_value(attributes).unwrap();
        async move { table.note(AttributesOf::Run(run), &attributes).await.unwrap() }
    };
    note("a", json!({"temperature": 300, "solvent": "water", "list": [1]})).await;
    note("b", json!({"temperature": 310.5})).await;
    note("gone", json!({"temperature": 305})).await;
    let found = async |condition: &str| {
        let runs = table.runs_where(&Expression::parse(condition).unwrap()).await?;
        Ok::<_, TableError>(runs.into_iter().map(|run| run.name).collect::<Vec<_>>())
    };
    assert_eq!(found("temperature > 301").await.unwrap(), ["b"]);
    assert_eq!(found("temperature is null or solvent = 'water'").await.unwrap(), ["a", "c"]);
    assert_eq!(found("run = 'c'").await.unwrap(), ["c"]);
    for wrong in ["pressure > 1", "list = 1", "temperature = 'hot'"] {
        assert_eq!(found(wrong).await.unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
    }
}
