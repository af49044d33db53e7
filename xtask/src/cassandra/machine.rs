//! Whether this machine has room for a cluster: enough memory, and free addresses.

use super::shape::Shape;
use crate::failure::Failure;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Memory of a node outside its heap: code, threads, off-heap buffers and memtables. Measured: 1.5 GB in
/// total with a heap of 1 GiB.
const BESIDE_HEAP_MIB: u64 = 512;
/// Ports are tried in steps of this many.
const PORT_STEP: u16 = 20;

/// Refuses if `more_nodes` do not fit into memory beside what runs already.
pub fn has_memory(shape: &Shape, more_nodes: usize) -> Result<(), Failure> {
    // Where the system does not report its memory, Java will complain.
    let Some(available) = available_mib(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()) else {
        return Ok(());
    };
    let needed = (shape.heap.mib + BESIDE_HEAP_MIB) * more_nodes as u64;
    if needed <= available {
        return Ok(());
    }
    Err(Failure::Refused {
        problem: format!(
            "{more_nodes} more nodes need about {needed} MiB of memory; {available} MiB are free"
        ),
        hint: "ask for fewer nodes (--nodes) or smaller heaps (--heap 512M), or end something else"
            .to_owned(),
    })
}

fn available_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1_024)
}

/// Refuses if an address of the node is in use or does not exist.
pub fn has_addresses(shape: &Shape, node: usize) -> Result<(), Failure> {
    shape.listens(node).into_iter().try_for_each(is_free)
}

fn is_free(address: SocketAddr) -> Result<(), Failure> {
    let Err(error) = TcpListener::bind(address) else { return Ok(()) };
    let hint = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "another program listens there, perhaps a cluster of another checkout; \
             choose another --port, such as {}",
            free_port(address.port().saturating_add(100)).unwrap_or(29_042)
        ),
        ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address; on macOS: sudo ifconfig lo0 alias {}", address.ip())
        }
        _ => "choose another --port".to_owned(),
    };
    Err(Failure::Refused { problem: format!("a node cannot listen at {address}: {error}"), hint })
}

/// The first port at or after `from` at which every port of a one-node cluster is free.
pub fn free_port(from: u16) -> Option<u16> {
    let candidates = (0..200).map_while(|turn: u16| from.checked_add(turn.checked_mul(PORT_STEP)?));
    let mut free = candidates.filter(|port| {
        (*port..port.saturating_add(4)).all(|port| is_free((Ipv4Addr::LOCALHOST, port).into()).is_ok())
    });
    free.next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cassandra::shape::Heap;

    #[test]
    fn memory_is_read_as_linux_tells_it() {
        assert_eq!(available_mib("MemTotal: 9 kB\nMemAvailable:   2097152 kB\n"), Some(2_048));
        assert_eq!(available_mib(""), None);
    }

    #[test]
    fn a_cluster_that_never_fits_is_refused_with_a_way_out() {
        let shape = Shape { nodes: 9, heap: Heap { mib: 1 << 40 }, port: 1_024, auth: false, tls: false };
        if cfg!(target_os = "linux") {
            let failure = has_memory(&shape, 9).unwrap_err();
            assert!(failure.hint().unwrap().contains("--heap"), "{failure}");
        }
    }

    #[test]
    fn a_taken_port_is_named_with_one_that_is_free() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let failure = is_free(address).unwrap_err();
        assert!(failure.to_string().contains(&address.to_string()), "{failure}");
        assert!(failure.hint().unwrap().contains("--port"));
        assert_ne!(free_port(address.port()), Some(address.port()));
    }
}
