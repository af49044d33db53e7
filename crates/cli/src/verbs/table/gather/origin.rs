//! Which table of which store a run was gathered from, so that two stores in folders of one name are not
//! taken for each other.
//!
//! Invariant: the table holds a digest, never a path or a host, since it may be copied elsewhere.

use crate::Failure;
use atoll_open::{Location, StoreUrl};
use atoll_tables::protocol::Version;
use twox_hash::XxHash3_128;

/// A digest of a store and of the table in it. However a folder is written, and in whichever order nodes are
/// named, it is the same.
pub(super) fn digest_of(url: &str, table: &str) -> String {
    let place = match StoreUrl::parse(url).map(|url| url.location) {
        Ok(Location::Folder(folder)) => {
            folder.canonicalize().unwrap_or(folder).into_os_string().into_encoded_bytes()
        }
        Ok(Location::Ring(ring)) => of_nodes("ring", &ring.nodes, ring.keyspace.as_deref()),
        Ok(Location::Cassandra(cluster)) => {
            of_nodes("cassandra", &cluster.contacts, Some(cluster.keyspace.as_str()))
        }
        Ok(Location::Memory) | Err(_) => url.as_bytes().to_vec(),
    };
    let named = [place.as_slice(), b"\0", table.as_bytes()].concat();
    format!("{:032x}", XxHash3_128::oneshot(&named))
}

fn of_nodes(scheme: &str, nodes: &[String], keyspace: Option<&str>) -> Vec<u8> {
    let mut nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    nodes.sort_unstable();
    format!("{scheme}://{}/{}", nodes.join(","), keyspace.unwrap_or_default()).into_bytes()
}

/// The failure of gathering into a run that another store, or another table, was gathered into.
pub(super) fn differs(run: &str) -> Failure {
    Failure::Run {
        run: run.to_owned(),
        problem: "was gathered from another store, or from another table".to_owned(),
        hint: format!(
            "gather this one as a run of another name, with --run; if it is the same store at a new place, \
             `atoll table attributes TABLE --run {run} gather.source=` makes the run forget the old one"
        ),
    }
}

/// The failure of gathering from a store that is at an earlier version than what was gathered from it.
pub(super) fn is_behind(run: &str, gathered: Version, now: Version) -> Failure {
    Failure::Run {
        run: run.to_owned(),
        problem: format!(
            "is of version {gathered} of the store, which is at version {now}: another store has taken its place"
        ),
        hint: "gather the store that is there now as a run of another name, with --run".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_stores_and_tables_apart_and_not_how_they_are_written() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["a/data", "b/data"].map(|name| place.path().join(name));
        folders.iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&folders[0], &link).unwrap();
        let [a, b] = folders.each_ref().map(|folder| folder.display().to_string());
        assert_ne!(digest_of(&a, "t"), digest_of(&b, "t"));
        assert_ne!(digest_of(&a, "t"), digest_of(&a, "u"));
        for same in
            [link.display().to_string(), format!("file:{a}?memory=64MiB"), format!("{b}/../../a/data")]
        {
            assert_eq!(digest_of(&a, "t"), digest_of(&same, "t"), "{same}");
        }
        let ring = digest_of("ring://one:7379,two:7379/", "t");
        assert_eq!(ring, digest_of("ring://two,one?time-out=1s", "t"));
        assert_ne!(ring, digest_of("ring://one,two/k", "t"));
        assert_ne!(ring, digest_of("ring://one,three", "t"));
    }
}
