//! Judges a store on a damaged disk. It must either report the damage or be right: it must never return a
//! wrong read or silently step back to an older state.

use crate::oracle::{Oracle, difference, show};
use crate::read::{EVERYTHING, read_state};
use crate::state::{Key, State, TREES, Value};
use crate::subject::{Direction, Failure, Recovery, Settings, Subject};
use atoll_disk::SimDisk;
use atoll_errors::ErrorKind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The states that the store may be in.
pub struct Allowed<'a> {
    /// The history.
    pub oracle: &'a Oracle,
    /// The length of the shortest prefix of the history that the store may return without a report.
    pub lowest: usize,
    /// What happened to the disk.
    pub damage: Damage,
    /// All keys that were ever touched.
    pub keys: &'a [Key],
}

/// How the disk was damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One flipped bit. It damages at most one group of the log, so a cut may not reach below a position
    /// that later groups record as synced.
    Bit,
    /// A misdirected write, which may have hit any number of groups.
    Write,
}

/// How the store dealt with the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It refused to open, with an error.
    RefusedToOpen,
    /// It reported a cut, and is in an earlier state.
    ReportedCut,
    /// It reported that it repaired a superblock, and is in the right state.
    Mended,
    /// Some reads fail; all others are right.
    PartlyReadable,
    /// All reads are right.
    Unharmed,
}

impl Finding {
    /// The name of this verdict's count after a flipped bit.
    #[must_use]
    pub const fn name_after_flip(self) -> &'static str {
        match self {
            Self::RefusedToOpen => "flips_detected_at_open",
            Self::ReportedCut => "flips_reported_as_cut",
            Self::Mended => "flips_mended",
            Self::PartlyReadable => "flips_detected_at_read",
            Self::Unharmed => "flips_harmless",
        }
    }

    /// The name of this verdict's count after a misdirected write.
    #[must_use]
    pub const fn name_after_misdirection(self) -> &'static str {
        match self {
            Self::RefusedToOpen | Self::ReportedCut | Self::Mended | Self::PartlyReadable => {
                "misdirected_detected"
            }
            Self::Unharmed => "misdirected_harmless",
        }
    }
}

/// Opens the store on a damaged disk and reads all of it.
///
/// # Errors
/// Describes the read that was wrong.
pub fn examine<S: Subject>(
    disk: &SimDisk,
    settings: &Settings,
    bug: Option<S::Bug>,
    allowed: &Allowed<'_>,
) -> Result<Finding, String> {
    let (store, report) = match S::open(Arc::new(disk.clone()), settings, bug) {
        Ok(opened) => opened,
        Err(failure) => return typed(&failure).map(|()| Finding::RefusedToOpen),
    };
    match read_state(&store) {
        Ok(found) => judge_whole(&found, &report, allowed),
        Err(failure) => {
            typed(&failure)?;
            judge_readable_part(&store, &report, allowed)?;
            match store.check() {
                Ok(0) => Err(format!("a read fails ({failure}), but check finds nothing")),
                Ok(_) => Ok(Finding::PartlyReadable),
                Err(failure) => typed(&failure).map(|()| Finding::PartlyReadable),
            }
        }
    }
}

/// Damage must be reported as damage, never as a bug of the store.
fn typed(failure: &Failure) -> Result<(), String> {
    match failure.kind {
        ErrorKind::Corrupt | ErrorKind::NewerFormat => Ok(()),
        _ => Err(format!("damage was reported as something else: {failure}")),
    }
}

fn judge_whole(found: &State, report: &Recovery, allowed: &Allowed<'_>) -> Result<Finding, String> {
    let print = found.fingerprint();
    if allowed.oracle.prefix_with(print, allowed.lowest).is_some() {
        return Ok(match report {
            Recovery { cut: Some(_), .. } => Finding::ReportedCut,
            Recovery { is_superblock_mended: true, .. } => Finding::Mended,
            Recovery { .. } => Finding::Unharmed,
        });
    }
    if !allowed.oracle.was_once(print) {
        return Err(format!(
            "wrong state, against the newest: {}",
            difference(allowed.oracle.current(), found)
        ));
    }
    match (&report.cut, allowed.damage) {
        (None, _) => Err("the store rolled back without a word".to_owned()),
        (Some(cut), Damage::Bit) if !allowed.oracle.may_be_cut_to(print) => {
            Err(format!("below a place known to be synced, damage was taken for a tail: {cut}"))
        }
        (Some(_), _) => Ok(Finding::ReportedCut),
    }
}

/// If whole scans fail, single reads must either fail or be right, and all must agree with one state.
fn judge_readable_part<S: Subject>(
    store: &S,
    report: &Recovery,
    allowed: &Allowed<'_>,
) -> Result<(), String> {
    let readable = readable_values(store, allowed.keys)?;
    let entries = readable_scans(store)?;
    // One misdirected write may damage all pages of a checkpoint; one bit damages one page.
    if allowed.damage == Damage::Bit && readable.is_empty() && entries.is_empty() {
        return Err("one damage made everything unreadable, and yet the store opened".to_owned());
    }
    judge_parts(&readable, &entries, report.cut.is_some(), allowed)
}

/// Whether all values and scans that could be read belong to one state that the store may be in.
fn judge_parts(
    readable: &[Entry],
    entries: &[Entries],
    was_cut: bool,
    allowed: &Allowed<'_>,
) -> Result<(), String> {
    let agrees = |state: &State| {
        readable.iter().all(|(tree, key, value)| state.content.get(*tree, key) == value.as_ref())
            && entries.iter().all(|(tree, found)| {
                let expected = state.content.tree(*tree);
                expected.len() == found.len()
                    && expected.iter().zip(found).all(|(l, r)| *l.0 == r.0 && *l.1 == r.1)
            })
    };
    if was_cut {
        return judge_parts_of_some_state(readable, entries, allowed.oracle);
    }
    match allowed.oracle.any_prefix(allowed.lowest, agrees) {
        true => Ok(()),
        false => Err("what can still be read belongs to no allowed state".to_owned()),
    }
}

/// After a reported cut the store may be in any earlier state, and the oracle keeps only the newest ones.
/// So every value must have been written at some time, and must be the same in a scan and in a single read.
fn judge_parts_of_some_state(readable: &[Entry], entries: &[Entries], oracle: &Oracle) -> Result<(), String> {
    let values = readable.iter().filter_map(|(tree, key, value)| Some((*tree, key, value.as_ref()?)));
    let scanned =
        entries.iter().flat_map(|(tree, found)| found.iter().map(|(key, value)| (*tree, key, value)));
    for (tree, key, value) in values.chain(scanned) {
        if !oracle.had_value(tree, key, value) {
            return Err(format!("tree {tree} key {} never had the value {}", show(key), show(value)));
        }
    }
    let scans: BTreeMap<(usize, &Key), &Value> = entries
        .iter()
        .flat_map(|(tree, found)| found.iter().map(|(key, value)| ((*tree, key), value)))
        .collect();
    let is_scanned = |wanted: usize| entries.iter().any(|(tree, _)| *tree == wanted);
    for (tree, key, value) in readable.iter().filter(|(tree, ..)| is_scanned(*tree)) {
        if scans.get(&(*tree, key)).copied() != value.as_ref() {
            return Err(format!("tree {tree} key {} is another by itself than in a scan", show(key)));
        }
    }
    Ok(())
}

type Entry = (usize, Key, Option<Value>);

fn readable_values<S: Subject>(store: &S, keys: &[Key]) -> Result<Vec<Entry>, String> {
    let mut readable = Vec::new();
    for tree in 0..TREES {
        for key in keys {
            match store.get(tree, key) {
                Ok(value) => readable.push((tree, key.clone(), value)),
                Err(failure) => typed(&failure)?,
            }
        }
    }
    Ok(readable)
}

type Entries = (usize, Vec<(Key, Value)>);

fn readable_scans<S: Subject>(store: &S) -> Result<Vec<Entries>, String> {
    let mut readable = Vec::new();
    for tree in 0..TREES {
        match store.scan(tree, &EVERYTHING, Direction::Forward, usize::MAX) {
            Ok(entries) => readable.push((tree, entries)),
            Err(failure) => typed(&failure)?,
        }
    }
    Ok(readable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Event, Mutation, RangeMove};

    fn bytes(text: &str) -> Value {
        Value::from(text.as_bytes())
    }

    fn put(key: &str, value: &str) -> Event {
        Event::Write(vec![Mutation::Put { tree: 0, key: bytes(key), value: bytes(value) }])
    }

    /// Judges what was read, where the history of "a" is "old", "new", that of "b" is "one", and "b" then
    /// moved to tree 4.
    fn judged(was_cut: bool, readable: &[(usize, &str, Option<&str>)], scans: &[Entries]) -> bool {
        let mut oracle = Oracle::default();
        let to = RangeMove::SplitOff { tree: 0, at: bytes("b"), to: 4 };
        [put("a", "old"), put("b", "one")].into_iter().for_each(|event| oracle.push(event));
        oracle.mark_synced();
        [put("a", "new"), Event::Move(to)].into_iter().for_each(|event| oracle.push(event));
        let allowed = Allowed { oracle: &oracle, lowest: 0, damage: Damage::Write, keys: &[] };
        let readable: Vec<Entry> =
            readable.iter().map(|(tree, key, value)| (*tree, bytes(key), value.map(bytes))).collect();
        judge_parts(&readable, scans, was_cut, &allowed).is_ok()
    }

    #[test]
    fn behind_a_cut_a_key_has_a_value_that_it_had_or_none() {
        assert!(judged(true, &[(0, "a", Some("old")), (0, "b", Some("one")), (4, "b", None)], &[]));
        assert!(judged(true, &[(0, "a", None), (4, "b", Some("one"))], &[]));
        assert!(!judged(true, &[(0, "a", Some("garbage"))], &[]));
        assert!(!judged(true, &[(0, "a", Some("one"))], &[]), "that of another key");
        assert!(!judged(true, &[(4, "a", Some("old"))], &[]), "of another tree");
        assert!(!judged(true, &[], &[(0, vec![(bytes("a"), bytes("garbage"))])]), "in a scan");
    }

    #[test]
    fn behind_a_cut_a_scan_shows_what_is_read_by_itself() {
        let scan = [(0, vec![(bytes("a"), bytes("old"))])];
        assert!(judged(true, &[(0, "a", Some("old")), (4, "b", Some("one"))], &scan));
        assert!(!judged(true, &[(0, "a", Some("new"))], &scan));
        assert!(!judged(true, &[(0, "a", None)], &scan));
        assert!(!judged(true, &[(0, "b", Some("one"))], &scan));
    }

    #[test]
    fn without_a_cut_all_is_of_one_state() {
        assert!(judged(false, &[(0, "a", Some("old")), (0, "b", Some("one"))], &[]));
        assert!(!judged(false, &[(0, "a", Some("old")), (4, "b", Some("one"))], &[]), "of two");
    }
}
