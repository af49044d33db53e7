//! The steps of a life: each calls the store, compares the result, and tells the oracle.

use super::{Checked, Flow, Run, unexcused};
use crate::oracle::difference;
use crate::read::{read_state, wrong_scan, wrong_value};
use crate::state::{Event, Key, Mutation, Range};
use crate::subject::{Direction, Durability, Failure, Outcome, Subject};
use crate::workload::{LARGE_BYTES, Step};
use atoll_errors::ErrorKind;

const HELD_MAX: usize = 4;

impl<S: Subject> Run<S> {
    /// Takes one step.
    pub(super) fn step(&mut self, store: &S) -> Checked<Flow> {
        let step = self.workload.next(&mut self.rng);
        self.note(|| describe(&step));
        self.counts.bump("operations");
        self.begin_step();
        // A step may write what was only buffered so far, so a misdirected write may take that along.
        let events_before = self.oracle.flushed_len();
        let mut flow = self.take(store, step)?;
        if flow == Flow::Continue && store.wants_checkpoint() {
            flow = self.make_durable(store, "checkpoints_by_themselves", "checkpoint", S::checkpoint)?;
        }
        self.notice_strike(events_before);
        Ok(flow)
    }

    fn take(&mut self, store: &S, step: Step) -> Checked<Flow> {
        match step {
            Step::Write(mut batch, durability) => {
                self.route(&mut batch);
                self.write(store, batch, durability)
            }
            Step::SplitOff { tree, at, durability } => self.split_off(store, tree, at, durability),
            Step::Absorb { tree, durability } => self.absorb(store, tree, durability),
            Step::Get { tree, key } => self.get(store, tree, &key),
            Step::GetMany { tree, keys } => self.get_many(store, tree, &keys),
            Step::Scan { tree, range, direction, limit } => self.scan(store, tree, &range, direction, limit),
            Step::Sync => self.make_durable(store, "syncs", "sync", S::sync),
            Step::Checkpoint => self.make_durable(store, "checkpoints_asked", "checkpoint", S::checkpoint),
            Step::Hold => {
                if self.held.len() == HELD_MAX {
                    self.held.remove(0);
                }
                self.held.push((store.snapshot(), self.oracle.current().content.clone()));
                self.counts.bump("snapshots_held");
                Ok(Flow::Continue)
            }
            Step::Release => {
                if !self.held.is_empty() {
                    let which = self.rng.usize(..self.held.len());
                    drop(self.held.remove(which));
                }
                Ok(Flow::Continue)
            }
            Step::ReadHeld { tree, range, direction } => self.read_held(store, tree, &range, direction),
            Step::CreateNamed(name) => self.create_named(store, name),
            Step::DeleteNamed(name) => self.delete_named(store, name),
            Step::ReadNamed { name, tree, key } => self.read_named(store, name, tree, &key),
        }
    }

    fn write(&mut self, store: &S, batch: Vec<Mutation>, durability: Durability) -> Checked<Flow> {
        let outcome = store.write(&batch, durability);
        self.count_write(&batch, durability);
        match outcome {
            Ok(sequence) if sequence <= self.last_sequence => {
                Err(format!("commit {sequence} came after commit {}", self.last_sequence))
            }
            Ok(sequence) => {
                self.last_sequence = sequence;
                self.counts.bump("commits_acknowledged");
                if std::mem::take(&mut self.was_refused) {
                    self.counts.bump("writes_after_refusal");
                }
                self.oracle.push(Event::Write(batch));
                match durability {
                    Durability::Buffered => {}
                    Durability::Flushed => self.oracle.mark_flushed(),
                    Durability::Synced => self.mark_synced(),
                }
                Ok(Flow::Continue)
            }
            Err(failure) => self.settle(store, "a write", failure, Some(Event::Write(batch))),
        }
    }

    fn count_write(&mut self, batch: &[Mutation], durability: Durability) {
        self.counts.bump("commits");
        self.counts.bump(match durability {
            Durability::Buffered => "buffered",
            Durability::Flushed => "flushed",
            Durability::Synced => "synced",
        });
        if batch.len() > 1 {
            self.counts.bump("batches_across_trees");
        }
        for mutation in batch {
            match mutation {
                Mutation::Put { value, .. } if value.len() >= LARGE_BYTES => {
                    self.counts.bump("puts_of_64_kib_or_more");
                }
                Mutation::Put { value, .. } if value.len() >= 256 => {
                    self.counts.bump("puts_of_256_b_or_more")
                }
                Mutation::Append { .. } => self.counts.bump("appends"),
                Mutation::DeleteRange { .. } => self.counts.bump("delete_ranges"),
                Mutation::Put { .. } | Mutation::Delete { .. } => {}
            }
        }
    }

    /// Handles a failed change. If the store refused it, it never happened and the life goes on. Otherwise
    /// it may have happened, and the life is over.
    pub(super) fn settle(
        &mut self,
        store: &S,
        what: &str,
        failure: Failure,
        event: Option<Event>,
    ) -> Checked<Flow> {
        self.note(|| format!("{what} failed: {failure}"));
        if !self.is_excused(&failure) {
            return unexcused(what, &failure);
        }
        // Without power a refusal means nothing: the disk may have all of the change.
        if failure.is_refusal() && !self.is_off() {
            let is_known =
                matches!(failure.kind, ErrorKind::OutOfSpace | ErrorKind::ReadOnly | ErrorKind::Limit);
            self.counts.bump(if is_known { "refusals" } else { "refusals_after_errors" });
            self.was_refused = true;
            return Ok(if failure.is_final { Flow::EndOfLife } else { Flow::Continue });
        }
        self.counts.bump("failed_operations");
        let lowest = self.oracle.len();
        event.into_iter().for_each(|event| self.oracle.push_doubtful(event));
        self.look_after(store, lowest)?;
        Ok(Flow::EndOfLife)
    }

    /// Checks what a reader sees of a change that may have happened: all of it, none of it, or an error,
    /// but never a half.
    fn look_after(&mut self, store: &S, lowest: usize) -> Checked<()> {
        let found = match read_state(store) {
            Ok(found) => found,
            Err(failure) if self.is_excused(&failure) => return Ok(()),
            Err(failure) => return unexcused("a read after a failed change", &failure),
        };
        self.counts.bump("reads_after_unknown");
        match self.oracle.prefix_with(found.fingerprint(), lowest) {
            Some(_) => Ok(()),
            None => Err(format!(
                "readers see neither what was before nor what may have happened: {}",
                difference(self.oracle.current(), &found)
            )),
        }
    }

    /// Handles a failed read. It changes nothing; the life goes on unless the disk is permanently gone.
    fn settle_read(&mut self, what: &str, failure: &Failure) -> Checked<Flow> {
        self.note(|| format!("{what} failed: {failure}"));
        if !self.is_read_excused(failure) {
            return unexcused(what, failure);
        }
        self.counts.bump("failed_reads");
        Ok(if self.is_off() { Flow::EndOfLife } else { Flow::Continue })
    }

    fn make_durable(
        &mut self,
        store: &S,
        count: &'static str,
        what: &str,
        call: impl FnOnce(&S) -> Outcome<()>,
    ) -> Checked<Flow> {
        match call(store) {
            Ok(()) => {
                self.counts.bump(count);
                self.mark_synced();
                Ok(Flow::Continue)
            }
            Err(failure) => self.settle(store, what, failure, None),
        }
    }

    fn get(&mut self, store: &S, tree: usize, key: &Key) -> Checked<Flow> {
        match store.get(tree, key) {
            Ok(found) => {
                agree(wrong_value(tree, key, self.oracle.current().content.get(tree, key), found.as_ref()))
            }
            Err(failure) => self.settle_read("a get", &failure),
        }
    }

    fn get_many(&mut self, store: &S, tree: usize, keys: &[Key]) -> Checked<Flow> {
        self.counts.bump("gets_many");
        let found = match store.get_many(tree, keys) {
            Ok(found) => found,
            Err(failure) => return self.settle_read("a get of many", &failure),
        };
        if found.len() != keys.len() {
            return Err(format!("{} answers for {} keys", found.len(), keys.len()));
        }
        let content = &self.oracle.current().content;
        let mut pairs = keys.iter().zip(&found);
        agree(pairs.find_map(|(key, found)| wrong_value(tree, key, content.get(tree, key), found.as_ref())))
    }

    fn scan(
        &mut self,
        store: &S,
        tree: usize,
        range: &Range,
        direction: Direction,
        limit: usize,
    ) -> Checked<Flow> {
        self.counts.bump(match direction {
            Direction::Forward => "scans_forward",
            Direction::Backward => "scans_backward",
        });
        match store.scan(tree, range, direction, limit) {
            Ok(found) => {
                let content = &self.oracle.current().content;
                agree(wrong_scan(content, tree, range, direction, limit, &found))
            }
            Err(failure) => self.settle_read("a scan", &failure),
        }
    }

    fn read_held(&mut self, store: &S, tree: usize, range: &Range, direction: Direction) -> Checked<Flow> {
        if self.held.is_empty() {
            return Ok(Flow::Continue);
        }
        self.counts.bump("snapshots_read");
        let (snapshot, content) = &self.held[self.rng.usize(..self.held.len())];
        let keys = self.workload.keys();
        let key = &keys[self.rng.usize(..keys.len())];
        let read = || -> Outcome<Option<String>> {
            let value = store.snapshot_get(snapshot, tree, key)?;
            let entries = store.snapshot_scan(snapshot, tree, range, direction, usize::MAX)?;
            Ok(wrong_value(tree, key, content.get(tree, key), value.as_ref())
                .or_else(|| wrong_scan(content, tree, range, direction, usize::MAX, &entries)))
        };
        match read() {
            Ok(wrong) => agree(wrong.map(|what| format!("in a snapshot that was held: {what}"))),
            Err(failure) => self.settle_read("a read of a snapshot", &failure),
        }
    }

    fn create_named(&mut self, store: &S, name: &str) -> Checked<Flow> {
        if self.oracle.current().snapshots.contains_key(name)
            && self.delete_named(store, name)? == Flow::EndOfLife
        {
            return Ok(Flow::EndOfLife);
        }
        if self.oracle.current().snapshots.contains_key(name) {
            // The delete was refused, so the name is still in use.
            return Ok(Flow::Continue);
        }
        let event = Event::CreateSnapshot(name.to_owned());
        match store.create_snapshot(name) {
            Ok(()) => {
                self.counts.bump("named_snapshots_created");
                self.oracle.push(event);
                Ok(Flow::Continue)
            }
            Err(failure) => self.settle(store, "making a snapshot", failure, Some(event)),
        }
    }

    fn delete_named(&mut self, store: &S, name: &str) -> Checked<Flow> {
        if !self.oracle.current().snapshots.contains_key(name) {
            return Ok(Flow::Continue);
        }
        let event = Event::DeleteSnapshot(name.to_owned());
        match store.delete_snapshot(name) {
            Ok(()) => {
                self.counts.bump("named_snapshots_deleted");
                self.oracle.push(event);
                Ok(Flow::Continue)
            }
            Err(failure) => self.settle(store, "deleting a snapshot", failure, Some(event)),
        }
    }

    fn read_named(&mut self, store: &S, name: &str, tree: usize, key: &Key) -> Checked<Flow> {
        let Some(content) = self.oracle.current().snapshots.get(name) else {
            return Ok(Flow::Continue);
        };
        self.counts.bump("named_snapshots_read");
        let read = || store.snapshot_get(&store.open_snapshot(name)?, tree, key);
        match read() {
            Ok(found) => {
                let wrong = wrong_value(tree, key, content.get(tree, key), found.as_ref());
                agree(wrong.map(|what| format!("in snapshot {name:?}: {what}")))
            }
            Err(failure) => self.settle_read("a read of a named snapshot", &failure),
        }
    }
}

fn agree(wrong: Option<String>) -> Checked<Flow> {
    wrong.map_or(Ok(Flow::Continue), Err)
}

fn describe(step: &Step) -> String {
    match step {
        Step::Write(batch, durability) => {
            let changes: Vec<String> = batch.iter().map(describe_mutation).collect();
            format!("write {durability:?} {}", changes.join(", "))
        }
        Step::GetMany { tree, keys } => format!("get {} keys of tree {tree}", keys.len()),
        other => format!("{other:?}").chars().take(160).collect(),
    }
}

fn describe_mutation(mutation: &Mutation) -> String {
    let show = crate::oracle::show;
    match mutation {
        Mutation::Put { tree, key, value } => format!("put {tree} {} {} B", show(key), value.len()),
        Mutation::Append { tree, key, bytes } => format!("append {tree} {} {} B", show(key), bytes.len()),
        Mutation::Delete { tree, key } => format!("delete {tree} {}", show(key)),
        Mutation::DeleteRange { tree, range } => {
            format!(
                "delete range {tree} {:?}",
                (range.0.as_ref().map(|k| show(k)), range.1.as_ref().map(|k| show(k)))
            )
        }
    }
}
