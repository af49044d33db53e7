//! Watch connections: one to each node, on which the node reports changes of watched fields.
//!
//! Invariant: each watch on a connection is answered once, also when the connection breaks.
//! Invariant: what a node sends is read even while it accepts nothing, because a node whose output is not
//! read accepts nothing any more.

use crate::answer::{FULL, is_of_keyspace, is_of_nobody};
use crate::connection::{ByteStream, entering, open, write_some, written};
use crate::options::RingOptions;
use atoll_resp::{Limits, ReplyParser, Value};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, oneshot};

/// The watch connections of a store.
#[derive(Default)]
pub(crate) struct WatchConnections {
    open: Mutex<HashMap<Arc<str>, mpsc::UnboundedSender<Wish>>>,
    last: AtomicU64,
    /// Number of watches that wait.
    waiting: AtomicU64,
}

/// How long a node is asked to wait at a time, for each watch that waits, if that is longer than the turn of
/// few. This bounds how many watches are renewed in a second.
const TURN_PER_WATCH: Duration = Duration::from_micros(1500);

/// How long one wait at a node lasts: `of_few`, longer when many wait, shortened at random by up to half so
/// that waits begun together do not end together. A repeated request also finds out whether the node still
/// owns the cell.
fn turn(of_few: Duration, waiting: u64, chance: f64) -> Duration {
    let each = TURN_PER_WATCH.saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
    of_few.max(each).mul_f64(1.0 - chance / 2.0)
}

/// How a watch at a node ends.
#[derive(Debug)]
pub(crate) enum WatchEnd {
    /// The field is as expected, with this value.
    Met(Option<Vec<u8>>),
    /// The field is as expected, and its value has to be read.
    Long,
    /// The time that the node was asked to wait is over.
    TimeOut,
    /// The node cannot watch the field; this is its error.
    Refused(Vec<u8>),
    /// The node knows no such keyspace, or not yet.
    Elsewhere(String),
    /// The connection broke, or could not be opened.
    Lost(String),
    /// The node was silent even when the time was over. It may have hung all along.
    Silent(String),
}

enum Wish {
    Watch { id: u64, request: Vec<u8>, told: oneshot::Sender<WatchEnd> },
    Unwatch(u64),
}

/// A watch that waits. Dropping it ends it at the node as well.
struct Waiter<'a> {
    waiting: &'a AtomicU64,
    line: &'a mpsc::UnboundedSender<Wish>,
    id: u64,
    is_told: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if !self.is_told {
            // On a broken connection there is nothing to end.
            let _ = self.line.send(Wish::Unwatch(self.id));
        }
    }
}

impl WatchConnections {
    /// How long to ask a node to wait before it is asked again.
    pub(crate) fn turn(&self, options: &RingOptions) -> Duration {
        turn(options.turn, self.waiting.load(Ordering::Relaxed), fastrand::f64())
    }

    /// Watches at a node for at most this many milliseconds. `words` are the key, the field and the
    /// expectation of its value.
    pub(crate) async fn wait(
        &self,
        options: &RingOptions,
        address: &Arc<str>,
        milliseconds: u64,
        words: &[&[u8]],
    ) -> WatchEnd {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (number, time) = (id.to_string(), milliseconds.to_string());
        let request = written(&[&[b"AT.WATCH", number.as_bytes(), time.as_bytes()], words].concat());
        let (told, waits) = oneshot::channel();
        let line = self.line(options, address);
        let broke = || WatchEnd::Lost(format!("the connection to {address} was lost"));
        if line.send(Wish::Watch { id, request, told }).is_err() {
            self.open.lock().remove(address);
            return broke();
        }
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut waiter = Waiter { waiting: &self.waiting, line: &line, id, is_told: false };
        // The node reports the end of the time, unless nothing comes from it any more. With many watches it
        // may have to report many.
        let late = options.connect_time_out + turn(options.turn, waiting, 1.0) - turn(options.turn, 0, 1.0);
        let time_max = Duration::from_millis(milliseconds).saturating_add(late);
        let told = tokio::time::timeout(time_max, waits).await;
        waiter.is_told = told.is_ok();
        match told {
            Ok(told) => told.unwrap_or_else(|_| broke()),
            Err(_) => WatchEnd::Silent(format!("{address} says nothing")),
        }
    }

    fn line(&self, options: &RingOptions, address: &Arc<str>) -> mpsc::UnboundedSender<Wish> {
        let mut open = self.open.lock();
        if let Some(line) = open.get(address).filter(|line| !line.is_closed()) {
            return line.clone();
        }
        let (line, wishes) = mpsc::unbounded_channel();
        let (address, options) = (Arc::clone(address), options.clone());
        open.insert(Arc::clone(&address), line.clone());
        tokio::spawn(async move {
            let mut waiting = Waiting::of(wishes);
            let ended = waiting.run(&address, &options).await;
            // A full node says so before it is asked anything.
            if ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
                waiting.refuse(FULL);
            }
            let why = ended.err().map_or_else(|| "it is closed".to_owned(), |error| error.to_string());
            waiting.end(&format!("no answer from {address}: {why}"));
        });
        line
    }

    /// Ends the connections to all but these nodes, each after the watches that already wait there.
    pub(crate) fn retain(&self, nodes: &BTreeSet<Arc<str>>) {
        self.open.lock().retain(|node, _| nodes.contains(node));
    }

    /// Ends all connections.
    pub(crate) fn close(&self) {
        self.open.lock().clear();
    }
}

/// The watches on one connection.
struct Waiting {
    wishes: mpsc::UnboundedReceiver<Wish>,
    told: HashMap<u64, oneshot::Sender<WatchEnd>>,
    /// Requests without an answer so far, in order.
    answers: VecDeque<SentRequest>,
    /// The bytes that are being written.
    out: Vec<u8>,
}

/// A request to a node.
enum SentRequest {
    /// Authentication, or entering the keyspace.
    Greeting,
    /// A watch with this id.
    Watch(u64),
    /// The end of a watch. Its answer does not matter.
    Unwatch,
}

/// Size of the receive buffer, in bytes.
const RECEIVE_BYTES: usize = 16 << 10;

/// How long to read what a node sent before it stopped accepting.
const FINAL_READ_TIME: Duration = Duration::from_millis(100);

/// With more than this left to write, no more wishes are taken.
const OUT_BYTES_MAX: usize = 1 << 20;

impl Waiting {
    fn of(wishes: mpsc::UnboundedReceiver<Wish>) -> Self {
        Self { wishes, told: HashMap::new(), answers: VecDeque::new(), out: Vec::new() }
    }

    /// Runs until the connection breaks or no caller is left.
    async fn run(&mut self, address: &str, options: &RingOptions) -> io::Result<()> {
        let connecting = tokio::time::timeout(options.connect_time_out, open(address, options));
        let stream = connecting.await.map_err(|late| io::Error::new(io::ErrorKind::TimedOut, late))??;
        self.talk(stream, options).await
    }

    async fn talk(&mut self, stream: impl ByteStream, options: &RingOptions) -> io::Result<()> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        self.out = greeting(options);
        self.answers.push_back(SentRequest::Greeting);
        if options.keyspace.is_some() {
            self.answers.push_back(SentRequest::Greeting);
        }
        let mut is_unflushed = true;
        let (mut parser, mut arrived) =
            (ReplyParser::new(Limits::default()), Vec::with_capacity(RECEIVE_BYTES));
        loop {
            tokio::select! {
                written = write_some(&mut writer, &self.out), if is_unflushed => match written {
                    // An encrypted connection holds bytes back until it is flushed.
                    Ok(0) => is_unflushed = false,
                    Ok(count) => drop(self.out.drain(..count)),
                    Err(error) => {
                        self.hear_out(&mut reader, &mut parser, &mut arrived).await?;
                        return Err(error);
                    }
                },
                wish = self.wishes.recv(), if self.out.len() < OUT_BYTES_MAX => {
                    let Some(wish) = wish else { return Ok(()) };
                    self.take(wish);
                    while self.out.len() < OUT_BYTES_MAX && let Ok(more) = self.wishes.try_recv() {
                        self.take(more);
                    }
                    is_unflushed = true;
                }
                read = reader.read_buf(&mut arrived) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.hear_all(&mut parser, &mut arrived)?;
                    arrived.reserve(RECEIVE_BYTES);
                }
            }
        }
    }

    /// Reads what a node sent before it stopped accepting: that may be the reason.
    async fn hear_out(
        &mut self,
        reader: &mut (impl AsyncRead + Unpin),
        parser: &mut ReplyParser,
        arrived: &mut Vec<u8>,
    ) -> io::Result<()> {
        let said = async { while reader.read_buf(arrived).await.is_ok_and(|count| count > 0) {} };
        // All of it has arrived by now, unless the network lost some.
        let _ = tokio::time::timeout(FINAL_READ_TIME, said).await;
        self.hear_all(parser, arrived)
    }

    fn hear_all(&mut self, parser: &mut ReplyParser, arrived: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let (used, value) =
                parser.parse(arrived).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            arrived.drain(..used);
            let Some(value) = value else { return Ok(()) };
            self.hear(value)?;
        }
    }

    fn take(&mut self, wish: Wish) {
        match wish {
            Wish::Watch { id, request, told } => {
                self.told.insert(id, told);
                self.answers.push_back(SentRequest::Watch(id));
                self.out.extend(request);
            }
            Wish::Unwatch(id) => {
                if self.told.remove(&id).is_some() {
                    self.answers.push_back(SentRequest::Unwatch);
                    self.out.extend(written(&[b"AT.UNWATCH", id.to_string().as_bytes()]));
                }
            }
        }
    }

    fn hear(&mut self, value: Value) -> io::Result<()> {
        if let Value::Push(parts) = value {
            let mut parts = parts.into_iter().skip(1);
            let (Some(Value::Integer(id)), Some(Value::Integer(state)), Some(value)) =
                (parts.next(), parts.next(), parts.next())
            else {
                return Ok(());
            };
            let bytes = if let Value::String(bytes) = value { Some(bytes) } else { None };
            let told = match state {
                0 => WatchEnd::TimeOut,
                1 => WatchEnd::Met(bytes),
                2 => WatchEnd::Long,
                _ => WatchEnd::Refused(bytes.unwrap_or_default()),
            };
            if let Some(waits) = self.told.remove(&id.unsigned_abs()) {
                let _ = waits.send(told);
            }
            return Ok(());
        }
        match (self.answers.pop_front(), value) {
            // The user was changed after the greeting. The next connection finds out whether it is still let
            // in, and all that wait here go on there.
            (Some(SentRequest::Watch(_)), Value::Error(text)) if is_of_nobody(&text) => {
                Err(io::Error::new(io::ErrorKind::ConnectionReset, String::from_utf8_lossy(&text)))
            }
            (Some(SentRequest::Watch(id)), Value::Error(text)) => {
                if let Some(waits) = self.told.remove(&id) {
                    let _ = waits.send(WatchEnd::Refused(text));
                }
                Ok(())
            }
            // The node does not authenticate this client, not yet, or is full. The error replies that follow
            // are consequences.
            (Some(SentRequest::Greeting), Value::Error(text)) => {
                self.refuse(&text);
                Err(io::ErrorKind::PermissionDenied.into())
            }
            _ => Ok(()),
        }
    }

    /// Ends all watches with the node's error, including those that were not taken yet.
    fn refuse(&mut self, text: &[u8]) {
        self.tell_all(|| match is_of_keyspace(text) {
            true => WatchEnd::Elsewhere(String::from_utf8_lossy(text).into_owned()),
            false => WatchEnd::Refused(text.to_vec()),
        });
    }

    /// Ends all watches because the connection is over.
    fn end(&mut self, why: &str) {
        self.tell_all(|| WatchEnd::Lost(why.to_owned()));
    }

    /// Closes the connection to further wishes, and ends all watches.
    fn tell_all(&mut self, told: impl Fn() -> WatchEnd) {
        self.wishes.close();
        while let Ok(wish) = self.wishes.try_recv() {
            if let Wish::Watch { id, told, .. } = wish {
                self.told.insert(id, told);
            }
        }
        self.told.drain().for_each(|(_, waits)| drop(waits.send(told())));
    }
}

fn greeting(options: &RingOptions) -> Vec<u8> {
    let mut greeting = match &options.token {
        None => written(&["HELLO", "3"]),
        Some(token) => written(&["HELLO", "3", "AUTH", options.user(), token.as_str()]),
    };
    greeting.extend(options.keyspace.as_deref().map(entering).unwrap_or_default());
    greeting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::{Answer, Stub, usual};
    use futures::future::join_all;
    use tokio::io::{AsyncWriteExt, DuplexStream};

    /// Bytes under way in each direction before a writer has to wait.
    const ON_THE_WAY: usize = 256;

    const WAITS: u64 = 500;

    /// Reports each field as soon as it is watched, and accepts nothing while the report is not read.
    async fn serve(mut stream: DuplexStream) {
        let (mut arrived, mut id) = (Vec::new(), 0_u64);
        while stream.read_buf(&mut arrived).await.is_ok_and(|count| count > 0) {
            while let Some(at) = arrived.windows(8).position(|bytes| bytes == b"AT.WATCH") {
                arrived.drain(..at + 8);
                id += 1;
                let push = format!("+OK\r\n>4\r\n$8\r\nat.watch\r\n:{id}\r\n:1\r\n$5\r\nvalue\r\n");
                if stream.write_all(push.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_node_that_takes_nothing_while_nobody_reads_is_read() {
        let (here, there) = tokio::io::duplex(ON_THE_WAY);
        let (line, wishes) = mpsc::unbounded_channel();
        let waits: Vec<_> = (1..=WAITS)
            .map(|id| {
                let request = written(&["AT.WATCH", &id.to_string(), "1000", "key", "field", "ANY"]);
                let (told, waits) = oneshot::channel();
                line.send(Wish::Watch { id, request, told }).unwrap_or_else(|_| panic!("it is open"));
                waits
            })
            .collect();
        tokio::spawn(serve(there));
        tokio::spawn(async move { Waiting::of(wishes).talk(here, &RingOptions::of(Vec::new())).await });
        let told = tokio::time::timeout(Duration::from_secs(20), join_all(waits)).await.unwrap();
        assert!(told.iter().all(|told| matches!(told, Ok(WatchEnd::Met(Some(value))) if value == b"value")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_says_nothing_is_no_line_that_broke() {
        let hangs_at = |command: &'static str| {
            Stub::start(move |port, _, words| match words.starts_with(command) {
                true => Answer::Hangs,
                false => usual(port, words).unwrap_or(Answer::Ends(String::new())),
            })
        };
        let options =
            RingOptions { connect_time_out: Duration::from_millis(50), ..RingOptions::of(Vec::new()) };
        for (node, is_silent) in [(hangs_at("AT.WATCH").await, true), (hangs_at("AT.GET").await, false)] {
            let told = WatchConnections::default()
                .wait(&options, &node.address.as_str().into(), 20, &[b"p", b"s"])
                .await;
            assert_eq!(matches!(told, WatchEnd::Silent(_)), is_silent, "{told:?}");
        }
    }

    #[test]
    fn of_many_that_wait_few_ask_anew_in_a_second() {
        let of_few = RingOptions::of(Vec::new()).turn;
        let seconds = |waiting, chance| turn(of_few, waiting, chance).as_secs_f64();
        assert_eq!((seconds(0, 1.0), seconds(1000, 0.0)), (5.0, 10.0));
        for waiting in [6_000, 10_000, 20_000, 100_000, 1_000_000] {
            let shortest = seconds(waiting, 1.0);
            assert!(waiting as f64 / shortest <= 1500.0, "{waiting} in {shortest} s");
        }
        assert!(turn(of_few, u64::MAX, 0.0) < Duration::from_secs(90 * 24 * 60 * 60));
    }

    #[tokio::test]
    async fn who_was_not_heard_yet_is_told_as_well_that_a_node_has_no_place() {
        // Whether the connection reads or writes first is random.
        for _ in 0..30 {
            let (here, mut there) = tokio::io::duplex(ON_THE_WAY);
            let (line, wishes) = mpsc::unbounded_channel();
            let waits: Vec<_> = [2 * OUT_BYTES_MAX, 1]
                .into_iter()
                .map(|bytes| {
                    let (told, waits) = oneshot::channel();
                    let wish = Wish::Watch { id: bytes as u64, request: vec![0; bytes], told };
                    line.send(wish).unwrap_or_else(|_| panic!("it is open"));
                    waits
                })
                .collect();
            let mut waiting = Waiting::of(wishes);
            let options = RingOptions::of(Vec::new());
            let node = async move {
                there.read_exact(&mut [0; 16]).await.unwrap();
                there.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
            };
            let (ended, ()) = tokio::join!(waiting.talk(here, &options), node);
            assert!(ended.is_err());
            waiting.end("it ended");
            for told in join_all(waits).await {
                assert!(
                    matches!(&told, Ok(WatchEnd::Refused(text)) if text.starts_with(b"ERR max")),
                    "{told:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_node_without_a_place_is_not_taken_for_one_that_is_gone() {
        let (here, mut there) = tokio::io::duplex(ON_THE_WAY);
        let (line, wishes) = mpsc::unbounded_channel();
        let (told, waits) = oneshot::channel();
        line.send(Wish::Watch { id: 1, request: Vec::new(), told }).unwrap_or_else(|_| panic!("it is open"));
        let options = RingOptions { keyspace: Some("one".to_owned()), ..RingOptions::of(Vec::new()) };
        let mut waiting = Waiting::of(wishes);
        let node = async move {
            let mut greeting = [0; 16];
            there.read_exact(&mut greeting).await.unwrap();
            there.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
        };
        let (ended, ()) = tokio::join!(waiting.talk(here, &options), node);
        assert!(ended.is_err());
        waiting.end("it ended");
        let told = waits.await.unwrap();
        assert!(matches!(&told, WatchEnd::Refused(text) if text.starts_with(b"ERR max")), "{told:?}");
    }
}
