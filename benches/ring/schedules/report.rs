//! The report of random schedules: a line for each, how often each fault occurred, and the bars.

use super::plan::{Keeping, Kind, Share};
use super::{Findings, HOSTS, Outcome};
use crate::phases::is_failure;
use crate::report::{Row, median};
use std::collections::BTreeMap;

/// With at least this many schedules, a fault that never occurred is a failure.
const COUNT_TO_SEE_ALL: usize = 20;
/// The share of writes that must have a definite outcome.
const DEFINITE_MIN: f64 = 0.6;

/// In a run of more schedules than this, that none of them had a cut to judge the majority's service by is a
/// failure. A single one is a repetition, and most have none.
const COUNT_UNJUDGED_MAX: usize = 1;

/// If it takes longer than this until every slot serves, the report says what held the last ones up.
const LONG_SECONDS: f64 = 3.0;

/// Prints one schedule when it ends.
pub fn print_one(outcome: &Outcome) {
    let (counts, plan) = (&outcome.counts, &outcome.plan);
    let seconds = |of: Option<f64>| of.map_or("never".to_owned(), |seconds| format!("{seconds:.1} s"));
    println!(
        "  seed {:>4}  {}\n             {} acknowledged, {} refused, {} unknown, {} reads; lost {}, stale {}, foreign {}, \
         unanswered {}; serves after {}, whole after {}",
        plan.seed,
        plan,
        counts.acknowledged,
        counts.refused,
        counts.unknown,
        counts.reads,
        counts.lost,
        counts.stale,
        counts.foreign,
        counts.unanswered,
        seconds(outcome.served_seconds),
        seconds(outcome.whole_seconds),
    );
    let shared = &outcome.shared;
    println!(
        "             shared keys: {} operations, {} answered, {} refused, {} unknown, {} repeated by name ({} done \
         before); histories: {} linearizable, {} not, {} undecided",
        shared.operations(),
        shared.done,
        shared.refused,
        shared.unknown + shared.unread,
        shared.repeated,
        shared.done_before,
        shared.linearizable,
        shared.broken,
        shared.undecided,
    );
    println!("             {}", service(outcome));
    if outcome.served_seconds.is_some_and(|seconds| seconds > LONG_SECONDS) && !outcome.held_up_by.is_empty()
    {
        println!("             held up by {}", outcome.held_up_by);
    }
    if outcome.is_well() {
        return;
    }
    let why = outcome.problem.iter().chain(&outcome.crashes).chain(&outcome.told);
    for words in why.chain(&outcome.shared.told).chain(&outcome.service.told) {
        println!("             {words}");
    }
    if let Some(kept) = &outcome.kept {
        println!("             logs and stores are kept in {}", kept.display());
    }
    println!("             again: cargo xtask bench ring --phases schedules --schedule-seed {}", plan.seed);
}

/// What the majority's side got from three seconds after each cut until it healed.
fn service(outcome: &Outcome) -> String {
    let judged: Vec<String> = outcome
        .service
        .judged()
        .map(|cut| {
            let (percent, host, seconds) = (cut.percent(), cut.host, cut.milliseconds as f64 / 1_000.0);
            format!("{percent:.1} % of {} requests in {seconds:.1} s without host {host}", cut.requests)
        })
        .collect();
    match judged.as_slice() {
        [] => "majority: not judged, for no host is cut off for long enough while the others are well"
            .to_owned(),
        judged => format!("majority, from 3 s after a cut on: {}", judged.join("; ")),
    }
}

/// Prints how often each fault occurred.
pub fn print(findings: &Findings) {
    println!("Random schedules: {} of them", findings.outcomes.len());
    let shown: Vec<String> =
        occurrences(findings).into_iter().map(|(name, count)| format!("{name} {count}")).collect();
    println!("  {}", shown.join(", "));
    println!("  {:.1} % of the writes ended definitely", definite(findings) * 100.0);
    if let Some(calm) = median(findings.outcomes.iter().filter_map(|outcome| outcome.calm_seconds)) {
        println!("  writing every slot once takes {calm:.1} s when nothing is the matter, the median");
    }
    let of = |count: fn(&super::shared::Judged) -> u64| -> u64 {
        findings.outcomes.iter().map(|outcome| count(&outcome.shared)).sum()
    };
    println!(
        "  shared keys: {} operations, {} answered, {} repeated by name; histories: {} linearizable, {} not, {} undecided",
        of(|shared| shared.operations()),
        of(|shared| shared.done),
        of(|shared| shared.repeated),
        of(|shared| shared.linearizable),
        of(|shared| shared.broken),
        of(|shared| shared.undecided),
    );
    let (judged, all) = (judged(findings), findings.outcomes.len());
    match lowest(findings) {
        Some(lowest) => println!(
            "  majority: judged in {judged} of {all} schedules; from 3 s after a cut on at least {lowest:.1} % of its \
             requests succeeded"
        ),
        None => println!("  majority: judged in none of {all} schedules"),
    }
    if let Some(why) = &findings.missing {
        println!("  missing: {why}");
    }
    println!("  one again: cargo xtask bench ring --phases schedules --schedule-seed N\n");
}

/// Whether nothing of Atoll's was wrong and all schedules completed; if none were offered, nothing can be
/// wrong.
pub fn is_right(findings: &Findings) -> bool {
    let is_whole = match &findings.missing {
        Some(why) => !is_failure(why),
        None => !findings.outcomes.is_empty(),
    };
    is_whole
        && findings.outcomes.iter().all(Outcome::is_well)
        && unseen(findings).is_empty()
        && !is_unjudged(findings)
}

/// In how many schedules the majority's service could be judged.
fn judged(findings: &Findings) -> usize {
    findings.outcomes.iter().filter(|outcome| outcome.service.lowest().is_some()).count()
}

/// The least percentage of the majority's requests that succeeded after a cut.
fn lowest(findings: &Findings) -> Option<f64> {
    findings.outcomes.iter().filter_map(|outcome| outcome.service.lowest()).reduce(f64::min)
}

/// Whether no schedule of a run could judge it, although one had to.
fn is_unjudged(findings: &Findings) -> bool {
    findings.outcomes.len() > COUNT_UNJUDGED_MAX && judged(findings) == 0
}

/// How often each fault occurred, and in which rings.
fn occurrences(findings: &Findings) -> BTreeMap<&'static str, usize> {
    let mut occurrences: BTreeMap<&'static str, usize> =
        Kind::ALL.into_iter().map(|kind| (kind.name(), 0)).collect();
    let others =
        ["kills in memory", "schedules at memory", "schedules at flushed", "schedules with a majority gone"];
    occurrences.extend(others.map(|name| (name, 0)));
    let mut add = |name: &'static str, count: usize| *occurrences.entry(name).or_default() += count;
    for outcome in &findings.outcomes {
        let plan = &outcome.plan;
        let is_memory = plan.keeping == Keeping::Memory;
        for fault in &plan.faults {
            add(fault.kind.name(), 1);
            add("kills in memory", usize::from(is_memory && fault.kind == Kind::Kill));
        }
        add(if is_memory { "schedules at memory" } else { "schedules at flushed" }, 1);
        add("schedules with most nodes killed at once", usize::from(plan.most_dead() > HOSTS / 2));
        add("schedules with all nodes killed at once", usize::from(plan.most_dead() == HOSTS));
        let is_majority = plan.share == Share::Majority && plan.has_majority_gone();
        add("schedules with a majority gone", usize::from(is_majority));
    }
    occurrences
}

/// The faults that never occurred, although they had to.
fn unseen(findings: &Findings) -> Vec<&'static str> {
    if findings.outcomes.len() < COUNT_TO_SEE_ALL {
        return Vec::new();
    }
    occurrences(findings).into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
}

fn definite(findings: &Findings) -> f64 {
    let sum = |of: fn(&Outcome) -> u64| findings.outcomes.iter().map(of).sum::<u64>() as f64;
    let known = sum(|outcome| outcome.counts.acknowledged + outcome.counts.refused);
    known / (known + sum(|outcome| outcome.counts.unknown)).max(1.0)
}

/// What spoils every bar, if anything.
fn spoiled(findings: &Findings) -> Option<String> {
    if let Some(why) = &findings.missing {
        return Some(why.clone());
    }
    let unseen = unseen(findings);
    if !unseen.is_empty() {
        return Some(format!("never occurred: {}", unseen.join(", ")));
    }
    type Count = fn(&Outcome) -> u64;
    let bad: [(&str, Count); 7] = [
        ("acknowledged writes are lost", |outcome| outcome.counts.lost),
        ("reads found less than was known", |outcome| outcome.counts.stale),
        ("histories are not linearizable", |outcome| outcome.shared.broken),
        ("reads found what was never written, or was refused", |outcome| outcome.counts.foreign),
        ("keys that nobody answers for", |outcome| outcome.counts.unanswered),
        ("histories that the checker could not decide", |outcome| outcome.shared.undecided),
        ("reads at a fixed pace found something else", |outcome| outcome.service.wrong_reads),
    ];
    let sums = bad.map(|(what, of)| (what, findings.outcomes.iter().map(of).sum::<u64>()));
    if let Some((what, count)) = sums.into_iter().find(|(_, count)| *count > 0) {
        return Some(format!("{count} {what}"));
    }
    let unfit = |outcome: &&Outcome| outcome.shared.strange > 0 || !outcome.shared.is_enough();
    if let Some(outcome) = findings.outcomes.iter().find(unfit) {
        let why = outcome.shared.told.first().cloned().unwrap_or_default();
        return Some(format!("seed {}: {why}", outcome.plan.seed));
    }
    let told = |outcome: &Outcome| {
        let why = outcome.problem.iter().chain(&outcome.crashes).next()?;
        Some(format!("seed {}: {why}", outcome.plan.seed))
    };
    if let Some(why) = findings.outcomes.iter().find_map(told) {
        return Some(why);
    }
    if let Some(outcome) = findings.outcomes.iter().find(|outcome| !outcome.service.is_well()) {
        let why = outcome.service.told.first().cloned().unwrap_or_default();
        return Some(format!("seed {}: {why}", outcome.plan.seed));
    }
    if is_unjudged(findings) {
        return Some("no cut by which the majority's service can be judged".to_owned());
    }
    if findings.outcomes.iter().any(|outcome| outcome.counts.acknowledged == 0) {
        return Some("a schedule in which nothing was acknowledged".to_owned());
    }
    (definite(findings) < DEFINITE_MIN).then(|| "most writes have no known outcome".to_owned())
}

/// The bars of this phase.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let spoiled = spoiled(findings);
    let is_measured = !findings.outcomes.is_empty();
    let sum = |of: fn(&Outcome) -> u64| findings.outcomes.iter().map(of).sum::<u64>() as f64;
    let row = |row: Row, figure: Option<f64>| {
        let mut row = row;
        row.peers = figure.map(|figure| ("atoll".to_owned(), figure)).into_iter().collect();
        row.judged(figure, spoiled.clone())
    };
    let served = || findings.outcomes.iter().filter_map(|outcome| outcome.served_seconds);
    vec![
        row(
            Row::at_most("random schedules: acknowledged writes lost", "writes", 0.0, None),
            is_measured.then(|| sum(|outcome| outcome.counts.lost)),
        ),
        row(
            Row::at_most("random schedules: reads that found less than was known", "reads", 0.0, None),
            is_measured.then(|| sum(|outcome| outcome.counts.stale)),
        ),
        row(
            Row::at_most(
                "random schedules: histories of shared keys not linearizable",
                "histories",
                0.0,
                None,
            ),
            is_measured.then(|| sum(|outcome| outcome.shared.broken)),
        ),
        row(
            Row::at_least(
                "random schedules: requests of the majority that succeed from 3 s after a cut, the least",
                "%",
                95.0,
                None,
            ),
            lowest(findings),
        ),
        row(
            Row::at_most("random schedules: every slot serves again, the longest", "s", 10.0, None),
            served().reduce(f64::max),
        ),
        row(
            Row::at_most("random schedules: every slot serves again, the median", "s", 5.0, None),
            median(served()),
        ),
    ]
}
