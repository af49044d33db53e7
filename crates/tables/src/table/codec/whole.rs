//! Compact encoding of whole manifests: some 55 bytes for a block, 15 for a step.
//!
//! ```text
//! 0x05  as 0x04, and behind it the columns that were added: a name and a text for each. Without any it is 0x04.
//! 0x04  a table of sessions, a table of runs' names, then the parts of a manifest in their order:
//!       pieces, runs, tombstones, retired objects. Sessions and runs are named by their place in the tables.
//! 0x03  the name of a writer's part and how many there are: the bytes of the manifest lie in those cells.
//! 0x02  as 0x04, where pieces have neither a front nor a tight box. It is only read.
//! {     a manifest of the first tables (see `old`).
//! ```
//!
//! Invariant: equal manifests have equal bytes.

use super::bytes::{Reader, Writer};
use super::{TableError, damaged, old};
use crate::protocol::{
    AddedColumn, Arrived, Extent, Form, Life, Manifest, ObjectId, Piece, Placed, Published, Run, RunId,
    Scope, SessionId, SharedMap, StepRange, StepTime, TightBox, Tombstone, Version, WeightRange,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A manifest with added columns.
const MANIFEST_WITH_COLUMNS: u8 = 5;
/// A manifest without added columns.
const MANIFEST: u8 = 4;
/// A manifest whose pieces have neither a front length nor a tight box.
const MANIFEST_WITHOUT_BOXES: u8 = 2;
/// A reference to the parts of a manifest.
const IN_PARTS: u8 = 3;

/// No manifest has more parts than this: with the 1 MiB parts that are written, it would not fit in memory.
const PARTS_MAX: u32 = 1 << 14;

/// The content of the cell of a whole manifest.
#[derive(Debug, PartialEq)]
pub(in crate::table) enum Whole {
    /// The manifest.
    Manifest(Manifest),
    /// The bytes of the manifest are in parts: their common name and number.
    Parts(ObjectId, u32),
}

/// Encodes the cell of a manifest that is stored in parts.
pub(in crate::table) fn join_whole(name: ObjectId, parts: u32) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.plain(&[IN_PARTS]);
    writer.plain(&name.session.0.to_be_bytes());
    writer.number(name.sequence);
    writer.number(u64::from(parts));
    writer.into_bytes()
}

pub(in crate::table) fn whole_to_bytes(manifest: &Manifest) -> Vec<u8> {
    let names = Names::of(manifest);
    let mut writer = Writer::default();
    let has_columns = !manifest.columns.is_empty();
    writer.plain(&[if has_columns { MANIFEST_WITH_COLUMNS } else { MANIFEST }]);
    names.write(&mut writer);
    writer.number(manifest.version.0);
    writer.number(manifest.floor.0);
    writer.count(manifest.pieces.len());
    for placed in manifest.pieces.values() {
        names.write_placed(&mut writer, placed);
    }
    writer.count(manifest.runs.len());
    for (name, run) in manifest.runs.iter() {
        writer.number(names.run(Some(name)));
        names.write_run(&mut writer, run);
    }
    writer.count(manifest.tombstones.len());
    for tombstone in &manifest.tombstones {
        names.write_tombstone(&mut writer, tombstone);
    }
    writer.count(manifest.retired.len());
    for (object, life) in manifest.retired.iter() {
        names.write_object(&mut writer, *object);
        writer.number(life.born.0);
        writer.number(life.retired.0);
    }
    if has_columns {
        write_columns(&mut writer, &manifest.columns);
    }
    writer.into_bytes()
}

/// Decodes the cell of a whole manifest, or its joined parts.
pub(in crate::table) fn whole_from_bytes(table: &str, bytes: &[u8]) -> Result<Whole, TableError> {
    let unreadable = || damaged(table, "a manifest cannot be read");
    match bytes.split_first() {
        Some((b'{', _)) => old::manifest_from_json(table, bytes).map(Whole::Manifest),
        Some((&format @ (MANIFEST | MANIFEST_WITH_COLUMNS | MANIFEST_WITHOUT_BOXES), rest)) => {
            read_manifest(rest, format).map(Whole::Manifest).ok_or_else(unreadable)
        }
        Some((&IN_PARTS, rest)) => read_parts(rest).ok_or_else(unreadable),
        Some((&format, _)) if format > MANIFEST_WITH_COLUMNS && format < b' ' => {
            let newer = crate::SchemaError::NewerFormat {
                found: u64::from(format),
                supported: MANIFEST_WITH_COLUMNS.into(),
            };
            Err(newer.into())
        }
        _ => Err(unreadable()),
    }
}

fn read_parts(bytes: &[u8]) -> Option<Whole> {
    let mut reader = Reader::new(bytes);
    let session = SessionId(u128::from_be_bytes(reader.plain(16)?.try_into().ok()?));
    let (sequence, parts) = (reader.number()?, reader.number()?);
    let parts = u32::try_from(parts).ok().filter(|parts| *parts <= PARTS_MAX)?;
    reader.is_at_end().then_some(Whole::Parts(ObjectId { session, sequence }, parts))
}

fn read_manifest(bytes: &[u8], format: u8) -> Option<Manifest> {
    let mut reader = Reader::new(bytes);
    let has_boxes = format != MANIFEST_WITHOUT_BOXES;
    let names = Names { has_boxes, ..Names::read(&mut reader)? };
    let reader = &mut reader;
    let (version, floor) = (Version(reader.number()?), Version(reader.number()?));
    let mut manifest = Manifest { version, floor, ..Manifest::default() };
    for _ in 0..reader.count()? {
        let placed = names.read_placed(reader)?;
        manifest.pieces.insert(placed.piece.key(), placed);
    }
    for _ in 0..reader.count()? {
        let name = names.read_run_name(reader)??;
        manifest.runs.insert(name, names.read_run(reader)?);
    }
    for _ in 0..reader.count()? {
        manifest.tombstones.push(names.read_tombstone(reader)?);
    }
    for _ in 0..reader.count()? {
        let object = names.read_object(reader)?;
        let life = Life { born: Version(reader.number()?), retired: Version(reader.number()?) };
        manifest.retired.insert(object, life);
    }
    if format == MANIFEST_WITH_COLUMNS {
        manifest.columns = read_columns(reader)?;
    }
    manifest.count();
    reader.is_at_end().then_some(manifest)
}

fn write_columns(writer: &mut Writer, columns: &[AddedColumn]) {
    writer.count(columns.len());
    for column in columns {
        writer.text(&column.name);
        writer.text(&column.text);
    }
}

fn read_columns(reader: &mut Reader<'_>) -> Option<Arc<[AddedColumn]>> {
    let count = reader.count()?;
    // There is at least one, since a manifest without added columns has another format byte.
    let column = |_| {
        let name = reader.text()?.into();
        Some(AddedColumn { name, text: reader.text()?.into() })
    };
    (count > 0).then(|| (0..count).map(column).collect())?
}

/// The long names of a manifest, each written once.
struct Names {
    sessions: Vec<SessionId>,
    runs: Vec<RunId>,
    /// Whether pieces have front lengths and tight boxes.
    has_boxes: bool,
}

impl Names {
    fn of(manifest: &Manifest) -> Self {
        let retired = manifest.retired.keys().copied();
        let mut sessions: Vec<SessionId> =
            manifest.objects().chain(retired).map(|object| object.session).collect();
        let of_pieces = manifest.pieces.values().filter_map(|placed| placed.piece.extent.run.as_ref());
        let of_tombstones = manifest.tombstones.iter().filter_map(|one| one.scope.run.as_ref());
        let mut runs: Vec<RunId> =
            manifest.runs.keys().chain(of_pieces).chain(of_tombstones).cloned().collect();
        sessions.sort_unstable();
        sessions.dedup();
        runs.sort_unstable();
        runs.dedup();
        Self { sessions, runs, has_boxes: true }
    }

    fn write(&self, writer: &mut Writer) {
        writer.count(self.sessions.len());
        self.sessions.iter().for_each(|session| writer.plain(&session.0.to_be_bytes()));
        writer.count(self.runs.len());
        self.runs.iter().for_each(|run| writer.text(&run.0));
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut names = Self { sessions: Vec::new(), runs: Vec::new(), has_boxes: true };
        for _ in 0..reader.count()? {
            names.sessions.push(SessionId(u128::from_be_bytes(reader.plain(16)?.try_into().ok()?)));
        }
        for _ in 0..reader.count()? {
            names.runs.push(RunId::from(reader.text()?));
        }
        Some(names)
    }

    /// The number of a run; 0 for `None`.
    fn run(&self, run: Option<&RunId>) -> u64 {
        // The table has every run of the manifest.
        run.and_then(|run| self.runs.binary_search(run).ok()).map_or(0, |place| place as u64 + 1)
    }

    fn read_run_name(&self, reader: &mut Reader<'_>) -> Option<Option<RunId>> {
        match reader.number()?.checked_sub(1) {
            None => Some(None),
            Some(place) => self.runs.get(usize::try_from(place).ok()?).cloned().map(Some),
        }
    }

    fn write_object(&self, writer: &mut Writer, object: ObjectId) {
        writer.count(self.sessions.binary_search(&object.session).unwrap_or_default());
        writer.number(object.sequence);
    }

    fn read_object(&self, reader: &mut Reader<'_>) -> Option<ObjectId> {
        let place = usize::try_from(reader.number()?).ok()?;
        let session = *self.sessions.get(place)?;
        Some(ObjectId { session, sequence: reader.number()? })
    }

    fn write_placed(&self, writer: &mut Writer, placed: &Placed) {
        let Placed { piece, born, clean_to } = placed;
        self.write_object(writer, piece.object);
        writer.number(u64::from(piece.part));
        writer.flag(piece.form == Form::Cube);
        writer.number(piece.weights.from);
        writer.maybe(piece.weights.to);
        writer.number(piece.rows);
        writer.number(piece.bytes);
        writer.number(piece.front_bytes);
        writer.flag(piece.tight.is_some());
        if let Some(TightBox(tight)) = &piece.tight {
            writer.count(tight.len());
            writer.plain(tight);
        }
        writer.number(self.run(piece.extent.run.as_ref()));
        write_steps(writer, piece.extent.steps);
        writer.number(born.0);
        writer.number(clean_to.0);
    }

    fn read_placed(&self, reader: &mut Reader<'_>) -> Option<Placed> {
        let object = self.read_object(reader)?;
        let part = u32::try_from(reader.number()?).ok()?;
        let form = if reader.flag()? { Form::Cube } else { Form::Block };
        let weights = WeightRange { from: reader.number()?, to: reader.maybe()? };
        let (rows, bytes) = (reader.number()?, reader.number()?);
        let (front_bytes, tight) =
            if self.has_boxes { (reader.number()?, read_tight(reader)?) } else { (0, None) };
        let extent = Extent { run: self.read_run_name(reader)?, steps: read_steps(reader)? };
        let piece = Piece { object, part, form, weights, rows, bytes, front_bytes, extent, tight };
        Some(Placed { piece, born: Version(reader.number()?), clean_to: Version(reader.number()?) })
    }

    fn write_run(&self, writer: &mut Writer, run: &Run) {
        writer.number(run.attempt);
        writer.number(u64::from(run.ranks));
        writer.maybe(run.published);
        writer.count(run.complete.len());
        let mut last = 0;
        for (step, there) in run.complete.iter() {
            writer.number(step - last);
            last = *step;
            writer.number(there.attempt);
            write_time(writer, there.time);
            writer.number(there.rows);
            writer.flag(there.is_deleted);
        }
        writer.count(run.arriving.len());
        for (step, ranks) in &run.arriving {
            writer.number(*step);
            writer.count(ranks.len());
            for (rank, arrived) in ranks {
                writer.number(u64::from(*rank));
                write_time(writer, arrived.time);
                writer.flag(arrived.placed.is_some());
                if let Some(placed) = &arrived.placed {
                    self.write_placed(writer, placed);
                }
            }
        }
    }

    fn read_run(&self, reader: &mut Reader<'_>) -> Option<Run> {
        let attempt = reader.number()?;
        let ranks = u32::try_from(reader.number()?).ok()?;
        let published = reader.maybe()?;
        let mut complete = SharedMap::default();
        let mut step = 0_u64;
        for _ in 0..reader.count()? {
            step = step.checked_add(reader.number()?)?;
            let (attempt, time) = (reader.number()?, read_time(reader)?);
            let (rows, is_deleted) = (reader.number()?, reader.flag()?);
            complete.insert(step, Published { attempt, time, rows, is_deleted });
        }
        let mut arriving = BTreeMap::new();
        for _ in 0..reader.count()? {
            let step = reader.number()?;
            arriving.insert(step, self.read_arrived(reader)?);
        }
        Some(Run { attempt, ranks, published, complete, arriving })
    }

    fn read_arrived(&self, reader: &mut Reader<'_>) -> Option<BTreeMap<u32, Arrived>> {
        let mut ranks = BTreeMap::new();
        for _ in 0..reader.count()? {
            let rank = u32::try_from(reader.number()?).ok()?;
            let time = read_time(reader)?;
            let placed = if reader.flag()? { Some(self.read_placed(reader)?) } else { None };
            ranks.insert(rank, Arrived { time, placed });
        }
        Some(ranks)
    }

    fn write_tombstone(&self, writer: &mut Writer, tombstone: &Tombstone) {
        writer.number(tombstone.version.0);
        writer.number(self.run(tombstone.scope.run.as_ref()));
        write_steps(writer, tombstone.scope.steps);
        writer.flag(tombstone.scope.expression.is_some());
        if let Some(expression) = &tombstone.scope.expression {
            writer.text(expression);
        }
    }

    fn read_tombstone(&self, reader: &mut Reader<'_>) -> Option<Tombstone> {
        let version = Version(reader.number()?);
        let (run, steps) = (self.read_run_name(reader)?, read_steps(reader)?);
        let expression = if reader.flag()? { Some(Arc::from(reader.text()?)) } else { None };
        Some(Tombstone { version, scope: Scope { run, steps, expression } })
    }
}

fn read_tight(reader: &mut Reader<'_>) -> Option<Option<TightBox>> {
    if !reader.flag()? {
        return Some(None);
    }
    let len = reader.count()?;
    Some(Some(TightBox(reader.plain(len)?.into())))
}

/// A range of steps, as its first step and their number.
fn write_steps(writer: &mut Writer, steps: StepRange) {
    writer.number(steps.from);
    // A range that ends before it begins comes back as an empty one, which it is.
    writer.maybe(steps.to.map(|to| to.saturating_sub(steps.from)));
}

fn read_steps(reader: &mut Reader<'_>) -> Option<StepRange> {
    let from = reader.number()?;
    let to = match reader.maybe()? {
        None => None,
        Some(count) => Some(from.checked_add(count)?),
    };
    Some(StepRange { from, to })
}

fn write_time(writer: &mut Writer, time: Option<StepTime>) {
    writer.flag(time.is_some());
    if let Some(StepTime(bits)) = time {
        writer.plain(&bits.to_le_bytes());
    }
}

fn read_time(reader: &mut Reader<'_>) -> Option<Option<StepTime>> {
    if !reader.flag()? {
        return Some(None);
    }
    let bits = u64::from_le_bytes(reader.plain(8)?.try_into().ok()?);
    Some(Some(StepTime(bits)))
}

#[cfg(test)]
mod tests;
