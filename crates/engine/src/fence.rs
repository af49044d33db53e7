//! The fence of a store that can be handed over: a block in which whoever takes the store over claims it, by
//! a token above all before.
//!
//! The owner never writes to this block while it owns the store. It looks at it behind each sync, before it
//! acknowledges anything that the sync made durable; heirs write to it. So a claim cannot be overwritten by
//! an owner that was paused between a look and a write, as one in the superblock could be.
//!
//! ```text
//! slot `token % 32 * 2`, for a claim to go on in this file the one behind it:
//!             magic 8 | store 8 | token 8 | way 8 | zero 24 | checksum 8, or zeros
//! ```
//!
//! Invariant: different claims lie in different slots, so that none overwrites another, unless their tokens
//! are 32 apart; the loser then finds that its claim is gone.
//! Invariant: an heir writes its claim and then looks for others. Of two at once, one at least sees the other
//! and withdraws, so at most one goes on.

use crate::codec::{Decoder, Encode, Malformed};
use crate::shared::Shared;
use crate::space::BLOCK;
use crate::superblock::{Superblock, TOKENS};
use crate::sync::SyncError;
use crate::threads::Mutex;
use crate::{Damage, EngineError};
use atoll_disk::{Disk, DiskError, Operation};
use std::io;
use std::sync::Arc;
// Nothing waits for these.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLFNC");
const SLOT_BYTES: u64 = 64;
const SLOTS: u64 = BLOCK / SLOT_BYTES;

/// Tokens that are so far apart share their slots.
const APART: u64 = SLOTS / 2;

/// The token of a store's owner, and where the store's fence is; both are zero in a store that cannot be
/// handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ownership {
    pub(crate) token: u64,
    pub(crate) fence: u64,
}

impl Ownership {
    /// Features that a build must know to write to such a store: one that does not look at the fence may not.
    pub(crate) const fn features_to_write(self) -> u64 {
        if self.token == 0 { 0 } else { TOKENS }
    }
}

/// How an heir takes the store over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In a file of its own: the former owner may still write to this one.
    Elsewhere = 1,
    /// In this file: its former owner has ended, or handed it over.
    Here = 2,
    /// Not at all any more.
    Withdrawn = 3,
}

/// The claim of an heir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) token: u64,
    pub(crate) way: Way,
}

/// The slot for a claim of this token. Each way has its own: an owner that hands the store over and the heir
/// that takes it over at the same time do not overwrite each other's claim.
fn slot_of(token: u64, way: Way) -> u64 {
    token % APART * 2 + u64::from(way == Way::Here)
}

impl Claim {
    /// Whether it may lie in this slot. A withdrawn one lies where the claim was.
    fn belongs_in(self, slot: u64) -> bool {
        match self.way {
            Way::Withdrawn => slot / 2 == self.token % APART,
            way => slot == slot_of(self.token, way),
        }
    }

    /// Whether it claims the store of the owner with this token.
    fn stands_above(self, owner: u64) -> bool {
        self.token > owner && self.way != Way::Withdrawn
    }

    fn encode(self, store_id: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SLOT_BYTES as usize);
        for word in [MAGIC, store_id, self.token, self.way as u64, 0, 0, 0] {
            bytes.put_u64(word);
        }
        let sum = crate::checksum::checksum(store_id, &bytes);
        bytes.put_u64(sum);
        bytes
    }

    /// The claim in a slot; none if the slot was never used.
    fn decode(slot: &[u8], store_id: u64) -> Result<Option<Self>, Malformed> {
        if slot.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let (body, sum) = slot.split_last_chunk::<8>().ok_or(Malformed)?;
        let mut fields = Decoder::new(body);
        if fields.u64()? != MAGIC
            || fields.u64()? != store_id
            || crate::checksum::checksum(store_id, body) != u64::from_le_bytes(*sum)
        {
            return Err(Malformed);
        }
        let token = fields.u64()?;
        let way = match fields.u64()? {
            1 => Way::Elsewhere,
            2 => Way::Here,
            3 => Way::Withdrawn,
            _ => return Err(Malformed),
        };
        Ok(Some(Self { token, way }))
    }
}

fn read_block(disk: &dyn Disk, fence: u64) -> Result<Vec<u8>, DiskError> {
    let mut bytes = vec![0; BLOCK as usize];
    disk.read_at(fence, &mut bytes)?;
    Ok(bytes)
}

/// The slots of a fence, by number: the claim in each; none if it was never used.
fn slots(bytes: &[u8], store_id: u64) -> impl Iterator<Item = (u64, Result<Option<Claim>, Malformed>)> {
    (0..).zip(bytes.chunks_exact(SLOT_BYTES as usize)).map(move |(slot, bytes)| {
        let found = match Claim::decode(bytes, store_id) {
            Ok(Some(claim)) if !claim.belongs_in(slot) => Err(Malformed),
            found => found,
        };
        (slot, found)
    })
}

fn unreadable(disk: &dyn Disk, fence: u64, slot: u64) -> EngineError {
    let offset = fence + slot * SLOT_BYTES;
    EngineError::Corrupt { store: disk.name().to_owned(), offset, problem: Damage::Fence }
}

/// The claims above the owner's token that were not withdrawn.
fn standing_in(bytes: &[u8], disk: &dyn Disk, superblock: &Superblock) -> Result<Vec<Claim>, EngineError> {
    let mut standing = Vec::new();
    for (slot, found) in slots(bytes, superblock.store_id) {
        match found {
            Ok(Some(claim)) if claim.stands_above(superblock.token) => standing.push(claim),
            Ok(_) => {}
            Err(Malformed) => return Err(unreadable(disk, superblock.fence, slot)),
        }
    }
    Ok(standing)
}

fn standing(disk: &dyn Disk, superblock: &Superblock) -> Result<Vec<Claim>, EngineError> {
    standing_in(&read_block(disk, superblock.fence)?, disk, superblock)
}

/// The error for the owner of this token, or its heir, who is refused because of the newest one.
pub(crate) fn fenced(disk: &dyn Disk, token: u64, newest: u64) -> EngineError {
    EngineError::Fenced { store: disk.name().to_owned(), token, newest, may_be_kept: false }
}

/// The error of a caller that found the store claimed before its change was in the log.
pub(crate) fn not_kept(error: EngineError) -> EngineError {
    match error {
        EngineError::Fenced { store, token, newest, .. } => {
            EngineError::Fenced { store, token, newest, may_be_kept: false }
        }
        error => error,
    }
}

/// Refuses a store that somebody claims, except by this token in this file. Returns the fence as it is; empty
/// where there is none.
pub(crate) fn check_free(
    disk: &dyn Disk,
    superblock: &Superblock,
    token: u64,
) -> Result<Vec<u8>, EngineError> {
    if superblock.fence == 0 {
        return Ok(Vec::new());
    }
    let bytes = read_block(disk, superblock.fence)?;
    let ours = Claim { token, way: Way::Here };
    match standing_in(&bytes, disk, superblock)?.into_iter().find(|claim| *claim != ours) {
        Some(claim) => Err(fenced(disk, superblock.token, claim.token)),
        None => Ok(bytes),
    }
}

/// What in a fence cannot be read: each such slot keeps the store closed for writing.
pub(crate) fn damage(disk: &dyn Disk, store_id: u64, fence: u64) -> Result<Vec<EngineError>, DiskError> {
    let bytes = read_block(disk, fence)?;
    let torn = slots(&bytes, store_id).filter(|(_, found)| found.is_err());
    Ok(torn.map(|(slot, _)| unreadable(disk, fence, slot)).collect())
}

/// Whether this claim stands.
pub(crate) fn stands(disk: &dyn Disk, superblock: &Superblock, claim: Claim) -> Result<bool, EngineError> {
    Ok(superblock.fence != 0 && standing(disk, superblock)?.contains(&claim))
}

/// Claims the store, durably. From then on its owner acknowledges no synced write and commits nothing, and no
/// other token opens this file for writing. Making the same claim again changes nothing. A token that goes on
/// in one way does not go on in the other.
pub(crate) fn claim(disk: &dyn Disk, superblock: &Superblock, claim: Claim) -> Result<(), EngineError> {
    let other_among = |claims: &[Claim]| claims.iter().find(|other| **other != claim).copied();
    let refused_for = |other: Claim| {
        // Of two with one token, the one refused here stands for the former owner, such as one that detaches.
        let token = if other.token == claim.token { superblock.token } else { claim.token };
        fenced(disk, token, other.token)
    };
    let before = standing(disk, superblock)?;
    if let Some(other) = other_among(&before) {
        return Err(refused_for(other));
    }
    let slot = slot_of(claim.token, claim.way);
    write(disk, superblock, slot, claim)?;
    let after = standing(disk, superblock)?;
    if let Some(other) = other_among(&after) {
        // A claim that stood before may have been acted on; the other one is new then, and withdraws.
        if !before.contains(&claim) {
            write(disk, superblock, slot, Claim { way: Way::Withdrawn, ..claim })?;
        }
        return Err(refused_for(other));
    }
    confirm(disk, superblock, claim)
}

/// Fails if this claim does not stand any more: it was withdrawn meanwhile.
pub(crate) fn confirm(disk: &dyn Disk, superblock: &Superblock, claim: Claim) -> Result<(), EngineError> {
    let all = standing(disk, superblock)?;
    if all.contains(&claim) {
        return Ok(());
    }
    let newest = all.iter().map(|other| other.token).max().unwrap_or(superblock.token);
    Err(fenced(disk, claim.token, newest))
}

/// Withdraws the claims of this token, durably, also where they are torn. Where it claims nothing, nothing is
/// written: whatever changes in the fence, a running owner is fenced by it.
pub(crate) fn withdraw(disk: &dyn Disk, superblock: &Superblock, token: u64) -> Result<(), EngineError> {
    let bytes = read_block(disk, superblock.fence)?;
    let (mut own, mut other) = (Vec::new(), None);
    for (slot, found) in slots(&bytes, superblock.store_id).filter(|(slot, _)| slot / 2 == token % APART) {
        match found {
            // Whose it is cannot be told; the caller says so.
            Err(Malformed) => own.push(slot),
            Ok(Some(claim)) if claim.stands_above(superblock.token) => {
                if claim.token == token {
                    own.push(slot);
                } else {
                    other = Some(claim);
                }
            }
            Ok(_) => {}
        }
    }
    if let Some(other) = other
        && own.is_empty()
    {
        return Err(fenced(disk, token, other.token));
    }
    for slot in own {
        write(disk, superblock, slot, Claim { token, way: Way::Withdrawn })?;
    }
    Ok(())
}

/// Writes a claim to a slot, and syncs.
fn write(disk: &dyn Disk, superblock: &Superblock, slot: u64, claim: Claim) -> Result<(), EngineError> {
    disk.write_at(superblock.fence + slot * SLOT_BYTES, &claim.encode(superblock.store_id))?;
    disk.sync()?;
    Ok(())
}

/// An owner's watch on the fence of its store.
#[derive(Default)]
pub(crate) struct FenceWatch {
    known: Mutex<Option<Arc<Known>>>,
    is_lost: AtomicBool,
    newest: AtomicU64,
}

/// The fence as its owner found it.
struct Known {
    fence: u64,
    store_id: u64,
    bytes: Vec<u8>,
}

impl FenceWatch {
    /// Begins to watch; nothing in a store without a fence.
    pub(crate) fn begin(&self, store_id: u64, fence: u64, bytes: Vec<u8>) {
        if fence != 0 {
            *self.known.lock() = Some(Arc::new(Known { fence, store_id, bytes }));
        }
    }

    /// Ends the watch: the owner itself is about to hand the store over.
    pub(crate) fn end(&self) {
        *self.known.lock() = None;
    }

    /// Whether the store was found claimed.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Fails if the fence changed in any way since the watch began.
    pub(crate) fn check(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        let known = self.known.lock().clone();
        let Some(known) = known else { return Ok(()) };
        let found = read_block(disk, known.fence)?;
        if found == known.bytes {
            return Ok(());
        }
        let claims = found.chunks_exact(SLOT_BYTES as usize).filter_map(|slot| {
            let claim = Claim::decode(slot, known.store_id).ok().flatten()?;
            (claim.way != Way::Withdrawn).then_some(claim.token)
        });
        self.newest.store(claims.max().unwrap_or_default(), Ordering::Release);
        self.is_lost.store(true, Ordering::Release);
        let source = io::Error::other("another owner has claimed the store");
        Err(DiskError {
            operation: Operation::Sync,
            name: disk.name().to_owned(),
            offset: known.fence,
            source,
        })
    }
}

impl Shared {
    /// The error of an owner that found its store claimed. `may_be_kept`: what it refuses is in the log, and
    /// the heir may have read it there.
    #[cold]
    pub(crate) fn fenced(&self, may_be_kept: bool) -> EngineError {
        EngineError::Fenced {
            store: self.backing.name(),
            token: self.ownership.lock().token,
            newest: self.fence.newest.load(Ordering::Acquire),
            may_be_kept,
        }
    }

    /// The error for a sync that failed.
    #[cold]
    pub(crate) fn of_sync(&self, error: SyncError) -> EngineError {
        match error {
            SyncError::Failed(_) if self.fence.is_lost() => self.fenced(true),
            SyncError::Poisoned => self.of_failed_sync(),
            // Acknowledged writes may be lost whatever the disk's error says, even one about a lack of room.
            SyncError::Failed(source) => EngineError::NotDurable { store: self.backing.name(), source },
        }
    }

    /// The error for what is refused because an earlier sync failed.
    #[cold]
    pub(crate) fn of_failed_sync(&self) -> EngineError {
        match self.fence.is_lost() {
            true => self.fenced(false),
            false => EngineError::Poisoned { store: self.backing.name() },
        }
    }
}

#[cfg(test)]
mod tests {
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
        let engine =
            Engine::open(Arc::new(disk), Options { background: false, ..Options::default() }).unwrap();
        assert!(engine.check().unwrap().damage.is_empty());
        let fence = Extent { offset: superblock.fence, len: BLOCK };
        engine.shared.space.lock().insert_free(fence);
        let damage = engine.check().unwrap().damage;
        let is_found = |error: &EngineError| {
            matches!(error, EngineError::Corrupt { problem: Damage::SpaceUsedTwice, .. })
        };
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
}
