//! Opens a TCP connection to a host that may have several addresses. A host that drops packets at one of them
//! is reached at another before the time for connecting is over.
//!
//! Invariant: an address that does not answer holds up the next one for a moment only.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

/// How long an address may be silent before the next one is tried as well, as RFC 8305 recommends.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// Connects to the first address of `host:port` that answers.
pub(crate) async fn connect(address: &str) -> io::Result<TcpStream> {
    let found = lookup_host(address).await?.collect();
    first_of(found, TcpStream::connect::<SocketAddr>).await
}

/// Tries one address after the other, the next one as soon as one failed, and none waits for the end of those
/// before it. If all fail, the error is the last one.
async fn first_of<T, F: Future<Output = io::Result<T>>>(
    addresses: Vec<SocketAddr>,
    mut dial: impl FnMut(SocketAddr) -> F,
) -> io::Result<T> {
    let (mut left, mut under_way) = (addresses.into_iter(), FuturesUnordered::new());
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name of the host has no address");
    loop {
        under_way.extend(left.next().map(&mut dial));
        let ended = match left.len() {
            0 => Ok(under_way.next().await),
            _ => tokio::time::timeout(NEXT_ADDRESS_AFTER, under_way.next()).await,
        };
        match ended {
            Ok(Some(Ok(made))) => return Ok(made),
            Ok(Some(Err(error))) => last = error,
            Ok(None) => return Err(last),
            // It may still answer.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// What happens at an address, after so many milliseconds.
    #[derive(Clone, Copy)]
    enum Fate {
        Answers(u64),
        Fails(u64, io::ErrorKind),
        IsSilent,
    }

    /// Which of the addresses with these fates is connected to, and after how many milliseconds.
    async fn outcome(fates: &[Fate]) -> (Result<usize, io::ErrorKind>, u128) {
        let began = Instant::now();
        let addresses: Vec<SocketAddr> =
            (0..fates.len()).map(|place| ([10, 0, 0, 1], place as u16).into()).collect();
        let dial = |address: SocketAddr| {
            let place = usize::from(address.port());
            let fate = fates[place];
            async move {
                match fate {
                    Fate::Answers(after) => {
                        tokio::time::sleep(Duration::from_millis(after)).await;
                        Ok(place)
                    }
                    Fate::Fails(after, kind) => {
                        tokio::time::sleep(Duration::from_millis(after)).await;
                        Err(io::Error::from(kind))
                    }
                    Fate::IsSilent => std::future::pending().await,
                }
            }
        };
        let ended = first_of(addresses, dial).await.map_err(|error| error.kind());
        (ended, began.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_drops_packets_keeps_no_other_from_being_reached() {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable};
        let refuses = Fate::Fails(1, ConnectionRefused);
        for (fates, ended, at_most_ms) in [
            (vec![Fate::Answers(5), Fate::Answers(5)], Ok(0), 10),
            (vec![Fate::IsSilent, Fate::Answers(5)], Ok(1), 300),
            (vec![Fate::IsSilent, Fate::IsSilent, Fate::Answers(5)], Ok(2), 600),
            // One that failed is not waited for, and one that is slow may still be the first.
            (vec![refuses, refuses, Fate::Answers(5)], Ok(2), 20),
            (vec![Fate::Answers(400), Fate::IsSilent, Fate::IsSilent], Ok(0), 410),
            (vec![Fate::Answers(2_000)], Ok(0), 2_010),
            (vec![refuses, Fate::Fails(5, HostUnreachable)], Err(HostUnreachable), 20),
            (vec![Fate::Fails(400, HostUnreachable), refuses], Err(HostUnreachable), 410),
            (vec![], Err(io::ErrorKind::InvalidInput), 0),
        ] {
            let (told, took_ms) = outcome(&fates).await;
            assert_eq!(told, ended);
            assert!(took_ms <= at_most_ms, "{ended:?}: {took_ms} ms");
        }
    }

    #[tokio::test]
    async fn a_name_is_looked_up_and_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // The name may have an address of the other family first, at which nothing listens.
        for host in ["127.0.0.1", "localhost"] {
            let stream = connect(&format!("{host}:{port}")).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap().port(), port);
        }
    }
}
