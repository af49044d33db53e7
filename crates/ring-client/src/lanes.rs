//! Lanes: one connection to each node for reads and one for writes, on which requests with time travel
//! together.
//!
//! Requests that come while an answer is awaited are sent in one go as soon as it has arrived: one system
//! call at either end, one round of the node and one message to each copy for all of them. So a request waits
//! for others only if some are under way, and a clock is needed only to keep the promise of the latency
//! class. Answers come in the order of requests and a write waits for copies, so reads have a connection of
//! their own.
//!
//! Invariant: answers come in the order of requests, and each caller gets one, also when the lane breaks.
//! Invariant: a request whose caller gave up before it was sent is never sent, and a caller who gives up
//! later knows that it may have been.

mod together;

use crate::connection::{Answered, Connection, NoAnswer, too_late, turned_away, write_some};
use crate::durability::too_weak;
use crate::options::RingOptions;
use atoll_resp::ReplyParser;
use atoll_store::Durability;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use together::Together;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Largest request that shares a lane, in bytes. A longer one goes on a connection of its own, so that no
/// other request waits behind it.
pub(crate) const SHARED_BYTES_MAX: usize = 64 << 10;

/// Size of the receive buffer, in bytes.
const RECEIVE_BYTES: usize = 64 << 10;

/// What a lane is for.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Reads,
    /// With what a write has to survive. Without, the node is not asked what it keeps.
    Writes(Option<Durability>),
}

impl Way {
    /// What the request has to survive, if the node is to be asked what it keeps.
    pub(crate) fn least(self) -> Option<Durability> {
        match self {
            Self::Reads => None,
            Self::Writes(least) => least,
        }
    }
}

type ToLane = mpsc::UnboundedSender<Asked>;

/// The lanes to a node, and when each was made.
type OfNode = [Option<(ToLane, Instant)>; 2];

/// The lanes of a store, by node and way.
#[derive(Default)]
pub(crate) struct Lanes {
    open: Mutex<OpenLanes>,
}

#[derive(Default)]
struct OpenLanes {
    by_node: HashMap<Arc<str>, OfNode>,
    is_closed: bool,
}

/// A request on its way to a lane.
struct Asked {
    request: Vec<u8>,
    /// What it has to survive.
    least: Option<Durability>,
    /// How long the node may be silent while this is the request that it has to answer next.
    silence_max: Duration,
    fate: Arc<Fate>,
    answer: oneshot::Sender<Result<Answered, NoAnswer>>,
}

/// Whether a request was sent or its caller gave up, whichever came first.
#[derive(Debug, Default)]
struct Fate(AtomicU8);

const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Fate {
    /// Marks the request as sent. Returns false if its caller gave up before.
    fn send(&self) -> bool {
        self.0.compare_exchange(0, SENT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks that the caller gives up. Returns false if the request was sent before.
    fn give_up(&self) -> bool {
        let given_up = self.0.compare_exchange(0, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire);
        matches!(given_up, Ok(_) | Err(GIVEN_UP))
    }
}

/// A caller that waits for an answer. When it stops waiting, `sent` is called if the request was sent.
struct Asker<F: Fn()> {
    fate: Arc<Fate>,
    sent: F,
}

impl<F: Fn()> Drop for Asker<F> {
    fn drop(&mut self) {
        if !self.fate.give_up() {
            (self.sent)();
        }
    }
}

impl Lanes {
    /// Sends a request to a node together with others, and waits for its answer: for a write at most
    /// `within`, for a read until the node has been silent for that long. `sent` is called if the request was
    /// sent, even if this future is dropped.
    pub(crate) async fn ask(
        &self,
        (options, place): (&RingOptions, &str),
        (address, way): (&Arc<str>, Way),
        request: &[u8],
        within: Duration,
        sent: impl Fn(),
    ) -> Result<Answered, NoAnswer> {
        let (answer, waits) = oneshot::channel();
        let asker = Asker { fate: Arc::default(), sent };
        // The answer to a read may be long and take long, so the lane watches whether anything arrives.
        let silence_max = match way {
            Way::Reads => within.min(options.request_time_out),
            Way::Writes(_) => options.request_time_out,
        };
        let (request, fate) = (request.to_vec(), Arc::clone(&asker.fate));
        let asked = Asked { request, least: way.least(), silence_max, fate, answer };
        let (lane, made_at) = self.lane((options, place), address, way);
        if lane.send(asked).is_err() {
            // The next caller makes another lane.
            return Err(NoAnswer::Unsent(broken()));
        }
        let answered = match way {
            Way::Reads => Ok(waits.await),
            Way::Writes(_) => tokio::time::timeout(within, waits).await,
        };
        let error = match answered {
            Ok(Ok(answer)) => return answer,
            Ok(Err(_)) => broken(),
            Err(late) => {
                self.forget(address, made_at);
                too_late(late)
            }
        };
        Err(if asker.fate.give_up() { NoAnswer::Unsent(error) } else { NoAnswer::Sent(error) })
    }

    /// The lane to a node, and when it was made.
    fn lane(
        &self,
        (options, place): (&RingOptions, &str),
        address: &Arc<str>,
        way: Way,
    ) -> (ToLane, Instant) {
        let mut open = self.open.lock();
        let is_closed = open.is_closed;
        let [reads, writes] = open.by_node.entry(Arc::clone(address)).or_default();
        let of_this_way = match way {
            Way::Reads => reads,
            Way::Writes(_) => writes,
        };
        if let Some(made) = of_this_way.as_ref().filter(|(lane, _)| !lane.is_closed()) {
            return made.clone();
        }
        let (lane, asked) = mpsc::unbounded_channel();
        let made = (lane, Instant::now());
        // After the close a call that is still under way gets a lane of its own, which ends with it.
        *of_this_way = Some(made.clone()).filter(|_| !is_closed);
        let (address, options, place) = (Arc::clone(address), options.clone(), place.to_owned());
        tokio::spawn(async move {
            let mut lane = Lane::new(asked, &options);
            let ended = match entered(&address, (&options, place.as_str()), way).await {
                Ok(connection) => lane.run(connection).await.map_err(NoAnswer::Unsent),
                Err(silent) => Err(silent),
            };
            lane.end(ended.err().unwrap_or_else(|| NoAnswer::Unsent(broken())));
        });
        made
    }

    /// Sends nothing more to this node on lanes that were made up to this moment.
    pub(crate) fn forget(&self, address: &Arc<str>, until: Instant) {
        let mut open = self.open.lock();
        for lane in open.by_node.get_mut(address).into_iter().flatten() {
            lane.take_if(|(_, made_at)| *made_at <= until);
        }
    }

    /// Ends the lanes to all but these nodes, each after the requests that are already on it.
    pub(crate) fn retain(&self, nodes: &BTreeSet<Arc<str>>) {
        self.open.lock().by_node.retain(|node, _| nodes.contains(node));
    }

    /// Ends all lanes, each after the requests that are already on it.
    pub(crate) fn close(&self) {
        let mut open = self.open.lock();
        open.is_closed = true;
        open.by_node.clear();
    }
}

/// A connection for a lane. A node is asked what it keeps before the first write.
async fn entered(
    address: &str,
    (options, place): (&RingOptions, &str),
    way: Way,
) -> Result<Connection, NoAnswer> {
    let mut connection = Connection::enter(address, options, place).await?;
    if way.least().is_some() {
        let told = connection.keeps(options.connect_time_out).await.map_err(NoAnswer::Unsent)?;
        told.map_err(|text| turned_away(&text, options, place))?;
    }
    Ok(connection)
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection that requests shared was lost")
}

/// A caller whose request was sent.
struct Asking {
    answer: oneshot::Sender<Result<Answered, NoAnswer>>,
    since: Instant,
    silence_max: Duration,
}

/// One lane: requests that wait to be sent, and callers that wait for an answer.
struct Lane {
    asked: mpsc::UnboundedReceiver<Asked>,
    /// What the node keeps of the writes on this lane, if it was asked.
    keeps: Option<Durability>,
    /// Whether any caller can still ask.
    is_open: bool,
    waiting: Vec<Asked>,
    /// Callers whose requests were sent, in the order of the requests.
    under_way: VecDeque<Asking>,
    /// When something last came from the node.
    heard: Instant,
    together: Together,
    /// When to look again while no request is under way.
    silence_max: Duration,
    /// The bytes that are being written.
    out: Vec<u8>,
}

impl Lane {
    fn new(asked: mpsc::UnboundedReceiver<Asked>, options: &RingOptions) -> Self {
        let slack = Duration::from_micros(options.latency.slack_us().unwrap_or_default());
        let together = Together::within(slack);
        Self {
            asked,
            keeps: None,
            is_open: true,
            waiting: Vec::new(),
            under_way: VecDeque::new(),
            heard: Instant::now(),
            together,
            silence_max: options.request_time_out,
            out: Vec::new(),
        }
    }

    /// Runs until the connection breaks, or no caller is left.
    async fn run(&mut self, connection: Connection) -> io::Result<()> {
        self.keeps = connection.known_to_keep();
        let (stream, mut parser, mut arrived) = connection.into_parts();
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut is_unflushed = false;
        while self.is_open || !self.waiting.is_empty() || !self.under_way.is_empty() {
            if self.is_due(Instant::now()) {
                // Callers that were answered just now may ask again first.
                tokio::task::yield_now().await;
                self.send_waiting();
                is_unflushed = true;
            }
            let looks_at = self.looks_at();
            tokio::select! {
                biased;
                written = write_some(&mut writer, &self.out), if is_unflushed => match written? {
                    // An encrypted connection holds bytes back until it is flushed.
                    0 => is_unflushed = false,
                    count => drop(self.out.drain(..count)),
                },
                read = reader.read_buf(&mut arrived) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.heard = Instant::now();
                    let taken = self.hear(&mut parser, &arrived)?;
                    arrived.drain(..taken);
                    arrived.reserve(RECEIVE_BYTES);
                }
                asked = self.asked.recv(), if self.is_open => match asked {
                    Some(asked) => self.take(asked),
                    None => self.is_open = false,
                },
                () = tokio::time::sleep_until(looks_at), if !self.under_way.is_empty() => {
                    if self.silent_at().is_some_and(|at| Instant::now() >= at) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Passes the answers that arrived to their callers. Returns how many bytes they took.
    fn hear(&mut self, parser: &mut ReplyParser, arrived: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            let (used, value) = parser.parse(arrived.get(taken..).unwrap_or_default()).map_err(wrong)?;
            taken += used;
            let Some(value) = value else { return Ok(taken) };
            let asking = self.under_way.pop_front().ok_or_else(|| wrong("an answer to nothing"))?;
            // A caller that gave up is gone.
            let _ = asking.answer.send(Ok(Answered { value, keeps: self.keeps }));
        }
    }

    fn take(&mut self, asked: Asked) {
        self.together.came(Instant::now());
        self.waiting.push(asked);
    }

    fn is_due(&self, now: Instant) -> bool {
        self.out.is_empty() && self.together.is_due(now, self.waiting.len(), self.under_way.len())
    }

    /// Starts to write all waiting requests, except those whose callers gave up, and those that have to
    /// survive more than the node keeps.
    fn send_waiting(&mut self) {
        while let Ok(asked) = self.asked.try_recv() {
            self.take(asked);
        }
        let now = Instant::now();
        for Asked { request, least, silence_max, fate, answer } in self.waiting.drain(..) {
            let both = self.keeps.zip(least).filter(|(keeps, least)| keeps < least);
            if let Some((keeps, least)) = both {
                let _ = answer.send(Err(too_weak(keeps, least)));
            } else if fate.send() {
                self.out.extend_from_slice(&request);
                self.under_way.push_back(Asking { answer, since: now, silence_max });
            }
        }
        self.together.sent();
    }

    /// When the node has been silent for too long: what it has to answer next is the oldest request.
    fn silent_at(&self) -> Option<Instant> {
        self.under_way.front().map(|asking| asking.since.max(self.heard) + asking.silence_max)
    }

    /// When to look again if nothing comes.
    fn looks_at(&self) -> Instant {
        let silent_at = self.silent_at().unwrap_or_else(|| Instant::now() + self.silence_max);
        self.together
            .due_at()
            .filter(|_| self.out.is_empty())
            .map_or(silent_at, |due_at| due_at.min(silent_at))
    }

    /// Ends the lane for all callers. The first caller whose request was not sent gets the full reason.
    fn end(mut self, why: NoAnswer) {
        self.asked.close();
        while let Ok(asked) = self.asked.try_recv() {
            self.waiting.push(asked);
        }
        for asking in self.under_way.drain(..) {
            let _ = asking.answer.send(Err(NoAnswer::Sent(why.error())));
        }
        for Asked { answer, .. } in self.waiting.drain(..) {
            let _ = answer.send(Err(why.again()));
        }
    }
}

fn wrong(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
