//! A server for tests that understands the Redis protocol; the test decides its answers.

use super::protocol::line;
use super::resp::parse_command;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Answers each command with what `answer` returns for its words, or not at all if that is empty. Returns
/// its address.
pub fn serve(answer: impl Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    serve_at((Ipv4Addr::LOCALHOST, 0).into(), answer)
}

/// The same at a given address.
pub fn serve_at(
    address: SocketAddr,
    answer: impl Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static,
) -> SocketAddr {
    let (listener, answer) = (TcpListener::bind(address).unwrap(), Arc::new(answer));
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || talk(stream, &*answer));
        }
    });
    address
}

fn talk(mut stream: TcpStream, answer: &dyn Fn(&[Vec<u8>]) -> Vec<u8>) {
    let (mut unread, mut scratch) = (Vec::new(), [0; 4 << 10]);
    while let Ok(count @ 1..) = stream.read(&mut scratch) {
        unread.extend_from_slice(&scratch[..count]);
        let mut told = Vec::new();
        while let Some((words, taken)) = words_of(&unread) {
            unread.drain(..taken);
            told.extend(answer(&words));
        }
        if stream.write_all(&told).is_err() {
            return;
        }
    }
}

/// The words of the command at the beginning of `input`, inline or not, and its length.
fn words_of(input: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    if input.first() == Some(&b'*') {
        return parse_command(input);
    }
    let (line, taken) = line(input).unwrap()?;
    Some((line.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect(), taken))
}
