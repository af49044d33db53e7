//! What left the current trees: space on disk that becomes free once nobody needs it any more.
//!
//! Invariant: an item leaves the current tree once, so its space is retired once.
//! Invariant: retired space is handed back only by the checkpoint after its death, when no pin and no named
//! snapshot lies in its life.

use crate::node::{Node, PageRef};
use crate::value::{Chain, Piece};

/// Bytes on disk that belonged to something alive in epochs `birth..death`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) birth: u64,
    pub(crate) death: u64,
}

/// Retired space, and things whose home a running checkpoint may yet set.
#[derive(Default)]
pub(crate) struct RetiredList {
    space: Vec<Retired>,
    /// Bytes that were added, not those that were put back.
    added_bytes: u64,
    undecided: Vec<(Undecided, u64)>,
}

enum Undecided {
    Node(Node),
    Piece(Piece),
}

impl RetiredList {
    pub(crate) fn page(&mut self, home: PageRef, death: u64) {
        let len = u64::from(home.len);
        self.space(Retired { offset: home.offset, len, birth: home.birth, death });
    }

    pub(crate) fn space(&mut self, retired: Retired) {
        self.added_bytes += retired.len;
        self.space.push(retired);
    }

    /// Bytes that left the trees since the last checkpoint looked.
    pub(crate) fn added_bytes(&self) -> u64 {
        self.added_bytes
    }

    /// A node that somebody else shares was replaced.
    pub(crate) fn shared_node(&mut self, node: Node, epoch: u64) {
        match node.home() {
            Some(home) => self.page(home, epoch + 1),
            None if node.birth() < epoch => self.undecided.push((Undecided::Node(node), epoch + 1)),
            None => {}
        }
    }

    /// A piece is no longer part of any value of the current trees.
    pub(crate) fn piece(&mut self, piece: &Piece, epoch: u64) {
        match piece.home() {
            Some(offset) => self.space(Retired {
                offset,
                len: u64::from(piece.len()),
                birth: piece.birth(),
                death: epoch + 1,
            }),
            None if piece.may_settle(epoch) => {
                self.undecided.push((Undecided::Piece(piece.clone()), epoch + 1));
            }
            None => {}
        }
    }

    /// All pieces of `old` that `new` does not share.
    pub(crate) fn chain(&mut self, old: &Chain, new: Option<&Chain>, epoch: u64) {
        for piece in old.pieces() {
            if !new.is_some_and(|new| new.pieces().iter().any(|kept| kept.same(piece))) {
                self.piece(piece, epoch);
            }
        }
    }

    /// Decides on everything whose home may have been set meanwhile. No checkpoint may be running.
    fn decide(&mut self) {
        for (item, death) in std::mem::take(&mut self.undecided) {
            match item {
                Undecided::Node(node) => {
                    if let Some(home) = node.home() {
                        self.page(home, death);
                    }
                }
                Undecided::Piece(piece) => {
                    if let Some(offset) = piece.home() {
                        let len = u64::from(piece.len());
                        self.space.push(Retired { offset, len, birth: piece.birth(), death });
                    }
                }
            }
        }
    }

    /// Takes everything out, in no time; whoever does looks through it while writers go on.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Puts back what was taken and is still needed.
    pub(crate) fn put_back(&mut self, retired: impl IntoIterator<Item = Retired>) {
        self.space.extend(retired);
    }

    /// What was taken, decided; see [`RetiredList::decide`].
    pub(crate) fn decided(mut self) -> Vec<Retired> {
        self.decide();
        self.space
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Retired> {
        self.space.iter()
    }
}
