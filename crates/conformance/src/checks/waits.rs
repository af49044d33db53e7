//! Waits: what ends them, what does not, and that ten thousand of them do not affect other calls.

use crate::context::{Client, Context, Verdict, after, broken, ensure, same};
use atoll_store::{Batch, Buffer, Cell, Expectation, SortRange, StoreError, Waited};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A wait that must end does so well within this time, even on a busy machine.
const LONG: Duration = Duration::from_secs(6);

fn some(text: &str) -> Option<Buffer> {
    Some(Buffer::copy_from(text.as_bytes()))
}

fn start(client: &Client, sort: &str, expectation: Expectation, time_out: Duration) -> JoinHandle<Result<Waited, StoreError>> {
    let (store, sort) = (client.store.clone(), sort.to_owned());
    tokio::spawn(async move { store.wait(Cell::new("p", &sort), expectation, time_out).await })
}

pub(super) async fn a_wait_is_level_triggered(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.put("p", "a", "1").await?;
    client.put("p", "empty", "").await?;
    let cases = [
        ("a", Expectation::Equals(some("1")), some("1")),
        ("a", Expectation::Differs(some("0")), some("1")),
        ("a", Expectation::Differs(None), some("1")),
        ("none", Expectation::Equals(None), None),
        ("none", Expectation::Differs(some("1")), None),
        ("empty", Expectation::Equals(some("")), some("")),
        ("empty", Expectation::Differs(None), some("")),
    ];
    for (sort, expectation, value) in cases {
        for time_out in [Duration::ZERO, LONG] {
            let what = format!("wait of {time_out:?} on {sort} for {expectation:?}, which it meets already");
            let waited = client.store.wait(Cell::new("p", sort), expectation.clone(), time_out).await?;
            same(what, &waited, &Waited::Met(value.clone()))?;
        }
    }
    Ok(())
}

pub(super) async fn every_kind_of_write_ends_a_wait(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let on = || Batch::on(*b"p");
    let value = || Buffer::copy_from(b"new");
    let cases = [
        ("a put", on().put(*b"a", value()), some("new")),
        ("an append", on().append(*b"a", value()), some("oldnew")),
        ("a delete", on().delete(*b"a"), None),
        ("a deleted range", on().delete_range(SortRange::prefix(b"a")), None),
        ("a deleted partition", on().delete_range(SortRange::all()), None),
        ("a swap", on().if_equals(*b"a", Buffer::copy_from(b"old")).put(*b"a", value()), some("new")),
        ("a batch", on().put(*b"b", value()).delete(*b"c").put(*b"a", value()), some("new")),
    ];
    for (what, batch, value) in cases {
        client.put("p", "a", "old").await?;
        let waits = [Expectation::Differs(some("old")), Expectation::Equals(value.clone())]
            .map(|expectation| start(&client, "a", expectation, LONG));
        // The wait may begin before or after the write; both must end it.
        tokio::task::yield_now().await;
        client.write(batch).await?;
        for wait in waits {
            same(format!("a wait that {what} ends"), &wait.await??, &Waited::Met(value.clone()))?;
        }
    }
    Ok(())
}

pub(super) async fn a_wait_times_out_and_not_early(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.put("p", "a", "1").await?;
    // A busy machine hides how early a short wait ended; it seldom hides it for the long one.
    let waits = [20, 80, 400].map(|ms| {
        let (client, time_out) = (client.clone(), Duration::from_millis(ms));
        tokio::spawn(async move {
            let started = Instant::now();
            let waited = client.store.wait(Cell::new("p", "a"), Expectation::Equals(some("2")), time_out).await;
            (waited, started.elapsed(), time_out)
        })
    });
    client.put("p", "a", "3").await?;
    client.put("p", "b", "2").await?;
    for wait in waits {
        let (waited, took, time_out) = wait.await?;
        same("a wait for what never comes", &waited?, &Waited::TimedOut)?;
        ensure(took >= time_out, || format!("a wait of {time_out:?} ended after {took:?}"))?;
    }
    let none = client.store.wait(Cell::new("p", "a"), Expectation::Equals(None), Duration::ZERO).await?;
    same("a wait of no time for what is not there", &none, &Waited::TimedOut)
}

pub(super) async fn no_wake_up_is_missed(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    for turns in 0..8 {
        write_after(&client, turns).await?;
    }
    for batch in 0..context.size.of(20, 1500) {
        // Several at once, so that the threads are busy and take turns at every point.
        let races: Vec<_> = (0..8)
            .map(|lane| {
                let round = batch * 8 + lane;
                tokio::spawn(race(client.clone(), round, context.random(round)))
            })
            .collect();
        for race in races {
            race.await??;
        }
    }
    Ok(())
}

/// Writes after the wait has made this many steps.
async fn write_after(client: &Client, turns: u32) -> Verdict {
    let sort = format!("after {turns} turns");
    let wait = client.store.wait(Cell::new("p", &sort), Expectation::Equals(some("go")), LONG);
    let (waited, put) = futures::join!(wait, after(turns, client.put("p", &sort, "go")));
    put?;
    same(format!("a wait that was written to after {turns} turns"), &waited?, &Waited::Met(some("go")))
}

/// Writes beside waits that have just begun, or are about to.
async fn race(client: Client, round: u64, mut random: fastrand::Rng) -> Verdict {
    let sort = format!("{round}");
    let waits: Vec<_> = (0..3).map(|_| start(&client, &sort, Expectation::Equals(some("go")), LONG)).collect();
    for _ in 0..random.u8(0..4) {
        tokio::task::yield_now().await;
    }
    client.put("p", &sort, "go").await?;
    for wait in waits {
        same(format!("wait {round}, beside a write that it waits for"), &wait.await??, &Waited::Met(some("go")))?;
    }
    Ok(())
}

/// A future that counts how often it is polled, and how often it is woken.
///
/// A wake happens within the write itself. A poll comes when the machine has time for it: on a busy machine,
/// after the counts were read.
struct Counted<F> {
    inner: F,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    polls: AtomicU32,
    wakes: AtomicU32,
}

impl Counts {
    fn is_begun(&self) -> bool {
        self.polls.load(Ordering::SeqCst) > 0
    }

    fn all(&self) -> u64 {
        u64::from(self.polls.load(Ordering::SeqCst)) + u64::from(self.wakes.load(Ordering::SeqCst))
    }
}

/// Counts each wake, and passes it on to the inner waker.
struct CountedWaker {
    inner: Waker,
    counts: Arc<Counts>,
}

impl Wake for CountedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.counts.wakes.fetch_add(1, Ordering::SeqCst);
        self.inner.wake_by_ref();
    }
}

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        self.counts.polls.fetch_add(1, Ordering::SeqCst);
        let waker = CountedWaker { inner: task.waker().clone(), counts: self.counts.clone() };
        Pin::new(&mut self.inner).poll(&mut TaskContext::from_waker(&Waker::from(Arc::new(waker))))
    }
}

fn total(counts: &[Arc<Counts>]) -> u64 {
    counts.iter().map(|counts| counts.all()).sum()
}

/// Waits until every waiter was polled and no more polls come: then all of them are waiting.
async fn settle(client: &Client, counts: &[Arc<Counts>]) -> Verdict {
    let (mut last, mut calm) = (0, 0);
    while calm < 5 || counts.iter().any(|counts| !counts.is_begun()) {
        client.get("p", "unwatched").await?;
        tokio::task::yield_now().await;
        let now = total(counts);
        calm = if now == last { calm + 1 } else { 0 };
        last = now;
    }
    Ok(())
}

/// The most writes to try, each of which wakes one waiter. On a busy machine, a wait that is just beginning
/// may be polled once during the first of them; a store that keeps the promise polls none during a later one.
const WAKING_WRITES: u64 = 3;

pub(super) async fn one_write_polls_no_other_waiter(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let waiters = client.store.capabilities().waiters_max.min(10_000);
    let counts: Vec<_> = (0..waiters).map(|_| Arc::new(Counts::default())).collect();
    let mut tasks: Vec<_> =
        counts.iter().enumerate().map(|(at, counts)| wait_counted(&client, at, counts)).map(Some).collect();
    let mut others = 0;
    for write in 0..WAKING_WRITES {
        let woken = waiters / 2 + write as usize;
        let Some(task) = tasks.get_mut(woken).and_then(Option::take) else { break };
        others = polls_of_others(&client, &counts, woken, task).await?;
        if others == 0 {
            break;
        }
    }
    let ended = tasks.iter().flatten().filter(|task| task.is_finished()).count();
    tasks.iter().flatten().for_each(JoinHandle::abort);
    ensure(ended == 0, || format!("{ended} waits ended without a write"))?;
    same(format!("wakes and polls of the other {} waiters for one write", waiters - 1), &others, &0)
}

/// Wakes one waiter by a write, and counts how often other waiters were woken or polled because of it.
async fn polls_of_others(
    client: &Client,
    counts: &[Arc<Counts>],
    woken: usize,
    task: JoinHandle<Result<Waited, StoreError>>,
) -> Verdict<u64> {
    settle(client, counts).await?;
    let others = || total(counts) - counts[woken].all();
    let before = others();
    client.put("p", "unwatched", "x").await?;
    client.put("p", woken.to_string(), "x").await?;
    let Ok(waited) = tokio::time::timeout(LONG, task).await else {
        return broken("the one wait that is written to does not end");
    };
    let waited = waited??;
    same("the one wait that is written to", &waited, &Waited::Met(some("x")))?;
    settle(client, counts).await?;
    Ok(others() - before)
}

fn wait_counted(client: &Client, at: usize, counts: &Arc<Counts>) -> JoinHandle<Result<Waited, StoreError>> {
    let (store, counts) = (client.store.clone(), counts.clone());
    tokio::spawn(async move {
        let sort = at.to_string();
        let wait = store.wait(Cell::new("p", &sort), Expectation::Differs(None), Duration::from_secs(3600));
        Counted { inner: wait, counts }.await
    })
}
