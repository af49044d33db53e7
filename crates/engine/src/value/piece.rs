//! Pieces: immutable bytes of a value that know their place on disk, and may be in memory.
//!
//! Invariant: a piece that is not resident has a home, and bytes read from there pass the checksum.
//! Invariant: a piece that more than one value, reader or list refers to does not change.

use super::growing::{FRONT_BYTES, Resident};
use crate::backing::Backing;
use crate::meter::{Kind, Meter};
use crate::planted::{self, Bug};
use crate::threads::Mutex;
use crate::{Damage, EngineError};
use atoll_buffer::{Buffer, Counted, prefetch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Cache lines of a value that a scan prefetches; the hardware fetches what follows in sequence.
const PREFETCHED_LINES: usize = 16;

/// Cache lines that a reader of the beginning of a value, or a writer at its end, is most likely to touch.
pub(super) const LINES_OF_END: usize = 3;

/// About how many bytes before the bytes of a buffer its owner count lies.
const OWNERS_BEFORE: usize = 64;

/// About what a piece takes beyond its bytes and its place among others.
pub(crate) const PIECE_BYTES: usize = 160;

/// Bytes of a value, immutable for all who share them.
#[derive(Clone)]
pub(crate) struct Piece(pub(super) Counted<PieceCell>);

/// The fields a reader needs first come first. There are as many of these as values, so each is kept to two
/// cache lines.
#[repr(C)]
pub(super) struct PieceCell {
    pub(super) resident: Mutex<Resident>,
    /// Address of the bytes when they came into memory: only prefetched, never read through.
    pub(super) bytes_at: AtomicPtr<u8>,
    pub(super) home: PieceHome,
    pub(super) birth: u64,
    pub(super) checksum: AtomicU64,
    /// The bytes that count for it in memory, once they are counted.
    pub(super) counted: AtomicU64,
    /// State that is needed while it waits for a checkpoint.
    pub(super) waiting: Option<Box<Waiting>>,
    pub(super) len: u32,
    /// Whether `checksum` is valid. Where it is not known from the beginning, it is computed on demand.
    pub(super) is_summed: AtomicBool,
    /// Whether its bytes are in a log group that the disk does not have yet.
    pub(super) in_log: bool,
}

#[cfg(not(feature = "schedules"))]
const _: () = assert!(Counted::<PieceCell>::LINES == 2);

/// State of a piece whose bytes were neither in the log nor on disk when it was made.
pub(super) struct Waiting {
    /// The meter that counts its bytes while it has no home, and their number.
    pub(super) meter: Arc<Meter>,
    pub(super) bytes: u64,
    /// Seed of the checksum.
    pub(super) seed: u64,
    /// Its first bytes, if it grows or did.
    pub(super) front: Option<[u8; FRONT_BYTES]>,
}

/// The place of a piece on disk, once it has one.
#[derive(Default)]
pub(super) struct PieceHome(AtomicU64);

impl PieceHome {
    /// No piece lies there, because every file begins with its superblocks.
    const NOWHERE: u64 = 0;

    pub(super) fn at(offset: u64) -> Self {
        debug_assert!(offset != Self::NOWHERE, "superblocks lie there");
        Self(AtomicU64::new(offset))
    }

    pub(super) fn get(&self) -> Option<u64> {
        // Acquire: a thread that sees the home also sees the checksum computed before.
        Some(self.0.load(Ordering::Acquire)).filter(|&offset| offset != Self::NOWHERE)
    }

    /// Sets the home, and returns whether it had none before.
    fn set(&self, offset: u64) -> bool {
        debug_assert!(offset != Self::NOWHERE, "superblocks lie there");
        offset != Self::NOWHERE
            && self.0.compare_exchange(Self::NOWHERE, offset, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

impl PieceCell {
    /// Takes its bytes off the meter, when it gets a home or is dropped.
    fn wait_ended(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.meter.take_off(Kind::Waiting, waiting.bytes);
        }
    }
}

impl Drop for PieceCell {
    fn drop(&mut self) {
        if self.home.get().is_none() {
            self.wait_ended();
        }
    }
}

impl Piece {
    /// A piece that lives only in memory, or will soon get its home.
    pub(crate) fn resident(bytes: Buffer, checksum: u64, birth: u64) -> Self {
        Self::new(bytes, checksum, birth, false)
    }

    /// A piece that lives in memory until a checkpoint writes it.
    pub(crate) fn waiting(bytes: Buffer, birth: u64, backing: &Backing) -> Self {
        Self::waiting_as(Resident::Whole(bytes), birth, backing)
    }

    /// A piece whose bytes are part of a log group that will soon be flushed.
    pub(crate) fn in_log(bytes: Buffer, checksum: u64, birth: u64) -> Self {
        Self::new(bytes, checksum, birth, true)
    }

    fn new(bytes: Buffer, checksum: u64, birth: u64, in_log: bool) -> Self {
        let mut cell = PieceCell::of(bytes.len() as u32, checksum, birth);
        cell.in_log = in_log;
        *cell.bytes_at.get_mut() = bytes.as_ptr().cast_mut();
        cell.resident = Mutex::new(Resident::Whole(bytes));
        Self(Counted::new(cell))
    }

    /// A piece that lies on disk.
    pub(crate) fn on_disk(home: u64, len: u32, checksum: u64, birth: u64) -> Self {
        let mut cell = PieceCell::of(len, checksum, birth);
        cell.home = PieceHome::at(home);
        Self(Counted::read(cell))
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.len
    }

    pub(crate) fn birth(&self) -> u64 {
        self.0.birth
    }

    pub(crate) fn checksum(&self) -> u64 {
        let cell = &*self.0;
        if cell.is_summed.load(Ordering::Acquire) {
            return cell.checksum.load(Ordering::Relaxed);
        }
        let resident = cell.resident.lock();
        // It may have got a home meanwhile. It was summed before that, and its bytes may be gone now.
        if cell.is_summed.load(Ordering::Acquire) {
            return cell.checksum.load(Ordering::Relaxed);
        }
        let seed = cell.waiting.as_ref().map_or(0, |waiting| waiting.seed);
        let sum = crate::checksum::checksum(seed, resident.bytes());
        cell.checksum.store(sum, Ordering::Relaxed);
        cell.is_summed.store(true, Ordering::Release);
        sum
    }

    /// Whether it may get a home although it left the current tree in `epoch`.
    pub(crate) fn may_settle(&self, epoch: u64) -> bool {
        self.0.in_log || self.0.birth < epoch
    }

    /// Offset of the bytes on disk, once they were written.
    pub(crate) fn home(&self) -> Option<u64> {
        self.0.home.get()
    }

    pub(crate) fn settle(&self, offset: u64) {
        // From here on its bytes may be evicted, so their checksum must be known.
        self.checksum();
        // Settling twice would mean that two checkpoints wrote it at once; the first home stays valid.
        if self.0.home.set(offset) {
            self.0.wait_ended();
        }
    }

    pub(crate) fn resident_bytes(&self) -> Option<Buffer> {
        self.0.resident.lock().whole()
    }

    /// The bytes in memory, if no copy is needed to share them.
    pub(super) fn ready_bytes(&self) -> Option<Buffer> {
        self.0.resident.lock().ready()
    }

    pub(super) fn is_resident(&self) -> bool {
        !matches!(*self.0.resident.lock(), Resident::Absent)
    }

    /// Counts `bytes` more for its bytes in memory.
    pub(crate) fn count(&self, bytes: u64) {
        self.0.counted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Evicts the bytes in memory, if they can be read back, and returns how many they counted for.
    pub(crate) fn evict(&self) -> u64 {
        if self.0.home.get().is_none() {
            return 0;
        }
        let bytes = self.0.resident.lock().take();
        drop(bytes);
        self.0.counted.swap(0, Ordering::Relaxed)
    }

    /// Whether only the caller and the queue of counted values refer to it.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.owners() <= 2
    }

    /// Takes over the bytes that a piece with the same content has in memory; both can be read back.
    pub(crate) fn take_over(&self, from: &Self, backing: &Backing) {
        // Shareable bytes are just handed on: not even their owner count is touched.
        let bytes = match from.0.resident.lock().take() {
            Resident::Whole(bytes) => bytes,
            mut other => match other.whole() {
                Some(bytes) => bytes,
                None => return,
            },
        };
        let counted = from.0.counted.swap(0, Ordering::Relaxed);
        backing.meter().take_off(Kind::Value, counted);
        let counts = if counted > 0 { counted } else { bytes.allocated_bytes() as u64 };
        let bytes_at = from.0.bytes_at.load(Ordering::Relaxed);
        self.0.bytes_at.store(bytes_at, Ordering::Relaxed);
        *self.0.resident.lock() = Resident::Whole(bytes);
        backing.admit(self.clone(), counts);
    }

    /// Prefetches the piece itself.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(self.0.start(), Counted::<PieceCell>::LINES);
    }

    /// Prefetches its first bytes, and their owner count, which lies before them.
    #[inline]
    pub(super) fn prefetch_bytes(&self) {
        let bytes = self.0.bytes_at.load(Ordering::Relaxed);
        if !bytes.is_null() {
            let lines = (self.0.len as usize).div_ceil(64).min(PREFETCHED_LINES);
            prefetch(bytes.wrapping_sub(OWNERS_BEFORE), lines + 1);
        }
    }

    /// Prefetches the owner count of its bytes.
    #[inline]
    pub(super) fn prefetch_owners(&self) {
        let bytes = self.0.bytes_at.load(Ordering::Relaxed);
        if !bytes.is_null() {
            prefetch(bytes.wrapping_sub(OWNERS_BEFORE), 1);
        }
    }

    /// Prefetches the memory that dropping the piece will touch, once the piece has been fetched.
    #[inline]
    pub(super) fn prefetch_end(&self) {
        prefetch(self.0.end_touches(), 1);
    }

    /// Prefetches the memory that dropping its bytes will touch, once their owner count has been fetched.
    pub(super) fn prefetch_end_of_bytes(&self) {
        if let Some(Resident::Whole(bytes)) = self.0.resident.try_lock().as_deref() {
            bytes.end_touches().into_iter().for_each(|address| prefetch(address, 1));
        }
    }

    /// The bytes, if they are shareable in memory and the piece has no other owner.
    pub(super) fn into_bytes(mut self) -> Option<Buffer> {
        match self.0.get_mut()?.resident.get_mut().take() {
            Resident::Whole(bytes) => Some(bytes),
            Resident::Absent | Resident::Growing(_) => None,
        }
    }

    /// Prefetches its first bytes, and those behind which more may be added.
    #[inline]
    pub(super) fn prefetch_ends(&self) {
        let bytes = self.0.bytes_at.load(Ordering::Relaxed);
        if !bytes.is_null() {
            prefetch(bytes, LINES_OF_END);
            prefetch(bytes.wrapping_add(self.0.len as usize), LINES_OF_END);
        }
        if let Some(waiting) = &self.0.waiting {
            prefetch(&raw const **waiting, 1);
        }
    }

    /// An identity that differs from that of every other piece alive.
    pub(crate) fn address(&self) -> usize {
        self.0.start().addr()
    }

    /// Number of its owners.
    #[cfg(test)]
    pub(crate) fn owners(&self) -> usize {
        self.0.owners()
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    /// Reads the bytes on disk and verifies them.
    pub(crate) fn verify(&self, backing: &Backing) -> Result<Buffer, EngineError> {
        let offset = self.home().unwrap_or_default();
        let bytes = Buffer::try_read(self.0.len as usize, |target| backing.read(offset, target))?;
        self.check(&bytes, backing)?;
        Ok(bytes)
    }

    /// Refuses bytes that were read back and do not match this piece.
    pub(super) fn check(&self, bytes: &[u8], backing: &Backing) -> Result<(), EngineError> {
        if backing.checksum(bytes) != self.checksum() && !planted::is(Bug::ValueChecksumIgnored) {
            return Err(backing.corrupt(self.home().unwrap_or_default(), Damage::ValueChecksum));
        }
        Ok(())
    }

    /// The bytes, read back and verified if they are not resident.
    pub(crate) fn load(&self, backing: &Backing) -> Result<Buffer, EngineError> {
        if let Some(bytes) = self.resident_bytes() {
            return Ok(bytes);
        }
        let bytes = self.verify(backing)?;
        *self.0.resident.lock() = Resident::Whole(bytes.clone());
        self.0.bytes_at.store(bytes.as_ptr().cast_mut(), Ordering::Relaxed);
        backing.admit(self.clone(), bytes.allocated_bytes() as u64);
        Ok(bytes)
    }
}
