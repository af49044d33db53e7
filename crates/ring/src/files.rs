//! The files that a node may have open: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside those of clients: of the store, of other nodes, of those who ask what is counted. Where few
/// may be open so many are kept.
const BESIDE: u64 = 1_024;

/// So many may be, where that is allowed: with each other node there are up to three connections, and a ring
/// may grow while a node runs.
const BESIDE_MAX: u64 = 1 << 18;

/// Raises the usual limit of this process as far as so many connections need it and whoever runs it allows;
/// how many connections fit.
pub(crate) fn make_room_for(connections_max: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // There is none.
    let Some(current) = current else { return connections_max };
    let wanted = (connections_max as u64).saturating_add(BESIDE_MAX);
    let raised = wanted.min(maximum.unwrap_or(wanted));
    let is_raised =
        raised > current && setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok();
    let files = if is_raised { raised } else { current };
    let fitting = fitting(files, connections_max);
    if fitting < connections_max {
        tracing::warn!(
            files,
            connections = fitting,
            "fewer clients may connect than was chosen: the limit of open files, which `ulimit -n` tells, is too low"
        );
    }
    fitting
}

/// How many of so many connections fit where so many files may be open.
fn fitting(files: u64, connections_max: usize) -> usize {
    let left = files - BESIDE.min(files / 4);
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
