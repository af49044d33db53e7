//! A node for tests, which answers as it is told to.

use atoll_resp::{Limits, RequestParser};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What becomes of a request.
pub(crate) enum Answer {
    /// It is answered.
    Says(String),
    /// It is answered, and the connection ends.
    Ends(String),
    /// It is answered when this time is over.
    Late(Duration, String),
    /// It comes in five pieces, with so much time between them.
    Slowly(Duration, String),
    /// Nothing comes.
    Hangs,
}

/// Of the port of the node, the number of the connection from 0 on, and the words of a request.
type Answering = dyn Fn(u16, usize, &str) -> Answer + Send + Sync;

/// The node.
pub(crate) struct Stub {
    pub(crate) address: String,
    came: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    pub(crate) async fn start(answer: impl Fn(u16, usize, &str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (came, answer): (Arc<Mutex<Vec<String>>>, Arc<Answering>) = (Arc::default(), Arc::new(answer));
        let requests = Arc::clone(&came);
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (answer, came) = (Arc::clone(&answer), Arc::clone(&requests));
                let answer = move |words: &str| {
                    came.lock().push(words.to_owned());
                    answer(port, connection, words)
                };
                tokio::spawn(serve(stream, answer));
            }
        });
        Self { address: format!("127.0.0.1:{port}"), came }
    }

    /// The requests that came and begin so, as words with spaces between them.
    pub(crate) fn came(&self, start: &str) -> Vec<String> {
        self.came.lock().iter().filter(|words| words.starts_with(start)).cloned().collect()
    }
}

async fn serve(mut stream: TcpStream, answer: impl Fn(&str) -> Answer) {
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
            };
            if stream.write_all(text.as_bytes()).await.is_err() || ends {
                return;
            }
        }
        arrived.drain(..taken);
    }
}

/// What a node answers that has every slot, in memory, to all that is no request for keys.
pub(crate) fn usual(port: u16, words: &str) -> Option<Answer> {
    let text = match words {
        "CLUSTER SLOTS" => format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"),
        "CONFIG GET append*" => {
            "*4\r\n$10\r\nappendonly\r\n$2\r\nno\r\n$11\r\nappendfsync\r\n$2\r\nno\r\n".to_owned()
        }
        words if words.starts_with("AUTH ") || words.starts_with("HELLO ") => "+OK\r\n".to_owned(),
        _ => return None,
    };
    Some(Answer::Says(text))
}
