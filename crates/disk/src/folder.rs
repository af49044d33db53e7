//! Folders whose names are found again after power loss.

use crate::sync_folder;
use std::io;
use std::path::Path;

/// Makes a folder, and those above it that are missing, and makes their names durable.
///
/// # Errors
/// Why one of them cannot be made, or its name not be made durable.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    make(folder, &mut sync)
}

fn make(folder: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    // The parent of a name alone is empty, and the current folder.
    if folder.as_os_str().is_empty() {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new(""));
    if folder.is_dir() {
        // Whoever made it may not have come to make its name durable, and then left it empty.
        return if is_empty(folder) { sync(parent) } else { Ok(()) };
    }
    make(parent, sync)?;
    match std::fs::create_dir(folder) {
        // Somebody else was quicker, and need not have made its name durable yet.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => sync(parent),
        made => made.and_then(|()| sync(parent)),
    }
}

/// Whether a folder is known to hold nothing.
fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

fn sync(folder: &Path) -> io::Result<()> {
    match sync_folder(if folder.as_os_str().is_empty() { Path::new(".") } else { folder }) {
        // Who may make names in a folder need not be allowed to list them, and only then can it be synced. On
        // a file system that is only read, nobody made any.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_that_was_made_has_a_durable_name_and_no_other_is_synced() {
        let outer = tempfile::tempdir().unwrap();
        std::fs::write(outer.path().join("file"), "").unwrap();
        let [a, b, c] = ["a", "a/b", "a/b/c"].map(|name| outer.path().join(name));
        let mut synced = Vec::new();
        let mut note = |folder: &Path| {
            synced.push(folder.to_owned());
            Ok(())
        };
        make(&c, &mut note).unwrap();
        std::fs::write(c.join("file"), "").unwrap();
        make(&c, &mut note).unwrap();
        assert!(c.is_dir());
        assert_eq!(synced, [outer.path(), &a, &b]);
    }

    #[test]
    fn a_folder_whose_name_could_not_be_made_durable_is_not_taken_for_one_that_has_such_a_name() {
        let outer = tempfile::tempdir().unwrap();
        std::fs::write(outer.path().join("file"), "").unwrap();
        let [a, b] = ["a", "a/b"].map(|name| outer.path().join(name));
        // Fails with the second folder, and then with the first sync of the next attempt.
        let mut left = 1;
        let mut fail_later = |_: &Path| {
            left -= 1;
            if left < 0 { Err(io::Error::other("planted")) } else { Ok(()) }
        };
        make(&b, &mut fail_later).unwrap_err();
        assert!(b.is_dir());
        make(&b, &mut fail_later).unwrap_err();
        let mut synced = Vec::new();
        let mut note = |folder: &Path| {
            synced.push(folder.to_owned());
            Ok(())
        };
        make(&b, &mut note).unwrap();
        assert_eq!(synced, [a]);
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let outer = tempfile::tempdir().unwrap();
        let file = outer.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(make_folder(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(make_folder(&file.join("store")).is_err());
    }
}
