//! The ledger of a soak: a line of JSON for each schedule that ended, in the format of `cargo xtask soak`,
//! and the sums over them.
//!
//! Invariant: a line is complete, or it does not exist; after an interruption the soak continues with the
//! seed after the last line.

use super::Outcome;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

/// Raised when the promises that are checked change.
const FORMAT: u64 = 1;

/// The line of a schedule.
pub fn line(outcome: &Outcome, seconds: u64) -> String {
    let mut faults: BTreeMap<&str, u64> = BTreeMap::new();
    for fault in &outcome.plan.faults {
        *faults.entry(fault.kind.name()).or_default() += 1;
    }
    let (counts, shared) = (&outcome.counts, &outcome.shared);
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
    });
    line.to_string()
}

/// Adds a line with a single write.
pub fn add(file: &Path, outcome: &Outcome, seconds: u64) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all((line(outcome, seconds) + "\n").as_bytes())?;
    file.sync_data()
}

/// The lines so far.
fn lines(file: &Path) -> io::Result<Vec<Value>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::other)).collect()
}

/// The seed after the last one; `None` if none was run.
pub fn next_seed(file: &Path) -> io::Result<Option<u64>> {
    let behind = |line: &Value| Some(line.get("seed_from")?.as_u64()? + line.get("seeds")?.as_u64()?);
    Ok(lines(file)?.iter().filter_map(behind).max())
}

/// The sums of all numbers over all lines, by name.
pub fn sums(file: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    for line in lines(file)?.iter().filter(|line| line.get("format") == Some(&FORMAT.into())) {
        add_up("", line, &mut sums);
    }
    sums.remove("format");
    sums.remove("seed_from");
    Ok(sums)
}

fn add_up(before: &str, value: &Value, sums: &mut BTreeMap<String, u64>) {
    let Value::Object(fields) = value else { return };
    for (name, value) in fields {
        let name = format!("{before}{name}");
        match value.as_u64() {
            Some(number) => *sums.entry(name).or_default() += number,
            None => add_up(&format!("{name} "), value, sums),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up_and_the_next_seed_is_behind_the_last() {
        let file = std::env::temp_dir().join(format!("atoll-ledger-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&file);
        assert_eq!(next_seed(&file).unwrap(), None);
        for seed in [7, 8] {
            let mut outcome = super::super::tests::outcome(seed);
            outcome.shared.broken = seed - 7;
            add(&file, &outcome, 30).unwrap();
        }
        let (next, sums) = (next_seed(&file).unwrap(), sums(&file).unwrap());
        assert_eq!(next, Some(9));
        let of = |name: &str| sums.get(name).copied();
        assert_eq!([of("seeds"), of("seconds"), of("failures")], [Some(2), Some(60), Some(1)]);
        assert_eq!([of("shared operations"), of("shared broken")], [Some(800), Some(1)]);
        assert_eq!((of("format"), of("seed_from")), (None, None));
        std::fs::write(&file, "{half").unwrap();
        assert!(next_seed(&file).is_err(), "a line that is none is not passed over");
        std::fs::remove_file(&file).unwrap();
    }
}
