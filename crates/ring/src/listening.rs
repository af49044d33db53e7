//! Options that clients' connections inherit from the listening socket, and errors of accepting one.

use mio::net::TcpListener;
use rustix::net::sockopt;
use std::io;
use std::time::Duration;

/// TCP keep-alive: how long nothing may come from a client's host before it is probed, how often, and how
/// many times. A host that vanished does not keep its connection for ever.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Sets the options of all connections that will be accepted.
pub(crate) fn prepare(listener: &TcpListener) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(listener, true)?;
    sockopt::set_tcp_keepidle(listener, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(listener, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(listener, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(listener, true)
}

/// Whether accepting failed only because that one connection had ended.
pub(crate) fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn what_is_accepted_sends_at_once_and_asks_whether_the_other_side_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        prepare(&listener).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // It can be accepted as soon as the client is connected.
        let (accepted, _) = listener.accept().unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap() && sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), KEEPALIVE_IDLE);
        assert!(!sockopt::socket_keepalive(&client).unwrap());
    }
}
