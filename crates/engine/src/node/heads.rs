//! Sorted integers, with a quick search.
//!
//! Every eighth integer is a mark, and every eighth mark a top. A search counts the smaller ones among eight,
//! three times: three steps that wait for memory instead of nine, and no branch that a processor would have
//! to predict.
//!
//! Invariant: a mark is the last of eight integers, a top the last of eight marks; a remainder at the end has
//! none.

/// Integers compared at once: as many as fit into a cache line.
pub(super) const COMPARED_AT_ONCE: usize = 8;

/// Sorted integers.
#[derive(Clone, Default)]
pub(super) struct Heads {
    all: Vec<u64>,
    marks: Vec<u64>,
    tops: Vec<u64>,
}

impl Heads {
    pub(super) fn as_slice(&self) -> &[u64] {
        &self.all
    }

    pub(super) fn insert(&mut self, index: usize, head: u64) {
        self.all.insert(index, head);
        self.mark();
    }

    pub(super) fn replace(&mut self, heads: impl Iterator<Item = u64>) {
        self.all.clear();
        self.all.extend(heads);
        self.mark();
    }

    fn mark(&mut self) {
        let last_of_each = |of: &[u64], to: &mut Vec<u64>| {
            to.clear();
            to.extend(of.chunks_exact(COMPARED_AT_ONCE).map(|together| together[COMPARED_AT_ONCE - 1]));
        };
        last_of_each(&self.all, &mut self.marks);
        last_of_each(&self.marks, &mut self.tops);
    }

    /// How many are below `head`. Before the last step, `near` is called with the first index that this step
    /// compares.
    #[inline]
    pub(super) fn below(&self, head: u64, near: impl FnOnce(usize)) -> usize {
        let top = count_below(&self.tops, head) * COMPARED_AT_ONCE;
        let mark = (top + count_among(&self.marks, top, head)) * COMPARED_AT_ONCE;
        near(mark);
        mark + count_among(&self.all, mark, head)
    }
}

/// How many of the eight integers from `from` on, or of as many as there are, are below `head`.
#[inline]
fn count_among(of: &[u64], from: usize, head: u64) -> usize {
    let rest = of.get(from..).unwrap_or_default();
    match rest.first_chunk::<COMPARED_AT_ONCE>() {
        Some(together) => count_below(together, head),
        None => count_below(rest, head),
    }
}

#[inline(always)]
fn count_below(of: &[u64], head: u64) -> usize {
    of.iter().map(|&other| usize::from(other < head)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_below_as_a_plain_search_counts() {
        for len in (0..140).chain([511, 512, 513, 600]) {
            let mut heads = Heads::default();
            // Some are equal.
            heads.replace((0..len).map(|number| number / 3 * 10 + 5));
            for head in 0..len / 3 * 10 + 20 {
                let expected = heads.as_slice().iter().filter(|&&other| other < head).count();
                let mut told = None;
                assert_eq!(heads.below(head, |from| told = Some(from)), expected, "{len}, {head}");
                let from = told.unwrap_or(usize::MAX);
                assert!((from..=from + COMPARED_AT_ONCE).contains(&expected), "{len}, {head}, told {from}");
            }
        }
    }

    #[test]
    fn what_is_inserted_is_found() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut heads = Heads::default();
        for _ in 0..600 {
            let head = random.u64(..1000);
            let index = heads.below(head, |_| ());
            heads.insert(index, head);
            assert!(heads.as_slice().is_sorted());
        }
    }
}
