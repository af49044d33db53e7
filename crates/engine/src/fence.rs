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
mod tests;
