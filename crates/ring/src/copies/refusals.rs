//! Error replies for requests that had no effect, or whose effect is unknown, in the words that clients of a
//! Redis Cluster act on.

use crate::address::NodeAddress;
use atoll_errors::ErrorKind;
use atoll_replica::{Refusal, Table};
use atoll_resp::ReplyWriter;

/// Writes that nothing happened, and why.
pub(super) fn write(refusal: Refusal, slot: u16, table: &Table, writer: &mut ReplyWriter<'_>) {
    match refusal {
        Refusal::Moved { to } => {
            match table.members.get(&to).map(|member| member.address.parse::<NodeAddress>()) {
                Some(Ok(address)) => writer.error("MOVED", &format!("{slot} {}", address.clients)),
                _ => writer.error("CLUSTERDOWN", &refusal.to_string()),
            }
        }
        Refusal::NoPrimary | Refusal::NoLease => writer.error("CLUSTERDOWN", &refusal.to_string()),
        Refusal::TooFewCopies { .. } => writer.error("NOREPLICAS", &refusal.to_string()),
        Refusal::Busy => writer.error("TRYAGAIN", &refusal.to_string()),
    }
}

/// Writes that the outcome is unknown.
pub(super) fn unknown(writer: &mut ReplyWriter<'_>) {
    let kind = ErrorKind::TimedOut.names().resp;
    writer.error(kind, "copies of the slot were lost meanwhile; the write may or may not have happened");
}
