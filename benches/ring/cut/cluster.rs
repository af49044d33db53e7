//! What is put on the hosts: three servers that hold copies for each other, whoever wrote them.

use super::CutError;
use super::hosts::Hosts;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How many hosts a cluster has.
pub const HOSTS: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A cluster on hosts of its own.
pub trait Cluster {
    /// Its name in tables.
    fn name(&self) -> &'static str;
    /// The hosts it is on.
    fn hosts(&self) -> &Hosts;
    /// Starts every node and waits until every slot is served and copied.
    fn start(&mut self) -> Result<(), CutError>;
    /// Where a primary of each host listens, host by host.
    fn addresses(&self) -> Vec<SocketAddr>;
    /// What clients show first, if anything.
    fn token(&self) -> Option<String> {
        None
    }
    /// Whether every slot is served and copied, and all nodes agree about it.
    fn is_whole(&self) -> Result<bool, CutError>;
    /// Ends every node.
    fn stop(&mut self);

    /// Cuts a host off.
    fn cut(&self, host: usize) -> Result<(), CutError> {
        self.hosts().cut(host)
    }

    /// Undoes a cut.
    fn heal(&self, host: usize) -> Result<(), CutError> {
        self.hosts().heal(host)
    }
}

/// Looks again and again until something is so.
pub fn wait_until(
    what: &str,
    most: Duration,
    mut is_so: impl FnMut() -> Result<bool, CutError>,
) -> Result<(), CutError> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > most {
            return Err(CutError::TooLong { what: what.to_owned(), seconds: most.as_secs() });
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
