//! The judge: keeps the history of commits and says whether what a store holds is a prefix of it.
//!
//! Invariant: `base` is the state before `tail`, and `prints` has the fingerprint after every event ever.
//! Invariant: what was synced is folded into `base`, so no prefix that may be offered lacks it; while the
//! oracle is pinned nothing is folded and `synced` marks the place.

use crate::state::{Event, Mutation, RangeMove, State, Value, fingerprint_of_entry};
use std::collections::HashSet;

/// How a store ended, which decides what it may have lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The power went: what was not synced may be lost.
    PowerLoss,
    /// The process died: what was buffered may be lost.
    ProcessDeath,
}

/// History of one store.
#[derive(Clone, Debug)]
pub struct Oracle {
    base: State,
    /// Events that `base` holds.
    base_len: usize,
    tail: Vec<Event>,
    /// One more than there are events: the first is that of the empty store.
    prints: Vec<u64>,
    /// Of every value that a key ever had in a tree, as a reader could see it.
    values: HashSet<u64>,
    current: State,
    synced: usize,
    flushed: usize,
    is_pinned: bool,
    /// The last event failed: it may have happened, and no later success will tell.
    is_last_doubtful: bool,
    /// Number of events at the last sync that the store was asked for.
    last_sync: usize,
    /// The last such number after which more was written: later groups of the log record that it was
    /// synced.
    witnessed: usize,
}

impl Default for Oracle {
    fn default() -> Self {
        Self {
            base: State::default(),
            base_len: 0,
            tail: Vec::new(),
            prints: vec![State::default().fingerprint()],
            values: HashSet::new(),
            current: State::default(),
            synced: 0,
            flushed: 0,
            is_pinned: false,
            is_last_doubtful: false,
            last_sync: 0,
            witnessed: 0,
        }
    }
}

impl Oracle {
    /// The state that a reader must see.
    #[must_use]
    pub const fn current(&self) -> &State {
        &self.current
    }

    /// How many events are not in `base`.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.tail.len()
    }

    /// Whether every event is in `base`.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tail.is_empty()
    }

    /// Events that survive power loss, counted as [`Oracle::len`] counts.
    #[must_use]
    pub const fn synced_len(&self) -> usize {
        self.synced
    }

    /// Events that were handed to the disk, counted in the same way.
    #[must_use]
    pub const fn flushed_len(&self) -> usize {
        self.flushed
    }

    /// Records the last event of this life, whose call failed: it may have happened.
    pub fn push_doubtful(&mut self, event: Event) {
        self.push(event);
        self.is_last_doubtful = true;
    }

    /// Records an event that happened.
    pub fn push(&mut self, event: Event) {
        self.current.apply(&event);
        self.note_values(&event);
        self.prints.push(self.current.fingerprint());
        self.tail.push(event);
    }

    /// Records the values that an event gave to keys.
    fn note_values(&mut self, event: &Event) {
        let content = &self.current.content;
        let print =
            |tree, key: &[u8]| content.get(tree, key).map(|value| fingerprint_of_entry(tree, key, value));
        match event {
            Event::Write(batch) => self.values.extend(batch.iter().filter_map(|mutation| match mutation {
                Mutation::Put { tree, key, .. } | Mutation::Append { tree, key, .. } => print(*tree, key),
                Mutation::Delete { .. } | Mutation::DeleteRange { .. } => None,
            })),
            Event::Move(RangeMove::SplitOff { to: tree, .. } | RangeMove::Absorb { tree, .. }) => {
                let moved = content.tree(*tree).iter();
                self.values.extend(moved.map(|(key, value)| fingerprint_of_entry(*tree, key, value)));
            }
            Event::CreateSnapshot(_) | Event::DeleteSnapshot(_) => {}
        }
    }

    /// Whether a key ever had this value in this tree.
    #[must_use]
    pub fn had_value(&self, tree: usize, key: &[u8], value: &Value) -> bool {
        self.values.contains(&fingerprint_of_entry(tree, key, value))
    }

    /// All events so far survive the process.
    pub fn mark_flushed(&mut self) {
        self.flushed = self.certain();
        self.witness();
    }

    /// All events so far survive power loss, because the store said so.
    pub fn mark_synced(&mut self) {
        self.witness();
        self.last_sync = self.base_len + self.certain();
        self.mark_durable();
    }

    fn mark_durable(&mut self) {
        self.flushed = self.certain();
        self.synced = self.certain();
        if !self.is_pinned {
            self.fold(self.certain());
        }
    }

    /// How many events had successful calls.
    fn certain(&self) -> usize {
        self.tail.len() - usize::from(self.is_last_doubtful)
    }

    fn witness(&mut self) {
        // An event that changed nothing leaves no trace of whether it survived.
        let events = self.base_len + self.certain();
        if events > self.last_sync && self.prints[events] != self.prints[self.last_sync] {
            self.witnessed = self.last_sync;
        }
    }

    /// Keeps every prefix from here on, synced or not.
    pub const fn pin(&mut self) {
        self.is_pinned = true;
    }

    /// Whether the store may fall back to the state with this fingerprint and report a cut, if damage hit
    /// at most one group of the log: everything below a synced position that later groups record must be
    /// kept.
    #[must_use]
    pub fn may_be_cut_to(&self, print: u64) -> bool {
        self.prints[self.witnessed..].contains(&print)
    }

    /// Whether the store had this fingerprint at some time.
    #[must_use]
    pub fn was_once(&self, print: u64) -> bool {
        self.prints.contains(&print)
    }

    /// The latest prefix of at least `lowest` events with this fingerprint.
    #[must_use]
    pub fn prefix_with(&self, print: u64, lowest: usize) -> Option<usize> {
        (lowest..=self.tail.len()).rev().find(|len| self.prints[self.base_len + len] == print)
    }

    /// Calls `visit` with every prefix of at least `lowest` events, shortest first, until it returns true.
    pub fn any_prefix(&self, lowest: usize, mut visit: impl FnMut(&State) -> bool) -> bool {
        let mut state = self.base.clone();
        for len in 0..=self.tail.len() {
            if len > 0 {
                state.apply(&self.tail[len - 1]);
            }
            if len >= lowest && visit(&state) {
                return true;
            }
        }
        false
    }

    /// Accepts the state found after `ending`; returns how many events were lost.
    ///
    /// # Errors
    /// Describes the promise that the state breaks.
    pub fn recover(&mut self, found: &State, ending: Ending) -> Result<usize, String> {
        let lowest = match ending {
            Ending::PowerLoss => self.synced,
            Ending::ProcessDeath => self.flushed,
        };
        let Some(kept) = self.prefix_with(found.fingerprint(), lowest) else {
            return Err(self.describe_breach(found, lowest, ending));
        };
        let lost = self.tail.len() - kept;
        let kept_surely = (lowest..=kept).find(|len| self.prints[self.base_len + len] == found.fingerprint());
        self.keep(kept);
        if self.base_len + kept_surely.unwrap_or(0) <= self.witnessed {
            // The later groups that recorded it may be gone.
            self.witnessed = 0;
        }
        // Opening does not sync, so the next life's groups record only what the remaining groups recorded.
        self.last_sync = self.last_sync.min(self.witnessed);
        if ending == Ending::PowerLoss {
            // It was read from the medium itself, so it is durable.
            self.mark_durable();
        }
        Ok(lost)
    }

    fn keep(&mut self, kept: usize) {
        self.tail.truncate(kept);
        self.is_last_doubtful = false;
        self.prints.truncate(self.base_len + kept + 1);
        let events = self.base_len + kept;
        self.last_sync = self.last_sync.min(events);
        self.flushed = self.flushed.min(kept);
        self.synced = self.synced.min(kept);
        self.current = self.base.clone();
        self.tail.iter().for_each(|event| self.current.apply(event));
    }

    fn fold(&mut self, events: usize) {
        for event in self.tail.drain(..events) {
            self.base.apply(&event);
        }
        self.base_len += events;
        self.synced -= events;
        self.flushed -= events;
    }

    fn describe_breach(&self, found: &State, lowest: usize, ending: Ending) -> String {
        let print = found.fingerprint();
        let promised = self.tail.len() - lowest;
        if let Some(kept) = self.prefix_with(print, 0) {
            let lost = lowest - kept;
            return format!("after {ending:?}: {lost} events were lost that had been promised to survive");
        }
        if self.was_once(print) {
            return format!("after {ending:?}: the store rolled back to a state long gone");
        }
        format!(
            "after {ending:?}: the state is no prefix of the history ({promised} unsettled events); \
             against the newest: {}",
            difference(&self.current, found)
        )
    }
}

/// The first differences between two states, as text.
#[must_use]
pub fn difference(expected: &State, found: &State) -> String {
    let mut lines = Vec::new();
    for tree in 0..crate::state::TREES {
        let (left, right) = (expected.content.tree(tree), found.content.tree(tree));
        for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
            let (expected, found) = (left.get(key), right.get(key));
            if expected != found {
                lines.push(format!("tree {tree} key {}: {}", show(key), compare(expected, found)));
            }
        }
    }
    let names: Vec<_> = expected.snapshots.keys().collect();
    let found_names: Vec<_> = found.snapshots.keys().collect();
    if names != found_names {
        lines.push(format!("snapshots {names:?} expected, {found_names:?} found"));
    }
    for (name, content) in &expected.snapshots {
        if found.snapshots.get(name).is_some_and(|found| found.fingerprint() != content.fingerprint()) {
            lines.push(format!("snapshot {name:?} has another content"));
        }
    }
    let count = lines.len();
    lines.truncate(4);
    format!("{count} differences: {}", lines.join("; "))
}

/// A key or value, shortened for a message.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(24)]).escape_debug().to_string();
    format!("{head:?}({} B)", bytes.len())
}

fn compare(expected: Option<&Value>, found: Option<&Value>) -> String {
    match (expected, found) {
        (Some(expected), Some(found)) => {
            let same = expected.iter().zip(found.iter()).take_while(|(left, right)| left == right).count();
            format!("{} B expected, {} B found, the same up to byte {same}", expected.len(), found.len())
        }
        (Some(expected), None) => format!("{} B expected, absent", expected.len()),
        (None, Some(found)) => format!("absent expected, {} B found", found.len()),
        (None, None) => "equal".to_owned(),
    }
}
