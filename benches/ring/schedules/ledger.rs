//! The line of JSON that a soak prints for each schedule that ended: `cargo xtask soak` adds it to the
//! ledger, with the commit and the date.

use super::Outcome;
use serde_json::json;
use std::collections::BTreeMap;

/// Raised when the promises that are checked change.
const FORMAT: u64 = 2;

/// The line of a schedule.
pub fn line(outcome: &Outcome, seconds: u64) -> String {
    let mut faults: BTreeMap<&str, u64> = BTreeMap::new();
    for fault in &outcome.plan.faults {
        *faults.entry(fault.kind.name()).or_default() += 1;
    }
    let (counts, shared) = (&outcome.counts, &outcome.shared);
    let judged: Vec<_> = outcome.service.judged().collect();
    let line = json!({
        "soak": "ring-schedules",
        "format": FORMAT,
        "seed_from": outcome.plan.seed,
        "seeds": 1,
        "failures": u64::from(!outcome.is_well()),
        "seconds": seconds,
        "faults": faults,
        "acknowledged": counts.acknowledged,
        "refused": counts.refused,
        "unknown": counts.unknown,
        "reads": counts.reads,
        "lost": counts.lost,
        "stale": counts.stale,
        "foreign": counts.foreign,
        "unanswered": counts.unanswered,
        "shared": {
            "operations": shared.operations(),
            "done": shared.done,
            "refused": shared.refused,
            "unknown": shared.unknown,
            "unread": shared.unread,
            "repeated": shared.repeated,
            "done_before": shared.done_before,
            "linearizable": shared.linearizable,
            "broken": shared.broken,
            "undecided": shared.undecided,
        },
        // The requests of the majority's side from three seconds after each cut on that can be judged.
        "majority": {
            "cuts": judged.len(),
            "requests": judged.iter().map(|cut| cut.requests).sum::<u64>(),
            "succeeded": judged.iter().map(|cut| cut.succeeded).sum::<u64>(),
            "wrong_reads": outcome.service.wrong_reads,
        },
    });
    line.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_line_tells_which_seed_ran_how_it_ended_and_what_happened() {
        let mut outcome = super::super::tests::outcome(8);
        let told = |outcome: &Outcome| -> Value { serde_json::from_str(&line(outcome, 30)).unwrap() };
        let well = told(&outcome);
        let of = |line: &Value, name: &str| line[name].as_u64();
        assert_eq!(well["soak"], "ring-schedules");
        let named = ["seed_from", "seeds", "failures", "seconds"].map(|name| of(&well, name));
        assert_eq!(named, [Some(8), Some(1), Some(0), Some(30)]);
        let faults: u64 = well["faults"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(faults, outcome.plan.faults.len() as u64);
        let majority = ["cuts", "requests", "succeeded"].map(|name| of(&well["majority"], name));
        assert_eq!(majority, [Some(1), Some(400), Some(396)]);
        outcome.shared.broken = 1;
        let broken = told(&outcome);
        assert_eq!((of(&broken, "failures"), of(&broken["shared"], "broken")), (Some(1), Some(1)));
        assert!(!broken.to_string().contains('\n'), "one line");
    }
}
