//! A waiter of the memory store costs at most 1 KiB, its task and timer included.

#![allow(clippy::unwrap_used, clippy::print_stdout, unsafe_code)]

use atoll_memory::MemoryStore;
use atoll_store::{Cell, Expectation, Store};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract of
// `GlobalAlloc`; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above, so from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const WAITERS: usize = 10_000;
const BYTES_MAX: usize = 1024;

async fn wait(store: Arc<MemoryStore>, number: u32) {
    let sort = number.to_be_bytes();
    let forever = Expectation::Differs(None);
    store.wait(Cell::new("p", &sort), forever, Duration::from_secs(3600)).await.unwrap();
}

#[test]
fn ten_thousand_waiters_cost_at_most_1_kib_each() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let store = Arc::new(MemoryStore::new());
    let before = ALLOCATED.load(Ordering::Relaxed);
    let tasks: Vec<_> =
        (0..WAITERS as u32).map(|number| runtime.spawn(wait(store.clone(), number))).collect();
    runtime.block_on(async {
        while store.waits_open() < WAITERS {
            tokio::task::yield_now().await;
        }
    });
    let each = (ALLOCATED.load(Ordering::Relaxed) - before) / WAITERS;
    println!("{each} bytes for each of {WAITERS} waiters");
    assert!(each <= BYTES_MAX, "{each} bytes for each of {WAITERS} waiters");
    tasks.iter().for_each(|task| task.abort());
    runtime.block_on(async {
        for task in tasks {
            assert!(task.await.unwrap_err().is_cancelled());
        }
    });
    assert_eq!(store.waits_open(), 0);
}
