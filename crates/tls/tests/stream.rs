//! Two ends of a stream over a pipe that transfers as little at a time as it likes.
#![allow(clippy::unwrap_used, clippy::panic)]

use atoll_tls::{
    Authority, ClientConfig, ClientTls, NoTls, NodeTls, PeerTls, Stream, TlsFiles, Use, host_name,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The current time, because rustls reads the clock itself.
fn now() -> Duration {
    #[allow(clippy::disallowed_methods, reason = "a certificate has to be good today")]
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap()
}

/// One end of a pipe: bytes that arrive, bytes that leave, and how many at a time.
struct Pipe {
    comes: Rc<RefCell<VecDeque<u8>>>,
    goes: Rc<RefCell<VecDeque<u8>>>,
    random: fastrand::Rng,
}

fn pipe(seed: u64) -> (Pipe, Pipe) {
    let (one, other) = <(Rc<RefCell<VecDeque<u8>>>, Rc<RefCell<VecDeque<u8>>>)>::default();
    let end = |comes: &Rc<_>, goes: &Rc<_>, seed| Pipe {
        comes: Rc::clone(comes),
        goes: Rc::clone(goes),
        random: fastrand::Rng::with_seed(seed),
    };
    (end(&one, &other, seed), end(&other, &one, seed ^ 77))
}

const PIPE_BYTES: usize = 4000;

impl Read for Pipe {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut comes = self.comes.borrow_mut();
        let count = room.len().min(comes.len()).min(self.random.usize(..3000));
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        comes.drain(..count).zip(room).for_each(|(byte, place)| *place = byte);
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut goes = self.goes.borrow_mut();
        let count = bytes.len().min(PIPE_BYTES - goes.len()).min(self.random.usize(..3000));
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        goes.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Trust {
    node: NodeTls,
    client: ClientTls,
    /// A client of the same authority that dials like a node.
    only_client: Arc<ClientConfig>,
    stranger: PeerTls,
}

/// A node called `node-1`, the nodes and clients that trust it, and a stranger.
fn trust() -> Trust {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::make().unwrap(), Authority::make().unwrap());
    let files = |authority: &Authority, name: &str, purpose| {
        let issued = authority.sign(&["node-1"], purpose, now()).unwrap();
        let write = |ending: &str, text: &str| {
            let path = folder.path().join(format!("{name}.{ending}"));
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        TlsFiles {
            certificate: write("pem", &issued.certificate),
            key: write("key", &issued.key),
            authority: Some(write("authority", &authority.issued(now()).unwrap().certificate)),
        }
    };
    let node = files(&authority, "node", Use::Node);
    let stranger = files(&other, "stranger", Use::Node);
    let client = files(&authority, "client", Use::Client);
    let of = |files: &TlsFiles| NodeTls::of_files(files, "node-1", now()).unwrap();
    let only_client = of_client(&client);
    Trust {
        client: ClientTls::of_files(node.authority.as_ref().unwrap()).unwrap(),
        node: of(&node),
        only_client,
        stranger: of(&stranger).peers.unwrap(),
    }
}

/// Dials with a certificate that a node would not start with.
fn of_client(files: &TlsFiles) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files.authority.as_ref().unwrap()).unwrap()).unwrap();
    let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap())
}

/// Reads what there is; returns whether the stream may continue.
fn drain(stream: &mut Stream<Pipe>, seen: &mut Vec<u8>) -> io::Result<()> {
    let mut room = [0; 1000];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return Ok(()),
            Ok(count) => seen.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Runs both ends until the dialling one has sent all of `said`; returns what the other one received.
fn carry(dial: &mut Stream<Pipe>, serve: &mut Stream<Pipe>, said: &[u8]) -> io::Result<Vec<u8>> {
    let (mut at, mut heard, mut back) = (0, Vec::new(), Vec::new());
    for _ in 0..1_000_000 {
        match dial.write(&said[at..]) {
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        dial.send()?;
        drain(serve, &mut heard)?;
        serve.send()?;
        drain(dial, &mut back)?;
        if heard.len() == said.len() {
            return Ok(heard);
        }
    }
    panic!("{} of {} bytes came", heard.len(), said.len())
}

#[test]
fn whatever_the_pieces_all_bytes_come_once_and_in_order() {
    let trust = trust();
    let peers = trust.node.peers.clone().unwrap();
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let said: Vec<u8> = (0..random.usize(1..300_000)).map(|_| random.u8(..)).collect();
        for between_nodes in [false, true] {
            let (one, other) = pipe(seed);
            let host = host_name("node-1").unwrap();
            let (dial, serve) = match between_nodes {
                true => (peers.dial.clone(), peers.serve.clone()),
                false => (trust.client.config.clone(), trust.node.clients.clone()),
            };
            let mut dial = Stream::dial(one, dial, host).unwrap();
            let mut serve = Stream::serve(other, serve).unwrap();
            assert!(dial.is_handshaking() && serve.is_handshaking());
            let heard = carry(&mut dial, &mut serve, &said).unwrap();
            assert!(heard == said, "seed {seed}");
            assert!(!dial.is_handshaking() && !serve.is_handshaking());
        }
        let (one, other) = pipe(seed);
        let (mut dial, mut serve) = (Stream::plain(one), Stream::plain(other));
        assert!(carry(&mut dial, &mut serve, &said).unwrap() == said, "seed {seed}");
    }
}

#[test]
fn what_a_peer_does_not_read_is_bounded_and_counted_as_memory() {
    let trust = trust();
    let (one, other) = pipe(3);
    let host = host_name("node-1").unwrap();
    let mut dial = Stream::dial(one, trust.client.config.clone(), host).unwrap();
    let mut serve = Stream::serve(other, trust.node.clients.clone()).unwrap();
    carry(&mut dial, &mut serve, b"hello").unwrap();
    let settle = |dial: &mut Stream<Pipe>, serve: &mut Stream<Pipe>, seen: &mut Vec<u8>, count: usize| {
        for _ in 0..1_000_000 {
            let is_sent = serve.send().unwrap();
            drain(dial, seen).unwrap();
            if is_sent && seen.len() >= count {
                return;
            }
        }
        panic!("{} of {count} bytes came", seen.len());
    };
    let mut seen = Vec::new();
    settle(&mut dial, &mut serve, &mut seen, 0);
    let (idle, mut accepted) = (serve.memory_bytes(), 0);
    for _ in 0..1000 {
        match serve.write(&[7; 300_000]) {
            Ok(count) => accepted += count,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert!((PIPE_BYTES..100_000).contains(&accepted), "{accepted}");
    let counted = serve.memory_bytes() - idle;
    assert!(counted >= accepted - PIPE_BYTES, "{counted} bytes are counted of {accepted}");
    settle(&mut dial, &mut serve, &mut seen, accepted);
    assert_eq!((serve.memory_bytes(), seen.len()), (idle, accepted));
}

#[test]
fn only_nodes_of_the_ring_speak_to_nodes() {
    let trust = trust();
    let peers = trust.node.peers.clone().unwrap();
    let meets = |dial, name: &str| {
        let (one, other) = pipe(5);
        let mut dial = Stream::dial(one, dial, host_name(name).unwrap()).unwrap();
        let mut serve = Stream::serve(other, peers.serve.clone()).unwrap();
        carry(&mut dial, &mut serve, b"hello").map_err(|error| error.to_string())
    };
    meets(peers.dial.clone(), "node-1").unwrap();
    assert!(meets(peers.dial.clone(), "node-2").unwrap_err().contains("not valid for name"));
    assert!(meets(trust.client.config.clone(), "node-1").is_err(), "it shows no certificate");
    assert!(meets(trust.only_client.clone(), "node-1").is_err(), "it is no node");
    assert!(meets(trust.stranger.dial.clone(), "node-1").is_err(), "nobody signed it");
}

#[test]
fn who_speaks_no_tls_is_known_by_its_first_byte() {
    let trust = trust();
    let (mut one, other) = pipe(1);
    let mut serve = Stream::serve(other, trust.node.clients.clone()).unwrap();
    while one.write(b"*1\r\n$4\r\nPING\r\n").is_err() {}
    let error = loop {
        match serve.read(&mut [0; 100]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => break read.unwrap_err(),
        }
    };
    let found = error.get_ref().and_then(|error| error.downcast_ref::<NoTls>());
    assert_eq!(found, Some(&NoTls { first: b'*' }));
}

#[test]
fn random_bytes_end_in_an_error_and_never_in_a_panic() {
    let trust = trust();
    for seed in 0..3000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut one, other) = pipe(seed);
        let mut serve = Stream::serve(other, trust.node.clients.clone()).unwrap();
        // Some begin correctly: the hello of a client, truncated and altered.
        let mut bytes = match seed % 3 {
            0 => (0..random.usize(1..2000)).map(|_| random.u8(..)).collect(),
            kind => {
                let (end, _far) = pipe(seed);
                let goes = Rc::clone(&end.goes);
                let host = host_name("node-1").unwrap();
                let mut dial = Stream::dial(end, trust.client.config.clone(), host).unwrap();
                while !dial.send().unwrap() {}
                let mut hello: Vec<u8> = goes.borrow().iter().copied().collect();
                for _ in 0..kind {
                    let at = random.usize(..hello.len());
                    hello[at] = random.u8(..);
                }
                hello
            }
        };
        bytes.extend_from_slice(&[0; 3]);
        let mut at = 0;
        for _ in 0..10_000 {
            at += one.write(&bytes[at..]).unwrap_or(0);
            match serve.read(&mut [0; 64]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => {
                    assert!(!matches!(read, Ok(1..)), "seed {seed}: nobody knows what it heard");
                    break;
                }
            }
            if at == bytes.len() && one.goes.borrow().is_empty() {
                break;
            }
        }
    }
}
