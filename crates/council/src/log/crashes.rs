//! Crashes at each write of a snapshot and of a purge: whatever survives of the file, the member goes on in
//! the state that all entries up to its last one make.

use super::file::Written;
use super::*;
use crate::machine::Machine;
use crate::machine::tests::{RING, history, known};
use crate::types::Changes;
use atoll_replica::{Change, NodeId, PlacementHints, Survived};
use openraft::storage::RaftStateMachine;
use openraft::{EntryPayload, LeaderId, LogId, RaftSnapshotBuilder};
use std::path::PathBuf;
use std::time::Duration;

/// The state after each number of entries.
async fn states(entries: &[EntryOf]) -> Vec<Vec<u8>> {
    let mut machine = Machine::new(RING, Log::in_memory(SeatId(5))).unwrap();
    let mut states = vec![known(&machine)];
    for entry in entries {
        machine.apply([entry.clone()]).await.unwrap();
        states.push(known(&machine));
    }
    states
}

/// The snapshot of these entries.
async fn snapshot(entries: &[EntryOf]) -> KeptSnapshot {
    let mut machine = Machine::new(RING, Log::in_memory(SeatId(5))).unwrap();
    machine.apply(entries.to_vec()).await.unwrap();
    let built = machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
    KeptSnapshot::of(built.meta, *built.snapshot).unwrap()
}

/// The state of a member that begins with this log and is told that all of it is decided; and the number of
/// entries that this state is of.
async fn went_on(kept: &DurableState) -> (Vec<u8>, usize) {
    let log = Log::of(kept.clone(), None, watch::channel(false).1);
    let mut machine = Machine::new(RING, log.clone()).unwrap();
    let next = machine.applied_state().await.unwrap().0.map_or(0, |last| last.index + 1);
    let mut reader = log;
    machine.apply(reader.try_get_log_entries(next..).await.unwrap()).await.unwrap();
    let count = machine.applied_state().await.unwrap().0.map_or(0, |last| last.index as usize + 1);
    (known(&machine), count)
}

/// A file whose contents after each write are known.
struct Recorded {
    path: PathBuf,
    file: LogFile,
    kept: DurableState,
    /// The bytes of the file after each write, and what they say.
    after: Vec<(Vec<u8>, DurableState)>,
}

impl Recorded {
    fn begin(path: PathBuf) -> Self {
        let (file, kept) = LogFile::open(&path, SeatId(5)).unwrap();
        let after = vec![(std::fs::read(&path).unwrap(), kept.clone())];
        Self { path, file, kept, after }
    }

    /// Writes facts as one record.
    fn append(&mut self, facts: &[Fact]) {
        let mut bytes = Vec::new();
        for fact in facts {
            fact.put(&mut bytes);
            self.kept.take(fact.clone()).unwrap();
        }
        assert_eq!(self.file.append(&bytes).unwrap(), Written::Synced);
        self.note();
    }

    fn replace(&mut self) {
        assert_eq!(self.file.replace(&self.kept.facts()).unwrap(), Written::Synced);
        self.note();
    }

    fn note(&mut self) {
        self.after.push((std::fs::read(&self.path).unwrap(), self.kept.clone()));
    }
}

/// Some ten places from `from` on, the first one included and the last one not, because opening a file syncs
/// twice.
fn cuts(from: usize, to: usize) -> impl Iterator<Item = usize> {
    (from..to).step_by((to - from) / 10 + 1)
}

/// Everything that a crash during the write from `before` to `after` may leave: the file, and what was
/// written of another one beside it.
fn remains(before: &[u8], after: &[u8]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    if !after.starts_with(before) {
        let parts = cuts(0, after.len()).map(|end| (before.to_vec(), Some(after[..end].to_vec())));
        return parts.collect();
    }
    let torn = cuts(before.len(), after.len()).map(|end| {
        let mut torn = after[..end].to_vec();
        if end % 2 == 1 {
            // The file was extended, but the bytes never arrived.
            torn.resize(after.len(), 0);
        }
        (torn, None)
    });
    torn.filter(|(torn, _)| torn != after).collect()
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_snapshot_or_a_purge_leaves_a_state_that_the_entries_made() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..2 {
        let entries = history(seed, 40);
        let states = states(&entries).await;
        let mut recorded = Recorded::begin(folder.path().join(format!("{seed}")));
        let entry = |index: usize| Fact::Entry(entries[index].clone());
        let purged = |index: usize| Fact::Purged(entries[index].log_id);
        (0..15).for_each(|index| recorded.append(&[entry(index)]));
        let [early, late] = [snapshot(&entries[..12]).await, snapshot(&entries[..28]).await];
        recorded.append(&[Fact::Snapshot(early)]);
        recorded.append(&[entry(15), entry(16)]);
        recorded.append(&[purged(7)]);
        recorded.append(&[entry(17)]);
        recorded.replace();
        (18..30).for_each(|index| recorded.append(&[entry(index)]));
        // While one purge is still under way, the next snapshot is made.
        recorded.append(&[Fact::Snapshot(late), purged(11)]);
        recorded.append(&[purged(27), entry(30)]);
        recorded.replace();
        recorded.append(&[entry(31), entry(32)]);
        let path = folder.path().join("crashed");
        for writes in recorded.after.windows(2) {
            let [(before, kept_before), (after, kept_after)] = writes else { unreachable!() };
            let last = |kept: &DurableState| kept.last().map_or(0, |last| last.index as usize + 1);
            for (file, beside) in remains(before, after) {
                std::fs::write(&path, file).unwrap();
                if let Some(beside) = beside {
                    std::fs::write(path.with_extension("unfinished"), beside).unwrap();
                }
                let (_, kept) = LogFile::open(&path, SeatId(6)).unwrap();
                assert_eq!(kept, *kept_before, "seed {seed}");
            }
            std::fs::write(&path, after).unwrap();
            assert_eq!(LogFile::open(&path, SeatId(6)).unwrap().1, *kept_after, "seed {seed}");
            for kept in [kept_before, kept_after] {
                let (state, count) = went_on(kept).await;
                assert_eq!(count, last(kept), "seed {seed}: what was synced is there");
                assert_eq!(state, states[count], "seed {seed}, {count} entries");
            }
        }
    }
}

#[tokio::test]
async fn the_snapshot_of_another_member_takes_the_place_of_a_shorter_log_at_once_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let entries = history(1, 30);
    let states = states(&entries).await;
    let (log, held) = Log::open(Some(folder.path())).unwrap();
    for entry in &entries[..8] {
        let mut entry = entry.clone();
        if entry.log_id.index >= 5 {
            // Of a leader that nobody followed, with a later term than any in the snapshot.
            entry.log_id = LogId { leader_id: LeaderId::new(9, SeatId(7)), index: entry.log_id.index };
        }
        log.keep(Fact::Entry(entry)).await.unwrap();
    }
    let (path, kept_before) = (folder.path().join("log"), log.shared().kept.clone());
    let before = std::fs::read(&path).unwrap();
    log.install(snapshot(&entries[..21]).await).await.unwrap();
    let kept_after = log.shared().kept.clone();
    let after = std::fs::read(&path).unwrap();
    let last = entries[20].log_id;
    assert_eq!((kept_after.purged, kept_after.last(), kept_after.entries.len()), (Some(last), Some(last), 0));
    log.clone().purge(last).await.unwrap();
    log.keep(Fact::Entry(entries[21].clone())).await.unwrap();
    log.install(snapshot(&entries[..10]).await).await.unwrap();
    assert_eq!(log.snapshot().map(|kept| kept.last), Some(last), "an older one replaces nothing");
    assert_eq!(log.shared().kept.last(), Some(entries[21].log_id));
    drop(log);
    held.end();
    let crashed = folder.path().join("crashed");
    for (file, _) in remains(&before, &after) {
        std::fs::write(&crashed, file).unwrap();
        assert_eq!(LogFile::open(&crashed, SeatId(6)).unwrap().1, kept_before);
    }
    assert_eq!(went_on(&kept_after).await, (states[21].clone(), 21));
    let (_, kept) = LogFile::open(&path, SeatId(6)).unwrap();
    assert_eq!(went_on(&kept).await, (states[22].clone(), 22));
}

#[tokio::test]
async fn entries_that_follow_the_snapshot_of_another_member_stay() {
    let entries = history(2, 30);
    let log = Log::in_memory(SeatId(5));
    for entry in &entries {
        log.keep(Fact::Entry(entry.clone())).await.unwrap();
    }
    log.install(snapshot(&entries[..21]).await).await.unwrap();
    assert_eq!((log.purged(), log.shared().kept.entries.len()), (None, 30));
    log.clone().purge(entries[20].log_id).await.unwrap();
    let kept = log.shared().kept.clone();
    assert_eq!(kept.entries, entries[21..].to_vec());
    assert_eq!(went_on(&kept).await, (states(&entries).await[30].clone(), 30));
}

#[tokio::test]
async fn nothing_is_purged_before_the_snapshot_that_has_it_is_there() {
    let entries = history(3, 30);
    let log = Log::in_memory(SeatId(5));
    for entry in &entries {
        log.keep(Fact::Entry(entry.clone())).await.unwrap();
    }
    let purge = || {
        let mut log = log.clone();
        let last = entries[20].log_id;
        async move { tokio::time::timeout(Duration::from_millis(20), log.purge(last)).await }
    };
    assert!(purge().await.is_err(), "there is no snapshot");
    log.keep_snapshot(snapshot(&entries[..20]).await).await.unwrap();
    assert!(purge().await.is_err(), "it lacks the last one");
    assert_eq!((log.purged(), log.shared().kept.entries.len()), (None, 30));
    let (waiting, made) = tokio::join!(purge(), async {
        tokio::task::yield_now().await;
        log.keep_snapshot(snapshot(&entries[..25]).await).await
    });
    made.unwrap();
    waiting.unwrap().unwrap();
    assert_eq!((log.purged(), log.shared().kept.entries.len()), (Some(entries[20].log_id), 9));
    let mut reader = log.clone();
    assert_eq!(reader.limited_get_log_entries(21, 30).await.unwrap().len(), 9);
    assert!(reader.limited_get_log_entries(20, 30).await.unwrap().is_empty(), "20 is gone");
}

/// Entries that take 6 MB, and lead to a small table.
fn long_entries() -> Vec<EntryOf> {
    let long = |index: u64| Change::Register {
        node: NodeId(index as u32 % 5),
        nonce: index,
        address: "x".repeat(1_000),
        hints: PlacementHints::default(),
        survived: Survived::Nothing,
    };
    let entries = (0..6_000).map(|index| EntryOf {
        log_id: LogId { leader_id: LeaderId::new(1, SeatId(1)), index },
        payload: EntryPayload::Normal(Changes::new(vec![long(index)])),
    });
    entries.collect()
}

#[tokio::test]
async fn a_file_that_there_was_no_room_to_replace_is_replaced_at_the_next_purge() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let entries = long_entries();
    let (log, held) = Log::open(Some(folder.path())).unwrap();
    log.keep_all(|_| entries.iter().cloned().map(Fact::Entry).collect()).await.unwrap();
    log.keep_snapshot(snapshot(&entries).await).await.unwrap();
    let length = || std::fs::metadata(&path).unwrap().len();
    // The new file is written here first, and finds no room. It is written before the next facts.
    std::os::unix::fs::symlink("/dev/full", path.with_extension("unfinished")).unwrap();
    log.clone().purge(entries[5_000].log_id).await.unwrap();
    log.set_ring(RingId(1)).await.unwrap();
    assert!(length() > REPLACE_BYTES as u64, "there was room");
    log.clone().purge(entries[5_500].log_id).await.unwrap();
    log.set_ring(RingId(2)).await.unwrap();
    assert!(length() < 1 << 20, "{}", length());
    let kept = log.shared().kept.clone();
    drop(log);
    held.end();
    assert_eq!(LogFile::open(&path, SeatId(6)).unwrap().1, kept);
}

#[tokio::test]
async fn the_folder_of_a_log_that_was_never_cut_opens_as_before_and_shrinks_with_the_first_purge() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let entries = long_entries();
    let (log, held) = Log::open(Some(folder.path())).unwrap();
    log.keep_all(|_| entries.iter().cloned().map(Fact::Entry).collect()).await.unwrap();
    drop(log);
    held.end();
    let length = || std::fs::metadata(&path).unwrap().len();
    assert!(length() > REPLACE_BYTES as u64);
    let (log, held) = Log::open(Some(folder.path())).unwrap();
    assert_eq!((log.snapshot(), log.purged(), log.shared().kept.entries.len()), (None, None, 6_000));
    let mut machine = Machine::new(RING, log.clone()).unwrap();
    machine.apply(entries.clone()).await.unwrap();
    machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
    assert!(length() > REPLACE_BYTES as u64, "a snapshot alone frees nothing");
    log.clone().purge(entries[5_899].log_id).await.unwrap();
    let whole = known(&machine);
    assert!(log.shared().kept.entries.capacity() < 3_000, "nor does it stay in memory");
    drop((machine, log));
    held.end();
    assert!(length() < 1 << 20, "{}", length());
    let (log, held) = Log::open(Some(folder.path())).unwrap();
    let kept = log.shared().kept.clone();
    assert_eq!((kept.entries.len(), kept.purged), (100, Some(entries[5_899].log_id)));
    assert_eq!(went_on(&kept).await, (whole, 6_000));
    drop(log);
    held.end();
}
