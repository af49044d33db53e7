//! Tests that found rows that could not be handed over wait for the next call, that those which wait are
//! sorted once, and that counted rows are not kept.

use super::super::Query;
use super::super::failing::{ROWS, mend, spoil, table};
use super::*;
use crate::PackOptions;
use crate::expression::Expression;
use crate::protocol::{ObjectId, Piece, Placed};

#[tokio::test]
async fn rows_that_could_not_be_handed_over_are_handed_over_by_the_next_call() {
    let (table, query) = (table(0).await, Query::default());
    let all = table.query(&query).await.unwrap();
    let manifest = table.ledger.current().await.unwrap().manifest;
    // An id is needed to sort the rows, any other column only afterwards.
    for column in [0, 2] {
        let asked = BoundQuery::rows(&table, &query).unwrap();
        let mut reading = Reading::open(&table, asked, &manifest, Reach::AsNeeded).await.unwrap();
        let (mut from, mut cuts) = (0, Vec::new());
        while !reading.is_over() {
            reading.read_toward(Some(reading.handed_rows() + 50)).await.unwrap();
            spoil(&mut reading.found, column);
            assert!(matches!(reading.hand_over(Some(100)), Err(TableError::Block { .. })));
            assert!(!reading.is_over());
            mend(&mut reading.found);
            let handed = reading.hand_over(Some(100)).unwrap();
            assert_eq!(handed.rows, all.rows.slice(from, handed.rows.num_rows()), "column {column}");
            from += handed.rows.num_rows();
            cuts.push(handed.cut);
        }
        assert_eq!(from, all.rows.num_rows());
        assert!(cuts.is_sorted() && cuts.len() > 2);
    }
}

#[tokio::test]
async fn each_row_is_sorted_once_in_however_many_portions_it_is_handed_over() {
    let table = table(0).await;
    for (query, rows) in [(Query::default(), ROWS as usize), (Query::default().first(300), 300)] {
        let all = table.query(&query).await.unwrap();
        let manifest = table.ledger.current().await.unwrap().manifest;
        let asked = BoundQuery::rows(&table, &query).unwrap();
        let mut reading = Reading::open(&table, asked, &manifest, Reach::AsNeeded).await.unwrap();
        let (mut from, mut portions) = (0, 0);
        while !reading.is_over() {
            reading.read_toward(Some(reading.handed_rows() + 6)).await.unwrap();
            let handed = reading.hand_over(Some(12)).unwrap();
            let found = handed.rows.num_rows();
            assert_eq!(handed.rows, all.rows.slice(from, found));
            assert!(found >= 6 || reading.is_over(), "{found} rows at {from}, though 6 were known");
            (from, portions) = (from + found, portions + 1);
        }
        assert_eq!(from, rows);
        assert!(portions > 20, "{portions}");
        assert!((rows..=ROWS as usize).contains(&reading.ready.sorted), "{} sorted", reading.ready.sorted);
    }
}

#[tokio::test]
async fn nothing_is_kept_of_rows_that_are_counted() {
    let table = table(0).await;
    // Not on an index column, so that each row has to be judged.
    let filter = Expression::parse("vz >= 100 and vz < 350").unwrap();
    for is_packed in [false, true] {
        if is_packed {
            table.pack(&PackOptions::whole()).await.unwrap();
        }
        let manifest = table.ledger.current().await.unwrap().manifest;
        for (query, expected) in [
            (Query::default().filter(filter.clone()), 250),
            (Query::default().filter(filter.clone()).limit(70), 70),
            (Query::default().sample(0.5).unwrap(), 0),
        ] {
            let asked = BoundQuery::count(&table, &query).unwrap();
            let mut reading = Reading::open(&table, asked, &manifest, Reach::Everything).await.unwrap();
            reading.read_toward(None).await.unwrap();
            assert!(reading.found.is_empty(), "{query:?}");
            let of_rows = table.query(&query).await.unwrap().rows.num_rows() as u64;
            assert_eq!(reading.count(), of_rows, "{query:?}");
            assert!(expected == 0 || of_rows == expected, "{query:?}");
            assert!(of_rows < ROWS as u64);
        }
    }
}

#[tokio::test]
async fn no_number_of_rows_that_a_manifest_names_makes_a_count_overflow() {
    let table = table(0).await;
    let mut manifest = Manifest::clone(&table.ledger.current().await.unwrap().manifest);
    let placed = manifest.pieces.values().next().unwrap().clone();
    for sequence in [u64::MAX - 1, u64::MAX] {
        let object = ObjectId { sequence, ..placed.piece.object };
        let most = u64::MAX;
        let piece = Piece { object, rows: most, bytes: most, front_bytes: most, ..placed.piece.clone() };
        manifest.pieces.insert(piece.key(), Placed { piece, ..placed.clone() });
    }
    let asked = BoundQuery::count(&table, &Query::default()).unwrap();
    assert_eq!(Contained::of(&asked, &manifest).rows(), u64::MAX);
    let reading = Reading::open(&table, asked, &manifest, Reach::Everything).await.unwrap();
    assert_eq!((reading.count(), reading.opened()), (u64::MAX, 0));
}
