//! Tests that rows that were found but not handed over wait for the next call after an error, and that those
//! which wait are sorted once.

use super::super::super::failing::{ROWS, mend, spoil, table};
use super::*;

#[tokio::test]
async fn rows_that_could_not_be_handed_over_are_handed_over_by_the_next_call() {
    let union = Union::new(vec![table(0).await, table(ROWS).await]).unwrap();
    let all = union.query(&Query::default()).await.unwrap();
    // An id is needed to sort the rows, any other column only afterwards.
    for column in [0, 2] {
        let mut refinement = union.refine(&Query::default());
        refinement.begin().await.unwrap();
        let reading = refinement.reading().unwrap();
        let (mut from, mut cuts) = (0, Vec::new());
        while !reading.is_over {
            reading.read_toward(50).await.unwrap();
            spoil(&mut reading.found, column);
            assert!(matches!(reading.hand_over(100), Err(TableError::Block { .. })));
            assert!(!reading.is_over);
            mend(&mut reading.found);
            let refined = reading.hand_over(100).unwrap();
            assert_eq!(refined.rows, all.rows.slice(from, refined.rows.num_rows()), "column {column}");
            from += refined.rows.num_rows();
            cuts.push(refined.cut);
        }
        assert_eq!(from, all.rows.num_rows());
        assert!(cuts.is_sorted() && cuts.len() > 2);
    }
}

#[tokio::test]
async fn each_row_is_sorted_once_in_however_many_portions_it_is_handed_over() {
    let union = Union::new(vec![table(0).await, table(ROWS).await]).unwrap();
    let everything = 2 * ROWS as usize;
    for (query, rows) in [(Query::default(), everything), (Query::default().first(300), 300)] {
        let all = union.query(&query).await.unwrap();
        let mut refinement = union.refine(&query);
        refinement.begin().await.unwrap();
        let reading = refinement.reading().unwrap();
        let (mut from, mut portions) = (0, 0);
        while !reading.is_over {
            reading.read_toward(6).await.unwrap();
            let handed = reading.hand_over(12).unwrap();
            let found = handed.rows.num_rows();
            assert_eq!(handed.rows, all.rows.slice(from, found));
            assert!(found >= 6 || reading.is_over, "{found} rows at {from}, though 6 were known");
            (from, portions) = (from + found, portions + 1);
        }
        assert_eq!(from, rows);
        assert!(portions > 20, "{portions}");
        assert!((rows..=everything).contains(&reading.ready.sorted), "{} sorted", reading.ready.sorted);
    }
}
