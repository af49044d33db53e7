//! Error replies for requests that had no effect, or whose effect is unknown, in the words that clients of a
//! Redis Cluster act on.

use crate::address::{NodeAddress, moved_to};
use atoll_errors::ErrorKind;
use atoll_replica::{Refusal, Table};
use atoll_resp::ReplyWriter;

/// Writes that nothing happened, and why.
pub(super) fn write(refusal: Refusal, slot: u16, table: &Table, writer: &mut ReplyWriter<'_>) {
    match refusal {
        Refusal::Moved { to } => {
            match table.members.get(&to).map(|member| member.address.parse::<NodeAddress>()) {
                Some(Ok(address)) => writer.error("MOVED", &moved_to(slot, &address.clients)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_replica::{Member, NodeId};
    use atoll_resp::Protocol;

    #[test]
    fn a_request_that_waited_is_redirected_like_one_that_did_not() {
        let mut table = Table::empty(16_384);
        let address = format!("{} [::1]:7379 [::1]:17379", "0".repeat(40));
        table.members.insert(NodeId(3), Member::new(address.as_str().into()));
        let told = |to| {
            let mut reply = Vec::new();
            let mut writer = ReplyWriter::new(&mut reply, Protocol::Resp2);
            write(Refusal::Moved { to }, 5, &table, &mut writer);
            String::from_utf8(reply).unwrap()
        };
        assert_eq!(told(NodeId(3)), "-MOVED 5 ::1:7379\r\n");
        assert!(told(NodeId(4)).starts_with("-CLUSTERDOWN "), "{}", told(NodeId(4)));
    }
}
