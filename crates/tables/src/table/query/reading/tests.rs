//! Readings that fail: what was found and not handed over is there for the next call.

use super::super::Query;
use super::super::failing::{mend, spoil, table};
use super::*;

#[tokio::test]
async fn rows_that_could_not_be_handed_over_are_handed_over_by_the_next_call() {
    let (table, query) = (table(0).await, Query::default());
    let all = table.query(&query).await.unwrap();
    let manifest = table.ledger.current().await.unwrap().manifest;
    // An id is needed to put rows in order, another column only once they are.
    for column in [0, 2] {
        let asked = Asked::rows(&table, &query).unwrap();
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
