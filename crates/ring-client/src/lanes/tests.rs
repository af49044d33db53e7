//! Lanes to a node that answers when a test permits it.

use super::*;
use crate::connection::written;
use atoll_resp::{LatencyClass, Limits, RequestParser, Value};
use futures::future::join_all;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// A node that echoes requests, as many as it was permitted.
struct Node {
    address: Arc<str>,
    answers: Arc<Semaphore>,
    /// The requests that came with each read of the socket, as texts.
    came: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Node {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string().into();
        let node = Self { address, answers: Arc::new(Semaphore::new(0)), came: Arc::default() };
        let (answers, came) = (Arc::clone(&node.answers), Arc::clone(&node.came));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&answers), Arc::clone(&came)));
            }
        });
        node
    }

    /// Waits until this many requests have come.
    async fn until(&self, count: usize) -> Vec<Vec<String>> {
        loop {
            let came = self.came.lock().clone();
            if came.iter().map(Vec::len).sum::<usize>() >= count {
                return came;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Answers in order; hangs up when no more permits can come.
async fn serve(mut stream: TcpStream, answers: Arc<Semaphore>, came: Arc<Mutex<Vec<Vec<String>>>>) {
    let (mut parser, mut arrived) =
        (RequestParser::new(Limits::default()), Vec::with_capacity(RECEIVE_BYTES));
    while stream.read_buf(&mut arrived).await.is_ok_and(|count| count > 0) {
        let (mut together, mut taken) = (Vec::new(), 0);
        while let Some(request) = parser.parse(&arrived[taken..]).unwrap() {
            together.push(String::from_utf8(request.get(1).unwrap().to_vec()).unwrap());
            taken += request.bytes();
        }
        arrived.drain(..taken);
        arrived.reserve(RECEIVE_BYTES);
        if together[0] == "500" {
            // The latency class, which a client sends first.
            stream.write_all(b"+OK\r\n").await.unwrap();
            continue;
        }
        came.lock().push(together.clone());
        for text in together {
            let Ok(permit) = answers.acquire().await else { return };
            permit.forget();
            stream.write_all(format!("+{text}\r\n").as_bytes()).await.unwrap();
        }
    }
}

fn options() -> RingOptions {
    RingOptions { latency: LatencyClass::FiveHundred, ..RingOptions::of(Vec::new()) }
}

async fn ask(lanes: &Lanes, node: &Node, text: &str, sent: &AtomicUsize) -> Result<Answered, NoAnswer> {
    let request = written(&["ECHO", text]);
    let count = || {
        sent.fetch_add(1, Ordering::SeqCst);
    };
    lanes.ask((&options(), "ring"), (&node.address, Way::Writes(None)), &request, LONG, count).await
}

fn is_answer(answer: &Result<Answered, NoAnswer>, text: &str) -> bool {
    let value = answer.as_ref().map(|answered| &answered.value);
    matches!(value, Ok(Value::Simple(simple)) if simple.as_slice() == text.as_bytes())
}

#[tokio::test]
async fn what_is_asked_while_an_answer_is_awaited_goes_together_behind_it() {
    let (node, lanes, sent) = (Node::start().await, Lanes::default(), AtomicUsize::new(0));
    let texts: Vec<String> = (0..20).map(|number| format!("text {number}")).collect();
    let first = ask(&lanes, &node, "first", &sent);
    let rest = async {
        node.until(1).await;
        let asked = join_all(texts.iter().map(|text| ask(&lanes, &node, text, &sent)));
        let permitted = async {
            tokio::task::yield_now().await;
            node.answers.add_permits(21);
        };
        tokio::join!(asked, permitted).0
    };
    let (first, rest) = tokio::join!(first, rest);
    assert!(is_answer(&first, "first"));
    assert!(rest.iter().zip(&texts).all(|(answer, text)| is_answer(answer, text)), "{rest:?}");
    assert_eq!(node.until(21).await, [vec!["first".to_owned()], texts]);
    assert_eq!(sent.load(Ordering::SeqCst), 21);
}

#[tokio::test]
async fn a_read_waits_for_no_write() {
    let (node, lanes, sent) = (Node::start().await, Lanes::default(), AtomicUsize::new(0));
    let mut write = Box::pin(ask(&lanes, &node, "write", &sent));
    assert!(futures::poll!(&mut write).is_pending());
    node.until(1).await;
    let read = written(&["ECHO", "read"]);
    let options = options();
    let mut read = Box::pin(lanes.ask((&options, "ring"), (&node.address, Way::Reads), &read, LONG, || ()));
    assert!(futures::poll!(&mut read).is_pending());
    // Both are at the node, although nothing was answered.
    assert_eq!(node.until(2).await, [["write"], ["read"]]);
    node.answers.add_permits(2);
    let (write, read) = tokio::join!(write, read);
    assert!(is_answer(&write, "write") && is_answer(&read, "read"), "{write:?} {read:?}");
}

#[tokio::test]
async fn who_gives_up_before_is_not_sent_and_who_gives_up_behind_may_have_been() {
    let (node, lanes) = (Node::start().await, Lanes::default());
    let [first_sent, second_sent] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let mut first = Box::pin(ask(&lanes, &node, "first", &first_sent));
    tokio::select! {
        _ = &mut first => unreachable!("it is not answered"),
        _ = node.until(1) => {}
    }
    {
        let mut second = Box::pin(ask(&lanes, &node, "second", &second_sent));
        assert!(futures::poll!(&mut second).is_pending());
    }
    drop(first);
    node.answers.add_permits(9);
    let third = ask(&lanes, &node, "third", &AtomicUsize::new(0)).await;
    assert!(is_answer(&third, "third"), "{third:?}");
    assert_eq!(node.until(2).await.concat(), ["first", "third"]);
    assert_eq!((first_sent.into_inner(), second_sent.into_inner()), (1, 0));
}

#[tokio::test]
async fn when_a_lane_breaks_everybody_hears_whether_it_was_sent() {
    let (node, lanes) = (Node::start().await, Lanes::default());
    let [first_sent, second_sent] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let first = ask(&lanes, &node, "first", &first_sent);
    let second = async {
        node.until(1).await;
        let second = ask(&lanes, &node, "second", &second_sent);
        // It hangs up instead of answering.
        tokio::join!(second, async { node.answers.close() }).0
    };
    let (first, second) = tokio::join!(first, second);
    assert!(matches!(first, Err(NoAnswer::Sent(_))), "{first:?}");
    assert!(matches!(second, Err(NoAnswer::Unsent(_))), "{second:?}");
    assert_eq!((first_sent.into_inner(), second_sent.into_inner()), (1, 0));
}

#[tokio::test]
async fn a_node_that_is_silent_is_given_up_in_time() {
    let (node, lanes) = (Node::start().await, Lanes::default());
    let options = RingOptions { request_time_out: Duration::from_millis(20), ..options() };
    let request = written(&["ECHO", "first"]);
    let asked = lanes.ask((&options, "ring"), (&node.address, Way::Reads), &request, LONG, || ());
    let answer = tokio::time::timeout(Duration::from_secs(10), asked).await.expect("it is given up");
    assert!(
        matches!(&answer, Err(NoAnswer::Sent(error)) if error.kind() == io::ErrorKind::TimedOut),
        "{answer:?}"
    );
}

#[tokio::test]
async fn nobody_there_is_said_to_everybody_who_asks() {
    let lanes = Lanes::default();
    let (closed, options): (Arc<str>, _) = ("127.0.0.1:1".into(), options());
    let asks = (0..3).map(|_| lanes.ask((&options, "ring"), (&closed, Way::Reads), b"", LONG, || ()));
    let answers = join_all(asks).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(NoAnswer::Unsent(_)))), "{answers:?}");
}

#[tokio::test]
async fn who_gives_up_in_time_hears_whether_it_was_sent() {
    let (node, lanes, sent) = (Node::start().await, Lanes::default(), AtomicUsize::new(0));
    let (options, request, within) = (options(), written(&["ECHO", "a"]), Duration::from_millis(500));
    let count = || {
        sent.fetch_add(1, Ordering::SeqCst);
    };
    let way = Way::Writes(None);
    let asked = |address| lanes.ask((&options, "ring"), (address, way), &request, within, count);
    let at_node = asked(&node.address).await;
    assert!(matches!(at_node, Err(NoAnswer::Sent(_))), "{at_node:?}");
    assert_eq!(sent.load(Ordering::SeqCst), 1);
    // Nothing answers a client that connects there.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent: Arc<str> = listener.local_addr().unwrap().to_string().into();
    let at_silent = asked(&silent).await;
    assert!(matches!(at_silent, Err(NoAnswer::Unsent(_))), "{at_silent:?}");
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}
