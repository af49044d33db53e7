//! The reply when the store fails at a command. The node goes on serving, this client included.

use atoll_errors::ErrorKind;
use atoll_keyspace::KeyspaceError;
use atoll_resp::ReplyWriter;

/// Logs the failure and writes it as an error reply.
pub(crate) fn write(error: &KeyspaceError, writer: &mut ReplyWriter<'_>) {
    let kind = if error.is_unknown() { ErrorKind::TimedOut } else { error.kind() };
    // When the disk is full every write fails like this, so it is not logged each time.
    if kind != ErrorKind::OutOfSpace {
        tracing::error!(%error, "a command failed");
    }
    writer.error(kind.names().resp, &error.to_string());
}
