//! `atoll ring keyspace`: keyspaces of a ring, each with copies of its own.

use super::operate::{as_unknown_outcome, operator};
use crate::{Failure, Session, options};
use atoll_open::{KeyspaceStatus, LatencyClass, NewKeyspace, RING_CHANGE, RingOperator, RingStatus};
use atoll_store::{Durability, StoreError};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::time::Duration;

/// `atoll ring keyspace`
#[derive(Subcommand, Debug)]
pub enum KeyspaceVerb {
    /// Create a keyspace
    Create(Create),
    /// List keyspaces
    List(List),
}

/// `atoll ring keyspace create`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring keyspace create scratch --copies 1 --store ring://127.0.0.1:7379/
  atoll ring keyspace create results --copies 5 --min-sync 3 --store ring://127.0.0.1:7379/
  atoll ring keyspace create ledger --durability synced --store ring://127.0.0.1:7379/
  atoll kv put run 1 --store ring://127.0.0.1:7379/scratch
A ring has at most 16 keyspaces, including the first one, and they share no keys. Redis clients select one by
number with SELECT, or by name with AT.KEYSPACE USE. The name and the rules of a keyspace cannot be changed
later. --durability is what its acknowledged writes survive, whatever its nodes were started with; without it,
the --durability of the nodes counts. flushed and synced need nodes with a folder.
Keyspaces cannot be deleted; redis-cli -p PORT -n NUMBER FLUSHDB on each node empties one.
Returns once every node serves the keyspace, or at once if it exists with the same rules.")]
pub struct Create {
    /// Name: letters, digits, '-', '_' and '.'
    name: String,
    /// Number of copies of each slot; by default that of the ring
    #[arg(long, value_name = "N")]
    copies: Option<u8>,
    /// Number of copies that must be in sync to accept a write; by default that of the ring
    #[arg(long, value_name = "N", requires = "copies")]
    min_sync: Option<u8>,
    /// Latency class in milliseconds for clients that choose none: 5, 50 or 500
    #[arg(long, value_name = "MS", value_parser = super::parse_class)]
    latency_class: Option<LatencyClass>,
    /// Return once it is requested, without waiting until it exists
    #[arg(long)]
    no_wait: bool,
}

/// `atoll ring keyspace list`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring keyspace list --store ring://127.0.0.1:7379/")]
pub struct List {}

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long it may take until all nodes serve the keyspace.
const TIME_MAX: Duration = Duration::from_secs(20);

impl KeyspaceVerb {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::Create(verb) => verb.run(session).await,
            Self::List(_) => {
                let keyspaces = operator(session)?.keyspaces().await?;
                session.output.either(|| picture(&keyspaces), || json_of_all(&keyspaces))
            }
        }
    }
}

impl Create {
    async fn run(self, session: &Session) -> Result<(), Failure> {
        let operator = operator(session)?;
        let new = NewKeyspace {
            name: self.name.clone(),
            copies: self.copies,
            in_sync_min: self.min_sync,
            latency: self.latency_class.unwrap_or_default(),
            durability: options::named_durability(&session.settings)?,
        };
        self.check_nodes(&operator).await?;
        operator.create_keyspace(&new).await?;
        if self.no_wait {
            return session.output.either(
                || format!("keyspace {} was requested{}", self.name, told(new.durability)),
                || {
                    let durability = new.durability.map(Durability::name);
                    json!({ "name": self.name, "made": false, "durability": durability })
                },
            );
        }
        session.hint_on_interrupt(
            "it is still being created; `atoll ring keyspace list` shows when it is there",
        );
        let made = self.wait(&operator).await.map_err(as_unknown_outcome)?;
        session.output.either(
            || {
                let durability = told(made.durability);
                format!("keyspace {} is there, as number {}{durability}", made.name, made.keyspace)
            },
            || {
                let (number, durability) = (made.keyspace, made.durability.map(Durability::name));
                json!({ "made": true, "name": made.name, "keyspace": number, "durability": durability })
            },
        )
    }

    /// Refuses a keyspace that the nodes now up cannot serve, since its rules cannot be changed later. With
    /// --no-wait it is not checked.
    async fn check_nodes(&self, operator: &RingOperator) -> Result<(), Failure> {
        let Some(copies) = self.copies.filter(|_| !self.no_wait) else { return Ok(()) };
        let status = operator.status().await?;
        let is_there = status.keyspaces.iter().any(|one| one.name == self.name);
        let nodes = status.nodes.iter().filter(|node| node.is_up && !node.is_leaving).count();
        if is_there || usize::from(copies) <= nodes {
            return Ok(());
        }
        Err(Failure::Usage {
            problem: format!("--copies {copies}, but {nodes} nodes are up"),
            hint: "start more nodes first; with --no-wait it is created anyway, and waits for them"
                .to_owned(),
        })
    }

    /// Waits until each node that is up knows the keyspace, and all its slots are served.
    async fn wait(&self, operator: &RingOperator) -> Result<KeyspaceStatus, Failure> {
        let ends = tokio::time::Instant::now() + TIME_MAX;
        loop {
            let status = operator.status().await?;
            let reason = match status.keyspaces.iter().find(|one| one.name == self.name) {
                Some(one) if one.served < slots_each(&status) => {
                    let nodes = status.nodes.iter().filter(|node| node.is_up && !node.is_leaving).count();
                    format!(
                        "keyspace {} is created, but only {} of its {} slots are served: it waits for nodes to hold its copies, and {nodes} are up",
                        self.name,
                        one.served,
                        slots_each(&status)
                    )
                }
                Some(one) => match self.unaware(operator, &status).await {
                    None => return Ok(one.clone()),
                    Some(address) => {
                        format!("keyspace {} is created, but {address} does not know it yet", self.name)
                    }
                },
                None => format!("keyspace {} is not created yet", self.name),
            };
            if tokio::time::Instant::now() > ends {
                return Err(StoreError::Unknown { what: RING_CHANGE, reason, source: None }.into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// A node that is up and does not report the keyspace.
    async fn unaware(&self, operator: &RingOperator, status: &RingStatus) -> Option<String> {
        for node in status.nodes.iter().filter(|node| node.is_up) {
            let told = operator.keyspaces_of(&node.address).await;
            if !told.is_some_and(|all| all.iter().any(|one| one.name == self.name)) {
                return Some(node.address.clone());
            }
        }
        None
    }
}

/// What a report adds about a keyspace with a durability of its own, since it cannot be changed later.
fn told(durability: Option<Durability>) -> String {
    durability.map_or_else(String::new, |class| format!(", with durability {}", class.name()))
}

/// How many slots each keyspace has.
pub(super) fn slots_each(status: &RingStatus) -> u64 {
    status.slots / status.keyspaces.len().max(1) as u64
}

/// The name shown for a keyspace, where its number alone says little.
pub(super) fn name_of(keyspace: &KeyspaceStatus) -> &str {
    if keyspace.keyspace == 0 { "(first)" } else { &keyspace.name }
}

pub(super) fn json_of(keyspace: &KeyspaceStatus) -> Value {
    json!({
        "keyspace": keyspace.keyspace,
        "name": keyspace.name,
        "copies": keyspace.copies,
        "in_sync_min": keyspace.in_sync_min,
        "latency_ms": keyspace.latency.milliseconds(),
        "durability": keyspace.durability.map(Durability::name),
        "served": keyspace.served,
        "copies_in_sync_min": keyspace.copies_in_sync_min,
    })
}

fn json_of_all(keyspaces: &[KeyspaceStatus]) -> Value {
    Value::Array(keyspaces.iter().map(json_of).collect())
}

/// One line per keyspace.
pub(super) fn picture(keyspaces: &[KeyspaceStatus]) -> String {
    let width = keyspaces.iter().map(|one| name_of(one).len()).max().unwrap_or(0).max("keyspace".len());
    let or_ring =
        |number: Option<u64>| number.map_or_else(|| "ring's".to_owned(), |number| number.to_string());
    let head = format!(
        "{:>6}  {:width$}  {:>6}  {:>8}  {:>7}  {:>6}  {:>10}  {:>7}",
        "number", "keyspace", "copies", "min sync", "in sync", "class", "durability", "served"
    );
    let line = |one: &KeyspaceStatus| {
        let class = one.latency.milliseconds().map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let durability = one.durability.map_or("ring's", Durability::name);
        format!(
            "{:>6}  {:width$}  {:>6}  {:>8}  {:>7}  {class:>6}  {durability:>10}  {:>7}",
            one.keyspace,
            name_of(one),
            or_ring(one.copies.map(u64::from)),
            or_ring(one.in_sync_min.map(u64::from)),
            one.copies_in_sync_min,
            one.served
        )
    };
    std::iter::once(head).chain(keyspaces.iter().map(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyspaces_are_seen_at_a_glance() {
        let first = KeyspaceStatus { served: 16384, copies_in_sync_min: 3, ..KeyspaceStatus::default() };
        let scratch = KeyspaceStatus {
            keyspace: 1,
            name: "scratch-of-ana".to_owned(),
            copies: Some(1),
            in_sync_min: Some(1),
            latency: LatencyClass::FiveHundred,
            durability: Some(Durability::Buffered),
            served: 16000,
            copies_in_sync_min: 1,
        };
        let seen = picture(&[first, scratch]);
        let lines: Vec<_> = seen.lines().collect();
        assert_eq!(
            lines[0],
            "number  keyspace        copies  min sync  in sync   class  durability   served"
        );
        assert_eq!(
            lines[1],
            "     0  (first)         ring's    ring's        3       -      ring's    16384"
        );
        assert_eq!(
            lines[2],
            "     1  scratch-of-ana       1         1        1  500 ms    buffered    16000"
        );
    }
}
