//! A linked list of numbers: members are lifted out of it, and put back in the opposite order.

/// Before the first member.
pub(crate) const HEAD: usize = 0;

/// The members 1, 2 and so on, in this order.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    next: Vec<usize>,
    former: Vec<usize>,
}

impl Chain {
    /// A list of `count` members. What comes after the last one is `count + 1`, which comes after itself.
    pub(crate) fn new(count: usize) -> Self {
        let end = count + 1;
        Self {
            next: (1..=end).chain([end]).collect(),
            former: (0..=end).map(|at| at.saturating_sub(1)).collect(),
        }
    }

    /// The member after this one, or after the head.
    pub(crate) fn after(&self, at: usize) -> usize {
        self.next[at]
    }

    /// Takes a member out.
    pub(crate) fn lift(&mut self, at: usize) {
        let (former, next) = (self.former[at], self.next[at]);
        self.next[former] = next;
        self.former[next] = former;
    }

    /// Puts the member back that was lifted last and is not back yet.
    pub(crate) fn unlift(&mut self, at: usize) {
        let (former, next) = (self.former[at], self.next[at]);
        self.next[former] = at;
        self.former[next] = at;
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self::new(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(chain: &Chain, count: usize) -> Vec<usize> {
        let after = |at: &usize| Some(chain.after(*at));
        std::iter::successors(after(&HEAD), after).take_while(|at| *at <= count).collect()
    }

    #[test]
    fn what_was_lifted_comes_back_where_it_was() {
        let mut chain = Chain::new(4);
        assert_eq!(members(&chain, 4), [1, 2, 3, 4]);
        for (at, left) in [(2, vec![1, 3, 4]), (1, vec![3, 4]), (4, vec![3]), (3, vec![])] {
            chain.lift(at);
            assert_eq!(members(&chain, 4), left);
        }
        assert_eq!(chain.after(HEAD), 5);
        for (at, there) in [(3, vec![3]), (4, vec![3, 4]), (1, vec![1, 3, 4]), (2, vec![1, 2, 3, 4])] {
            chain.unlift(at);
            assert_eq!(members(&chain, 4), there);
        }
    }
}
