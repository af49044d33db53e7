//! A client's memory of a partition that it wrote: the head and small cells, so that a client that writes
//! alone need not read before each write.
//!
//! Invariant: what is remembered is true while the head stands, because a cell that has a value never changes
//! without the head, and every batch is conditional on the head. Absent cells are never remembered: `create`
//! adds them without touching the head, so the database itself checks conditions of absence.
//! Invariant: memory alone never refuses a write: before a conflict is reported, the cells are read.

use crate::cells::{Piece, Pieces};
use crate::codec::{Body, FLAG_COMPOUND, PartitionHead};
use crate::plan::{Plan, View};
use atoll_store::{Batch, Condition, ErrorKind, Mutation, SortKey, StoreError};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// The longest value that is remembered, and the total for one partition.
const VALUE_BYTES_MAX: usize = 1 << 10;
const BYTES_MAX: usize = 4 << 10;

/// How many writes read first after another client was found to write too.
const CAUTION: u8 = 8;

/// The remembered state of a partition.
#[derive(Debug, Default)]
pub(crate) struct Known {
    head: Option<PartitionHead>,
    cells: HashMap<SortKey, Pieces>,
    bytes: usize,
    caution: u8,
    /// When the last write was given up because the cluster did not answer; none if it ended otherwise.
    given_up: Option<Instant>,
}

impl Known {
    /// Forgets everything, as none of it may hold any longer.
    pub(crate) fn forget(&mut self) {
        self.head = None;
        self.forget_cells();
    }

    fn forget_cells(&mut self) {
        self.cells.clear();
        self.bytes = 0;
    }

    /// Notes that a write ended, successfully or with this error.
    pub(crate) fn ended(&mut self, error: Option<&StoreError>, now: Instant) {
        let is_silent =
            |error: &StoreError| matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut);
        self.given_up = error.filter(|error| is_silent(error)).map(|_| now);
    }

    /// Whether a write that has waited since `asked` for the writes before it has waited in vain: the last of
    /// them got no answer, and the wait took as long as the write would itself try.
    pub(crate) fn is_in_vain(&self, asked: Instant, time_out: Duration) -> bool {
        self.given_up.is_some_and(|given_up| given_up.saturating_duration_since(asked) >= time_out)
    }

    /// Notes that another writer made a version meanwhile.
    pub(crate) fn was_overtaken(&mut self) {
        self.forget();
        self.caution = CAUTION;
    }

    /// The head and the cells that the batch needs, if all of them are remembered.
    pub(crate) fn recall(&mut self, batch: &Batch) -> Option<(PartitionHead, View)> {
        let head = self.head?;
        if self.caution > 0 {
            self.caution -= 1;
            return None;
        }
        let is_simple = head.flags & FLAG_COMPOUND == 0;
        let is_known = |sort: &SortKey| self.cells.contains_key(sort);
        let can_judge = |condition: &Condition| match condition {
            Condition::Absent(_) => true,
            Condition::Equals(sort, _) => is_known(sort),
        };
        let can_apply = |mutation: &Mutation| match mutation {
            Mutation::Put(sort, _) => is_simple || is_known(sort),
            Mutation::Append(sort, _) | Mutation::Delete(sort) => is_known(sort),
            Mutation::DeleteRange(_) => false,
        };
        let is_enough = !batch.mutations.is_empty()
            && batch.conditions.iter().all(can_judge)
            && batch.mutations.iter().all(can_apply);
        if !is_enough {
            return None;
        }
        let named =
            batch.conditions.iter().map(Condition::sort).chain(batch.mutations.iter().filter_map(sort_of));
        let cells = named.filter_map(|sort| self.cells.get_key_value(sort));
        let cells = cells.map(|(sort, pieces)| (sort.clone(), pieces.clone())).collect();
        Some((head, View { cells, ..View::default() }))
    }

    /// Takes in that a batch was applied to what was read under the head `before`.
    pub(crate) fn learn(
        &mut self,
        before: Option<PartitionHead>,
        head: PartitionHead,
        view: View,
        plan: &Plan,
    ) {
        if self.head != before {
            // This client does not know what the versions in between changed.
            self.forget();
        }
        self.head = Some(head);
        for (sort, pieces) in view.cells {
            self.remember(sort, pieces);
        }
        for sort in plan.changed() {
            self.drop_cell(sort);
        }
        if !plan.ranges().is_empty() {
            self.forget_cells();
        }
        for (sort, piece) in plan.whole_cells() {
            self.remember(sort.clone(), vec![piece]);
        }
    }

    /// Takes in that this is the head, and forgets everything else.
    pub(crate) fn learn_head(&mut self, head: Option<PartitionHead>) {
        self.forget();
        self.head = head;
    }

    fn remember(&mut self, sort: SortKey, pieces: Pieces) {
        let Some(bytes) = bytes_of(&sort, &pieces).filter(|bytes| *bytes <= VALUE_BYTES_MAX) else { return };
        self.drop_cell(&sort);
        if self.bytes + bytes > BYTES_MAX {
            self.forget_cells();
        }
        self.bytes += bytes;
        self.cells.insert(sort, pieces);
    }

    fn drop_cell(&mut self, sort: &SortKey) {
        if let Some(pieces) = self.cells.remove(sort) {
            self.bytes -= bytes_of(sort, &pieces).unwrap_or(0);
        }
    }
}

fn sort_of(mutation: &Mutation) -> Option<&[u8]> {
    match mutation {
        Mutation::Put(sort, _) | Mutation::Append(sort, _) | Mutation::Delete(sort) => Some(sort),
        Mutation::DeleteRange(_) => None,
    }
}

/// The size of a cell whose value was read and lies in its single row; none for all others.
fn bytes_of(sort: &SortKey, pieces: &[Piece]) -> Option<usize> {
    match pieces {
        [Piece { number: 0, head, sealed: Some(sealed) }] if head.body == Body::Inline => {
            Some(sort.len() + sealed.len())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{PieceHead, checksum, sealed};

    fn cell(value: &[u8]) -> Pieces {
        let head = PieceHead {
            checksum: checksum(value),
            bytes: value.len() as u64,
            body: Body::Inline,
            is_created: false,
        };
        vec![Piece { number: 0, head, sealed: Some(sealed(checksum(value), value).into()) }]
    }

    fn knowing(flags: u8) -> Known {
        let mut known = Known::default();
        let view = View { cells: [(b"a".to_vec(), cell(b"1"))].into(), ..View::default() };
        known.learn(None, PartitionHead { version: 3, attempt: 9, flags }, view, &Plan::default());
        known
    }

    #[test]
    fn who_waited_for_writes_without_an_answer_as_long_as_for_one_of_its_own_waits_no_longer() {
        let (start, time_out) = (Instant::now(), Duration::from_secs(15));
        let after = |seconds| start + Duration::from_secs(seconds);
        let stranger = StoreError::Unauthenticated { place: "c".to_owned() };
        let reason = "no node answers".to_owned();
        let silent = StoreError::Unavailable { place: "c".to_owned(), reason, source: None };
        let mut known = Known::default();
        assert!(!known.is_in_vain(start, time_out), "nothing ended yet");
        known.ended(Some(&silent), after(20));
        assert!(known.is_in_vain(after(5), time_out));
        assert!(!known.is_in_vain(after(6), time_out), "it has time left");
        assert!(!known.is_in_vain(after(21), time_out), "it came later, and may find that nodes are back");
        known.ended(Some(&stranger), after(40));
        assert!(!known.is_in_vain(start, time_out), "that was another reason");
        known.ended(Some(&silent), after(60));
        known.ended(None, after(61));
        assert!(!known.is_in_vain(start, time_out), "somebody answers by now");
    }

    #[test]
    fn what_is_remembered_lets_through_what_it_can_judge_and_nothing_else() {
        let on = || Batch::on(*b"p");
        let enough = [
            on().if_equals(*b"a", b"1".to_vec()).put(*b"a", b"2".to_vec()),
            on().if_absent(*b"b").if_equals(*b"a", b"1".to_vec()).put(*b"b", b"2".to_vec()),
            on().append(*b"a", b"2".to_vec()),
            on().delete(*b"a"),
        ];
        let too_little = [
            on().if_equals(*b"b", b"1".to_vec()).put(*b"a", b"2".to_vec()),
            on().append(*b"b", b"2".to_vec()),
            on().delete(*b"b"),
            on().delete_range(atoll_store::SortRange::all()),
            on().if_absent(*b"b"),
        ];
        for batch in enough {
            let (head, view) = knowing(0).recall(&batch).expect("it is remembered");
            assert_eq!((head.version, view.cells.contains_key(&b"b"[..])), (3, false), "{batch:?}");
        }
        for batch in too_little {
            assert!(knowing(0).recall(&batch).is_none(), "{batch:?}");
        }
        // If cells may have chunks, an unknown cell must be read before it is replaced.
        assert!(knowing(FLAG_COMPOUND).recall(&on().put(*b"b", b"2".to_vec())).is_none());
        assert!(knowing(FLAG_COMPOUND).recall(&on().put(*b"a", b"2".to_vec())).is_some());
    }

    #[test]
    fn cells_of_an_older_head_are_forgotten_when_another_client_wrote_in_between() {
        let head = |version| PartitionHead { version, attempt: 9, flags: 0 };
        let batch = Batch::on(*b"p").if_equals(*b"a", b"1".to_vec()).put(*b"b", b"2".to_vec());
        let mut known = knowing(0);
        known.learn(Some(head(3)), head(4), View::default(), &Plan::default());
        assert!(known.recall(&batch).is_some());
        known.learn(Some(head(5)), head(6), View::default(), &Plan::default());
        assert!(known.recall(&batch).is_none());
    }

    #[test]
    fn who_was_overtaken_asks_for_a_while() {
        let mut known = knowing(0);
        let batch = Batch::on(*b"p").put(*b"a", b"2".to_vec());
        known.was_overtaken();
        for _ in 0..CAUTION {
            known.learn_head(Some(PartitionHead { version: 1, attempt: 1, flags: 0 }));
            assert!(known.recall(&batch).is_none());
        }
        assert!(known.recall(&batch).is_some());
    }

    #[test]
    fn little_is_remembered_of_each_partition() {
        let mut known = knowing(0);
        for number in 0..100_u8 {
            known.remember(vec![number], cell(&[number; 300]));
            known.remember(vec![number, 1], cell(&[number; VALUE_BYTES_MAX]));
            let held: usize = known.cells.iter().filter_map(|(sort, pieces)| bytes_of(sort, pieces)).sum();
            assert!(held == known.bytes && held <= BYTES_MAX, "{held} bytes, {} counted", known.bytes);
        }
        assert!(known.cells.keys().all(|sort| sort.len() == 1), "long values are not remembered");
    }
}
