//! `INFO`: the state of a node, under the names that tools for Redis look for.

use super::Executor;
use super::connection::REDIS_VERSION;
use crate::classes::redis_name;
use crate::metrics::{Counter, Metrics, resident_bytes};
use crate::options::Persistence;
use atoll_resp::COMMANDS;
use std::fmt::Write;

/// The sections, and whether they are included by default.
const SECTIONS: [(&str, bool); 10] = [
    ("Server", true),
    ("Clients", true),
    ("Memory", true),
    ("Persistence", true),
    ("Stats", true),
    ("Replication", true),
    ("CPU", true),
    ("Commandstats", false),
    ("Cluster", true),
    ("Keyspace", true),
];

/// Picks one of the counters of a loop.
type Choice = fn(&Metrics) -> &Counter;

impl Executor<'_> {
    pub(super) fn info(&mut self, wanted: &[&[u8]]) {
        let is_named = |name: &str| wanted.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
        let is_all = is_named("all") || is_named("everything");
        let is_default = wanted.is_empty() || is_named("default");
        let mut text = String::new();
        for (name, comes) in SECTIONS {
            if is_all || is_named(name) || is_default && comes {
                if !text.is_empty() {
                    text.push_str("\r\n");
                }
                let _ = write!(text, "# {name}\r\n");
                // Its keys are counted slot by slot.
                self.session.is_tired |= name == "Keyspace";
                for (key, value) in self.section(name) {
                    let _ = write!(text, "{key}:{value}\r\n");
                }
            }
        }
        self.writer().text(&text);
    }

    fn section(&self, name: &str) -> Vec<(String, String)> {
        let lines = match name {
            "Server" => self.server_section(),
            "Clients" => self.clients_section(),
            "Memory" => self.memory_section(),
            "Persistence" => self.persistence_section(),
            "Stats" => self.stats_section(),
            "Replication" => vec![("role", "master".to_owned()), ("connected_slaves", "0".to_owned())],
            "CPU" => cpu_section(),
            "Cluster" => self.cluster_section(),
            "Keyspace" => return self.keyspace_section(),
            _ => return self.commands_section(),
        };
        lines.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn server_section(&self) -> Vec<(&'static str, String)> {
        let shared = &self.here.shared;
        let uptime = self.here.now.moment.0.saturating_sub(shared.began.0) / 1_000_000;
        vec![
            ("redis_version", REDIS_VERSION.to_owned()),
            ("redis_mode", "cluster".to_owned()),
            ("atoll_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("os", std::env::consts::OS.to_owned()),
            ("arch_bits", usize::BITS.to_string()),
            ("multiplexing_api", "epoll".to_owned()),
            ("process_id", std::process::id().to_string()),
            ("run_id", shared.chosen.run_id.to_string()),
            ("tcp_port", shared.chosen.address.port().to_string()),
            ("server_time_usec", (self.here.now.date_ms * 1000).to_string()),
            ("uptime_in_seconds", uptime.to_string()),
            ("uptime_in_days", (uptime / 86_400).to_string()),
        ]
    }

    fn clients_section(&self) -> Vec<(&'static str, String)> {
        vec![
            ("connected_clients", self.count(|metrics| &metrics.connections).to_string()),
            ("maxclients", self.here.limits().connections_max.to_string()),
            ("clients_memory", self.count(|metrics| &metrics.connection_bytes).to_string()),
            ("blocked_clients", self.count(|metrics| &metrics.watches).to_string()),
        ]
    }

    fn memory_section(&self) -> Vec<(&'static str, String)> {
        let stats = self.here.slots.engine().stats();
        let used = stats.memory_bytes + self.count(|metrics| &metrics.connection_bytes);
        let budget = self.here.shared.chosen.memory_bytes;
        vec![
            ("used_memory", used.to_string()),
            ("used_memory_human", human(used)),
            ("used_memory_rss", resident_bytes().to_string()),
            ("used_memory_peak", stats.memory_bytes_most.max(used).to_string()),
            ("used_memory_dataset", stats.memory_bytes.to_string()),
            ("maxmemory", budget.to_string()),
            ("maxmemory_human", human(budget)),
            ("maxmemory_policy", "noeviction".to_owned()),
        ]
    }

    fn persistence_section(&self) -> Vec<(&'static str, String)> {
        // Of the keyspace that the client is in.
        let class = self.here.persistence(self.session.keyspace);
        let stats = self.here.slots.engine().stats();
        let is_out_of_space = self.count(|metrics| &metrics.out_of_space) > 0;
        vec![
            ("loading", u8::from(self.here.is_loading).to_string()),
            ("rdb_bgsave_in_progress", "0".to_owned()),
            ("rdb_last_bgsave_status", "ok".to_owned()),
            ("aof_enabled", u8::from(class != Persistence::Off).to_string()),
            ("aof_last_write_status", if is_out_of_space { "err" } else { "ok" }.to_owned()),
            ("persistence", redis_name(class).to_owned()),
            ("store_bytes", stats.file_bytes.to_string()),
            ("log_tail_bytes", stats.log_tail_bytes.to_string()),
            ("checkpoints", stats.checkpoints_made.to_string()),
        ]
    }

    fn stats_section(&self) -> Vec<(&'static str, String)> {
        let of_each: [(&str, Choice); 16] = [
            ("total_connections_received", |metrics| &metrics.connections_accepted),
            ("total_commands_processed", |metrics| &metrics.commands),
            ("instantaneous_ops_per_sec", |metrics| &metrics.commands_per_second),
            ("total_net_input_bytes", |metrics| &metrics.received_bytes),
            ("total_net_output_bytes", |metrics| &metrics.sent_bytes),
            ("rejected_connections", |metrics| &metrics.connections_refused),
            ("dropped_connections", |metrics| &metrics.connections_dropped),
            ("expired_keys", |metrics| &metrics.expired),
            ("keyspace_hits", |metrics| &metrics.hits),
            ("keyspace_misses", |metrics| &metrics.misses),
            ("total_error_replies", |metrics| &metrics.errors),
            ("protocol_errors", |metrics| &metrics.protocol_errors),
            ("authentication_failures", |metrics| &metrics.authentication_failures),
            ("access_refused", |metrics| &metrics.access_refused),
            ("moved_replies", |metrics| &metrics.moved),
            ("failed_commands", |metrics| &metrics.failures),
        ];
        let mut lines: Vec<_> =
            of_each.into_iter().map(|(name, counter)| (name, self.count(counter).to_string())).collect();
        lines.push(("evicted_keys", "0".to_owned()));
        lines
    }

    fn commands_section(&self) -> Vec<(String, String)> {
        let calls = &self.here.metrics.calls;
        let of =
            |place: usize| calls.get(place).map_or((0, 0), |(calls, failed)| (calls.get(), failed.get()));
        let rows = COMMANDS.iter().enumerate().map(|(place, row)| (row.name, of(place)));
        rows.filter(|(_, (calls, _))| *calls > 0)
            .map(|(name, (calls, failed))| {
                (format!("cmdstat_{name}"), format!("calls={calls},failed_calls={failed}"))
            })
            .collect()
    }

    fn cluster_section(&self) -> Vec<(&'static str, String)> {
        let slots = &self.here.slots;
        let (group, clock) = (slots.group_heard(self.here.now), slots.clock_seen());
        vec![
            ("cluster_enabled", "1".to_owned()),
            ("group_seat_lost", u8::from(group.is_seat_lost).to_string()),
            ("clock_off_ms", clock.off_ms.to_string()),
            ("clock_doubted", u8::from(clock.is_doubted).to_string()),
        ]
    }

    /// Counts the keys of the keyspaces that the client may enter.
    fn keyspace_section(&self) -> Vec<(String, String)> {
        let keys = self.entered().map(|keyspace| (keyspace, self.here.keys(keyspace)));
        let used = keys.filter(|(_, keys)| *keys > 0);
        used.map(|(keyspace, keys)| (format!("db{keyspace}"), format!("keys={keys},expires=0,avg_ttl=0")))
            .collect()
    }

    fn count(&self, counter: impl Fn(&Metrics) -> &Counter) -> u64 {
        counter(&self.here.metrics).get()
    }
}

fn cpu_section() -> Vec<(&'static str, String)> {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    vec![("used_cpu_user", format!("{}.{:06}", usage.tv_sec, usage.tv_nsec / 1000))]
}

fn human(bytes: u64) -> String {
    let units = [("G", 30), ("M", 20), ("K", 10)];
    let unit = units.into_iter().find(|(_, bits)| bytes >> bits > 0);
    unit.map_or_else(
        || format!("{bytes}B"),
        |(unit, bits)| format!("{:.2}{unit}", bytes as f64 / f64::from(1 << bits)),
    )
}
