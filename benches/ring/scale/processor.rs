//! A processor of the model: who runs, who waits for it, and whose things it has at hand.

use std::collections::VecDeque;

/// Address spaces whose translations a processor keeps apart. Linux has six numbers for them on x86-64
/// (`TLB_NR_DYN_ASIDS` in `arch/x86/include/asm/tlbflush.h`): the seventh takes the place of another one's.
const SPACES_AT_HAND: usize = 6;

/// One processor of a host.
#[derive(Clone, Default)]
pub struct Processor {
    pub is_busy: bool,
    /// Threads that have something to do, in the order of coming.
    pub waiting: VecDeque<usize>,
    /// Time that whoever runs takes more, as it woke others.
    pub owed_ns: u64,
    /// Of which address spaces, the last one first.
    spaces: VecDeque<usize>,
    /// How often nodes ran here so far.
    nodes_ran: u64,
}

/// What a thread finds on its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whether translations of its address space are gone.
    pub is_out: bool,
    /// How often nodes ran here since it did itself; none if it ran elsewhere.
    pub here: Option<u64>,
    /// The same on any processor of the host.
    pub anywhere: u64,
}

/// What a thread left behind on a processor when it ran last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Left {
    processor: usize,
    here: Option<u64>,
    anywhere: u64,
}

impl Processor {
    /// A thread of this address space, of a node or not, runs here: on processor `place` of a host, where
    /// nodes ran so often.
    pub fn runs(
        &mut self,
        place: usize,
        host_ran: &mut u64,
        (space, is_node): (usize, bool),
        left: &mut Left,
    ) -> Found {
        let at = self.spaces.iter().position(|&one| one == space);
        let is_out = at.is_none() && self.spaces.len() >= SPACES_AT_HAND;
        at.map(|at| self.spaces.remove(at));
        self.spaces.push_front(space);
        self.spaces.truncate(SPACES_AT_HAND);
        let since = left.here.filter(|_| left.processor == place);
        let found = Found {
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
