//! A fake node of a ring with scripted answers.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// What happens to a request.
pub enum Reply {
    /// It is answered with this text.
    Text(String),
    /// It is never answered.
    Nothing,
    /// The connection ends.
    End,
}

/// The node's reaction to a request, given its own address and the request as words separated by spaces.
type Script = dyn Fn(&str, &str) -> Reply + Send + Sync;

/// Starts a node, and returns its address. It runs until the test ends.
pub fn node(says: impl Fn(&str, &str) -> Reply + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (says, me): (Arc<Script>, _) = (Arc::new(says), address.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (says, me) = (Arc::clone(&says), me.clone());
            std::thread::spawn(move || serve(stream, |words| says(&me, words)));
        }
    });
    address
}

fn serve(mut stream: TcpStream, says: impl Fn(&str) -> Reply) -> Option<()> {
    let mut requests = BufReader::new(stream.try_clone().ok()?);
    loop {
        let count = number(&mut requests)?;
        let words: Option<Vec<String>> = (0..count).map(|_| word(&mut requests)).collect();
        match says(&words?.join(" ")) {
            Reply::Text(text) => stream.write_all(text.as_bytes()).ok()?,
            Reply::Nothing => {}
            Reply::End => return None,
        }
    }
}

/// The number after the first character of a line.
fn number(requests: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    requests.read_line(&mut line).ok()?;
    line.get(1..)?.trim().parse().ok()
}

fn word(requests: &mut impl BufRead) -> Option<String> {
    let mut bytes = vec![0; number(requests)? + 2];
    requests.read_exact(&mut bytes).ok()?;
    bytes.truncate(bytes.len() - 2);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a node that serves every slot answers to a client that opens a store there.
pub fn opened(address: &str, words: &str) -> Option<Reply> {
    let port = address.rsplit(':').next().unwrap();
    Some(Reply::Text(match words {
        // Without a version, so that whoever asks again asks for all of it.
        "AT.TABLE" => format!(
            "*6\r\n$7\r\nversion\r\n$-1\r\n$5\r\nnodes\r\n*1\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n\
             $5\r\nslots\r\n*3\r\n:0\r\n:16383\r\n:0\r\n"
        ),
        "CONFIG GET append*" => {
            "*4\r\n$10\r\nappendonly\r\n$2\r\nno\r\n$11\r\nappendfsync\r\n$2\r\nno\r\n".to_owned()
        }
        _ => return None,
    }))
}

/// The status of the node with this number, at this version of the table and after this silence: the nodes of
/// the ring are at these addresses, numbered from 1, and all of them serve.
pub fn status(number: usize, version: u64, silent_ms: u64, addresses: &[&str]) -> Reply {
    let mut text = "*20\r\n".to_owned();
    let name = |text: &mut String, name: &str| write!(text, "${}\r\n{name}\r\n", name.len()).unwrap();
    let count = |text: &mut String, of: &str, count: u64| {
        name(text, of);
        write!(text, ":{count}\r\n").unwrap();
    };
    count(&mut text, "node", number as u64);
    count(&mut text, "version", version);
    count(&mut text, "group_silent_ms", silent_ms);
    for of in ["group_leader", "copies_in_sync_min"] {
        count(&mut text, of, 1);
    }
    for of in ["slots", "served"] {
        count(&mut text, of, 16_384);
    }
    name(&mut text, "nodes");
    write!(text, "*{}\r\n", addresses.len()).unwrap();
    for (number, address) in (1..).zip(addresses) {
        text += "*14\r\n";
        count(&mut text, "node", number);
        name(&mut text, "address");
        name(&mut text, address);
        for (of, of_node) in [("up", 1), ("leaving", 1), ("leads", 0), ("in_sync", 7), ("catching_up", 0)] {
            count(&mut text, of, of_node);
        }
    }
    for of in ["down", "keyspaces"] {
        name(&mut text, of);
        text += "*0\r\n";
    }
    Reply::Text(text)
}
