//! How a ring was set up: what all of its nodes were started with alike, which a node tells one that joins.

use crate::address::HostPort;
use atoll_resp::ReplyWriter;

/// What all nodes of a ring are started with alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSetup {
    /// The processes, in the order of the numbers of their nodes, at the addresses of their first nodes.
    /// Later ones may have joined since.
    pub processes: Vec<HostPort>,
    /// How many nodes each of them runs.
    pub loops: u16,
    /// How many of them keep the configuration: the first ones.
    pub keepers: usize,
    /// How many copies there are of everything.
    pub copies: usize,
    /// How many of them must be in sync for a write to be accepted.
    pub in_sync_min: usize,
    /// The largest error in the rate of a clock, in parts per million.
    pub rate_error_ppm: u64,
    /// Whether no clock is relied on.
    pub is_clockless: bool,
}

impl RingSetup {
    /// As a part of `AT.RING STATUS`.
    pub(crate) fn write(&self, writer: &mut ReplyWriter<'_>) {
        let counts = [
            ("loops", u64::from(self.loops)),
            ("keepers", self.keepers as u64),
            ("copies", self.copies as u64),
            ("in_sync_min", self.in_sync_min as u64),
            ("rate_error_ppm", self.rate_error_ppm),
            ("clockless", u64::from(self.is_clockless)),
        ];
        writer.map(1 + counts.len());
        writer.string(b"processes");
        writer.array(self.processes.len());
        self.processes.iter().for_each(|process| writer.string(process.to_string().as_bytes()));
        for (name, count) in counts {
            writer.string(name.as_bytes());
            writer.integer(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
