//! What whoever runs a ring asks of it: how it is, that nodes leave, and another keyspace.

use crate::nodes::Nodes;
use crate::options::RingOptions;
use crate::sending::Sending;
use atoll_resp::{LatencyClass, Value};
use atoll_store::{ErrorKind, Outcome, StoreError};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A ring, to be looked after.
pub struct RingOperator {
    nodes: Nodes,
}

/// How a ring is, as one of its nodes knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingStatus {
    /// The node that answered.
    pub node: u32,
    /// Counts changes of who has what.
    pub version: u64,
    /// For how long that node has not heard from the nodes that keep the configuration, in milliseconds: what
    /// it tells is as old.
    pub group_silent_ms: u64,
    /// The node that led those nodes then; 0 where there are none, or that node has not heard of one.
    pub group_leader: u32,
    /// How many slots there are, of all keyspaces.
    pub slots: u64,
    /// How many of them have a node that answers for them.
    pub served: u64,
    /// How many copies in sync the slot has that has fewest, of the keyspace that was asked for.
    pub copies_in_sync_min: u64,
    /// All nodes, by their numbers.
    pub nodes: Vec<NodeStatus>,
    /// Slots of the keyspace that was asked for that no node answers for.
    pub down: Vec<DownSlots>,
    /// All keyspaces, in their order.
    pub keyspaces: Vec<KeyspaceStatus>,
}

impl RingStatus {
    /// Whether it is of later than another one, or as late and heard of since.
    fn is_newer(&self, other: &Self) -> bool {
        let age = |status: &Self| (status.version, Reverse(status.group_silent_ms));
        age(self) > age(other)
    }
}

/// A keyspace, and how it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceStatus {
    /// Its number.
    pub keyspace: u8,
    /// What it is called; the first one is called nothing.
    pub name: String,
    /// How many copies each of its slots is to have; none for as many as the ring was made with.
    pub copies: Option<u8>,
    /// How many of them must be in sync for a write to be taken; none for as many as elsewhere.
    pub in_sync_min: Option<u8>,
    /// How long its requests may take where a client says nothing of it; none where nothing is said here
    /// either.
    pub latency: LatencyClass,
    /// How many of its slots have a node that answers for them.
    pub served: u64,
    /// How many copies in sync the slot has that has fewest.
    pub copies_in_sync_min: u64,
}

/// A keyspace that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewKeyspace {
    /// What it is to be called.
    pub name: String,
    /// How many copies each of its slots is to have; none for as many as the ring was made with.
    pub copies: Option<u8>,
    /// How many of them must be in sync for a write to be taken; none for as many as elsewhere.
    pub in_sync_min: Option<u8>,
    /// How long its requests may take where a client says nothing of it.
    pub latency: LatencyClass,
}

/// Slots beside each other that no node answers for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DownSlots {
    /// The first of them.
    pub first: u16,
    /// The last of them.
    pub last: u16,
    /// The nodes that had their last copies in sync.
    pub had_by: Vec<u32>,
}

/// How a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its number.
    pub node: u32,
    /// Where clients reach it.
    pub address: String,
    /// Whether the others hear it.
    pub is_up: bool,
    /// Whether what it has goes elsewhere.
    pub is_leaving: bool,
    /// How many slots it answers for.
    pub leads: u64,
    /// Of how many it has a copy in sync.
    pub in_sync: u64,
    /// Of how many its copy catches up.
    pub catching_up: u64,
    /// How many writes its copies lack, as those say who lead the slots; none where one of them did not
    /// answer.
    pub behind: Option<u64>,
    /// The nodes to which it has no connection, as it says itself; none where it did not answer, or has one
    /// to all.
    pub unreached: Vec<u32>,
    /// Whether its part in what keeps the configuration failed, as it says itself: the others decide without
    /// it until it begins again.
    pub is_seat_lost: bool,
    /// By how many milliseconds its clock is ahead of the middle one of all clocks, as it says itself; none
    /// where it did not answer.
    pub clock_off_ms: Option<i64>,
    /// Whether it goes by the clocks of the others instead.
    pub is_clock_doubted: bool,
}

/// What is unknown where a ring was asked for a change, and no answer came.
pub const RING_CHANGE: &str = "the change of the ring";

/// Between two questions to nodes that have begun a moment ago.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl RingOperator {
    /// Names a ring; nothing is asked yet.
    #[must_use]
    pub fn new(options: RingOptions) -> Self {
        Self { nodes: Nodes::new(options) }
    }

    /// How the ring is.
    ///
    /// # Errors
    /// `unavailable` if no node answers, or none knows yet what the ring is; `unauthenticated` if the token
    /// is not theirs.
    pub async fn status(&self) -> Result<RingStatus, StoreError> {
        let mut status = self.told().await?;
        let answers = self.answers_of(&status).await;
        tell_of_each(&mut status, &answers);
        Ok(status)
    }

    /// The same, as that one of the nodes knows it which knows most, and without what each tells of itself
    /// alone. Any one of them may go by what was, as one that is cut off from the others does.
    ///
    /// # Errors
    /// As [`RingOperator::status`].
    pub async fn newest_status(&self) -> Result<RingStatus, StoreError> {
        let told = self.told().await?;
        let answers = self.answers_of(&told).await;
        let others = answers.iter().flatten().filter_map(read);
        Ok(others.fold(told, |newest, other| if other.is_newer(&newest) { other } else { newest }))
    }

    /// What some node that knows its ring tells of it.
    async fn told(&self) -> Result<RingStatus, StoreError> {
        let ends = Instant::now() + self.nodes.options.patience;
        loop {
            let answer = self.nodes.ask("status", &[b"AT.RING", b"STATUS"]).await?;
            let status = read(&answer).ok_or_else(|| self.nodes.odd("status"))?;
            // A node that is the whole ring may never have changed anything, and one that has left is none of
            // its nodes. Of both it is one that has no table yet, which tells of a ring in which nobody is;
            // now it says so itself, and earlier ones did not.
            if status.version > 0 || status.node > 0 {
                return Ok(status);
            }
            if Instant::now() >= ends {
                let reason = "the node that answers has not heard yet what its ring is".to_owned();
                let place = self.nodes.place.clone();
                return Err(StoreError::Unavailable { place, reason, source: None });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What each node of a ring says that is up or should be; none of one that does not answer.
    async fn answers_of(&self, status: &RingStatus) -> Vec<Option<Value>> {
        let asked = status.nodes.iter().map(async |node| match node.is_up || node.leads > 0 {
            true => self.nodes.ask_node(&node.address, &[b"AT.RING", b"STATUS"]).await,
            false => None,
        });
        futures::future::join_all(asked).await
    }

    /// Slots whose copies are all lost go on with what is left of them, if anything: what was acknowledged
    /// there is lost.
    ///
    /// # Errors
    /// As [`RingOperator::leave`].
    pub async fn recover(&self, slots: &[u16]) -> Result<(), StoreError> {
        let slots: Vec<String> = slots.iter().map(u16::to_string).collect();
        let mut words: Vec<&[u8]> = vec![b"AT.RING", b"RECOVER"];
        words.extend(slots.iter().map(|slot| slot.as_bytes()));
        self.ask(&words).await
    }

    /// Has another keyspace made, unless it is there already; it is there when each node
    /// [tells](RingOperator::keyspaces_of) of it.
    ///
    /// # Errors
    /// As [`RingOperator::leave`]; `conflict` where one of this name has other rules, `invalid-input` and
    /// `limit`.
    pub async fn create_keyspace(&self, new: &NewKeyspace) -> Result<(), StoreError> {
        let mut words = vec!["AT.KEYSPACE".to_owned(), "CREATE".to_owned(), new.name.clone()];
        let numbers = [("COPIES", new.copies), ("MINSYNC", new.in_sync_min)];
        for (word, number) in numbers.into_iter().filter_map(|(word, number)| Some((word, number?))) {
            words.extend([word.to_owned(), number.to_string()]);
        }
        if let Some(milliseconds) = new.latency.milliseconds() {
            words.extend(["CLASS".to_owned(), milliseconds.to_string()]);
        }
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        self.ask(&words).await.map_err(|error| match error {
            StoreError::Remote { kind, unknown, message, hint: None } => {
                let hint = match kind {
                    ErrorKind::Conflict => {
                        "choose another name; `atoll ring keyspace list` tells the rules of each"
                    }
                    _ => "`atoll ring keyspace create --help` tells what a keyspace can be",
                };
                StoreError::Remote { kind, unknown, message, hint: Some(hint.to_owned()) }
            }
            error => error,
        })
    }

    /// The keyspaces that whoever asks may enter.
    ///
    /// # Errors
    /// As [`RingOperator::status`].
    pub async fn keyspaces(&self) -> Result<Vec<KeyspaceStatus>, StoreError> {
        let answer = self.nodes.ask("list keyspaces", &[b"AT.KEYSPACE", b"LIST"]).await?;
        read_keyspaces(&answer).ok_or_else(|| self.nodes.odd("list keyspaces"))
    }

    /// The same, as one node knows it; none if it does not answer.
    pub async fn keyspaces_of(&self, address: &str) -> Option<Vec<KeyspaceStatus>> {
        read_keyspaces(&self.nodes.ask_node(address, &[b"AT.KEYSPACE", b"LIST"]).await?)
    }

    /// Has what a node has go elsewhere; then it is of the ring no more. [`RingOperator::status`] tells how
    /// far that is.
    ///
    /// # Errors
    /// As [`RingOperator::status`], but what may be done though nobody answered is unknown; `invalid-input`
    /// where one node is the whole ring.
    pub async fn leave(&self, node: u32) -> Result<(), StoreError> {
        self.ask(&[b"AT.RING", b"LEAVE", node.to_string().as_bytes()]).await
    }

    /// A node that was leaving stays.
    ///
    /// # Errors
    /// As [`RingOperator::leave`].
    pub async fn stay(&self, node: u32) -> Result<(), StoreError> {
        self.ask(&[b"AT.RING", b"STAY", node.to_string().as_bytes()]).await
    }

    /// Asks for a change that comes to the same however often it is asked for.
    async fn ask(&self, words: &[&[u8]]) -> Result<(), StoreError> {
        let sending = Sending::default();
        let asked = self.nodes.change("ask the ring", words, &sending).await;
        asked.map(drop).map_err(|error| match error.outcome() {
            // It may be made all the same, whatever was said to a later try.
            Outcome::Refused if sending.is_doubtful() => {
                let reason = format!("an earlier try was not answered, and the last one was: {error}");
                StoreError::Unknown { what: RING_CHANGE, reason, source: Some(Arc::new(error)) }
            }
            _ => error,
        })
    }
}

/// Notes of each node what it said: whom it cannot reach, and of those that lead slots how far the others are
/// behind them.
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

/// What stands behind a name in a map.
fn find<'a>(map: &'a Value, wanted: &str) -> Option<&'a Value> {
    let is_it = |name: &Value| name.bytes() == Some(wanted.as_bytes());
    match map {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| is_it(name)).map(|(_, value)| value),
        Value::Array(values) => values.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1]),
        _ => None,
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
        down: lists(answer, "down")?.iter().map(|list| read_down(list)).collect::<Option<_>>()?,
        keyspaces: read_keyspaces(find(answer, "keyspaces")?)?,
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
            served: number(keyspace, "served")?,
            copies_in_sync_min: number(keyspace, "copies_in_sync_min")?,
        })
    };
    keyspaces.iter().map(read).collect()
}

/// How many writes each node lacks of what the one leads that answered.
fn read_behind(answer: &Value) -> Option<Vec<(u32, u64)>> {
    let pair = |list: &Vec<u64>| match list[..] {
        [node, entries] => Some((u32::try_from(node).ok()?, entries)),
        _ => None,
    };
    lists(answer, "behind")?.iter().map(pair).collect()
}

/// Nodes to which the one that answered has no connection. Earlier releases do not tell.
fn read_unreached(answer: &Value) -> Option<Vec<u32>> {
    let Value::Array(nodes) = find(answer, "unreached")? else { return None };
    nodes.iter().map(|node| u32::try_from(integer(node)?).ok()).collect()
}

fn read_down(list: &[u64]) -> Option<DownSlots> {
    let [first, last, nodes @ ..] = list else { return None };
    let had_by = nodes.iter().map(|&node| u32::try_from(node).ok()).collect::<Option<_>>()?;
    Some(DownSlots { first: u16::try_from(*first).ok()?, last: u16::try_from(*last).ok()?, had_by })
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

fn read_node(node: &Value) -> Option<NodeStatus> {
    Some(NodeStatus {
        node: number(node, "node")?.try_into().ok()?,
        address: String::from_utf8(find(node, "address")?.bytes()?.to_vec()).ok()?,
        is_up: number(node, "up")? != 0,
        is_leaving: number(node, "leaving")? != 0,
        leads: number(node, "leads")?,
        in_sync: number(node, "in_sync")?,
        catching_up: number(node, "catching_up")?,
        ..NodeStatus::default()
    })
}

#[cfg(test)]
mod tests;
