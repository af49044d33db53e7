//! Requests and answers that are lost, late or garbled between client and cluster, at exactly the moment that
//! matters.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;
#[path = "common/way.rs"]
mod way;

use atoll_cassandra::{CassandraStore, Options};
use atoll_store::{
    Batch, Buffer, Cell, ErrorKind, Expectation, Outcome, ReadOptions, ScanRequest, Store, Waited,
    WriteOptions,
};
use common::{Namespaces, bytes, chunks_of, contacts, leave_chunk};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use way::{Answer, Fate, Way};

/// The size of a large value, which is stored in chunks.
const CHUNKED: usize = 900_000;

/// Two clients of one store; the first connects through a way that a test can block.
struct Two {
    way: Way,
    far: CassandraStore,
    near: CassandraStore,
    partition: Vec<u8>,
    /// Bypasses both of them.
    session: Session,
}

impl Two {
    async fn open(time_out: Duration) -> Option<Self> {
        let contacts = contacts()?;
        let way = Way::to(&contacts).await;
        let session = SessionBuilder::new().known_nodes(&contacts).build().await.unwrap();
        let namespaces = Namespaces::new(contacts, "conformance");
        let namespace = namespaces.fresh();
        let partition = [&namespace[..], b"p"].concat();
        // A client does not ask for what it keeps in memory.
        let near = Options { memory_bytes: 0, ..namespaces.options(namespace) };
        let far = Options { contacts: way.contacts.clone(), request_time_out: time_out, ..near.clone() };
        let near = CassandraStore::open(near).await.unwrap();
        let far = CassandraStore::open(far).await.unwrap();
        Some(Self { way, far, near, partition, session })
    }

    /// Holds reads of chunks until the way is opened; returns the count of the other requests.
    fn hold_chunks(&self) -> Arc<AtomicUsize> {
        let others = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&others);
        self.way.rule(move |text| {
            if text.contains(".chunks WHERE id") {
                return Fate::Held;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            Fate::Passes
        });
        others
    }

    async fn value(&self, sort: &str) -> Option<Buffer> {
        self.near.get(Cell::new("p", sort), ReadOptions::default()).await.unwrap()
    }
}

fn is_row_of_creation(text: &str) -> bool {
    text.starts_with("UPDATE") && text.contains(".cells USING TIMESTAMP")
}

#[tokio::test]
async fn a_creation_of_which_one_try_may_have_come_through_is_never_told_refused() {
    // Refused requests are retried until this time-out; opening the store may take as long.
    let Some(two) = Two::open(Duration::from_secs(5)).await else { return };
    let mut tries = 0;
    two.way.rule(move |text| {
        if !is_row_of_creation(text) {
            return Fate::Passes;
        }
        tries += 1;
        match tries {
            1 => Fate::Replaced(Answer::write_time_out()),
            _ => Fate::Refused(Answer::unavailable()),
        }
    });
    let created = two.far.create(Cell::new("p", "made"), bytes(9, 1), WriteOptions::default()).await;
    let error = created.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    assert_eq!(two.value("made").await, Some(bytes(9, 1)), "it is there");
}

#[tokio::test]
async fn a_call_that_is_given_up_before_it_can_have_an_effect_leaves_no_chunks() {
    for is_creation in [false, true] {
        let Some(two) = Two::open(Duration::from_secs(15)).await else { return };
        let mut chunks = 0;
        two.way.rule(move |text| {
            if text.starts_with("INSERT") && text.contains(".chunks") {
                chunks += 1;
                // Two of the four are written, and the call waits for the others.
                if chunks > 2 {
                    return Fate::Held;
                }
            }
            Fate::Passes
        });
        let (cell, value) = (Cell::new("p", "late"), bytes(CHUNKED, 6));
        let options = WriteOptions { deadline: Some(Duration::from_secs(3)), ..WriteOptions::default() };
        let ended = match is_creation {
            true => two.far.create(cell, value, options).await,
            false => two.far.put(cell, &value, options).await,
        };
        let error = ended.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Refused, "{error}");
        // Closing deletes at once the chunks that would otherwise go in ten seconds.
        two.far.close().await.unwrap();
        let swept = two.near.sweep(Duration::ZERO).await.unwrap();
        assert_eq!(swept.deleted, 0, "nothing was left to it, by a creation: {is_creation}");
        assert_eq!(two.value("late").await, None);
    }
}

#[tokio::test]
async fn a_write_whose_answer_cannot_be_read_is_looked_for() {
    let Some(two) = Two::open(Duration::from_secs(5)).await else { return };
    let mut batches = 0;
    two.way.rule(move |text| match text {
        "BATCH" => {
            batches += 1;
            if batches == 1 { Fate::Replaced(Answer::void()) } else { Fate::Passes }
        }
        _ => Fate::Passes,
    });
    let value = bytes(CHUNKED, 2);
    two.far.put(Cell::new("p", "put"), &value, WriteOptions::default()).await.unwrap();
    assert_eq!(two.value("put").await, Some(value), "with all its chunks");
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_looked_for_while_there_is_time() {
    let Some(two) = Two::open(Duration::from_secs(6)).await else { return };
    let batches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&batches);
    two.way.rule(move |text| match text {
        "BATCH" if counted.fetch_add(1, Ordering::SeqCst) == 0 => Fate::Unanswered,
        _ => Fate::Passes,
    });
    two.far.append(Cell::new("p", "log"), b"once", WriteOptions::default()).await.unwrap();
    assert_eq!(two.value("log").await.as_deref(), Some(&b"once"[..]));
    assert_eq!(batches.load(Ordering::SeqCst), 1, "what is there is not sent again");
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_after_long_races_is_looked_for_as_any_other() {
    let Some(two) = Two::open(Duration::from_secs(5)).await else { return };
    let (began, mut is_lost) = (Instant::now(), false);
    two.way.rule(move |text| {
        if text != "BATCH" {
            return Fate::Passes;
        }
        // Longer than the time for requests that are not answered.
        if began.elapsed() < Duration::from_secs(7) {
            return Fate::Refused(Answer::not_applied());
        }
        if std::mem::replace(&mut is_lost, true) {
            return Fate::Passes;
        }
        Fate::Replaced(Answer::write_time_out())
    });
    two.far.append(Cell::new("p", "log"), b"once", WriteOptions::default()).await.unwrap();
    assert_eq!(two.value("log").await.as_deref(), Some(&b"once"[..]));
}

#[tokio::test]
async fn a_wait_keeps_its_time_while_the_cluster_is_silent() {
    let Some(two) = Two::open(Duration::from_secs(15)).await else { return };
    let cell = Cell::new("p", "flag");
    two.far.put(cell, b"1", WriteOptions::default()).await.unwrap();
    // Reads are held, but a batch passes, and the writer needs no read because it remembers the head.
    let started = Instant::now();
    let expectation = Expectation::Equals(Some(Buffer::from(&b"3"[..])));
    let waiting = two.far.wait(cell, expectation, Duration::from_secs(1));
    let writing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        two.way.rule(|text| if text == "BATCH" { Fate::Passes } else { Fate::Held });
        two.far.put(cell, b"2", WriteOptions::default()).await.unwrap();
        two.way.holds().await;
    };
    let (waited, ()) = futures::join!(waiting, writing);
    assert_eq!(waited.unwrap(), Waited::TimedOut);
    // A wait that kept the time-out of requests instead of its own would take 15 s; a busy machine may add
    // some.
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
}

#[tokio::test]
async fn while_a_node_reads_without_what_was_decided_no_call_is_made_and_waits_end() {
    let Some(two) = Two::open(Duration::from_secs(5)).await else { return };
    let cell = Cell::new("p", "a");
    two.far.put(cell, b"1", WriteOptions::default()).await.unwrap();
    two.way.rule(|text| match text.contains("system_views.settings") {
        true => Fate::Refused(Answer::paxos_variant("v2_without_linearizable_reads")),
        false => Fate::Passes,
    });
    // The nodes are asked every 15 seconds.
    let expectation = Expectation::Equals(Some(Buffer::from(&b"2"[..])));
    let error = two.far.wait(cell, expectation, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("reads without what was decided"), "{error}");
    let read = two.far.get(cell, ReadOptions::default()).await.unwrap_err();
    let written = two.far.put(cell, b"2", WriteOptions::default()).await.unwrap_err();
    assert_eq!((read.kind(), written.kind()), (ErrorKind::InvalidInput, ErrorKind::InvalidInput));
    assert_eq!(written.outcome(), Outcome::Refused);
    // Set right, the nodes are relied on again.
    two.way.rule(|_| Fate::Passes);
    let started = Instant::now();
    while let Err(error) = two.far.get(cell, ReadOptions::default()).await {
        assert!(started.elapsed() < Duration::from_secs(60), "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(two.value("a").await.as_deref(), Some(&b"1"[..]), "nothing was written");
}

#[tokio::test]
async fn who_reads_slowly_reads_the_value_that_it_began_with() {
    let Some(two) = Two::open(Duration::from_secs(15)).await else { return };
    let cell = Cell::new("p", "busy");
    two.near.put(cell, &bytes(CHUNKED, 1), WriteOptions::default()).await.unwrap();
    let heads = two.hold_chunks();
    let replacing = async {
        two.way.holds().await;
        two.near.put(cell, &bytes(CHUNKED, 2), WriteOptions::default()).await.unwrap();
        // Long enough for the old chunks to be deleted, if they were deleted at once.
        tokio::time::sleep(Duration::from_millis(700)).await;
        two.way.open();
    };
    let (read, ()) = futures::join!(two.far.get(cell, ReadOptions::default()), replacing);
    assert_eq!(read.unwrap(), Some(bytes(CHUNKED, 1)));
    assert_eq!(heads.load(Ordering::SeqCst), 1, "nothing was read anew");
}

#[tokio::test]
async fn who_finds_a_chunk_gone_reads_the_newer_value() {
    let cell = Cell::new("p", "busy");
    for is_scan in [false, true] {
        let Some(two) = Two::open(Duration::from_secs(15)).await else { return };
        two.near.put(cell, &bytes(CHUNKED, 1), WriteOptions::default()).await.unwrap();
        let (id, chunks) = chunks_of(&two.session, &two.partition, "busy").await;
        let heads = two.hold_chunks();
        let replacing = async {
            two.way.holds().await;
            two.near.put(cell, &bytes(CHUNKED, 2), WriteOptions::default()).await.unwrap();
            // As if this reader had slept longer than the grace period of chunks.
            for number in 0..chunks.len() as i32 {
                let delete = "DELETE FROM conformance.chunks WHERE id = ? AND n = ?";
                two.session.query_unpaged(delete, (&id, number)).await.unwrap();
            }
            two.way.open();
        };
        let reading = async {
            if is_scan {
                let page = two.far.scan(ScanRequest::all(*b"p")).await.unwrap();
                return page.entries.into_iter().next().map(|entry| entry.value);
            }
            two.far.get(cell, ReadOptions::default()).await.unwrap()
        };
        let (read, ()) = futures::join!(reading, replacing);
        assert_eq!(read, Some(bytes(CHUNKED, 2)), "by a scan: {is_scan}");
        assert_eq!(heads.load(Ordering::SeqCst), 2, "it was read anew, once; by a scan: {is_scan}");
    }
}

#[tokio::test]
async fn a_creation_that_a_sweep_came_between_is_there_when_it_is_told_done() {
    let Some(two) = Two::open(Duration::from_secs(15)).await else { return };
    leave_chunk(&two.session, &two.partition, b"made").await;
    two.way.rule(|text| if is_row_of_creation(text) { Fate::Held } else { Fate::Passes });
    let value = bytes(CHUNKED, 3);
    let creating = two.far.create(Cell::new("p", "made"), value.clone(), WriteOptions::default());
    let sweeping = async {
        two.way.holds().await;
        let swept = two.near.sweep(Duration::from_secs(3600)).await;
        two.way.open();
        swept
    };
    let (created, swept) = futures::join!(creating, sweeping);
    assert_eq!((created.unwrap().repeated, swept.unwrap().deleted), (false, 1));
    assert_eq!(two.value("made").await, Some(value), "it was told done");
}

fn is_look_at_heads(text: &str) -> bool {
    text.contains("SELECT kind, s, piece, head FROM") && text.contains("IN ?")
}

#[tokio::test]
async fn conditions_alone_hold_at_one_moment_even_if_a_creation_among_them_had_to_be_settled() {
    let Some(two) = Two::open(Duration::from_secs(15)).await else { return };
    let (first, second) = (bytes(20, 6), bytes(20, 7));
    two.near.create(Cell::new("p", "first"), first.clone(), WriteOptions::default()).await.unwrap();
    // This client has not seen that a majority has it, and asks.
    two.way.rule(|text| if text.contains("writetime(value)") { Fate::Held } else { Fate::Passes });
    let batch = Batch::on("p").if_absent("second").if_equals("first", first.as_slice());
    let checking = two.far.write(batch, WriteOptions::default());
    let creating = async {
        two.way.holds().await;
        let created = two.near.create(Cell::new("p", "second"), second, WriteOptions::default()).await;
        two.way.open();
        created
    };
    let (checked, created) = futures::join!(checking, creating);
    created.unwrap();
    // When the first was settled, the second was there.
    let error = checked.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

#[tokio::test]
async fn a_creation_that_a_deletion_came_between_keeps_its_chunks() {
    let Some(two) = Two::open(Duration::from_secs(15)).await else { return };
    let (cell, value) = (Cell::new("p", "made"), bytes(CHUNKED, 4));
    // The row is written, and the creator has not read it back yet.
    two.way.rule(|text| if is_look_at_heads(text) { Fate::Held } else { Fate::Passes });
    let creating = two.far.create(cell, value.clone(), WriteOptions::default());
    let deleting = async {
        two.way.holds().await;
        let deleted = two.near.delete(cell, WriteOptions::default()).await;
        two.way.open();
        deleted
    };
    let (created, deleted) = futures::join!(creating, deleting);
    assert!(!created.unwrap().repeated);
    deleted.unwrap();
    // Closing deletes at once the chunks that would otherwise go in ten seconds.
    two.near.close().await.unwrap();
    assert_eq!(two.far.get(cell, ReadOptions::default()).await.unwrap(), Some(value), "it was told done");
}

#[tokio::test]
async fn a_creation_that_met_a_cell_whose_chunks_went_is_made_and_not_told_a_conflict_with_nothing() {
    let Some(two) = Two::open(Duration::from_secs(15)).await else { return };
    let (cell, value) = (Cell::new("p", "made"), bytes(CHUNKED, 5));
    two.near.put(cell, &bytes(CHUNKED, 4), WriteOptions::default()).await.unwrap();
    let (id, chunks) = chunks_of(&two.session, &two.partition, "made").await;
    two.hold_chunks();
    let creating = two.far.create(cell, value.clone(), WriteOptions::default());
    let deleting = async {
        // The creator has seen the cell, and compares its value.
        two.way.holds().await;
        two.near.delete(cell, WriteOptions::default()).await.unwrap();
        for number in 0..chunks.len() as i32 {
            let delete = "DELETE FROM conformance.chunks WHERE id = ? AND n = ?";
            two.session.query_unpaged(delete, (&id, number)).await.unwrap();
        }
        two.way.open();
    };
    let (created, ()) = futures::join!(creating, deleting);
    assert!(!created.unwrap().repeated);
    assert_eq!(two.value("made").await, Some(value));
}

#[tokio::test]
async fn a_creation_that_is_made_again_after_a_deletion_keeps_its_chunks() {
    let Some(two) = Two::open(Duration::from_secs(5)).await else { return };
    let (cell, value) = (Cell::new("p", "made"), bytes(CHUNKED, 5));
    let mut tries = 0;
    two.way.rule(move |text| {
        if !is_row_of_creation(text) {
            return Fate::Passes;
        }
        tries += 1;
        if tries == 1 {
            Fate::Replaced(Answer::write_time_out())
        } else {
            Fate::Refused(Answer::unavailable())
        }
    });
    let error = two.far.create(cell, value.clone(), WriteOptions::default()).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    // Another client deletes the cell before its creator retries, which is meant to be harmless.
    two.near.delete(cell, WriteOptions::default()).await.unwrap();
    two.way.rule(|_| Fate::Passes);
    two.far.create(cell, value.clone(), WriteOptions::default()).await.unwrap();
    two.near.close().await.unwrap();
    assert_eq!(two.far.get(cell, ReadOptions::default()).await.unwrap(), Some(value), "it was told done");
}

#[tokio::test]
async fn connections_that_went_dead_without_a_word_are_given_up_while_there_is_time() {
    let Some(two) = Two::open(Options::default().request_time_out).await else { return };
    let (read, written) = (Cell::new("p", "a"), Cell::new("q", "b"));
    two.near.put(read, b"1", WriteOptions::default()).await.unwrap();
    // One connection that the driver keeps for its own requests, and two for ours.
    two.way.joins(3).await;
    two.way.silence();
    let (read, written) = futures::join!(
        two.far.get(read, ReadOptions::default()),
        two.far.append(written, b"once", WriteOptions::default()),
    );
    assert_eq!(read.unwrap().as_deref(), Some(&b"1"[..]));
    written.unwrap();
    let log = two.near.get(Cell::new("q", "b"), ReadOptions::default()).await.unwrap();
    assert_eq!(log.as_deref(), Some(&b"once"[..]));
}

#[tokio::test]
async fn a_chunk_of_which_one_replica_has_wrong_bytes_is_read_from_another_and_written_anew() {
    let Some(two) = Two::open(Duration::from_secs(5)).await else { return };
    let value = bytes(CHUNKED, 8);
    let large = Cell::new("p", "large");
    two.near.put(large, value.as_slice(), WriteOptions::default()).await.unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    let (counted, mut wrong) = (Arc::clone(&written), 1);
    two.way.rule(move |text| {
        if text.starts_with("INSERT") && text.contains(".chunks") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        if wrong > 0 && text.starts_with("SELECT data") {
            wrong -= 1;
            return Fate::Garbled;
        }
        Fate::Passes
    });
    let read = two.far.get(large, ReadOptions::default()).await.unwrap();
    assert_eq!(read, Some(value.clone()));
    assert_eq!(written.load(Ordering::SeqCst), 1);
    // A chunk that is wrong at every replica is damage.
    two.way.rule(|text| if text.starts_with("SELECT data") { Fate::Garbled } else { Fate::Passes });
    let error = two.far.get(large, ReadOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("before any repair")), "{error}");
    assert_eq!(two.value("large").await, Some(value));
}
