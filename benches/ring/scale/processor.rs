//! A processor of the model: the running thread, the waiting ones, and the data that its caches hold.

use std::collections::VecDeque;

/// How many address spaces' translations a processor keeps apart. Linux has six numbers for them on x86-64
/// (`TLB_NR_DYN_ASIDS` in `arch/x86/include/asm/tlbflush.h`): the seventh replaces another one.
const SPACES_AT_HAND: usize = 6;

/// One processor of a host.
#[derive(Clone, Default)]
pub struct Processor {
    pub is_busy: bool,
    /// Threads with work, in order of arrival.
    pub waiting: VecDeque<usize>,
    /// Additional time of the running thread, because it woke others.
    pub owed_ns: u64,
    /// The address spaces with translations here, the most recent first.
    spaces: VecDeque<usize>,
    /// How often nodes have run here.
    nodes_ran: u64,
}

/// The state in which a thread finds its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheState {
    /// Whether the translations of its address space were replaced.
    pub is_out: bool,
    /// How often nodes have run here since the thread did; `None` if it ran elsewhere.
    pub here: Option<u64>,
    /// The same on all processors of the host.
    pub anywhere: u64,
}

/// The counts when a thread last ran, and where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Left {
    processor: usize,
    here: Option<u64>,
    anywhere: u64,
}

impl Processor {
    /// A thread of this address space, of a node or a client, runs here: on processor `place` of a host on
    /// which nodes have run this often.
    pub fn runs(
        &mut self,
        place: usize,
        host_ran: &mut u64,
        (space, is_node): (usize, bool),
        left: &mut Left,
    ) -> CacheState {
        let at = self.spaces.iter().position(|&one| one == space);
        let is_out = at.is_none() && self.spaces.len() >= SPACES_AT_HAND;
        at.map(|at| self.spaces.remove(at));
        self.spaces.push_front(space);
        self.spaces.truncate(SPACES_AT_HAND);
        let since = left.here.filter(|_| left.processor == place);
        let found = CacheState {
            is_out,
            here: since.map(|since| self.nodes_ran - since),
            anywhere: *host_ran - left.anywhere,
        };
        self.nodes_ran += u64::from(is_node);
        *host_ran += u64::from(is_node);
        *left = Left { processor: place, here: Some(self.nodes_ran), anywhere: *host_ran };
        found
    }
}
