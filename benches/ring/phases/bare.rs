//! The bare loop: nothing but group commits, to find out what the disk allows.
//!
//! One thread repeatedly appends the bytes that fifty clients would have waiting, and waits for the disk. A
//! server that appends cannot commit more of the same bytes in the same order, because at most fifty
//! requests wait for it while it waits for the disk.

use super::CLIENTS;
use crate::client::{Histogram, Operation, Pieces, Protocol};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// The result of the loop.
pub struct Committed {
    /// Requests whose bytes are on the disk.
    pub operations: u64,
    /// How long that took.
    pub seconds: f64,
    /// How long each commit took, which is also how long each of its requests waited.
    pub latency: Histogram,
}

/// Commits to a new file in this folder for a while.
pub fn run(
    folder: &Path,
    pieces: &Pieces,
    keys: u32,
    measured: Duration,
    seed: u64,
) -> io::Result<Committed> {
    let path = folder.join("bare-loop");
    let mut file = File::create(&path)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut version = 0;
    let mut group = Vec::new();
    let mut committed = Committed { operations: 0, seconds: 0.0, latency: Histogram::default() };
    let start = Instant::now();
    let mut sent_at = start;
    while start.elapsed() < measured {
        group.clear();
        for _ in 0..CLIENTS {
            // In the format of a log: the requests as they arrived.
            let key = random.u32(..keys);
            version += 1;
            let piece = pieces.piece(key, version);
            Protocol::Resp.write(Operation::Set, &Pieces::key(key), &piece, &mut group);
        }
        file.write_all(&group)?;
        rustix::fs::fdatasync(&file)?;
        let now = Instant::now();
        committed.operations += u64::from(CLIENTS);
        committed.latency.add((now - sent_at).as_nanos() as u64, u64::from(CLIENTS));
        sent_at = now;
    }
    committed.seconds = start.elapsed().as_secs_f64();
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(committed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_commit_is_of_all_clients_and_the_file_is_gone_afterwards() {
        let folder = std::env::temp_dir().join(format!("atoll-bench-ring-bare-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let committed = run(&folder, &Pieces::seeded(1), 100, Duration::from_millis(20), 1).unwrap();
        assert!(committed.operations > 0 && committed.operations.is_multiple_of(u64::from(CLIENTS)));
        assert_eq!(committed.latency.count(), committed.operations);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
    }
}
