//! The outcome of calls whose answer was lost: done once or unknown, never refused, and reported within the
//! deadline.

use super::named;
use atoll_embedded::attach::{
    AttachedStore, Attachment, Reattach, Route, ServeOptions, attach, serve_connection,
};
use atoll_memory::{MemoryStore, Options};
use atoll_store::age::Moment;
use atoll_store::{
    Cell, ErrorKind, Expectation, Outcome, ReadOptions, Store, StoreError, Waited, WriteOptions,
};
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

const CELL: Cell<'_> = Cell { partition: b"p", sort: b"k" };
/// How many request ids the stores here remember: for at least 20 ms, given how fast an owner can write.
const NAMES: usize = 4000;

/// The result of a search for the next owner.
#[derive(Clone, Copy, Debug)]
enum Found {
    Owner,
    /// It ends before its first request.
    DeadOwner,
    /// Found after others wrote so much that every earlier request id is forgotten.
    OwnerLate,
    /// The same, and the store is in this process from then on.
    HereLate,
    /// None that would take the write: the store is closed.
    ClosedOwner,
    ClosedHere,
    /// It answers the hello, and nothing after it.
    SilentOwner,
    /// Found after this time; the store is in this process from then on, and never answers.
    SilentHere(Duration),
}

/// A sequence of owners. The first one, once told to, takes a request and ends before its answer arrives.
struct Owners {
    store: Arc<MemoryStore>,
    searches: Mutex<VecDeque<Found>>,
    loses_answer: Arc<AtomicBool>,
    others: AtomicU64,
    /// The owners serve until this is dropped.
    stop: watch::Sender<bool>,
}

impl Owners {
    fn then(searches: &[Found]) -> Arc<Self> {
        let options = Options { request_memory_count: NAMES, ..Options::default() };
        Arc::new(Self {
            store: Arc::new(MemoryStore::open(options).unwrap()),
            searches: Mutex::new(searches.iter().copied().collect()),
            loses_answer: Arc::default(),
            others: AtomicU64::new(0),
            stop: watch::channel(false).0,
        })
    }

    /// A store that is attached to the first owner, which loses the next answer.
    async fn open(self: &Arc<Self>) -> AttachedStore {
        let way = Arc::clone(self) as Arc<dyn Reattach>;
        let store = AttachedStore::open("test".into(), false, way, Handle::current()).await.unwrap();
        self.loses_answer.store(true, Ordering::Release);
        store
    }

    async fn connect(&self, store: Arc<dyn Store>) -> Attachment {
        let (near, inner) = duplex(64 << 10);
        let (outer, far) = duplex(64 << 10);
        tokio::spawn(serve_connection(far, store, ServeOptions::default(), self.stop.subscribe()));
        tokio::spawn(carry(inner, outer, Arc::clone(&self.loses_answer)));
        attach(near, "test", false).await.unwrap()
    }

    /// Writes by others until the store has forgotten every request id.
    async fn others_write(&self) {
        let started = Moment::now();
        let before = self.others.load(Ordering::Relaxed);
        while self.others.load(Ordering::Relaxed) < before + NAMES as u64
            || started.age() < Duration::from_millis(25)
        {
            let options = named(9, self.others.fetch_add(1, Ordering::Relaxed));
            self.store.put(Cell::new(b"p", b"others"), b"x", options).await.unwrap();
        }
    }

    async fn find(&self) -> Route {
        let next = self.searches.lock().unwrap().pop_front();
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        match next.unwrap_or(Found::Owner) {
            Found::Owner => {}
            Found::DeadOwner => {
                let (near, inner) = duplex(64 << 10);
                let stop = watch::channel(false).0;
                let serving = serve_connection(inner, store, ServeOptions::default(), stop.subscribe());
                let serving = tokio::spawn(serving);
                let attachment = attach(near, "test", false).await.unwrap();
                stop.send_replace(true);
                let _ = serving.await;
                return Route::Attached(attachment);
            }
            Found::OwnerLate => self.others_write().await,
            Found::HereLate => {
                self.others_write().await;
                return Route::Local(store);
            }
            Found::ClosedOwner => store.close().await.unwrap(),
            Found::ClosedHere => {
                store.close().await.unwrap();
                return Route::Local(store);
            }
            Found::SilentOwner => {
                let (near, inner) = duplex(64 << 10);
                let (outer, far) = duplex(64 << 10);
                tokio::spawn(serve_connection(far, store, ServeOptions::default(), self.stop.subscribe()));
                tokio::spawn(carry_hello(inner, outer));
                return Route::Attached(attach(near, "test", false).await.unwrap());
            }
            Found::SilentHere(time) => {
                tokio::time::sleep(time).await;
                let silent = Self::then(&[Found::SilentOwner]).open().await;
                return Route::Local(Arc::new(silent));
            }
        }
        Route::Attached(self.connect(store).await)
    }
}

impl Reattach for Owners {
    fn reattach(&self) -> BoxFuture<'_, Result<Route, StoreError>> {
        Box::pin(async { Ok(self.find().await) })
    }
}

/// Carries bytes both ways, until an answer that is to be lost.
async fn carry(mut near: DuplexStream, mut far: DuplexStream, loses_answer: Arc<AtomicBool>) {
    let (mut asked, mut answered) = (vec![0; 4096], vec![0; 4096]);
    loop {
        tokio::select! {
            count = near.read(&mut asked) => match count {
                Ok(count @ 1..) if far.write_all(&asked[..count]).await.is_ok() => {}
                _ => return,
            },
            count = far.read(&mut answered) => match count {
                Ok(1..) if loses_answer.swap(false, Ordering::AcqRel) => return,
                Ok(count @ 1..) if near.write_all(&answered[..count]).await.is_ok() => {}
                _ => return,
            },
        }
    }
}

async fn carry_hello(mut near: DuplexStream, mut far: DuplexStream) {
    let mut bytes = vec![0; 4096];
    let count = near.read(&mut bytes).await.unwrap();
    far.write_all(&bytes[..count]).await.unwrap();
    let count = far.read(&mut bytes).await.unwrap();
    near.write_all(&bytes[..count]).await.unwrap();
    std::future::pending().await
}

#[tokio::test]
async fn no_search_is_too_long_for_a_named_write_to_be_done_twice() {
    let late = [
        vec![Found::Owner, Found::OwnerLate],
        vec![Found::Owner, Found::HereLate],
        vec![Found::Owner, Found::DeadOwner, Found::OwnerLate],
    ];
    for searches in late {
        let owners = Owners::then(&searches);
        let attached = owners.open().await;
        let unknown = attached.append(CELL, b"x", named(5, 1)).await;
        let value = owners.store.get(CELL, ReadOptions::default()).await.unwrap().unwrap();
        assert_eq!(value, b"x"[..], "{searches:?}");
        assert_eq!(unknown.unwrap_err().outcome(), Outcome::Unknown, "{searches:?}");
    }
}

#[tokio::test]
async fn what_an_owner_may_have_done_is_not_refused_by_the_next_one() {
    for next in [Found::ClosedOwner, Found::ClosedHere] {
        let attached = Owners::then(&[Found::Owner, next]).open().await;
        let created = attached.create(CELL, b"x"[..].into(), WriteOptions::default()).await;
        assert_eq!(created.unwrap_err().outcome(), Outcome::Unknown, "{next:?}");
        let attached = Owners::then(&[Found::Owner, next]).open().await;
        let error = attached.append(CELL, b"x", named(5, 1)).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Unknown, "{next:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn owners_that_all_end_at_once_are_too_many_for_a_read_and_give_pause_to_a_wait() {
    // A reader, which looks for the next owner only if a call needs it.
    let reader = async || {
        let owners = Owners::then(&[Found::DeadOwner; 50]);
        owners.store.put(CELL, b"x", WriteOptions::default()).await.unwrap();
        let way = Arc::clone(&owners) as Arc<dyn Reattach>;
        (owners, AttachedStore::open("test".into(), true, way, Handle::current()).await.unwrap())
    };
    let (owners, attached) = reader().await;
    let lost = attached.get(CELL, ReadOptions::default()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Unavailable, "{lost}");
    assert!(!owners.searches.lock().unwrap().is_empty(), "it went on to the last owner");

    let (_owners, attached) = reader().await;
    let started = Instant::now();
    let waited = attached.wait(CELL, Expectation::Differs(None), Duration::from_secs(60)).await;
    assert_eq!(waited.unwrap(), Waited::Met(Some(b"x"[..].into())));
    assert!(started.elapsed() > Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_becomes_the_owner_has_only_what_the_search_left_of_a_deadline() {
    let searched = Duration::from_millis(900);
    let attached = Owners::then(&[Found::Owner, Found::SilentHere(searched)]).open().await;
    let started = Instant::now();
    let options = WriteOptions { deadline: Some(Duration::from_secs(1)), ..WriteOptions::default() };
    let late = attached.create(CELL, b"x"[..].into(), options).await.unwrap_err();
    assert_eq!(late.outcome(), Outcome::Unknown, "{late}");
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_close_of_who_took_over_tells_of_the_buffered_writes_that_died_with_the_owner() {
    let take_over = async |owners: &Arc<Owners>, store: &AttachedStore| {
        owners.loses_answer.store(true, Ordering::Release);
        store.get(CELL, ReadOptions::default()).await.unwrap();
        assert!(store.is_local());
    };
    let owners = Owners::then(&[Found::Owner, Found::HereLate]);
    let store = owners.open().await;
    owners.loses_answer.store(false, Ordering::Release);
    store.put(CELL, b"x", WriteOptions::default()).await.unwrap();
    take_over(&owners, &store).await;
    let unknown = store.close().await.unwrap_err();
    assert_eq!(unknown.outcome(), Outcome::Unknown, "{unknown}");
    assert!(owners.store.now().await.is_err(), "what lived here is closed all the same");

    // A sync before the loss covers the buffered writes.
    let owners = Owners::then(&[Found::Owner, Found::HereLate]);
    let store = owners.open().await;
    owners.loses_answer.store(false, Ordering::Release);
    store.put(CELL, b"x", WriteOptions::default()).await.unwrap();
    store.sync().await.unwrap();
    take_over(&owners, &store).await;
    store.close().await.unwrap();
}
