//! What questions of a table touch while it is written and packed: few rows of blocks and of small trees.

use crate::bounds::{BOX_MEANWHILE, GLOBAL_MEANWHILE, check};
use crate::run;
use crate::tube::{Tube, schema};
use atoll_memory::MemoryStore;
use atoll_tables::expression::parse_box;
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Table, Work};
use std::sync::Arc;

const STEPS: i32 = 150;
const ROWS: usize = 2000;

/// The step from which on questions are asked: before, a hundredth of the table is hardly more rows than a
/// few bands.
const ASKED_FROM: i32 = 100;

/// The number of steps over which the box reaches.
const LAST: i32 = 20;

/// Boxes of fewer rows are not asked for a tenth of them.
const BOX_ROWS_MIN: u64 = 10_000;

fn touched(work: &Work) -> f64 {
    work.rows_touched as f64 / work.rows_returned.max(1) as f64
}

/// A box around the upper part of the tube over the last steps up to `step`, and a tenth of it.
fn tenth_of_last(step: i32) -> (Query, Query) {
    let sides = [format!("step={}:{}", step + 1 - LAST, step + 1), "z=-6:1".to_owned()];
    let sides: Vec<_> = sides.iter().flat_map(|side| parse_box(side).unwrap()).collect();
    let whole = Query::default().in_box(&sides);
    (whole.clone(), whole.sample(0.1).unwrap())
}

#[test]
fn samples_touch_few_rows_more_than_they_return_while_a_table_is_written() {
    run(async {
        let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(false)).await.unwrap();
        table.begin("tube", 1, 1).await.unwrap();
        let mut tube = Tube::new(7, ROWS, STEPS);
        // Three steps wait to be packed, as a second of a simulation does.
        let options = PackOptions { rows_min: 3 * ROWS as u64, ..PackOptions::default() };
        let (mut of_all, mut of_box) = (Vec::new(), Vec::new());
        for step in 0..STEPS {
            let rows = tube.frame(&table.schema(), step);
            let id = BlockId { run: "tube".into(), attempt: 1, step: step as u64, rank: 0 };
            table.append(id, &rows).await.unwrap();
            table.pack(&options).await.unwrap();
            if step < ASKED_FROM {
                continue;
            }
            let hundredth = Query::default().sample(0.01).unwrap();
            of_all.push(touched(&table.query(&hundredth).await.unwrap().work));
            let (whole, tenth) = tenth_of_last(step);
            if table.count(&whole).await.unwrap().rows >= BOX_ROWS_MIN {
                of_box.push(touched(&table.query(&tenth).await.unwrap().work));
            }
        }
        check("meanwhile: rows of 1 % of everything", of_all, GLOBAL_MEANWHILE);
        check("meanwhile: rows of 10 % of a box", of_box, BOX_MEANWHILE);
    });
}
