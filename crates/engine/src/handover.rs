//! A store changes hands: attached by an owner with a token, detached for the next one, or taken over from an
//! owner that does not answer.
//!
//! A token is a number that whoever decides about owners gives to each of them, greater than all before. An
//! owner that ended, or that detached the store, wrote its last byte, so the next one goes on in the same
//! file. An owner that is only silent may write at any moment, whatever was looked at before: its heir claims
//! the store in the [`fence`](crate::fence), and then moves to a file that the former owner does not know.
//!
//! Invariant: after a claim, the former owner frees no space and acknowledges no sync. So everything that the
//! superblocks on disk refer to stays in place, and everything that it acknowledged as synced is there.
//! Invariant: a target has an intact superblock of the new token only once everything else in it is durable.

use crate::EngineError;
use crate::engine::Engine;
use crate::fence::{self, Claim, Way};
use crate::options::Options;
use crate::recovery::{self, check_known_to_write};
use crate::shared::Shared;
use crate::space::BLOCK;
use crate::superblock::{COPIES, Copy, DATA_START, Superblock};
use atoll_disk::{Disk, DiskError, are_two_files, share_blocks};
use std::sync::Arc;

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1 << 20;

impl Engine {
    /// Opens the store on `disk` as its owner with this token, which is greater than that of any owner
    /// before; an empty disk becomes a new store. With the token that the store has, it is opened again by
    /// the same owner. From the first call on, the store is one that can change hands: builds that know no
    /// tokens do not write to it any more.
    ///
    /// As for [`Engine::open`], the former owner must have ended, or have [detached](Engine::detach) the
    /// store for this token. If it may only be paused, use [`Engine::take_over`].
    ///
    /// # Errors
    /// [`EngineError::StaleToken`] if the store had a later owner; [`EngineError::Fenced`] if another token
    /// claims it; those of [`Engine::open`]. After any other error the same call may be repeated; the claim
    /// of this token stands then. One that was torn, by a loss of power while it was written, is
    /// [withdrawn](Engine::withdraw) first.
    pub fn attach(disk: Arc<dyn Disk>, token: u64, options: Options) -> Result<Self, EngineError> {
        check_for_writing(&options, &*disk)?;
        let found = recovery::read_superblock(&*disk)?.map(|(superblock, _)| superblock);
        let current = found.map_or(0, |superblock| superblock.token);
        if token == 0 || token < current {
            return Err(stale(&*disk, token, current));
        }
        if token == current {
            return Self::open(disk, options);
        }
        if let Some(superblock) = found
            && current > 0
        {
            check_known_to_write(&*disk, &superblock)?;
            fence::claim(&*disk, &superblock, Claim { token, way: Way::Here })?;
        }
        let engine = Self::open_as(token, disk, options)?;
        engine.shared.take_token(token)?;
        Ok(engine)
    }

    /// The token of this owner; 0 if the store was never attached.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.shared.ownership.lock().token
    }

    /// Closes the store and hands it over to the owner with the token `heir`. Nobody else opens its file for
    /// writing from then on, this process included. The file may be moved before that owner
    /// [attaches](Engine::attach) it; no data is copied.
    ///
    /// # Errors
    /// [`EngineError::NoToken`] if the store was never attached, [`EngineError::StaleToken`] if `heir` is not
    /// above this owner's token, [`EngineError::ReadOnly`]; nothing has changed then. [`EngineError::Closed`]
    /// if it was closed before: whoever opened it since may hand it over. [`EngineError::Fenced`] if another
    /// token claimed the store. After those of [`Engine::close`] and of the disk the store is closed, and
    /// still belongs to this owner, unless [`Engine::open`] says otherwise.
    pub fn detach(&self, heir: u64) -> Result<(), EngineError> {
        let shared = &*self.shared;
        let token = self.token();
        let Some(disk) = shared.backing.disk().filter(|_| token > 0) else {
            return Err(EngineError::NoToken { store: shared.backing.name() });
        };
        check_for_writing(&shared.options, &**disk)?;
        if heir <= token {
            return Err(stale(&**disk, heir, token));
        }
        // Once another call has closed it, the file may belong to somebody else.
        if !self.close_once()? {
            return Err(EngineError::Closed { store: shared.backing.name() });
        }
        if shared.fence.is_lost() {
            return Err(shared.fenced(false));
        }
        // From here on the fence changes by what this owner itself writes.
        shared.fence.end();
        let superblock = owned_superblock(&**disk)?;
        if superblock.token != token {
            return Err(fence::fenced(&**disk, token, superblock.token));
        }
        fence::claim(&**disk, &superblock, Claim { token: heir, way: Way::Here })
    }

    /// Takes the store on `from` over as its owner with this token, although its former owner may still run,
    /// or go on at any moment after a pause. The store is then the one on `to`, which must be empty; `from`
    /// is never opened for writing again. Where both are files of a file system that can share blocks (Btrfs,
    /// XFS, bcachefs), no data is copied; elsewhere all of it is, once.
    ///
    /// What the former owner acknowledged as synced is there, whenever it did so. What it acknowledged as
    /// flushed is there if that was before the claim, which is the first thing written. Nothing that it does
    /// after the claim appears in the store on `to`, except what it had logged and not acknowledged as synced
    /// when its log was read. It learns of the claim at its next sync or checkpoint, which fail with
    /// [`EngineError::Fenced`], as does every write after that.
    ///
    /// After an error, or if this process ends meanwhile, the claim stands: repeat the call with the same
    /// `from`, `to` and token. If power was lost meanwhile, the claim may be torn, which [`Engine::withdraw`]
    /// mends. Until this call returns, `to` is no store. A token is for one heir and one target.
    /// Both processes must see the same page cache, which on most shared file systems those of one host do.
    ///
    /// Where blocks are shared, on XFS, and the file system is full to the last block, a former owner that
    /// still runs with [`Options::log_windows`] may end by a signal at its next commit.
    ///
    /// # Errors
    /// [`EngineError::NoToken`] if the store was never attached: its owner may know no tokens;
    /// [`EngineError::StaleToken`]; [`EngineError::Fenced`] if another token claims the store, also if that
    /// was done with long ago; [`EngineError::TargetInUse`]; those of [`Engine::open`].
    pub fn take_over(
        from: &dyn Disk,
        to: Arc<dyn Disk>,
        token: u64,
        options: Options,
    ) -> Result<Self, EngineError> {
        check_for_writing(&options, &*to)?;
        let source = owned_superblock(from)?;
        if token <= source.token {
            return Err(stale(from, token, source.token));
        }
        let claim = Claim { token, way: Way::Elsewhere };
        let target = Target::of((from, &source), &*to, claim)?;
        let is_usable = match target {
            Target::Empty => true,
            Target::Begun | Target::Whole => fence::stands(from, &source, claim)?,
            Target::InUse => false,
        };
        if !is_usable {
            return Err(EngineError::TargetInUse { store: to.name().to_owned() });
        }
        fence::claim(from, &source, claim)?;
        if target != Target::Whole {
            carry_over(from, &*to, claim, share_blocks)?;
        }
        Self::open(to, options)
    }

    /// Withdraws the claim of an heir that ended before [`Engine::take_over`] or [`Engine::attach`] returned,
    /// and that will not be repeated: the store on `from` is again its own. Its owner has to open it anew.
    ///
    /// Only for a claim whose heir has certainly ended, and never opened its target: otherwise two stores go
    /// on from here. Where this token claims nothing, nothing changes.
    ///
    /// # Errors
    /// [`EngineError::NoToken`], [`EngineError::StaleToken`]; [`EngineError::Fenced`] if another token, a
    /// multiple of 32 away, claims the store in the place of this one; errors of the disk.
    pub fn withdraw(from: &dyn Disk, token: u64) -> Result<(), EngineError> {
        let source = owned_superblock(from)?;
        if token <= source.token {
            return Err(stale(from, token, source.token));
        }
        fence::withdraw(from, &source, token)
    }
}

impl Shared {
    /// Makes this process the owner with this token, durably.
    fn take_token(&self, token: u64) -> Result<(), EngineError> {
        let Some(disk) = self.backing.disk() else { return Ok(()) };
        let mut ownership = *self.ownership.lock();
        if ownership.fence == 0 {
            ownership.fence = self.space.lock().allocate(BLOCK).offset;
            let blank = vec![0; BLOCK as usize];
            disk.write_at(ownership.fence, &blank)?;
            self.fence.begin(self.backing.store_id(), ownership.fence, blank);
        }
        ownership.token = token;
        *self.ownership.lock() = ownership;
        self.checkpoint(false).map(|_| ())
    }
}

/// What is at the place to which a store is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Empty,
    /// What this heir left there when it was interrupted.
    Begun,
    /// All of the store, with the new token.
    Whole,
    /// Something else.
    InUse,
}

impl Target {
    fn of(
        (from, source): (&dyn Disk, &Superblock),
        to: &dyn Disk,
        claim: Claim,
    ) -> Result<Self, EngineError> {
        if to.is_empty()? {
            return Ok(Self::Empty);
        }
        let copies = [copy_at(to, COPIES[0])?, copy_at(to, COPIES[1])?];
        let intact = copies.iter().filter_map(|copy| match copy {
            Copy::Intact(superblock) => Some(*superblock),
            _ => None,
        });
        let Some(found) = intact.max_by_key(Superblock::order) else {
            // One copy is written only once the other is durable, and erased only once the other is.
            let is_torn = |copy: &Copy| matches!(copy, Copy::Blank | Copy::Damaged);
            let is_ours = copies.iter().all(is_torn) && copies.contains(&Copy::Blank);
            return Ok(if is_ours { Self::Begun } else { Self::InUse });
        };
        let is_this_store = found.store_id == source.store_id;
        Ok(if is_this_store && found.token == claim.token {
            Self::Whole
        } else if is_this_store && found.token < claim.token && is_clone(from, (to, &found), claim)? {
            Self::Begun
        } else {
            Self::InUse
        })
    }
}

/// Whether `to` shares blocks with `from` since this heir began, and with them the claim. It is another file
/// then: the store itself, under whatever name, has the claim as well.
fn is_clone(
    from: &dyn Disk,
    (to, found): (&dyn Disk, &Superblock),
    claim: Claim,
) -> Result<bool, EngineError> {
    // A clone that the loss of power interrupted may end before its fence.
    let has_fence = to.len()? >= found.fence + BLOCK;
    Ok(has_fence && are_two_files(from, to)? && fence::stands(to, found, claim)?)
}

fn copy_at(disk: &dyn Disk, offset: u64) -> Result<Copy, EngineError> {
    let mut bytes = vec![0; BLOCK as usize];
    let there = disk.len()?.saturating_sub(offset).min(BLOCK) as usize;
    disk.read_at(offset, &mut bytes[..there])?;
    Ok(Superblock::decode(&bytes))
}

fn check_for_writing(options: &Options, disk: &dyn Disk) -> Result<(), EngineError> {
    options.validate()?;
    if options.read_only {
        return Err(EngineError::ReadOnly { store: disk.name().to_owned() });
    }
    Ok(())
}

fn stale(disk: &dyn Disk, token: u64, newest: u64) -> EngineError {
    EngineError::StaleToken { store: disk.name().to_owned(), token, newest }
}

/// The newest superblock of a store that has a token.
fn owned_superblock(disk: &dyn Disk) -> Result<Superblock, EngineError> {
    let store = || disk.name().to_owned();
    let Some((superblock, _)) = recovery::read_superblock(disk)? else {
        return Err(EngineError::NotYetAStore { store: store() });
    };
    check_known_to_write(disk, &superblock)?;
    if superblock.token == 0 { Err(EngineError::NoToken { store: store() }) } else { Ok(superblock) }
}

/// Makes `to` the claimed store. `share` is [`share_blocks`].
fn carry_over(
    from: &dyn Disk,
    to: &dyn Disk,
    claim: Claim,
    share: impl Fn(&dyn Disk, &dyn Disk) -> Result<bool, DiskError>,
) -> Result<(), EngineError> {
    // Read only now: until the claim, the former owner could make commits, and use the space of those before.
    // A last commit of which it was writing a copy just then frees nothing, so any copy will do.
    let source = owned_superblock(from)?;
    let blank = [0; BLOCK as usize];
    to.truncate(0)?;
    if is_shared(from, to, share)? {
        for copy in COPIES {
            to.write_at(copy, &blank)?;
            to.sync()?;
        }
    } else {
        copy_data(from, to)?;
    }
    // Claims of the former file mean nothing in this one.
    to.write_at(source.fence, &blank)?;
    to.sync()?;
    fence::confirm(from, &source, claim)?;
    let superblock = Superblock { token: claim.token, ..source };
    for copy in COPIES {
        to.write_at(copy, &superblock.encode())?;
        to.sync()?;
    }
    Ok(())
}

/// Lets `to`, which is empty, share all blocks of `from`; if that fails in whatever way, `to` is empty again.
fn is_shared(
    from: &dyn Disk,
    to: &dyn Disk,
    share: impl Fn(&dyn Disk, &dyn Disk) -> Result<bool, DiskError>,
) -> Result<bool, EngineError> {
    let before = from.len()?;
    let shared = share(from, to);
    // The former owner may make its file longer meanwhile, or cut free space off.
    if matches!(shared, Ok(true)) && to.len()? >= before.min(from.len()?) {
        return Ok(true);
    }
    // A part of the store may be there, with its superblocks. Beside a copy of the rest, those would make it
    // look whole before it is.
    let emptied = to.truncate(0);
    shared?;
    emptied?;
    Ok(false)
}

/// Copies everything behind the superblocks. Meanwhile the former owner may write to free space and behind
/// the end of the log, where recovery stops at the first group that is not whole. It may also make the file
/// longer, and what was copied may refer to that part of it. Where there are only zeros the copy has holes,
/// so that it needs no more room than the file; the log reserves what it maps.
fn copy_data(from: &dyn Disk, to: &dyn Disk) -> Result<(), EngineError> {
    let mut bytes = vec![0; COPY_BYTES as usize];
    let (mut at, mut written) = (DATA_START, DATA_START);
    loop {
        let len = from.len()?.saturating_sub(at).min(COPY_BYTES);
        if len == 0 {
            break;
        }
        let part = &mut bytes[..len as usize];
        if let Err(error) = from.read_at(at, part) {
            // The former owner may cut free space off its file.
            if from.len()? < at + len {
                continue;
            }
            return Err(error.into());
        }
        if part.iter().any(|&byte| byte != 0) {
            to.write_at(at, part)?;
            written = at + len;
        }
        at += len;
    }
    // A hole at the end: the last byte gives the file its length.
    if written < at {
        to.write_at(at - 1, &[0])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use atoll_disk::{FileDisk, MemoryDisk, Mode, Operation, Relay};
    use std::io;
    use std::os::unix::fs::MetadataExt;

    fn options() -> Options {
        Options { background: false, log_segment_bytes: 64 << 10, ..Options::default() }
    }

    const RECORDS: u32 = 40;

    /// A store whose owner had token 1 and was closed, claimed for another file by token 2, and that claim.
    fn claimed() -> (MemoryDisk, Claim) {
        let disk = Arc::new(MemoryDisk::new());
        let engine = Engine::attach(Arc::clone(&disk) as Arc<dyn Disk>, 1, options()).unwrap();
        let tree = engine.tree("t").unwrap();
        for number in 0..RECORDS {
            tree.put(&number.to_be_bytes(), &[number as u8; 10_000], Durability::Buffered).unwrap();
        }
        engine.close().unwrap();
        let claim = Claim { token: 2, way: Way::Elsewhere };
        fence::claim(&*disk, &owned_superblock(&*disk).unwrap(), claim).unwrap();
        (MemoryDisk::with_bytes(disk.to_bytes()), claim)
    }

    /// Writes the first half of `from` to `to`.
    fn share_half(from: &dyn Disk, to: &dyn Disk) -> Result<(), DiskError> {
        let mut half = vec![0; from.len()? as usize / 2];
        from.read_at(0, &mut half)?;
        to.write_at(0, &half)
    }

    fn planted(operation: Operation) -> DiskError {
        let source = io::Error::other("planted");
        DiskError { operation, name: "test".to_owned(), offset: 0, source }
    }

    #[test]
    fn a_clone_that_ends_early_is_followed_by_a_copy_of_all() {
        for reports in [true, false] {
            let ((from, claim), to) = (claimed(), Arc::new(MemoryDisk::new()));
            carry_over(&from, &*to, claim, |from, to| share_half(from, to).map(|()| reports)).unwrap();
            let engine = Engine::open(Arc::clone(&to) as Arc<dyn Disk>, options()).unwrap();
            let tree = engine.tree("t").unwrap();
            assert_eq!((engine.token(), tree.len().unwrap()), (2, u64::from(RECORDS)), "{reports}");
            let report = engine.check().unwrap();
            assert!(report.damage.is_empty(), "{reports}: {:?}", report.damage);
        }
    }

    #[test]
    fn a_clone_that_fails_leaves_nothing_behind() {
        let ((from, claim), to) = (claimed(), MemoryDisk::new());
        let failed = carry_over(&from, &to, claim, |from, to| {
            share_half(from, to)?;
            Err(planted(Operation::Write))
        });
        assert!(matches!(failed, Err(EngineError::Disk(_))), "{failed:?}");
        assert!(to.is_empty().unwrap(), "the same call begins anew");
    }

    /// A store of which nothing can be copied: only single blocks can be read.
    struct Unreadable(MemoryDisk);

    impl Relay for Unreadable {
        fn inner(&self) -> &dyn Disk {
            &self.0
        }

        fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
            if target.len() as u64 > BLOCK {
                return Err(planted(Operation::Read));
            }
            self.0.read_at(offset, target)
        }
    }

    #[test]
    fn no_superblocks_of_half_a_clone_stand_before_a_copy_that_may_fail() {
        for reports in [true, false] {
            let ((from, claim), to) = (claimed(), MemoryDisk::new());
            let from = Unreadable(from);
            let failed = carry_over(&from, &to, claim, |_, to| share_half(&from.0, to).map(|()| reports));
            assert!(matches!(failed, Err(EngineError::Disk(_))), "{failed:?}");
            assert!(to.is_empty().unwrap(), "{reports}");
        }
    }

    #[test]
    fn a_copy_of_a_file_with_holes_has_holes_and_the_same_length() {
        const MIB: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let [from, to] =
            ["from", "to"].map(|name| FileDisk::open(&folder.path().join(name), Mode::Create).unwrap());
        // One hole within the file, one at its end.
        from.write_at(DATA_START, &[7; 100]).unwrap();
        from.write_at(20 * MIB, &[8; 100]).unwrap();
        from.write_at(40 * MIB - 1, &[0]).unwrap();
        copy_data(&from, &to).unwrap();
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        assert!(read("to") == read("from"));
        let room = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().blocks() * 512;
        if room("from") > 4 * MIB {
            println!("SKIPPED [holes] the file system of the temporary folder has none");
            return;
        }
        assert!(room("to") <= 4 * MIB, "{} bytes", room("to"));
    }
}
