//! Several processes on one folder, any of them killed at any moment: nothing acknowledged is lost, nobody
//! is stuck, and there is one owner at a time.
//!
//! The test program starts itself again as its workers, told by the environment what to be. Four of them
//! write, one reads beside them, one reads without the right to write. The driver kills one after the other,
//! every second time the owner, and starts it again; in the end it opens the folder and counts.
//!
//! `ATOLL_ROUNDS=50 cargo test -p atoll-embedded --test processes` runs more rounds than the 10 of a test,
//! `ATOLL_SEED` takes another seed, `ATOLL_AT` another folder; `cargo xtask soak processes` goes on and on with
//! fresh seeds on a real disk.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

use atoll_embedded::owner::{Locking, Mode, OwnerOptions, OwnerRecord};
use atoll_embedded::{FolderOptions, OpenOptions, StoreOptions};
use atoll_engine::Options;
use atoll_store::{
    Cell, Durability, ErrorKind, Outcome, ReadOptions, ScanRequest, Store, StoreError, WriteOptions,
};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const WRITERS: u64 = 4;
/// No worker may be silent for longer.
const STUCK: Duration = Duration::from_secs(2);

async fn open(folder: &Path, mode: Mode, locking: Option<Locking>) -> Result<Arc<dyn Store>, StoreError> {
    let owner = OwnerOptions { locking, ..OwnerOptions::default() };
    let engine = Options { log_segment_bytes: 1 << 20, memory_bytes: 64 << 20, ..Options::default() };
    let options = OpenOptions {
        mode,
        store: StoreOptions { engine, ..StoreOptions::default() },
        folder: FolderOptions { owner, ..FolderOptions::default() },
        ..OpenOptions::default()
    };
    Ok(atoll_embedded::open(folder, options).await?.store())
}

// ---- the workers

/// Not a test: what this program does when it was started as a worker.
#[test]
fn worker() {
    let Ok(role) = std::env::var("ATOLL_WORKER") else { return };
    // Told at once: a worker that fails at the very end is killed before it has ended by itself.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(format_args!("failed {}", panic.to_string().replace('\n', " ")));
        report(panic);
    }));
    let folder = PathBuf::from(std::env::var("ATOLL_FOLDER").unwrap());
    let locking = std::env::var("ATOLL_FILE_LOCK").is_ok().then_some(Locking::File);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match role.split_once(' ').unwrap() {
            ("write", number) => write_on(&folder, locking, number).await,
            ("read", _) => read_on(&folder, locking, Mode::Write).await,
            ("look", _) => read_on(&folder, locking, Mode::Read).await,
            _ => panic!("no such worker: {role}"),
        }
    });
}

fn tell(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // The driver is gone when this fails, and so is the reason to go on.
    if writeln!(out, "@{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes the next number under its own key, and adds one to the counter that all share, for ever.
async fn write_on(folder: &Path, locking: Option<Locking>, number: &str) {
    let store = open(folder, Mode::Write, locking).await.unwrap();
    let partition = format!("writer {number}");
    // The planted fault: what is acknowledged survives nothing.
    let durability = std::env::var("ATOLL_PLANT").is_ok().then_some(Durability::Buffered);
    let options = WriteOptions { durability, ..WriteOptions::default() };
    // Each life begins where no earlier one can have written.
    let start = u64::from(std::process::id()) << 32;
    for sequence in start.. {
        let key = sequence.to_be_bytes();
        match store.put(Cell::new(&partition, &key), &key, options).await {
            Ok(_) => tell(format_args!("wrote {sequence}")),
            Err(error) if error.outcome() == Outcome::Unknown => tell(format_args!("maybe {sequence}")),
            Err(error) => panic!("put: {error} ({error:?})"),
        }
        count_up(&*store).await;
    }
}

async fn count_up(store: &dyn Store) {
    let cell = Cell::new("all", "counter");
    let current = store.get(cell, ReadOptions::default()).await.unwrap();
    let count = current.as_deref().map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    let next = (count + 1).to_le_bytes();
    match store.compare_and_swap(cell, current.as_deref(), &next, WriteOptions::default()).await {
        Ok(_) => tell(format_args!("counted 1")),
        Err(error) if error.kind() == ErrorKind::Conflict => tell(format_args!("lost 1")),
        Err(error) if error.outcome() == Outcome::Unknown => tell(format_args!("maybe-counted 1")),
        Err(error) => panic!("count: {error} ({error:?})"),
    }
}

/// Reads the counter for ever; opening anew now and then, as readers do. It never falls while one and the
/// same writer's store answers.
async fn read_on(folder: &Path, locking: Option<Locking>, mode: Mode) {
    let mut highest = 0;
    loop {
        let store = match open(folder, mode, locking).await {
            Ok(store) => store,
            // A reader that finds no owner reads what is there, which may change under it or not be there yet.
            Err(error) if mode == Mode::Read && error.kind() != ErrorKind::Corrupt => {
                tell(format_args!("read 0"));
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            Err(error) => panic!("open: {error} ({error:?})"),
        };
        for _ in 0..200 {
            let value = match store.get(Cell::new("all", "counter"), ReadOptions::default()).await {
                Ok(value) => value,
                Err(error) if mode == Mode::Read && error.kind() != ErrorKind::Corrupt => break,
                Err(error) => panic!("get as {mode:?}: {error} ({error:?})"),
            };
            let count = value.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()));
            assert!(mode == Mode::Read || count >= highest, "the counter fell from {highest} to {count}");
            highest = highest.max(count);
            tell(format_args!("read {count}"));
        }
        if mode == Mode::Read {
            let refused = store.put(Cell::new("all", "counter"), b"", WriteOptions::default()).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
        }
        drop(store);
    }
}

// ---- the driver

struct Worker {
    role: String,
    child: Child,
    life: usize,
}

struct Driver {
    folder: PathBuf,
    locking: Option<Locking>,
    is_planted: bool,
    workers: Vec<Worker>,
    lives: usize,
    sender: Sender<(usize, Option<String>)>,
    lines: Receiver<(usize, Option<String>)>,
    heard: HashMap<usize, (String, Instant)>,
    wrote: Vec<(String, u64)>,
    counted: u64,
    maybe: u64,
    slowest: Duration,
}

impl Driver {
    fn start(folder: &Path, locking: Option<Locking>, is_planted: bool) -> Self {
        let (sender, lines) = channel();
        let mut driver = Self {
            folder: folder.to_owned(),
            locking,
            is_planted,
            workers: Vec::new(),
            lives: 0,
            sender,
            lines,
            heard: HashMap::new(),
            wrote: Vec::new(),
            counted: 0,
            maybe: 0,
            slowest: Duration::ZERO,
        };
        let writers = (0..WRITERS).map(|number| format!("write {number}"));
        for role in writers.chain(["read 0".into(), "look 0".into()]) {
            let worker = driver.spawn(role);
            driver.workers.push(worker);
        }
        driver
    }

    fn spawn(&mut self, role: String) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker", "--nocapture", "--test-threads", "1"]);
        command.env("ATOLL_WORKER", &role).env("ATOLL_FOLDER", &self.folder);
        if self.locking.is_some() {
            command.env("ATOLL_FILE_LOCK", "1");
        }
        if self.is_planted {
            command.env("ATOLL_PLANT", "1");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        self.lives += 1;
        let (life, sender) = (self.lives, self.sender.clone());
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // The first line shares its own with the test harness.
                if let Some((_, told)) = line.split_once('@') {
                    let _ = sender.send((life, Some(told.to_owned())));
                }
            }
            let _ = sender.send((life, None));
        });
        self.heard.insert(life, (role.clone(), Instant::now()));
        Worker { role, child, life }
    }

    /// Listens until `enough` lines came, and fails if somebody alive falls silent.
    fn listen(&mut self, enough: usize) {
        for _ in 0..enough {
            let Ok(line) = self.lines.recv_timeout(STUCK) else {
                panic!("everybody is stuck:\n{}", self.states());
            };
            self.take(line);
            let now = Instant::now();
            for (role, last) in self.heard.values() {
                let silent = now - *last;
                self.slowest = self.slowest.max(silent);
                assert!(silent < STUCK, "\"{role}\" was silent for {silent:?}:\n{}", self.states());
            }
        }
    }

    /// What every thread of every worker is doing, for whoever has to find out why somebody is stuck.
    fn states(&self) -> String {
        let mut states = format!("owner: worker {:?}\n", self.owner());
        for (index, worker) in self.workers.iter().enumerate() {
            states += &format!("worker {index}, \"{}\", process {}\n", worker.role, worker.child.id());
            let threads = std::fs::read_dir(format!("/proc/{}/task", worker.child.id()));
            for thread in threads.into_iter().flatten().flatten() {
                let read = |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
                let stat = read("stat");
                let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.get(1..2).unwrap_or(""));
                states += &format!(
                    "  {} {state} {} {}\n",
                    read("comm").trim(),
                    read("wchan"),
                    read("syscall").trim()
                );
            }
        }
        states
    }

    fn take(&mut self, (life, line): (usize, Option<String>)) {
        let Some(line) = line else {
            let role = self.heard.remove(&life).map(|(role, _)| role);
            assert!(role.is_none(), "worker {role:?} ended though nobody killed it");
            return;
        };
        let Some((what, number)) = line.split_once(' ') else { return };
        if let Some((_, last)) = self.heard.get_mut(&life) {
            *last = Instant::now();
        }
        match what {
            "wrote" => {
                let role = self.role_of(life);
                self.wrote.push((role, number.parse().unwrap()));
            }
            "counted" => self.counted += 1,
            "maybe-counted" => self.maybe += 1,
            "failed" => panic!("a worker failed: {number}"),
            _ => {}
        }
    }

    fn role_of(&self, life: usize) -> String {
        self.workers.iter().find(|worker| worker.life == life).map(|worker| worker.role.clone()).unwrap()
    }

    /// Kills a worker as `kill -9` does, hears out what it said before, and starts it again.
    fn kill(&mut self, index: usize) {
        let life = self.workers[index].life;
        self.workers[index].child.kill().unwrap();
        self.workers[index].child.wait().unwrap();
        // Its end is no surprise, but what it acknowledged before counts.
        self.heard.remove(&life);
        loop {
            let line = self.lines.recv_timeout(STUCK).expect("the end of a killed worker");
            let is_end = line == (life, None);
            self.take(line);
            if is_end {
                break;
            }
        }
        // A write of its last moment may have been done without a word.
        self.maybe += 1;
        let role = self.workers[index].role.clone();
        self.workers[index] = self.spawn(role);
    }

    fn owner(&self) -> Option<usize> {
        let file = if self.locking.is_some() { "owner" } else { "lock" };
        let record = OwnerRecord::decode(&std::fs::read(self.folder.join(file)).ok()?)?;
        self.workers.iter().position(|worker| worker.child.id() == record.identity.pid)
    }

    fn end(&mut self) {
        for worker in &mut self.workers {
            self.heard.remove(&worker.life);
            worker.child.kill().unwrap();
            worker.child.wait().unwrap();
        }
        let mut ended = 0;
        while ended < self.workers.len() {
            let line = self.lines.recv_timeout(STUCK).expect("the end of all workers");
            ended += usize::from(line.1.is_none());
            self.take(line);
        }
        self.maybe += self.workers.len() as u64;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

async fn count_and_compare(driver: &Driver) {
    let store = open(&driver.folder, Mode::Write, driver.locking).await.unwrap();
    for (role, sequence) in &driver.wrote {
        let partition = role.replace("write", "writer");
        let key = sequence.to_be_bytes();
        let value = store.get(Cell::new(&partition, &key), ReadOptions::default()).await.unwrap();
        assert_eq!(value.as_deref(), Some(&key[..]), "{role} lost {sequence}, which was acknowledged");
    }
    let counter = store.get(Cell::new("all", "counter"), ReadOptions::default()).await.unwrap();
    let count = counter.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()));
    let (least, most) = (driver.counted, driver.counted + driver.maybe);
    assert!(
        (least..=most).contains(&count),
        "{count} counted, {least} acknowledged, at most {most} possible"
    );
    let page = store.scan(ScanRequest::all(*b"all")).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    store.close().await.unwrap();
}

fn run(rounds: u64, seed: u64, locking: Option<Locking>, is_planted: bool) {
    // In memory where there is such a place: how long a busy disk takes to sync is not what is measured, and
    // what survives the end of a process does not depend on it. `ATOLL_AT` names another place.
    let place = match std::env::var("ATOLL_AT") {
        Ok(folder) => tempfile::tempdir_in(folder).expect("the folder that ATOLL_AT names"),
        Err(_) => tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap(),
    };
    let folder = place.path().join("store");
    std::fs::create_dir(&folder).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    println!("seed {seed}, {rounds} rounds");
    let mut driver = Driver::start(&folder, locking, is_planted);
    driver.listen(500);
    let mut owners = 0;
    for round in 0..rounds {
        let owner = driver.owner().filter(|_| round % 2 == 0);
        owners += u64::from(owner.is_some());
        let index = owner.unwrap_or_else(|| random.usize(..driver.workers.len()));
        driver.kill(index);
        driver.listen(random.usize(200..1000));
    }
    driver.end();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(count_and_compare(&driver));
    println!(
        "{} writes acknowledged, {} counted, {owners} owners killed, longest silence {:?}",
        driver.wrote.len(),
        driver.counted,
        driver.slowest
    );
    assert!(driver.wrote.len() > 100 && driver.counted > 10 && owners > 0);
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn whoever_is_killed_nothing_acknowledged_is_lost_and_nobody_is_stuck() {
    if std::env::var("ATOLL_WORKER").is_err() {
        run(setting("ATOLL_ROUNDS", 10), setting("ATOLL_SEED", 1), None, false);
    }
}

#[test]
fn the_same_holds_with_lock_files_as_on_network_file_systems() {
    if std::env::var("ATOLL_WORKER").is_err() {
        run(setting("ATOLL_ROUNDS", 10), setting("ATOLL_SEED", 2), Some(Locking::File), false);
    }
}

#[test]
fn a_store_that_loses_what_it_acknowledged_is_found_out() {
    if std::env::var("ATOLL_WORKER").is_err() {
        let outcome = std::panic::catch_unwind(|| run(10, 3, None, true));
        let message = outcome.expect_err("the planted loss was not noticed");
        let message = message.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(message.contains("which was acknowledged"), "{message}");
    }
}
