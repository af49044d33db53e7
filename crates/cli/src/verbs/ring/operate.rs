//! `atoll ring leave` and `stay`: removes a node from a ring, or keeps it after all.

use super::status::stale_reason;
use crate::output::note;
use crate::{Failure, Session};
use atoll_open::{
    KeyspaceStatus, Location, NodeStatus, RING_CHANGE, RingOperator, RingStatus, StoreUrl, operate_ring,
};
use atoll_store::StoreError;
use clap::Args;
use serde_json::json;
use std::time::{Duration, Instant};

/// `atoll ring leave`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring leave 4 --store ring://127.0.0.1:7379/
  atoll ring leave 4 --no-wait --store ring://127.0.0.1:7379/
The slots of the node are handed over one by one while clients continue; once the command returns, the node
may be stopped. Its data is copied elsewhere first, as long as there are nodes for that. Refused if fewer
nodes would be up than a write needs copies, because the ring would only be read from then on. A node that
starts again later comes back with no slots. `atoll ring stay` cancels the removal.")]
pub struct Leave {
    /// Number of the node, as shown by `atoll ring status`
    node: u32,
    /// Return once it is requested, without waiting until it is done
    #[arg(long)]
    no_wait: bool,
    /// Remove it even if too few nodes are left for writes to be accepted
    #[arg(long)]
    accept_fewer_copies: bool,
}

/// `atoll ring stay`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring stay 4 --store ring://127.0.0.1:7379/")]
pub struct Stay {
    /// Number of the node
    node: u32,
}

/// Time between two polls of a changing ring.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How long the configuration group may take to decide.
const DECIDED_TIME_MAX: Duration = Duration::from_secs(10);

/// How long to wait for a node that reports the present state of the ring.
const PRESENT_TIME_MAX: Duration = Duration::from_secs(10);

pub(super) fn operator(session: &Session) -> Result<RingOperator, Failure> {
    let url = session.store_url()?;
    match StoreUrl::parse(&url).map_err(StoreError::from)?.location {
        Location::Ring(ring) => Ok(operate_ring(&ring)?),
        _ => Err(Failure::Usage {
            problem: format!("{url} is not a ring"),
            hint: "name one of its nodes, such as --store ring://127.0.0.1:7379/".to_owned(),
        }),
    }
}

/// Polls the state of a ring.
///
/// Invariant: state that was seen is never replaced by that of a node which knows less, or which has lost
/// touch with the ring.
pub(super) struct RingPoller<'o> {
    operator: &'o RingOperator,
    place: String,
    /// The newest version seen so far.
    newest: u64,
}

impl<'o> RingPoller<'o> {
    pub(super) fn at(operator: &'o RingOperator, session: &Session) -> Result<Self, Failure> {
        Ok(Self { operator, place: session.store_url()?, newest: 0 })
    }

    /// The present state of the ring.
    pub(super) async fn next(&mut self) -> Result<RingStatus, Failure> {
        let until = tokio::time::Instant::now() + PRESENT_TIME_MAX;
        loop {
            let status = self.operator.newest_status().await?;
            let Some(reason) = self.passed_over(&status) else { return Ok(status) };
            if tokio::time::Instant::now() >= until {
                let place = self.place.clone();
                return Err(StoreError::Unavailable { place, reason, source: None }.into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Why the status of a node is ignored, if it is.
    fn passed_over(&mut self, status: &RingStatus) -> Option<String> {
        let is_late = status.version < self.newest;
        let late = || format!("node {} does not know the newest state of the ring yet", status.node);
        let reason = stale_reason(status).or_else(|| is_late.then(late));
        if reason.is_none() {
            self.newest = status.version;
        }
        reason
    }
}

/// A failure after the ring was asked for a change: the change may be made all the same.
pub(super) fn as_unknown_outcome(failure: Failure) -> Failure {
    match failure {
        Failure::Store(StoreError::Unavailable { reason, source, .. }) => {
            StoreError::Unknown { what: RING_CHANGE, reason, source }.into()
        }
        other => other,
    }
}

/// The present state of the ring; fails unless it has this node.
async fn status_with(looks: &mut RingPoller<'_>, node: u32) -> Result<RingStatus, Failure> {
    let status = looks.next().await?;
    if status.nodes.iter().any(|known| known.node == node) {
        return Ok(status);
    }
    Err(Failure::Usage {
        problem: format!("the ring has no node {node}"),
        hint: "`atoll ring status` lists its nodes".to_owned(),
    })
}

impl Leave {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let operator = operator(session)?;
        let mut looks = RingPoller::at(&operator, session)?;
        self.check_rest(&status_with(&mut looks, self.node).await?)?;
        operator.leave(self.node).await?;
        session.hint_on_interrupt("the node continues to leave; `atoll ring status` shows how far it is");
        self.follow(looks, session).await.map_err(as_unknown_outcome)
    }

    /// Refuses to leave too few nodes for writes, unless that is accepted; notes if they are too few for all
    /// copies. A node that leaves already was let go before, and without one that is down writes are refused
    /// as they were.
    fn check_rest(&self, status: &RingStatus) -> Result<(), Failure> {
        let leaves = status.nodes.iter().any(|node| node.node == self.node && node.is_leaving);
        let is_up = status.nodes.iter().any(|node| node.node == self.node && node.is_up);
        let Some(lack) = Lack::without(self.node, status).filter(|_| !leaves) else { return Ok(()) };
        let (node, of) = (self.node, &lack.keyspace);
        let up = match lack.left {
            1 => "1 node is up".to_owned(),
            left => format!("{left} nodes are up"),
        };
        if lack.left >= lack.in_sync_min {
            let copies = lack.copies;
            note(&format!("without node {node}, {up} for the {copies} copies{of}"));
        } else if !self.accept_fewer_copies && is_up {
            let needed = lack.in_sync_min;
            return Err(Failure::Usage {
                problem: format!(
                    "without node {node}, {up}, and a write{of} needs {needed} copies: all of them would be refused"
                ),
                hint: "add a node first; with --accept-fewer-copies it leaves all the same".to_owned(),
            });
        }
        Ok(())
    }

    /// Reports the progress until the node has left.
    // A door may report how long something took.
    #[allow(clippy::disallowed_methods)]
    async fn follow(&self, mut looks: RingPoller<'_>, session: &Session) -> Result<(), Failure> {
        let (start, mut told) = (Instant::now(), u64::MAX);
        loop {
            let status = looks.next().await?;
            let Some(node) = status.nodes.iter().find(|node| node.node == self.node) else { break };
            if !node.is_leaving && start.elapsed() > DECIDED_TIME_MAX {
                return Err(undecided());
            }
            if node.is_leaving && self.no_wait {
                return session.output.either(
                    || format!("node {} leaves", self.node),
                    || json!({ "node": self.node, "left": false }),
                );
            }
            let left = node.in_sync + node.catching_up;
            if left != told && !session.output.is_json() {
                note(&format!("node {} leads {} slots, and has copies of {left}", self.node, node.leads));
            }
            told = left;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let seconds = start.elapsed().as_secs_f64();
        session.output.either(
            || format!("node {} has left after {seconds:.1} s, and may be stopped", self.node),
            || json!({ "node": self.node, "left": true, "seconds": seconds }),
        )
    }
}

impl Stay {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let operator = operator(session)?;
        let mut looks = RingPoller::at(&operator, session)?;
        status_with(&mut looks, self.node).await?;
        operator.stay(self.node).await?;
        let leaves = async || {
            let status = looks.next().await?;
            let node = status.nodes.iter().find(|node| node.node == self.node);
            Ok(node.map(|node| node.is_leaving))
        };
        match stays(leaves, (POLL_INTERVAL, DECIDED_TIME_MAX)).await.map_err(as_unknown_outcome)? {
            Some(true) => {}
            Some(false) => return Err(undecided()),
            None => {
                return Err(StoreError::Unavailable {
                    place: session.store_url()?,
                    reason: format!("node {} has left already", self.node),
                    source: None,
                }
                .into());
            }
        }
        session
            .output
            .either(|| format!("node {} stays", self.node), || json!({ "node": self.node, "stays": true }))
    }
}

/// A keyspace for which too few nodes would be left.
#[derive(Debug, PartialEq, Eq)]
struct Lack {
    /// How many nodes are up and stay.
    left: usize,
    /// How many copies the keyspace should have, and how many of them a write needs.
    copies: usize,
    in_sync_min: usize,
    /// The keyspace, as part of a sentence; nothing for the first one.
    keyspace: String,
}

impl Lack {
    /// What would be lacking without this node: where writes would be refused, if that is so anywhere. None
    /// if the ring does not tell how many copies it should have.
    fn without(node: u32, status: &RingStatus) -> Option<Self> {
        let setup = status.setup.as_ref()?;
        let stays = |other: &&NodeStatus| other.is_up && !other.is_leaving && other.node != node;
        let left = status.nodes.iter().filter(stays).count();
        let of = |one: &KeyspaceStatus| {
            let copies = one.copies.unwrap_or(setup.copies);
            let in_sync_min = one.in_sync_min.unwrap_or(setup.in_sync_min.min(copies));
            let named = Some(&one.name).filter(|name| !name.is_empty());
            let keyspace = named.map(|name| format!(" of keyspace {name}")).unwrap_or_default();
            Self { left, copies: copies.into(), in_sync_min: in_sync_min.into(), keyspace }
        };
        let lacking = status.keyspaces.iter().map(of).filter(|one| left < one.copies.max(one.in_sync_min));
        lacking.rev().max_by_key(|one| (one.in_sync_min.saturating_sub(left), one.copies))
    }
}

/// Polls until the node is no longer leaving, up to a time limit; none if it has left.
async fn stays(
    mut leaves: impl AsyncFnMut() -> Result<Option<bool>, Failure>,
    (look_every, time_max): (Duration, Duration),
) -> Result<Option<bool>, Failure> {
    let until = tokio::time::Instant::now() + time_max;
    loop {
        let is_over = tokio::time::Instant::now() > until;
        match leaves().await? {
            Some(true) if !is_over => tokio::time::sleep(look_every).await,
            leaves => return Ok(leaves.map(|leaves| !leaves)),
        }
    }
}

fn undecided() -> Failure {
    let reason = "the nodes that keep the configuration did not decide in time".to_owned();
    StoreError::Unknown { what: RING_CHANGE, reason, source: None }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_open::{RingSetup, RingUrl};

    #[test]
    fn an_older_status_never_replaces_a_newer_one() {
        let url = RingUrl { nodes: vec!["127.0.0.1:1".to_owned()], ..RingUrl::default() };
        let operator = operate_ring(&url).unwrap();
        let mut looks = RingPoller { operator: &operator, place: String::new(), newest: 0 };
        let status =
            |version, group_silent_ms| RingStatus { version, group_silent_ms, ..RingStatus::default() };
        for (version, silent_ms, is_passed_over) in [
            (0, 0, false),
            (9, 60_000, true),
            (3, 0, false),
            (9, 2_000, false),
            (3, 0, true),
            (8, 60_000, true),
            (9, 0, false),
            (10, 0, false),
        ] {
            let passed_over = looks.passed_over(&status(version, silent_ms));
            assert_eq!(passed_over.is_some(), is_passed_over, "{version} {silent_ms}: {passed_over:?}");
        }
    }

    #[test]
    fn a_node_that_writes_need_does_not_leave_without_a_word() {
        let node = |node, is_up, is_leaving| NodeStatus { node, is_up, is_leaving, ..NodeStatus::default() };
        let scratch = KeyspaceStatus { name: "scratch".to_owned(), ..KeyspaceStatus::default() };
        let ring = |nodes: &[NodeStatus], scratch: KeyspaceStatus| RingStatus {
            nodes: nodes.to_vec(),
            keyspaces: vec![KeyspaceStatus::default(), scratch],
            setup: Some(RingSetup { copies: 3, in_sync_min: 2, ..RingSetup::default() }),
            ..RingStatus::default()
        };
        let leaves = |status: &RingStatus, accept_fewer_copies| {
            Leave { node: 3, no_wait: false, accept_fewer_copies }.check_rest(status).map_err(|failure| {
                assert!(failure.hint().is_some_and(|hint| hint.contains("--accept-fewer-copies")));
                failure.to_string()
            })
        };
        let three = [node(1, true, false), node(2, true, false), node(3, true, false)];
        let whole = ring(&three, scratch.clone());
        assert_eq!(leaves(&whole, false), Ok(()), "two are enough for writes");
        let lack = Lack::without(3, &whole).map(|lack| (lack.left, lack.copies, lack.in_sync_min));
        assert_eq!(lack, Some((2, 3, 2)), "but not for three copies");
        // Another one that is down, or leaves, is not there for copies.
        for other in [node(2, false, false), node(2, true, true)] {
            let few = ring(&[three[0].clone(), other.clone(), three[2].clone()], scratch.clone());
            let said =
                "without node 3, 1 node is up, and a write needs 2 copies: all of them would be refused";
            assert_eq!(leaves(&few, false), Err(said.to_owned()));
            assert_eq!(leaves(&few, true), Ok(()));
            let gone = ring(&[three[0].clone(), other, node(3, true, true)], scratch.clone());
            assert_eq!(leaves(&gone, false), Ok(()), "it was let go before");
        }
        let strict =
            ring(&three, KeyspaceStatus { copies: Some(3), in_sync_min: Some(3), ..scratch.clone() });
        let refused = leaves(&strict, false).unwrap_err();
        assert!(refused.contains("a write of keyspace scratch needs 3 copies"), "{refused}");
        // A keyspace of one copy needs no more than one for a write.
        let one = ring(&three[1..], KeyspaceStatus { copies: Some(1), ..scratch.clone() });
        assert_eq!(Lack::without(3, &one).map(|lack| lack.keyspace), Some(String::new()));
        let many: Vec<_> = (1..=4).map(|number| node(number, true, false)).collect();
        assert_eq!(Lack::without(3, &ring(&many, scratch)), None);
        assert_eq!(Lack::without(3, &RingStatus { setup: None, ..whole }), None, "nobody tells");
    }

    #[tokio::test]
    async fn a_node_stays_once_the_ring_says_so_and_not_before() {
        let mut looks = [Some(true), Some(true), Some(false)].into_iter();
        let leaves = async || Ok(looks.next().unwrap());
        assert_eq!(stays(leaves, (Duration::ZERO, DECIDED_TIME_MAX)).await.unwrap(), Some(true));
        assert!(looks.next().is_none(), "it looked until that was decided");
        let at_once = (Duration::ZERO, Duration::ZERO);
        assert_eq!(stays(async || Ok(Some(true)), at_once).await.unwrap(), Some(false), "nobody decides");
        assert_eq!(stays(async || Ok(None), at_once).await.unwrap(), None);
    }
}
