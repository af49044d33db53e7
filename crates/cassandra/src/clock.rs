//! The store's clock: the median of the clocks of up to three nodes, carried forward by this process between
//! readings.
//!
//! Invariant: the time that a store returns never goes backward.
//! Invariant: if the nodes' clocks differ by more than [`DIFFERENCE_MAX`], no time is returned at all: a
//! lease would end for one client and not for another.

use crate::failure::told;
use crate::link::{Link, Patience};
use atoll_store::age::Moment;
use atoll_store::{ErrorKind, StoreError, Timestamp};
use futures::future::join_all;
use parking_lot::Mutex;
use scylla::cluster::Node;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::unprepared::Statement;
use scylla::value::CqlTimestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The largest difference between the clocks of two nodes.
pub(crate) const DIFFERENCE_MAX: Duration = Duration::from_millis(500);

/// How long a reading of the nodes' clocks stays valid.
const LOOK_AGE_MAX: Duration = Duration::from_secs(20);

/// How many nodes are asked.
const NODES: usize = 3;

/// How many nodes must answer, if there are that many: a single clock may be wrong by any amount, and nothing
/// would show it.
const VOICES_MIN: usize = 2;

/// The largest uncertainty of a node's answer; a slower answer is of no use. Also the most time that may pass
/// without this process seeing it.
const DOUBT_MAX: Duration = Duration::from_millis(250);

/// How far the last time returned may lie ahead of what the nodes say at present.
const AHEAD_MAX: Duration = Duration::from_secs(1);

/// Asks a node for its clock. `now()` would make a time UUID, and these never go back: of a node whose clock
/// was ahead and has been set right, it would tell the wrong time for as long as the clock had been ahead.
const ASKED: &str = "SELECT currentTimestamp() FROM system.local";

/// The unit in which a node tells its time.
const UNIT_NS: u64 = 1_000_000;

/// The clock of one store.
#[derive(Default)]
pub(crate) struct StoreClock {
    looked: Mutex<Option<Looked>>,
    latest: AtomicU64,
    looking: tokio::sync::Mutex<()>,
}

/// The cluster's time at one moment of this process.
#[derive(Clone, Copy)]
struct Looked {
    at: Instant,
    /// Shows time that passed while the machine slept, which `at` does not count.
    moment: Moment,
    time_ns: u64,
}

/// The answer of one node.
struct Told {
    time_ns: u64,
    /// The uncertainty of `time_ns`: the node answered at an unknown moment during the request.
    doubt_ns: u64,
    node: String,
}

impl Looked {
    fn now(&self) -> u64 {
        self.time_ns.saturating_add(self.at.elapsed().as_nanos() as u64)
    }

    /// Whether this reading is still valid. It is not if the machine slept since, however briefly, or if its
    /// clock was set.
    fn is_recent(&self) -> bool {
        let age = self.moment.age();
        age < LOOK_AGE_MAX && age.saturating_sub(self.at.elapsed()) < DOUBT_MAX
    }
}

impl StoreClock {
    /// The time now.
    pub(crate) async fn now(&self, link: &Link) -> Result<Timestamp, StoreError> {
        if let Some(now) = self.recent() {
            return self.told(now, &link.place);
        }
        let _only_one_looks = self.looking.lock().await;
        if let Some(now) = self.recent() {
            return self.told(now, &link.place);
        }
        let looked = look(link, Wanted::Some).await?;
        *self.looked.lock() = Some(looked);
        self.told(looked.now(), &link.place)
    }

    fn recent(&self) -> Option<u64> {
        let looked = *self.looked.lock();
        looked.filter(Looked::is_recent).map(|looked| looked.now())
    }

    /// Checks a time against the latest one returned. A new reading may find the clocks slightly behind that
    /// one; the time then stands still until they catch up. It does not stand still for longer: this client
    /// would treat the leases of all others as expired.
    fn told(&self, now: u64, place: &str) -> Result<Timestamp, StoreError> {
        let latest = self.latest.fetch_max(now, Ordering::AcqRel);
        let ahead = Duration::from_nanos(latest.saturating_sub(now));
        if ahead <= AHEAD_MAX {
            return Ok(Timestamp(now.max(latest)));
        }
        Err(told(
            ErrorKind::Unavailable,
            format!(
                "{place} tells no time: its nodes' clocks were set back by {ahead:?} since this program asked first"
            ),
            "end this program and start it again, once the clocks are right (`chronyc tracking` or `timedatectl`)",
        ))
    }
}

/// The time in nanoseconds, if all nodes answer and agree.
pub(crate) async fn of_all(link: &Link) -> Result<u64, StoreError> {
    Ok(look(link, Wanted::All).await?.now())
}

/// Which nodes must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Most of a small set, the same one for all clients.
    Some,
    /// Every node of the cluster: the one that does not answer may be the one that is wrong. Once its
    /// connections have been given up, a node that hangs looks like one that is down.
    All,
}

/// Asks nodes for the time until enough of them answer, and takes the median.
async fn look(link: &Link, wanted: Wanted) -> Result<Looked, StoreError> {
    let mut patience = Patience::new(link.options.request_time_out);
    loop {
        match look_once(link, wanted).await {
            Ok(looked) => return Ok(looked),
            Err(Dumb::Differ(error)) => return Err(error),
            Err(Dumb::Few(error)) if !patience.goes_on().await => return Err(error),
            Err(Dumb::Few(_)) => {}
        }
    }
}

/// Why no time could be determined.
enum Dumb {
    /// The nodes' clocks differ too much.
    Differ(StoreError),
    /// Too few nodes answered.
    Few(StoreError),
}

async fn look_once(link: &Link, wanted: Wanted) -> Result<Looked, Dumb> {
    let state = link.session.get_cluster_state();
    let near = &link.options.datacenter;
    let may_tell = |node: &&Arc<Node>| wanted == Wanted::All || node.is_connected();
    let mut nodes: Vec<&Arc<Node>> = state.get_nodes_info().iter().filter(may_tell).collect();
    // All clients ask the same nodes while these are up.
    nodes.sort_by_key(|node| (near.is_some() && node.datacenter != *near, node.host_id));
    if wanted == Wanted::Some {
        nodes.truncate(NODES);
    }
    // Taken before the nodes are asked: `at` does not count time in which the machine sleeps or the process
    // is stopped.
    let (moment, before) = (Moment::now(), Instant::now());
    let asked = join_all(nodes.iter().map(|node| ask(link, node))).await;
    // In this order: a sleep of the machine between the two makes the reading look outdated, never more
    // recent.
    let (told_at, at) = (Moment::now(), Instant::now());
    if moment.age().saturating_sub(at - before) > DOUBT_MAX {
        return Err(Dumb::Few(too_few(&link.place, &[])));
    }
    let mut times: Vec<Told> = asked
        .into_iter()
        .flatten()
        .map(|(looked, told)| Told {
            time_ns: looked.time_ns.saturating_add((at - looked.at).as_nanos() as u64),
            ..told
        })
        .collect();
    times.sort_unstable_by_key(|told| told.time_ns);
    check_difference(&link.place, &times).map_err(Dumb::Differ)?;
    if wanted == Wanted::All && times.len() < nodes.len() {
        let heard = |node: &&Arc<Node>| times.iter().any(|told| told.node == node.address.ip().to_string());
        let silent: Vec<String> =
            nodes.iter().filter(|node| !heard(node)).map(|node| node.address.ip().to_string()).collect();
        return Err(Dumb::Few(not_all(&link.place, &silent)));
    }
    match times.get(times.len() / 2) {
        Some(told) if times.len() >= VOICES_MIN.min(state.get_nodes_info().len()) => {
            Ok(Looked { at, moment: told_at, time_ns: told.time_ns })
        }
        _ => Err(Dumb::Few(too_few(&link.place, &times))),
    }
}

fn not_all(place: &str, silent: &[String]) -> StoreError {
    told(
        ErrorKind::Unavailable,
        format!("{place} tells no time that all nodes agree on: {} does not answer", silent.join(", ")),
        "start it if it is down (`nodetool status`), see what it is busy with if it hangs (`nodetool tpstats` there), or take \
         it out of the cluster (`nodetool removenode`); then try again",
    )
}

fn too_few(place: &str, times: &[Told]) -> StoreError {
    let who = match times {
        [] => format!("no node answers within {:?}", DOUBT_MAX * 2),
        [only, ..] => format!("only {} answers, whose clock may be wrong", only.node),
    };
    told(
        ErrorKind::Unavailable,
        format!("{place} tells no time: {who}"),
        "start the nodes that are down (`nodetool status` names them), then try again",
    )
}

/// Refuses clocks that differ by more than is allowed, beyond their uncertainty, and names the node that is
/// off.
fn check_difference(place: &str, times: &[Told]) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
    let doubt_ns = first.doubt_ns.saturating_add(last.doubt_ns);
    let difference = Duration::from_nanos((last.time_ns - first.time_ns).saturating_sub(doubt_ns));
    if difference <= DIFFERENCE_MAX {
        return Ok(());
    }
    let middle_ns = times[times.len() / 2].time_ns;
    let (far, other, way) = match last.time_ns - middle_ns >= middle_ns - first.time_ns {
        true => (&last.node, &first.node, "ahead"),
        false => (&first.node, &last.node, "behind"),
    };
    let remedy = match times.len() {
        2 => format!(
            "look at the clocks of {far} and {other} (`chronyc tracking` or `timedatectl` there): one is wrong"
        ),
        _ => format!(
            "set the clock of {far} right (`chronyc tracking` or `timedatectl` there), then try again"
        ),
    };
    Err(told(
        ErrorKind::Unavailable,
        format!(
            "{place} tells no time: the clock of node {far} is {difference:?} {way} of that of {other}, at most \
             {DIFFERENCE_MAX:?} are allowed"
        ),
        remedy,
    ))
}

/// The time of one node at the middle of the request; none if the node does not answer in time.
async fn ask(link: &Link, node: &Arc<Node>) -> Option<(Looked, Told)> {
    let mut statement = Statement::new(ASKED);
    let target = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(Arc::clone(node)), None);
    statement.set_load_balancing_policy(Some(target));
    statement.set_consistency(scylla::statement::Consistency::One);
    statement.set_request_timeout(Some(Duration::from_secs(2)));
    let sent = Instant::now();
    let result = link.session.query_unpaged(statement, ()).await.ok()?;
    let half = sent.elapsed() / 2;
    if half > DOUBT_MAX {
        return None;
    }
    let (clock,) = result.into_rows_result().ok()?.first_row::<(CqlTimestamp,)>().ok()?;
    let (time_ns, doubt_ns) = (unix_ns(clock), half.as_nanos() as u64 + UNIT_NS);
    let told = Told { time_ns, doubt_ns, node: node.address.ip().to_string() };
    Some((Looked { at: sent + half, moment: Moment::now(), time_ns }, told))
}

/// The time that a node told, in nanoseconds since the Unix epoch.
fn unix_ns(clock: CqlTimestamp) -> u64 {
    u64::try_from(clock.0).unwrap_or(0).saturating_mul(UNIT_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, doubt_ms: u64, node: &str) -> Told {
        Told { time_ns: ms * 1_000_000, doubt_ns: doubt_ms * 1_000_000, node: node.to_owned() }
    }

    #[test]
    fn the_node_that_is_far_off_is_named() {
        let told = |times: &[Told]| check_difference("here", times).unwrap_err().to_string();
        assert!(check_difference("here", &[at(1_000, 0, "a"), at(1_400, 0, "b"), at(1_500, 0, "c")]).is_ok());
        assert!(check_difference("here", &[]).is_ok());
        let ahead = told(&[at(1_000, 0, "a"), at(1_001, 0, "b"), at(9_000, 0, "c")]);
        assert!(ahead.contains("node c is 8s ahead of that of a"), "{ahead}");
        let behind = told(&[at(1_000, 0, "a"), at(8_999, 0, "b"), at(9_000, 0, "c")]);
        assert!(behind.contains("node a is 8s behind of that of c"), "{behind}");
    }

    #[test]
    fn a_node_that_was_slow_to_answer_is_not_taken_for_one_with_a_wrong_clock() {
        assert!(check_difference("here", &[at(1_000, 300, "a"), at(1_900, 200, "b")]).is_ok());
        assert!(check_difference("here", &[at(1_000, 300, "a"), at(1_900, 99, "b")]).is_err());
    }

    #[test]
    fn a_clock_that_was_set_back_a_little_stands_still_and_by_more_is_an_error() {
        let (clock, second) = (StoreClock::default(), 1_000_000_000);
        assert_eq!(clock.told(100 * second, "here").unwrap(), Timestamp(100 * second));
        assert_eq!(clock.told(100 * second - second / 2, "here").unwrap(), Timestamp(100 * second));
        let error = clock.told(40 * second, "here").unwrap_err();
        assert!(error.to_string().contains("set back by 60s") && error.hint().is_some(), "{error}");
        assert_eq!(clock.told(101 * second, "here").unwrap(), Timestamp(101 * second));
    }

    #[test]
    fn a_look_is_good_for_nothing_once_the_machine_slept_since_however_shortly() {
        let recent = |slept: Duration| {
            let looked = Looked { at: Instant::now(), moment: Moment::now().earlier(slept), time_ns: 1 };
            StoreClock { looked: Mutex::new(Some(looked)), ..StoreClock::default() }.recent()
        };
        assert!(recent(Duration::ZERO).is_some());
        assert!(recent(Duration::from_millis(20)).is_some(), "clocks that are read one after the other");
        assert_eq!(recent(Duration::from_secs(15)), None);
        assert_eq!(recent(DOUBT_MAX * 2), None);
        assert_eq!(recent(Duration::from_secs(60)), None);
    }

    #[test]
    fn the_time_of_a_node_is_read_as_unix_time_whatever_its_clock_says() {
        assert_eq!(unix_ns(CqlTimestamp(0)), 0);
        assert_eq!(unix_ns(CqlTimestamp(1_700_000_000_123)), 1_700_000_000_123_000_000);
        assert_eq!((unix_ns(CqlTimestamp(-1)), unix_ns(CqlTimestamp(i64::MAX))), (0, u64::MAX));
    }
}
