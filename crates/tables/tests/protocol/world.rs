//! The world of one exploration: rows, objects and versions, each stored once and named by a small number.
//!
//! A version is judged once, when it is first made: what a reader of it sees must equal the oracle.

use super::mistake::Mistake;
use super::oracle::{Oracle, Rows, Table};
use atoll_tables::protocol::{
    Arrived, Block, Commit, Edit, EditError, EditId, LastStep, Manifest, ObjectId, Placed, Run, SessionId,
};
use std::collections::{BTreeMap, HashMap};

/// A broken promise, in words.
#[derive(Debug)]
pub struct Violation(pub String);

impl Violation {
    pub fn found<T>(what: impl Into<String>) -> Result<T, Self> {
        Err(Self(what.into()))
    }
}

pub type ObjectIndex = u16;
pub type RecordIndex = u32;
pub type WishIndex = u32;
pub type CommitIndex = u32;

/// One version.
pub struct Record {
    /// The edit that made it.
    pub id: EditId,
    /// Its content.
    pub manifest: Manifest,
    /// What should be visible in it.
    pub oracle: Oracle,
    /// The objects that it names, sorted.
    pub named: Vec<ObjectIndex>,
}

/// The name of an object and, for each part, the rows in it.
struct Object {
    id: ObjectId,
    is_cube: bool,
    parts: Vec<Rows>,
    /// The number of added columns with which it was written.
    columns: usize,
}

/// Packers use tags from this one on to name their objects.
pub const CUBES: u8 = 128;

/// Everything that was named in one exploration.
pub struct World {
    pub table: Table,
    pub mistake: Option<Mistake>,
    records: Vec<Record>,
    record_of: HashMap<(EditId, Manifest, Oracle), RecordIndex>,
    made: HashMap<(RecordIndex, WishIndex), RecordIndex>,
    objects: Vec<Object>,
    object_of: HashMap<(SessionId, u8, Vec<Rows>, usize), ObjectIndex>,
    wishes: Vec<(EditId, Edit)>,
    wish_of: HashMap<(SessionId, Edit), WishIndex>,
    commits: Vec<(WishIndex, Commit)>,
    commit_of: HashMap<(WishIndex, Commit), CommitIndex>,
}

impl World {
    pub fn new(table: Table, mistake: Option<Mistake>) -> Self {
        let nobody = EditId { session: SessionId(0), sequence: 0 };
        let manifest = Manifest::default();
        let empty = Record { id: nobody, manifest, oracle: Oracle::default(), named: Vec::new() };
        Self {
            table,
            mistake,
            records: vec![empty],
            record_of: HashMap::new(),
            made: HashMap::new(),
            objects: Vec::new(),
            object_of: HashMap::new(),
            wishes: Vec::new(),
            wish_of: HashMap::new(),
            commits: Vec::new(),
            commit_of: HashMap::new(),
        }
    }

    pub fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub fn record(&self, index: RecordIndex) -> &Record {
        &self.records[index as usize]
    }

    pub fn object_id(&self, index: ObjectIndex) -> ObjectId {
        self.objects[index as usize].id
    }

    pub fn is_cube(&self, placed: &Placed) -> bool {
        self.objects[usize::from(self.index_of(placed.piece.object))].is_cube
    }

    pub fn versions(&self) -> usize {
        self.records.len()
    }

    /// The object with this content that `session` names with its `tag`; a name always stands for the same
    /// content.
    pub fn object(&mut self, session: SessionId, tag: u8, parts: Vec<Rows>, columns: usize) -> ObjectIndex {
        let key = (session, tag, parts, columns);
        if let Some(index) = self.object_of.get(&key) {
            return *index;
        }
        let index = ObjectIndex::try_from(self.objects.len()).unwrap();
        let id = ObjectId { session, sequence: u64::from(index) };
        self.objects.push(Object { id, is_cube: tag >= CUBES, parts: key.2.clone(), columns });
        self.object_of.insert(key, index);
        index
    }

    /// A session's wish for an edit, ready to be committed.
    pub fn commit(&mut self, session: SessionId, edit: Edit) -> CommitIndex {
        let wish = self.wish(session, edit);
        let (id, edit) = self.wishes[wish as usize].clone();
        self.keep(wish, Commit::new(id, edit))
    }

    pub fn wish(&mut self, session: SessionId, edit: Edit) -> WishIndex {
        let next = WishIndex::try_from(self.wishes.len()).unwrap();
        let key = (session, edit);
        if let Some(index) = self.wish_of.get(&key) {
            return *index;
        }
        self.wishes.push((EditId { session, sequence: u64::from(next) }, key.1.clone()));
        self.wish_of.insert(key, next);
        next
    }

    pub fn on_its_way(&self, index: CommitIndex) -> (WishIndex, Commit) {
        self.commits[index as usize].clone()
    }

    pub fn keep(&mut self, wish: WishIndex, commit: Commit) -> CommitIndex {
        let next = CommitIndex::try_from(self.commits.len()).unwrap();
        let key = (wish, commit);
        if let Some(index) = self.commit_of.get(&key) {
            return *index;
        }
        self.commits.push(key.clone());
        self.commit_of.insert(key, next);
        next
    }

    /// The version that a wish makes out of `before`, judged.
    pub fn make(&mut self, before: RecordIndex, wish: WishIndex) -> Result<RecordIndex, Violation> {
        if let Some(made) = self.made.get(&(before, wish)) {
            return Ok(*made);
        }
        let (id, edit) = self.wishes[wish as usize].clone();
        let manifest = self.next(&self.record(before).manifest, &edit)?;
        let oracle = self.record(before).oracle.after(&self.table, &edit);
        let index = self.intern(id, manifest, oracle)?;
        self.made.insert((before, wish), index);
        Ok(index)
    }

    fn intern(&mut self, id: EditId, manifest: Manifest, oracle: Oracle) -> Result<RecordIndex, Violation> {
        let key = (id, manifest, oracle);
        if let Some(index) = self.record_of.get(&key) {
            return Ok(*index);
        }
        let (_, manifest, oracle) = key.clone();
        let mut named: Vec<_> = manifest.objects().map(|object| self.index_of(object)).collect();
        named.sort_unstable();
        named.dedup();
        self.judge(&manifest, &oracle)?;
        let index = RecordIndex::try_from(self.records.len()).unwrap();
        self.records.push(Record { id, manifest, oracle, named });
        self.record_of.insert(key, index);
        Ok(index)
    }

    /// Objects are numbered in the order of their sequences.
    pub fn index_of(&self, object: ObjectId) -> ObjectIndex {
        ObjectIndex::try_from(object.sequence).unwrap()
    }

    /// Checks that a reader of the version sees what the oracle says, each row once, and that the version has
    /// all columns of the objects it names.
    fn judge(&self, manifest: &Manifest, oracle: &Oracle) -> Result<(), Violation> {
        if *manifest.columns != *oracle.columns {
            return Violation::found(format!("version {} has other columns", manifest.version));
        }
        for object in manifest.objects() {
            if self.objects[usize::from(self.index_of(object))].columns > manifest.columns.len() {
                return Violation::found(format!("version {} lacks a column of an object", manifest.version));
            }
        }
        if oracle.taken_away != 0 {
            let rows = self.table.names(oracle.taken_away);
            return Violation::found(format!("taken away by an attempt that had not seen them: [{rows}]"));
        }
        if let Some(step) = manifest.runs.values().find_map(lost_step) {
            return Violation::found(format!("version {}: step {step} waits for ever", manifest.version));
        }
        let seen = self.rows_in(manifest, manifest.pieces.values())?;
        if seen == oracle.visible {
            return Ok(());
        }
        let name = |rows| self.table.names(rows);
        Violation::found(format!(
            "version {}: missing [{}], should not be there [{}]",
            manifest.version,
            name(oracle.visible & !seen),
            name(seen & !oracle.visible),
        ))
    }

    /// The live rows of some pieces.
    pub fn rows_in<'a>(
        &self,
        manifest: &Manifest,
        pieces: impl Iterator<Item = &'a Placed>,
    ) -> Result<Rows, Violation> {
        let mut seen: Rows = 0;
        for placed in pieces {
            let rows = self.live(manifest, placed);
            if seen & rows != 0 {
                let names = self.table.names(seen & rows);
                return Violation::found(format!("version {}: twice there [{names}]", manifest.version));
            }
            seen |= rows;
        }
        Ok(seen)
    }

    /// All rows of a piece, dead ones included.
    pub fn stored(&self, placed: &Placed) -> Rows {
        let object = &self.objects[usize::from(self.index_of(placed.piece.object))];
        let rows = object.parts[placed.piece.part as usize];
        rows & self.table.rows_where(|row| placed.piece.weights.contains(row.weight))
    }

    /// The rows of a piece that no tombstone deletes.
    pub fn live(&self, manifest: &Manifest, placed: &Placed) -> Rows {
        let tombstones = manifest.tombstones_of(placed);
        tombstones.fold(self.stored(placed), |rows, struck| rows & !self.table.rows_in_scope(&struck.scope))
    }

    /// The manifest after an edit: by the protocol, or with the planted mistake.
    fn next(&self, before: &Manifest, edit: &Edit) -> Result<Manifest, Violation> {
        let mut edit = edit.clone();
        if let (true, Edit::Pack { base, .. }) = (self.has(Mistake::PackIgnoresDelete), &mut edit) {
            *base = before.version;
        }
        match before.apply(&edit) {
            Ok(next) => Ok(self.spoiled(before, &edit, next)),
            Err(error) => match self.forced(before, &edit, &error) {
                Some(next) => Ok(next),
                None => Violation::found(format!("an edit became true that does not hold: {error}")),
            },
        }
    }

    /// What the mistake makes of a correct manifest.
    fn spoiled(&self, before: &Manifest, edit: &Edit, mut next: Manifest) -> Manifest {
        let is_pack = matches!(edit, Edit::Pack { .. });
        let keeps_old = match self.mistake {
            Some(Mistake::PackLeavesRange) => is_pack,
            Some(Mistake::SupersedeInTwoWrites) => matches!(edit, Edit::Append { .. } | Edit::Load { .. }),
            _ => false,
        };
        if self.has(Mistake::PublishBeforeAllRanks) {
            let arriving = next.runs.values().flat_map(|run| run.arriving.values());
            let blocks: Vec<_> =
                arriving.flat_map(|ranks| ranks.values().filter_map(|come| come.placed.clone())).collect();
            next.pieces.extend(blocks.into_iter().map(|placed| (placed.piece.key(), placed)));
        }
        if keeps_old {
            next.pieces.extend(before.pieces.iter().map(|(key, placed)| (*key, placed.clone())));
        }
        if is_pack && self.has(Mistake::PackTakesTombstones) {
            next.tombstones.clear();
        }
        next
    }

    /// What the mistake makes of an edit that must be refused.
    fn forced(&self, before: &Manifest, edit: &Edit, error: &EditError) -> Option<Manifest> {
        let mut next = before.clone();
        next.version = before.version.next();
        let (added, clean_to): (Vec<_>, _) = match (self.mistake?, edit, error) {
            (
                Mistake::PackIgnoresSupersede,
                Edit::Pack { base, remove, add, .. },
                EditError::InputGone { .. },
            ) => {
                next.pieces.extract(|key, _| remove.iter().any(|removal| removal.object == key.object));
                (add.clone(), *base)
            }
            (Mistake::AppendWithoutLooking, Edit::Append { blocks }, EditError::AlreadyDone) => {
                let is_visible = |block: &&Block| {
                    let run = before.runs.get(&block.id.run);
                    run.is_some_and(|run| run.complete.contains_key(&block.id.step))
                };
                let visible = blocks.iter().filter(is_visible);
                (visible.filter_map(|block| block.piece.clone()).collect(), next.version)
            }
            (Mistake::AppendWithoutLooking, Edit::Load { add, .. }, EditError::AlreadyDone) => {
                (add.clone(), next.version)
            }
            (Mistake::BeginOverlooksSteps, edit, EditError::RunWentOn { .. }) => {
                return begun_anyway(before, edit);
            }
            (Mistake::LoadPassesArriving, Edit::Load { run, .. }, EditError::StepArriving { .. }) => {
                let arriving = std::mem::take(&mut next.runs.get_mut(run)?.arriving);
                next.version = before.version;
                let mut passed = next.apply(edit).ok()?;
                passed.runs.get_mut(run)?.arriving = arriving;
                return Some(passed);
            }
            (Mistake::SkipPasses, Edit::Append { blocks }, EditError::Skipped { .. }) => {
                let run = next.runs.get_mut(&blocks.first()?.id.run)?;
                let (own, mut others) = std::mem::take(&mut run.arriving)
                    .into_iter()
                    .partition(|(step, _)| blocks.iter().any(|block| block.id.step == *step));
                run.arriving = own;
                next.version = before.version;
                let mut passed = next.apply(edit).ok()?;
                passed.runs.get_mut(&blocks.first()?.id.run)?.arriving.append(&mut others);
                return Some(passed);
            }
            _ => return None,
        };
        for piece in added {
            next.pieces.insert(piece.key(), Placed { born: next.version, clean_to, piece });
        }
        Some(next)
    }
}

/// The version in which an attempt begins, whatever its last step is.
pub fn begun_anyway(before: &Manifest, edit: &Edit) -> Option<Manifest> {
    let Edit::Begin { run, attempt, ranks, .. } = edit else { return None };
    let (run, attempt, ranks) = (run.clone(), *attempt, *ranks);
    before.apply(&Edit::Begin { run, attempt, ranks, last: LastStep::Any }).ok()
}

/// A step that can never become visible, because a rank has continued to a later one without it.
fn lost_step(run: &Run) -> Option<u64> {
    let has_passed = |step: u64, ranks: &BTreeMap<u32, Arrived>| {
        let mut later = run.arriving.range(step + 1..).flat_map(|(_, later)| later.keys());
        run.published.is_some_and(|last| last >= step) || later.any(|rank| !ranks.contains_key(rank))
    };
    run.arriving.iter().find(|(step, ranks)| has_passed(**step, ranks)).map(|(step, _)| *step)
}
