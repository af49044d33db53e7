//! The bars of scale, and the report for people.

use super::large::{SIZE_MAX, Size};
use super::network::Shape;
use super::{Compared, FITTED, Findings, middle};
use crate::phases::is_failure;
use crate::report::Row;

/// How many processors other processes may use during measurements.
const OTHERS_MAX: f64 = 0.2;

/// The error of the model, in percent.
type Off = fn(&Compared) -> f64;

/// The round whose model error is the median, with its sign: errors of both signs are not the same as being
/// right.
fn in_the_middle(rounds: &[Compared], off: Off) -> Option<Compared> {
    middle(rounds, |one| off(one).abs())
}

/// Whether no answer was wrong, and everything finished.
pub fn is_right(findings: &Findings) -> bool {
    !findings.is_wrong && !findings.missing.iter().any(|why| is_failure(why))
}

impl Findings {
    fn spoiled(&self) -> Option<String> {
        self.missing.first().cloned().or_else(|| self.disturbed())
    }

    /// A model that is fitted while other processes work takes their time for that of nodes.
    fn disturbed(&self) -> Option<String> {
        let rounds = self.processes.iter().flatten();
        let others = rounds.map(|compared| compared.real.others).fold(0.0, f64::max);
        (others > OTHERS_MAX)
            .then(|| format!("others used {others:.2} processors while processes were measured"))
    }

    /// The error of the model for the numbers of processes that it was not fitted on, and for those that it
    /// was: the worst of each.
    fn predicted(&self, words: &str, off: Off) -> [Row; 2] {
        let middles = self.processes.iter().filter_map(|rounds| in_the_middle(rounds, off));
        let each: Vec<_> = middles.map(|one| (one.real.nodes, off(&one))).collect();
        let (fitted, others) = each.split_at(FITTED.min(each.len()));
        [
            ("predicted over measured, worst of 8, 16, 32", others),
            ("fitted over measured, worst of 2, 4", fitted),
        ]
        .map(|(bar, judged)| {
            let mut row = Row::at_most(format!("{bar}{words}"), "%", 15.0, None);
            row.peers.extend(each.iter().map(|(nodes, off)| (format!("{nodes} processes"), *off)));
            let worst = judged.iter().map(|(_, off)| off.abs()).reduce(f64::max);
            row.judged(worst, self.spoiled())
        })
    }

    /// The efficiency of a million nodes in the worst network.
    fn efficiency(&self, is_kept: bool) -> Option<f64> {
        let of = self.large.iter().filter(|(_, kept, _)| *kept == is_kept);
        of.filter_map(|(_, _, sizes)| Some(sizes.last()?.efficiency * 100.0)).reduce(f64::min)
    }
}

/// The bars.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let spoiled = findings.spoiled();
    let mut rows = table_rows(findings);
    rows.extend(findings.predicted("", Compared::kept_off));
    rows.extend(findings.predicted(", a connection for each operation", Compared::connecting_off));
    for (is_kept, words) in [(true, "connections kept"), (false, "10,000 connections a node")] {
        let bar = format!("efficiency at 1,000,000 nodes, {words}");
        let mut row = Row::at_least(bar, "%", 30.0, Some(50.0));
        for (shape, kept, sizes) in &findings.large {
            if let Some(last) = sizes.last().filter(|_| *kept == is_kept) {
                row.peers.insert(shape.name().to_owned(), last.efficiency * 100.0);
            }
        }
        rows.push(row.judged(findings.efficiency(is_kept), spoiled.clone()));
    }
    rows
}

fn table_rows(findings: &Findings) -> Vec<Row> {
    let spoiled = findings.spoiled().filter(|_| findings.resident_mb.is_none());
    let memory = Row::at_most("memory of a node with a 1,000-node table", "MB", 30.0, Some(10.0));
    let mut node = Row::at_most("the same table, bytes per node", "B", 64.0, Some(32.0));
    let mut slot = Row::at_most("the same table, bytes per slot", "B", 16.0, Some(8.0));
    let each = super::tables::each(&findings.tables);
    if let Some([of_node, of_client]) = each {
        for (name, (per_node, per_slot)) in [("node", of_node), ("client", of_client)] {
            node.peers.insert(name.to_owned(), per_node);
            slot.peers.insert(name.to_owned(), per_slot);
        }
    }
    // The larger of the two, of each.
    let most = |of: fn((f64, f64)) -> f64| each.map(|[node, client]| of(node).max(of(client)));
    vec![
        memory.judged(findings.resident_mb, spoiled.clone()),
        node.judged(most(|each| each.0), spoiled.clone()),
        slot.judged(most(|each| each.1), spoiled),
    ]
}

/// Prints all results for people.
pub fn print(findings: &Findings) {
    print_tables(findings);
    print_processes(&findings.processes);
    if let Some(costs) = findings.costs {
        println!("fitted: {costs:?}");
    }
    println!();
    for (shape, is_kept, sizes) in &findings.large {
        print_large(*shape, *is_kept, sizes);
    }
    if let Some((kept, made)) = findings.without_waking {
        println!(
            "torus, a million nodes, were an idle processor woken for nothing: {:.1} % with connections kept, {:.1} % with 10,000 a node",
            kept * 100.0,
            made * 100.0
        );
    }
    for why in &findings.missing {
        println!("missing: {why}");
    }
}

fn print_processes(processes: &[Vec<Compared>]) {
    println!(
        "Processes that are a node and a client each, on this machine: measured, and by a model that knows the first {FITTED};\n\
         of each the round in the middle, by how far the model is off"
    );
    println!(
        "{:>9} {:>11} {:>9} {:>7} {:>11} {:>9} {:>10} {:>9} {:>8} {:>8}",
        "processes",
        "ops/s",
        "predicted",
        "off",
        "latency us",
        "predicted",
        "p99 us",
        "node us",
        "client us",
        "others"
    );
    for compared in processes.iter().filter_map(|rounds| in_the_middle(rounds, Compared::kept_off)) {
        let (real, model) = (&compared.real, &compared.kept);
        println!(
            "{:>9} {:>11.0} {:>9.0} {:>5.1} % {:>11.1} {:>9.1} {:>10.0} {:>9.1} {:>8.1} {:>8.2}",
            real.nodes,
            real.throughput,
            model.throughput,
            compared.kept_off(),
            real.latency_us,
            model.latency_us,
            real.p99_us,
            real.node_us,
            real.client_us,
            real.others,
        );
    }
    println!("The same with a connection for each operation");
    for compared in processes.iter().filter_map(|rounds| in_the_middle(rounds, Compared::connecting_off)) {
        let (real, model) = (&compared.real.connecting, &compared.connecting);
        println!(
            "{:>9} {:>11.0} {:>9.0} {:>5.1} % {:>11.1} {:>9.1} {:>10} {:>9.1} {:>8.1}",
            compared.real.nodes,
            real.throughput,
            model.throughput,
            compared.connecting_off(),
            real.latency_us,
            model.latency_us,
            "",
            real.node_us,
            real.client_us,
        );
    }
}

fn print_large(shape: Shape, is_kept: bool, sizes: &[Size]) {
    let connections = if is_kept { "connections to all nodes are kept" } else { "10,000 connections a node" };
    println!("{}, each node on a host of its own, {connections}", shape.name());
    println!(
        "{:>9} {:>12} {:>9} {:>13} {:>11} {:>11}",
        "nodes", "latency us", "p99 us", "million ops/s", "efficiency", "connecting"
    );
    let is_told = |size: &&Size| size.nodes.trailing_zeros() % 2 == 1 || size.nodes == SIZE_MAX;
    for size in sizes.iter().filter(is_told) {
        println!(
            "{:>9} {:>12.1} {:>9.0} {:>13.2} {:>9.1} % {:>9.1} %",
            size.nodes,
            size.outcome.latency_us,
            size.outcome.p99_us,
            size.outcome.throughput / 1e6,
            size.efficiency * 100.0,
            size.connecting_share * 100.0,
        );
    }
    println!();
}

fn print_tables(findings: &Findings) {
    println!("Tables, three copies: what is held of them, and an update of one slot");
    println!(
        "{:>6} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "nodes",
        "slots",
        "table KB",
        "routes KB",
        "client KB",
        "sent KB",
        "found ms",
        "update B",
        "decide us",
        "encode us",
        "apply us",
        "routes us"
    );
    for taken in &findings.tables {
        let update = taken.update;
        println!(
            "{:>6} {:>8} {:>10.0} {:>10.0} {:>10.0} {:>10.0} {:>10.0} {:>8} {:>9.0} {:>9.0} {:>9.0} {:>9.0}",
            taken.nodes,
            taken.slots,
            taken.table_bytes / 1e3,
            taken.routes_bytes / 1e3,
            taken.client_bytes / 1e3,
            taken.whole_bytes as f64 / 1e3,
            taken.founding_ms,
            update.bytes,
            update.decide_us,
            update.encode_us,
            update.apply_us,
            update.routes_us,
        );
    }
    if let Some([node, client]) = super::tables::each(&findings.tables) {
        println!(
            "one more node takes {:.0} B in a node and {:.0} B in a client, one more slot {:.1} B and {:.1} B",
            node.0, client.0, node.1, client.1
        );
    }
    println!();
}
