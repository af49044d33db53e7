//! `atoll ring status`: shows a ring, its nodes, and what each has and lacks.

use super::keyspace;
use super::operate::operator;
use crate::output::note;
use crate::{Failure, Session};
use atoll_open::{DownSlots, NodeStatus, RingOperator, RingStatus};
use atoll_store::StoreError;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// `atoll ring status`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring status --store ring://127.0.0.1:7379/
  atoll ring status --store ring://10.0.0.7/?token-file=./token --json
  atoll ring status --watch --store ring://127.0.0.1:7379/
Exits with 16 if some slots are not served, or if too few of the nodes that keep the configuration answer.")]
pub struct Status {
    /// Refresh every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// Clocks that differ from the others by more than this are reported.
const CLOCK_OFF_MS_MAX: u64 = 60_000;

/// Time between two polls.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Clears the screen and moves the cursor to its top left corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

impl Status {
    /// Whether the verb runs until it is interrupted.
    pub(super) const fn runs_until_interrupted(&self) -> bool {
        self.watch
    }

    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let operator = operator(session)?;
        if self.watch {
            return watch(&operator, session).await;
        }
        let status = operator.status().await.map_err(not_serving)?;
        session.output.either(|| picture(&status), || json_of(&status))?;
        let Some(reason) = trouble(&status) else { return Ok(()) };
        Err(not_serving(StoreError::Unavailable { place: session.store_url()?, reason, source: None }))
    }
}

/// Removes the hint to run `atoll ring status`, for this verb itself.
fn not_serving(error: StoreError) -> Failure {
    match error {
        StoreError::Unavailable { .. } => Failure::NotServing(error),
        other => other.into(),
    }
}

/// Redraws the status again and again; a ring that does not answer may do so later.
async fn watch(operator: &RingOperator, session: &Session) -> Result<(), Failure> {
    session.end_on_interrupt();
    let clear = if session.output.is_terminal() && !session.output.is_json() { CLEAR } else { "" };
    loop {
        match operator.status().await {
            Ok(status) => {
                let trouble = trouble(&status).map(|reason| format!("\n\n{reason}")).unwrap_or_default();
                let seen = || format!("{clear}{}{trouble}", picture(&status));
                session.output.either(seen, || json_of(&status))?;
            }
            Err(error @ StoreError::Unavailable { .. }) => note(&error.to_string()),
            Err(error) => return Err(error.into()),
        }
        session.output.flush()?;
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Why the status of a node does not describe the present, if so.
pub(super) fn stale_reason(status: &RingStatus) -> Option<String> {
    status.is_stale().then(|| {
        format!(
            "node {} knew this {} s ago: too few of the nodes that keep the configuration answer it",
            status.node,
            status.group_silent_ms / 1000
        )
    })
}

/// What keeps a ring from serving all slots, if anything.
fn trouble(status: &RingStatus) -> Option<String> {
    if let Some(reason) = stale_reason(status) {
        return Some(reason);
    }
    let down = status.slots - status.served.min(status.slots);
    let each = keyspace::slots_each(status);
    let lacking = status.keyspaces.iter().filter(|one| one.served < each && status.keyspaces.len() > 1);
    let names: Vec<_> = lacking.map(keyspace::name_of).collect();
    let place = if names.is_empty() { String::new() } else { format!(", of keyspace {}", names.join(", ")) };
    let who = match status.down.is_empty() && !names.is_empty() {
        true => {
            "name that keyspace behind the nodes, in --store, to see who had their last copies".to_owned()
        }
        false => who_had(&status.down),
    };
    (down > 0).then(|| format!("{down} slots are not served{place}: {who}"))
}

/// Who had slots that are down, or why nobody has them.
fn who_had(down: &[DownSlots]) -> String {
    let had_by: BTreeSet<u32> = down.iter().flat_map(|slots| &slots.had_by).copied().collect();
    let lost = down.iter().filter(|slots| slots.had_by.is_empty() && !slots.is_new);
    let lost: u64 = lost.map(|slots| u64::from(slots.last.saturating_sub(slots.first)) + 1).sum();
    let last_copies = format!("{} had their last copies", node_list(&had_by));
    match (had_by.is_empty(), lost) {
        (true, 0) => "no node has had them yet".to_owned(),
        (true, _) => format!("their last copies are lost: {WITHOUT_THEM}"),
        (false, 0) => last_copies,
        (false, _) => format!("{last_copies}; those of {lost} slots are lost: {WITHOUT_THEM}"),
    }
}

/// How the last copies of slots were lost that nobody has.
pub(super) const WITHOUT_THEM: &str = "the nodes that had them came back without their data";

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
            "zone": node.zone,
            "weight": node.weight,
            "behind": node.behind,
            "unreached": node.unreached,
            "group_seat_lost": node.is_seat_lost,
            "clock_off_ms": node.clock_off_ms,
            "clock_doubted": node.is_clock_doubted,
        })
    };
    let down = |slots: &DownSlots| {
        let (first, last, had_by) = (slots.first, slots.last, &slots.had_by);
        let (new, behind) = (slots.is_new, &slots.catching_up);
        json!({ "first": first, "last": last, "had_by": had_by, "new": new, "catching_up": behind })
    };
    json!({
        "told_by": status.node,
        "version": status.version,
        "group_silent_ms": status.group_silent_ms,
        "is_of_before": status.is_stale(),
        "group_leader": status.group_leader,
        "slots": status.slots,
        "served": status.served,
        "copies_in_sync_min": status.copies_in_sync_min,
        "nodes": status.nodes.iter().map(node).collect::<Vec<_>>(),
        "down": status.down.iter().map(down).collect::<Vec<_>>(),
        "keyspaces": status.keyspaces.iter().map(keyspace::json_of).collect::<Vec<_>>(),
    })
}

/// Length of the longest bar in characters.
const BAR: u64 = 24;

fn summary(status: &RingStatus) -> String {
    let served = match status.slots - status.served.min(status.slots) {
        0 => "all served".to_owned(),
        down => format!("{down} NOT served"),
    };
    let copies = match status.copies_in_sync_min {
        1 => "1 copy".to_owned(),
        copies => format!("{copies} copies"),
    };
    let nodes = status.nodes.len();
    format!("{nodes} nodes, {} slots: {served}, at least {copies} of each in sync", status.slots)
}

fn picture(status: &RingStatus) -> String {
    let is_stale = status.is_stale();
    let mut lines = vec![summary(status), String::new()];
    if is_stale {
        let (node, silent) = (status.node, status.group_silent_ms / 1000);
        let told = format!(
            "The present state of the ring is unknown: node {node} has heard nothing for {silent} s. Its last known state:"
        );
        lines.splice(0..0, [told, String::new()]);
    }
    let width = status.nodes.iter().map(|node| node.address.len()).max().unwrap_or(0).max("address".len());
    let standing = Standing::of(status);
    lines.push(format!(
        "{:>4}  {:width$}  {}{:8}  {:>6}  {:>6}  {:>8}  {:>8}",
        "node",
        "address",
        standing.heading(),
        "state",
        "leads",
        "copies",
        "catching",
        "behind"
    ));
    let most = status.nodes.iter().map(|node| node.leads).max().unwrap_or(0).max(1);
    for node in &status.nodes {
        let state = match (node.is_up, node.is_leaving) {
            (false, _) => "DOWN",
            // The node that reports is up.
            (true, _) if is_stale && node.node != status.node => "?",
            (true, true) => "leaving",
            (true, false) => "up",
        };
        let bar = "#".repeat(usize::try_from((node.leads * BAR).div_ceil(most)).unwrap_or(0));
        let behind = node.behind.map_or_else(|| "?".to_owned(), |writes| writes.to_string());
        let line = format!(
            "{:>4}  {:width$}  {}{state:8}  {:>6}  {:>6}  {:>8}  {behind:>8}  {bar}",
            node.node,
            node.address,
            standing.of_node(node),
            node.leads,
            node.in_sync,
            node.catching_up
        );
        lines.push(line.trim_end().to_owned());
    }
    if status.keyspaces.len() > 1 {
        lines.extend([String::new(), keyspace::picture(&status.keyspaces)]);
    }
    let dead = status.nodes.iter().filter(|node| !node.is_up);
    let dead = dead.map(|node| format!("node {} at {} does not answer", node.node, node.address));
    let cut_off = status.nodes.iter().filter_map(|node| cut_off(node, status));
    let seats = status.nodes.iter().filter_map(lost_seat);
    let clocks = status.nodes.iter().filter_map(wrong_clock);
    let told: Vec<_> = dead.chain(cut_off).chain(seats).chain(clocks).collect();
    if !told.is_empty() {
        lines.push(String::new());
        lines.extend(told);
    }
    lines.join("\n")
}

/// The columns for zones and weights, which a ring that has none does not show.
struct Standing {
    /// The width of the zone's column.
    zones: Option<usize>,
    has_weights: bool,
}

impl Standing {
    fn of(status: &RingStatus) -> Self {
        let zones = status.nodes.iter().filter_map(|node| node.zone.as_ref()).map(String::len).max();
        let has_weights = status.nodes.iter().any(|node| node.weight > 1);
        Self { zones: zones.map(|width| width.max("zone".len())), has_weights }
    }

    fn heading(&self) -> String {
        self.line("zone", "weight")
    }

    fn of_node(&self, node: &NodeStatus) -> String {
        self.line(node.zone.as_deref().unwrap_or("-"), &node.weight.to_string())
    }

    fn line(&self, zone: &str, weight: &str) -> String {
        let zone = self.zones.map(|width| format!("{zone:width$}  ")).unwrap_or_default();
        if self.has_weights { format!("{zone}{weight:>6}  ") } else { zone }
    }
}

/// The nodes that this one cannot reach although the ring hears from them.
fn cut_off(node: &NodeStatus, status: &RingStatus) -> Option<String> {
    let is_up = |number: &u32| status.nodes.iter().any(|other| other.node == *number && other.is_up);
    let unreached: Vec<_> = node.unreached.iter().filter(|number| is_up(number)).collect();
    (!unreached.is_empty())
        .then(|| format!("node {} has no connection to {}", node.node, node_list(unreached)))
}

/// A node that lost its seat in the configuration group, and what to do about it.
fn lost_seat(node: &NodeStatus) -> Option<String> {
    let text = "does not keep the configuration any more, its log failed: look at its disk, and restart it";
    node.is_seat_lost.then(|| format!("node {} {text}", node.node))
}

/// A node whose clock is far from those of the others, and the consequence.
fn wrong_clock(node: &NodeStatus) -> Option<String> {
    let off_ms = node.clock_off_ms.filter(|off_ms| off_ms.unsigned_abs() > CLOCK_OFF_MS_MAX)?;
    let side = if off_ms > 0 { "ahead of" } else { "behind" };
    let seconds = off_ms.unsigned_abs() / 1000;
    let goes_by = if node.is_clock_doubted { "it uses theirs" } else { "nobody knows which is right" };
    Some(format!("the clock of node {} is {seconds} s {side} the others': {goes_by}", node.node))
}

/// "node 1", or "nodes 1, 2".
fn node_list<'n>(nodes: impl IntoIterator<Item = &'n u32>) -> String {
    let numbers: Vec<_> = nodes.into_iter().map(u32::to_string).collect();
    let word = if numbers.len() == 1 { "node" } else { "nodes" };
    format!("{word} {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_open::KeyspaceStatus;

    #[test]
    fn zones_and_weights_are_seen_where_there_are_any() {
        let node = |zone: Option<&str>, weight| NodeStatus {
            address: "10.0.0.1:7379".to_owned(),
            is_up: true,
            zone: zone.map(str::to_owned),
            weight,
            ..NodeStatus::default()
        };
        let heading = |nodes: &[NodeStatus]| {
            let status = RingStatus { nodes: nodes.to_vec(), ..RingStatus::default() };
            picture(&status).lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(heading(&[node(None, 1)])[0].starts_with("node  address        state"));
        assert!(heading(&[node(Some("red"), 1)])[0].starts_with("node  address        zone  state"));
        let seen = heading(&[node(Some("red"), 1), node(None, 3)]);
        assert!(seen[0].starts_with("node  address        zone  weight  state"), "{seen:?}");
        assert!(seen[1].starts_with("   0  10.0.0.1:7379  red        1  up"), "{seen:?}");
        assert!(seen[2].starts_with("   0  10.0.0.1:7379  -          3  up"), "{seen:?}");
    }

    #[test]
    fn a_ring_is_seen_at_a_glance() {
        let node = |node, leads, is_up| NodeStatus {
            node,
            address: format!("10.0.0.{node}:7379"),
            is_up,
            leads,
            in_sync: 16384,
            behind: is_up.then_some(u64::from(node) * 7),
            ..NodeStatus::default()
        };
        let status = RingStatus {
            node: 1,
            version: 7,
            group_silent_ms: 0,
            group_leader: 1,
            slots: 16384,
            served: 10000,
            copies_in_sync_min: 1,
            nodes: vec![node(1, 5000, true), node(2, 2500, true), node(10, 0, false)],
            down: vec![DownSlots { first: 10000, last: 16383, had_by: vec![10, 3], ..DownSlots::default() }],
            keyspaces: vec![KeyspaceStatus { served: 10000, ..KeyspaceStatus::default() }],
            setup: None,
        };
        assert_eq!(
            trouble(&status).as_deref(),
            Some("6384 slots are not served: nodes 3, 10 had their last copies")
        );
        let seen = picture(&status);
        let lines: Vec<_> = seen.lines().collect();
        assert_eq!(lines[0], "3 nodes, 16384 slots: 6384 NOT served, at least 1 copy of each in sync");
        assert_eq!(
            lines[3],
            format!("   1  10.0.0.1:7379   up          5000   16384         0         7  {}", "#".repeat(24))
        );
        assert_eq!(
            lines[4],
            format!("   2  10.0.0.2:7379   up          2500   16384         0        14  {}", "#".repeat(12))
        );
        assert_eq!(lines[5], "  10  10.0.0.10:7379  DOWN           0   16384         0         ?");
        assert_eq!(lines[7..], ["node 10 at 10.0.0.10:7379 does not answer"]);
        let mut cut = status.clone();
        (cut.nodes[0].unreached, cut.nodes[1].unreached) = (vec![2, 10], vec![10]);
        let told = "node 10 at 10.0.0.10:7379 does not answer\nnode 1 has no connection to node 2";
        assert!(picture(&cut).ends_with(told), "{}", picture(&cut));
        let mut wrong = status.clone();
        (wrong.nodes[0].clock_off_ms, wrong.nodes[0].is_clock_doubted) = (Some(3_600_400), true);
        (wrong.nodes[1].clock_off_ms, wrong.nodes[2].clock_off_ms) = (Some(-59_000), Some(-90_000));
        let told = "the clock of node 1 is 3600 s ahead of the others': it uses theirs\n\
                    the clock of node 10 is 90 s behind the others': nobody knows which is right";
        assert!(picture(&wrong).ends_with(told), "{}", picture(&wrong));
        wrong.nodes[1].is_seat_lost = true;
        assert!(picture(&wrong).contains("\nnode 2 does not keep the configuration any more"));
        let scratch = KeyspaceStatus { keyspace: 1, name: "scratch".to_owned(), ..KeyspaceStatus::default() };
        let whole = KeyspaceStatus { served: 16384, ..KeyspaceStatus::default() };
        let served = 16384;
        let status =
            RingStatus { slots: 32768, served, down: vec![], keyspaces: vec![whole, scratch], ..status };
        assert_eq!(
            trouble(&status).as_deref(),
            Some(
                "16384 slots are not served, of keyspace scratch: name that keyspace behind the nodes, in \
                 --store, to see who had their last copies"
            )
        );
        assert!(picture(&status).contains("\n     1  scratch "), "{}", picture(&status));
    }

    #[test]
    fn slots_that_were_lost_are_not_taken_for_new_ones() {
        let slots = |first, last, had_by: &[u32], is_new| {
            let had_by = had_by.to_vec();
            DownSlots { first, last, had_by, is_new, ..DownSlots::default() }
        };
        let (new, lost) = (slots(0, 4, &[], true), slots(5, 9, &[], false));
        let kept = slots(10, 10, &[3], false);
        assert_eq!(who_had(std::slice::from_ref(&new)), "no node has had them yet");
        let said = "their last copies are lost: the nodes that had them came back without their data";
        assert_eq!(who_had(&[new, lost.clone()]), said);
        let said = "node 3 had their last copies; those of 5 slots are lost: the nodes that had them came \
                    back without their data";
        assert_eq!(who_had(&[lost, kept]), said);
    }

    #[test]
    fn a_stale_status_is_not_shown_as_the_present_one() {
        let up = |node| NodeStatus { node, is_up: true, ..NodeStatus::default() };
        let status = RingStatus {
            node: 1,
            group_silent_ms: 23_500,
            slots: 1,
            served: 1,
            nodes: vec![up(1), up(2)],
            ..RingStatus::default()
        };
        let seen = picture(&status);
        assert!(
            seen.starts_with(
                "The present state of the ring is unknown: node 1 has heard nothing for 23 s. Its last known state:\n"
            )
        );
        let states: Vec<_> = seen.lines().skip(5).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(states, ["up", "?"], "{seen}");
        assert_eq!(json_of(&status)["is_of_before"], true);
    }
}
