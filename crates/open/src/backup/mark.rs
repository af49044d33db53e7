//! The mark of a backup: which store it is of, which state it holds, and which one is being written into it.
//!
//! It is one record in a tree of its own, which the contract does not show and copies leave out.
//!
//! Invariant: a mark that names a next state is on disk before the first change of that state is.

use super::BackupRefusal;
use super::folder::BackupFolder;
use atoll_disk::{Disk, FileDisk, Mode};
use atoll_embedded::refused;
use atoll_engine::{Change, Durability, Engine, EngineError, Options, Tree};
use atoll_store::StoreError;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

/// The name of the tree that holds the mark.
pub(crate) const MARK_TREE: &str = "backup";

const KEY: &[u8] = b"state";

/// The key of the identity of the replaced backup, until the source has deleted what it kept for that one.
const FORMER_KEY: &[u8] = b"former";

/// A backup is not read while it is written, so it needs little memory.
const MEMORY_BYTES: u64 = 64 << 20;

/// A state of the source: the source keeps it as a named snapshot, and the backup uses the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Counts the states that the backup has held.
    pub(crate) number: u64,
    pub(crate) sequence: u64,
}

/// The mark of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Identity of the source.
    pub(crate) source: u64,
    /// The last complete state.
    pub(crate) state: State,
    /// The state that is being written over it.
    pub(crate) next: Option<State>,
}

impl Mark {
    fn encode(&self) -> String {
        let state = |state: &State| format!("{} {}", state.number, state.sequence);
        let next = self.next.as_ref().map(|next| format!("next {}\n", state(next))).unwrap_or_default();
        format!("format 1\nsource {:016x}\nstate {}\n{next}", self.source, state(&self.state))
    }

    /// None if this release does not understand the mark.
    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        if field("format")? != "1" {
            return None;
        }
        let source = u64::from_str_radix(field("source")?, 16).ok()?;
        let state = state_of(field("state")?)?;
        match lines.next() {
            None => Some(Self { source, state, next: None }),
            Some(line) => Some(Self { source, state, next: Some(state_of(line.strip_prefix("next ")?)?) }),
        }
    }
}

fn state_of(text: &str) -> Option<State> {
    let (number, sequence) = text.split_once(' ')?;
    Some(State { number: number.parse().ok()?, sequence: sequence.parse().ok()? })
}

/// The store that is the backup, open.
#[derive(Clone)]
pub(crate) struct Destination {
    pub(crate) engine: Engine,
    pub(crate) place: String,
    /// A backup that is given up continues to write in its thread until that ends: the folder stays locked
    /// until the last possible writer has released the engine.
    _held: Option<Arc<BackupFolder>>,
}

impl Destination {
    /// Opens the file of a backup, or creates it.
    pub(crate) fn open(file: &Path, place: &str) -> Result<Self, StoreError> {
        let options = Options { memory_bytes: MEMORY_BYTES, ..Options::default() };
        Self::open_with(file, place, Mode::Create, options)
    }

    /// Opens the file of a backup without writing a byte.
    pub(crate) fn open_to_read(file: &Path, place: &str) -> Result<Self, StoreError> {
        let options = Options { memory_bytes: MEMORY_BYTES, read_only: true, ..Options::default() };
        Self::open_with(file, place, Mode::Read, options)
    }

    fn open_with(file: &Path, place: &str, mode: Mode, options: Options) -> Result<Self, StoreError> {
        let place = place.to_owned();
        let disk = FileDisk::open(file, mode).map_err(|error| refused("backup", &place, error.into()))?;
        match Engine::open(Arc::new(disk) as Arc<dyn Disk>, options) {
            Ok(engine) => Ok(Self { engine, place, _held: None }),
            Err(error) => Err(refused("backup", &place, error)),
        }
    }

    /// The same, holding its folder's lock.
    pub(crate) fn holding(self, place: Arc<BackupFolder>) -> Self {
        Self { _held: Some(place), ..self }
    }

    /// Converts the engine's errors to those of the contract.
    pub(crate) fn contract_result<T>(&self, result: Result<T, EngineError>) -> Result<T, StoreError> {
        result.map_err(|error| refused("backup", &self.place, error))
    }

    fn marks(&self) -> Result<Tree, StoreError> {
        self.contract_result(self.engine.tree(MARK_TREE))
    }

    /// Reads the mark; a store without one is not a backup.
    pub(crate) fn mark(&self) -> Result<Mark, StoreError> {
        // Checked first, because asking for a tree creates it.
        let is_there = self.engine.tree_names().iter().any(|name| name == MARK_TREE);
        let value = if is_there { self.contract_result(self.marks()?.get(KEY))? } else { None };
        let Some(value) = value else { return Err(BackupRefusal::NoBackup.at(&self.place)) };
        let bytes = self.contract_result(value.to_buffer())?;
        let mark = std::str::from_utf8(&bytes).ok().and_then(Mark::decode);
        mark.ok_or_else(|| BackupRefusal::UnknownMark.at(&self.place))
    }

    pub(crate) fn set_mark(&self, mark: &Mark) -> Result<(), StoreError> {
        self.contract_result(self.marks()?.put(KEY, mark.encode().as_bytes(), Durability::Synced)).map(drop)
    }

    /// The identity of the backup that it replaced, if the source may still keep states for that one.
    pub(crate) fn former(&self) -> Result<Option<u64>, StoreError> {
        let Some(value) = self.contract_result(self.marks()?.get(FORMER_KEY))? else { return Ok(None) };
        let bytes = self.contract_result(value.to_buffer())?;
        Ok(std::str::from_utf8(&bytes).ok().and_then(|text| u64::from_str_radix(text, 16).ok()))
    }

    /// Records which backup it replaces.
    pub(crate) fn set_former(&self, former: u64) -> Result<(), StoreError> {
        let text = format!("{former:016x}");
        self.contract_result(self.marks()?.put(FORMER_KEY, text.as_bytes(), Durability::Synced)).map(drop)
    }

    /// Records that the source has deleted everything that it kept for the replaced backup.
    pub(crate) fn forget_former(&self) -> Result<(), StoreError> {
        self.contract_result(self.marks()?.delete(FORMER_KEY, Durability::Synced)).map(drop)
    }

    /// The name of a state's snapshot, both in the source, where no other backup uses it, and in the backup.
    pub(crate) fn name_of(&self, state: &State) -> String {
        format!("{}{}", self.prefix(), state.number)
    }

    /// The common prefix of the names of its states.
    pub(crate) fn prefix(&self) -> String {
        prefix_of(self.engine.id())
    }

    /// Refuses a backup that another program wrote into.
    pub(crate) fn check_untouched(&self, mark: &Mark) -> Result<(), StoreError> {
        let now = self.engine.snapshot();
        let held = match self.engine.open_snapshot(&self.name_of(&mark.state)) {
            Err(EngineError::NoSnapshot { .. }) => return Err(BackupRefusal::StateGone.at(&self.place)),
            held => self.contract_result(held)?,
        };
        let trees: Vec<&str> = now.tree_names().filter(|name| *name != MARK_TREE).collect();
        for tree in trees {
            let is_touched =
                self.contract_result(now.changes_since(&held, tree, Bound::Unbounded, stop_at_first))?;
            if is_touched.is_some() {
                return Err(BackupRefusal::Touched.at(&self.place));
            }
        }
        Ok(())
    }

    /// Marks that the backup is being changed to `next`.
    pub(crate) fn begin(&self, mark: &Mark, next: &State) -> Result<(), StoreError> {
        self.set_mark(&Mark { next: Some(next.clone()), ..mark.clone() })
    }

    /// Marks that the backup holds `state` completely, and deletes the snapshots of earlier states.
    pub(crate) fn complete(&self, source: u64, state: &State) -> Result<Mark, StoreError> {
        let (mark, kept) = (Mark { source, state: state.clone(), next: None }, self.name_of(state));
        let names = self.engine.snapshot_names();
        // An attempt that ended right here left a snapshot of this name, whose state has been rewritten
        // since.
        if names.iter().any(|(name, _)| *name == kept) {
            self.contract_result(self.engine.delete_snapshot(&kept))?;
        }
        self.contract_result(self.engine.create_snapshot(&kept))?;
        self.set_mark(&mark)?;
        for (name, _) in names.iter().filter(|(name, _)| name.starts_with(&self.prefix()) && *name != kept) {
            self.contract_result(self.engine.delete_snapshot(name))?;
        }
        self.contract_result(self.engine.checkpoint())?;
        Ok(mark)
    }
}

fn stop_at_first(_: &[u8], _: Change<'_>) -> ControlFlow<()> {
    ControlFlow::Break(())
}

/// The prefix of the names of the states that a source keeps for the backup of this identity.
pub(crate) fn prefix_of(backup: u64) -> String {
    format!("backup-{backup:016x}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_as_it_was_written_and_nothing_else_is_one() {
        let state = State { number: 3, sequence: 77 };
        let mark = Mark { source: 42, state: state.clone(), next: None };
        let begun = Mark { next: Some(State { number: 4, sequence: 80 }), ..mark.clone() };
        for mark in [&mark, &begun] {
            assert_eq!(Mark::decode(&mark.encode()).as_ref(), Some(mark));
        }
        let text = begun.encode();
        for wrong in [
            text.replace("format 1", "format 2"),
            text.replace("source", "sauce"),
            text.replace("next 4 80", "next 4"),
            text.replace("state 3 77\n", ""),
            String::new(),
        ] {
            assert_eq!(Mark::decode(&wrong), None, "{wrong}");
        }
    }
}
