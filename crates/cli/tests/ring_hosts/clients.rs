//! Clients of the three nodes: a connection, a client that follows redirections, and writers that go on until
//! a round is over and remember what was acknowledged.

use crate::PATIENCE;
use crate::network::{NODES, Network, TOKEN};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long clients wait for an answer before they ask elsewhere.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// How long a writer rests between two writes: it must not keep the nodes from their work.
const PACE: Duration = Duration::from_millis(3);

/// How refusals begin that may be none a little later.
const NOT_NOW: [&str; 5] = ["-CLUSTERDOWN", "-LOADING", "-UNKNOWN", "-TRYAGAIN", "-NOREPLICAS"];

/// A connection to a node.
pub struct Speaker(BufReader<TcpStream>);

impl Speaker {
    /// Connects from the host of one node to another, or to the same.
    pub fn connect(network: &Network, from: usize, to: usize, patience: Duration) -> io::Result<Self> {
        let address = network.address(to);
        let stream = network.on_host(from, || TcpStream::connect_timeout(&address, patience))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut speaker = Self(BufReader::new(stream));
        match speaker.say(&format!("AUTH {TOKEN}"))?.as_str() {
            "+OK\r\n" => Ok(speaker),
            refused => Err(io::Error::other(refused.to_owned())),
        }
    }

    pub fn send(&mut self, line: &str) -> io::Result<()> {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes())
    }

    /// The next reply as it is on the wire: a line, or a string of bytes.
    pub fn hear(&mut self) -> io::Result<String> {
        let mut reply = String::new();
        self.0.read_line(&mut reply)?;
        if !reply.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(length) = reply.strip_prefix('$').and_then(|length| length.trim().parse::<usize>().ok()) {
            let mut bytes = vec![0; length + 2];
            self.0.read_exact(&mut bytes)?;
            reply.push_str(&String::from_utf8_lossy(&bytes));
        }
        Ok(reply)
    }

    pub fn say(&mut self, line: &str) -> io::Result<String> {
        self.send(line)?;
        self.hear()
    }
}

/// A client on the host of a node, with a connection to each node.
pub struct Client<'n> {
    network: &'n Network,
    from: usize,
    speakers: [Option<Speaker>; NODES],
    /// The node that answered last.
    pub asked: usize,
    /// The last refusal or failure.
    last: String,
}

impl<'n> Client<'n> {
    pub fn new(network: &'n Network, from: usize) -> Self {
        Self { network, from, speakers: Default::default(), asked: from, last: String::new() }
    }

    /// Sends a request to a node, once. A connection that failed is not used again.
    fn once(&mut self, line: &str) -> io::Result<String> {
        let mut speaker = match self.speakers[self.asked].take() {
            Some(speaker) => speaker,
            None => Speaker::connect(self.network, self.from, self.asked, ANSWER_TIME_MAX)?,
        };
        let reply = speaker.say(line)?;
        self.speakers[self.asked] = Some(speaker);
        Ok(reply)
    }

    /// Sends a request until a node executes it, or until there is no more time. It may be executed twice.
    fn ask(&mut self, line: &str, is_over: impl Fn() -> bool) -> Option<String> {
        while !is_over() {
            match self.once(line) {
                Ok(reply) if NOT_NOW.iter().any(|word| reply.starts_with(word)) => {
                    self.last = reply;
                    std::thread::sleep(PACE);
                }
                Ok(reply) => match reply.strip_prefix("-MOVED ") {
                    Some(moved) => self.asked = self.network.node_at(moved),
                    None => return Some(reply),
                },
                Err(error) => {
                    self.last = error.to_string();
                    self.asked = (self.asked + 1) % NODES;
                    std::thread::sleep(PACE);
                }
            }
        }
        None
    }

    /// Sends a request until a node executes it.
    pub fn insist(&mut self, line: &str) -> String {
        let started = Instant::now();
        let reply = self.ask(line, || started.elapsed() > PATIENCE);
        reply.unwrap_or_else(|| panic!("nobody answers {line}: {}", self.last))
    }
}

/// What happens in a round.
#[derive(Clone, Copy)]
pub enum Moment {
    Cut = 1,
    Healed = 2,
    Over = 3,
}

/// How far a round is, and how many writes were acknowledged in it.
#[derive(Default)]
pub struct Course {
    moment: AtomicU8,
    across: AtomicUsize,
    beside: AtomicUsize,
}

impl Course {
    pub fn enter(&self, moment: Moment) {
        self.moment.store(moment as u8, Ordering::SeqCst);
    }

    fn is(&self, moment: Moment) -> bool {
        self.moment.load(Ordering::SeqCst) == moment as u8
    }

    pub fn across(&self) -> usize {
        self.across.load(Ordering::SeqCst)
    }

    pub fn beside(&self) -> usize {
        self.beside.load(Ordering::SeqCst)
    }
}

/// Ends the writers, also if the test fails.
pub struct Over<'c>(pub &'c Course);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.enter(Moment::Over);
    }
}

/// Writes one key after the other into whatever slot it belongs to, each until it is acknowledged, from the
/// host of a node. A key is its own value, so a write that is executed twice does no harm. Returns the keys
/// of acknowledged writes.
pub fn write_across(network: &Network, from: usize, name: &str, course: &Course) -> Vec<String> {
    let mut client = Client::new(network, from);
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let key = format!("{name}:{number}");
        let Some(reply) = client.ask(&format!("SET {key} {key}"), || course.is(Moment::Over)) else { break };
        assert_eq!(reply, "+OK\r\n", "{key}");
        acknowledged.push(key);
        course.across.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(PACE);
    }
    acknowledged
}

/// What was written to the node that is cut off.
#[derive(Default)]
pub struct Beside {
    /// The keys of acknowledged writes.
    pub acknowledged: Vec<String>,
    /// Those that were sent and acknowledged while the node was cut off.
    pub while_cut: Vec<String>,
}

/// Writes to one node alone, from its own host, each key once; those that it refuses, or sends elsewhere, are
/// forgotten.
pub fn write_beside(network: &Network, node: usize, name: &str, course: &Course) -> Beside {
    let mut written = Beside::default();
    let mut speaker: Option<Speaker> = None;
    for number in 0.. {
        if course.is(Moment::Over) {
            break;
        }
        std::thread::sleep(PACE);
        let key = format!("{name}:{number}");
        let was_cut = course.is(Moment::Cut);
        let connected = match speaker.take() {
            Some(speaker) => Ok(speaker),
            None => Speaker::connect(network, node, node, ANSWER_TIME_MAX),
        };
        let Ok(mut asked) = connected else { continue };
        let Ok(reply) = asked.say(&format!("SET {key} {key}")) else { continue };
        speaker = Some(asked);
        if reply != "+OK\r\n" {
            continue;
        }
        if was_cut && course.is(Moment::Cut) {
            written.while_cut.push(key.clone());
        }
        written.acknowledged.push(key);
        course.beside.fetch_add(1, Ordering::SeqCst);
    }
    written
}
