//! What a connection guarantees: every request gets its own answer, however the bytes travel; nothing grows
//! without bound; a lost connection tells whether the request was sent.
#![allow(clippy::unwrap_used, clippy::panic)]

use atoll_wire::{Client, Connection, Faults, Limits, Request, WireError, simulated_pair};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};

/// Answers each request with its bytes reversed, in a task of its own, until the connection ends.
async fn serve_reversed(
    transport: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Option<WireError> {
    let mut connection =
        match Connection::accept(transport, Limits::default(), |_| Ok(b"welcome".to_vec())).await {
            Ok(connection) => connection,
            Err(error) => return Some(error),
        };
    loop {
        match connection.next().await {
            Ok(Some(Request { mut body, responder })) => {
                tokio::spawn(async move {
                    body.reverse();
                    let _ = responder.finish(&body).await;
                });
            }
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

fn reversed(body: &[u8]) -> Vec<u8> {
    body.iter().rev().copied().collect()
}

#[tokio::test]
async fn every_request_gets_its_own_answer_however_the_bytes_are_split() {
    for seed in 0..20 {
        let faults = Faults { delay_percent: 30, split: true, ..Faults::default() };
        let (near, far) = simulated_pair(seed, 5000, [faults; 2]);
        let server = tokio::spawn(serve_reversed(far));
        let (client, greeting) = Client::connect(near, Limits::default(), Vec::new()).await.unwrap();
        assert_eq!(greeting, b"welcome");
        let mut random = fastrand::Rng::with_seed(seed);
        let asking: Vec<_> = (0..50)
            .map(|_| {
                let body: Vec<u8> = (0..random.usize(..2000)).map(|_| random.u8(..)).collect();
                let client = client.clone();
                tokio::spawn(async move { assert_eq!(client.call(&body).await.unwrap(), reversed(&body)) })
            })
            .collect();
        for task in asking {
            task.await.unwrap();
        }
        drop(client);
        assert!(server.await.unwrap().is_none(), "seed {seed}");
    }
}

#[tokio::test]
async fn large_messages_travel_in_pieces_beside_small_ones() {
    let limits = Limits { chunk_bytes: 1000, outbox_bytes: 3000, ..Limits::default() };
    let (near, far) = tokio::io::duplex(4096);
    tokio::spawn(serve_reversed(far));
    let (client, _) = Client::connect(near, limits, Vec::new()).await.unwrap();
    let tasks: Vec<_> = (0..20_usize)
        .map(|index| {
            let client = client.clone();
            tokio::spawn(async move {
                let body: Vec<u8> =
                    (0..if index % 2 == 0 { 100_000 } else { 10 }).map(|at| (at + index) as u8).collect();
                assert_eq!(client.call(&body).await.unwrap(), reversed(&body));
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_request_given_up_in_pieces_leaves_the_connection_usable() {
    let limits = Limits { chunk_bytes: 100, outbox_bytes: 100, ..Limits::default() };
    let (near, far) = tokio::io::duplex(64);
    tokio::spawn(serve_reversed(far));
    let (client, _) = Client::connect(near, limits, Vec::new()).await.unwrap();
    for polls in 1..40 {
        let body = vec![7; 10_000];
        let mut call = Box::pin(client.call(&body));
        for _ in 0..polls {
            assert!(futures_poll(&mut call).await.is_none(), "given up only after {polls} polls");
        }
        drop(call);
        assert_eq!(client.call(b"abc").await.unwrap(), b"cba", "after {polls} polls");
    }
}

/// Polls once, then lets the other tasks run.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let polled = std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await;
    tokio::task::yield_now().await;
    polled
}

#[tokio::test]
async fn a_dropped_call_reaches_the_work_done_for_it() {
    let (near, far) = tokio::io::duplex(4096);
    let (client, connection) = tokio::join!(
        Client::connect(near, Limits::default(), Vec::new()),
        Connection::accept(far, Limits::default(), |_| Ok(Vec::new()))
    );
    let (client, mut connection) = (client.unwrap().0, connection.unwrap());
    let mut call = Box::pin(client.call(b"for ever"));
    assert!(futures_poll(&mut call).await.is_none());
    let request = connection.next().await.unwrap().unwrap();
    let gone = request.responder.gone();
    drop(call);
    let serving = tokio::spawn(async move { connection.next().await.map(|request| request.is_some()) });
    gone.await;
    assert!(request.responder.finish(b"too late").await.is_err());
    drop(client);
    assert!(!serving.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_reader_that_does_not_take_its_answers_stops_only_their_sender() {
    let limits = Limits { window_bytes: 10_000, ..Limits::default() };
    let (near, far) = tokio::io::duplex(4096);
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    tokio::spawn(async move {
        let mut connection = Connection::accept(far, limits, |_| Ok(Vec::new())).await.unwrap();
        while let Ok(Some(Request { body, mut responder })) = connection.next().await {
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                if body == b"many" {
                    for _ in 0..1000 {
                        responder.send(&[1; 936]).await.unwrap();
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                }
                responder.finish(b"end").await.unwrap();
            });
        }
    });
    let (client, _) = Client::connect(near, limits, Vec::new()).await.unwrap();
    let mut answers = client.open(b"many").await.unwrap();
    for _ in 0..50 {
        // Other requests pass while the stream is blocked.
        assert_eq!(client.call(b"one").await.unwrap(), b"end");
    }
    assert_eq!(sent.load(Ordering::Relaxed), 10, "10,000 bytes of room for messages of 1,000");
    let mut taken = 0;
    while let Some(answer) = answers.next().await {
        answer.unwrap();
        taken += 1;
    }
    assert_eq!(taken, 1001);
}

#[tokio::test]
async fn a_cut_at_any_byte_ends_in_an_answer_or_a_loss_and_never_hangs() {
    for seed in 0..150 {
        let cut = Faults { split: true, cut_after: Some(seed * 3), ..Faults::default() };
        let calm = Faults { split: true, ..Faults::default() };
        let faults = if seed % 2 == 0 { [cut, calm] } else { [calm, cut] };
        let (near, far) = simulated_pair(seed, 100, faults);
        let server = tokio::spawn(serve_reversed(far));
        if let Ok((client, _)) = Client::connect(near, Limits::default(), Vec::new()).await {
            loop {
                match client.call(b"0123456789").await {
                    Ok(answer) => assert_eq!(answer, b"9876543210", "seed {seed}"),
                    Err(lost) => {
                        assert!(!client.is_open());
                        let later = client.call(b"x").await.unwrap_err();
                        assert!(!later.was_sent, "seed {seed}: {lost:?} then {later:?}");
                        break;
                    }
                }
            }
        }
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_damaged_byte_ends_the_connection_and_never_yields_a_wrong_answer() {
    for place in 0..200 {
        let flip = Faults { flip_at: Some(place), ..Faults::default() };
        let faults = if place % 2 == 0 { [flip, Faults::default()] } else { [Faults::default(), flip] };
        let (near, far) = simulated_pair(place, 1000, faults);
        let server = tokio::spawn(serve_reversed(far));
        let asked = async {
            let (client, _) = Client::connect(near, Limits::default(), Vec::new()).await.ok()?;
            for _ in 0..10 {
                assert_eq!(client.call(b"0123456789").await.ok()?, b"9876543210", "flip at {place}");
            }
            Some(())
        };
        assert!(asked.await.is_none(), "flip at {place} was not noticed");
        server.await.unwrap();
    }
}

#[tokio::test]
async fn after_a_goodbye_open_requests_are_answered_and_new_ones_were_not_sent() {
    let (near, far) = tokio::io::duplex(4096);
    let (client, connection) = tokio::join!(
        Client::connect(near, Limits::default(), Vec::new()),
        Connection::accept(far, Limits::default(), |_| Ok(Vec::new()))
    );
    let (client, mut connection) = (client.unwrap().0, connection.unwrap());
    let early = client.clone();
    let early = tokio::spawn(async move { early.call(b"early").await });
    let request = connection.next().await.unwrap().unwrap();
    connection.goodbye();
    client.ended().await;
    assert!(!client.call(b"late").await.unwrap_err().was_sent);
    request.responder.finish(b"answer").await.unwrap();
    assert_eq!(early.await.unwrap().unwrap(), b"answer");
}

/// A client and its server, with a pipe of this capacity between them.
async fn connected(room: usize) -> (Client, Connection) {
    let (near, far) = tokio::io::duplex(room);
    let (client, connection) = tokio::join!(
        Client::connect(near, Limits::default(), Vec::new()),
        Connection::accept(far, Limits::default(), |_| Ok(Vec::new()))
    );
    (client.unwrap().0, connection.unwrap())
}

#[tokio::test]
async fn what_a_peer_that_leaves_did_not_take_counts_as_never_sent() {
    let (client, mut connection) = connected(4096).await;
    let calls = ["first", "second", "third"].map(|body| {
        let client = client.clone();
        tokio::spawn(async move { client.call(body.as_bytes()).await })
    });
    let taken = connection.next().await.unwrap().unwrap();
    connection.goodbye();
    drop(taken);
    drop(connection);
    let mut sent = 0;
    for call in calls {
        sent += usize::from(call.await.unwrap().unwrap_err().was_sent);
    }
    assert_eq!(sent, 1, "only what it took may have been done");
}

#[tokio::test]
async fn what_ended_without_an_answer_may_have_been_done_and_what_was_declined_was_not() {
    let (client, mut connection) = connected(4096).await;
    let call = |body: &'static str| {
        let client = client.clone();
        tokio::spawn(async move { client.call(body.as_bytes()).await })
    };
    let begun = call("begun");
    let dropped = connection.next().await.unwrap().unwrap();
    let declined = call("declined");
    let unbegun = connection.next().await.unwrap().unwrap();
    // The client sees nothing until all of this is sent.
    drop(dropped);
    unbegun.responder.decline();
    connection.goodbye();
    drop(connection);
    assert!(begun.await.unwrap().unwrap_err().was_sent);
    assert!(!declined.await.unwrap().unwrap_err().was_sent);
}

#[tokio::test]
async fn what_a_peer_said_before_it_went_is_read_where_it_takes_nothing_more() {
    let (client, mut connection) = connected(4096).await;
    let early = client.clone();
    let early = tokio::spawn(async move { early.call(b"early").await });
    let request = connection.next().await.unwrap().unwrap();
    request.responder.finish(b"answer").await.unwrap();
    connection.goodbye();
    drop(connection);
    // Neither task of the client has run meanwhile: its next write meets a closed connection.
    let late = client.call(b"late").await.unwrap_err();
    assert!(!late.was_sent, "it could not be taken any more");
    assert_eq!(early.await.unwrap().unwrap(), b"answer");
}

#[tokio::test]
async fn a_goodbye_that_names_its_streams_wrongly_is_an_error_of_the_peer() {
    use atoll_wire::{Flags, Hello, Kind, encode_frame};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    for body in [&[1; 7][..], &[0; 16], &5_u64.to_le_bytes()] {
        let (near, mut far) = tokio::io::duplex(4096);
        let offer = Hello::offer(Vec::new()).encode();
        let answering = async {
            far.read_exact(&mut vec![0; offer.len()]).await.unwrap();
            let accept = Hello { status: atoll_wire::Status::Accept, ..Hello::offer(Vec::new()) };
            far.write_all(&accept.encode()).await.unwrap();
            let mut frame = Vec::new();
            encode_frame(&mut frame, Kind::Goodbye, Flags::default(), 0, body);
            far.write_all(&frame).await.unwrap();
        };
        let (client, ()) = tokio::join!(Client::connect(near, Limits::default(), Vec::new()), answering);
        let (client, _) = client.unwrap();
        client.ended().await;
        assert!(!client.is_open(), "{body:?}");
    }
}

#[tokio::test]
async fn a_peer_of_another_version_or_protocol_is_told_so() {
    use atoll_wire::{Hello, MAGIC};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (mut near, far) = tokio::io::duplex(4096);
    let server = tokio::spawn(serve_reversed(far));
    near.write_all(&Hello { lowest: 7, highest: 9, ..Hello::offer(Vec::new()) }.encode()).await.unwrap();
    let mut answer = Vec::new();
    near.read_to_end(&mut answer).await.unwrap();
    let answer = Hello::decode(&answer).unwrap().unwrap();
    assert!(String::from_utf8(answer.greeting).unwrap().contains("versions 7 to 9"));
    assert!(matches!(server.await.unwrap(), Some(WireError::Version { theirs_lowest: 7, .. })));

    let (mut near, far) = tokio::io::duplex(4096);
    let server = tokio::spawn(serve_reversed(far));
    near.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(matches!(server.await.unwrap(), Some(WireError::NotAtoll { found }) if found != MAGIC));
}
