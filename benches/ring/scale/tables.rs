//! The cost of a ring's table: memory in a node and in a client, and time and bytes for a change.
//!
//! Memory is what the system's allocator has handed out, its rounding and headers included. For a node it
//! is divided into the table that it follows, the routes that it keeps to redirect requests, and the answer
//! to `CLUSTER SLOTS` once a client has asked for it.

use super::ScaleError;
use atoll_council::TableUpdate;
use atoll_replica::{
    Change, Configuration, Group, GroupOptions, NodeId, PlacementHints, Proposal, Slot, Survived, Table,
    Version,
};
use atoll_resp::Value;
use atoll_ring::{HostPort, NodeAddress, NodeName, SlotTable};
use atoll_ring_client::Owners;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The measured numbers of nodes and slots.
const SHAPES: [(u32, u32); 3] = [(1_000, 16_384), (2_000, 16_384), (1_000, 1 << 20)];
/// The same, to try the bench itself.
const SHAPES_TRIAL: [(u32, u32); 3] = [(200, 16_384), (400, 16_384), (200, 1 << 15)];
const COPIES: usize = 3;
/// How many updates are timed.
const UPDATES: u32 = 20;

/// A table of one shape.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct TableCosts {
    /// How many nodes.
    pub nodes: u32,
    /// How many slots.
    pub slots: u32,
    /// Bytes of the table that a node follows.
    pub table_bytes: f64,
    /// Bytes of the routes by which it redirects requests.
    pub routes_bytes: f64,
    /// Bytes that a client keeps.
    pub client_bytes: f64,
    /// Bytes of the whole encoded table.
    pub whole_bytes: usize,
    /// Milliseconds to found it.
    pub founding_ms: f64,
    /// The cost of an update of one slot.
    pub update: Update,
}

/// The cost of an update of one slot.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Update {
    /// Bytes of the encoded update.
    pub bytes: usize,
    /// Microseconds for the configuration group to decide it.
    pub decide_us: f64,
    /// Microseconds to encode it.
    pub encode_us: f64,
    /// Microseconds for a node to make its next table from it.
    pub apply_us: f64,
    /// Microseconds to update the routes.
    pub routes_us: f64,
}

/// Measures all shapes.
pub fn run(is_trial: bool) -> Result<Vec<TableCosts>, ScaleError> {
    let shapes = if is_trial { SHAPES_TRIAL } else { SHAPES };
    shapes.iter().map(|&(nodes, slots)| look(nodes, slots)).collect()
}

impl TableCosts {
    /// Bytes that a node holds.
    pub fn node_bytes(&self) -> f64 {
        self.table_bytes + self.routes_bytes
    }
}

/// The cost of one more node, and of one more slot: in a node, and in a client.
pub fn each(all: &[TableCosts]) -> Option<[(f64, f64); 2]> {
    let [few, more_nodes, more_slots] = all else { return None };
    let of = |of: fn(&TableCosts) -> f64| {
        let node = (of(more_nodes) - of(few)) / f64::from(more_nodes.nodes - few.nodes);
        (node, (of(more_slots) - of(few)) / f64::from(more_slots.slots - few.slots))
    };
    Some([of(TableCosts::node_bytes), of(|taken| taken.client_bytes)])
}

fn look(nodes: u32, slots: u32) -> Result<TableCosts, ScaleError> {
    let begin = Instant::now();
    let mut group = founded(nodes, slots)?;
    let founding_ms = begin.elapsed().as_secs_f64() * 1e3;
    let whole = TableUpdate::whole(&group.table()).encoded();
    let received = || TableUpdate::decoded(&whole).and_then(|update| update.apply(None));
    let (table, table_bytes) = heap_of(received);
    let table = table.ok_or(ScaleError::Table("a whole table"))?;
    let (routes, routes_bytes) = heap_of(|| SlotTable::of(Arc::clone(&table), NodeId(1)));
    let (told, ranges) = told(&table);
    let (owners, client_bytes) = heap_of(|| Owners::read(&told, &ranges, slots as usize));
    let owners = owners.ok_or(ScaleError::Table("the owners of slots"))?;
    drop((routes, owners));
    let update = update(&mut group, table)?;
    let whole_bytes = whole.len();
    Ok(TableCosts { nodes, slots, table_bytes, routes_bytes, client_bytes, whole_bytes, founding_ms, update })
}

/// A ring of this many nodes that all have about as many slots.
pub fn founded(nodes: u32, slots: u32) -> Result<Group, ScaleError> {
    let mut group = Group::new(GroupOptions { slots, copies: COPIES });
    for node in 1..=nodes {
        let address = address(node).ok_or(ScaleError::Table("an address"))?.to_string();
        let survived = Survived::Nothing;
        group.apply(Change::Register {
            node: NodeId(node),
            nonce: 1,
            address,
            hints: PlacementHints::default(),
            survived,
        });
    }
    for change in group.plan(&[]) {
        group.apply(change);
    }
    Ok(group)
}

/// The address of such a node: as on a large machine, never contacted.
pub fn address(node: u32) -> Option<NodeAddress> {
    let name =
        NodeName::new(format!("{:040x}", u128::from(node) * 0x9e37_79b9_7f4a_7c15_f39c_c060).as_bytes())?;
    let host = format!("10.{}.{}.{}", node >> 16, node >> 8 & 255, node & 255);
    let at = |port| HostPort { host: host.clone(), port };
    Some(NodeAddress { name, clients: at(7379), peers: at(17379) })
}

/// The nodes and slots in the answer to `AT.TABLE`, as a client parses them.
fn told(table: &Table) -> (Vec<Value>, Vec<Value>) {
    let configurations: Vec<Configuration> = table.slots.iter().collect();
    let (mut nodes, mut places) = (Vec::new(), BTreeMap::new());
    let (mut ranges, mut first) = (Vec::new(), 0_i64);
    for run in configurations.chunk_by(|one, other| one.primary == other.primary) {
        let last = first + run.len() as i64 - 1;
        let at = run[0].primary.and_then(|node| Some((node, address(node.0)?.clients)));
        if let Some((node, HostPort { host, port })) = at {
            let place = *places.entry(node).or_insert_with(|| {
                nodes.push(Value::Array(vec![Value::String(host.into_bytes()), Value::Integer(port.into())]));
                nodes.len() as i64 - 1
            });
            ranges.extend([first, last, place].map(Value::Integer));
        }
        first = last + 1;
    }
    (nodes, ranges)
}

/// Removes a copy from one slot after the other.
fn update(group: &mut Group, mut known: Arc<Table>) -> Result<Update, ScaleError> {
    let members_since: BTreeMap<NodeId, Version> =
        known.members.keys().map(|&node| (node, Version(0))).collect();
    let mut sum = Update::default();
    for number in 0..UPDATES {
        let slot = Slot(number * (known.slots.len() as u32 / UPDATES));
        let Configuration { epoch, in_sync, .. } = known.slot(slot);
        let node = *in_sync.as_slice().last().ok_or(ScaleError::Table("a slot without copies"))?;
        let (_, decide_us) = timed(|| group.apply(Change::Propose(Proposal::Dismiss { slot, epoch, node })));
        let table = group.table();
        let (bytes, encode_us) =
            timed(|| TableUpdate::since(&table, known.version, &members_since).encoded());
        let (next, apply_us) =
            timed(|| TableUpdate::decoded(&bytes).and_then(|update| update.apply(Some(&known))));
        let next = next.filter(|next| *next == table).ok_or(ScaleError::Table("an update"))?;
        let (_, routes_us) = timed(|| SlotTable::of(Arc::clone(&next), NodeId(1)));
        known = next;
        sum.bytes = sum.bytes.max(bytes.len());
        sum.decide_us += decide_us / f64::from(UPDATES);
        sum.encode_us += encode_us / f64::from(UPDATES);
        sum.apply_us += apply_us / f64::from(UPDATES);
        sum.routes_us += routes_us / f64::from(UPDATES);
    }
    Ok(sum)
}

fn timed<T>(does: impl FnOnce() -> T) -> (T, f64) {
    let begin = Instant::now();
    let done = does();
    (done, begin.elapsed().as_secs_f64() * 1e6)
}

/// Makes something; returns it with the memory that it holds.
fn heap_of<T>(make: impl FnOnce() -> T) -> (T, f64) {
    let before = heap_bytes();
    let made = make();
    (made, heap_bytes() - before)
}

/// Bytes that the allocator has handed out to this process, including large blocks.
#[allow(unsafe_code, reason = "the call has no safe form")]
fn heap_bytes() -> f64 {
    // SAFETY: the call takes no arguments and returns numbers.
    let heap = unsafe { libc::mallinfo2() };
    (heap.uordblks + heap.hblkhd) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_held_is_seen_and_what_is_let_go_is_not() {
        let (held, bytes) = heap_of(|| std::hint::black_box(vec![7_u8; 3 << 20]));
        assert!((bytes - f64::from(3 << 20)).abs() < 300_000.0, "{bytes} {}", held.len());
        let ((), bytes) = heap_of(|| drop(std::hint::black_box(vec![7_u8; 3 << 20])));
        assert!(bytes.abs() < 300_000.0, "{bytes}");
    }

    #[test]
    fn what_one_more_takes_is_the_difference() {
        let taken = |nodes, slots| TableCosts {
            nodes,
            slots,
            table_bytes: 1_000.0 + 50.0 * f64::from(nodes) + 8.0 * f64::from(slots),
            client_bytes: 4.0 * f64::from(slots),
            ..TableCosts::default()
        };
        let all = SHAPES.map(|(nodes, slots)| taken(nodes, slots));
        assert_eq!(each(&all), Some([(50.0, 8.0), (0.0, 4.0)]));
        assert_eq!(each(&all[..2]), None);
    }
}
