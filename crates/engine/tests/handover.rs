//! A store changes hands: attached, detached, and taken over from an owner that goes on, on disks that lose
//! power at every change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Disk, DiskError, FaultPlan, FileDisk, MemoryDisk, Mode, Relay, SimDisk};
use atoll_engine::{Damage, Durability, Engine, EngineError, Options, Tree};
use atoll_errors::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn options() -> Options {
    Options { background: false, log_segment_bytes: 64 << 10, ..Options::default() }
}

fn value(number: u32) -> Vec<u8> {
    // Some lie in leaves, some in the log, some in extents of their own.
    vec![number as u8; [40, 1000, 70_000][number as usize % 3]]
}

fn put(tree: &Tree, number: u32, durability: Durability) -> Result<(), EngineError> {
    tree.put(&number.to_be_bytes(), &value(number), durability).map(|_| ())
}

fn fill(tree: &Tree, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| put(tree, number, Durability::Synced).unwrap());
}

/// The store has these records, in this tree, and nothing is damaged.
fn assert_holds(engine: &Engine, count: u32) {
    assert_has(engine, count);
    let report = engine.check().unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

/// The store has these records, in this tree.
fn assert_has(engine: &Engine, count: u32) {
    let tree = engine.tree("t").unwrap();
    assert_eq!(tree.len().unwrap(), u64::from(count));
    for number in 0..count {
        let found = tree.get(&number.to_be_bytes()).unwrap().unwrap().to_buffer().unwrap();
        assert!(*found == *value(number), "{number}");
    }
}

fn is_fenced<T>(result: Result<T, EngineError>, by: u64, may_be_kept: bool) -> bool {
    match result {
        Err(EngineError::Fenced { newest, may_be_kept: kept, .. }) => (newest, kept) == (by, may_be_kept),
        _ => false,
    }
}

fn attached(disk: &Arc<MemoryDisk>, token: u64) -> Engine {
    Engine::attach(Arc::clone(disk) as Arc<dyn Disk>, token, options()).unwrap()
}

fn features_to_write(bytes: &[u8]) -> [u64; 2] {
    [0, 4096].map(|copy| u64::from_le_bytes(bytes[copy + 24..copy + 32].try_into().unwrap()))
}

#[test]
fn each_owner_has_a_greater_token_and_only_stores_with_one_are_marked() {
    let disk = Arc::new(MemoryDisk::new());
    let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
    fill(&engine.tree("t").unwrap(), 0..30);
    assert_eq!(engine.token(), 0);
    assert!(matches!(engine.detach(1), Err(EngineError::NoToken { .. })));
    engine.close().unwrap();
    assert_eq!(features_to_write(&disk.to_bytes()), [0, 0]);
    let into = Arc::new(MemoryDisk::new());
    let early = Engine::take_over(&*disk, into, 1, options());
    assert!(matches!(early, Err(EngineError::NoToken { .. })));
    let engine = attached(&disk, 3);
    assert_eq!((engine.token(), features_to_write(&disk.to_bytes())), (3, [1, 1]));
    engine.close().unwrap();
    for token in [0, 2] {
        let stale = Engine::attach(Arc::clone(&disk) as Arc<dyn Disk>, token, options());
        assert!(matches!(stale, Err(EngineError::StaleToken { newest: 3, .. })));
    }
    for token in [3, 70, 71] {
        let engine = attached(&disk, token);
        assert_eq!(engine.token(), token);
        assert_holds(&engine, 30);
        engine.close().unwrap();
    }
    // Its owner opens it again without a token, and keeps it.
    let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
    assert_eq!(engine.token(), 71);
    fill(&engine.tree("t").unwrap(), 30..33);
    engine.close().unwrap();
    assert_holds(&attached(&disk, 72), 33);
}

#[test]
fn a_detached_store_is_opened_by_its_heir_alone_and_nothing_is_copied() {
    let disk = Arc::new(MemoryDisk::new());
    let engine = attached(&disk, 1);
    fill(&engine.tree("t").unwrap(), 0..30);
    assert!(matches!(engine.detach(1), Err(EngineError::StaleToken { .. })));
    engine.detach(5).unwrap();
    assert!(engine.is_closed());
    let before = disk.to_bytes();
    let open = |options| Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options);
    assert!(is_fenced(open(options()), 5, false));
    let other = |token| Engine::attach(Arc::clone(&disk) as Arc<dyn Disk>, token, options());
    assert!(is_fenced(other(1), 5, false) && is_fenced(other(4), 5, false) && is_fenced(other(6), 5, false));
    assert!(disk.to_bytes() == before, "who is refused writes nothing");
    let reader = open(Options { read_only: true, ..options() }).unwrap();
    assert_holds(&reader, 30);
    assert!(matches!(reader.detach(9), Err(EngineError::ReadOnly { .. })));
    assert!(matches!(engine.detach(9), Err(EngineError::Closed { .. })), "it was handed over already");
    assert!(disk.to_bytes() == before, "neither hands over what is not its own");
    let engine = attached(&disk, 5);
    assert!(disk.to_bytes().len() < before.len() + (1 << 20), "one log segment and a table at most");
    assert_holds(&engine, 30);
    fill(&engine.tree("t").unwrap(), 30..33);
    drop(engine);
    assert_holds(&open(options()).unwrap(), 33);
}

#[test]
fn a_closed_engine_hands_over_nothing_of_whoever_owns_the_store_by_now() {
    let disk = Arc::new(MemoryDisk::new());
    let former = attached(&disk, 1);
    fill(&former.tree("t").unwrap(), 0..30);
    former.close_shared().unwrap();
    let owner = attached(&disk, 5);
    assert!(matches!(former.detach(9), Err(EngineError::Closed { .. })));
    fill(&owner.tree("t").unwrap(), 30..33);
    owner.close().unwrap();
    assert_holds(&attached(&disk, 5), 33);
}

/// A disk whose store gets another owner just before its superblocks are read once more.
struct Overtaken {
    disk: MemoryDisk,
    is_armed: AtomicBool,
}

impl Relay for Overtaken {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if offset == 0 && self.is_armed.swap(false, Ordering::Relaxed) {
            let later = Arc::new(MemoryDisk::with_bytes(self.disk.to_bytes()));
            attached(&later, 5).close().unwrap();
            self.disk.write_at(0, &later.to_bytes())?;
        }
        self.disk.read_at(offset, target)
    }
}

#[test]
fn an_owner_that_was_followed_while_it_closed_hands_over_nothing() {
    let disk = Arc::new(Overtaken { disk: MemoryDisk::new(), is_armed: AtomicBool::new(false) });
    let former = Engine::attach(Arc::clone(&disk) as Arc<dyn Disk>, 1, options()).unwrap();
    fill(&former.tree("t").unwrap(), 0..30);
    disk.is_armed.store(true, Ordering::Relaxed);
    assert!(is_fenced(former.detach(9), 5, false));
    assert!(!disk.is_armed.load(Ordering::Relaxed), "the other owner came between");
    let store = Arc::new(MemoryDisk::with_bytes(disk.disk.to_bytes()));
    assert_holds(&attached(&store, 5), 30);
}

#[test]
fn an_owner_that_goes_on_after_a_takeover_acknowledges_nothing_and_changes_nothing() {
    let (disk, into) = (Arc::new(MemoryDisk::new()), Arc::new(MemoryDisk::new()));
    let former = attached(&disk, 1);
    let tree = former.tree("t").unwrap();
    fill(&tree, 0..30);
    former.checkpoint().unwrap();
    fill(&tree, 30..40);
    // Flushed before the claim, so the heir finds it.
    put(&tree, 40, Durability::Flushed).unwrap();
    let heir = Engine::take_over(&*disk, Arc::clone(&into) as Arc<dyn Disk>, 2, options()).unwrap();
    assert_holds(&heir, 41);
    // It cannot know yet, and flushed writes survive no takeover.
    put(&tree, 41, Durability::Flushed).unwrap();
    let refused = put(&tree, 42, Durability::Synced).unwrap_err();
    assert!(refused.is_unknown() && refused.kind() == ErrorKind::TimedOut, "{refused}");
    assert!(is_fenced(Err::<(), _>(refused), 2, true));
    let later = put(&tree, 43, Durability::Flushed).unwrap_err();
    assert_eq!((later.kind(), later.is_unknown()), (ErrorKind::Unavailable, false), "{later}");
    assert!(is_fenced(put(&tree, 43, Durability::Buffered), 2, false));
    assert!(is_fenced(former.checkpoint(), 2, false) && is_fenced(former.sync(), 2, false));
    assert!(is_fenced(former.create_snapshot("s").map(|_| ()), 2, false));
    assert!(is_fenced(former.detach(9), 2, false));
    drop((tree, former));
    assert!(is_fenced(Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()), 2, false));
    assert_holds(&heir, 41);
    fill(&heir.tree("t").unwrap(), 41..45);
    heir.close().unwrap();
    assert_holds(&attached(&into, 3), 45);
}

#[test]
fn a_checkpoint_of_the_former_owner_meets_the_claim_and_commits_nothing() {
    let disk = Arc::new(MemoryDisk::new());
    let former = attached(&disk, 1);
    let tree = former.tree("t").unwrap();
    fill(&tree, 0..30);
    former.checkpoint().unwrap();
    let into = Arc::new(MemoryDisk::new());
    let heir = Engine::take_over(&*disk, Arc::clone(&into) as Arc<dyn Disk>, 2, options()).unwrap();
    let superblocks = disk.to_bytes()[..8192].to_vec();
    put(&tree, 30, Durability::Flushed).unwrap();
    assert!(is_fenced(former.checkpoint(), 2, true));
    assert!(disk.to_bytes()[..8192] == superblocks[..]);
    assert!(is_fenced(former.close(), 2, false));
    assert_holds(&heir, 30);
}

#[test]
fn a_range_that_was_to_move_and_met_the_claim_before_its_record_stays_where_it_is() {
    let disk = Arc::new(MemoryDisk::new());
    let former = attached(&disk, 1);
    let tree = former.tree("t").unwrap();
    fill(&tree, 0..30);
    let into = Arc::new(MemoryDisk::new());
    let heir = Engine::take_over(&*disk, Arc::clone(&into) as Arc<dyn Disk>, 2, options()).unwrap();
    // The superblocks get a new mark first, and the claim is found behind the sync of that.
    let split = tree.split_off(&15_u32.to_be_bytes(), "upper", Durability::Buffered);
    assert!(is_fenced(split, 2, false), "no record of it is in the log");
    assert_holds(&heir, 30);
    let reader = Options { read_only: true, ..options() };
    assert_holds(&Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, reader).unwrap(), 30);
}

#[test]
fn there_is_one_heir_and_it_goes_to_an_empty_place() {
    let disk = Arc::new(MemoryDisk::new());
    let engine = attached(&disk, 1);
    fill(&engine.tree("t").unwrap(), 0..30);
    let over = |into: &Arc<MemoryDisk>, token| {
        Engine::take_over(&*disk, Arc::clone(into) as Arc<dyn Disk>, token, options())
    };
    let occupied = Arc::new(MemoryDisk::with_bytes(b"some text".to_vec()));
    assert!(matches!(over(&occupied, 2), Err(EngineError::TargetInUse { .. })));
    let another = Arc::new(MemoryDisk::new());
    attached(&another, 2).close().unwrap();
    let itself = Engine::take_over(&*disk, Arc::clone(&disk) as Arc<dyn Disk>, 2, options());
    assert!(matches!(over(&another, 2), Err(EngineError::TargetInUse { .. })));
    assert!(matches!(itself, Err(EngineError::TargetInUse { .. })));
    assert!(matches!(over(&another, 1), Err(EngineError::StaleToken { .. })));
    // None of these claimed anything.
    fill(&engine.tree("t").unwrap(), 30..31);
    let into = Arc::new(MemoryDisk::new());
    over(&into, 2).unwrap().close().unwrap();
    assert!(is_fenced(over(&Arc::new(MemoryDisk::new()), 3), 2, false));
    let here = Engine::attach(Arc::clone(&disk) as Arc<dyn Disk>, 2, options());
    assert!(is_fenced(here, 2, false), "it is elsewhere");
    // The same heir may ask again, but not for the place that the store left.
    let left = disk.to_bytes();
    assert!(matches!(over(&disk, 2), Err(EngineError::TargetInUse { .. })));
    assert!(disk.to_bytes() == left, "the store itself is no target that this heir began");
    assert_holds(&over(&into, 2).unwrap(), 31);
}

#[test]
fn a_claim_whose_heir_ended_early_is_withdrawn_and_its_owner_opens_the_store_again() {
    let disk = Arc::new(MemoryDisk::new());
    let engine = attached(&disk, 1);
    fill(&engine.tree("t").unwrap(), 0..30);
    let full = SimDisk::seeded(1);
    full.set_plan(FaultPlan { space_left: Some(100_000), ..FaultPlan::default() });
    let failed = Engine::take_over(&*disk, Arc::new(full), 2, options()).err().expect("there is no room");
    assert_eq!(failed.kind(), ErrorKind::OutOfSpace);
    assert!(is_fenced(engine.sync().and(engine.checkpoint().map(|_| ())), 2, true));
    drop(engine);
    Engine::withdraw(&*disk, 2).unwrap();
    let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
    assert_holds(&engine, 30);
    fill(&engine.tree("t").unwrap(), 30..31);
    drop(engine);
    let into = Arc::new(MemoryDisk::new());
    assert_holds(&Engine::take_over(&*disk, into, 3, options()).unwrap(), 31);
}

#[test]
fn a_check_finds_what_keeps_a_store_closed_for_writing() {
    let disk = Arc::new(MemoryDisk::new());
    let engine = attached(&disk, 1);
    fill(&engine.tree("t").unwrap(), 0..30);
    engine.close().unwrap();
    let fence = u64::from_le_bytes(disk.to_bytes()[152..160].try_into().unwrap());
    let damage = || {
        let reader = Options { read_only: true, ..options() };
        Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, reader).unwrap().check().unwrap().damage
    };
    assert!(damage().is_empty());
    // A slot of token 2.
    disk.write_at(fence + 4 * 64, &[1]).unwrap();
    let found = damage();
    let [EngineError::Corrupt { offset, problem: Damage::Fence, .. }] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(*offset, fence + 4 * 64);
    let open = || Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options());
    assert!(matches!(open(), Err(EngineError::Corrupt { problem: Damage::Fence, .. })));
    Engine::withdraw(&*disk, 2).unwrap();
    assert!(damage().is_empty());
    assert_holds(&open().unwrap(), 30);
}

/// A plan that cuts the power after so many changes.
fn cut_after(changes: u64) -> FaultPlan {
    FaultPlan { power_cut_after: Some(changes), ..FaultPlan::default() }
}

/// A disk with a store whose owner, with token 1, was killed.
fn left_behind(seed: u64) -> SimDisk {
    let disk = SimDisk::seeded(seed);
    let engine = Engine::attach(Arc::new(disk.clone()), 1, options()).unwrap();
    fill(&engine.tree("t").unwrap(), 0..20);
    engine.checkpoint().unwrap();
    fill(&engine.tree("t").unwrap(), 20..30);
    disk.kill()
}

fn open(disk: &SimDisk) -> Result<Engine, EngineError> {
    Engine::open(Arc::new(disk.clone()), options())
}

#[test]
fn a_takeover_is_finished_after_a_power_loss_at_any_change_of_either_disk() {
    for (seed, is_target) in (0..4).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut cuts = 0;
        loop {
            let (from, to) = (left_behind(seed), SimDisk::seeded(seed + 100));
            let struck = if is_target { &to } else { &from };
            struck.set_plan(cut_after(cuts));
            let taken = Engine::take_over(&from, Arc::new(to.clone()), 2, options());
            let is_done = taken.is_ok();
            drop(taken);
            let (from, to) = (from.crash(), to.crash());
            let what = format!("seed {seed}, target {is_target}, cut {cuts}");
            // Whatever the owner may still open, it is whole; and whoever reads the target sees all or
            // nothing.
            match open(&from.fork()) {
                Ok(engine) => {
                    assert!(!is_done && engine.token() == 1, "{what}");
                    assert_holds(&engine, 30);
                }
                Err(EngineError::Fenced { newest: 2, .. } | EngineError::Corrupt { .. }) => {}
                Err(error) => panic!("{what}: {error}"),
            }
            let reader = Options { read_only: true, ..options() };
            match Engine::open(Arc::new(to.fork()), reader) {
                // One of the two superblocks may not be written yet.
                Ok(engine) => assert_has(&engine, 30),
                Err(_) => assert!(!is_done, "{what}"),
            }
            match Engine::take_over(&from, Arc::new(to.clone()), 2, options()) {
                Ok(engine) => assert_holds(&engine, 30),
                // The claim itself was torn.
                Err(EngineError::Corrupt { .. }) if !is_target => {
                    Engine::withdraw(&from, 2).unwrap();
                    let engine = Engine::take_over(&from, Arc::new(SimDisk::seeded(9)), 3, options());
                    assert_holds(&engine.unwrap(), 30);
                }
                Err(error) => panic!("{what}: {error}"),
            }
            assert!(matches!(open(&from), Err(EngineError::Fenced { .. })), "{what}");
            if is_done {
                break;
            }
            cuts += 1;
        }
        assert!(cuts >= if is_target { 6 } else { 2 }, "{cuts} cuts: it writes more than that");
    }
}

#[test]
fn a_store_that_loses_power_while_it_is_attached_or_detached_belongs_to_one_or_the_other() {
    for (seed, detaches) in (0..4).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut cuts = 0;
        loop {
            let disk = left_behind(seed);
            let is_done = if detaches {
                let engine = open(&disk).unwrap();
                disk.set_plan(cut_after(cuts));
                engine.detach(2).is_ok()
            } else {
                disk.set_plan(cut_after(cuts));
                Engine::attach(Arc::new(disk.clone()), 2, options()).is_ok()
            };
            let disk = disk.crash();
            let what = format!("seed {seed}, detaches {detaches}, cut {cuts}");
            match open(&disk.fork()) {
                Ok(engine) => {
                    assert!(!(is_done && detaches), "{what}");
                    assert!(!is_done || engine.token() == 2, "{what}");
                    assert_holds(&engine, 30);
                }
                Err(EngineError::Fenced { newest: 2, .. }) => assert!(detaches || !is_done, "{what}"),
                Err(EngineError::Corrupt { .. }) => {
                    assert!(!is_done, "{what}");
                    Engine::withdraw(&disk, 2).unwrap();
                }
                Err(error) => panic!("{what}: {error}"),
            }
            let heir = Engine::attach(Arc::new(disk.clone()), 2, options());
            assert_holds(&heir.unwrap_or_else(|error| panic!("{what}: {error}")), 30);
            if is_done {
                break;
            }
            cuts += 1;
        }
        assert!(cuts >= 4, "{cuts} cuts: it writes more than that");
    }
}

#[test]
fn a_store_in_a_file_moves_to_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, mode| FileDisk::open(&folder.path().join(name), mode).unwrap();
    let options = Options { background: true, ..options() };
    let former = Engine::attach(Arc::new(file("a", Mode::Create)), 1, options.clone()).unwrap();
    fill(&former.tree("t").unwrap(), 0..60);
    let from = file("a", Mode::Write);
    let heir = Engine::take_over(&from, Arc::new(file("b", Mode::Create)), 2, options.clone()).unwrap();
    assert_holds(&heir, 60);
    assert!(is_fenced(put(&former.tree("t").unwrap(), 60, Durability::Synced), 2, true));
    std::fs::hard_link(folder.path().join("a"), folder.path().join("link")).unwrap();
    let superblocks = || std::fs::read(folder.path().join("a")).unwrap()[..8192].to_vec();
    let before = superblocks();
    for name in ["a", "link"] {
        let itself = Engine::take_over(&from, Arc::new(file(name, Mode::Write)), 2, options.clone());
        assert!(matches!(itself, Err(EngineError::TargetInUse { .. })), "{name}");
        assert!(superblocks() == before, "{name}");
    }
    fill(&heir.tree("t").unwrap(), 60..70);
    heir.close().unwrap();
    assert!(former.close().is_err());
    let later = Engine::open(Arc::new(file("b", Mode::Write)), Options::default()).unwrap();
    assert_holds(&later, 70);
}
