//! Counters as text, in the format of Prometheus.

use super::{Counter, Metrics};
use atoll_resp::COMMANDS;
use std::fmt::Write;
use std::sync::Arc;

type Row = (&'static str, &'static str, &'static str, fn(&Metrics) -> &Counter);

/// Name, kind, what it is, and which counter.
const ROWS: [Row; 17] = [
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
    ("error_replies_total", "counter", "Requests answered with an error.", |metrics| &metrics.errors),
    ("failed_commands_total", "counter", "Requests that the store failed at.", |metrics| &metrics.failures),
    ("protocol_errors_total", "counter", "Connections that sent what is no request.", |metrics| {
        &metrics.protocol_errors
    }),
    ("authentication_failures_total", "counter", "Wrong passwords.", |metrics| {
        &metrics.authentication_failures
    }),
    ("moved_total", "counter", "Requests sent to another node.", |metrics| &metrics.moved),
    ("expired_keys_total", "counter", "Keys whose time was over.", |metrics| &metrics.expired),
    ("loop_rounds_total", "counter", "Rounds of the event loops.", |metrics| &metrics.rounds),
    ("gathered_turns_total", "counter", "Turns of connections that had waited for others.", |metrics| {
        &metrics.gathered
    }),
];

/// All counters of all loops.
pub(crate) fn text(loops: &[Arc<Metrics>]) -> String {
    let mut text = String::new();
    for (name, kind, help, counter) in ROWS {
        let _ = writeln!(text, "# HELP atoll_ring_{name} {help}\n# TYPE atoll_ring_{name} {kind}");
        for (place, metrics) in loops.iter().enumerate() {
            let _ = writeln!(text, "atoll_ring_{name}{{loop=\"{place}\"}} {}", counter(metrics).get());
        }
    }
    let _ = writeln!(
        text,
        "# HELP atoll_ring_calls_total Calls of each command, and those answered with an error."
    );
    let _ = writeln!(text, "# TYPE atoll_ring_calls_total counter");
    for (place, row) in COMMANDS.iter().enumerate() {
        let of = loops.iter().filter_map(|metrics| metrics.calls.get(place));
        let (calls, failed) =
            of.fold((0, 0), |(calls, failed), (all, some)| (calls + all.get(), failed + some.get()));
        if calls > 0 {
            let name = row.name;
            let done = calls.saturating_sub(failed);
            let _ = writeln!(text, "atoll_ring_calls_total{{command=\"{name}\",result=\"done\"}} {done}");
            let _ = writeln!(text, "atoll_ring_calls_total{{command=\"{name}\",result=\"error\"}} {failed}");
        }
    }
    text
}
