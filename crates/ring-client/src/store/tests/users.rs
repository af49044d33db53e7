//! Users that are changed while programs use the ring: connections from before are of nobody, and new ones
//! are let in, or not.

use super::*;
use std::sync::atomic::AtomicUsize;

const NOBODY: &str = "-NOAUTH Authentication required.\r\n";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

/// A node, and the number of the first connection that is not of a former user.
struct Changing {
    node: Stub,
    last: Arc<AtomicUsize>,
    first: Arc<AtomicUsize>,
}

impl Changing {
    /// A node that answers to `AUTH` like this once the user was changed.
    async fn start(authenticated: &'static str) -> Self {
        let (last, first) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (latest, good) = (Arc::clone(&last), Arc::clone(&first));
        let node = Stub::start(move |port, connection, words| {
            latest.fetch_max(connection, Ordering::SeqCst);
            let good = good.load(Ordering::SeqCst);
            match words.split(' ').next() {
                Some("AUTH") if good > 0 => Answer::Says(authenticated.to_owned()),
                Some("AUTH" | "HELLO") => Answer::Says("+OK\r\n".to_owned()),
                _ if connection < good => Answer::Ends(NOBODY.to_owned()),
                Some("AT.ID") => Answer::Says("*2\r\n:0\r\n+OK\r\n".to_owned()),
                Some("AT.GET") => Answer::Says("$1\r\nv\r\n".to_owned()),
                _ => usual(port, words).unwrap_or_else(|| Answer::Says("+OK\r\n".to_owned())),
            }
        })
        .await;
        Self { node, last, first }
    }

    async fn store(&self, latency: LatencyClass) -> RingStore {
        let (token, user) = (Some("secret".to_owned()), Some("ana".to_owned()));
        let options =
            RingOptions { token, user, latency, ..RingOptions::of(vec![self.node.address.clone()]) };
        RingStore::open(options).await.unwrap()
    }

    /// Changes the user.
    fn change(&self) {
        self.first.store(self.last.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
    }
}

async fn written(store: &RingStore) -> Result<Written, StoreError> {
    store.write(Batch::on(b"p").put(b"s", &b"v"[..]), WriteOptions::default()).await
}

#[tokio::test(start_paused = true)]
async fn a_call_outlives_a_change_of_its_user_that_leaves_the_password() {
    for latency in [LatencyClass::None, LatencyClass::FiveHundred] {
        let changing = Changing::start("+OK\r\n").await;
        let store = changing.store(latency).await;
        written(&store).await.unwrap();
        for changes in 1..4 {
            changing.change();
            let done = written(&store).await;
            assert!(done.is_ok(), "{latency:?}: {done:?}");
            assert_eq!(changing.node.came("AT.ID").len(), 1 + 2 * changes, "{latency:?}");
        }
        store.get(CELL, ReadOptions::default()).await.unwrap();
        for changes in 1..4 {
            changing.change();
            let value = store.get(CELL, ReadOptions::default()).await;
            assert!(value.is_ok(), "{latency:?}: {value:?}");
            assert_eq!(changing.node.came("AT.GET").len(), 1 + 2 * changes, "{latency:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_user_with_another_password_ends_at_once() {
    for latency in [LatencyClass::None, LatencyClass::FiveHundred] {
        let changing = Changing::start(WRONG).await;
        let store = changing.store(latency).await;
        written(&store).await.unwrap();
        changing.change();
        let began = tokio::time::Instant::now();
        let error = written(&store).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unauthenticated, Outcome::Refused),
            "{error}"
        );
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(changing.node.came("AT.ID").len(), 2, "{latency:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_takes_everybody_for_nobody_is_not_asked_for_ever() {
    for (token, tries) in [(Some("secret".to_owned()), 6), (None, 1)] {
        let node = Stub::start(|port, _, words| match words.starts_with("AT.ID") {
            true => Answer::Ends(NOBODY.to_owned()),
            false => usual(port, words).unwrap(),
        })
        .await;
        let options = RingOptions { token, ..RingOptions::of(vec![node.address.clone()]) };
        let error = written(&RingStore::open(options).await.unwrap()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unauthenticated, Outcome::Refused),
            "{error}"
        );
        assert_eq!(node.came("AT.ID").len(), tries);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_goes_on_on_another_connection_when_its_user_was_changed() {
    let watches = AtomicUsize::new(0);
    let node = Stub::start(move |port, _, words| match words.split(' ').collect::<Vec<_>>()[..] {
        ["AT.WATCH", ..] if watches.fetch_add(1, Ordering::SeqCst) == 0 => Answer::Ends(NOBODY.to_owned()),
        ["AT.WATCH", id, ..] => {
            Answer::Says(format!("+OK\r\n>4\r\n$8\r\nat.watch\r\n:{id}\r\n:1\r\n$1\r\nv\r\n"))
        }
        ["AT.GET", ..] => Answer::Says("$-1\r\n".to_owned()),
        _ => usual(port, words).unwrap(),
    })
    .await;
    let token = Some("secret".to_owned());
    let options = RingOptions { token, ..RingOptions::of(vec![node.address.clone()]) };
    let store = RingStore::open(options).await.unwrap();
    let waited = store.wait(CELL, Expectation::Differs(None), Duration::from_secs(3600)).await;
    assert!(matches!(waited, Ok(Waited::Met(Some(_)))), "{waited:?}");
    assert_eq!((node.came("AT.WATCH").len(), node.came("HELLO").len()), (2, 2));
}
