//! One schedule from its beginning to its verdict, on its own hosts.

use super::asker::Asker;
use super::book::{Book, Counts};
use super::final_checks::{look_up, write_every_slot};
use super::lane::Lane;
use super::plan::{Fault, Plan};
use super::service::{self, Scene, Service};
use super::shared::{Caller, Contender, History, Judged, judge};
use super::stage::Stage;
use super::{HOSTS, Spec, with_sources};
use crate::cut::{
    AtollRing, Cluster, CutError, Hosts, PacedReport, milliseconds_now, run_until, wait_until_well,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long clients of a host wait for an answer: some give up before a short pause ends, some outlast a
/// long one.
const PATIENCE_MS: [u64; 5] = [400, 400, 1_000, 2_500, 6_000];
/// The same for clients that contend for shared keys.
const CONTENDER_PATIENCE_MS: [u64; 2] = [400, 1_500];
/// The limit until every slot is served again after everything has healed.
const SERVED_TIME_MAX: Duration = Duration::from_secs(60);
/// The limit until all copies are in sync.
const WHOLE_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(60);
/// How long clients continue after everything serves again.
const GO_ON: Duration = Duration::from_millis(500);
/// How long the final checks wait for one answer.
const LOOK_PATIENCE: Duration = Duration::from_millis(1_500);

/// The result of a schedule.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// The schedule.
    pub plan: Plan,
    /// What clients did and found.
    pub counts: Counts,
    /// The results of clients that contended for a few keys.
    #[serde(default)]
    pub shared: Judged,
    /// What the majority's side got while a host was cut off.
    #[serde(default)]
    pub service: Service,
    /// Seconds to write to each slot of a healthy ring without any other load.
    pub calm_seconds: Option<f64>,
    /// Seconds from the end of the last fault until each slot accepted a write.
    pub served_seconds: Option<f64>,
    /// What delayed the last slots, according to the nodes.
    pub held_up_by: String,
    /// Seconds until every slot had all its copies.
    pub whole_seconds: Option<f64>,
    /// Descriptions of what went wrong.
    pub told: Vec<String>,
    /// Why it did not finish, if it did not.
    pub problem: Option<String>,
    /// Nodes that ended by themselves.
    pub crashes: Vec<String>,
    /// The nodes' view of the ring, if it did not finish.
    #[serde(default)]
    pub states: Vec<String>,
    /// The folder with logs and stores of a schedule that went wrong.
    pub kept: Option<PathBuf>,
}

impl Outcome {
    /// Whether nothing went wrong.
    pub fn is_well(&self) -> bool {
        let counts = &self.counts;
        let bad = counts.lost + counts.stale + counts.foreign + counts.unanswered;
        let is_found_well = bad == 0 && self.shared.is_well() && self.service.is_well();
        is_found_well && self.problem.is_none() && self.crashes.is_empty()
    }
}

/// Runs a schedule.
pub fn run(plan: &Plan, spec: &Spec, folder: &Path) -> Outcome {
    let mut outcome = Outcome {
        plan: plan.clone(),
        counts: Counts::default(),
        shared: Judged::default(),
        service: Service::default(),
        calm_seconds: None,
        served_seconds: None,
        held_up_by: String::new(),
        whole_seconds: None,
        told: Vec::new(),
        problem: None,
        crashes: Vec::new(),
        states: Vec::new(),
        kept: None,
    };
    let book = Arc::new(Book::new(HOSTS * PATIENCE_MS.len()));
    let history = Arc::new(History::new());
    let begun = Hosts::make(HOSTS).map_err(CutError::from).and_then(|hosts| {
        let mut ring = AtollRing::on(hosts, folder.to_owned(), spec.program.clone(), plan.keeping);
        ring.start()?;
        Ok(Stage::with(ring))
    });
    let ended = begun.and_then(|mut stage| {
        let clients = Clients { book: &book, history: &history, is_planted: spec.is_planted };
        let ended = play(plan, &mut stage, clients, &mut outcome);
        let looked = stage.look_for_crashes();
        outcome.crashes = std::mem::take(&mut stage.crashes);
        if ended.is_err() {
            outcome.states = stage.ring.states();
        }
        stage.ring.stop();
        ended.and(looked)
    });
    outcome.problem = ended.err().map(|error| with_sources(&error));
    outcome.counts = book.counts();
    outcome.shared = judge(&history, plan.seed, folder);
    outcome.told = book.told();
    outcome
}

/// The records of clients.
#[derive(Clone, Copy)]
struct Clients<'a> {
    book: &'a Arc<Book>,
    history: &'a Arc<History>,
    is_planted: bool,
}

fn play(plan: &Plan, stage: &mut Stage, clients: Clients<'_>, outcome: &mut Outcome) -> Result<(), CutError> {
    let (stop, begun_at, mut scenes) = (AtomicBool::new(false), Instant::now(), Vec::new());
    wait_until_served(stage, plan.seed)?;
    outcome.calm_seconds = Some(begun_at.elapsed().as_secs_f64());
    let reports = std::thread::scope(|scope| {
        let started = start_clients(scope, stage, clients.book, plan.seed, &stop).and_then(|mut all| {
            all.extend(start_contenders(scope, stage, clients, plan.seed, &stop)?);
            Ok((all, start_paced(scope, stage, plan.seed, &stop)?))
        });
        let played = started.and_then(|started| {
            let healed_at = make_happen(plan, stage, &mut scenes)?;
            outcome.held_up_by = wait_until_served(stage, plan.seed)?;
            outcome.served_seconds = Some(healed_at.elapsed().as_secs_f64());
            let is_whole = || {
                stage.look_for_crashes()?;
                stage.ring.is_whole()
            };
            wait_until_well(
                "until all copies are in sync after everything healed",
                WHOLE_TIME_MAX,
                is_whole,
            )?;
            outcome.whole_seconds = Some(healed_at.elapsed().as_secs_f64());
            std::thread::sleep(GO_ON);
            Ok(started)
        });
        stop.store(true, SeqCst);
        let (all, paced) = played?;
        all.into_iter().try_for_each(joined).map_err(CutError::io("run a client on its host"))?;
        let reports: io::Result<Vec<PacedReport>> = paced.into_iter().map(joined).collect();
        reports.map_err(CutError::io("ask at a pace"))
    })?;
    outcome.service = service::judge(&scenes, &reports);
    on_host(stage, 0, |mut asker| look_up(&mut asker, clients.book, LOOK_UP_TIME_MAX), plan.seed)
}

/// A client that runs until it is told to stop. It fails if it cannot enter its host: without it the schedule
/// would prove less than it says.
type Client<'scope> = ScopedJoinHandle<'scope, io::Result<()>>;

/// The result of a thread that has ended; one that panicked has failed.
fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

fn start_clients<'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: &Stage,
    book: &Arc<Book>,
    seed: u64,
    stop: &'scope AtomicBool,
) -> Result<Vec<Client<'scope>>, CutError> {
    let (nodes, mut started) = (stage.ring.addresses(), Vec::new());
    for number in 0..HOSTS * PATIENCE_MS.len() {
        let network = stage.ring.hosts().network(number % HOSTS)?;
        let patience = Duration::from_millis(PATIENCE_MS[number / HOSTS]);
        let seed = seed.wrapping_mul(1_000).wrapping_add(number as u64);
        let asker = Asker::new(&nodes, AtollRing::TOKEN, patience, seed);
        let lane = Lane::new(number, asker, Arc::clone(book), seed);
        started.push(scope.spawn(move || {
            network.enter()?;
            lane.run(stop);
            Ok(())
        }));
    }
    Ok(started)
}

fn start_contenders<'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: &Stage,
    clients: Clients<'_>,
    seed: u64,
    stop: &'scope AtomicBool,
) -> Result<Vec<Client<'scope>>, CutError> {
    let (nodes, mut started) = (stage.ring.addresses(), Vec::new());
    for number in 0..HOSTS * CONTENDER_PATIENCE_MS.len() {
        let network = stage.ring.hosts().network(number % HOSTS)?;
        let patience = Duration::from_millis(CONTENDER_PATIENCE_MS[number / HOSTS]);
        let seed = seed.wrapping_mul(1_000).wrapping_add(500 + number as u64);
        let caller = Caller::new(&nodes, AtollRing::TOKEN, patience, seed);
        let is_planted = clients.is_planted && number == 0;
        let contender = Contender::new(number, caller, Arc::clone(clients.history), seed, is_planted);
        started.push(scope.spawn(move || {
            network.enter()?;
            contender.run(stop);
            Ok(())
        }));
    }
    Ok(started)
}

/// A client at a fixed pace, until it is told to stop.
type Paced<'scope> = ScopedJoinHandle<'scope, io::Result<PacedReport>>;

/// Starts a client on each host that sends requests at a fixed pace.
fn start_paced<'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: &Stage,
    seed: u64,
    stop: &'scope AtomicBool,
) -> Result<Vec<Paced<'scope>>, CutError> {
    let (nodes, mut paced) = (stage.ring.addresses(), Vec::new());
    for host in 0..HOSTS {
        let network = stage.ring.hosts().network(host)?;
        let spec = service::pace(host, &nodes, seed.wrapping_mul(1_000).wrapping_add(700 + host as u64));
        paced.push(scope.spawn(move || {
            network.enter()?;
            run_until(&spec, stop)
        }));
    }
    Ok(paced)
}

/// Begins and ends each fault in its time, and records each change; returns the moment at which the last one
/// ended.
fn make_happen(plan: &Plan, stage: &mut Stage, scenes: &mut Vec<Scene>) -> Result<Instant, CutError> {
    let start = Instant::now();
    let mut delayed = Duration::ZERO;
    for moment_ms in plan.moments() {
        let due = start + delayed + Duration::from_millis(moment_ms);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if plan.needs_all_copies(moment_ms) {
            let waits_from = Instant::now();
            change(stage, plan.going_on(moment_ms), scenes)?;
            wait_until_well("until all copies are in sync before a kill", WHOLE_TIME_MAX, || {
                stage.ring.is_whole()
            })?;
            delayed += waits_from.elapsed();
        }
        change(stage, plan.active(moment_ms), scenes)?;
    }
    Ok(Instant::now())
}

/// Brings about exactly these faults, and records when.
fn change(stage: &mut Stage, faults: Vec<Fault>, scenes: &mut Vec<Scene>) -> Result<(), CutError> {
    // Nodes in trouble are not asked: they would keep the schedule waiting. If one does not answer, it is not
    // known that nothing is missing.
    let is_calm = scenes.last().is_none_or(|last| last.faults.is_empty());
    let was_whole = is_calm && !faults.is_empty() && stage.ring.is_whole().unwrap_or(false);
    let from_ms = milliseconds_now();
    stage.make(&faults)?;
    scenes.push(Scene { from_ms, made_ms: milliseconds_now(), faults, was_whole });
    Ok(())
}

fn wait_until_served(stage: &mut Stage, seed: u64) -> Result<String, CutError> {
    on_host(stage, 1, |mut asker| write_every_slot(&mut asker, HOSTS, SERVED_TIME_MAX), seed)?
}

/// Runs a function as a client on a host.
fn on_host<T: Send>(
    stage: &Stage,
    host: usize,
    work: impl FnOnce(Asker) -> T + Send,
    seed: u64,
) -> Result<T, CutError> {
    let network = stage.ring.hosts().network(host)?;
    let asker = Asker::new(&stage.ring.addresses(), AtollRing::TOKEN, LOOK_PATIENCE, seed);
    let enter = CutError::io(format!("enter host {host}"));
    let done = std::thread::scope(|scope| {
        scope.spawn(move || network.enter().map_err(enter).map(|()| work(asker))).join()
    });
    done.unwrap_or_else(|_| Err(CutError::NothingServed))
}
