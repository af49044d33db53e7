//! A proxy in front of the nodes that loses, holds back and replaces messages: failures at moments that a
//! test chooses, which killing nodes could not reproduce.
//!
//! It listens on a port of its own at the address of each node, and the driver takes that port for the port
//! of all nodes. It understands just enough of the protocol to tell requests apart: `PREPARE` gives each
//! statement a name, by which `EXECUTE` refers to it; conditional batches are `BATCH`. Statements that are
//! sent as they are pass, because most are the driver's own, except for the question for a node's settings.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const ERROR: u8 = 0x00;
const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;
const BATCH: u8 = 0x0d;
const HEADER_BYTES: usize = 9;

/// The fate of a request.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It reaches the node, and the answer comes back.
    Passes,
    /// It reaches the node, and the answer comes back with another last byte.
    Garbled,
    /// It reaches the node, and no answer comes back.
    Unanswered,
    /// It reaches the node once the way is opened.
    Held,
    /// It reaches the node, and this comes back.
    Replaced(Answer),
    /// It does not reach the node, and this comes back.
    Refused(Answer),
}

/// An answer that no node gave.
#[derive(Clone, Debug)]
pub struct Answer {
    opcode: u8,
    body: Vec<u8>,
}

impl Answer {
    /// A result without rows.
    pub fn void() -> Self {
        Self { opcode: RESULT, body: 1_i32.to_be_bytes().to_vec() }
    }

    /// The settings of a node that decides by this variant of Paxos.
    pub fn paxos_variant(variant: &str) -> Self {
        const TEXT: u16 = 0x0d;
        Self::row(&[("name", TEXT, &b"paxos_variant"[..]), ("value", TEXT, variant.as_bytes())])
    }

    /// A conditional batch of which a condition does not hold.
    pub fn not_applied() -> Self {
        const BOOLEAN: u16 = 0x04;
        Self::row(&[("[applied]", BOOLEAN, &[0][..])])
    }

    /// A result of one row, of columns with these names and types.
    fn row(columns: &[(&str, u16, &[u8])]) -> Self {
        let count = (columns.len() as i32).to_be_bytes();
        // Rows; all columns are of the table that is named once.
        let mut body = [&2_i32.to_be_bytes()[..], &1_i32.to_be_bytes(), &count].concat();
        body.extend([string("planted"), string("planted")].concat());
        for (name, kind, _) in columns {
            body.extend([&string(name)[..], &kind.to_be_bytes()].concat());
        }
        body.extend(1_i32.to_be_bytes());
        for (_, _, value) in columns {
            body.extend([&(value.len() as i32).to_be_bytes()[..], *value].concat());
        }
        Self { opcode: RESULT, body }
    }

    /// A write time-out: a coordinator got one answer of two, and says that sending again is harmless.
    pub fn write_time_out() -> Self {
        let of_write =
            [&[0, 4][..], &1_i32.to_be_bytes(), &2_i32.to_be_bytes(), &string("BATCH_LOG")].concat();
        Self::error(0x1100, &of_write)
    }

    /// An error that says that too few replicas are alive.
    pub fn unavailable() -> Self {
        Self::error(0x1000, &[&[0, 4][..], &2_i32.to_be_bytes(), &1_i32.to_be_bytes()].concat())
    }

    fn error(code: i32, more: &[u8]) -> Self {
        let body = [&code.to_be_bytes()[..], &string("planted by the test"), more].concat();
        Self { opcode: ERROR, body }
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

type Rule = Box<dyn FnMut(&str) -> Fate + Send>;

/// The proxy.
pub struct Way {
    /// Contact points that lead through it.
    pub contacts: Vec<String>,
    shared: Arc<Shared>,
}

struct Shared {
    rule: Mutex<Rule>,
    /// Statements by the names that the nodes gave them.
    names: Mutex<HashMap<Vec<u8>, String>>,
    is_open: watch::Sender<bool>,
    held: watch::Sender<usize>,
    /// The number of connections made.
    joined: watch::Sender<usize>,
    /// The first connection that still carries data.
    first_alive: AtomicUsize,
}

impl Shared {
    fn is_dead(&self, connection: usize) -> bool {
        connection < self.first_alive.load(Ordering::SeqCst)
    }
}

impl Way {
    /// A proxy in front of these nodes that lets everything pass.
    pub async fn to(contacts: &[String]) -> Self {
        let shared = Arc::new(Shared {
            rule: Mutex::new(Box::new(|_| Fate::Passes)),
            names: Mutex::default(),
            is_open: watch::Sender::new(false),
            held: watch::Sender::new(0),
            joined: watch::Sender::new(0),
            first_alive: AtomicUsize::new(0),
        });
        let (mut port, mut through) = (0, Vec::new());
        for contact in contacts {
            let node: SocketAddr = contact.parse().unwrap();
            let listener = TcpListener::bind((node.ip(), port)).await.unwrap();
            port = listener.local_addr().unwrap().port();
            through.push(format!("{}:{port}", node.ip()));
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    if let Ok(node) = TcpStream::connect(node).await {
                        join(client, node, &shared);
                    }
                }
            });
        }
        Self { contacts: through, shared }
    }

    /// Sets the fate of requests from here on, by the text of the statement or `BATCH`.
    pub fn rule(&self, rule: impl FnMut(&str) -> Fate + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Box::new(rule);
    }

    /// Stops all traffic on the existing connections without closing them, as when the machine at the other
    /// end has lost power; new connections work.
    pub fn silence(&self) {
        self.shared.first_alive.store(*self.shared.joined.borrow(), Ordering::SeqCst);
    }

    /// Waits until this many connections were made.
    pub async fn joins(&self, connections: usize) {
        self.shared.joined.subscribe().wait_for(|joined| *joined >= connections).await.unwrap();
    }

    /// Waits until something is held.
    pub async fn holds(&self) {
        self.shared.held.subscribe().wait_for(|held| *held > 0).await.unwrap();
    }

    /// Releases what is held, and holds nothing from here on.
    pub fn open(&self) {
        self.shared.is_open.send_replace(true);
    }
}

/// One request or answer.
struct Frame {
    header: [u8; HEADER_BYTES],
    body: Vec<u8>,
}

impl Frame {
    async fn read(from: &mut OwnedReadHalf) -> Option<Self> {
        let mut header = [0; HEADER_BYTES];
        from.read_exact(&mut header).await.ok()?;
        let mut body = vec![0; u32::from_be_bytes(header[5..].try_into().unwrap()) as usize];
        from.read_exact(&mut body).await.ok()?;
        Some(Self { header, body })
    }

    fn stream(&self) -> [u8; 2] {
        [self.header[2], self.header[3]]
    }

    fn opcode(&self) -> u8 {
        self.header[4]
    }

    /// The same answer to the same request, with other contents.
    fn replaced(&self, answer: &Answer) -> Self {
        let mut header = self.header;
        // An answer in the protocol version of the request, without flags.
        (header[0], header[1], header[4]) = (0x80 | header[0], 0, answer.opcode);
        header[5..].copy_from_slice(&(answer.body.len() as u32).to_be_bytes());
        Self { header, body: answer.body.clone() }
    }

    async fn write(&self, to: &tokio::sync::Mutex<OwnedWriteHalf>) {
        let bytes = [&self.header[..], &self.body].concat();
        // A client that has left needs no answer.
        let _ = to.lock().await.write_all(&bytes).await;
    }
}

/// The answers that are expected on a connection.
#[derive(Default)]
struct Expected {
    prepared: HashMap<[u8; 2], String>,
    fates: HashMap<[u8; 2], Fate>,
}

/// One connection of a client, and the one to the node behind it.
#[derive(Clone)]
struct Connection {
    number: usize,
    expected: Arc<Mutex<Expected>>,
    shared: Arc<Shared>,
}

fn join(client: TcpStream, node: TcpStream, shared: &Arc<Shared>) {
    let _ = (client.set_nodelay(true), node.set_nodelay(true));
    let ((from_client, to_client), (from_node, to_node)) = (client.into_split(), node.into_split());
    let to_client = Arc::new(tokio::sync::Mutex::new(to_client));
    let mut number = 0;
    shared.joined.send_modify(|joined| number = std::mem::replace(joined, *joined + 1));
    let connection = Connection {
        number,
        expected: Arc::new(Mutex::new(Expected::default())),
        shared: Arc::clone(shared),
    };
    tokio::spawn(requests(from_client, to_node, Arc::clone(&to_client), connection.clone()));
    tokio::spawn(answers(from_node, to_client, connection));
}

async fn requests(
    mut from: OwnedReadHalf,
    to_node: OwnedWriteHalf,
    to_client: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    connection: Connection,
) {
    let Connection { number, expected, shared } = connection;
    let to_node = Arc::new(tokio::sync::Mutex::new(to_node));
    while let Some(frame) = Frame::read(&mut from).await {
        if shared.is_dead(number) {
            continue;
        }
        if frame.opcode() == PREPARE {
            let text = String::from_utf8_lossy(&frame.body[4..]).into_owned();
            expected.lock().unwrap().prepared.insert(frame.stream(), text);
        }
        let fate = fate_of(&frame, &shared);
        match &fate {
            Fate::Refused(answer) => frame.replaced(answer).write(&to_client).await,
            Fate::Held if !*shared.is_open.borrow() => {
                let (to_node, shared) = (Arc::clone(&to_node), Arc::clone(&shared));
                shared.held.send_modify(|held| *held += 1);
                tokio::spawn(async move {
                    if shared.is_open.subscribe().wait_for(|is_open| *is_open).await.is_ok() {
                        frame.write(&to_node).await;
                    }
                });
            }
            _ => {
                expected.lock().unwrap().fates.insert(frame.stream(), fate);
                frame.write(&to_node).await;
            }
        }
    }
}

fn fate_of(frame: &Frame, shared: &Shared) -> Fate {
    let name = match frame.opcode() {
        BATCH => "BATCH".to_owned(),
        QUERY => {
            let text = String::from_utf8_lossy(&frame.body[4..]);
            if !text.contains("system_views.settings") {
                return Fate::Passes;
            }
            text.into_owned()
        }
        EXECUTE => {
            let id = &frame.body[2..2 + usize::from(u16::from_be_bytes([frame.body[0], frame.body[1]]))];
            shared.names.lock().unwrap().get(id).cloned().unwrap_or_default()
        }
        _ => return Fate::Passes,
    };
    shared.rule.lock().unwrap()(&name)
}

async fn answers(
    mut from: OwnedReadHalf,
    to_client: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    connection: Connection,
) {
    const PREPARED: &[u8] = &[0, 0, 0, 4];
    let Connection { number, expected, shared } = connection;
    while let Some(frame) = Frame::read(&mut from).await {
        if shared.is_dead(number) {
            continue;
        }
        let (text, fate) = {
            let mut expected = expected.lock().unwrap();
            (expected.prepared.remove(&frame.stream()), expected.fates.remove(&frame.stream()))
        };
        if let Some(text) = text.filter(|_| frame.opcode() == RESULT && frame.body.starts_with(PREPARED)) {
            let id = &frame.body[6..6 + usize::from(u16::from_be_bytes([frame.body[4], frame.body[5]]))];
            shared.names.lock().unwrap().insert(id.to_vec(), text);
        }
        match fate {
            Some(Fate::Unanswered) => {}
            Some(Fate::Garbled) => {
                let mut body = frame.body;
                *body.last_mut().unwrap() ^= 1;
                Frame { body, ..frame }.write(&to_client).await;
            }
            Some(Fate::Replaced(answer)) => {
                let mut replaced = frame.replaced(&answer);
                replaced.header[0] = frame.header[0];
                replaced.write(&to_client).await;
            }
            _ => frame.write(&to_client).await,
        }
    }
}
