//! Output for people about the machine and the bars.

use super::bars::{Row, median};
use crate::client::Operation;
use crate::machine::MachineFacts;
use crate::phases::{Findings, Measured};

/// Prints the machine and how calm it was.
pub fn print_machine(facts: &MachineFacts) {
    println!(
        "{} x {}, {:.0} GiB, Linux {}, {}, load {}{}\n",
        facts.processors,
        facts.processor,
        facts.memory_gib,
        facts.kernel,
        facts.file_system,
        facts.load,
        if facts.priority_raised { "" } else { ", priority not raised: builds beside this run will show" },
    );
}

/// Prints one line for each bar, and another one where there is a note about it.
pub fn print_rows(rows: &[Row]) {
    println!("{:<72} {:>12} {:>12} {:>9}  holds", "bar", "figure", "to resolve", "goal");
    let mut told: Option<&str> = None;
    for row in rows {
        let sign = if row.more_is_better { ">=" } else { "<=" };
        let figure = row.figure.map_or("not measured".to_owned(), |figure| with_unit(figure, row.unit));
        let goal = row.goal.map_or("-".to_owned(), |goal| with_unit(goal, row.unit));
        let target = format!("{sign} {}", with_unit(row.target, row.unit));
        let verdict = match (row.holds, row.reaches_goal()) {
            (None, _) => "-",
            (Some(false), _) => "NO",
            (Some(true), true) => "yes, goal too",
            (Some(true), false) => "yes",
        };
        println!("{:<72} {figure:>12} {target:>12} {goal:>9}  {verdict}", row.bar);
        let note = row.note.as_deref();
        // Bars of one phase usually have the same note.
        if let Some(note) = note.filter(|_| note != told) {
            println!("    {note}");
        }
        told = note;
    }
    println!();
}

fn with_unit(figure: f64, unit: &str) -> String {
    match unit {
        "x" => format!("{figure:.2}x"),
        "%" => format!("{figure:.1} %"),
        "B" => format!("{figure:.0} B"),
        "s" => format!("{figure:.1} s"),
        _ => format!("{figure:.0}"),
    }
}

/// Prints all servers' figures in one phase, as medians over its rounds; and what was wrong, missing or
/// disturbed.
pub fn print_findings(title: &str, findings: &Findings) {
    println!("{title}");
    println!(
        "{:>8} {:>3} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9}",
        "", "", "", "kop/s", "p50 us", "p99 us", "p99.9 us", "CPU us/op", "server", "client"
    );
    let mut printed: Vec<(Operation, usize, &str)> = Vec::new();
    for one in &findings.measured {
        printed.push((one.operation, one.depth, &one.server));
    }
    printed.sort_unstable_by_key(|&(operation, depth, server)| (depth, operation, server));
    printed.dedup();
    for (operation, depth, server) in printed {
        print_server(findings, operation, depth, server);
    }
    for (kind, count, first) in &findings.wrong {
        println!("{}: {count} WRONG REPLIES, the first: {first}", kind.name());
    }
    for (kind, why) in &findings.missing {
        println!("{} is missing: {why}", kind.name());
    }
    for (name, why) in &findings.failed {
        println!("{name} FAILED, and its figures are left out: {why}");
    }
    let (others, stolen) = findings.most_disturbed();
    println!(
        "`server` and `client` are processors in use; the client has one thread. Beside both, others used at most \
         {:.0} % of the machine, its host {:.0} %.\n",
        others * 100.0,
        stolen * 100.0
    );
}

fn print_server(findings: &Findings, operation: Operation, depth: usize, server: &str) {
    let middle = |figure: fn(&Measured) -> Option<f64>| {
        median(findings.of(server, operation, depth).filter_map(figure))
    };
    let shown = |figure: Option<f64>, digits: usize| {
        figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    println!(
        "{:>8} {depth:>3} {server:>10} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>9}",
        operation.name(),
        shown(middle(|one| Some(one.kilo_operations)), 1),
        shown(middle(|one| Some(one.p50_us)), 0),
        shown(middle(|one| Some(one.p99_us)), 0),
        shown(middle(|one| Some(one.p999_us)), 0),
        shown(middle(|one| one.server_cpu_us), 2),
        shown(middle(|one| one.server_processors), 2),
        shown(middle(|one| one.client_processors), 2),
    );
}
