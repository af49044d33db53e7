//! That the store failed, as whoever asked is told: the node goes on, and so does everybody else.

use atoll_errors::ErrorKind;
use atoll_keyspace::KeyspaceError;
use atoll_resp::ReplyWriter;

/// Says that the store failed, here and to whoever asked.
pub(crate) fn write(error: &KeyspaceError, writer: &mut ReplyWriter<'_>) {
    let kind = if error.is_unknown() { ErrorKind::TimedOut } else { error.kind() };
    // An engine without room says so to everybody who writes.
    if kind != ErrorKind::OutOfSpace {
        tracing::error!(%error, "a command failed");
    }
    writer.error(kind.names().resp, &error.to_string());
}
