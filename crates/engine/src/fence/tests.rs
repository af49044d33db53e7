//! Tests of the claims in a fence: who may go on, and what a torn slot does.

use super::*;
use crate::space::Extent;
use crate::{Engine, Options};
use atoll_disk::{MemoryDisk, Relay};

fn elsewhere(token: u64) -> Claim {
    Claim { token, way: Way::Elsewhere }
}

fn here(token: u64) -> Claim {
    Claim { token, way: Way::Here }
}

/// A disk with a store whose owner had token 1, and its superblock.
fn store() -> (MemoryDisk, Superblock) {
    let disk = Arc::new(MemoryDisk::new());
    let options = Options { background: false, log_segment_bytes: 64 << 10, ..Options::default() };
    Engine::attach(Arc::clone(&disk) as Arc<dyn Disk>, 1, options).unwrap().close().unwrap();
    let (superblock, _) = crate::recovery::read_superblock(&*disk).unwrap().unwrap();
    (MemoryDisk::with_bytes(disk.to_bytes()), superblock)
}

#[test]
fn a_claim_comes_back_as_written_and_no_flipped_bit_passes() {
    for way in [Way::Elsewhere, Way::Here, Way::Withdrawn] {
        let claim = Claim { token: 9, way };
        let bytes = claim.encode(42);
        assert_eq!(bytes.len() as u64, SLOT_BYTES);
        assert_eq!(Claim::decode(&bytes, 42), Ok(Some(claim)));
        assert_eq!(Claim::decode(&bytes, 43), Err(Malformed), "another store's");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Claim::decode(&flipped, 42), Err(Malformed), "bit {bit}");
        }
    }
    assert_eq!(Claim::decode(&[0; 64], 42), Ok(None));
}

#[test]
fn one_claim_stands_at_a_time_until_it_is_withdrawn() {
    let (disk, superblock) = store();
    claim(&disk, &superblock, elsewhere(5)).unwrap();
    claim(&disk, &superblock, elsewhere(5)).unwrap();
    for other in [elsewhere(4), elsewhere(6), here(6)] {
        let refused = claim(&disk, &superblock, other).unwrap_err();
        assert!(matches!(refused, EngineError::Fenced { newest: 5, .. }), "{refused}");
        assert!(!stands(&disk, &superblock, other).unwrap());
    }
    let refused = claim(&disk, &superblock, here(5)).unwrap_err();
    assert!(matches!(refused, EngineError::Fenced { token: 1, newest: 5, .. }), "{refused}");
    assert!(matches!(check_free(&disk, &superblock, 5), Err(EngineError::Fenced { .. })));
    withdraw(&disk, &superblock, 5).unwrap();
    assert!(confirm(&disk, &superblock, elsewhere(5)).is_err());
    claim(&disk, &superblock, here(6)).unwrap();
    assert!(check_free(&disk, &superblock, 6).is_ok() && check_free(&disk, &superblock, 1).is_err());
    let refused = claim(&disk, &superblock, elsewhere(6)).unwrap_err();
    assert!(matches!(refused, EngineError::Fenced { token: 1, newest: 6, .. }), "{refused}");
}

#[test]
fn no_two_claims_have_one_slot_unless_their_tokens_are_far_apart() {
    let mut used = Vec::new();
    for claim in (100..100 + APART).flat_map(|token| [elsewhere(token), here(token)]) {
        let slot = slot_of(claim.token, claim.way);
        assert!((0..SLOTS).filter(|at| claim.belongs_in(*at)).eq([slot]));
        used.push(slot);
    }
    used.sort_unstable();
    assert!(used.into_iter().eq(0..SLOTS));
    let withdrawn = Claim { token: 5, way: Way::Withdrawn };
    assert!((0..SLOTS).filter(|at| withdrawn.belongs_in(*at)).eq([10, 11]));
}

#[test]
fn to_withdraw_writes_over_claims_of_its_own_token_and_over_no_other() {
    let (disk, superblock) = store();
    let owner = FenceWatch::default();
    owner.begin(superblock.store_id, superblock.fence, check_free(&disk, &superblock, 1).unwrap());
    withdraw(&disk, &superblock, 5).unwrap();
    owner.check(&disk).unwrap();
    claim(&disk, &superblock, elsewhere(5)).unwrap();
    let claimed = disk.to_bytes();
    let refused = withdraw(&disk, &superblock, 5 + APART).unwrap_err();
    assert!(matches!(refused, EngineError::Fenced { newest: 5, .. }), "{refused}");
    withdraw(&disk, &superblock, 6).unwrap();
    assert!(disk.to_bytes() == claimed, "the claim of another token is as it was");
    withdraw(&disk, &superblock, 5).unwrap();
    check_free(&disk, &superblock, 1).unwrap();
    let withdrawn = disk.to_bytes();
    withdraw(&disk, &superblock, 5).unwrap();
    withdraw(&disk, &superblock, 5 + APART).unwrap();
    assert!(disk.to_bytes() == withdrawn, "there is nothing left to withdraw");
    // Both ways of one token, which two made at once, are withdrawn together, and none beside them.
    for claim in [elsewhere(7), here(7), elsewhere(9), here(9 + APART)] {
        write(&disk, &superblock, slot_of(claim.token, claim.way), claim).unwrap();
    }
    for token in [7, 9] {
        withdraw(&disk, &superblock, token).unwrap();
    }
    assert_eq!(standing(&disk, &superblock).unwrap(), [here(9 + APART)]);
}

/// A disk to which another heir writes its claim just behind the next write.
struct Race {
    disk: MemoryDisk,
    other: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Relay for Race {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.write_at(offset, bytes)?;
        match self.other.lock().take() {
            Some((at, claim)) => self.disk.write_at(at, &claim),
            None => Ok(()),
        }
    }
}

#[test]
fn an_heir_that_finds_another_one_behind_its_new_claim_withdraws() {
    for stood in [false, true] {
        let (disk, superblock) = store();
        if stood {
            claim(&disk, &superblock, elsewhere(6)).unwrap();
        }
        let at = superblock.fence + slot_of(5, Way::Elsewhere) * SLOT_BYTES;
        let other = Mutex::new(Some((at, elsewhere(5).encode(superblock.store_id))));
        let disk = Race { disk, other };
        let ours = claim(&disk, &superblock, elsewhere(6));
        assert!(matches!(ours, Err(EngineError::Fenced { token: 6, newest: 5, .. })), "{ours:?}");
        assert_eq!(stands(&disk, &superblock, elsewhere(6)).unwrap(), stood);
        assert!(stands(&disk, &superblock, elsewhere(5)).unwrap(), "the other claim is as it was");
    }
}

#[test]
fn an_owner_that_detaches_for_an_heir_that_just_took_over_leaves_the_takeover_alone() {
    let (disk, superblock) = store();
    let at = superblock.fence + slot_of(5, Way::Elsewhere) * SLOT_BYTES;
    let other = Mutex::new(Some((at, elsewhere(5).encode(superblock.store_id))));
    let disk = Race { disk, other };
    let detached = claim(&disk, &superblock, here(5));
    assert!(matches!(detached, Err(EngineError::Fenced { token: 1, newest: 5, .. })), "{detached:?}");
    assert_eq!(standing(&disk, &superblock).unwrap(), [elsewhere(5)]);
    confirm(&disk, &superblock, elsewhere(5)).unwrap();
}

#[test]
fn a_claim_that_cannot_be_read_refuses_writing_and_is_withdrawn_by_its_token() {
    let (disk, superblock) = store();
    claim(&disk, &superblock, elsewhere(5)).unwrap();
    let slot = superblock.fence + slot_of(5, Way::Elsewhere) * SLOT_BYTES;
    disk.write_at(slot + 20, &[1]).unwrap();
    let found = check_free(&disk, &superblock, 1).unwrap_err();
    assert!(
        matches!(found, EngineError::Corrupt { offset, problem: Damage::Fence, .. } if offset == slot),
        "{found}"
    );
    // One in the wrong slot is none.
    for wrong in [elsewhere(6), here(5)] {
        disk.write_at(slot, &wrong.encode(superblock.store_id)).unwrap();
        assert!(check_free(&disk, &superblock, 1).is_err(), "{wrong:?}");
    }
    assert!(claim(&disk, &superblock, elsewhere(5)).is_err(), "a torn claim is not made again");
    withdraw(&disk, &superblock, 5).unwrap();
    check_free(&disk, &superblock, 1).unwrap();
    claim(&disk, &superblock, elsewhere(5)).unwrap();
}

#[test]
fn a_check_knows_that_the_fence_is_in_use() {
    let (disk, superblock) = store();
    let engine = Engine::open(Arc::new(disk), Options { background: false, ..Options::default() }).unwrap();
    assert!(engine.check().unwrap().damage.is_empty());
    let fence = Extent { offset: superblock.fence, len: BLOCK };
    engine.shared.space.lock().insert_free(fence);
    let damage = engine.check().unwrap().damage;
    let is_found =
        |error: &EngineError| matches!(error, EngineError::Corrupt { problem: Damage::SpaceUsedTwice, .. });
    assert!(damage.len() == 1 && damage.iter().all(is_found), "{damage:?}");
    engine.abandon();
}

#[test]
fn any_change_of_the_fence_is_the_end_of_its_owner() {
    let (disk, superblock) = store();
    let watch = FenceWatch::default();
    let bytes = check_free(&disk, &superblock, 1).unwrap();
    watch.begin(superblock.store_id, superblock.fence, bytes);
    watch.check(&disk).unwrap();
    disk.write_at(superblock.fence + 777, &[1]).unwrap();
    assert!(watch.check(&disk).is_err() && watch.is_lost());
}
