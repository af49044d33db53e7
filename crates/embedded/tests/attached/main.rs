//! A store reached over a connection keeps every promise of the contract, as if it were in this process; and
//! a broken connection loses no answer that can be asked for again, and applies nothing twice.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod losses;

use atoll_conformance::{Memory, SEED_DEFAULT, SharedStore, Size, Subject, run_seeded};
use atoll_embedded::attach::{AttachedStore, Reattach, Route, ServeOptions, attach, serve_connection};
use atoll_embedded::background;
use atoll_memory::{MemoryStore, Options as MemoryOptions};
use atoll_store::{
    Cell, ErrorKind, Expectation, Outcome, Read, ReadOptions, RequestId, Store, StoreError, Waited,
    WriteOptions,
};
use atoll_wire::{Faults, simulated_pair};
use futures::StreamExt;
use futures::future::BoxFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

/// Connects to a store in this process over a simulated transport, anew each time.
struct Way {
    store: Arc<dyn Store>,
    stop: Mutex<watch::Sender<bool>>,
    attempts: AtomicU64,
    serving: Mutex<ServeOptions>,
    search: Mutex<Search>,
    faults: fn(u64) -> Faults,
}

/// How the next owner is found after the first.
#[derive(Clone, Copy, Default)]
enum Search {
    #[default]
    AtOnce,
    After(Duration),
    FailsAfter(Duration),
    /// The disk is full.
    NoSpace,
    /// Found while others make this many writes, each with a request id of its own.
    AfterWrites(u64),
}

impl Way {
    fn to(store: Arc<dyn Store>, faults: fn(u64) -> Faults) -> Arc<Self> {
        Arc::new(Self {
            store,
            stop: Mutex::new(watch::channel(false).0),
            attempts: AtomicU64::new(0),
            serving: Mutex::default(),
            search: Mutex::default(),
            faults,
        })
    }

    async fn open(self: &Arc<Self>) -> AttachedStore {
        self.open_on(background().unwrap()).await
    }

    async fn open_on(self: &Arc<Self>, runtime: Handle) -> AttachedStore {
        let way = Arc::clone(self) as Arc<dyn Reattach>;
        AttachedStore::open("test".into(), false, way, runtime).await.unwrap()
    }

    /// Ends the present connections, not later ones.
    fn stop_owner(&self) {
        let next = watch::channel(false).0;
        std::mem::replace(&mut *self.stop.lock().unwrap(), next).send_replace(true);
    }

    fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }
}

impl Reattach for Way {
    fn reattach(&self) -> BoxFuture<'_, Result<Route, StoreError>> {
        Box::pin(async {
            loop {
                let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
                let search = *self.search.lock().unwrap();
                match search {
                    Search::AtOnce => {}
                    Search::After(time) => tokio::time::sleep(time).await,
                    Search::FailsAfter(time) => {
                        tokio::time::sleep(time).await;
                        let (place, host) = ("test".into(), "here".into());
                        return Err(StoreError::Owned { place, host, pid: 7 });
                    }
                    Search::NoSpace => {
                        return Err(StoreError::OutOfSpace { place: "test".into(), source: None });
                    }
                    Search::AfterWrites(count) => {
                        for number in 0..count {
                            let sequence = attempt * count + number;
                            let options = named(9, sequence);
                            self.store.put(Cell::new(b"p", b"others"), b"x", options).await.unwrap();
                        }
                    }
                }
                let (near, far) =
                    simulated_pair(attempt, 64 << 10, [(self.faults)(attempt), Faults::default()]);
                let serving = serve_connection(
                    far,
                    Arc::clone(&self.store),
                    *self.serving.lock().unwrap(),
                    self.stop.lock().unwrap().subscribe(),
                );
                tokio::spawn(serving);
                match attach(near, "test", false).await {
                    Ok(attachment) => return Ok(Route::Attached(attachment)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable),
                }
            }
        })
    }
}

fn named(client: u128, sequence: u64) -> WriteOptions {
    WriteOptions { request: Some(RequestId { client, sequence }), ..WriteOptions::default() }
}

fn calm(_: u64) -> Faults {
    Faults::default()
}

fn memory() -> Arc<MemoryStore> {
    Arc::new(Memory::default().store().unwrap())
}

/// The suite's memory stores, each behind a connection.
#[derive(Default)]
struct Attached(Memory);

impl Subject for Attached {
    fn name(&self) -> String {
        "memory store over a connection".into()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        Box::pin(async {
            let way = Way::to(Arc::new(self.0.store()?), calm);
            Ok(Arc::new(way.open().await) as SharedStore)
        })
    }

    fn pass<'a>(&'a self, _: &'a SharedStore, duration: Duration) -> BoxFuture<'a, ()> {
        self.0.advance(duration);
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn the_contract_holds_over_a_connection() {
    let report = run_seeded(&Attached::default(), Size::Quick, SEED_DEFAULT);
    println!("{report}");
    assert!(report.is_clean());
}

#[tokio::test]
async fn a_sync_behind_the_loss_of_an_owner_that_had_buffered_writes_says_so_once() {
    let way = Way::to(memory(), calm);
    let store = way.open().await;
    let cell = Cell::new(b"p", b"s");
    let lose_owner = || async {
        let before = way.attempts();
        way.stop_owner();
        while way.attempts() == before {
            store.get(cell, ReadOptions::default()).await.unwrap();
        }
    };
    store.put(cell, b"v", WriteOptions::default()).await.unwrap();
    store.sync().await.unwrap();
    lose_owner().await;
    store.sync().await.unwrap();
    store.put(cell, b"w", WriteOptions::default()).await.unwrap();
    lose_owner().await;
    let unknown = store.sync().await.unwrap_err();
    assert_eq!(unknown.outcome(), Outcome::Unknown, "{unknown}");
    store.sync().await.unwrap();
}

#[tokio::test]
async fn many_reads_that_an_owner_has_no_room_for_are_each_refused_in_words() {
    let way = Way::to(memory(), calm);
    *way.serving.lock().unwrap() = ServeOptions { waits: 0, ..ServeOptions::default() };
    let store = way.open().await;
    let reads = (0..3u8).map(|at| Read::new([at], *b"s")).collect();
    let answers: Vec<_> = store.get_many(reads).collect().await;
    assert_eq!(answers.len(), 3);
    for (_, answer) in answers {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Limit);
    }
}

#[tokio::test]
async fn as_many_waits_are_promised_as_a_connection_may_have() {
    let way = Way::to(memory(), calm);
    *way.serving.lock().unwrap() = ServeOptions { waits: 7, ..ServeOptions::default() };
    assert_eq!(way.open().await.capabilities().waiters_max, 7);
}

/// Faults that break every connection after some hundred bytes sent.
fn brittle(attempt: u64) -> Faults {
    Faults { cut_after: Some(300 + attempt * 7 % 200), split: true, ..Faults::default() }
}

#[tokio::test]
async fn reads_are_answered_however_often_the_connection_breaks() {
    let store = memory();
    for number in 0..100_u8 {
        store.put(Cell::new(b"p", &[number]), &[number; 3], WriteOptions::default()).await.unwrap();
    }
    let way = Way::to(store, brittle);
    let attached = way.open().await;
    for number in 0..100_u8 {
        let value = attached.get(Cell::new(b"p", &[number]), ReadOptions::default()).await.unwrap();
        assert_eq!(value.as_deref(), Some(&[number; 3][..]));
    }
    assert!(way.attempts() > 5, "the connection hardly ever broke");
}

#[tokio::test]
async fn many_reads_are_each_answered_once_though_the_connection_breaks_between() {
    let store = memory();
    for number in 0..2000_u32 {
        let sort = number.to_be_bytes();
        store
            .put(Cell::new(b"p", &sort), &vec![7; 20_000 + number as usize], WriteOptions::default())
            .await
            .unwrap();
    }
    let way = Way::to(store, calm);
    let attached = way.open().await;
    let reads = (0..2000_u32).map(|number| Read::new(*b"p", number.to_be_bytes())).collect();
    let mut answers = attached.get_many(reads);
    let mut seen = vec![0; 2000];
    while let Some((index, answer)) = answers.next().await {
        assert_eq!(answer.unwrap().unwrap().len(), 20_000 + index);
        seen[index] += 1;
        if seen.iter().sum::<u32>() == 700 {
            way.stop_owner();
        }
    }
    assert!(seen.iter().all(|&times| times == 1));
    assert!(way.attempts() > 1);
}

#[tokio::test]
async fn a_write_with_a_lost_answer_is_unknown_or_with_a_request_id_done_once() {
    let store = memory();
    let way = Way::to(Arc::clone(&store) as _, brittle);
    let attached = way.open().await;
    let mut unknown = 0_usize;
    let mut acknowledged = 0;
    for sequence in 0..200 {
        let cell = Cell::new(b"p", b"plain");
        match attached.append(cell, b"x", WriteOptions::default()).await {
            Ok(_) => acknowledged += 1,
            Err(error) => {
                assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
                unknown += 1;
            }
        }
        attached.append(Cell::new(b"p", b"named"), b"x", named(5, sequence)).await.unwrap();
    }
    let length = async |sort: &[u8]| {
        store.get(Cell::new(b"p", sort), ReadOptions::default()).await.unwrap().map_or(0, |value| value.len())
    };
    let plain = length(b"plain").await;
    assert!(plain >= acknowledged && plain <= acknowledged + unknown, "{plain} {acknowledged} {unknown}");
    assert_eq!(length(b"named").await, 200);
    assert!(way.attempts() > 5);
}

#[tokio::test]
async fn a_named_write_is_not_repeated_where_its_name_may_be_forgotten() {
    let options = MemoryOptions { request_memory_count: 3, ..MemoryOptions::default() };
    let store = Arc::new(MemoryStore::open(options).unwrap());
    let way = Way::to(Arc::clone(&store) as _, brittle);
    let attached = way.open().await;
    *way.search.lock().unwrap() = Search::AfterWrites(3);
    let (mut acknowledged, mut unknown) = (0, 0);
    let cell = Cell::new(b"p", b"named");
    for sequence in 0..200 {
        match attached.append(cell, b"x", named(5, sequence)).await {
            Ok(_) => acknowledged += 1,
            Err(error) => {
                assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
                unknown += 1;
            }
        }
    }
    let value = store.get(cell, ReadOptions::default()).await.unwrap().unwrap();
    let length = value.len();
    assert!(length >= acknowledged && length <= acknowledged + unknown, "{length} {acknowledged} {unknown}");
    assert!(unknown > 0, "the connection hardly ever broke");
}

#[tokio::test]
async fn a_wait_goes_on_over_a_new_connection_when_the_owner_stops() {
    let way = Way::to(memory(), calm);
    let attached = Arc::new(way.open().await);
    let waiting = Arc::clone(&attached);
    let waiting = tokio::spawn(async move {
        waiting.wait(Cell::new(b"p", b"k"), Expectation::Differs(None), Duration::from_secs(30)).await
    });
    attached.now().await.unwrap();
    way.stop_owner();
    while way.attempts() < 2 {
        attached.now().await.unwrap();
    }
    attached.put(Cell::new(b"p", b"k"), b"v", WriteOptions::default()).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Waited::Met(Some(b"v"[..].into())));
}

#[tokio::test(start_paused = true)]
async fn a_wait_outlives_any_number_of_owners() {
    let way = Way::to(memory(), calm);
    let attached = Arc::new(way.open_on(Handle::current()).await);
    let waiting = Arc::clone(&attached);
    let waiting = tokio::spawn(async move {
        waiting.wait(Cell::new(b"p", b"k"), Expectation::Differs(None), Duration::from_secs(3600)).await
    });
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        way.stop_owner();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(way.attempts() > 50, "{} owners", way.attempts());
    assert!(!waiting.is_finished());
    attached.put(Cell::new(b"p", b"k"), b"v", WriteOptions::default()).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), Waited::Met(Some(b"v"[..].into())));
}

#[tokio::test(start_paused = true)]
async fn one_search_for_the_owner_that_fails_is_the_end_of_all_calls_that_wait_for_it() {
    let way = Way::to(memory(), calm);
    let store = way.open_on(Handle::current()).await;
    *way.search.lock().unwrap() = Search::FailsAfter(Duration::from_secs(5));
    way.stop_owner();
    let started = Instant::now();
    let gets = (0..10).map(|_| store.get(Cell::new(b"p", b"k"), ReadOptions::default()));
    for answer in futures::future::join_all(gets).await {
        assert!(matches!(answer, Err(StoreError::Owned { .. })), "{answer:?}");
    }
    assert_eq!(way.attempts(), 2, "the first found the owner, the second did not");
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    // A later call makes its own search.
    *way.search.lock().unwrap() = Search::AtOnce;
    assert_eq!(store.get(Cell::new(b"p", b"k"), ReadOptions::default()).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn who_found_no_owner_looks_again_until_it_is_closed() {
    let way = Way::to(memory(), calm);
    let store = way.open_on(Handle::current()).await;
    *way.search.lock().unwrap() = Search::FailsAfter(Duration::from_secs(5));
    way.stop_owner();
    // The time is simulated; there are no calls in these minutes.
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!((4..20).contains(&way.attempts()), "{} searches", way.attempts());
    *way.search.lock().unwrap() = Search::AtOnce;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let found = way.attempts();
    assert_eq!(store.get(Cell::new(b"p", b"k"), ReadOptions::default()).await.unwrap(), None);
    store.close().await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(way.attempts(), found, "it was found before anybody asked, and a closed store needs none");
}

#[tokio::test(start_paused = true)]
async fn who_had_no_space_to_take_the_place_of_an_owner_tries_again() {
    let way = Way::to(memory(), calm);
    let _store = way.open_on(Handle::current()).await;
    *way.search.lock().unwrap() = Search::NoSpace;
    way.stop_owner();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!((4..20).contains(&way.attempts()), "{} searches", way.attempts());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_bounds_the_search_for_the_owner_as_well() {
    let way = Way::to(memory(), calm);
    let store = way.open_on(Handle::current()).await;
    let cell = Cell::new(b"p", b"k");
    let time = Duration::from_millis(100);
    let deadline = Some(time);
    *way.search.lock().unwrap() = Search::After(Duration::from_secs(10));
    way.stop_owner();
    let started = Instant::now();
    let late = store.get(cell, ReadOptions { deadline, ..ReadOptions::default() }).await.unwrap_err();
    assert_eq!((late.kind(), late.outcome()), (ErrorKind::Unavailable, Outcome::Refused), "{late}");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    // No owner received it, so it cannot have taken effect.
    let refused =
        store.put(cell, b"v", WriteOptions { deadline, ..WriteOptions::default() }).await.unwrap_err();
    assert_eq!(refused.outcome(), Outcome::Refused, "{refused}");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    let waited = store.wait(cell, Expectation::Differs(None), time).await;
    assert_eq!(waited.unwrap(), Waited::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    assert_eq!(store.get(cell, ReadOptions::default()).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_no_time_that_no_owner_answered_does_not_report_what_nobody_has_read() {
    let way = Way::to(memory(), calm);
    let store = way.open_on(Handle::current()).await;
    let cell = Cell::new(b"p", b"k");
    *way.search.lock().unwrap() = Search::After(Duration::from_secs(10));
    way.stop_owner();
    let unread = store.wait(cell, Expectation::Differs(None), Duration::ZERO).await.unwrap_err();
    assert_eq!((unread.kind(), unread.outcome()), (ErrorKind::Unavailable, Outcome::Refused), "{unread}");
    assert_eq!(store.get(cell, ReadOptions::default()).await.unwrap(), None);
}

#[tokio::test]
async fn a_value_of_the_largest_size_passes() {
    let attached = Way::to(memory(), calm).open().await;
    let value: Vec<u8> = (0..64 << 20_usize).map(|at| (at / 7) as u8).collect();
    attached.put(Cell::new(b"p", b"k"), &value, WriteOptions::default()).await.unwrap();
    let back = attached.get(Cell::new(b"p", b"k"), ReadOptions::default()).await.unwrap().unwrap();
    assert!(back == *value);
}

#[tokio::test]
async fn a_value_that_is_far_too_long_is_refused_and_costs_nobody_the_connection() {
    let way = Way::to(memory(), calm);
    let attached = Arc::new(way.open().await);
    let waiting = Arc::clone(&attached);
    let waiting = tokio::spawn(async move {
        waiting.wait(Cell::new(b"p", b"k"), Expectation::Differs(None), Duration::from_secs(60)).await
    });
    attached.now().await.unwrap();
    let long = vec![0; 100 << 20];
    let cell = Cell::new(b"p", b"long");
    let put = attached.put(cell, &long, WriteOptions::default()).await.unwrap_err();
    let created = attached.create(cell, long.into(), WriteOptions::default()).await.unwrap_err();
    let long_key = vec![0; 100 << 20];
    let far = Cell::new(&long_key, b"k");
    let got = attached.get(far, ReadOptions::default()).await.unwrap_err();
    let deleted = attached.delete_partition(&long_key, WriteOptions::default()).await.unwrap_err();
    let expectation = Expectation::Equals(Some(long_key.clone().into()));
    let waited = attached.wait(cell, expectation, Duration::from_secs(60)).await.unwrap_err();
    let read = |partition: &[u8]| Read::new(partition, b"other");
    let many: Vec<_> = attached.get_many(vec![read(b"p"), read(&long_key)]).collect().await;
    let of_many = |place| many.iter().find(|(at, _)| *at == place).unwrap().1.clone();
    assert_eq!(of_many(0).unwrap(), None, "the others are read");
    for refused in [put, created, got, deleted, waited, of_many(1).unwrap_err()] {
        assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Limit, Outcome::Refused), "{refused}");
    }
    attached.put(Cell::new(b"p", b"k"), b"v", WriteOptions::default()).await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Ok(Waited::Met(Some(_)))));
    assert_eq!(way.attempts(), 1, "the connection broke");
}
