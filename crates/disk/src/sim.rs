//! A simulated disk that loses power, tears writes and lies, in the same way each time for one seed.
//!
//! It keeps two images: what a reader sees, and what the medium holds. A write changes the first at once and
//! waits in a list; a sync carries the list to the second; a crash decides, write by write, what of the list
//! survives. Handles are clones of one disk, so a test can cut the power under a running engine.
//!
//! There is no cache to bypass, so a write past the cache is a write like any other. There are windows if
//! they are asked for: a copy into one waits for a sync as a write does, but no plan makes it fail or go
//! astray, because it is no call.
//!
//! Invariant: the same seed, plans and sequence of calls give the same result, byte for byte.
//! Invariant: without planted faults, what was written before a successful sync survives every crash.

mod image;
mod plan;
mod survival;

use crate::fault::{check_end, past_end};
use crate::{Disk, DiskError, Operation, Window};
use image::Image;
use parking_lot::Mutex;
use plan::strikes;
pub use plan::{Counters, FaultPlan};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
pub use survival::Survival;
use survival::{Change, apply, survive};

/// Misdirected writes land a multiple of this away.
const BLOCK_BYTES: u64 = 4096;
const NAME: &str = "simulated disk";

/// A simulated disk; clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    visible: Image,
    durable: Image,
    pending: Vec<Change>,
    rng: fastrand::Rng,
    plan: FaultPlan,
    powered: bool,
    counters: Counters,
    /// Blocks that were given back and not written since: writing there takes space, as growing the file
    /// does.
    holes: BTreeSet<u64>,
    has_windows: bool,
}

impl SimDisk {
    /// An empty disk whose every choice follows from `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self::from_state(State::new(Image::default(), fastrand::Rng::with_seed(seed), Counters::default()))
    }

    /// A disk that holds `bytes`, all durable.
    #[must_use]
    pub fn with_bytes(seed: u64, bytes: &[u8]) -> Self {
        let image = Image::from_bytes(bytes);
        Self::from_state(State::new(image, fastrand::Rng::with_seed(seed), Counters::default()))
    }

    fn from_state(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Offers windows from here on, also after crashes and in forks.
    pub fn offer_windows(&self) {
        self.state.lock().has_windows = true;
    }

    /// Replaces the planned faults; the default plan has none.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state.lock().plan = plan;
    }

    /// Cuts the power and returns the disk as it is when power is back. The seed decides which of the
    /// possible changes survived. Every handle to the old disk fails from here on.
    #[must_use]
    pub fn crash(&self) -> Self {
        let survival = match self.state.lock().rng.u8(..8) {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            _ => Survival::Mixed,
        };
        self.crash_with(survival)
    }

    /// Like [`SimDisk::crash`], with a narrower choice.
    #[must_use]
    pub fn crash_with(&self, survival: Survival) -> Self {
        Self::from_state(self.state.lock().crash(survival))
    }

    /// The disk as another process finds it after its user died without a power loss: nothing is lost. Every
    /// handle to the old disk fails from here on.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut old = self.state.lock();
        old.powered = false;
        let mut new = State::new(old.visible.clone(), old.rng.fork(), old.counters);
        new.has_windows = old.has_windows;
        new.durable = std::mem::take(&mut old.durable);
        new.pending = std::mem::take(&mut old.pending);
        Self::from_state(new)
    }

    /// A second disk with the same bytes, all durable, and no planned faults.
    #[must_use]
    pub fn fork(&self) -> Self {
        let mut state = self.state.lock();
        let rng = state.rng.fork();
        let mut new = State::new(state.visible.clone(), rng, Counters::default());
        new.has_windows = state.has_windows;
        Self::from_state(new)
    }

    /// Writes zeros to a part of a window, as a call does; what is copied there later waits for no space.
    pub(crate) fn prepare_window(&self, range: &Range<u64>) -> Result<(), DiskError> {
        let len = range.end.saturating_sub(range.start) as usize;
        self.state.lock().write(range.start, &vec![0; len])
    }

    /// Copies into a part of a window that was prepared.
    pub(crate) fn copy_to_window(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.state.lock().copy_to_window(offset, bytes)
    }

    /// Flips one bit of the byte at `offset`, on the medium and for readers.
    ///
    /// Bytes past the end stay as they are.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        let mut state = self.state.lock();
        if offset < state.visible.len() {
            state.visible.flip(offset, bit);
        }
        if offset < state.durable.len() {
            state.durable.flip(offset, bit);
        }
        state.counters.bit_flips += 1;
    }

    /// Flips one bit of the range, in a block that was written at least once; `None` if there is no such
    /// block.
    pub fn flip_some_bit(&self, range: Range<u64>) -> Option<(u64, u8)> {
        let (offset, bit) = {
            let state = &mut *self.state.lock();
            (state.visible.some_written_byte(range, &mut state.rng)?, state.rng.u8(..8))
        };
        self.flip_bit(offset, bit);
        Some((offset, bit))
    }

    /// How often each operation and fault occurred since the first ancestor of this disk.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.state.lock().counters
    }

    /// Writes that no sync has covered yet.
    #[must_use]
    pub fn unsynced_writes(&self) -> usize {
        self.state.lock().pending.iter().filter(|change| matches!(change, Change::Write { .. })).count()
    }

    /// A copy of what a reader sees.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.state.lock().visible.to_bytes()
    }
}

impl Disk for SimDisk {
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.state.lock().read(offset, target)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.state.lock().write(offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.state.lock().sync()
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.state.lock().reserve(offset, len)
    }

    fn truncate(&self, len: u64) -> Result<(), DiskError> {
        self.state.lock().truncate(len)
    }

    fn release(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.state.lock().release(offset, len)
    }

    fn window(&self, offset: u64, len: u64) -> Option<Window> {
        let range = offset..offset.checked_add(len)?;
        let is_given = {
            let state = self.state.lock();
            state.has_windows && !range.is_empty() && range.end <= state.visible.len()
        };
        if is_given { Window::simulated(self.clone(), NAME, range) } else { None }
    }

    fn room_bytes(&self) -> Option<u64> {
        self.state.lock().plan.space_left
    }

    fn len(&self) -> Result<u64, DiskError> {
        let state = self.state.lock();
        state.check_power(Operation::Resize, 0)?;
        Ok(state.visible.len())
    }

    fn name(&self) -> &str {
        NAME
    }
}

impl State {
    fn new(image: Image, rng: fastrand::Rng, counters: Counters) -> Self {
        let plan = FaultPlan::default();
        Self {
            visible: image.clone(),
            durable: image,
            pending: Vec::new(),
            rng,
            plan,
            powered: true,
            counters,
            holes: BTreeSet::new(),
            has_windows: false,
        }
    }

    fn read(&mut self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.check_power(Operation::Read, offset)?;
        let end = check_end(NAME, Operation::Read, offset, target.len() as u64)? as u64;
        if target.is_empty() {
            return Ok(());
        }
        if end > self.visible.len() {
            return Err(past_end(NAME, offset));
        }
        let is_unreadable =
            self.plan.unreadable.as_ref().is_some_and(|range| range.start < end && offset < range.end);
        if strikes(&mut self.plan.fail_read) || is_unreadable {
            self.counters.read_errors += 1;
            return Err(failed(Operation::Read, offset, "planted read error"));
        }
        self.visible.read(offset, target);
        self.counters.reads += 1;
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.check_power(Operation::Write, offset)?;
        let end = check_end(NAME, Operation::Write, offset, bytes.len() as u64)? as u64;
        self.check_writable(Operation::Write, offset)?;
        if self.power_fails() {
            self.accept(offset, bytes);
            return Err(power_is_off(Operation::Write, offset));
        }
        if strikes(&mut self.plan.fail_write) {
            self.accept_part(offset, bytes, end);
            self.counters.write_errors += 1;
            return Err(failed(Operation::Write, offset, "planted write error"));
        }
        if let Err(error) = self.take_space(Operation::Write, offset, end) {
            self.accept_part(offset, bytes, self.visible.len());
            return Err(error);
        }
        let target = self.target_of_write(offset, bytes.len() as u64);
        self.accept(target, bytes);
        self.counters.writes += 1;
        Ok(())
    }

    fn copy_to_window(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.check_power(Operation::Write, offset)?;
        // A process may write to mapped pages of a medium that has become read-only, and the system never
        // writes them out. A store notices with its next call, so it is the same to refuse the copy.
        self.check_writable(Operation::Write, offset)?;
        let fails = self.power_fails();
        self.accept(offset, bytes);
        if fails {
            return Err(power_is_off(Operation::Write, offset));
        }
        self.counters.window_copies += 1;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.check_power(Operation::Sync, 0)?;
        self.check_writable(Operation::Sync, 0)?;
        if self.power_fails() {
            return Err(power_is_off(Operation::Sync, 0));
        }
        let fails = strikes(&mut self.plan.fail_sync);
        for change in self.pending.drain(..) {
            // After a failed sync the kernel considers the pages clean: no later sync writes them again.
            if !fails || self.rng.bool() {
                apply(&mut self.durable, &change);
            }
        }
        if fails {
            self.counters.sync_errors += 1;
            return Err(failed(Operation::Sync, 0, "planted sync error"));
        }
        self.counters.syncs += 1;
        Ok(())
    }

    fn reserve(&mut self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_power(Operation::Write, offset)?;
        let end = check_end(NAME, Operation::Write, offset, len)? as u64;
        self.check_writable(Operation::Write, offset)?;
        if len == 0 {
            return Ok(());
        }
        if self.power_fails() {
            self.pending.push(Change::Grow { len: end });
            return Err(power_is_off(Operation::Write, offset));
        }
        self.take_space(Operation::Write, offset, end)?;
        self.visible.grow(end);
        self.pending.push(Change::Grow { len: end });
        self.counters.reserves += 1;
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> Result<(), DiskError> {
        self.check_power(Operation::Resize, len)?;
        self.check_writable(Operation::Resize, len)?;
        let fails = self.power_fails();
        if len < self.visible.len() {
            if let Some(left) = &mut self.plan.space_left {
                *left += self.visible.len() - len;
            }
            self.visible.cut(len);
            self.holes.split_off(&len.div_ceil(BLOCK_BYTES));
            self.pending.push(Change::Cut { len });
        }
        if fails {
            return Err(power_is_off(Operation::Resize, len));
        }
        self.counters.truncates += 1;
        Ok(())
    }

    fn release(&mut self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_power(Operation::Resize, offset)?;
        self.check_writable(Operation::Resize, offset)?;
        let fails = self.power_fails();
        let end = offset.saturating_add(len).min(self.visible.len());
        let whole = offset.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES;
        let given = whole.filter(|block| self.holes.insert(*block)).count() as u64;
        if let Some(left) = &mut self.plan.space_left {
            *left += given * BLOCK_BYTES;
        }
        self.visible.clear(offset, len);
        self.pending.push(Change::Clear { offset, len });
        if fails {
            return Err(power_is_off(Operation::Resize, offset));
        }
        self.counters.releases += 1;
        Ok(())
    }

    fn check_power(&self, operation: Operation, offset: u64) -> Result<(), DiskError> {
        if self.powered { Ok(()) } else { Err(power_is_off(operation, offset)) }
    }

    fn power_fails(&mut self) -> bool {
        let fails = strikes(&mut self.plan.power_cut_after);
        if fails {
            self.powered = false;
            self.counters.power_cuts += 1;
        }
        fails
    }

    fn check_writable(&mut self, operation: Operation, offset: u64) -> Result<(), DiskError> {
        if self.plan.read_only {
            self.counters.read_only_refusals += 1;
            let source = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "planted read-only medium");
            return Err(error(operation, offset, source));
        }
        Ok(())
    }

    fn take_space(&mut self, operation: Operation, offset: u64, end: u64) -> Result<(), DiskError> {
        let blocks = offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        let holes: Vec<u64> = self.holes.range(blocks).copied().collect();
        let growth = end.saturating_sub(self.visible.len()) + holes.len() as u64 * BLOCK_BYTES;
        let mut unlimited = u64::MAX;
        let left = self.plan.space_left.as_mut().unwrap_or(&mut unlimited);
        if growth > *left {
            self.counters.out_of_space += 1;
            self.counters.out_of_space_in_holes += u64::from(!holes.is_empty());
            let source = io::Error::new(io::ErrorKind::StorageFull, "planted full disk");
            return Err(error(operation, offset, source));
        }
        *left -= growth;
        self.holes.retain(|block| !holes.contains(block));
        Ok(())
    }

    /// Where the write lands: at `offset`, unless it is the one to be misdirected.
    fn target_of_write(&mut self, offset: u64, len: u64) -> u64 {
        if !strikes(&mut self.plan.misdirect_write) {
            return offset;
        }
        let within = offset % BLOCK_BYTES;
        // A medium cannot misdirect beyond its end, so the write fits inside, unless it is as long as the
        // medium.
        let places = self.visible.len().saturating_sub(within + len) / BLOCK_BYTES + 1;
        let mut block = self.rng.u64(..places);
        if block == offset / BLOCK_BYTES {
            block = (block + 1) % places.max(2);
        }
        self.counters.misdirected_writes += 1;
        block * BLOCK_BYTES + within
    }

    fn accept(&mut self, offset: u64, bytes: &[u8]) {
        self.visible.write(offset, bytes);
        self.pending.push(Change::Write { offset, bytes: bytes.to_vec() });
    }

    /// Accepts a random prefix that ends at `limit` at the latest.
    fn accept_part(&mut self, offset: u64, bytes: &[u8], limit: u64) {
        let fits = limit.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let kept = self.rng.usize(..=fits);
        self.accept(offset, &bytes[..kept]);
    }

    fn crash(&mut self, survival: Survival) -> Self {
        self.powered = false;
        let mut rng = self.rng.fork();
        let mut medium = std::mem::take(&mut self.durable);
        let mut counters = self.counters;
        counters.crashes += 1;
        let pending = std::mem::take(&mut self.pending);
        survive(&mut medium, pending, survival, &mut rng, &mut counters);
        let mut new = Self::new(medium, rng, counters);
        new.has_windows = self.has_windows;
        new
    }
}

fn error(operation: Operation, offset: u64, source: io::Error) -> DiskError {
    DiskError { operation, name: NAME.to_owned(), offset, source }
}

fn failed(operation: Operation, offset: u64, cause: &'static str) -> DiskError {
    error(operation, offset, io::Error::other(cause))
}

fn power_is_off(operation: Operation, offset: u64) -> DiskError {
    error(operation, offset, io::Error::new(io::ErrorKind::NotConnected, "the power is off"))
}
