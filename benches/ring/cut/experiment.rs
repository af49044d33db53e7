//! The experiment: start, write on both sides, cut, wait, heal, look everything up.

use super::atoll_ring::AtollRing;
use super::cluster::{Cluster, HOSTS, wait_until_well};
use super::redis_cluster::RedisCluster;
use super::{CutError, Hosts, Task, before, beside, child, count, milliseconds_now, paced, possible};
use crate::machine::MachineTime;
use crate::phases::NOT_OFFERED;
use crate::schedules::Keeping;
use crate::servers::{BenchPaths, is_installed};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// The host that is cut off; the paced client and the lookups run on another one.
const CUT: usize = 0;
const MAJORITY: usize = 1;
const RATE: u64 = 2_000;
const ANSWER_MS_MAX: u64 = 1_000;
const WHOLE_AGAIN_MAX: Duration = Duration::from_secs(60);
const COUNT_MS_MAX: u64 = 60_000;
/// The limit for the whole experiment, over all clusters.
const TIME_MAX: Duration = Duration::from_secs(600);
/// How much longer than its instructions say a child may take.
const CHILD_GRACE: Duration = Duration::from_secs(20);

/// How long both sides write before the cut, and from the cut until the network heals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Times {
    /// Before the cut.
    pub before_ms: u64,
    /// From the cut until it heals.
    pub cut_ms: u64,
}

/// The results of one cluster.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct OfCluster {
    /// Its name.
    pub name: String,
    /// Writes acknowledged next to the primary that was cut off.
    pub beside_acknowledged: u64,
    /// How many of them were acknowledged after the cut.
    pub beside_after_cut: u64,
    /// Seconds from the cut until the last of them.
    pub beside_seconds: f64,
    /// The first error there.
    pub first_error: Option<String>,
    /// What became of them.
    pub beside: count::Report,
    /// Writes acknowledged on the majority's side.
    pub majority_acknowledged: u64,
    /// What became of them.
    pub majority: count::Report,
    /// Requests of the majority's side before the cut.
    pub calm: paced::Bin,
    /// The same from the cut on.
    pub after_cut: paced::Bin,
    /// The same from three seconds after the cut on.
    pub later: paced::Bin,
    /// Reads that found nothing or something other than the acknowledged value.
    pub wrong_reads: u64,
    /// Refusals on the majority's side, by their first word.
    pub refusals: std::collections::BTreeMap<String, u64>,
    /// Seconds from healing until every slot was served and copied again.
    pub whole_again_seconds: f64,
    /// Share of the machine that the host of the virtual machine took.
    pub stolen: f64,
}

impl OfCluster {
    /// Acknowledged writes that are missing or wrong.
    pub fn lost(&self) -> u64 {
        self.beside.missing + self.beside.wrong + self.majority.missing + self.majority.wrong
    }

    /// Acknowledged writes that no node answered for.
    pub fn unanswered(&self) -> u64 {
        self.beside.unanswered + self.majority.unanswered
    }
}

/// The results of the phase.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Findings {
    /// The results by cluster.
    pub measured: Vec<OfCluster>,
    /// Clusters that could not be measured, and why.
    pub missing: Vec<(String, String)>,
}

/// Which cluster is cut.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterKind {
    /// Ours, with this program.
    Atoll(PathBuf),
    /// The rival's.
    Redis,
}

impl ClusterKind {
    fn name(&self) -> &'static str {
        match self {
            Self::Atoll(_) => "atoll",
            Self::Redis => "redis",
        }
    }

    /// Checks that all its programs are installed.
    fn is_there(&self) -> Result<(), CutError> {
        let programs: &[&str] =
            if matches!(self, Self::Redis) { &["redis-server", "redis-cli"] } else { &[] };
        match programs.iter().find(|program| !is_installed(program)) {
            Some(&program) => Err(CutError::NotInstalled { program }),
            None => Ok(()),
        }
    }
}

/// Runs the phase in a child that may make namespaces, as root or in a user namespace.
pub fn run(peers: bool, times: Times, place: &BenchPaths) -> Result<Findings, CutError> {
    let out = place.folder.join("cut.json");
    if place.atoll.is_some() || peers {
        possible()?;
    }
    let clusters: Vec<ClusterKind> = place
        .atoll
        .iter()
        .cloned()
        .map(ClusterKind::Atoll)
        .chain(peers.then_some(ClusterKind::Redis))
        .collect();
    let told = [child::text(&clusters)?, child::text(&times)?].map(OsString::from);
    let words = [vec!["cut".into(), place.folder.clone().into()], told.into(), vec![out.clone().into()]];
    let child = child::spawn(before(), &words.concat())?;
    child::wait_for(child, "the whole experiment", TIME_MAX)?;
    let mut findings: Findings = child::read(&out)?;
    if place.atoll.is_none() {
        let why = format!("{NOT_OFFERED} yet: no program of Atoll was named");
        findings.missing.push(("atoll".to_owned(), why));
    }
    Ok(findings)
}

/// The phase itself: each cluster in turn, on its own hosts.
pub fn inside(folder: &Path, clusters: &[ClusterKind], times: Times, out: &Path) -> Result<(), CutError> {
    let mut findings = Findings::default();
    for whose in clusters {
        let folder = folder.join(format!("cut-{}", whose.name()));
        std::fs::create_dir_all(&folder).map_err(CutError::io("make a folder for a cluster"))?;
        let hosts = whose.is_there().and_then(|()| Ok(Hosts::make(HOSTS)?));
        let found = hosts.and_then(|hosts| {
            let mut cluster: Box<dyn Cluster> = match whose {
                ClusterKind::Atoll(program) => {
                    Box::new(AtollRing::on(hosts, folder.clone(), program.clone(), Keeping::Memory))
                }
                ClusterKind::Redis => Box::new(RedisCluster::on(hosts, folder.clone())),
            };
            let found = experiment(&mut *cluster, times, &folder);
            cluster.stop();
            found
        });
        match found {
            Ok(found) => findings.measured.push(found),
            Err(error) => {
                findings.missing.push((whose.name().to_owned(), crate::phases::with_sources(&error)));
            }
        }
    }
    std::fs::write(out, child::text(&findings)?).map_err(CutError::io("write what was found"))
}

fn experiment(cluster: &mut dyn Cluster, times: Times, folder: &Path) -> Result<OfCluster, CutError> {
    cluster.start()?;
    let machine = MachineTime::now();
    let addresses = cluster.addresses();
    let run_ms = times.before_ms + times.cut_ms;
    let beside = Task::Beside(beside::Spec { address: addresses[CUT], token: cluster.token(), run_ms });
    // Requests of the last second are answered, or late, before the network heals.
    let paced = Task::Paced(paced::Spec {
        addresses: (1..=HOSTS).map(|host| addresses[(CUT + host) % HOSTS]).collect(),
        token: cluster.token(),
        rate: RATE,
        run_ms: run_ms.saturating_sub(ANSWER_MS_MAX),
        answer_ms_max: ANSWER_MS_MAX,
        seed: 7,
        numbers_above: 0,
    });
    let (beside, paced) = (
        Running::start(&beside, cluster.hosts(), CUT, folder)?,
        Running::start(&paced, cluster.hosts(), MAJORITY, folder)?,
    );
    std::thread::sleep(Duration::from_millis(times.before_ms));
    cluster.cut(CUT)?;
    let cut_at_ms = milliseconds_now();
    let beside: beside::Report = beside.result(run_ms)?;
    let paced: paced::Report = paced.result(run_ms)?;
    let healed_at = Instant::now();
    cluster.heal(CUT)?;
    wait_until_well("a whole cluster after the network healed", WHOLE_AGAIN_MAX, || cluster.is_whole())?;
    let whole_again_seconds = healed_at.elapsed().as_secs_f64();
    let look_up = |letter, numbers: &[u64]| look_up(cluster, letter, numbers, folder);
    let last_ms = beside.last_ms()?;
    Ok(OfCluster {
        name: cluster.name().to_owned(),
        beside_acknowledged: beside.acknowledged.len() as u64,
        beside_after_cut: beside.acknowledged_from(cut_at_ms) as u64,
        beside_seconds: last_ms.saturating_sub(cut_at_ms) as f64 / 1000.0,
        beside: look_up(beside::LETTER, &beside.acknowledged)?,
        first_error: beside.first_error,
        majority_acknowledged: paced.acknowledged.len() as u64,
        majority: look_up(paced::LETTER, &paced.acknowledged)?,
        calm: paced.between(0, cut_at_ms),
        after_cut: paced.between(cut_at_ms, u64::MAX),
        later: paced.between(cut_at_ms + 3_000, u64::MAX),
        wrong_reads: paced.wrong_reads,
        refusals: paced.refusals,
        whole_again_seconds,
        stolen: machine.until_now().stolen,
    })
}

fn look_up(
    cluster: &dyn Cluster,
    letter: char,
    acknowledged: &[u64],
    folder: &Path,
) -> Result<count::Report, CutError> {
    let numbers = folder.join(format!("acknowledged-{letter}.json"));
    std::fs::write(&numbers, child::text(&acknowledged)?)
        .map_err(CutError::io("write what was acknowledged"))?;
    let addresses = cluster.addresses();
    let task =
        Task::Count(count::Spec { addresses, token: cluster.token(), letter, numbers, run_ms: COUNT_MS_MAX });
    Running::start(&task, cluster.hosts(), MAJORITY, folder)?.result(COUNT_MS_MAX)
}

/// A child that runs on a host.
struct Running {
    child: Child,
    out: PathBuf,
}

impl Running {
    fn start(task: &Task, hosts: &Hosts, host: usize, folder: &Path) -> Result<Self, CutError> {
        let out = folder.join(format!("result-{host}.json"));
        let child = child::spawn(
            hosts.within(host)?,
            &["task".into(), child::text(task)?.into(), out.clone().into()],
        )?;
        Ok(Self { child, out })
    }

    fn result<T: serde::de::DeserializeOwned>(self, run_ms: u64) -> Result<T, CutError> {
        child::wait_for(self.child, "a child on a host", Duration::from_millis(run_ms) + CHILD_GRACE)?;
        child::read(&self.out)
    }
}
