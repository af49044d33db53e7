//! `atoll ring recover`: restarts slots that lost their last copies, with whatever is left of them.
//!
//! Invariant: nothing is asked of the ring before the possible loss was shown and accepted.

use super::operate::{RingPoller, as_unknown_outcome, operator};
use super::status::WITHOUT_THEM;
use crate::output::note;
use crate::{Failure, Session};
use atoll_open::{DownSlots, RING_CHANGE, RingOperator, RingStatus};
use atoll_store::StoreError;
use clap::Args;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// `atoll ring recover`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring recover --accept-loss all --store ring://127.0.0.1:7379/
  atoll ring recover --accept-loss 12 400-499 --yes --store ring://127.0.0.1:7379/
For slots that are down because the nodes with their last copies will not come back. Each slot continues with
what another node still has of it, or empty. Writes acknowledged since then are lost for good, even if such a
node does come back. Slots that are served, or that still have a last copy, are left alone. Without --yes it
asks first, says which nodes should be started before because they have more, and asks again about slots that
were taken over by a node which failed meanwhile; with --yes such slots are left alone, and the verb fails.
--without names nodes that are not to be started before.")]
pub struct Recover {
    /// Slots that may lose data, such as 12 or 400-499; or all, for every slot that no node serves
    #[arg(long, value_name = "SLOT", required = true, num_args = 1..)]
    accept_loss: Vec<SlotSelection>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Nodes that are down and will not be started, whatever older copies of such slots they have
    #[arg(long, value_name = "NODE", num_args = 1..)]
    without: Vec<u32>,
}

/// Slots as they are typed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SlotSelection {
    All,
    Range(RangeInclusive<u16>),
}

/// Slots whose loss was accepted, each with the nodes that had its last copies at that time.
type AcceptedLoss = BTreeMap<u16, Vec<u32>>;

/// Slots of which nodes that are down have copies that were in sync later than those that are up, each with
/// these nodes: started first, they would be what the slot goes on with.
type OlderCopies = BTreeMap<u16, Vec<u32>>;

/// The highest slot.
const SLOT_MAX: u16 = atoll_ring::SLOTS - 1;

impl FromStr for SlotSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let slot = |word: &str| word.parse().ok().filter(|slot| *slot <= SLOT_MAX);
        match (slot(first), slot(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self::Range(first..=last)),
            _ => Err(format!("a slot is a number up to {SLOT_MAX}, and a range is FIRST-LAST; or say all")),
        }
    }
}

/// How long the ring may take to serve one more slot.
const STUCK_TIME_MAX: Duration = Duration::from_secs(30);
/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Most slots in one request.
const SLOTS_AT_ONCE: usize = 1024;
/// How long to wait for an effect before asking again.
const REPEAT_AFTER: Duration = Duration::from_secs(3);

impl Recover {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let operator = operator(session)?;
        // A node that only knows an earlier state of the ring does not know which slots are served now.
        let mut looks = RingPoller::at(&operator, session)?;
        let mut recovered = AcceptedLoss::new();
        // More nodes may fail meanwhile, and the loss of their slots has to be accepted as well.
        loop {
            let status = looks.next().await;
            let status =
                status.map_err(
                    |failure| if recovered.is_empty() { failure } else { as_unknown_outcome(failure) },
                )?;
            let (mut meant, again) = self.next(&status.down, &recovered);
            let older = self.older_copies(&status, &meant);
            if self.yes {
                meant.retain(|slot, _| !older.contains_key(slot));
            }
            if meant.is_empty() {
                let Some(reason) = left_alone(&again, &older) else { break };
                let place = session.store_url()?;
                return Err(StoreError::Unavailable { place, reason, source: None }.into());
            }
            let asked = self.recover((&operator, &mut looks), status.version, &meant, &older).await?;
            recovered.extend(asked);
        }
        let said = || match recovered.len() {
            0 => "nothing to recover: a node serves each of these slots".to_owned(),
            1 => "1 slot is served again, with what was left of it".to_owned(),
            count => format!("{count} slots are served again, with what was left of them"),
        };
        session.output.either(said, || json!({ "recovered": recovered.len() }))
    }

    /// Restarts slots if their loss is accepted as it was shown, in the table of this version, and waits
    /// until they are served. Returns those that were still as shown when that was accepted.
    async fn recover(
        &self,
        (operator, looks): (&RingOperator, &mut RingPoller<'_>),
        shown: u64,
        meant: &AcceptedLoss,
        older: &OlderCopies,
    ) -> Result<AcceptedLoss, Failure> {
        if !self.yes && !confirm(&loss(meant, older))? {
            return Err(Failure::Usage {
                problem: "nothing was recovered".to_owned(),
                hint: "type yes when asked, or add --yes".to_owned(),
            });
        }
        // Whoever is asked may think for long: a node may come back meanwhile, or a better copy go down.
        let status = looks.next().await?;
        let mut agreed = still_lost(&status.down, meant);
        let now_older = self.older_copies(&status, &agreed);
        agreed.retain(|slot, _| now_older.get(slot).is_none_or(|nodes| older.get(slot) == Some(nodes)));
        let left =
            recover_until_served((operator, looks), Some(shown).filter(|_| !self.yes), &agreed).await?;
        if left > 0 {
            let reason = format!(
                "{left} of these slots are still not served: one of their last copies may be back, or no node is available to hold them"
            );
            return Err(StoreError::Unknown { what: RING_CHANGE, reason, source: None }.into());
        }
        Ok(agreed)
    }

    /// The slots to accept next, and those that --yes does not cover: it accepts what could be lost when the
    /// verb started, but not what a node since took over of slots that were recovered meanwhile.
    fn next(&self, down: &[DownSlots], recovered: &AcceptedLoss) -> (AcceptedLoss, AcceptedLoss) {
        let mut meant = self.meant(down);
        meant.retain(|slot, had_by| recovered.get(slot) != Some(had_by));
        meant.into_iter().partition(|(slot, _)| !self.yes || !recovered.contains_key(slot))
    }

    /// The slots among these of which a node that is down has more than those that are up, as far as
    /// --without does not name it.
    fn older_copies(&self, status: &RingStatus, meant: &AcceptedLoss) -> OlderCopies {
        let is_up = |node: &u32| status.nodes.iter().any(|one| one.node == *node && one.is_up);
        let mut older = OlderCopies::new();
        for range in &status.down {
            let down = range.catching_up.iter().take_while(|node| !is_up(node));
            let down: Vec<u32> = down.filter(|node| !self.without.contains(node)).copied().collect();
            if !down.is_empty() {
                older.extend((range.first..=range.last).map(|slot| (slot, down.clone())));
            }
        }
        older.retain(|slot, _| meant.contains_key(slot));
        older
    }

    /// The named slots among those that no node serves.
    fn meant(&self, down: &[DownSlots]) -> AcceptedLoss {
        let is_named = |slot: &u16| {
            self.accept_loss.iter().any(|lost| match lost {
                SlotSelection::All => true,
                SlotSelection::Range(range) => range.contains(slot),
            })
        };
        down_slots(down)
            .filter(|(slot, _)| is_named(slot))
            .map(|(slot, had_by)| (slot, had_by.to_vec()))
            .collect()
    }
}

/// Requests the recovery of all slots and waits as long as their number falls; returns how many are not
/// served in the end. The configuration group decides about one slot after the other, some hundred per
/// second, and a node drops requests that are too many at once. Each request names the table of version
/// `shown`, if somebody was asked about that: what has changed since is left alone.
async fn recover_until_served(
    (operator, looks): (&RingOperator, &mut RingPoller<'_>),
    shown: Option<u64>,
    agreed: &AcceptedLoss,
) -> Result<usize, Failure> {
    let mut left = agreed.clone();
    let mut is_asked = false;
    let (mut asked_at, mut changed_at) = (None, tokio::time::Instant::now());
    while !left.is_empty() && changed_at.elapsed() < STUCK_TIME_MAX {
        if asked_at.is_none_or(|at: tokio::time::Instant| at.max(changed_at).elapsed() > REPEAT_AFTER) {
            let told = |failure, is_asked| if is_asked { as_unknown_outcome(failure) } else { failure };
            let status = looks.next().await.map_err(|failure| told(failure, is_asked))?;
            left = still_lost(&status.down, &left);
            let slots: Vec<u16> = left.keys().copied().collect();
            for some in slots.chunks(SLOTS_AT_ONCE) {
                let asked =
                    operator.recover(shown.unwrap_or(status.version), some).await.map_err(Failure::from);
                asked.map_err(|failure| told(failure, is_asked))?;
                is_asked = true;
            }
            asked_at = Some(tokio::time::Instant::now());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        let still = still_lost(&looks.next().await.map_err(as_unknown_outcome)?.down, &left);
        if still != left {
            (left, changed_at) = (still, tokio::time::Instant::now());
        }
    }
    Ok(left.len())
}

/// Why slots were left alone, if any were: those of which another node has the last copies now, or one that
/// is down has more than those that are up.
fn left_alone(again: &AcceptedLoss, older: &OlderCopies) -> Option<String> {
    let (count, nodes) = (again.len(), node_list(again));
    match (count, nodes.is_empty()) {
        (0, _) if older.is_empty() => None,
        (0, _) => {
            let (count, nodes) = (older.len(), node_list(older));
            let names = nodes.replace(',', "");
            Some(format!(
                "node {nodes} is down and may have more of {count} slots, which were left alone: start it first, or accept that with --without {names}"
            ))
        }
        (_, true) => Some(format!(
            "the last copies of {count} slots were lost since, which was not accepted: {WITHOUT_THEM}"
        )),
        (_, false) => Some(format!(
            "the last copies of {count} slots are now on node {nodes}, whose loss was not accepted: wait for that node, or accept its loss as well"
        )),
    }
}

/// What is lost with these slots, and what should be done before.
fn loss(meant: &AcceptedLoss, older: &OlderCopies) -> String {
    let (nodes, lost) = (node_list(meant), meant.values().filter(|had_by| had_by.is_empty()).count());
    let mut said = format!("{} slots are not served.", meant.len());
    if lost < meant.len() {
        said += &format!(
            " Their last copies are on node {nodes}: writes acknowledged there and nowhere else will be lost for good, even \
             if that node comes back."
        );
    }
    if lost > 0 {
        said += &format!(
            " The last copies of {lost} slots are lost: {WITHOUT_THEM}. If their folder is found, start a node on it, at the \
             same address, before you go on."
        );
    }
    let each: BTreeSet<u32> = older.values().flatten().copied().collect();
    for node in each {
        let count = older.values().filter(|nodes| nodes.contains(&node)).count();
        said += &format!(" Node {node} is down and may have more of {count} of these slots: start it first.");
    }
    said
}

/// The nodes of these slots.
fn node_list(slots: &AcceptedLoss) -> String {
    let nodes: BTreeSet<u32> = slots.values().flatten().copied().collect();
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Each slot that no node serves, with the nodes that had its last copies. There is nothing to recover of
/// slots that no node has had yet: they begin once there are enough nodes.
fn down_slots(down: &[DownSlots]) -> impl Iterator<Item = (u16, &[u32])> {
    let had = down.iter().filter(|range| !range.is_new);
    had.flat_map(|range| (range.first..=range.last).map(|slot| (slot, &*range.had_by)))
}

/// The slots that are still not served, and whose accepted loss is still the same. A slot that another node
/// took over, and that is down again, holds writes acknowledged there: its loss has to be accepted
/// separately.
fn still_lost(down: &[DownSlots], agreed: &AcceptedLoss) -> AcceptedLoss {
    let is_agreed = |slot: &u16, had_by: &[u32]| agreed.get(slot).is_some_and(|agreed| agreed == had_by);
    down_slots(down)
        .filter(|(slot, had_by)| is_agreed(slot, had_by))
        .map(|(slot, had_by)| (slot, had_by.to_vec()))
        .collect()
}

/// Whether a person accepts; without a terminal the answer is no.
fn confirm(said: &str) -> Result<bool, Failure> {
    note(said);
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    let failed = |source| Failure::File { action: "ask at", place: "the terminal".to_owned(), source };
    let mut stderr = std::io::stderr();
    write!(stderr, "Recover them anyway? Type yes: ").and_then(|()| stderr.flush()).map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim() == "yes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_open::NodeStatus;

    fn slots(first: u16, last: u16, had_by: &[u32]) -> DownSlots {
        DownSlots { first, last, had_by: had_by.to_vec(), ..DownSlots::default() }
    }

    fn all(yes: bool) -> Recover {
        Recover { accept_loss: vec![SlotSelection::All], yes, without: Vec::new() }
    }

    #[test]
    fn a_node_that_has_more_is_to_be_started_before_an_emptier_copy_is_taken() {
        let node = |node, is_up| NodeStatus { node, is_up, ..NodeStatus::default() };
        let behind = |slots: DownSlots, nodes: &[u32]| DownSlots { catching_up: nodes.to_vec(), ..slots };
        let status = RingStatus {
            nodes: vec![node(1, false), node(2, false), node(3, true), node(4, false)],
            // What node 3 has of the first slots may be nothing. Of the next ones it was in sync last, and of
            // the others no node that is up has anything.
            down: vec![
                behind(slots(10, 12, &[1]), &[2, 3, 4]),
                behind(slots(20, 20, &[1]), &[3, 2]),
                behind(slots(30, 31, &[1]), &[2, 4]),
                slots(40, 40, &[1]),
            ],
            ..RingStatus::default()
        };
        let meant = all(true).meant(&status.down);
        let older = all(true).older_copies(&status, &meant);
        let expected = [(10, vec![2]), (11, vec![2]), (12, vec![2]), (30, vec![2, 4]), (31, vec![2, 4])];
        assert_eq!(older, OlderCopies::from(expected));
        let said = loss(&meant, &older);
        let start = " Node 2 is down and may have more of 5 of these slots: start it first.";
        assert!(said.contains(start), "{said}");
        assert!(said.contains(" Node 4 is down and may have more of 2 of these slots"), "{said}");
        let left = left_alone(&AcceptedLoss::new(), &older).unwrap();
        assert!(left.starts_with("node 2, 4 is down and may have more of 5 slots"), "{left}");
        assert!(left.ends_with("--without 2 4"), "{left}");
        assert_eq!(left_alone(&AcceptedLoss::new(), &OlderCopies::new()), None);
        // Whoever will not be started is named, and others that were not named stay in the way.
        let without = |without: &[u32]| {
            let verb = Recover { without: without.to_vec(), ..all(true) };
            verb.older_copies(&status, &meant).into_keys().collect::<Vec<_>>()
        };
        assert_eq!((without(&[2, 4]), without(&[2])), (vec![], vec![30, 31]));
        let some = Recover { accept_loss: vec!["20-30".parse().unwrap()], ..all(true) };
        let older = some.older_copies(&status, &some.meant(&status.down));
        assert_eq!(older.into_keys().collect::<Vec<_>>(), [30]);
    }

    #[test]
    fn what_is_lost_is_said_where_a_node_has_it_and_where_none_has() {
        let meant = |down: &[DownSlots]| loss(&all(false).meant(down), &OlderCopies::new());
        let kept = meant(&[slots(10, 12, &[2])]);
        assert!(kept.contains("Their last copies are on node 2:") && !kept.contains("folder"), "{kept}");
        let lost = meant(&[slots(10, 12, &[])]);
        assert!(lost.contains("The last copies of 3 slots are lost") && !lost.contains("on node"), "{lost}");
        let both = meant(&[slots(10, 12, &[]), slots(13, 13, &[2])]);
        assert!(both.starts_with("4 slots are not served. Their last copies are on node 2:"), "{both}");
        assert!(both.contains("The last copies of 3 slots are lost"), "{both}");
    }

    #[test]
    fn only_slots_that_were_named_and_are_down_may_lose_anything() {
        let down = [
            slots(10, 12, &[2]),
            slots(16383, 16383, &[3]),
            // No node has had these yet.
            DownSlots { is_new: true, ..slots(20, 30, &[]) },
        ];
        let meant = |words: &[&str]| {
            let accept_loss = words.iter().map(|word| word.parse().unwrap()).collect();
            Recover { accept_loss, ..all(true) }.meant(&down).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(meant(&["11", "12-400"]), [11, 12]);
        assert_eq!(meant(&["all"]), [10, 11, 12, 16383]);
        assert_eq!(meant(&["0-9"]), [0; 0]);
        for wrong in ["", "16384", "3-2", "-1", "a", "1-", "1-2-3", "ALL"] {
            assert!(wrong.parse::<SlotSelection>().is_err(), "{wrong}");
        }
    }
    #[test]
    fn an_accepted_loss_does_not_cover_what_another_node_took_over_since() {
        let before = [slots(10, 14, &[2]), slots(20, 20, &[2, 4])];
        let agreed = all(true).meant(&before);
        let still = |down: &[DownSlots]| still_lost(down, &agreed).into_keys().collect::<Vec<_>>();
        assert_eq!(still(&before), [10, 11, 12, 13, 14, 20]);
        // Node 3 took over 12 and 13, and does not answer either.
        let now = [slots(10, 11, &[2]), slots(12, 13, &[3]), slots(14, 14, &[2]), slots(20, 20, &[4])];
        assert_eq!(still(&now), [10, 11, 14]);
        assert_eq!(still(&[slots(9, 9, &[2])]), [0; 0]);
        // A user who is asked may accept that as well; one who passed --yes did not mean it.
        for (yes, asked, left) in [(false, vec![12, 13, 20], vec![]), (true, vec![], vec![12, 13, 20])] {
            let (meant, again) = all(yes).next(&now, &agreed);
            assert_eq!((meant.into_keys().collect(), again.into_keys().collect()), (asked, left), "{yes}");
        }
    }
}
