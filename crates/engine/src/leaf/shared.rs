//! A reference-counted leaf: one word that points at a frame, or at an allocation of its own for the larger
//! sizes.
//!
//! As `Arc`, with three differences: the pointer is thin, leaves of the regular size come from
//! [`crate::frames`], and there are no weak references, so that asking whether a leaf is shared costs one
//! load.
//!
//! Invariant: a leaf lives as long as `owners` is above zero, and `owners` counts its `SharedLeaf`s.
#![allow(unsafe_code)]

use super::{CLASSES, Leaf, LeafOf};
use crate::frames::{self, FRAME_BYTES, Purpose};
use crate::meter::Counted;
use crate::node::HomeCell;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Under sanitizers every leaf has an allocation of its own, so that they can track it.
const OWN_MEMORY: bool = cfg!(any(miri, atoll_plain_memory));

/// The head of a leaf, without its words.
type Head = LeafOf<[u64; 0]>;

const _: () = assert!(FRAME_BYTES == size_of::<Head>() + CLASSES[0] * size_of::<u64>());

/// With more owners than this, references are being leaked, and the count might wrap around to zero.
const OWNERS_MAX: usize = isize::MAX as usize;

/// A reference-counted leaf.
pub(crate) struct SharedLeaf(NonNull<Head>);

const fn is_shareable<T: Send + Sync + ?Sized>() {}
const _: () = is_shareable::<Leaf>();

// SAFETY: as for `Arc`: a leaf can be shared and sent, as was just asserted, and the count is atomic.
unsafe impl Send for SharedLeaf {}
// SAFETY: as above.
unsafe impl Sync for SharedLeaf {}

impl SharedLeaf {
    /// A leaf with this many words, one of the size classes, and without records.
    pub(super) fn allocate(words: usize, birth: u64, purpose: Purpose) -> Self {
        let memory = if in_frame(words) { frames::take(purpose) } else { own_memory(layout(words)) };
        let head = memory.cast::<Head>();
        // SAFETY: the memory is as long as a head and `words` words, aligned for both, and not shared yet.
        // The words behind the head are initialised: a frame always is, and memory of its own was zeroed.
        unsafe {
            head.write(LeafOf {
                owners: AtomicUsize::new(1),
                birth,
                word_count: words as u32,
                count: 0,
                capacity: 0,
                prefix_len: 0,
                heap_start: 0,
                garbage: 0,
                vacant_chains: 0,
                chains: Vec::new(),
                counted: Counted::default(),
                home: HomeCell::default(),
                words: [],
            });
        }
        Self(head)
    }

    /// Whether it has other owners.
    pub(crate) fn is_shared(&self) -> bool {
        self.owners.load(Ordering::Acquire) > 1
    }

    /// The leaf, mutably, unless it is shared.
    pub(crate) fn get_mut(&mut self) -> Option<&mut Leaf> {
        if self.is_shared() {
            return None;
        }
        // SAFETY: this is the only owner, mutably borrowed, so no other thread can read the leaf or become
        // an owner meanwhile; the acquiring load above synchronises with the release of former owners.
        Some(unsafe { &mut *self.whole() })
    }

    /// Its address.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Prefetches the first lines of the leaf.
    pub(crate) fn prefetch(&self, lines: usize) {
        atoll_buffer::prefetch(self.0.as_ptr(), lines);
    }

    /// The leaf with its words.
    pub(super) fn whole(&self) -> *mut Leaf {
        // SAFETY: the head lives as long as an owner; the field is read by address, and nothing writes it.
        let words = unsafe { (&raw const (*self.0.as_ptr()).word_count).read() } as usize;
        // A pointer to a slice is an address and a length, and so is one to a struct that ends in a slice.
        std::ptr::slice_from_raw_parts_mut(self.0.as_ptr().cast::<u64>(), words) as *mut Leaf
    }
}

impl Deref for SharedLeaf {
    type Target = Leaf;

    fn deref(&self) -> &Leaf {
        // SAFETY: the leaf lives as long as an owner, and is changed only through the one owner, borrowed.
        unsafe { &*self.whole() }
    }
}

impl Clone for SharedLeaf {
    fn clone(&self) -> Self {
        // Relaxed: a new owner on another thread gets it through a channel that orders all earlier writes.
        if self.owners.fetch_add(1, Ordering::Relaxed) > OWNERS_MAX {
            std::process::abort();
        }
        Self(self.0)
    }
}

impl Drop for SharedLeaf {
    fn drop(&mut self) {
        if self.owners.fetch_sub(1, Ordering::Release) > 1 {
            return;
        }
        // Accesses by other owners happen before the memory is reused.
        fence(Ordering::Acquire);
        let (leaf, words) = (self.whole(), self.words.len());
        // SAFETY: the last owner is gone, so nothing refers to the leaf; its memory came from where it goes.
        unsafe {
            (*leaf).let_go_of_chains();
            std::ptr::drop_in_place(leaf);
            if in_frame(words) {
                frames::give(self.0.cast());
            } else {
                dealloc(self.0.as_ptr().cast(), layout(words));
            }
        }
    }
}

fn in_frame(words: usize) -> bool {
    words == CLASSES[0] && !OWN_MEMORY
}

fn layout(words: usize) -> Layout {
    let bytes = size_of::<Head>() + words * size_of::<u64>();
    match Layout::from_size_align(bytes, align_of::<Head>()) {
        Ok(layout) => layout,
        Err(_) => unreachable!("no class is that large"),
    }
}

fn own_memory(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::Record;
    use crate::value::Stored;

    fn leaf(words: usize) -> SharedLeaf {
        let value = vec![7; words * 4];
        let key = b"key".as_slice();
        let record = Record { key: [key, &[]], fingerprint: 9, value: Stored::Inline(&value) };
        Leaf::build(&[], 5, &[record], 0, Purpose::Writing)
    }

    #[test]
    fn the_last_owner_ends_it_and_only_a_sole_owner_may_change_it() {
        for words in CLASSES {
            let mut first = leaf(words);
            assert_eq!(first.words.len(), words);
            assert!(first.get_mut().is_some());
            let second = first.clone();
            assert!(first.get_mut().is_none() && second.is_shared());
            assert_eq!(second.len(), 1);
            drop(second);
            assert!(first.get_mut().is_some_and(|leaf| leaf.find(b"key", 9) == Some(0)));
        }
    }

    #[test]
    fn chains_of_a_leaf_go_with_its_last_owner() {
        let piece = crate::value::Piece::on_disk(4096, 300, 1, 1);
        let chain = crate::value::Chain::One(piece);
        let record = Record { key: [b"key", &[]], fingerprint: 9, value: Stored::Chain(&chain) };
        let first = Leaf::build(&[], 5, &[record], 0, Purpose::Writing);
        let forked = first.fork(6);
        let owners = chain.pieces()[0].owners();
        drop(first.clone());
        assert_eq!(chain.pieces()[0].owners(), owners);
        drop(first);
        assert_eq!(chain.pieces()[0].owners(), owners - 1);
        drop(forked);
        assert_eq!(chain.pieces()[0].owners(), owners - 2);
    }

    #[test]
    fn owners_on_many_threads_are_all_counted() {
        let shared = leaf(CLASSES[0]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mine = shared.clone();
                scope.spawn(move || {
                    let clones: Vec<SharedLeaf> = (0..500).map(|_| mine.clone()).collect();
                    assert!(clones.iter().all(|leaf| leaf.len() == 1 && leaf.birth == 5));
                });
            }
        });
        assert!(!shared.is_shared());
    }
}
