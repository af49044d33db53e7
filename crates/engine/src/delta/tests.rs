//! Which deltas a checkpoint gives a page of their own, and which become one page with their leaf.

use super::Delta;
use crate::backing::Backing;
use crate::node::{Home, PageRef};
use crate::retired::RetiredList;
use std::sync::Arc;

/// Length of the leaf's page: a quarter of it is 1,000 bytes, and two fifths are 1,600.
const PAGE_BYTES: u32 = 4000;

fn page(len: u32) -> PageRef {
    PageRef { offset: 4096, len, checksum: 1, birth: 1 }
}

fn backing() -> Backing {
    Backing::new(None, 7, 1 << 20)
}

/// Puts this many records of about 100 bytes each.
fn put(mut delta: Delta, count: u32, epoch: u64) -> Delta {
    for number in 0..count {
        delta.put((&number.to_be_bytes()[..], &[7; 94][..]), epoch);
    }
    delta
}

/// A delta with this many new records above a second page of `second` bytes.
fn above_second(second: u32, count: u32) -> Delta {
    let backing = backing();
    let home = Home { page: page(PAGE_BYTES), delta: Some(page(second)), filter: 0 };
    let former = Arc::new(Delta::on_disk(home, backing.meter()));
    put(Delta::above(&former, 2, &backing, &mut RetiredList::default()), count, 2)
}

/// A delta with this many new records, where there is no second page.
fn first(count: u32) -> Delta {
    put(Delta::of_page(page(PAGE_BYTES), 2, &backing()), count, 2)
}

#[test]
fn records_stay_beside_their_leaf_while_they_are_few_or_most_of_them_are_new() {
    assert!(first(9).is_slim());
    assert!(!first(14).is_slim(), "there is nothing that would be written again");
    assert!(above_second(800, 1).is_slim(), "less than a quarter");
    assert!(!above_second(1300, 1).is_slim(), "all of it would be written for one record");
    assert!(above_second(700, 7).is_slim(), "half of it is new");
    assert!(!above_second(600, 12).is_slim(), "two thirds are new, and it is nearly half of the page");
}

#[test]
fn what_is_new_counts_through_all_deltas_above_the_second_page() {
    let backing = backing();
    let middle = Arc::new(above_second(1100, 3));
    let top = put(Delta::above(&middle, 3, &backing, &mut RetiredList::default()), 1, 3);
    assert!(top.is_slim(), "{:?}", top.sizes());
    assert!(!above_second(1400, 1).is_slim(), "the same with one new record");
}
