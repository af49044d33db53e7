//! Starts the workers, hears what they tell, and kills them.

use super::workers::Told;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const WRITERS: u64 = 4;
/// No worker may be silent for longer.
const STUCK: Duration = Duration::from_secs(10);

struct Worker {
    role: String,
    child: Child,
    life: usize,
}

pub struct Driver {
    folder: PathBuf,
    is_planted: bool,
    workers: Vec<Worker>,
    lives: usize,
    sender: Sender<(usize, Option<String>)>,
    lines: Receiver<(usize, Option<String>)>,
    heard: HashMap<usize, (String, Instant)>,
    told: BTreeMap<i64, Told>,
    slowest: Duration,
}

impl Driver {
    pub fn start(folder: &Path, is_planted: bool) -> Self {
        let (sender, lines) = channel();
        let mut driver = Self {
            folder: folder.to_owned(),
            is_planted,
            workers: Vec::new(),
            lives: 0,
            sender,
            lines,
            heard: HashMap::new(),
            told: BTreeMap::new(),
            slowest: Duration::ZERO,
        };
        let writers = (0..WRITERS).map(|number| format!("write {number}"));
        for role in writers.chain(["read 0".into(), "look 0".into()]) {
            let worker = driver.spawn(role);
            driver.workers.push(worker);
        }
        driver
    }

    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    pub fn told(&self) -> &BTreeMap<i64, Told> {
        &self.told
    }

    pub fn slowest(&self) -> Duration {
        self.slowest
    }

    fn spawn(&mut self, role: String) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker", "--nocapture", "--test-threads", "1"]);
        command.env("ATOLL_WORKER", &role).env("ATOLL_FOLDER", &self.folder);
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
    pub fn listen(&mut self, enough: usize) {
        for _ in 0..enough {
            let line = self.lines.recv_timeout(STUCK).expect("everybody is stuck");
            self.take(line);
            let now = Instant::now();
            for (role, last) in self.heard.values() {
                let silent = now - *last;
                self.slowest = self.slowest.max(silent);
                assert!(silent < STUCK, "\"{role}\" was silent for {silent:?}");
            }
        }
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
        assert!(what != "failed", "a worker failed: {number}");
        let Some(role) = self.workers.iter().find(|worker| worker.life == life) else { return };
        let Some(writer) = role.role.strip_prefix("write ") else { return };
        let (told, number) = (self.told.entry(writer.parse().unwrap()).or_default(), number.parse().unwrap());
        match what {
            "wrote" => {
                told.wrote = told.wrote.max(Some(number));
                told.steps += 1;
            }
            "deleting" => told.deleting = told.deleting.max(number),
            "deleted" => told.deleted = told.deleted.max(number),
            _ => {}
        }
    }

    /// Kills a worker as `kill -9` does, hears out what it said before, and starts it again.
    pub fn kill(&mut self, index: usize) {
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
        let role = self.workers[index].role.clone();
        self.workers[index] = self.spawn(role);
    }

    pub fn end(&mut self) {
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
