//! How the driver sends requests: to which nodes, with which time-outs, and never again by itself if the
//! effect must not happen twice.

use crate::near::Toward;
use crate::options::{Consistency as Majority, Options};
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::policies::load_balancing::{DefaultPolicy, LoadBalancingPolicy};
use scylla::policies::retry::{DefaultRetryPolicy, FallthroughRetryPolicy};
use scylla::statement::{Consistency, SerialConsistency};
use std::sync::Arc;
use std::time::Duration;

/// The longest that the driver waits for one attempt. Cassandra itself gives up after 2 to 10 seconds, and
/// its answer says more than a time-out here.
const ATTEMPT_TIME_OUT: Duration = Duration::from_secs(12);

/// The shortest time that the driver waits for one attempt.
const ATTEMPT_TIME_OUT_MIN: Duration = Duration::from_millis(500);

/// The longest that one attempt of a consensus operation may take: a third of the time there is, which leaves
/// enough to find out what became of an attempt whose answer was lost. Other requests may take longer: a node
/// answers a listing after up to ten seconds.
fn serial_time_out(time_out: Duration) -> Duration {
    (time_out / 3).clamp(ATTEMPT_TIME_OUT_MIN, ATTEMPT_TIME_OUT)
}

/// How often each connection is checked for a node behind it: a small request each time, next to hundreds in
/// use.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Longer than the pauses of a node that serves requests.
const SILENCE_MAX_MIN: Duration = Duration::from_secs(4);

/// How long a connection may be silent before it is given up and other nodes are asked. A node that hangs or
/// has lost its power refuses no connection, and the node that is asked first for a partition stays first
/// while it is connected. The limit equals the longest attempt, so that a call that meets such a node has
/// half of its time left for another one, and a longer time-out for slow nodes applies here too.
pub(crate) fn silence_max(time_out: Duration) -> Duration {
    serial_time_out(time_out).max(SILENCE_MAX_MIN)
}

/// The ways in which requests are sent.
#[derive(Clone, Debug)]
pub(crate) struct Profiles {
    /// Reads at SERIAL and conditional batches: sent once, and by all clients to the same replica first,
    /// where they meet without a race between coordinators.
    pub(crate) serial: ExecutionProfileHandle,
    /// Everything else: sent to any replica, and once more to another one if the driver knows that to be
    /// harmless.
    pub(crate) plain: ExecutionProfileHandle,
    /// The routing of requests that any node may answer.
    pub(crate) routes: Arc<dyn LoadBalancingPolicy>,
}

impl Profiles {
    pub(crate) fn new(options: &Options) -> Self {
        let (majority, serial) = match options.consistency {
            Majority::Quorum => (Consistency::Quorum, SerialConsistency::Serial),
            Majority::LocalQuorum => (Consistency::LocalQuorum, SerialConsistency::LocalSerial),
        };
        let base = |time_out: Duration| {
            ExecutionProfile::builder()
                .consistency(majority)
                .serial_consistency(Some(serial))
                .speculative_execution_policy(None)
                .request_timeout(Some(time_out))
        };
        let serial = base(serial_time_out(options.request_time_out))
            .load_balancing_policy(routes(options, false))
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .build();
        let mut to_any = routes(options, true);
        if let Some(node) = options.beside {
            to_any = Toward::policy(node, options.within(), to_any);
        }
        let plain = base(ATTEMPT_TIME_OUT.min(options.request_time_out))
            .load_balancing_policy(Arc::clone(&to_any))
            .retry_policy(Arc::new(DefaultRetryPolicy::new()))
            .build();
        Self { serial: serial.into_handle(), plain: plain.into_handle(), routes: to_any }
    }
}

/// Asks the replicas of a partition first, and those of the near data centre before others.
fn routes(options: &Options, shuffled: bool) -> Arc<dyn LoadBalancingPolicy> {
    let mut builder = DefaultPolicy::builder().token_aware(true).enable_shuffling_replicas(shuffled);
    if let Some(datacenter) = &options.datacenter {
        // A serial order within one data centre means nothing in another one.
        let may_leave = options.consistency == Majority::Quorum;
        builder = builder.prefer_datacenter(datacenter.clone()).permit_dc_failover(may_leave);
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_meets_a_node_that_hangs_has_half_of_the_time_left_for_another() {
        let time_out = Options::default().request_time_out;
        assert!((KEEPALIVE_INTERVAL + silence_max(time_out)) * 2 < time_out);
        let seconds = |of| silence_max(Duration::from_secs(of)).as_secs();
        assert_eq!((seconds(1), seconds(15), seconds(30), seconds(3600)), (4, 5, 10, 12));
    }
}
