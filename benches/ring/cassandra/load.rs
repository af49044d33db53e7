//! The load on Cassandra: as many requests under way as there are clients, on a few connections, as its
//! drivers do it.
//!
//! A driver shares its connections among all clients of a process: requests are distinguished by their
//! stream, and clients that were answered together ask again together. That spares the nodes the system
//! calls that fifty connections would cost them.
//!
//! Invariant: a client uses only its own keys, one request at a time, so the right answer to each request
//! is known.

use super::frames::{self, Malformed, NodeAnswer, Opcode};
use crate::client::{Model, Operation, Outcome, Pieces, Tally, Usage};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const SILENCE_MAX: Duration = Duration::from_secs(20);
const SCRATCH_BYTES: usize = 64 << 10;
/// How many requests that timed out a connection sends again before the bench gives up.
const TIMED_OUT_MAX: u64 = 1_000;
/// How long to wait for a new table, which a node may not know yet.
const TABLE_TIME_MAX: Duration = Duration::from_secs(30);

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum CqlError {
    /// A connection broke, or a node did not answer.
    #[error("a connection to {address} broke")]
    Broken {
        /// The node.
        address: SocketAddr,
        #[source]
        /// Why.
        source: io::Error,
    },
    /// A node answered something that is not the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A node answered with an error.
    #[error("cassandra refused {asked}: {words}")]
    Refused {
        /// The request.
        asked: String,
        /// The node's message.
        words: String,
    },
    /// A thread of the bench ended early.
    #[error("a client ended early")]
    Ended,
}

/// A connection, and the expected contents of its clients' keys.
pub struct Connection {
    address: SocketAddr,
    socket: TcpStream,
    unread: Vec<u8>,
    insert: Vec<u8>,
    select: Vec<u8>,
    /// The clients that share it, by their global numbers.
    clients: Vec<u32>,
    model: Model,
    /// How many requests timed out at the node and were sent again.
    timed_out: u64,
}

/// The load.
#[derive(Clone, Copy)]
pub struct Ask {
    /// Set or get.
    pub operation: Operation,
    /// How many clients there are in all.
    pub clients: u32,
    /// When answers begin to count and when clients stop; without it, every key is used once.
    pub times: Option<(Instant, Instant)>,
    /// The seed of the order of keys.
    pub seed: u64,
}

impl Connection {
    /// Connects on behalf of these clients.
    pub fn open(address: SocketAddr, clients: Vec<u32>, keys: u32) -> Result<Self, CqlError> {
        let broken = |source| CqlError::Broken { address, source };
        let socket = TcpStream::connect_timeout(&address, SILENCE_MAX).map_err(broken)?;
        socket.set_nodelay(true).map_err(broken)?;
        socket.set_read_timeout(Some(SILENCE_MAX)).map_err(broken)?;
        socket.set_write_timeout(Some(SILENCE_MAX)).map_err(broken)?;
        let mut connection = Self {
            address,
            socket,
            unread: Vec::new(),
            insert: Vec::new(),
            select: Vec::new(),
            clients,
            model: Model::empty(keys),
            timed_out: 0,
        };
        connection.ask(Opcode::Startup, &frames::startup(), "for a connection")?;
        Ok(connection)
    }

    /// How many requests timed out at the node and were sent again, as drivers do with what may be repeated.
    pub fn timed_out(&self) -> u64 {
        self.timed_out
    }

    /// Runs a statement once.
    pub fn query(&mut self, text: &str) -> Result<(), CqlError> {
        self.ask(Opcode::Query, &frames::query(text), text).map(drop)
    }

    /// Prepares both statements, as soon as the node knows the table.
    pub fn prepare(&mut self, insert: &str, select: &str) -> Result<(), CqlError> {
        self.insert = self.prepared(insert)?;
        self.select = self.prepared(select)?;
        Ok(())
    }

    fn prepared(&mut self, text: &str) -> Result<Vec<u8>, CqlError> {
        let start = Instant::now();
        loop {
            match self.ask(Opcode::Prepare, &frames::statement(text), text) {
                Err(CqlError::Refused { .. }) if start.elapsed() < TABLE_TIME_MAX => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                asked => return asked,
            }
        }
    }

    /// Sends one request and waits for its answer; returns the id if a statement was prepared.
    fn ask(&mut self, opcode: Opcode, body: &[u8], asked: &str) -> Result<Vec<u8>, CqlError> {
        let mut out = Vec::new();
        frames::write(opcode, 0, body, &mut out);
        self.send(&out)?;
        loop {
            let found = match frames::parse(&self.unread)? {
                Some((_, NodeAnswer::Prepared(name), length)) => Some((Ok(name.to_vec()), length)),
                Some((_, NodeAnswer::Refused(words) | NodeAnswer::TimedOut(words), length)) => {
                    Some((Err(refused(asked, words)), length))
                }
                Some((_, NodeAnswer::Ready | NodeAnswer::Done | NodeAnswer::Nothing, length)) => {
                    Some((Ok(Vec::new()), length))
                }
                Some((_, NodeAnswer::Value(_) | NodeAnswer::Other(_), _)) => return Err(Malformed.into()),
                None => None,
            };
            if let Some((asked, length)) = found {
                self.unread.drain(..length);
                return asked;
            }
            self.receive(&mut [0; SCRATCH_BYTES])?;
        }
    }

    fn send(&mut self, out: &[u8]) -> Result<(), CqlError> {
        let address = self.address;
        self.socket.write_all(out).map_err(|source| CqlError::Broken { address, source })
    }

    fn receive(&mut self, scratch: &mut [u8]) -> Result<(), CqlError> {
        let address = self.address;
        let broken = |source| CqlError::Broken { address, source };
        match self.socket.read(scratch) {
            Ok(0) => Err(broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.unread.extend_from_slice(&scratch[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(source) => Err(broken(source)),
        }
    }

    /// Lets all its clients send requests until the time is over, or every key was used.
    pub fn run(&mut self, ask: Ask, pieces: &Pieces) -> Result<Tally, CqlError> {
        let mut tally = Tally::between(ask.times);
        let mut random =
            fastrand::Rng::with_seed(ask.seed ^ u64::from(self.clients.first().copied().unwrap_or(0)) << 32);
        let mut asked_once = vec![0; self.clients.len()];
        let mut under_way: Vec<Option<(u32, Instant)>> = vec![None; self.clients.len()];
        let (mut out, mut scratch) = (Vec::new(), vec![0; SCRATCH_BYTES]);
        let mut idle: Vec<usize> = (0..self.clients.len()).collect();
        let (mut busy, mut now) = (0, Instant::now());
        loop {
            for place in idle.drain(..) {
                let Some(key) = self.next_key(place, &ask, &mut asked_once, &mut random, now) else {
                    continue;
                };
                let version = match ask.operation {
                    Operation::Get => 0,
                    _ => self.model.set(key),
                };
                self.write((place, key), (ask.operation, version), pieces, &mut out);
                under_way[place] = Some((key, now));
                busy += 1;
            }
            if busy == 0 {
                return Ok(tally);
            }
            self.send(&out)?;
            out.clear();
            self.receive(&mut scratch)?;
            now = Instant::now();
            let unread = std::mem::take(&mut self.unread);
            let mut taken = 0;
            while let Some((stream, said, length)) = frames::parse(&unread[taken..])? {
                taken += length;
                let place = usize::from(stream);
                let asked = under_way.get_mut(place).ok_or(Malformed)?;
                let (key, sent_at) = asked.ok_or(Malformed)?;
                if let NodeAnswer::TimedOut(words) = said {
                    self.ask_again((place, key), ask.operation, words, pieces, &mut out)?;
                    continue;
                }
                *asked = None;
                self.judge(key, ask.operation, &said, pieces, &mut tally)?;
                tally.count(sent_at, now, 1);
                idle.push(place);
                busy -= 1;
            }
            self.unread = unread;
            self.unread.drain(..taken);
        }
    }

    /// Sends a request that timed out once more: a write of the same value, and so one that may be repeated.
    fn ask_again(
        &mut self,
        (place, key): (usize, u32),
        operation: Operation,
        words: &[u8],
        pieces: &Pieces,
        out: &mut Vec<u8>,
    ) -> Result<(), CqlError> {
        self.timed_out += 1;
        if self.timed_out > TIMED_OUT_MAX {
            return Err(refused(operation.name(), words));
        }
        self.write((place, key), (operation, self.model.held(key).first), pieces, out);
        Ok(())
    }

    /// A client's next key: one whose number modulo the count of clients is the client's.
    fn next_key(
        &self,
        place: usize,
        ask: &Ask,
        asked_once: &mut [u32],
        random: &mut fastrand::Rng,
        now: Instant,
    ) -> Option<u32> {
        let client = self.clients[place];
        let own = self.model.keys().saturating_sub(client).div_ceil(ask.clients);
        let choice = match ask.times {
            Some((_, until)) if now < until && own > 0 => random.u32(..own),
            None if asked_once[place] < own => {
                asked_once[place] += 1;
                asked_once[place] - 1
            }
            _ => return None,
        };
        Some(choice * ask.clients + client)
    }

    fn write(
        &self,
        (place, key): (usize, u32),
        (operation, version): (Operation, u32),
        pieces: &Pieces,
        out: &mut Vec<u8>,
    ) {
        let name = Pieces::key(key);
        let body = match operation {
            Operation::Get => frames::execution(&self.select, &[&name]),
            _ => frames::execution(&self.insert, &[&name, &pieces.piece(key, version)]),
        };
        frames::write(Opcode::Execute, place as u16, &body, out);
    }

    fn judge(
        &self,
        key: u32,
        operation: Operation,
        said: &NodeAnswer<'_>,
        pieces: &Pieces,
        tally: &mut Tally,
    ) -> Result<(), CqlError> {
        let held = self.model.held(key);
        let is_right = match (operation, said) {
            (_, NodeAnswer::Refused(words)) => return Err(refused(operation.name(), words)),
            (Operation::Get, NodeAnswer::Value(value)) => pieces.is_held(key, held, value),
            (Operation::Get, NodeAnswer::Nothing) => held.pieces == 0,
            (_, NodeAnswer::Done) => operation != Operation::Get,
            _ => false,
        };
        if !is_right {
            tally.wrong(|| format!("key {key}, {}: {said:?}", operation.name()));
        }
        Ok(())
    }
}

fn refused(asked: &str, words: &[u8]) -> CqlError {
    CqlError::Refused { asked: asked.to_owned(), words: String::from_utf8_lossy(words).into_owned() }
}

/// Runs a load on all connections, each in its own thread.
pub fn run(
    connections: &mut [Connection],
    ask: Ask,
    pieces: &Pieces,
    processes: &[u32],
) -> Result<Outcome, CqlError> {
    let mut tally = Tally::between(ask.times);
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            connections.iter_mut().map(|one| scope.spawn(move || one.run(ask, pieces))).collect();
        // The nodes' CPU time and the answers are measured between the same moments.
        let sleep_until =
            |moment: Instant| std::thread::sleep(moment.saturating_duration_since(Instant::now()));
        let used = ask.times.map(|(from, until)| {
            sleep_until(from);
            let before = Usage::now(processes);
            sleep_until(until);
            before.since(processes)
        });
        for thread in threads {
            tally.add(thread.join().map_err(|_| CqlError::Ended)??);
        }
        let used = used.unwrap_or_else(|| Usage::now(processes).since(processes));
        let seconds = tally.seconds();
        Ok(Outcome::of(used, tally, seconds))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Choice, parse_command};
    use crate::phases::Side;
    use std::collections::{HashMap, VecDeque};
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::{Arc, Mutex};

    type Cells = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;

    /// A node that answers requests of one receive in reverse order, and forgets every `forgets_every`th
    /// write.
    fn serve(forgets_every: u64) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, cells) = (listener.local_addr().unwrap(), Cells::default());
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let cells = cells.clone();
                std::thread::spawn(move || answer_all(socket, &cells, forgets_every));
            }
        });
        address
    }

    fn answer_all(mut socket: TcpStream, cells: &Cells, forgets_every: u64) {
        let (mut unread, mut scratch, mut writes) = (Vec::new(), vec![0; 4 << 10], 0);
        while let Ok(count @ 1..) = socket.read(&mut scratch) {
            unread.extend_from_slice(&scratch[..count]);
            let mut answers: Vec<Vec<u8>> = Vec::new();
            while unread.len() >= 9 {
                let length = u32::from_be_bytes(unread[5..9].try_into().unwrap()) as usize;
                if unread.len() < 9 + length {
                    break;
                }
                let frame: Vec<u8> = unread.drain(..9 + length).collect();
                let (opcode, body) = answer(frame[4], &frame[9..], cells, forgets_every, &mut writes);
                let length = (body.len() as u32).to_be_bytes();
                answers.push([&[0x84, 0, frame[2], frame[3], opcode][..], &length, &body].concat());
            }
            answers.reverse();
            socket.write_all(&answers.concat()).unwrap();
        }
    }

    fn answer(opcode: u8, body: &[u8], cells: &Cells, forgets_every: u64, writes: &mut u64) -> (u8, Vec<u8>) {
        match opcode {
            1 => return (2, Vec::new()),
            9 => return (8, [&[0, 0, 0, 4, 0, 1][..], &body[4..5]].concat()),
            _ => {}
        }
        let mut values = Vec::new();
        let mut rest = &body[8..];
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (value, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
            values.push(value.to_vec());
            rest = behind;
        }
        let mut cells = cells.lock().unwrap();
        if let [key, value] = &values[..] {
            *writes += 1;
            if !writes.is_multiple_of(forgets_every) {
                cells.insert(key.clone(), value.clone());
            }
            return (8, vec![0, 0, 0, 1]);
        }
        let head = [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1];
        match cells.get(&values[0]) {
            None => (8, [&head[..], &[0, 0, 0, 0]].concat()),
            Some(value) => {
                let length = (value.len() as u32).to_be_bytes();
                (8, [&head[..], &[0, 0, 0, 1], &length, value].concat())
            }
        }
    }

    /// Sets 3,000 keys once and at random, and reads them; returns how many answers were wrong.
    fn wrong_of(forgets_every: u64) -> u64 {
        let (address, pieces) = (serve(forgets_every), Pieces::seeded(1));
        let mut all: Vec<Connection> = [vec![0, 2, 4], vec![1, 3]]
            .map(|clients| Connection::open(address, clients, 3_000).unwrap())
            .into();
        all.iter_mut().for_each(|one| one.prepare("insert", "select").unwrap());
        let ask = |operation, times| Ask { operation, clients: 5, times, seed: 1 };
        let mut run_all = |operation, times| run(&mut all, ask(operation, times), &pieces, &[]).unwrap();
        assert_eq!(run_all(Operation::Set, None).operations, 3_000);
        let now = Instant::now();
        let times = Some((now, now + Duration::from_millis(50)));
        assert!(run_all(Operation::Set, times).operations > 0);
        let read = run_all(Operation::Get, None);
        assert_eq!(read.operations, 3_000);
        read.wrong
    }

    /// A node that holds back each answer until it has received another request, as long as any is still to
    /// come. A client that waits for several answers before it sends the next request would wait for ever.
    /// Reports how many receives it took to get all requests.
    fn serve_one_by_one(
        requests: usize,
        answer: impl Fn(&mut Vec<u8>) -> Option<Vec<u8>> + Send + 'static,
    ) -> (SocketAddr, std::thread::JoinHandle<usize>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let heard_all = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let (mut unread, mut scratch, mut answers) = (Vec::new(), vec![0; 4 << 10], VecDeque::new());
            let (mut heard, mut receives) = (0, 0);
            while heard < requests {
                let count = socket.read(&mut scratch).unwrap_or(0);
                if count == 0 {
                    break;
                }
                receives += 1;
                unread.extend_from_slice(&scratch[..count]);
                while let Some(one) = answer(&mut unread) {
                    answers.push_back(one);
                    heard += 1;
                }
                socket.write_all(&answers.pop_front().unwrap_or_default()).unwrap();
            }
            answers.iter().for_each(|one| socket.write_all(one).unwrap());
            receives
        });
        (address, heard_all)
    }

    /// Takes the first request from these bytes and returns its answer, if it is a write.
    fn answer_cassandra(unread: &mut Vec<u8>) -> Option<Vec<u8>> {
        let length = u32::from_be_bytes(unread.get(5..9)?.try_into().unwrap()) as usize;
        unread.get(9 + length - 1)?;
        let frame: Vec<u8> = unread.drain(..9 + length).collect();
        let (opcode, body) = answer(frame[4], &frame[9..], &Cells::default(), u64::MAX, &mut 0);
        let length = (body.len() as u32).to_be_bytes();
        Some([&[0x84, 0, frame[2], frame[3], opcode][..], &length, &body].concat())
    }

    fn answer_atoll(unread: &mut Vec<u8>) -> Option<Vec<u8>> {
        let (_, taken) = parse_command(unread)?;
        unread.drain(..taken);
        Some(b"+OK\r\n".to_vec())
    }

    #[test]
    fn both_nodes_hear_of_requests_by_as_many_receives_when_they_answer_one_after_the_other() {
        let (keys, share) = (1_000, 5);
        let pieces = Pieces::seeded(1);
        // A greeting and two statements come first.
        let (address, heard_all) = serve_one_by_one(keys as usize + 3, answer_cassandra);
        let mut all = [Connection::open(address, (0..share).collect(), keys).unwrap()];
        all[0].prepare("insert", "select").unwrap();
        let ask = Ask { operation: Operation::Set, clients: share, times: None, seed: 1 };
        assert_eq!(run(&mut all, ask, &pieces, &[]).unwrap().operations, u64::from(keys));
        let of_cassandra = heard_all.join().unwrap() - 3;

        let (address, heard_all) = serve_one_by_one(keys as usize, answer_atoll);
        let ask = crate::cassandra::ask_atoll(Operation::Set, Choice::EachOnce, 1);
        let mut side = Side::of_one("a node", address, keys);
        assert_eq!(side.run(&ask, &pieces).unwrap().1.operations, u64::from(keys));
        assert_eq!((heard_all.join().unwrap(), of_cassandra), (996, 996));
    }

    #[test]
    fn a_node_that_forgets_is_found_out_and_one_that_answers_in_any_order_is_right() {
        assert_eq!(wrong_of(u64::MAX), 0);
        assert!(wrong_of(50) > 0);
    }
}
