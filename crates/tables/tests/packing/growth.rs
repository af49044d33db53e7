//! Many small steps: packing now and then rewrites each row a few times, and the number of trees stays small.

use crate::run;
use crate::tube::{Tube, schema};
use atoll_memory::MemoryStore;
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, PackProgress, Query, Table};
use std::sync::{Arc, Mutex};

const STEPS: i32 = 1000;
const ROWS: usize = 100;

#[test]
fn a_row_is_written_a_few_times_however_many_steps_come_and_trees_stay_few() {
    run(async {
        let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(false)).await.unwrap();
        table.begin("tube", 1, 1).await.unwrap();
        let mut tube = Tube::new(1, ROWS, STEPS);
        // Like ten thousand steps of a thousand rows, a hundred times smaller.
        let options = PackOptions { rows_min: 1310, ..PackOptions::default() };
        let (mut written, mut packs, mut trees_before) = (0, 0, 0);
        for step in 0..STEPS {
            let rows = tube.frame(&table.schema(), step);
            let id = BlockId { run: "tube".into(), attempt: 1, step: step as u64, rank: 0 };
            table.append(id, &rows).await.unwrap();
            let report = table.pack(&options).await.unwrap();
            written += report.rows;
            packs += u64::from(report.version.is_some());
            trees_before = trees_before.max(report.objects_before);
        }
        let rows = STEPS as u64 * ROWS as u64;
        let times = written as f64 / rows as f64;
        eprintln!("each row was packed {times:.2} times, in {packs} packs");
        // A row takes 25 bytes or more in a block, about 26 in a tree, and 32 in memory: six times 32 are not
        // reached.
        assert!((2.0..=4.5).contains(&times), "{times}");
        assert!(packs <= 80, "{packs}");
        assert_eq!(table.query(&Query::default()).await.unwrap().rows.num_rows() as u64, rows);
        let whole = table.pack(&PackOptions::whole()).await.unwrap();
        assert_eq!((whole.trees, whole.rows), (1, rows));
        assert!(whole.objects_after * 2 <= whole.objects_before, "{whole:?}");
    });
}

#[test]
fn a_table_that_is_larger_than_a_tree_may_be_becomes_several() {
    run(async {
        let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(false)).await.unwrap();
        Tube::new(2, 500, 40).write(&table).await;
        // The rows of a block take 16,000 bytes in memory: three trees of thirteen blocks each, and one
        // block.
        let options = PackOptions { tree_bytes_max: 210_000, ..PackOptions::whole() };
        let report = table.pack(&options).await.unwrap();
        // The rest of the blocks fits in no other tree, however few bytes its objects have.
        assert_eq!((report.trees, report.rows), (4, 20_000), "{report:?}");
        assert_eq!(table.pack(&options).await.unwrap().version, None);
        assert_eq!(table.query(&Query::default()).await.unwrap().rows.num_rows(), 20_000);
    });
}

#[test]
fn a_pack_tells_how_far_it_has_come_through_all_of_its_trees() {
    run(async {
        let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(false)).await.unwrap();
        Tube::new(2, 500, 40).write(&table).await;
        let seen = Mutex::new(Vec::new());
        let told = |progress: PackProgress| seen.lock().unwrap().push(progress);
        let options = PackOptions { tree_bytes_max: 210_000, ..PackOptions::whole() };
        let report = table.pack_with_progress(&options, &told).await.unwrap();
        let seen = seen.into_inner().unwrap();
        // Each block as it is read, each object as it is written, and each of the four trees.
        assert_eq!(seen.len() as u64, report.objects_before + report.objects_after + 4);
        assert!(seen.is_sorted_by_key(|progress| progress.bytes), "{seen:?}");
        assert!(seen.iter().all(|progress| progress.bytes <= progress.total), "{seen:?}");
        // Blocks alone are packed, so everything that is to come is known from the first on.
        let total = 2 * report.bytes_read;
        assert!(seen.iter().all(|progress| progress.total == total), "{seen:?} is not of {total}");
        assert_eq!(seen.last().map(|progress| progress.bytes), Some(total));
        assert!(seen.iter().any(|progress| (total / 3..total / 2).contains(&progress.bytes)), "{seen:?}");
    });
}

#[test]
fn blocks_that_a_pack_leaves_alone_are_no_part_of_its_progress() {
    run(async {
        let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(false)).await.unwrap();
        Tube::new(2, 500, 40).write(&table).await;
        let seen = Mutex::new(Vec::new());
        let told = |progress: PackProgress| seen.lock().unwrap().push(progress);
        // Three trees of thirteen blocks each; the last block has too few rows.
        let options = PackOptions { tree_bytes_max: 210_000, rows_min: 1000, ..PackOptions::default() };
        let report = table.pack_with_progress(&options, &told).await.unwrap();
        assert_eq!((report.trees, report.rows), (3, 19_500), "{report:?}");
        let (seen, total) = (seen.into_inner().unwrap(), 2 * report.bytes_read);
        assert!(seen.iter().all(|progress| progress.total == total), "{seen:?} is not of {total}");
        assert_eq!(seen.last().map(|progress| progress.bytes), Some(total));
    });
}

#[test]
fn options_that_make_no_sense_are_refused() {
    run(async {
        let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(false)).await.unwrap();
        for options in [
            PackOptions { fan: 1, ..PackOptions::default() },
            PackOptions { share: 0.0, ..PackOptions::default() },
            PackOptions { share: f64::NAN, ..PackOptions::default() },
        ] {
            let refused = table.pack(&options).await.unwrap_err();
            assert_eq!(refused.kind(), atoll_errors::ErrorKind::InvalidInput, "{refused}");
        }
        assert_eq!(table.pack(&PackOptions::whole()).await.unwrap().version, None, "an empty table");
    });
}
