//! Whether the majority's side is served while a host is cut off. A client on each host sends requests at a
//! fixed pace, and those of the other hosts have to succeed from three seconds after the cut until it heals.
//!
//! Invariant: a cut counts only if every slot had all its copies right before the trouble began, and no other
//! host is in trouble until it heals: then the other two hosts are a majority that lacks nothing.

use super::HOSTS;
use super::plan::{Fault, Kind};
use crate::cut::{AtollRing, BIN_MS, Bin, PacedReport, PacedSpec};
use std::net::SocketAddr;

/// The faults by which a host is cut off, in both directions or in one.
const CUTS: [Kind; 3] = [Kind::Cut, Kind::Mute, Kind::Deaf];
/// From when on after the cut requests have to succeed, in milliseconds.
const SERVES_AFTER_MS: u64 = 3_000;
/// The least percentage of them that must.
const PERCENT_MIN: u64 = 95;
/// A cut of fewer requests than this is too short to judge.
const REQUESTS_MIN: u64 = 100;
/// Requests a second of each host: few beside the other clients.
const RATE: u64 = 100;
/// How long after its due time an answer still counts.
const ANSWER_MS_MAX: u64 = 1_000;
/// More than any schedule takes: clients are told to stop.
const RUN_MS_MAX: u64 = 600_000;
/// The numbers of the keys of one host begin this far above those of the one before.
const NUMBERS_OF_HOST: u64 = 1_000_000_000;

/// What was the matter from a moment on, in milliseconds since 1970.
#[derive(Clone, Debug)]
pub struct Scene {
    /// When the faults before it began to be undone, and those of it to be made.
    pub from_ms: u64,
    /// When that was done.
    pub made_ms: u64,
    /// The faults from then on.
    pub faults: Vec<Fault>,
    /// Whether nothing was the matter before it, and every slot had all its copies.
    pub was_whole: bool,
}

/// The time of a cut in which the majority's requests have to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The host that is cut off.
    pub host: usize,
    /// Its beginning.
    pub from_ms: u64,
    /// The end of the cut.
    pub until_ms: u64,
}

/// The requests of the majority's side in such a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ServedCut {
    /// The host that was cut off.
    pub host: usize,
    /// How long the period was.
    pub milliseconds: u64,
    /// Requests.
    pub requests: u64,
    /// How many succeeded.
    pub succeeded: u64,
}

impl ServedCut {
    /// Whether there were enough requests to judge it.
    pub fn is_judged(&self) -> bool {
        self.requests >= REQUESTS_MIN
    }

    /// The percentage of requests that succeeded.
    pub fn percent(&self) -> f64 {
        100.0 * self.succeeded as f64 / self.requests.max(1) as f64
    }

    fn is_well(&self) -> bool {
        !self.is_judged() || self.succeeded * 100 >= self.requests * PERCENT_MIN
    }
}

/// What clients at a fixed pace got in a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Service {
    /// The cuts that count.
    pub cuts: Vec<ServedCut>,
    /// Reads, at any time and on any host, that found something other than what was acknowledged.
    pub wrong_reads: u64,
    /// Descriptions of what is wrong.
    pub told: Vec<String>,
}

impl Service {
    /// The cuts with enough requests to judge.
    pub fn judged(&self) -> impl Iterator<Item = &ServedCut> {
        self.cuts.iter().filter(|cut| cut.is_judged())
    }

    /// The least percentage of requests that succeeded after a cut; none if no cut could be judged.
    pub fn lowest(&self) -> Option<f64> {
        self.judged().map(ServedCut::percent).reduce(f64::min)
    }

    /// Whether the majority was served after each cut that can be judged, and no read was wrong.
    pub fn is_well(&self) -> bool {
        self.wrong_reads == 0 && self.cuts.iter().all(ServedCut::is_well)
    }
}

/// What the client of a host does.
pub fn pace(host: usize, nodes: &[SocketAddr], seed: u64) -> PacedSpec {
    PacedSpec {
        // Its own node first, which knows where the others are.
        addresses: (0..HOSTS).map(|at| nodes[(host + at) % HOSTS]).collect(),
        token: Some(AtollRing::TOKEN.to_owned()),
        rate: RATE,
        run_ms: RUN_MS_MAX,
        answer_ms_max: ANSWER_MS_MAX,
        seed,
        numbers_above: host as u64 * NUMBERS_OF_HOST,
    }
}

/// The periods of all cuts that count, host by host.
pub fn periods(scenes: &[Scene]) -> Vec<Period> {
    (0..HOSTS).flat_map(|host| periods_of(host, scenes)).collect()
}

fn periods_of(host: usize, scenes: &[Scene]) -> Vec<Period> {
    let (mut periods, mut is_fit, mut cut_at) = (Vec::new(), false, None);
    for scene in scenes {
        is_fit |= scene.was_whole;
        is_fit &= scene.faults.iter().all(|fault| fault.host == host);
        let is_cut = is_fit && scene.faults.iter().any(|fault| CUTS.contains(&fault.kind));
        match (cut_at, is_cut) {
            (None, true) => cut_at = Some(scene.made_ms),
            (Some(since), false) => {
                let period = Period { host, from_ms: since + SERVES_AFTER_MS, until_ms: scene.from_ms };
                periods.extend((period.from_ms < period.until_ms).then_some(period));
                cut_at = None;
            }
            _ => {}
        }
        // What comes next is judged by how things are then.
        is_fit &= !scene.faults.is_empty();
    }
    periods
}

/// Judges what the clients of all hosts got, in the order of the hosts.
pub fn judge(scenes: &[Scene], reports: &[PacedReport]) -> Service {
    let wrong_reads = reports.iter().map(|report| report.wrong_reads).sum();
    let mut service = Service { wrong_reads, ..Service::default() };
    for period in periods(scenes) {
        let Period { host, from_ms, until_ms } = period;
        let others = reports.iter().enumerate().filter(|(at, _)| *at != host);
        // A bin counts if all of it is before the cut heals.
        let bins = others.map(|(_, report)| report.between(from_ms, (until_ms + 1).saturating_sub(BIN_MS)));
        let sum = bins.fold(Bin::default(), |sum, bin| Bin {
            requests: sum.requests + bin.requests,
            succeeded: sum.succeeded + bin.succeeded,
            writes: sum.writes + bin.writes,
        });
        let (requests, succeeded) = (sum.requests, sum.succeeded);
        let cut = ServedCut { host, milliseconds: until_ms - from_ms, requests, succeeded };
        if !cut.is_well() {
            let percent = cut.percent();
            service.told.push(format!(
                "NOT SERVED: while host {host} was cut off, {percent:.1} % of {requests} requests of the others succeeded \
                 from {} s after it on",
                SERVES_AFTER_MS / 1_000
            ));
        }
        service.cuts.push(cut);
    }
    service.told.extend(reports.iter().filter_map(|report| report.first_wrong.clone()));
    service
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scene that is made in ten milliseconds.
    fn scene(from_ms: u64, faults: &[(Kind, usize)], was_whole: bool) -> Scene {
        let fault = |&(kind, host): &(Kind, usize)| Fault {
            kind,
            host,
            other: (host + 1) % HOSTS,
            from_ms,
            until_ms: 0,
        };
        Scene { from_ms, made_ms: from_ms + 10, faults: faults.iter().map(fault).collect(), was_whole }
    }

    #[test]
    fn a_cut_counts_from_three_seconds_on_until_it_heals() {
        for kind in CUTS {
            let scenes = [scene(1_000, &[(kind, 1)], true), scene(6_000, &[], false)];
            assert_eq!(periods(&scenes), [Period { host: 1, from_ms: 4_010, until_ms: 6_000 }], "{kind:?}");
        }
        // What else happens to that host changes nothing.
        let scenes = [
            scene(1_000, &[(Kind::Pause, 2)], true),
            scene(2_000, &[(Kind::Pause, 2), (Kind::Mute, 2)], false),
            scene(3_000, &[(Kind::Mute, 2), (Kind::Cut, 2)], false),
            scene(4_000, &[(Kind::Cut, 2)], false),
            scene(8_000, &[(Kind::Kill, 2)], false),
            scene(9_000, &[], false),
        ];
        assert_eq!(periods(&scenes), [Period { host: 2, from_ms: 5_010, until_ms: 8_000 }]);
    }

    #[test]
    fn a_cut_does_not_count_if_it_is_short_or_the_others_are_not_well() {
        let cut = &[(Kind::Cut, 0)];
        let heals = |at_ms| scene(at_ms, &[], false);
        assert!(periods(&[scene(1_000, cut, true), heals(4_000)]).is_empty(), "too short");
        assert!(periods(&[scene(1_000, cut, false), heals(9_000)]).is_empty(), "copies are missing");
        assert!(periods(&[scene(1_000, &[(Kind::Kill, 0)], true), heals(9_000)]).is_empty(), "it is no cut");
        let other = [scene(1_000, &[(Kind::Pause, 1)], true), scene(2_000, cut, false), heals(9_000)];
        assert!(periods(&other).is_empty(), "another host was in trouble just before");
        let both = [scene(1_000, cut, true), scene(2_000, &[cut[0], (Kind::Pause, 1)], false), heals(9_000)];
        assert!(periods(&both).is_empty(), "another host is");
        let again = [scene(1_000, cut, true), heals(2_000), scene(3_000, cut, false), heals(9_000)];
        assert!(periods(&again).is_empty(), "the second one began before all copies were there again");
    }

    /// A client with a hundred requests a second, of which every tenth fails in the given time.
    fn report(failing: std::ops::Range<u64>) -> PacedReport {
        let mut report = PacedReport::default();
        (0..10_000).step_by(10).for_each(|due_ms| {
            let fails = failing.contains(&due_ms) && due_ms % 100 == 0;
            report.end(due_ms, !fails, None);
        });
        report
    }

    #[test]
    fn the_other_hosts_have_to_be_served_and_the_one_that_is_cut_off_need_not() {
        let scenes = [scene(1_000, &[(Kind::Cut, 1)], true), scene(6_050, &[], false)];
        let of = |reports: [PacedReport; 3]| judge(&scenes, &reports);
        let none = || report(0..0);
        let well = of([none(), report(0..10_000), none()]);
        // Nineteen bins lie between 4.01 and 6.05 s.
        let cut = ServedCut { host: 1, milliseconds: 2_040, requests: 380, succeeded: 380 };
        assert_eq!((well.cuts.as_slice(), well.is_well(), well.lowest()), (&[cut][..], true, Some(100.0)));
        let one = of([report(0..10_000), none(), none()]);
        assert_eq!((one.is_well(), one.lowest()), (true, Some(95.0)), "one in twenty may fail");
        let both = of([report(0..10_000), none(), report(0..10_000)]);
        assert_eq!((both.is_well(), both.lowest()), (false, Some(90.0)));
        assert!(both.told[0].starts_with("NOT SERVED: while host 1 was cut off, 90.0 % of 380"), "{both:?}");
        let early = of([report(0..4_000), none(), report(6_050..10_000)]);
        assert!(early.is_well() && early.lowest() == Some(100.0), "before and after: {early:?}");
        let mut wrong = none();
        (wrong.wrong_reads, wrong.first_wrong) = (1, Some("another value".to_owned()));
        let wrong = of([none(), wrong, none()]);
        assert!(!wrong.is_well() && wrong.told == ["another value"], "wherever it was read: {wrong:?}");
    }

    #[test]
    fn a_cut_of_few_requests_is_not_judged() {
        let scenes = [scene(1_000, &[(Kind::Cut, 1)], true), scene(4_450, &[], false)];
        let found = judge(&scenes, &[report(0..10_000), report(0..0), report(0..10_000)]);
        let [cut] = found.cuts.as_slice() else { panic!("{found:?}") };
        assert!(cut.requests > 0 && cut.requests < REQUESTS_MIN, "{cut:?}");
        assert!(found.is_well() && found.lowest().is_none() && found.judged().next().is_none());
    }
}
