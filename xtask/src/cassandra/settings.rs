//! The configuration that a node reads at its start: its settings, and where its log goes.
//!
//! Sized for several nodes on one small machine, and as safe as Atoll asks of any cluster: Paxos v2, whose
//! reads finish or supersede pending proposals.

use super::shape::{Shape, address};
use std::path::Path;

/// Tokens, which are pieces of Cassandra's ring, that each node owns.
const TOKENS: usize = 16;

/// The password of the store with keys and certificates. Everything in the folder is for development only.
pub const STORE_PASSWORD: &str = "development";

/// The `cassandra.yaml` of one node, whose files are in `folder`.
pub fn node(shape: &Shape, node: usize, folder: &Path) -> String {
    let (address, seed) = (address(node), address(1));
    let (port, storage, secure) = (shape.port, shape.storage_port(), shape.secure_storage_port());
    let place = |name: &str| quoted(&folder.join("data").join(name).to_string_lossy());
    let (data, log, changes) = (place("data"), place("commitlog"), place("cdc_raw"));
    let (hints, caches) = (place("hints"), place("saved_caches"));
    let tokens = tokens(node, shape.nodes);
    // Memtables grow with the heap, and the commit log must hold what they have not flushed.
    let (memtable_mib, log_mib) = (shape.heap.mib / 4, shape.heap.mib.max(256));
    let (access, encryption) = (access(shape), encryption(shape, folder));
    format!(
        "\
cluster_name: atoll-development
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
num_tokens: {TOKENS}
initial_token: {tokens}
auto_bootstrap: false
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: \"{seed}:{storage}\"
listen_address: {address}
storage_port: {storage}
ssl_storage_port: {secure}
rpc_address: {address}
start_native_transport: true
native_transport_port: {port}
{access}{encryption}\
paxos_variant: v2
paxos_state_purging: repaired
data_file_directories: [{data}]
commitlog_directory: {log}
cdc_raw_directory: {changes}
hints_directory: {hints}
saved_caches_directory: {caches}
commitlog_sync: periodic
commitlog_sync_period: 10000ms
commitlog_segment_size: 32MiB
commitlog_total_space: {log_mib}MiB
memtable_heap_space: {memtable_mib}MiB
memtable_offheap_space: {memtable_mib}MiB
auto_snapshot: false
key_cache_size: 16MiB
file_cache_size: 64MiB
concurrent_reads: 16
concurrent_writes: 16
batch_size_warn_threshold: 1MiB
batch_size_fail_threshold: 20MiB
disk_failure_policy: die
commit_failure_policy: die
"
    )
}

fn access(shape: &Shape) -> &'static str {
    if shape.auth {
        "authenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\nrole_manager: CassandraRoleManager\n"
    } else {
        ""
    }
}

fn encryption(shape: &Shape, folder: &Path) -> String {
    if !shape.tls {
        return String::new();
    }
    // All nodes share one certificate, which is beside their folders.
    let keys = quoted(&folder.with_file_name(super::certificates::NODE_KEYS).to_string_lossy());
    format!(
        "client_encryption_options:\n  enabled: true\n  optional: false\n  keystore: {keys}\n  \
         keystore_password: {STORE_PASSWORD}\n  store_type: PKCS12\n  require_client_auth: false\n"
    )
}

/// A node's tokens: spread as evenly as possible and always the same, so that a test that depends on which
/// node holds what can be replayed.
fn tokens(node: usize, nodes: usize) -> String {
    let pieces = (TOKENS * nodes) as i128;
    let each = (0..TOKENS).map(|turn| {
        let place = (turn * nodes + node - 1) as i128;
        i128::from(i64::MIN) + (place << 64) / pieces + 1
    });
    each.map(|token| token.to_string()).collect::<Vec<_>>().join(",")
}

/// The text as a quoted YAML string, whatever characters it has.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The log's configuration: standard output, which is redirected to the node's own file.
pub const LOGGING: &str = "\
<configuration>
  <appender name=\"out\" class=\"ch.qos.logback.core.ConsoleAppender\">
    <encoder><pattern>%-5level %date{ISO8601} %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level=\"INFO\"><appender-ref ref=\"out\"/></root>
</configuration>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cassandra::shape::Heap;

    fn shape(auth: bool, tls: bool) -> Shape {
        Shape { nodes: 3, heap: Heap { mib: 768 }, port: 19_042, auth, tls }
    }

    #[test]
    fn a_node_listens_at_its_own_address_and_looks_for_the_first() {
        let text = node(&shape(false, false), 2, Path::new("/t/it's/node-2"));
        for line in [
            "listen_address: 127.0.0.2",
            "rpc_address: 127.0.0.2",
            "      - seeds: \"127.0.0.1:19043\"",
            "commitlog_directory: '/t/it''s/node-2/data/commitlog'",
            "paxos_variant: v2",
        ] {
            assert!(text.lines().any(|each| each == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("authenticator") && !text.contains("keystore"));
    }

    #[test]
    fn passwords_and_encryption_come_when_asked_for() {
        let text = node(&shape(true, true), 1, Path::new("/t/node-1"));
        assert!(text.contains("authenticator: PasswordAuthenticator"));
        assert!(text.contains("  optional: false\n  keystore: '/t/node.p12'"), "{text}");
    }

    #[test]
    fn the_ring_is_shared_evenly() {
        let of =
            |node| tokens(node, 3).split(',').map(|token| token.parse::<i64>().unwrap()).collect::<Vec<_>>();
        let mut all: Vec<(i64, usize)> =
            (1..=3).flat_map(|node| of(node).into_iter().map(move |t| (t, node))).collect();
        all.sort_unstable();
        assert_eq!(all.len(), 48);
        let gaps = all.windows(2).map(|pair| i128::from(pair[1].0) - i128::from(pair[0].0));
        assert!(gaps.clone().max().unwrap() - gaps.min().unwrap() <= 1, "pieces of one size");
        assert!(all.windows(2).all(|pair| pair[0].1 % 3 + 1 == pair[1].1), "nodes take turns");
    }
}
