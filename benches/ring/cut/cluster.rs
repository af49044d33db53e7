//! A cluster on the hosts: three servers that hold copies for each other, ours or a rival's.

use super::{CutError, Hosts};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How many hosts a cluster has.
pub const HOSTS: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A cluster on its own hosts.
pub trait Cluster {
    /// Its name in tables.
    fn name(&self) -> &'static str;
    /// The hosts that it runs on.
    fn hosts(&self) -> &Hosts;
    /// Starts every node and waits until every slot is served and copied.
    fn start(&mut self) -> Result<(), CutError>;
    /// The address of a primary on each host, host by host.
    fn addresses(&self) -> Vec<SocketAddr>;
    /// The token that clients show first, if any.
    fn token(&self) -> Option<String> {
        None
    }
    /// Whether every slot is served and copied, and all nodes agree about it.
    fn is_whole(&self) -> Result<bool, CutError>;
    /// Ends every node.
    fn stop(&mut self);

    /// Cuts a host off.
    fn cut(&self, host: usize) -> Result<(), CutError> {
        Ok(self.hosts().cut(host)?)
    }

    /// Undoes a cut.
    fn heal(&self, host: usize) -> Result<(), CutError> {
        Ok(self.hosts().heal(host)?)
    }
}

/// Polls until a condition holds.
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

/// The same where a failed poll only means "not yet"; the last failure is reported when the time is over. A
/// node that ended by itself is not waited for.
pub fn wait_until_well(
    what: &str,
    most: Duration,
    mut is_so: impl FnMut() -> Result<bool, CutError>,
) -> Result<(), CutError> {
    let mut last = None;
    let waited = wait_until(what, most, || match is_so() {
        Err(error @ CutError::Ended { .. }) => Err(error),
        Err(error) => {
            last = Some(error);
            Ok(false)
        }
        looked => looked,
    });
    match (waited, last) {
        (Err(CutError::TooLong { what, seconds }), Some(last)) => {
            let what =
                format!("{what} (at the last look that failed: {})", crate::phases::with_sources(&last));
            Err(CutError::TooLong { what, seconds })
        }
        (waited, _) => waited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_fails_is_told_when_patience_ends_and_forgotten_when_it_turns_out_well() {
        let fails = || Err(CutError::NothingServed);
        let error = wait_until_well("a thing", Duration::ZERO, fails).unwrap_err().to_string();
        assert!(error.contains("a thing") && error.contains(&CutError::NothingServed.to_string()), "{error}");
        let mut looks = 0;
        let is_well_at_the_third = || {
            looks += 1;
            if looks < 3 { Err(CutError::NothingServed) } else { Ok(true) }
        };
        wait_until_well("a thing", Duration::from_secs(60), is_well_at_the_third).unwrap();
        assert_eq!(looks, 3);
        let has_ended = || Err(CutError::Ended { host: 1, how: String::new() });
        let waited = wait_until_well("a thing", Duration::from_secs(60), has_ended);
        assert!(matches!(waited, Err(CutError::Ended { host: 1, .. })));
    }
}
