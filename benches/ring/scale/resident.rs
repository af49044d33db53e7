//! A node with a table of a thousand nodes, in its own process, to measure its memory.
//!
//! The other nodes exist only in the table. The node contacts none of them, answers requests for its slots,
//! and reports its size.

use super::{ScaleError, tables};
use crate::client::Speaker;
use crate::servers::own_child;
use atoll_council::TableUpdate;
use atoll_replica::{Change, Incarnation, Moment, NodeId, Proposal, Table};
use atoll_ring::{
    GroupDoor, GroupEvent, GroupMember, Joining, Node, NodeError, NodeOptions, OnGroupEvent, Others,
    RingOptions, SlotStorage,
};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODES: u32 = 1_000;
const SLOTS: u32 = 16_384;
const PATIENCE: Duration = Duration::from_secs(30);

/// The megabytes that such a node holds.
pub fn measure(out: &Path) -> Result<f64, ScaleError> {
    let mut child = own_child(&[])?;
    let child = child.arg("table-node").arg(out).stdin(Stdio::null()).stdout(Stdio::null());
    let status = child.status().map_err(ScaleError::io("start a node with a large table"))?;
    if !status.success() {
        return Err(ScaleError::Table("a node with it"));
    }
    let text = std::fs::read_to_string(out).map_err(ScaleError::io("read what a node said"))?;
    text.trim().parse().map_err(|_| ScaleError::Table("a node with it"))
}

/// Runs that node and writes its memory usage.
pub fn hold(out: &Path) -> Result<(), ScaleError> {
    let group = Prepared { table: received()? };
    let local = || std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let others =
        Others { me: NodeId(1), listen: local(), group: Arc::new(group), options: RingOptions::default() };
    let options = NodeOptions {
        listen: local(),
        place: SlotStorage::Memory,
        others: Some(others),
        ..NodeOptions::default()
    };
    let node = Node::start(options)?;
    let start = Instant::now();
    let told = loop {
        let heard = Speaker::connect(node.address()).and_then(|mut one| one.text(&[b"CLUSTER", b"INFO"]));
        let told = heard.unwrap_or_default();
        if told.contains(&format!("cluster_known_nodes:{NODES}")) {
            break told;
        }
        if start.elapsed() > PATIENCE {
            return Err(ScaleError::Table("a node that never heard of it"));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    drop(told);
    Speaker::connect(node.address()).and_then(|mut one| one.say(&[b"CLUSTER", b"SLOTS"]))?;
    let status =
        std::fs::read_to_string("/proc/self/status").map_err(ScaleError::io("look at this process"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    let kibibytes: f64 =
        resident.and_then(|text| text.parse().ok()).ok_or(ScaleError::Table("its memory"))?;
    std::fs::write(out, format!("{:.3}\n", kibibytes * 1024.0 / 1e6))
        .map_err(ScaleError::io("write a figure"))?;
    // Messages to nodes that do not exist are not waited for.
    std::process::exit(0);
}

/// The table as a node receives it; the objects that made it are freed.
fn received() -> Result<Arc<Table>, ScaleError> {
    let whole = TableUpdate::whole(&tables::founded(NODES, SLOTS)?.table()).encoded();
    let update = TableUpdate::decoded(&whole);
    update.and_then(|update| update.apply(None)).ok_or(ScaleError::Table("a whole table"))
}

/// A configuration group whose decisions are all made already.
struct Prepared {
    table: Arc<Table>,
}

struct Member(OnGroupEvent);

impl GroupDoor for Prepared {
    fn join(&self, joining: Joining) -> Result<Box<dyn GroupMember>, NodeError> {
        (joining.on_event)(GroupEvent::Registered(Incarnation(1), 0));
        (joining.on_event)(GroupEvent::Table(Arc::clone(&self.table)));
        Ok(Box::new(Member(joining.on_event)))
    }
}

impl GroupMember for Member {
    fn propose(&self, _: Vec<Proposal>) {}

    fn ask(&self, _: Vec<Change>) {}

    fn fetch_table(&self) {
        (self.0)(GroupEvent::Heard(Moment(0), None));
    }
}
