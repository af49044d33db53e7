//! The limit of open files. Each connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are kept back for uses other than clients: the store, other nodes, scrapers of the metrics. At
/// most a quarter of the limit.
const OTHER_FILES: u64 = 1_024;

/// How many of these are asked for when the limit is raised: each other node takes up to three connections,
/// and a ring may grow while a node runs.
const OTHER_FILES_MAX: u64 = 1 << 18;

/// Raises the soft limit of this process towards what `connections_max` connections need, as far as the hard
/// limit allows. Returns how many connections fit.
pub(crate) fn make_room_for(connections_max: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // No limit.
    let Some(current) = current else { return connections_max };
    let wanted = (connections_max as u64).saturating_add(OTHER_FILES_MAX);
    let raised = wanted.min(maximum.unwrap_or(wanted));
    let is_raised =
        raised > current && setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok();
    let files = if is_raised { raised } else { current };
    let fitting = fitting(files, connections_max);
    if fitting < connections_max {
        tracing::warn!(
            files,
            connections = fitting,
            "fewer clients may connect than configured: the limit of open files (`ulimit -n`) is too low"
        );
    }
    fitting
}

/// How many of `connections_max` connections fit when `files` files may be open.
fn fitting(files: u64, connections_max: usize) -> usize {
    let left = files - OTHER_FILES.min(files / 4);
    connections_max.min(usize::try_from(left).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_few_files_may_be_open_some_are_kept_for_what_is_not_a_client() {
        assert_eq!(fitting(1 << 20, 10_000), 10_000);
        assert_eq!(fitting(11_024, 10_000), 10_000);
        assert_eq!(fitting(4_096, 10_000), 3_072);
        assert_eq!(fitting(1_024, 10_000), 768);
        assert_eq!(fitting(1_024, 100), 100);
        assert_eq!(fitting(0, 100), 1);
    }
}
