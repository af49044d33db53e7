//! Nodes that are not among the seeds of a program: they are the ring once the seeds are gone.

use super::*;

/// Two nodes, of which the second leads everything. The first says so until it is `gone`, and from then on
/// hangs or hangs up.
struct Two {
    first: Stub,
    second: Stub,
    gone: Arc<AtomicBool>,
}

impl Two {
    /// The first `failures` reads at the second one end the connection.
    async fn start(hangs: bool, failures: u64) -> Self {
        let (reads, gone) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
        let second = Stub::start(move |port, _, words| {
            usual(port, words).unwrap_or_else(|| match words.starts_with("AT.GET ") {
                true if reads.fetch_add(1, Ordering::SeqCst) < failures => Answer::Ends(String::new()),
                true => Answer::Says("$1\r\nv\r\n".to_owned()),
                false => Answer::Says("*2\r\n$1\r\n7\r\n$1\r\n9\r\n".to_owned()),
            })
        })
        .await;
        let port = second.address.rsplit(':').next().unwrap().parse().unwrap();
        let is_gone = Arc::clone(&gone);
        let first = Stub::start(move |_, _, words| match is_gone.load(Ordering::SeqCst) {
            true if hangs => Answer::Hangs,
            true => Answer::Ends(String::new()),
            false => usual(port, words).unwrap(),
        })
        .await;
        Self { first, second, gone }
    }

    /// A store with these seeds, after the first node is gone.
    async fn store(&self, told: &[&Stub]) -> RingStore {
        let told = told.iter().map(|node| node.address.clone()).collect();
        let short = Duration::from_millis(300);
        let options = RingOptions { connect_time_out: short, silence_first: short, ..RingOptions::of(told) };
        let store = RingStore::open(options).await.unwrap();
        self.gone.store(true, Ordering::SeqCst);
        store
    }
}

#[tokio::test(start_paused = true)]
async fn what_any_node_can_answer_is_asked_of_one_that_is_there() {
    let two = Two::start(false, 0).await;
    let store = two.store(&[&two.first]).await;
    let began = tokio::time::Instant::now();
    for _ in 0..10 {
        assert_eq!(store.now().await.unwrap(), Timestamp(7_000_009_000));
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_is_asked_once_what_others_can_answer() {
    let two = Two::start(true, 0).await;
    let store = two.store(&[&two.first, &two.second]).await;
    let began = tokio::time::Instant::now();
    for _ in 0..20 {
        store.now().await.unwrap();
    }
    assert!(two.first.came("TIME").len() <= 1, "{:?}", two.first.came("TIME"));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_only_heard_of_is_found_again_after_it_failed() {
    let two = Two::start(false, 1).await;
    let store = two.store(&[&two.first]).await;
    let value = store.get(CELL, ReadOptions::default()).await.unwrap();
    assert_eq!(value.as_deref(), Some(&b"v"[..]));
    assert_eq!(two.second.came("AT.GET").len(), 2);
}
