//! Tests that rows that were found but not handed over wait for the next call after an error.

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
