//! Processes that are killed: a test program starts itself again as its workers, hears what they tell, kills
//! one after the other with signal 9, starts it again, and fails if somebody alive falls silent.
//!
//! A worker tells a line of a word and a number, by [`tell`]. A line that begins with `failed` fails the
//! test.
//!
//! Invariant: what a worker told before it was killed is heard.
//! Invariant: who ended by himself does not count as killed, however soon before.
//! Invariant: nobody is silent whose line is here and not looked at yet, nor while this process stands still
//! itself.
// What is here runs in tests alone, and a test that cannot go on panics.
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

/// The variable that tells a worker its role.
const ROLE: &str = "ATOLL_WORKER";
/// The variable that tells a worker its folder.
const FOLDER: &str = "ATOLL_FOLDER";

/// Whether this process is a worker, which its own tests must leave alone.
#[must_use]
pub fn is_worker() -> bool {
    std::env::var(ROLE).is_ok()
}

/// What the test named `worker` does: the work of its role, in the folder, if this process is a worker.
pub fn work(work: impl FnOnce(&str, &Path)) {
    let Ok(role) = std::env::var(ROLE) else { return };
    // Told at once: a worker that fails at the very end is killed before it has ended by itself.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(format_args!("failed {}", panic.to_string().replace('\n', " ")));
        report(panic);
    }));
    work(&role, &PathBuf::from(std::env::var(FOLDER).unwrap()));
}

/// Tells the driver a line.
pub fn tell(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // The driver is gone when this fails, and so is the reason to go on.
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
    /// Variables that they are told beside role and folder.
    pub environment: Vec<(&'static str, &'static str)>,
    /// No worker may be silent for longer.
    pub silence_max: Duration,
}

/// A clock that stands while this process does: a machine that stands still says nothing of the workers on
/// it.
#[derive(Clone)]
struct Awake(Arc<AtomicU32>);

/// How far it goes at a time.
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

    /// How long it has gone.
    fn now(&self) -> Duration {
        STEP * self.0.load(Ordering::Relaxed)
    }
}

/// A line of a worker, or its end.
struct Heard {
    life: usize,
    line: Option<String>,
    /// When it came.
    at: Duration,
}

/// How long the end of a process that was killed may take to be heard, on any machine.
const END: Duration = Duration::from_secs(60);

struct Worker {
    role: String,
    child: Child,
    life: usize,
}

impl Worker {
    /// Kills it, if it has not ended, and tells how it ended.
    fn kill(&mut self) -> ExitStatus {
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }
}

/// The signal that nobody can refuse.
const KILL: i32 = 9;

/// What it told was heard by now; a worker that fails says why.
fn assert_killed(role: &str, status: ExitStatus) {
    assert!(status.signal() == Some(KILL), "worker \"{role}\" ended before it was killed: {status}");
}

/// Starts workers, hears them, and kills them. `T` is what they told.
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
    /// What was told so far.
    pub told: T,
}

impl<T> Driver<T> {
    /// Starts the workers. `hear` takes in what one tells: its role, the word and the number.
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

    /// The longest that somebody was silent.
    #[must_use]
    pub fn slowest(&self) -> Duration {
        self.slowest
    }

    /// Where they work.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.plan.folder
    }

    /// Which worker is the process with this number.
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
                // The first line shares its own with the test harness.
                if let Some((_, told)) = line.split_once('@') {
                    sender.send(Heard { life, line: Some(told.to_owned()), at: clock.now() }).ok();
                }
            }
            sender.send(Heard { life, line: None, at: clock.now() }).ok();
        });
        self.heard.insert(life, (role.clone(), self.clock.now()));
        Worker { role, child, life }
    }

    /// Listens until `enough` lines came, and fails if somebody alive falls silent.
    pub fn listen(&mut self, enough: usize) {
        for _ in 0..enough {
            let heard = self.next();
            self.take(heard);
        }
    }

    /// The next line. Nobody is found silent before all that came was taken.
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

    /// Fails if somebody alive told nothing for too long.
    fn look_who_is_silent(&mut self) {
        let now = self.clock.now();
        for (role, last) in self.heard.values() {
            let silent = now.saturating_sub(*last);
            self.slowest = self.slowest.max(silent);
            let is_stuck = silent >= self.plan.silence_max;
            assert!(!is_stuck, "\"{role}\" was silent for {silent:?}:\n{}", self.states());
        }
    }

    /// What every thread of every worker is doing, for whoever has to find out why somebody is stuck.
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

    /// Kills a worker as `kill -9` does, hears out what it said before, and starts it again.
    pub fn kill(&mut self, index: usize) {
        let life = self.workers[index].life;
        let status = self.workers[index].kill();
        // Its end is no surprise, but what it acknowledged before counts.
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

    /// Kills them all, and hears them out.
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
