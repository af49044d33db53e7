//! Looks up the marks of attempts.

use super::super::{TableError, codec};
use super::Ledger;
use crate::protocol::{AttemptId, Cell, Version};
use std::collections::BTreeSet;
use std::sync::PoisonError;

impl Ledger {
    /// The marks of these attempts, each of which a version read before shows; those from before there were
    /// marks have none.
    ///
    /// All marks are read if one of these is not known yet: a table has one for each start of a simulation.
    pub(in crate::table) async fn marks_of(
        &self,
        attempts: BTreeSet<AttemptId>,
    ) -> Result<Vec<(AttemptId, u128)>, TableError> {
        if !self.knows_marks_of(&attempts) {
            let mut found = Vec::new();
            for (_, text) in self.cells_of(Cell::Mark(Version::EMPTY)).await? {
                let (mark, of) = codec::mark_from_json(&self.table, &text)?;
                found.extend(of.into_iter().map(|attempt| (attempt, Some(mark))));
            }
            let mut known = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
            known.extend(found);
            for attempt in &attempts {
                known.entry(attempt.clone()).or_insert(None);
            }
        }
        let known = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let marked = |attempt: AttemptId| {
            let mark = known.get(&attempt).copied().flatten();
            mark.map(|mark| (attempt, mark))
        };
        Ok(attempts.into_iter().filter_map(marked).collect())
    }

    fn knows_marks_of(&self, attempts: &BTreeSet<AttemptId>) -> bool {
        let known = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.iter().all(|attempt| known.contains_key(attempt))
    }
}
