//! Who may read the files of a copy or a backup.
//!
//! Invariant: nobody may read such a file, complete or not, who may not read the store's own file, or the
//! file that it replaces.

use atoll_disk::make_folder;
use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

/// Permissions of a file that is being written, and what its user may do with it in the end, whatever the
/// original allows: the copy is a store of its own.
const OWN_FILE: u32 = 0o600;

/// What the user of a copy may do with its folder.
const OWN_FOLDER: u32 = 0o700;

/// The permissions that are copied.
const PERMISSIONS: u32 = 0o777;

/// The bits that stay as they are: a folder's may come from the one around it.
const SPECIAL: u32 = 0o7000;

/// Creates a file that only this user can read, or opens the one that an earlier attempt of this user left,
/// with the permissions that it has.
///
/// # Errors
/// Why it cannot be created. `PermissionDenied` if another user made it, who could read what is written to
/// it.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    // Neither a link is followed nor the reader of a pipe awaited that another user may have put there.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    loop {
        match OpenOptions::new().write(true).create_new(true).mode(OWN_FILE).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
        let file = match OpenOptions::new().write(true).custom_flags(flags).open(path) {
            // It was completed and renamed in between.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        if file.metadata()?.uid() == rustix::process::geteuid().as_raw() {
            return Ok(file);
        }
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file belongs to another user"));
    }
}

/// Closes a file to all others before anything is written to it.
///
/// # Errors
/// Why it cannot be closed.
pub(crate) fn close_to_others(file: &File) -> io::Result<()> {
    set_mode(file, OWN_FILE)
}

/// Gives a complete file the permissions of another one.
///
/// # Errors
/// Why it cannot be opened, or be given them.
pub(crate) fn permit_as(file: &Path, original: &Metadata) -> io::Result<()> {
    permit(&File::open(file)?, original, PERMISSIONS, OWN_FILE)
}

/// Makes a folder, if there is none, that nobody can enter who cannot enter `original`.
///
/// # Errors
/// Those of [`make_folder`]; why it cannot be given its permissions.
pub(crate) fn make_folder_as(folder: &Path, original: &Path) -> io::Result<()> {
    if folder.exists() {
        // One that an earlier attempt made may not have a durable name yet.
        return if folder.is_dir() { make_folder(folder) } else { Ok(()) };
    }
    make_folder(folder)?;
    let made = File::open(folder)?;
    match original.metadata() {
        // Nor is it opened to those whom the mask of this process keeps out.
        Ok(original) => permit(&made, &original, made.metadata()?.mode(), OWN_FOLDER),
        // A store that is open may have been moved.
        Err(_) => set_mode(&made, OWN_FOLDER),
    }
}

/// Gives a file the permissions of another one, as far as `most` has them, and in any case `least`.
fn permit(file: &File, original: &Metadata, most: u32, least: u32) -> io::Result<()> {
    let has_group =
        file.metadata()?.gid() == original.gid() || fchown(file, None, Some(original.gid())).is_ok();
    let mode = mode_for(original.mode() & PERMISSIONS, has_group);
    set_mode(file, (mode & most) | least)
}

/// The permissions of a copy. If it cannot have the group of the original, another group would get what that
/// one had; and the members of that one count among all others, who may have been allowed what it was not.
const fn mode_for(original: u32, has_group: bool) -> u32 {
    if has_group {
        return original;
    }
    let group = (original >> 3) & 0o007;
    original & (0o700 | group)
}

fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    let present = file.metadata()?.mode();
    if present & PERMISSIONS == mode {
        return Ok(());
    }
    // What a folder made here inherits, such as its group for all that is made in it, stays.
    let special = present & SPECIAL;
    match file.set_permissions(Permissions::from_mode(special | mode)) {
        // Some file systems have no permissions, and refuse to set them; the file is this user's.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        set => set,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & PERMISSIONS
    }

    #[test]
    fn what_an_earlier_attempt_left_is_closed_to_others_and_a_link_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let [part, link] = ["part", "link"].map(|name| place.path().join(name));
        drop(create_private(&part).unwrap());
        assert_eq!(mode(&part), OWN_FILE);
        std::fs::set_permissions(&part, Permissions::from_mode(0o644)).unwrap();
        close_to_others(&create_private(&part).unwrap()).unwrap();
        assert_eq!(mode(&part), OWN_FILE);
        std::os::unix::fs::symlink("part", &link).unwrap();
        create_private(&link).unwrap_err();
        if std::os::unix::fs::chown(&part, Some(65534), None).is_err() {
            println!("SKIPPED [other-user] a file cannot be given away here");
            return;
        }
        assert_eq!(create_private(&part).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_copy_is_open_to_those_of_the_original_and_its_user_may_write_it() {
        let place = tempfile::tempdir().unwrap();
        let [original, copy] = ["original", "copy"].map(|name| place.path().join(name));
        drop(create_private(&copy).unwrap());
        std::fs::write(&original, "").unwrap();
        for (wanted, expected) in [(0o600, 0o600), (0o640, 0o640), (0o664, 0o664), (0o444, 0o644)] {
            std::fs::set_permissions(&original, Permissions::from_mode(wanted)).unwrap();
            permit_as(&copy, &original.metadata().unwrap()).unwrap();
            assert_eq!(mode(&copy), expected, "{wanted:o}");
        }
        for (original, expected) in [(0o640, 0o600), (0o664, 0o604), (0o604, 0o600)] {
            assert_eq!(mode_for(original, false), expected, "{original:o}");
        }
    }

    #[test]
    fn a_folder_that_is_made_is_closed_to_those_whom_the_original_keeps_out() {
        let place = tempfile::tempdir().unwrap();
        let [original, made, there] = ["original", "made", "there"].map(|name| place.path().join(name));
        for folder in [&original, &there] {
            std::fs::create_dir(folder).unwrap();
        }
        let usual = mode(&there);
        std::fs::set_permissions(&original, Permissions::from_mode(0o700)).unwrap();
        make_folder_as(&made, &original).unwrap();
        make_folder_as(&there, &original).unwrap();
        assert_eq!((mode(&made), mode(&there)), (0o700, usual));
        std::fs::set_permissions(&original, Permissions::from_mode(0o777)).unwrap();
        make_folder_as(&place.path().join("open"), &original).unwrap();
        assert_eq!(mode(&place.path().join("open")), usual, "the mask of this process holds");
        make_folder_as(&place.path().join("alone"), &place.path().join("gone")).unwrap();
        assert_eq!(mode(&place.path().join("alone")), 0o700);
    }
}
