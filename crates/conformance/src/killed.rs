//! Tests that kill processes: a test program starts itself again as its workers, reads the lines that they
//! report, kills one after another with signal 9, starts it again, and fails if a live worker falls silent.
//!
//! A worker reports a line of a word and a number by [`tell`]. A line that begins with `failed` fails the
//! test.
//!
//! Invariant: every line that a worker reported before it was killed is read.
//! Invariant: a worker that ended by itself does not count as killed, however soon before the kill it ended.
//! Invariant: a worker does not count as silent while a line of it is still unread, or while this process
//! itself is stalled.
// This module runs only in tests, and a test that cannot go on panics.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The environment variable with a worker's role.
const ROLE: &str = "ATOLL_WORKER";
/// The environment variable with a worker's folder.
const FOLDER: &str = "ATOLL_FOLDER";

/// Whether this process is a worker, in which the other tests of the program must not run.
#[must_use]
pub fn is_worker() -> bool {
    std::env::var(ROLE).is_ok()
}

/// The body of the test named `worker`: does the work of its role, in its folder, if this process is a
/// worker.
pub fn work(work: impl FnOnce(&str, &Path)) {
    let Ok(role) = std::env::var(ROLE) else { return };
    // Reported at once: a worker that fails at the very end may be killed before it has ended by itself.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(format_args!("failed {}", panic.to_string().replace('\n', " ")));
        report(panic);
    }));
    work(&role, &PathBuf::from(std::env::var(FOLDER).unwrap()));
}

/// Reports a line to the driver.
pub fn tell(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // If this fails, the driver is gone, and with it the reason to go on.
    if writeln!(out, "@{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Which workers to start, and how.
pub struct Workers {
    /// Their roles, such as `write 3`.
    pub roles: Vec<String>,
    /// Where they work.
    pub folder: PathBuf,
    /// Environment variables to set besides role and folder.
    pub environment: Vec<(&'static str, &'static str)>,
    /// The longest that a worker may be silent.
    pub silence_max: Duration,
}

/// A clock that stops while this process is stalled: a stalled machine proves nothing about the workers on
/// it.
#[derive(Clone)]
struct Awake(Arc<AtomicU32>);

/// The step of the clock.
const STEP: Duration = Duration::from_millis(10);

impl Awake {
    fn start() -> Self {
        let steps: Arc<AtomicU32> = Arc::default();
        let going: Weak<AtomicU32> = Arc::downgrade(&steps);
        std::thread::spawn(move || {
            while let Some(steps) = going.upgrade() {
                steps.fetch_add(1, Ordering::Relaxed);
                drop(steps);
                std::thread::sleep(STEP);
            }
        });
        Self(steps)
    }

    /// How long the clock has run.
    fn now(&self) -> Duration {
        STEP * self.0.load(Ordering::Relaxed)
    }
}

/// A line of a worker, or its end.
struct Heard {
    life: usize,
    line: Option<String>,
    /// When it was read.
    at: Duration,
}

/// How long it may take on any machine until the end of a killed process is noticed.
const END: Duration = Duration::from_secs(60);

struct Worker {
    role: String,
    child: Child,
    life: usize,
}

impl Worker {
    /// Kills it, if it has not ended, and returns how it ended.
    fn kill(&mut self) -> ExitStatus {
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }
}

/// The signal that no process can block.
const KILL: i32 = 9;

/// Fails unless the worker was killed. Its lines were read by now, and a worker that fails reports why.
fn assert_killed(role: &str, status: ExitStatus) {
    assert!(status.signal() == Some(KILL), "worker \"{role}\" ended before it was killed: {status}");
}

/// Starts workers, reads their lines, and kills them. `T` collects what they reported.
pub struct Driver<T> {
    plan: Workers,
    workers: Vec<Worker>,
    lives: usize,
    clock: Awake,
    sender: Sender<Heard>,
    lines: Receiver<Heard>,
    heard: HashMap<usize, (String, Duration)>,
    slowest: Duration,
    hear: fn(&mut T, &str, &str, &str),
    /// What was reported so far.
    pub told: T,
}

impl<T> Driver<T> {
    /// Starts the workers. `hear` takes in one line: the worker's role, the word and the number.
    pub fn start(plan: Workers, told: T, hear: fn(&mut T, &str, &str, &str)) -> Self {
        let (sender, lines) = channel();
        let (workers, clock) = (Vec::new(), Awake::start());
        let (heard, slowest) = (HashMap::new(), Duration::ZERO);
        let mut driver = Self { plan, workers, lives: 0, clock, sender, lines, heard, slowest, hear, told };
        for role in driver.plan.roles.clone() {
            let worker = driver.spawn(role);
            driver.workers.push(worker);
        }
        driver
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The longest that a worker was silent.
    #[must_use]
    pub fn slowest(&self) -> Duration {
        self.slowest
    }

    /// Where they work.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.plan.folder
    }

    /// The worker with this process id.
    #[must_use]
    pub fn worker_of(&self, process: u32) -> Option<usize> {
        self.workers.iter().position(|worker| worker.child.id() == process)
    }

    fn spawn(&mut self, role: String) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker", "--nocapture", "--test-threads", "1"]);
        command.env(ROLE, &role).env(FOLDER, &self.plan.folder);
        command.envs(self.plan.environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        self.lives += 1;
        let (life, clock, sender) = (self.lives, self.clock.clone(), self.sender.clone());
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // The first report shares its line with output of the test harness.
                if let Some((_, told)) = line.split_once('@') {
                    sender.send(Heard { life, line: Some(told.to_owned()), at: clock.now() }).ok();
                }
            }
            sender.send(Heard { life, line: None, at: clock.now() }).ok();
        });
        self.heard.insert(life, (role.clone(), self.clock.now()));
        Worker { role, child, life }
    }

    /// Listens until `enough` lines came, and fails if a live worker falls silent.
    pub fn listen(&mut self, enough: usize) {
        for _ in 0..enough {
            let heard = self.next();
            self.take(heard);
        }
    }

    /// The next line. Silence is judged only after every line that arrived was taken.
    fn next(&mut self) -> Heard {
        loop {
            if let Ok(heard) = self.lines.try_recv() {
                return heard;
            }
            self.look_who_is_silent();
            if let Ok(heard) = self.lines.recv_timeout(STEP) {
                return heard;
            }
        }
    }

    /// Fails if a live worker reported nothing for too long.
    fn look_who_is_silent(&mut self) {
        let now = self.clock.now();
        for (role, last) in self.heard.values() {
            let silent = now.saturating_sub(*last);
            self.slowest = self.slowest.max(silent);
            let is_stuck = silent >= self.plan.silence_max;
            assert!(!is_stuck, "\"{role}\" was silent for {silent:?}:\n{}", self.states());
        }
    }

    /// What every thread of every worker is doing, to help find out why one is stuck.
    fn states(&self) -> String {
        let mut states = String::new();
        for (index, worker) in self.workers.iter().enumerate() {
            states += &format!("worker {index}, \"{}\", process {}\n", worker.role, worker.child.id());
            let threads = std::fs::read_dir(format!("/proc/{}/task", worker.child.id()));
            for thread in threads.into_iter().flatten().flatten() {
                let read = |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
                let stat = read("stat");
                let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.get(1..2).unwrap_or(""));
                let (name, waits, call) = (read("comm"), read("wchan"), read("syscall"));
                states += &format!("  {} {state} {waits} {}\n", name.trim(), call.trim());
            }
        }
        states
    }

    fn take(&mut self, Heard { life, line, at }: Heard) {
        let Some(line) = line else {
            let role = self.heard.remove(&life).map(|(role, _)| role);
            assert!(role.is_none(), "worker {role:?} ended though nobody killed it");
            return;
        };
        let Some((what, number)) = line.split_once(' ') else { return };
        if let Some((_, last)) = self.heard.get_mut(&life) {
            self.slowest = self.slowest.max(at.saturating_sub(*last));
            *last = at;
        }
        assert!(what != "failed", "a worker failed: {number}");
        if let Some(worker) = self.workers.iter().find(|worker| worker.life == life) {
            (self.hear)(&mut self.told, &worker.role, what, number);
        }
    }

    /// Kills a worker as `kill -9` does, reads the rest of its lines, and starts it again.
    pub fn kill(&mut self, index: usize) {
        let life = self.workers[index].life;
        let status = self.workers[index].kill();
        // Its end is expected, but what it acknowledged before still counts.
        self.heard.remove(&life);
        loop {
            let heard = self.lines.recv_timeout(END).expect("the end of a killed worker");
            let is_end = heard.life == life && heard.line.is_none();
            self.take(heard);
            if is_end {
                break;
            }
        }
        let role = self.workers[index].role.clone();
        assert_killed(&role, status);
        self.workers[index] = self.spawn(role);
    }

    /// Kills all workers, and reads the rest of their lines.
    pub fn end(&mut self) {
        let mut statuses = Vec::new();
        for worker in &mut self.workers {
            self.heard.remove(&worker.life);
            statuses.push(worker.kill());
        }
        let mut ended = 0;
        while ended < self.workers.len() {
            let heard = self.lines.recv_timeout(END).expect("the end of all workers");
            ended += usize::from(heard.line.is_none());
            self.take(heard);
        }
        self.workers.iter().zip(statuses).for_each(|(worker, status)| assert_killed(&worker.role, status));
    }
}

impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.child.kill().ok();
            worker.child.wait().ok();
        }
    }
}
