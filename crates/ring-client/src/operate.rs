//! Operating a ring: its status, nodes that leave, lost slots, and keyspaces.

use crate::answer::find;
use crate::nodes::Nodes;
use crate::options::RingOptions;
use crate::sending::Sending;
use atoll_resp::{LatencyClass, Value};
use atoll_store::{Durability, ErrorKind, Outcome, StoreError};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A ring, for its operator.
pub struct RingOperator {
    nodes: Nodes,
}

/// The state of a ring, as one of its nodes knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingStatus {
    /// The node that answered.
    pub node: u32,
    /// The version of the table.
    pub version: u64,
    /// How long that node has not heard from the nodes that keep the configuration, in milliseconds. Its
    /// answer is that old.
    pub group_silent_ms: u64,
    /// The node that led those nodes then; 0 if there are none, or that node has not heard of one.
    pub group_leader: u32,
    /// Number of slots of all keyspaces.
    pub slots: u64,
    /// How many of them have a live primary.
    pub served: u64,
    /// The fewest in-sync copies that any slot of the requested keyspace has.
    pub copies_in_sync_min: u64,
    /// All nodes, by their numbers.
    pub nodes: Vec<NodeStatus>,
    /// Slots of the requested keyspace without a live primary.
    pub down: Vec<DownSlots>,
    /// All keyspaces, in order.
    pub keyspaces: Vec<KeyspaceStatus>,
    /// What all nodes of the ring are started with alike; none if the answering node is the whole ring.
    pub setup: Option<RingSetup>,
}

/// What all nodes of a ring are started with alike, which one that joins has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingSetup {
    /// The processes, in the order of the numbers of their nodes, each at the address of its first node.
    /// Later ones may have joined since.
    pub processes: Vec<String>,
    /// How many nodes each of them runs.
    pub loops: u16,
    /// How many of them keep the configuration: the first ones.
    pub keepers: u16,
    /// How many copies there are of everything.
    pub copies: u8,
    /// How many of them must be in sync for a write to be accepted.
    pub in_sync_min: u8,
    /// The largest error in the rate of a clock, in parts per million.
    pub rate_error_ppm: u64,
    /// Whether no clock is relied on.
    pub is_clockless: bool,
}

/// A node that has not heard from the configuration group for this long does not know the present state.
const SILENT_MS_MAX: u64 = 3_000;

impl RingStatus {
    /// Whether it is a state of the past, which may not hold any more.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.group_silent_ms > SILENT_MS_MAX
    }

    /// Whether others may know more than the node that answered: one that has left has no number.
    fn is_doubtful(&self) -> bool {
        self.is_stale() || self.node == 0
    }

    /// Whether it is of a later version than another one, or of the same version and heard more recently.
    fn is_newer(&self, other: &Self) -> bool {
        let age = |status: &Self| (status.version, Reverse(status.group_silent_ms));
        age(self) > age(other)
    }
}

/// A keyspace and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceStatus {
    /// Its number.
    pub keyspace: u8,
    /// Its name; the first one has the empty name.
    pub name: String,
    /// How many copies each of its slots should have; none for the default of the ring.
    pub copies: Option<u8>,
    /// How many of them must be in sync for a write to be accepted; none for the default of the ring.
    pub in_sync_min: Option<u8>,
    /// The latency class of clients that choose none; none if the keyspace does not set one.
    pub latency: LatencyClass,
    /// What an acknowledged write survives; none for the default of each node.
    pub durability: Option<Durability>,
    /// How many of its slots have a live primary.
    pub served: u64,
    /// The fewest in-sync copies that any of its slots has.
    pub copies_in_sync_min: u64,
}

/// A keyspace to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewKeyspace {
    /// Its name.
    pub name: String,
    /// How many copies each of its slots should have; none for the default of the ring.
    pub copies: Option<u8>,
    /// How many of them must be in sync for a write to be accepted; none for the default of the ring.
    pub in_sync_min: Option<u8>,
    /// The latency class of clients that choose none.
    pub latency: LatencyClass,
    /// What an acknowledged write survives; none for the default of each node.
    pub durability: Option<Durability>,
}

/// Adjacent slots without a live primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DownSlots {
    /// The first of them.
    pub first: u16,
    /// The last of them.
    pub last: u16,
    /// The nodes that had their last in-sync copies. If there are none and the slots are not new, those came
    /// back without them.
    pub had_by: Vec<u32>,
    /// Whether no node has had them yet.
    pub is_new: bool,
    /// The nodes whose copies are behind those. The first one that is up goes on where a loss is accepted: it
    /// was in sync later than the ones after it.
    pub catching_up: Vec<u32>,
}

/// The state of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its number.
    pub node: u32,
    /// Where clients reach it.
    pub address: String,
    /// Whether the others hear it.
    pub is_up: bool,
    /// Whether its data are being moved to other nodes.
    pub is_leaving: bool,
    /// How many slots it leads.
    pub leads: u64,
    /// How many slots it has an in-sync copy of.
    pub in_sync: u64,
    /// How many slots its copies are catching up with.
    pub catching_up: u64,
    /// The name of its zone, if it named one. Nodes without one are in the zone of their host.
    pub zone: Option<String>,
    /// How large it is compared with others.
    pub weight: u64,
    /// How many writes its copies lack, as reported by the primaries; none if one of them did not answer.
    pub behind: Option<u64>,
    /// The nodes to which it has no connection, as it reports itself; empty if it did not answer, or is
    /// connected to all.
    pub unreached: Vec<u32>,
    /// Whether its seat in the configuration group failed, as it reports itself. The others decide without it
    /// until it is restarted.
    pub is_seat_lost: bool,
    /// How many milliseconds its clock is ahead of the median of all clocks, as it reports itself; none if it
    /// did not answer.
    pub clock_off_ms: Option<i64>,
    /// Whether it uses the clocks of the others instead.
    pub is_clock_doubted: bool,
}

/// What is unknown when a requested change of the ring got no answer.
pub const RING_CHANGE: &str = "the change of the ring";

/// Pause between two questions to nodes that have just started.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl RingOperator {
    /// Names a ring. Nothing is sent yet.
    #[must_use]
    pub fn new(options: RingOptions) -> Self {
        Self { nodes: Nodes::new(options) }
    }

    /// The status of the ring, as some node knows it. If that one has left or has lost touch with the ring,
    /// it is what the newest of the nodes says that it names.
    ///
    /// # Errors
    /// `unavailable` if no node answers, or none knows the state of the ring yet; `unauthenticated` if the
    /// token is wrong.
    pub async fn status(&self) -> Result<RingStatus, StoreError> {
        let told = self.told().await?;
        let mut answers = self.answers_of(&told).await;
        let mut status = told.clone();
        if told.is_doubtful() {
            status = newest_of(told.clone(), &answers);
            if status != told {
                answers = self.answers_of(&status).await;
            }
        }
        tell_of_each(&mut status, &answers);
        Ok(status)
    }

    /// The status as known by the most recent node, without what each node reports about itself. Any single
    /// node may be out of date, such as one that is cut off from the others. How the ring is set up may come
    /// from another node, if that one does not tell.
    ///
    /// # Errors
    /// As [`RingOperator::status`].
    pub async fn newest_status(&self) -> Result<RingStatus, StoreError> {
        let told = self.told().await?;
        let answers = self.answers_of(&told).await;
        Ok(newest_of(told, &answers))
    }

    /// The status from some node that knows its ring.
    async fn told(&self) -> Result<RingStatus, StoreError> {
        let ends = Instant::now() + self.nodes.options.patience;
        loop {
            let answer = self.nodes.ask("status", &[b"AT.RING", b"STATUS"]).await?;
            let status = read(&answer).ok_or_else(|| self.nodes.odd("status"))?;
            // A node that is the whole ring may still be at version 0, and a node that has left has number 0.
            // Only a node without any table has both, and describes a ring without nodes. Current nodes
            // report this as an error; earlier releases did not.
            if status.version > 0 || status.node > 0 {
                return Ok(status);
            }
            if Instant::now() >= ends {
                let reason = "the node that answers has not yet learned the state of its ring".to_owned();
                let place = self.nodes.place.clone();
                return Err(StoreError::Unavailable { place, reason, source: None });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The answer of each node that is up or should be; none for a node that does not answer.
    async fn answers_of(&self, status: &RingStatus) -> Vec<Option<Value>> {
        let asked = status.nodes.iter().map(async |node| match node.is_up || node.leads > 0 {
            true => self.nodes.ask_node(&node.address, &[b"AT.RING", b"STATUS"]).await,
            false => None,
        });
        futures::future::join_all(asked).await
    }

    /// Lets slots whose in-sync copies are all lost go on with whatever copies are left, if any. Acknowledged
    /// writes there are lost. Slots that have changed since this version of the table are left alone: they
    /// may have been served meanwhile.
    ///
    /// # Errors
    /// As [`RingOperator::leave`].
    pub async fn recover(&self, version: u64, slots: &[u16]) -> Result<(), StoreError> {
        let (version, slots) = (version.to_string(), slots.iter().map(u16::to_string));
        let slots: Vec<String> = slots.collect();
        let mut words: Vec<&[u8]> = vec![b"AT.RING", b"RECOVER", version.as_bytes()];
        words.extend(slots.iter().map(|slot| slot.as_bytes()));
        self.ask(&words).await
    }

    /// Creates a keyspace unless it exists. It is in place when each node
    /// [reports](RingOperator::keyspaces_of) it.
    ///
    /// # Errors
    /// As [`RingOperator::leave`]; `conflict` if a keyspace with this name has other rules, `invalid-input`
    /// and `limit`.
    pub async fn create_keyspace(&self, new: &NewKeyspace) -> Result<(), StoreError> {
        let mut words = vec!["AT.KEYSPACE".to_owned(), "CREATE".to_owned(), new.name.clone()];
        let numbers = [("COPIES", new.copies), ("MINSYNC", new.in_sync_min)];
        for (word, number) in numbers.into_iter().filter_map(|(word, number)| Some((word, number?))) {
            words.extend([word.to_owned(), number.to_string()]);
        }
        if let Some(milliseconds) = new.latency.milliseconds() {
            words.extend(["CLASS".to_owned(), milliseconds.to_string()]);
        }
        if let Some(class) = new.durability {
            words.extend(["DURABILITY".to_owned(), class.name().to_owned()]);
        }
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        self.ask(&words).await.map_err(|error| match error {
            StoreError::Remote { kind, unknown, message, hint: None } => {
                let hint = match kind {
                    ErrorKind::Conflict => {
                        "choose another name; `atoll ring keyspace list` shows the rules of each"
                    }
                    _ => "`atoll ring keyspace create --help` explains the rules",
                };
                StoreError::Remote { kind, unknown, message, hint: Some(hint.to_owned()) }
            }
            error => error,
        })
    }

    /// The keyspaces that the client may enter.
    ///
    /// # Errors
    /// As [`RingOperator::status`].
    pub async fn keyspaces(&self) -> Result<Vec<KeyspaceStatus>, StoreError> {
        let answer = self.nodes.ask("list keyspaces", &[b"AT.KEYSPACE", b"LIST"]).await?;
        read_keyspaces(&answer).ok_or_else(|| self.nodes.odd("list keyspaces"))
    }

    /// The keyspaces as one node knows them; none if it does not answer.
    pub async fn keyspaces_of(&self, address: &str) -> Option<Vec<KeyspaceStatus>> {
        read_keyspaces(&self.nodes.ask_node(address, &[b"AT.KEYSPACE", b"LIST"]).await?)
    }

    /// Makes a node leave: its data are moved to other nodes, and then it is no longer a member.
    /// [`RingOperator::status`] reports the progress.
    ///
    /// # Errors
    /// As [`RingOperator::status`], but if the change may have been made without an answer the outcome is
    /// unknown; `invalid-input` if one node is the whole ring.
    pub async fn leave(&self, node: u32) -> Result<(), StoreError> {
        self.ask(&[b"AT.RING", b"LEAVE", node.to_string().as_bytes()]).await
    }

    /// Lets a node that was leaving stay.
    ///
    /// # Errors
    /// As [`RingOperator::leave`].
    pub async fn stay(&self, node: u32) -> Result<(), StoreError> {
        self.ask(&[b"AT.RING", b"STAY", node.to_string().as_bytes()]).await
    }

    /// Asks for a change that has the same effect however often it is asked for.
    async fn ask(&self, words: &[&[u8]]) -> Result<(), StoreError> {
        let sending = Sending::default();
        let asked = self.nodes.change("ask the ring", words, &sending).await;
        asked.map(drop).map_err(|error| match error.outcome() {
            // An earlier try may still take effect, whatever the answer to a later one.
            Outcome::Refused if sending.is_doubtful() => {
                let reason = format!("an earlier attempt was not answered, and the last one failed: {error}");
                StoreError::Unknown { what: RING_CHANGE, reason, source: Some(Arc::new(error)) }
            }
            _ => error,
        })
    }
}

/// The newest of these statuses. How the ring is set up may come from any of them.
fn newest_of(told: RingStatus, answers: &[Option<Value>]) -> RingStatus {
    answers.iter().flatten().filter_map(read).fold(told, |newest, other| {
        let (mut newest, older) = if other.is_newer(&newest) { (other, newest) } else { (newest, other) };
        newest.setup = newest.setup.or(older.setup);
        newest
    })
}

/// Adds to each node what the nodes reported: which nodes it cannot reach, and, from those that lead slots,
/// how far the others are behind.
fn tell_of_each(status: &mut RingStatus, answers: &[Option<Value>]) {
    let mut behind = Some(BTreeMap::<u32, u64>::new());
    for (node, answer) in status.nodes.iter_mut().zip(answers) {
        let answer = answer.as_ref();
        node.clock_off_ms = answer.and_then(|answer| signed(find(answer, "clock_off_ms")?));
        let is = |name| answer.and_then(|answer| number(answer, name)).is_some_and(|is| is != 0);
        (node.is_clock_doubted, node.is_seat_lost) = (is("clock_doubted"), is("group_seat_lost"));
        node.unreached = answer.and_then(read_unreached).unwrap_or_default();
        if node.leads == 0 {
            continue;
        }
        let told = answer.and_then(read_behind);
        behind = behind.zip(told).map(|(mut sum, told)| {
            told.into_iter().for_each(|(node, entries)| *sum.entry(node).or_default() += entries);
            sum
        });
    }
    for node in &mut status.nodes {
        node.behind = behind.as_ref().map(|sum| sum.get(&node.node).copied().unwrap_or_default());
    }
}

fn number(map: &Value, wanted: &str) -> Option<u64> {
    integer(find(map, wanted)?)
}

fn integer(value: &Value) -> Option<u64> {
    signed(value).and_then(|number| u64::try_from(number).ok())
}

fn signed(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        _ => None,
    }
}

fn read(answer: &Value) -> Option<RingStatus> {
    let Value::Array(nodes) = find(answer, "nodes")? else { return None };
    Some(RingStatus {
        node: number(answer, "node")?.try_into().ok()?,
        version: number(answer, "version")?,
        group_silent_ms: number(answer, "group_silent_ms")?,
        group_leader: number(answer, "group_leader")?.try_into().ok()?,
        slots: number(answer, "slots")?,
        served: number(answer, "served")?,
        copies_in_sync_min: number(answer, "copies_in_sync_min")?,
        nodes: nodes.iter().map(read_node).collect::<Option<_>>()?,
        down: read_all_down(answer)?,
        keyspaces: read_keyspaces(find(answer, "keyspaces")?)?,
        setup: find(answer, "setup").and_then(read_setup),
    })
}

fn read_setup(setup: &Value) -> Option<RingSetup> {
    let Value::Array(processes) = find(setup, "processes")? else { return None };
    let address = |process: &Value| String::from_utf8(process.bytes()?.to_vec()).ok();
    Some(RingSetup {
        processes: processes.iter().map(address).collect::<Option<_>>()?,
        loops: number(setup, "loops")?.try_into().ok()?,
        keepers: number(setup, "keepers")?.try_into().ok()?,
        copies: number(setup, "copies")?.try_into().ok()?,
        in_sync_min: number(setup, "in_sync_min")?.try_into().ok()?,
        rate_error_ppm: number(setup, "rate_error_ppm")?,
        is_clockless: number(setup, "clockless")? != 0,
    })
}

fn read_keyspaces(answer: &Value) -> Option<Vec<KeyspaceStatus>> {
    let Value::Array(keyspaces) = answer else { return None };
    let read = |keyspace: &Value| {
        let small = |name| number(keyspace, name).and_then(|number| u8::try_from(number).ok());
        Some(KeyspaceStatus {
            keyspace: small("keyspace")?,
            name: String::from_utf8(find(keyspace, "name")?.bytes()?.to_vec()).ok()?,
            copies: small("copies"),
            in_sync_min: small("in_sync_min"),
            latency: number(keyspace, "latency_ms")
                .and_then(LatencyClass::of_milliseconds)
                .unwrap_or_default(),
            durability: find(keyspace, "durability")
                .and_then(|name| Durability::from_name(std::str::from_utf8(name.bytes()?).ok()?)),
            served: number(keyspace, "served")?,
            copies_in_sync_min: number(keyspace, "copies_in_sync_min")?,
        })
    };
    keyspaces.iter().map(read).collect()
}

/// How many writes each node lacks of the slots that the answering node leads.
fn read_behind(answer: &Value) -> Option<Vec<(u32, u64)>> {
    let pair = |list: &Vec<u64>| match list[..] {
        [node, entries] => Some((u32::try_from(node).ok()?, entries)),
        _ => None,
    };
    lists(answer, "behind")?.iter().map(pair).collect()
}

/// Nodes to which the answering node has no connection. Earlier releases do not report them.
fn read_unreached(answer: &Value) -> Option<Vec<u32>> {
    let Value::Array(nodes) = find(answer, "unreached")? else { return None };
    nodes.iter().map(|node| u32::try_from(integer(node)?).ok()).collect()
}

fn read_all_down(answer: &Value) -> Option<Vec<DownSlots>> {
    let down = lists(answer, "down")?;
    let mut down = down.iter().map(|list| read_down(list)).collect::<Option<Vec<_>>>()?;
    // Earlier releases tell no more.
    for (slots, left) in down.iter_mut().zip(lists(answer, "down_left").unwrap_or_default()) {
        let Some((founded, nodes)) = left.split_first() else { continue };
        slots.is_new = *founded == 0;
        slots.catching_up = nodes.iter().map(|&node| u32::try_from(node).ok()).collect::<Option<_>>()?;
    }
    Some(down)
}

fn read_down(list: &[u64]) -> Option<DownSlots> {
    let [first, last, nodes @ ..] = list else { return None };
    let had_by = nodes.iter().map(|&node| u32::try_from(node).ok()).collect::<Option<_>>()?;
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    Some(DownSlots { first, last, had_by, ..DownSlots::default() })
}

/// A list of lists of numbers.
fn lists(map: &Value, wanted: &str) -> Option<Vec<Vec<u64>>> {
    let Value::Array(lists) = find(map, wanted)? else { return None };
    let list = |list: &Value| match list {
        Value::Array(values) => values.iter().map(integer).collect(),
        _ => None,
    };
    lists.iter().map(list).collect()
}

fn text(map: &Value, wanted: &str) -> Option<String> {
    String::from_utf8(find(map, wanted)?.bytes()?.to_vec()).ok()
}

fn read_node(node: &Value) -> Option<NodeStatus> {
    Some(NodeStatus {
        node: number(node, "node")?.try_into().ok()?,
        address: text(node, "address")?,
        is_up: number(node, "up")? != 0,
        is_leaving: number(node, "leaving")? != 0,
        leads: number(node, "leads")?,
        in_sync: number(node, "in_sync")?,
        catching_up: number(node, "catching_up")?,
        zone: text(node, "zone").filter(|zone| !zone.is_empty()),
        weight: number(node, "weight").unwrap_or(1),
        ..NodeStatus::default()
    })
}

#[cfg(test)]
mod tests;
