//! A node for tests with scripted answers. It is reached without the operating system, so that a paused clock
//! stands still while bytes are under way.

use atoll_resp::{Limits, RequestParser};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

/// Bytes under way in each direction before a writer has to wait.
const ON_THE_WAY: usize = 64 << 10;

/// The ports of nodes: below those that the system hands out, and above those at which nothing listens.
static PORTS: AtomicU16 = AtomicU16::new(100);

/// Where connections to nodes go, by port.
static NODES: Mutex<Option<HashMap<u16, mpsc::UnboundedSender<DuplexStream>>>> = Mutex::new(None);

/// A connection to the node at this address, if there is one.
pub(crate) fn dial(address: &str) -> Option<DuplexStream> {
    let port: u16 = address.strip_prefix("127.0.0.1:")?.parse().ok()?;
    let (here, there) = tokio::io::duplex(ON_THE_WAY);
    NODES.lock().as_ref()?.get(&port)?.send(there).ok()?;
    Some(here)
}

/// How a request is answered.
pub(crate) enum Answer {
    /// At once.
    Says(String),
    /// At once, and then the connection ends.
    Ends(String),
    /// After this time.
    Late(Duration, String),
    /// In five pieces, with this much time between them.
    Slowly(Duration, String),
    /// Not at all.
    Hangs,
    /// Not at all, and everything that runs here stands still for this time.
    Stalls(Duration),
}

/// Chooses the answer from the port of the node, the number of the connection from 0 on, and the words of a
/// request.
type Answering = dyn Fn(u16, usize, &str) -> Answer + Send + Sync;

/// The node.
pub(crate) struct Stub {
    pub(crate) address: String,
    came: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicUsize>,
}

impl Stub {
    pub(crate) async fn start(answer: impl Fn(u16, usize, &str) -> Answer + Send + Sync + 'static) -> Self {
        let (port, (dialled, mut dials)) = (PORTS.fetch_add(1, Ordering::SeqCst), mpsc::unbounded_channel());
        NODES.lock().get_or_insert_default().insert(port, dialled);
        let (came, answer): (Arc<Mutex<Vec<String>>>, Arc<Answering>) = (Arc::default(), Arc::new(answer));
        let (requests, open) = (Arc::clone(&came), Arc::<AtomicUsize>::default());
        let connections = Arc::clone(&open);
        tokio::spawn(async move {
            for connection in 0.. {
                let Some(stream) = dials.recv().await else { return };
                let (answer, came) = (Arc::clone(&answer), Arc::clone(&requests));
                let answer = move |words: &str| {
                    came.lock().push(words.to_owned());
                    answer(port, connection, words)
                };
                let open = Arc::clone(&connections);
                tokio::spawn(async move {
                    open.fetch_add(1, Ordering::SeqCst);
                    serve(stream, answer).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address: format!("127.0.0.1:{port}"), came, open }
    }

    /// Number of connections to it.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// The requests so far that begin like this, as words separated by spaces.
    pub(crate) fn came(&self, start: &str) -> Vec<String> {
        self.came.lock().iter().filter(|words| words.starts_with(start)).cloned().collect()
    }
}

async fn serve(mut stream: DuplexStream, answer: impl Fn(&str) -> Answer) {
    let (mut parser, mut arrived) = (RequestParser::new(Limits::default()), Vec::new());
    while stream.read_buf(&mut arrived).await.is_ok_and(|count| count > 0) {
        let mut taken = 0;
        while let Some(request) = parser.parse(&arrived[taken..]).unwrap() {
            taken += request.bytes();
            let words: Vec<_> = request.iter().map(String::from_utf8_lossy).collect();
            let (text, ends) = match answer(&words.join(" ")) {
                Answer::Says(text) => (text, false),
                Answer::Ends(text) => (text, true),
                Answer::Late(time, text) => {
                    tokio::time::sleep(time).await;
                    (text, false)
                }
                Answer::Slowly(time, mut text) => {
                    for piece in (2..=5).rev() {
                        let behind = text.split_off(text.len() / piece);
                        if stream.write_all(text.as_bytes()).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(time).await;
                        text = behind;
                    }
                    (text, false)
                }
                Answer::Hangs => continue,
                Answer::Stalls(time) => {
                    tokio::time::advance(time).await;
                    continue;
                }
            };
            if stream.write_all(text.as_bytes()).await.is_err() || ends {
                return;
            }
        }
        arrived.drain(..taken);
    }
}

/// The answer of a node to `AT.TABLE`: the node with this port leads all slots. Without a version, whoever
/// asks again asks for all of it.
pub(crate) fn table(port: u16, version: Option<&str>) -> String {
    let slots = "*3\r\n:0\r\n:16383\r\n:0\r\n";
    table_of(version, &format!("*1\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"), slots)
}

/// The answer of a node to who has the table of this version, or a later one.
pub(crate) fn known_table(version: &str) -> String {
    table_of(Some(version), "*-1\r\n", "*-1\r\n")
}

fn table_of(version: Option<&str>, nodes: &str, slots: &str) -> String {
    let version =
        version.map_or("$-1\r\n".to_owned(), |version| format!("${}\r\n{version}\r\n", version.len()));
    format!("*6\r\n$7\r\nversion\r\n{version}$5\r\nnodes\r\n{nodes}$5\r\nslots\r\n{slots}")
}

/// The answers of a node that leads every slot, in memory, to all requests that are not about keys.
pub(crate) fn usual(port: u16, words: &str) -> Option<Answer> {
    let text = match words {
        "AT.TABLE" => table(port, None),
        "CONFIG GET append*" => {
            "*4\r\n$10\r\nappendonly\r\n$2\r\nno\r\n$11\r\nappendfsync\r\n$2\r\nno\r\n".to_owned()
        }
        words if words.starts_with("AUTH ") || words.starts_with("HELLO ") => "+OK\r\n".to_owned(),
        _ => return None,
    };
    Some(Answer::Says(text))
}
