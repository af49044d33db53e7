//! Opening a store: the last commit, and the log after it.
//!
//! Invariant: recovery writes nothing but a superblock that has to be mended or says what only a newer build
//! knows, data that it read and will rely on, unchanged and in place, and zeros over the header of a group
//! that it cut; and it writes only once it knows that the store is whole. So a crash during recovery is as a
//! crash before it.

#[cfg(test)]
mod tests;

use crate::backing::{Backing, Reading};
use crate::codec::Malformed;
use crate::fence;
use crate::forest::{Count, Forest, NamedSnapshot, TreeState};
use crate::log::{FoundSignpost, GROUP_HEADER, Log, LogPoint, SEGMENT_HEADER, Signpost, SignpostPlace};
use crate::node::PageRef;
use crate::options::{Options, SEGMENT_BYTES_MAX};
use crate::page;
use crate::planted::{self, Bug};
use crate::replayer::Replayer;
use crate::retired::RetiredList;
use crate::slot::Slot;
use crate::space::{BLOCK, Extent, SegmentUse, Space};
use crate::superblock::{COPIES, Copy, DATA_START, FORMAT, Superblock, Table, TreeEntry};
use crate::{Damage, EngineError};
use atoll_disk::Disk;
use atoll_errors::ErrorKind;
use std::sync::Arc;

/// What opening a store found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The store is new.
    pub created: bool,
    /// The store had been closed, and nothing was written since.
    pub clean: bool,
    /// Number of the commit that was found.
    pub checkpoint: u64,
    /// Commits that were replayed from the log.
    pub groups_replayed: u64,
    /// Changes in these commits.
    pub records_replayed: u64,
    /// Bytes of log that were replayed.
    pub bytes_replayed: u64,
    /// The end of the log that was torn and left out. It had never been synced, except in a salvage.
    pub cut: Option<Cut>,
    /// Leaves, or nodes above them, that could not be read although the log changes them. A
    /// [salvage](Options::salvage) shows nothing of them except values below 64 KiB that the log has, and
    /// shows everything else. Each counts once.
    pub leaves_lost: u64,
    /// One copy of the superblock was damaged or outdated, and the other was used.
    pub superblock_mended: bool,
}

/// A torn end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Offset in the file where it starts.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Whether it had been synced: the log was damaged, and [`salvage`](Options::salvage) asked for what lies
    /// before the damage.
    pub was_synced: bool,
}

/// A store that was read from disk.
pub(crate) struct Recovered {
    pub(crate) backing: Arc<Backing>,
    pub(crate) forest: Forest,
    pub(crate) space: Space,
    pub(crate) retired: RetiredList,
    pub(crate) log: Log,
    pub(crate) synced: u64,
    pub(crate) checkpointed: u64,
    /// Bytes of the large values that the replayed log names.
    pub(crate) named_bytes: u64,
    pub(crate) table: Extent,
    pub(crate) superblock: Superblock,
    pub(crate) report: RecoveryReport,
    /// Whether a leaf that the log changes could not be read.
    met_damage: bool,
}

impl Recovered {
    /// Whether it has all that the log had when `newest` was committed.
    ///
    /// A commit frees the log before its own point, and a segment that was freed looks like the end of the
    /// log. So what was cut short there does not reach the point of the commit that freed it.
    fn reaches(&self, newest: &Superblock) -> bool {
        newest.log.position <= self.log.point().position
    }
}

/// Bytes that are rewritten at once.
const REWRITE_BYTES: u64 = 1 << 20;

/// No store begins with a longer file: its first log segment takes most of it. A file may have terabytes of
/// holes, which take hours to read.
const BEGUN_BYTES_MAX: u64 = 2 * SEGMENT_BYTES_MAX;

/// Most attempts of an opening for reading, each of which the owner of the store overtook.
const OPENINGS_MAX: usize = 100;

/// Opens the store on `disk` for the owner with this token, or creates one there. A token of 0 is that of
/// whoever owns the store.
pub(crate) fn recover(disk: Arc<dyn Disk>, options: &Options, token: u64) -> Result<Recovered, EngineError> {
    let Some((mut superblock, mend)) = read_superblock(&*disk)? else {
        return create_and_open(disk, options);
    };
    if !options.read_only {
        check_known_to_write(&*disk, &superblock)?;
        fence::check_free(&*disk, &superblock, token)?;
        return open(disk, options, superblock, mend);
    }
    let mut broken_at = None;
    for _ in 1..OPENINGS_MAX {
        let (opened, newest) = open_beside(&disk, options, superblock, mend)?;
        let breaks_at = log_breaks_at(&opened);
        let is_sound = |found: &Recovered| !found.met_damage && found.reaches(&newest);
        if breaks_at.is_none() && opened.as_ref().is_ok_and(is_sound) {
            return opened;
        }
        // Beside an owner that goes on, what looks damaged, or like the end of the log, may be space that was
        // reused, or given back.
        if newest != superblock {
            superblock = newest;
        } else if breaks_at.is_none() || breaks_at == broken_at {
            return opened;
        }
        // Otherwise the log was read while it grew, its front before its end: then it does not break at the
        // same place twice.
        broken_at = breaks_at;
    }
    let (opened, newest) = open_beside(&disk, options, superblock, mend)?;
    match opened {
        Ok(found) if found.reaches(&newest) => Ok(found),
        Err(error) if newest == superblock => Err(error),
        Ok(_) | Err(_) => Err(EngineError::Superseded { store: disk.name().to_owned() }),
    }
}

/// One opening for reading, and the newest superblock after it.
fn open_beside(
    disk: &Arc<dyn Disk>,
    options: &Options,
    superblock: Superblock,
    mend: Option<u64>,
) -> Result<(Result<Recovered, EngineError>, Superblock), EngineError> {
    let opened = open(Arc::clone(disk), options, superblock, mend);
    let newest = read_superblock(&**disk)?.map_or(superblock, |(newest, _)| newest);
    Ok((opened, newest))
}

/// Refuses a store with a feature that a build must know to write to it. Reading it is safe.
pub(crate) fn check_known_to_write(disk: &dyn Disk, superblock: &Superblock) -> Result<(), EngineError> {
    match superblock.unknown_to_write() {
        Some(bit) => Err(EngineError::NewerFeature { store: disk.name().to_owned(), bit, to_write: true }),
        None => Ok(()),
    }
}

/// Where the log seemed to be broken before its synced end, whether that was refused or salvaged.
fn log_breaks_at(opened: &Result<Recovered, EngineError>) -> Option<u64> {
    match opened {
        Ok(recovered) => recovered.report.cut.filter(|cut| cut.was_synced).map(|cut| cut.offset),
        Err(EngineError::Corrupt { offset, problem: Damage::LogBeforeSyncedEnd, .. }) => Some(*offset),
        Err(_) => None,
    }
}

fn create_and_open(disk: Arc<dyn Disk>, options: &Options) -> Result<Recovered, EngineError> {
    let not_a_store = || EngineError::NotAStore { store: disk.name().to_owned() };
    if options.read_only {
        return Err(EngineError::NotYetAStore { store: disk.name().to_owned() });
    }
    create(&disk, options)?;
    let (superblock, _) = read_superblock(&*disk)?.ok_or_else(not_a_store)?;
    let mut made = open(disk, options, superblock, None)?;
    made.report = RecoveryReport { created: true, clean: true, ..RecoveryReport::default() };
    Ok(made)
}

/// Writes an empty store.
fn create(disk: &Arc<dyn Disk>, options: &Options) -> Result<(), EngineError> {
    let store_id = options.store_id.unwrap_or_else(random_id);
    let backing = Backing::new(Some(Arc::clone(disk)), store_id, options.memory_bytes);
    let mut space = Space::new(DATA_START);
    let segment = space.allocate(options.log_segment_bytes);
    let log =
        LogPoint { segment, number: 1, start: 0, position: SEGMENT_HEADER, chain: store_id, sequence: 0 };
    let signpost = space.allocate(BLOCK).offset;
    let extent = space.allocate(4096);
    let table = Table {
        segments: vec![SegmentUse { extent: segment, number: 1, live: 0 }],
        end: space.end(),
        free: space.free_extents().collect(),
        ..Table::default()
    };
    let mut bytes = table.encode();
    bytes.resize(extent.len as usize, 0);
    let checksum = backing.checksum(&bytes);
    let table = PageRef { offset: extent.offset, len: bytes.len() as u32, checksum, birth: 0 };
    disk.reserve(0, space.end())?;
    disk.write_at(extent.offset, &bytes)?;
    disk.write_at(signpost, &Signpost::of(&log).encode(store_id))?;
    disk.sync()?;
    let superblock = Superblock {
        store_id,
        epoch: 1,
        features: 0,
        features_to_write: 0,
        clean: true,
        table,
        log,
        signpost,
        token: 0,
        fence: 0,
    };
    for copy in COPIES {
        disk.write_at(copy, &superblock.encode())?;
        disk.sync()?;
    }
    Ok(())
}

fn random_id() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hashers from the system's randomness.
    std::hash::RandomState::new().build_hasher().finish() | 1
}

/// The newest superblock, and the offset of a copy that must be rewritten, if any; none for a new file.
pub(crate) fn read_superblock(disk: &dyn Disk) -> Result<Option<(Superblock, Option<u64>)>, EngineError> {
    let store = || disk.name().to_owned();
    let len = disk.len()?;
    if len == 0 {
        return Ok(None);
    }
    let mut copies = Vec::new();
    let mut looks_like_one = false;
    let mut unread = None;
    for offset in COPIES {
        let mut bytes = vec![0; 4096];
        let there = len.saturating_sub(offset).min(4096) as usize;
        if let Err(error) = disk.read_at(offset, &mut bytes[..there]) {
            // As good as damaged, provided that the other copy is intact.
            unread.get_or_insert(error);
            copies.push(Copy::Damaged);
            continue;
        }
        looks_like_one |= Superblock::looks_like_one(&bytes);
        copies.push(Superblock::decode(&bytes));
    }
    let decides = |copy: &Copy| matches!(copy, Copy::Intact(_) | Copy::Newer(_) | Copy::NewerFeature(_));
    if let Some(error) = unread
        && !copies.iter().any(decides)
    {
        return Err(error.into());
    }
    let corrupt = || Err(EngineError::Corrupt { store: store(), offset: 0, problem: Damage::Superblocks });
    let newer = |found| Err(EngineError::NewerFormat { store: store(), found, supported: FORMAT });
    match (copies[0], copies[1]) {
        (Copy::Newer(found), _) | (_, Copy::Newer(found)) => newer(found),
        (Copy::NewerFeature(bit), _) | (_, Copy::NewerFeature(bit)) => {
            Err(EngineError::NewerFeature { store: store(), bit, to_write: false })
        }
        (Copy::Intact(a), Copy::Intact(b)) if a == b => Ok(Some((a, None))),
        (Copy::Intact(a), Copy::Intact(b)) if a.order() > b.order() => Ok(Some((a, Some(COPIES[1])))),
        (_, Copy::Intact(newest)) => Ok(Some((newest, Some(COPIES[0])))),
        (Copy::Intact(one), _) => Ok(Some((one, Some(COPIES[1])))),
        // The second copy is written only once the first is durable: creating this store was never finished.
        (Copy::Blank, Copy::Blank) if is_barely_begun(disk, len)? => Ok(None),
        (Copy::Damaged, Copy::Blank) if looks_like_one && is_barely_begun(disk, len)? => Ok(None),
        (Copy::Blank, Copy::Blank) => corrupt(),
        // This build cannot verify them, which is no surprise in a newer format.
        (Copy::PerhapsNewer(found), Copy::PerhapsNewer(_)) => newer(found),
        _ if looks_like_one => corrupt(),
        _ => Err(EngineError::NotAStore { store: store() }),
    }
}

/// Whether a file has no more than [`create`] writes before the superblocks: zeros, except for the two blocks
/// at its end.
fn is_barely_begun(disk: &dyn Disk, len: u64) -> Result<bool, EngineError> {
    if len > BEGUN_BYTES_MAX {
        return Ok(false);
    }
    let end = len.saturating_sub(2 * BLOCK);
    let mut bytes = vec![0; 1 << 20];
    let mut at = DATA_START;
    while at < end {
        let part = &mut bytes[..(end - at).min(1 << 20) as usize];
        disk.read_at(at, part)?;
        if part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    Ok(true)
}

fn open(
    disk: Arc<dyn Disk>,
    options: &Options,
    superblock: Superblock,
    mend: Option<u64>,
) -> Result<Recovered, EngineError> {
    let backing = Backing::new(Some(Arc::clone(&disk)), superblock.store_id, options.memory_bytes);
    let backing = Arc::new(backing.with_blind_puts(options.blind_puts));
    let bytes = page::read_bytes(&superblock.table, Reading::Along, &backing)?;
    let table = Table::decode(&bytes)
        .map_err(|Malformed| backing.corrupt(superblock.table.offset, Damage::PageContent))?;
    let space = Space::from_parts(table.end, &table.free, &table.segments)?;
    let forest = forest_of(&table, &superblock);
    if !forest.trees.is_empty() {
        backing.node_is_absent();
    }
    let mut state = Replayer::new(&backing, forest, space, options.memory_bytes);
    table.retired_apart().into_iter().for_each(|retired| state.retired.space(retired));
    // Read before the log: beside a writer that goes on, the jump that the signpost refers to is then on
    // disk.
    let found = Signpost::read(&*disk, superblock.signpost, superblock.store_id)?;
    let signpost = match found {
        FoundSignpost::Intact(signpost) => Some(signpost),
        FoundSignpost::None | FoundSignpost::Damaged => None,
    };
    let (end, synced) = state.replay(superblock.log, signpost, options.salvage)?;
    let Replayer {
        forest, space, retired, mut report, unsynced, named_bytes, met_damage, is_cut_intact, ..
    } = state;
    report.clean = superblock.clean && report.groups_replayed == 0 && report.cut.is_none();
    report.superblock_mended = mend.is_some();
    if !options.read_only {
        if !planted::is(Bug::TailNotWrittenAgain) {
            write_again(&*disk, &unsynced)?;
        }
        if is_cut_intact {
            erase_group(&*disk, &end.point)?;
        }
        renew_superblocks(&*disk, &superblock, mend)?;
    }
    // One that was written after the last sync may be only in the system's cache.
    let is_stale = found != FoundSignpost::Intact(Signpost::of(&end.point)) || !unsynced.is_empty();
    let place = SignpostPlace { offset: superblock.signpost, is_stale };
    let log = Log::new(disk, superblock.store_id, options.life.unwrap_or_else(random_id), end.point, place);
    let table = Extent { offset: superblock.table.offset, len: u64::from(superblock.table.len) };
    let checkpointed = superblock.log.position;
    Ok(Recovered {
        forest,
        space,
        retired,
        log,
        synced,
        checkpointed,
        named_bytes,
        table,
        superblock,
        report,
        met_damage,
        backing: Arc::clone(&backing),
    })
}

/// Rewrites data in place that was read but may not be on the medium.
///
/// After a failed sync, the system may hold pages that it considers clean and that never reached the medium.
/// A process that opens the store before the power is lost reads them like any others, and no later sync
/// would write them.
fn write_again(disk: &dyn Disk, parts: &[Extent]) -> Result<(), EngineError> {
    if parts.is_empty() {
        return Ok(());
    }
    let end = disk.len()?;
    let mut bytes = vec![0; REWRITE_BYTES as usize];
    for part in parts {
        let part_end = part.end().min(end);
        let mut at = part.offset;
        while at < part_end {
            let some = &mut bytes[..(part_end - at).min(REWRITE_BYTES) as usize];
            disk.read_at(at, some)?;
            disk.write_at(at, some)?;
            at += some.len() as u64;
        }
    }
    Ok(())
}

/// Writes both copies of the superblock, for the same reason, and as this build writes them: a newer one may
/// have noted what is not kept up from here on. At every moment one copy is intact on the medium.
fn renew_superblocks(disk: &dyn Disk, superblock: &Superblock, mend: Option<u64>) -> Result<(), EngineError> {
    let bytes = superblock.encode();
    let [first, second] = COPIES;
    let Some(mended) = mend else {
        if block_at(disk, first)? != bytes || block_at(disk, second)? != bytes {
            write_synced(disk, first, &bytes)?;
            return write_synced(disk, second, &bytes);
        }
        // Of two equal copies, one was synced before the other was begun: overwriting them changes nothing on
        // the medium.
        for copy in COPIES.into_iter().filter(|_| !planted::is(Bug::TailNotWrittenAgain)) {
            match disk.write_at(copy, &bytes) {
                // Copy-on-write file systems need space for this. A failure leaves things as they were.
                Err(error) if error.kind() == ErrorKind::OutOfSpace => return Ok(()),
                written => written?,
            }
        }
        return Ok(());
    };
    // Until the newest one is certainly on the medium, it may be the only one there. So it stays as it is
    // until the other one is intact as well.
    let newest = if mended == first { second } else { first };
    let found = block_at(disk, newest)?;
    if !planted::is(Bug::TailNotWrittenAgain) {
        write_synced(disk, newest, &found)?;
    }
    write_synced(disk, mended, &bytes)?;
    if found == bytes { Ok(()) } else { write_synced(disk, newest, &bytes) }
}

/// The block of a superblock, whatever it holds.
fn block_at(disk: &dyn Disk, offset: u64) -> Result<Vec<u8>, EngineError> {
    let mut bytes = vec![0; BLOCK as usize];
    disk.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

fn write_synced(disk: &dyn Disk, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
    disk.write_at(offset, bytes)?;
    disk.sync()?;
    Ok(())
}

/// Writes zeros over the header of the group, or of the jump to it, that follows the end of the log and is
/// intact. The group was cut only because a large value that it names was lost. Values are written before
/// the groups that name them, so the same bytes may come to the same place before the log goes on: then this
/// group and all behind it, whose chain leads here, would count once more.
fn erase_group(disk: &dyn Disk, end: &LogPoint) -> Result<(), EngineError> {
    disk.write_at(end.offset_of(end.position), &[0; GROUP_HEADER])?;
    // Later values may reach the medium at any time.
    disk.sync()?;
    Ok(())
}

fn forest_of(table: &Table, superblock: &Superblock) -> Forest {
    let trees = |entries: &[TreeEntry]| {
        entries
            .iter()
            .map(|entry| TreeState {
                id: entry.id,
                name: entry.name.clone(),
                root: Slot::on_disk(entry.root),
                records: Count::of(entry.records),
                is_counted: entry.is_counted,
                count_round: 0,
            })
            .collect()
    };
    let snapshots = table
        .snapshots
        .iter()
        .map(|entry| NamedSnapshot {
            name: entry.name.clone(),
            epoch: entry.epoch,
            sequence: entry.sequence,
            trees: trees(&entry.trees),
        })
        .collect();
    Forest {
        epoch: superblock.epoch,
        sequence: Count::of(superblock.log.sequence),
        trees: trees(&table.trees),
        snapshots,
    }
}
