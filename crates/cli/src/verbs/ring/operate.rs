//! `atoll ring status`, `leave` and `stay`: how a ring is, and that a node is taken out of it.

use crate::output::note;
use crate::{Failure, Session};
use atoll_open::{Location, NodeStatus, RingOperator, RingStatus, StoreUrl, operate_ring};
use atoll_store::StoreError;
use clap::Args;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// `atoll ring status`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring status --store ring://127.0.0.1:7379/
  atoll ring status --store ring://10.0.0.7/?token-file=./token --json
Exits with 16 when some slots are not served, or too few of the nodes that keep the configuration answer.")]
pub struct Status {}

/// `atoll ring leave`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring leave 4 --store ring://127.0.0.1:7379/
  atoll ring leave 4 --no-wait --store ring://127.0.0.1:7379/
Its slots are handed over one by one, while clients go on; when the verb ends the node may be stopped.
What it has is copied elsewhere first, as long as there are nodes for that. A node that starts again later
comes back with an empty share. `atoll ring stay` takes it back.")]
pub struct Leave {
    /// The number of the node, as `atoll ring status` tells it
    node: u32,
    /// Only ask for it, and do not wait until it is done
    #[arg(long)]
    no_wait: bool,
}

/// `atoll ring stay`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring stay 4 --store ring://127.0.0.1:7379/")]
pub struct Stay {
    /// The number of the node
    node: u32,
}

/// A node that has not heard from the configuration group for so long knows nothing of now.
const SILENT_MS_MAX: u64 = 3_000;

/// Between two looks at a ring that changes.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long it may take until the configuration group has decided.
const DECIDED_TIME_MAX: Duration = Duration::from_secs(10);

fn operator(session: &Session) -> Result<RingOperator, Failure> {
    let url = session.store_url()?;
    match StoreUrl::parse(&url).map_err(StoreError::from)?.location {
        Location::Ring(ring) => Ok(operate_ring(&ring)?),
        _ => Err(Failure::Usage {
            problem: format!("{url} is no ring"),
            hint: "name one of its nodes, such as --store ring://127.0.0.1:7379/".to_owned(),
        }),
    }
}

/// Fails unless the ring has this node.
async fn known(operator: &RingOperator, node: u32) -> Result<(), Failure> {
    if operator.status().await?.nodes.iter().any(|known| known.node == node) {
        return Ok(());
    }
    Err(Failure::Usage {
        problem: format!("the ring has no node {node}"),
        hint: "`atoll ring status` tells which it has".to_owned(),
    })
}

impl Status {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let status = operator(session)?.status().await?;
        session.output.either(|| picture(&status), || json_of(&status))?;
        if status.group_silent_ms > SILENT_MS_MAX {
            return Err(StoreError::Unavailable {
                place: session.store_url()?,
                reason: format!(
                    "node {} knew this {} s ago: too few of the nodes that keep the configuration answer it",
                    status.node,
                    status.group_silent_ms / 1000
                ),
                source: None,
            }
            .into());
        }
        match status.slots - status.served.min(status.slots) {
            0 => Ok(()),
            down => Err(StoreError::Unavailable {
                place: session.store_url()?,
                reason: format!(
                    "{down} slots are not served: the nodes that had their last copies are missing"
                ),
                source: None,
            }
            .into()),
        }
    }
}

impl Leave {
    // A door may tell how long something took.
    #[allow(clippy::disallowed_methods)]
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let operator = operator(session)?;
        known(&operator, self.node).await?;
        operator.leave(self.node).await?;
        session.hint_on_interrupt("the node goes on leaving; `atoll ring status` tells how far it is");
        let (start, mut told) = (Instant::now(), u64::MAX);
        loop {
            let status = operator.status().await?;
            let Some(node) = status.nodes.iter().find(|node| node.node == self.node) else { break };
            if !node.is_leaving && start.elapsed() > DECIDED_TIME_MAX {
                return Err(StoreError::Unavailable {
                    place: session.store_url()?,
                    reason: "the nodes that keep the configuration did not decide in time".to_owned(),
                    source: None,
                }
                .into());
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
            tokio::time::sleep(LOOK_EVERY).await;
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
        known(&operator, self.node).await?;
        operator.stay(self.node).await?;
        session
            .output
            .either(|| format!("node {} stays", self.node), || json!({ "node": self.node, "stays": true }))
    }
}

fn json_of(status: &RingStatus) -> Value {
    let node = |node: &NodeStatus| {
        json!({
            "node": node.node,
            "address": node.address,
            "up": node.is_up,
            "leaving": node.is_leaving,
            "leads": node.leads,
            "in_sync": node.in_sync,
            "catching_up": node.catching_up,
        })
    };
    json!({
        "told_by": status.node,
        "version": status.version,
        "group_silent_ms": status.group_silent_ms,
        "slots": status.slots,
        "served": status.served,
        "copies_in_sync_min": status.copies_in_sync_min,
        "nodes": status.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

/// Letters of the longest bar.
const BAR: u64 = 24;

fn picture(status: &RingStatus) -> String {
    let served = match status.slots - status.served.min(status.slots) {
        0 => "all served".to_owned(),
        down => format!("{down} NOT served"),
    };
    let copies = match status.copies_in_sync_min {
        1 => "1 copy".to_owned(),
        copies => format!("{copies} copies"),
    };
    let nodes = status.nodes.len();
    let mut lines = vec![
        format!("{nodes} nodes, {} slots: {served}, at least {copies} of each in sync", status.slots),
        String::new(),
    ];
    let width = status.nodes.iter().map(|node| node.address.len()).max().unwrap_or(0).max("address".len());
    lines.push(format!(
        "{:>4}  {:width$}  {:8}  {:>6}  {:>6}  {:>8}",
        "node", "address", "state", "leads", "copies", "catching"
    ));
    let most = status.nodes.iter().map(|node| node.leads).max().unwrap_or(0).max(1);
    for node in &status.nodes {
        let state = match (node.is_up, node.is_leaving) {
            (false, _) => "DOWN",
            (true, true) => "leaving",
            (true, false) => "up",
        };
        let bar = "#".repeat(usize::try_from((node.leads * BAR).div_ceil(most)).unwrap_or(0));
        let line = format!(
            "{:>4}  {:width$}  {state:8}  {:>6}  {:>6}  {:>8}  {bar}",
            node.node, node.address, node.leads, node.in_sync, node.catching_up
        );
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_seen_at_a_glance() {
        let node = |node, leads, is_up| NodeStatus {
            node,
            address: format!("10.0.0.{node}:7379"),
            is_up,
            leads,
            in_sync: 16384,
            ..NodeStatus::default()
        };
        let status = RingStatus {
            node: 1,
            version: 7,
            group_silent_ms: 0,
            slots: 16384,
            served: 10000,
            copies_in_sync_min: 1,
            nodes: vec![node(1, 5000, true), node(2, 2500, true), node(10, 0, false)],
        };
        let seen = picture(&status);
        let lines: Vec<_> = seen.lines().collect();
        assert_eq!(lines[0], "3 nodes, 16384 slots: 6384 NOT served, at least 1 copy of each in sync");
        assert_eq!(
            lines[3],
            format!("   1  10.0.0.1:7379   up          5000   16384         0  {}", "#".repeat(24))
        );
        assert_eq!(
            lines[4],
            format!("   2  10.0.0.2:7379   up          2500   16384         0  {}", "#".repeat(12))
        );
        assert_eq!(lines[5], "  10  10.0.0.10:7379  DOWN           0   16384         0");
    }
}
