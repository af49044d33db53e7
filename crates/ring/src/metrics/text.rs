//! The counters as text, in the format of Prometheus.

use super::{Counter, Metrics};
use crate::loop_state::Shared;
use crate::table::SlotTable;
use atoll_resp::COMMANDS;
use std::fmt::Write;

type Row = (&'static str, &'static str, &'static str, fn(&Metrics) -> &Counter);

/// Name, kind, help text, and counter.
const ROWS: [Row; 25] = [
    ("commands_total", "counter", "Requests that were executed.", |metrics| &metrics.commands),
    ("connections", "gauge", "Connections.", |metrics| &metrics.connections),
    ("connections_accepted_total", "counter", "Connections that began.", |metrics| {
        &metrics.connections_accepted
    }),
    ("connections_refused_total", "counter", "Connections beyond the limit.", |metrics| {
        &metrics.connections_refused
    }),
    ("connections_dropped_total", "counter", "Connections that the node ended.", |metrics| {
        &metrics.connections_dropped
    }),
    ("received_bytes_total", "counter", "Bytes from clients.", |metrics| &metrics.received_bytes),
    ("sent_bytes_total", "counter", "Bytes to clients.", |metrics| &metrics.sent_bytes),
    ("watches", "gauge", "Fields that are waited for.", |metrics| &metrics.watches),
    ("connection_memory_bytes", "gauge", "Memory of connections.", |metrics| &metrics.connection_bytes),
    ("failed_commands_total", "counter", "Requests at which the store failed.", |metrics| &metrics.failures),
    ("out_of_space", "gauge", "Whether writes are refused because the disk is full.", |metrics| {
        &metrics.out_of_space
    }),
    (
        "protocol_errors_total",
        "counter",
        "Connections that sent something other than a request.",
        |metrics| &metrics.protocol_errors,
    ),
    ("authentication_failures_total", "counter", "Wrong passwords.", |metrics| {
        &metrics.authentication_failures
    }),
    ("access_refused_total", "counter", "Requests that users of the list may not make.", |metrics| {
        &metrics.access_refused
    }),
    ("moved_total", "counter", "Requests sent to another node.", |metrics| &metrics.moved),
    ("expired_keys_total", "counter", "Keys that expired.", |metrics| &metrics.expired),
    ("peer_messages_sent_total", "counter", "Messages handed to connections to other nodes.", |metrics| {
        &metrics.peer_messages_sent
    }),
    (
        "peer_messages_dropped_total",
        "counter",
        "Messages to other nodes that were given up, or lost before they were sent.",
        |metrics| &metrics.peer_messages_dropped,
    ),
    ("peer_messages_received_total", "counter", "Messages from other nodes.", |metrics| {
        &metrics.peer_messages_received
    }),
    (
        "copies_given_up_total",
        "counter",
        "Copies of slots given up here because the disk had no room for them.",
        |metrics| &metrics.copies_given_up,
    ),
    ("long_copies_total", "counter", "Copies of slots that went to the disk as they came.", |metrics| {
        &metrics.long_copies
    }),
    ("entries_ahead_total", "counter", "Writes of other nodes with dates far ahead.", |metrics| {
        &metrics.entries_ahead
    }),
    (
        "entries_not_taken_total",
        "counter",
        "Messages of other nodes that contradict what a copy on this node has.",
        |metrics| &metrics.entries_not_taken,
    ),
    ("loop_rounds_total", "counter", "Rounds of the event loop.", |metrics| &metrics.rounds),
    ("gathered_turns_total", "counter", "Turns of connections that had waited for others.", |metrics| {
        &metrics.gathered
    }),
];

/// Everything that a node counts, and what it knows of the ring.
pub(crate) fn text(shared: &Shared) -> String {
    let mut text = String::new();
    let metrics = &shared.metrics;
    for (name, kind, help, counter) in ROWS {
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "atoll_ring_{name} {}", counter(metrics).get());
    }
    write_errors(&mut text, metrics);
    write_calls(&mut text, metrics);
    write_node(&mut text, shared);
    write_ring(&mut text, &shared.table(), shared);
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP atoll_ring_{name} {help}\n# TYPE atoll_ring_{name} {kind}");
}

fn gauge(text: &mut String, name: &str, help: &str, value: impl std::fmt::Display) {
    head(text, name, "gauge", help);
    let _ = writeln!(text, "atoll_ring_{name} {value}");
}

fn write_errors(text: &mut String, metrics: &Metrics) {
    head(text, "error_replies_total", "counter", "Requests answered with an error, by its first word.");
    for (kind, count) in metrics.error_kinds.counts() {
        let _ = writeln!(text, "atoll_ring_error_replies_total{{kind=\"{kind}\"}} {count}");
    }
}

fn write_calls(text: &mut String, metrics: &Metrics) {
    head(text, "calls_total", "counter", "Calls of each command, and those answered with an error at once.");
    for (place, row) in COMMANDS.iter().enumerate() {
        let of = metrics.calls.get(place);
        let (calls, failed) = of.map_or((0, 0), |(calls, failed)| (calls.get(), failed.get()));
        if calls > 0 {
            let name = row.name;
            let done = calls.saturating_sub(failed);
            let _ = writeln!(text, "atoll_ring_calls_total{{command=\"{name}\",result=\"done\"}} {done}");
            let _ = writeln!(text, "atoll_ring_calls_total{{command=\"{name}\",result=\"error\"}} {failed}");
        }
    }
}

/// Writes the metrics of the node itself.
fn write_node(text: &mut String, shared: &Shared) {
    let seen = shared.ring_seen();
    let up_us = shared.chosen.clock.now().moment.0.saturating_sub(shared.began.0);
    gauge(text, "uptime_seconds", "For how long the node runs.", up_us as f64 / 1e6);
    gauge(
        text,
        "connections_max",
        "Connections that the node accepts.",
        shared.chosen.limits.connections_max,
    );
    gauge(text, "memory_bytes", "Memory of the contents of slots.", seen.memory_bytes);
    gauge(
        text,
        "memory_limit_bytes",
        "Memory that the contents of slots may take.",
        shared.chosen.memory_bytes,
    );
    gauge(text, "store_bytes", "Bytes of the file that slots are kept in.", seen.file_bytes);
    let resident = super::resident_bytes();
    gauge(text, "resident_memory_bytes", "Memory of the process, as the system counts it.", resident);
}

/// Writes what the node knows of the ring.
fn write_ring(text: &mut String, table: &SlotTable, shared: &Shared) {
    let seen = shared.ring_seen();
    let (slots, served) = table.served();
    let (leads, in_sync, joining) = table.own_counts();
    gauge(text, "slots", "Slots of the ring.", slots);
    gauge(text, "slots_served", "Slots of the ring that some node answers for.", served);
    gauge(text, "slots_led", "Slots that this node answers for.", leads);
    gauge(
        text,
        "slots_copied",
        "Slots of which this node has a copy in sync, those that it leads included.",
        in_sync,
    );
    gauge(
        text,
        "slots_catching_up",
        "Slots of which the copy on this node is being brought up to date.",
        joining,
    );
    let copies = table.copies_in_sync_min();
    gauge(text, "copies_in_sync_min", "Copies in sync of the slot that has the fewest.", copies);
    gauge(text, "table_version", "Counts changes of which node has which slot.", table.version().0);
    let silence = seen.group.silence.as_secs_f64();
    gauge(text, "group_silence_seconds", "For how long the configuration group has not answered.", silence);
    let off = seen.others.clock.off_ms as f64 / 1e3;
    gauge(
        text,
        "clock_off_seconds",
        "By how much the clock of this node is ahead of the median of all.",
        off,
    );
    let is_doubted = u8::from(seen.others.clock.is_doubted);
    gauge(text, "clock_doubted", "Whether the node uses the clocks of the others instead.", is_doubted);
    let is_seat_lost = u8::from(seen.group.is_seat_lost);
    gauge(
        text,
        "group_seat_lost",
        "Whether the part of this node in the configuration group failed.",
        is_seat_lost,
    );
    head(text, "node_up", "gauge", "Whether a node is up, as far as this one knows.");
    for (node, address, is_up) in table.each_node() {
        let labels = format!("node=\"{}\",address=\"{address}\"", node.0);
        let _ = writeln!(text, "atoll_ring_node_up{{{labels}}} {}", u8::from(is_up));
    }
    head(text, "node_unreached", "gauge", "Nodes of the ring to which this one has no connection.");
    for node in &seen.others.unreached {
        let _ = writeln!(text, "atoll_ring_node_unreached{{node=\"{}\"}} 1", node.0);
    }
    head(text, "behind_entries", "gauge", "Writes that another node lacks of the slots that this one leads.");
    for (node, entries) in &seen.others.behind {
        let _ = writeln!(text, "atoll_ring_behind_entries{{node=\"{}\"}} {entries}", node.0);
    }
}
