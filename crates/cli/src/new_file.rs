//! A file that gets its name once it is complete.
//!
//! Invariant: a file of the wanted name is always complete. Until then it is called `NAME.atoll.part`, or
//! `NAME.2.atoll.part` and so on if another writer uses that name.
//! Invariant: a writer holds a lock on its part file. A part file whose lock is free was left behind by a
//! killed process, and is removed when its name is needed.
//! Invariant: no other writer's file is written to, and no file is replaced without `--force`. What is not a
//! regular file, such as a device, is never replaced.
//! Invariant: nobody may read the new file, or its part file, who could not read the one that it replaces.

use crate::Failure;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Most files that can be written for one name at the same time.
const PARTS_MAX: usize = 1000;

/// Permissions of a part file while it is unknown who may read it in the end: the user alone.
const PRIVATE_MODE: u32 = 0o600;

/// Permissions of a new file, before the mask of the process.
const ANY_MODE: u32 = 0o666;

/// Most symbolic links that are followed in a chain, the same as the kernel's limit.
const LINKS_MAX: usize = 40;

/// A file being written; without [`NewFile::finish`] it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
    replace: bool,
    /// Whether the part file was renamed: its old name may belong to another writer by now.
    is_renamed: bool,
}

impl NewFile {
    /// Creates the part file, and returns the handle to write to.
    pub(crate) fn create(path: &Path, replace: bool) -> Result<(Self, File), Failure> {
        // Checked before an hour of work, and again after it.
        let path = match replace {
            true => replaceable(path).map(|()| followed(path))?,
            false if path.symlink_metadata().is_ok() => {
                // If --force would not help either, say that instead.
                return Err(replaceable(path).err().unwrap_or_else(|| exists(path)));
            }
            false => path.to_owned(),
        };
        let replaced = path.metadata().ok().filter(|_| replace);
        let (part, file) = create_part(&path, if replaced.is_some() { PRIVATE_MODE } else { ANY_MODE })?;
        let new = Self { path, part, file, replace, is_renamed: false };
        let target = new.file.try_clone().map_err(|source| failure("create", &new.part, source))?;
        Ok((new, target))
    }

    /// The path of the part file.
    pub(crate) fn part(&self) -> &Path {
        &self.part
    }

    /// Makes the file durable and gives it its name. All data must have been written.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let written = |path: &Path, source| failure("write", path, source);
        self.file.sync_all().map_err(|source| written(&self.path, source))?;
        if self.replace { self.rename() } else { self.name_if_free() }?;
        sync_folder(&self.path).map_err(|source| written(&self.path, source))
    }

    fn rename(&mut self) -> Result<(), Failure> {
        replaceable(&self.path)?;
        // Looked at again, because its permissions may have been changed while this file was written.
        if let Ok(there) = self.path.metadata() {
            permit_as(&self.file, &there).map_err(|source| failure("write", &self.path, source))?;
        }
        fs::rename(&self.part, &self.path).map_err(|source| failure("write", &self.path, source))?;
        self.is_renamed = true;
        Ok(())
    }

    /// Gives the file its name, unless that name was taken meanwhile.
    fn name_if_free(&mut self) -> Result<(), Failure> {
        match fs::hard_link(&self.part, &self.path) {
            Ok(()) => Ok(()),
            // A file server that repeats a request after a lost reply may refuse what it has already done.
            Err(_) if is_at(&self.file, &self.path) => Ok(()),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Err(exists(&self.path)),
            // A file system without hard links leaves a short race between this check and the rename.
            Err(_) if self.path.symlink_metadata().is_ok() => Err(exists(&self.path)),
            Err(_) => self.rename(),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_renamed {
            // A failure cannot be reported from here.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Gives a file the permissions of the one that it replaces, and its owner and group where that is allowed.
fn permit_as(file: &File, replaced: &fs::Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    // Only the superuser may give files away; a member of the group may choose it.
    let _ = fchown(file, Some(replaced.uid()), None);
    let has_group = own.gid() == replaced.gid() || fchown(file, None, Some(replaced.gid())).is_ok();
    let mode = mode_for(replaced.mode() & 0o777, has_group);
    // Some file systems have no permissions, and refuse to set them.
    if own.mode() & 0o777 == mode { Ok(()) } else { file.set_permissions(fs::Permissions::from_mode(mode)) }
}

/// The permissions of a file that replaces one with these. If it cannot have the former group, another group
/// would get what that one had; and the members of the former one count among all others, who may have been
/// allowed what the group was not.
const fn mode_for(replaced: u32, has_group: bool) -> u32 {
    if has_group {
        return replaced;
    }
    let group = (replaced >> 3) & 0o007;
    replaced & (0o700 | group)
}

/// Fails if `path` exists and is neither a regular file nor a link to one: the reader of a pipe would wait
/// forever, and a replaced device would be gone for the whole machine.
fn replaceable(path: &Path) -> Result<(), Failure> {
    match path.metadata() {
        Ok(there) if there.is_dir() => Err(failure("write", path, io::ErrorKind::IsADirectory.into())),
        Ok(there) if !there.is_file() => {
            let hint =
                "it is not a file that can be replaced: choose another name, or `-` for standard output";
            Err(Failure::Exists { place: path.display().to_string(), hint })
        }
        _ => Ok(()),
    }
}

/// The target of a chain of symbolic links: that file is meant, on its own disk.
fn followed(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(to) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    path
}

/// Creates a part file beside `path`, under a name that no live writer uses, with these permissions as far as
/// the mask of the process allows.
fn create_part(path: &Path, mode: u32) -> Result<(PathBuf, File), Failure> {
    let mut part = PathBuf::new();
    for number in 1..=PARTS_MAX {
        let mut name: OsString = path.file_name().unwrap_or_default().to_owned();
        name.push(if number == 1 { ".atoll.part".to_owned() } else { format!(".{number}.atoll.part") });
        part = path.with_file_name(name);
        // Twice, because a file that was left behind is removed first.
        for _ in 0..2 {
            match OpenOptions::new().write(true).create_new(true).mode(mode).open(&part) {
                // Another process may have taken it for one left behind, before it was locked.
                Ok(file) if is_ours(&file, &part) => return Ok((part, file)),
                Ok(_) => {}
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists => remove_left_behind(&part),
                Err(source) => return Err(failure("create", &part, source)),
            }
        }
    }
    Err(failure("create", &part, io::ErrorKind::AlreadyExists.into()))
}

/// Removes a part file that no process writes to any more.
fn remove_left_behind(part: &Path) {
    // Opening something else than a regular file, such as a pipe, could block.
    if part.symlink_metadata().is_ok_and(|there| there.is_file())
        && let Ok(file) = OpenOptions::new().write(true).open(part)
        && file.try_lock().is_ok()
        && is_at(&file, part)
    {
        // If it cannot be removed, the next name is used.
        let _ = fs::remove_file(part);
    }
}

/// Whether a file that was just created still exists, and is locked. Where the file system has no locks, no
/// file is taken for left behind.
fn is_ours(file: &File, part: &Path) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && is_at(file, part)
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(there)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (file.dev(), file.ino()) == (there.dev(), there.ino())
}

/// Makes a name durable, if folders can be synced.
fn sync_folder(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()) {
        // Some file systems cannot sync folders, and some folders are not readable.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

fn exists(path: &Path) -> Failure {
    let hint = "choose another name, or replace it with --force";
    Failure::Exists { place: path.display().to_string(), hint }
}

fn failure(action: &'static str, path: &Path, source: io::Error) -> Failure {
    Failure::File { action, place: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn of_two_under_way_each_is_whole_and_only_the_first_has_the_name() {
        for replace in [false, true] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("a.csv");
            let (first, mut to_first) = NewFile::create(&path, replace).unwrap();
            let (second, mut to_second) = NewFile::create(&path, replace).unwrap();
            to_first.write_all(b"first, and longer").unwrap();
            to_second.write_all(b"second").unwrap();
            assert_eq!(names(place.path()), ["a.csv.2.atoll.part", "a.csv.atoll.part"]);
            first.finish().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"first, and longer");
            let finished = second.finish();
            assert_eq!(matches!(finished, Err(Failure::Exists { .. })), !replace, "{finished:?}");
            let expected: &[u8] = if replace { b"second" } else { b"first, and longer" };
            assert_eq!(fs::read(&path).unwrap(), expected);
            assert_eq!(names(place.path()), ["a.csv"]);
        }
    }

    #[test]
    fn an_abandoned_file_leaves_nothing_and_a_name_taken_meanwhile_stays_taken() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.csv");
        drop(NewFile::create(&path, false).unwrap());
        assert!(names(place.path()).is_empty());
        let (late, _) = NewFile::create(&path, false).unwrap();
        fs::write(&path, "another's").unwrap();
        assert!(matches!(late.finish(), Err(Failure::Exists { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"another's");
        assert!(matches!(NewFile::create(&path, false), Err(Failure::Exists { .. })));
        assert_eq!(names(place.path()), ["a.csv"]);
    }

    #[test]
    fn the_part_file_of_a_killed_process_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.csv");
        let (first, mut to_first) = NewFile::create(&path, false).unwrap();
        to_first.write_all(b"left behind").unwrap();
        let left = first.part().to_owned();
        let (kept, _) = NewFile::create(&path, false).unwrap();
        // As a kill leaves it: the lock is free, and the file stays.
        let bytes = fs::read(&left).unwrap();
        drop((first, to_first));
        fs::write(&left, bytes).unwrap();
        fs::write(place.path().join("a.csv.part"), "another's").unwrap();
        let (new, mut to_new) = NewFile::create(&path, false).unwrap();
        assert_eq!(new.part(), left);
        to_new.write_all(b"new").unwrap();
        drop(kept);
        new.finish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(place.path()).len()), (b"new".to_vec(), 2));
    }

    #[test]
    fn a_name_that_was_given_already_is_no_other_files() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.csv");
        let (new, _) = NewFile::create(&path, false).unwrap();
        fs::hard_link(new.part(), &path).unwrap();
        new.finish().unwrap();
        assert_eq!(names(place.path()), ["a.csv"]);
    }

    #[test]
    fn the_file_under_its_name_stays_whole_where_a_kill_left_it_two_names() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.csv");
        fs::write(&path, "whole").unwrap();
        fs::hard_link(&path, place.path().join("a.csv.atoll.part")).unwrap();
        let (new, mut to_new) = NewFile::create(&path, true).unwrap();
        to_new.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        new.finish().unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), names(place.path())),
            (b"new".to_vec(), vec!["a.csv".to_owned()])
        );
    }

    #[test]
    fn only_regular_files_are_replaced() {
        use std::os::unix::net::UnixListener;
        let place = tempfile::tempdir().unwrap();
        let [path, link] = ["a.csv", "link.csv"].map(|name| place.path().join(name));
        let _listener = UnixListener::bind(&path).unwrap();
        std::os::unix::fs::symlink("a.csv", &link).unwrap();
        for there in [&path, &link] {
            let refused = NewFile::create(there, true).unwrap_err();
            assert!(
                matches!(&refused, Failure::Exists { hint, .. } if hint.contains("not a file that can be replaced")),
                "{refused}"
            );
        }
        // Nor is --force advised where it would not help.
        for replace in [true, false] {
            let folder = NewFile::create(place.path(), replace).unwrap_err();
            assert!(matches!(&folder, Failure::File { .. }), "{folder}");
        }
        // Nor if it appeared meanwhile.
        let late = place.path().join("late.csv");
        let (new, _) = NewFile::create(&late, true).unwrap();
        let _late = UnixListener::bind(&late).unwrap();
        assert!(matches!(new.finish(), Err(Failure::Exists { .. })));
        assert_eq!(names(place.path()), ["a.csv", "late.csv", "link.csv"]);
        assert!([path, late].iter().all(|path| !path.metadata().unwrap().is_file()));
    }

    #[test]
    fn who_could_not_read_a_file_cannot_read_the_one_that_replaces_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.csv");
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        for wanted in [0o600, 0o640, 0o664, 0o444] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(wanted)).unwrap();
            let (new, mut to_new) = NewFile::create(&path, true).unwrap();
            assert_eq!(mode(new.part()), PRIVATE_MODE);
            to_new.write_all(b"new").unwrap();
            new.finish().unwrap();
            assert_eq!((mode(&path), fs::read(&path).unwrap()), (wanted, b"new".to_vec()));
            fs::remove_file(&path).unwrap();
        }
        // Permissions that were changed meanwhile hold, and a new file has the usual ones.
        fs::write(&path, "old").unwrap();
        let (new, _) = NewFile::create(&path, true).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        new.finish().unwrap();
        assert_eq!(mode(&path), 0o640);
        let (usual, other) = (place.path().join("usual"), place.path().join("other"));
        fs::write(&usual, "").unwrap();
        NewFile::create(&other, true).unwrap().0.finish().unwrap();
        assert_eq!(mode(&other), mode(&usual));
    }

    #[test]
    fn without_the_former_group_neither_its_members_nor_those_of_another_may_do_more_than_before() {
        for (replaced, expected) in
            [(0o640, 0o600), (0o664, 0o604), (0o604, 0o600), (0o606, 0o600), (0o646, 0o604), (0o600, 0o600)]
        {
            assert_eq!(mode_for(replaced, true), replaced);
            assert_eq!(mode_for(replaced, false), expected, "{replaced:o}");
        }
    }

    #[test]
    fn a_link_stays_one_and_the_file_is_written_where_it_leads_to() {
        let place = tempfile::tempdir().unwrap();
        let (folder, link) = (place.path().join("scratch"), place.path().join("latest.csv"));
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("scratch/a.csv", &link).unwrap();
        for text in ["first", "second"] {
            let (new, mut to_new) = NewFile::create(&link, true).unwrap();
            assert_eq!(new.part(), folder.join("a.csv.atoll.part"));
            to_new.write_all(text.as_bytes()).unwrap();
            new.finish().unwrap();
            assert_eq!(fs::read(folder.join("a.csv")).unwrap(), text.as_bytes());
            assert!(link.is_symlink() && names(&folder) == ["a.csv"]);
        }
    }
}
