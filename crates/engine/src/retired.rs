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
    undecided: Vec<(Undecided, u64)>,
}

enum Undecided {
    Node(Node),
    Piece(Piece),
}

impl RetiredList {
    pub(crate) fn page(&mut self, home: PageRef, death: u64) {
        self.space.push(Retired { offset: home.offset, len: u64::from(home.len), birth: home.birth, death });
    }

    pub(crate) fn space(&mut self, retired: Retired) {
        self.space.push(retired);
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
            Some(offset) => self.space.push(Retired {
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
    pub(crate) fn decide(&mut self) {
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

    /// Takes out what `is_free` says nobody needs; the rest stays.
    pub(crate) fn take_free(&mut self, is_free: impl Fn(&Retired) -> bool) -> Vec<Retired> {
        let (free, kept) = std::mem::take(&mut self.space).into_iter().partition(|retired| is_free(retired));
        self.space = kept;
        free
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Retired> {
        self.space.iter()
    }
}
