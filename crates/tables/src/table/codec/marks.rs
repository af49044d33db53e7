//! Marks as JSON: a number, and the attempts whose first rows it stands for.

use super::{FORMAT, TableError, damaged, from_json, id_to_text, to_json};
use crate::protocol::{AttemptId, RunId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Serialize, Deserialize)]
struct StoredMark {
    format: u64,
    mark: String,
    /// Runs and the numbers of their attempts.
    attempts: Vec<(String, u64)>,
}

pub(in crate::table) fn mark_to_json(mark: u128, attempts: &BTreeSet<AttemptId>) -> String {
    let attempts = attempts.iter().map(|one| (one.run.to_string(), one.attempt)).collect();
    to_json(&StoredMark { format: FORMAT, mark: id_to_text(mark), attempts })
}

pub(in crate::table) fn mark_from_json(
    table: &str,
    text: &[u8],
) -> Result<(u128, Vec<AttemptId>), TableError> {
    let stored: StoredMark = from_json(table, "a mark", text)?;
    let mark =
        u128::from_str_radix(&stored.mark, 16).map_err(|_| damaged(table, "a mark is not a number"))?;
    let attempt = |(run, attempt): (String, u64)| AttemptId { run: RunId::from(run.as_str()), attempt };
    Ok((mark, stored.attempts.into_iter().map(attempt).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_stored_in_bytes_that_stay_the_same_and_read_beside_fields_of_later_releases() {
        let attempts = [("a", 1), ("b \"2\"", u64::MAX)];
        let attempts = attempts.map(|(run, attempt)| AttemptId { run: run.into(), attempt });
        let set: BTreeSet<AttemptId> = attempts.iter().cloned().collect();
        let text = r#"{"format":1,"mark":"00000000000000000000000000000007","attempts":[["a",1],["b \"2\"",18446744073709551615]]}"#;
        assert_eq!(mark_to_json(7, &set), text);
        let later = text.replace("\"mark\"", "\"of\":[\"later\"],\"mark\"");
        for text in [text, later.as_str()] {
            assert_eq!(mark_from_json("run", text.as_bytes()).unwrap(), (7, attempts.to_vec()));
        }
        let error = mark_from_json("run", text.replace("07\"", "0x\"").as_bytes()).unwrap_err();
        assert!(matches!(error, TableError::Damaged { .. }), "{error}");
        assert!(mark_from_json("run", b"{\"format\":1}").is_err());
    }
}
