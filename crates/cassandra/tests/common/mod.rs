//! Stores for tests: one keyspace with a namespace for each store.

use atoll_cassandra::{CassandraStore, Options};
use atoll_conformance::SharedStore;
use atoll_store::{Buffer, StoreError};
use scylla::client::session::Session;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The contact points of the cluster that tests may use; none, with a message, if there is no such cluster.
pub fn contacts() -> Option<Vec<String>> {
    match std::env::var("ATOLL_CASSANDRA") {
        Ok(contacts) if !contacts.is_empty() => Some(contacts.split(',').map(str::to_owned).collect()),
        _ => {
            println!(
                "SKIPPED [cassandra] ATOLL_CASSANDRA names no cluster; `cargo xtask cassandra up` starts one"
            );
            None
        }
    }
}

/// Fresh stores in one keyspace.
pub struct Namespaces {
    contacts: Vec<String>,
    keyspace: String,
    /// Differs from run to run, so that runs on the same cluster never meet.
    run: u64,
    opened: AtomicU64,
    names: Mutex<HashMap<usize, Vec<u8>>>,
}

#[allow(dead_code)]
impl Namespaces {
    pub fn new(contacts: Vec<String>, keyspace: &str) -> Self {
        let (opened, names) = (AtomicU64::new(0), Mutex::default());
        Self { contacts, keyspace: keyspace.to_owned(), run: fastrand::u64(..), opened, names }
    }

    /// The options of the store with this namespace.
    pub fn options(&self, namespace: Vec<u8>) -> Options {
        Options { namespace, ..Options::of(self.contacts.clone(), self.keyspace.as_str()) }
    }

    /// A namespace that was not used before.
    pub fn fresh(&self) -> Vec<u8> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        [self.run.to_be_bytes(), number.to_be_bytes()].concat()
    }

    pub async fn open_fresh(&self) -> Result<SharedStore, StoreError> {
        self.open_as(self.fresh()).await
    }

    /// Another store on the same data as `store`.
    pub async fn open_again(&self, store: &SharedStore) -> Result<SharedStore, StoreError> {
        let name = self.names.lock().unwrap().get(&address(store)).cloned().unwrap_or_default();
        self.open_as(name).await
    }

    pub async fn open_as(&self, name: Vec<u8>) -> Result<SharedStore, StoreError> {
        let store: SharedStore = Arc::new(CassandraStore::open(self.options(name.clone())).await?);
        self.names.lock().unwrap().insert(address(&store), name);
        Ok(store)
    }
}

fn address(store: &SharedStore) -> usize {
    Arc::as_ptr(store).cast::<()>().addr()
}

#[allow(dead_code)]
pub fn bytes(len: usize, seed: u64) -> Buffer {
    Buffer::build(len, |bytes| fastrand::Rng::with_seed(seed).fill(bytes))
}

/// Leaves a chunk as a writer does that ended, or fell asleep, two hours ago, before it referred to it.
#[allow(dead_code)]
pub async fn leave_chunk(session: &Session, partition: &[u8], sort: &[u8]) {
    let leave =
        "INSERT INTO conformance.chunks (id, n, data, p, s) VALUES (?, 0, 0x00, ?, ?) USING TIMESTAMP ?";
    let id = fastrand::u128(..).to_be_bytes();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let then = i64::try_from((now - Duration::from_secs(7200)).as_micros()).unwrap();
    session.query_unpaged(leave, (&id[..], partition, sort, then)).await.unwrap();
}

/// The name and the chunks of a cell's value.
#[allow(dead_code)]
pub async fn chunks_of(session: &Session, partition: &[u8], sort: &str) -> (Vec<u8>, Vec<Vec<u8>>) {
    let read = "SELECT head FROM conformance.cells WHERE p = ? AND kind = 0 AND s = ?";
    let rows = session.query_unpaged(read, (partition, sort.as_bytes())).await.unwrap().into_rows_result();
    let head = rows.unwrap().single_row::<(Vec<u8>,)>().unwrap().0;
    let id = head[head.len() - 16..].to_vec();
    let mut chunks = Vec::new();
    for number in 0.. {
        let read = "SELECT data FROM conformance.chunks WHERE id = ? AND n = ?";
        let rows = session.query_unpaged(read, (&id, number)).await.unwrap().into_rows_result().unwrap();
        match rows.maybe_first_row::<(Vec<u8>,)>().unwrap() {
            Some((chunk,)) => chunks.push(chunk),
            None => return (id, chunks),
        }
    }
    unreachable!()
}

/// A node that can be paused without being ended, so that it does not answer for a while.
#[allow(dead_code)]
pub struct Paused {
    process: String,
}

#[allow(dead_code)]
impl Paused {
    /// The node with this number; none, with a message, if its process is not known.
    pub fn node(number: usize) -> Option<Self> {
        let folder = std::env::var("ATOLL_CASSANDRA_FOLDER").ok();
        let file = folder.map(|folder| format!("{folder}/node-{number}/pid"));
        let process = file.and_then(|file| std::fs::read_to_string(file).ok());
        if process.is_none() {
            println!(
                "SKIPPED [cassandra-nodes] ATOLL_CASSANDRA_FOLDER names no cluster whose node can be stopped"
            );
        }
        process.map(|process| Self { process: process.trim().to_owned() })
    }

    pub fn stop(&self) {
        self.signal("-STOP");
    }

    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = std::process::Command::new("kill").args([signal, &self.process]).status();
        assert!(status.unwrap().success(), "kill {signal} {}", self.process);
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // A failed test must not leave the shared node paused.
        self.go_on();
    }
}
