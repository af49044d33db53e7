//! Proxies that can cut connections; each connection has threads of its own.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The connections from one node to another.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    is_cut: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { is_cut: AtomicBool::new(false), streams: Mutex::default() });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if !accepting.is_cut.load(Ordering::SeqCst)
                    && let Ok(other) = TcpStream::connect(target)
                {
                    accepting.join(stream, other);
                }
            }
        });
        Self { address, shared }
    }

    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn heal(&self) {
        self.shared.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Shared {
    fn join(&self, one: TcpStream, other: TcpStream) {
        for (from, to) in [(&one, &other), (&other, &one)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let _ = to.set_nodelay(true);
            std::thread::spawn(move || {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    if to.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        let mut streams = self.streams.lock().unwrap();
        streams.extend([one, other]);
        if self.is_cut.load(Ordering::SeqCst) {
            for stream in streams.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}
