//! Classifies errors of the driver: whether the request may have happened, whether a retry can help, and what
//! the caller is told.
//!
//! Invariant: an error counts as doubtful unless it is known to precede any effect.

use atoll_store::{ErrorKind, StoreError};
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, ExecutionError,
    MetadataError, NewSessionError, RequestAttemptError,
};
use std::sync::Arc;
use std::time::Duration;

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing happened, and nothing will as long as the request stays the same.
    Final,
    /// Nothing happened; the cluster may recover.
    Passing,
    /// The request may have happened, or may happen later.
    Doubtful,
}

/// Classifies an error of the driver.
pub(crate) fn judge(error: &ExecutionError) -> Failure {
    match error {
        ExecutionError::BadQuery(_) | ExecutionError::UseKeyspaceError(_) => Failure::Final,
        ExecutionError::PrepareError(_)
        | ExecutionError::EmptyPlan
        | ExecutionError::ConnectionPoolError(_) => Failure::Passing,
        ExecutionError::LastAttemptError(error) => judge_attempt(error),
        _ => Failure::Doubtful,
    }
}

fn judge_attempt(error: &RequestAttemptError) -> Failure {
    match error {
        RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_) => {
            Failure::Final
        }
        // The answer would be paged again, and the driver takes no pages here.
        RequestAttemptError::NonfinishedPagingState => Failure::Final,
        RequestAttemptError::UnableToAllocStreamId => Failure::Passing,
        RequestAttemptError::DbError(error, text) => match error {
            DbError::SyntaxError
            | DbError::Invalid
            | DbError::AlreadyExists { .. }
            | DbError::AuthenticationError
            | DbError::Unauthorized
            | DbError::ConfigError
            | DbError::ProtocolError => Failure::Final,
            // A retry meets as many tombstones.
            DbError::ReadFailure { .. } if is_too_dead(text) => Failure::Final,
            DbError::Unavailable { .. }
            | DbError::Overloaded
            | DbError::IsBootstrapping
            | DbError::Unprepared { .. }
            | DbError::RateLimitReached { .. } => Failure::Passing,
            _ => Failure::Doubtful,
        },
        _ => Failure::Doubtful,
    }
}

/// The remedy for too many tombstones.
pub(crate) const REMEDY_FOR_TOMBSTONES: &str = "repair the keyspace, then compact it (`nodetool repair`, `nodetool compact`) once gc_grace_seconds have passed; \
     or raise tombstone_failure_threshold in cassandra.yaml";

/// Whether a read met more tombstones than a node tolerates. Cassandra reports that only in the message's
/// text.
fn is_too_dead(text: &str) -> bool {
    text.contains("TOO_MANY_TOMBSTONES")
}

/// Whether a request failed because of too many tombstones.
pub(crate) fn is_of_tombstones(error: &ExecutionError) -> bool {
    matches!(database_error(error), Some((DbError::ReadFailure { .. }, text)) if is_too_dead(text))
}

/// Whether an unpaged request got a paged answer, whose first page must never be taken for the whole.
fn is_in_parts(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::LastAttemptError(RequestAttemptError::NonfinishedPagingState))
}

/// Whether a coordinator refused because of its replicas, which can happen in the middle of a conditional
/// batch.
pub(crate) fn is_of_replicas(error: &ExecutionError) -> bool {
    matches!(database_error(error), Some((DbError::Unavailable { .. } | DbError::Overloaded, _)))
}

/// Whether a node refused a request because of its size. Cassandra reports that only in the message's text.
fn is_too_big(text: &str) -> bool {
    text.contains("too big")
}

/// The database's own error, with its text.
pub(crate) fn database_error(error: &ExecutionError) -> Option<(&DbError, &str)> {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, text)) => Some((error, text)),
        _ => None,
    }
}

/// The error for a request that did not happen.
pub(crate) fn refused(place: &str, what: &'static str, error: ExecutionError) -> StoreError {
    match database_error(&error) {
        Some((DbError::Unauthorized, text)) => not_permitted(place, what, text),
        Some((DbError::AuthenticationError, _)) => StoreError::Unauthenticated { place: place.to_owned() },
        Some((DbError::Unavailable { consistency, required, alive }, _)) => told(
            ErrorKind::Unavailable,
            format!(
                "{place} is unavailable: {what} at {consistency} needs {required} replicas, {alive} are alive"
            ),
            "start the nodes that are down (`nodetool status` names them), then try again; nothing was done",
        ),
        Some((DbError::Invalid, text)) if is_too_big(text) => told(
            ErrorKind::Limit,
            format!("{place} refuses a request of this size ({what}): {text}"),
            "split the batch, or raise native_transport_max_frame_size in the cassandra.yaml of every node to 16MiB",
        ),
        Some((DbError::Invalid | DbError::ConfigError, text)) => told(
            ErrorKind::Unavailable,
            format!("{place} does not understand {what}: {text}"),
            "its tables may have been altered: open the store again, which names what differs",
        ),
        Some((DbError::ReadTimeout { .. } | DbError::WriteTimeout { .. }, _)) => slow(place, what, &error),
        None if matches!(error, ExecutionError::RequestTimeout(_)) => slow(place, what, &error),
        None if matches!(error, ExecutionError::SchemaAgreementError(_)) => told(
            ErrorKind::Unavailable,
            format!("the nodes of {place} do not agree on its tables: {}", first_line(&error)),
            "`nodetool describecluster` names the nodes that differ: start those that are down, set clocks right that \
             are far off, then try again",
        ),
        None if is_in_parts(&error) => told(
            ErrorKind::Unavailable,
            format!("{place} answered {what} with a first page, and was asked for all of it at once"),
            "Atoll needs Apache Cassandra, or what answers as it does: a service that cuts answers of 1 MiB by itself cannot hold \
             a store",
        ),
        _ if is_of_tombstones(&error) => told(
            ErrorKind::Unavailable,
            format!("{place} is unavailable: {what} met more deleted rows than a node passes over"),
            REMEDY_FOR_TOMBSTONES,
        ),
        _ => {
            tracing::debug!(%error, what, "a request failed");
            told(
                ErrorKind::Unavailable,
                format!("{place} is unavailable: {what} failed: {}", first_line(&error)),
                "`nodetool status` and the nodes' logs (system.log) show more",
            )
        }
    }
}

/// The error for data that is not as it was written.
pub(crate) fn damage(place: &str, problem: &str) -> StoreError {
    told(
        ErrorKind::Corrupt,
        format!("{place} is damaged: {problem}"),
        "`nodetool scrub` and `nodetool repair --full` repair what a copy has; what no copy has is in a snapshot \
         (\"Backup and restore\" in the guide to Cassandra); writing the cell again restores access to it",
    )
}

/// The error for chunks that no answering replica has as they were written. A repair may spread the wrong
/// copy to all replicas, because the copies have the same age.
pub(crate) fn damage_of_chunks(place: &str, problem: &str) -> StoreError {
    told(
        ErrorKind::Corrupt,
        format!("{place} is damaged: {problem}"),
        "start the nodes that are down (`nodetool status`) and read it again, before any repair, which may spread the wrong \
         bytes: the right ones then replace them; what no copy has is in a snapshot (\"Backup and restore\" in the guide to \
         Cassandra); writing the cell again restores access to it",
    )
}

/// The error for a request that may have happened.
pub(crate) fn unknown(what: &'static str, error: ExecutionError) -> StoreError {
    StoreError::Unknown { what, reason: first_line(&error), source: Some(Arc::new(error)) }
}

/// An error of the cluster together with its remedy.
pub(crate) fn told(kind: ErrorKind, message: String, hint: impl Into<String>) -> StoreError {
    StoreError::Remote { kind, unknown: false, message, hint: Some(hint.into()) }
}

/// The error for a write that was never sent, because the writes before it in its partition got no answer.
pub(crate) fn waited_in_vain(place: &str, time: Duration) -> StoreError {
    told(
        ErrorKind::Unavailable,
        format!(
            "{place} is unavailable: a write waited {time:?} for those before it in its partition, which had no answer"
        ),
        "nodes are down or slow (`nodetool status`, `nodetool tpstats`); nothing was done",
    )
}

/// The error for nodes that do not answer in time.
fn slow(place: &str, what: &'static str, error: &ExecutionError) -> StoreError {
    told(
        ErrorKind::Unavailable,
        format!("{place} is unavailable: {what} failed: {}", first_line(error)),
        "nodes are down or slow (`nodetool status`, `nodetool tpstats`); time-out=DURATION gives them more time",
    )
}

/// The error for a role that lacks a permission.
fn not_permitted(place: &str, what: &'static str, text: &str) -> StoreError {
    told(
        ErrorKind::Unauthenticated,
        format!("{place} does not permit {what}: {text}"),
        "an administrator grants it: GRANT SELECT, MODIFY ON KEYSPACE <keyspace> TO <role>;",
    )
}

fn first_line(error: &impl std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The error if no session could be established.
pub(crate) fn not_connected(place: &str, error: NewSessionError) -> StoreError {
    if is_authentication(&error) {
        return told(
            ErrorKind::Unauthenticated,
            format!("{place} did not accept user and password"),
            "name the user in the URL, cassandra://USER@HOST/KEYSPACE, and give the password in the environment \
             variable ATOLL_CASSANDRA_PASSWORD or in a file with password-file=PATH",
        );
    }
    told(
        ErrorKind::Unavailable,
        format!("no contact point of {place} answers: {}", first_line(&error)),
        "check that a node listens there for CQL (`nodetool statusbinary`), that host and port are right, and \
         whether it asks for TLS (tls=on or tls=PATH)",
    )
}

fn is_authentication(error: &NewSessionError) -> bool {
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(error)) => pool_refused(error),
        NewSessionError::MetadataError(MetadataError::FetchError(error)) => {
            error.to_string().contains("uthentication")
        }
        _ => false,
    }
}

fn pool_refused(error: &ConnectionPoolError) -> bool {
    let ConnectionPoolError::Broken { last_connection_error } = error else { return false };
    let ConnectionError::ConnectionSetupRequestError(error) = last_connection_error else { return false };
    matches!(
        error.error,
        ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError | DbError::Unauthorized, _)
            | ConnectionSetupRequestErrorKind::MissingAuthentication
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::Outcome;
    use scylla::errors::SchemaAgreementError;
    use std::time::Duration;

    #[test]
    fn nodes_that_do_not_agree_on_the_tables_are_told_with_what_shows_who_differs() {
        let late = SchemaAgreementError::Timeout(Duration::from_secs(15));
        let error = refused("here", "creating tables", ExecutionError::SchemaAgreementError(late));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("do not agree"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("describecluster") && hint.contains("clock")));
    }

    #[test]
    fn a_request_that_is_too_large_is_told_from_one_that_is_not_understood() {
        let invalid = |text: &str| {
            let error = RequestAttemptError::DbError(DbError::Invalid, text.to_owned());
            refused("here", "write", ExecutionError::LastAttemptError(error))
        };
        let text = "Request is too big: length 17000000 exceeds maximum allowed length 16777216.";
        let error = invalid(text);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Limit, Outcome::Refused));
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("split the batch")));
        assert_eq!(invalid("unconfigured table cells").kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn an_answer_that_came_in_parts_is_an_error_that_says_so_at_once() {
        let error = || ExecutionError::LastAttemptError(RequestAttemptError::NonfinishedPagingState);
        assert_eq!(judge(&error()), Failure::Final);
        let error = refused("here", "scan", error());
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::Refused));
        assert!(error.to_string().contains("a first page"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("Apache Cassandra")));
    }

    #[test]
    fn a_read_that_met_too_many_deleted_rows_is_not_tried_again_and_others_that_failed_are() {
        let failed = |text: &str| {
            let error = DbError::ReadFailure {
                consistency: scylla::statement::Consistency::Quorum,
                received: 1,
                required: 2,
                numfailures: 1,
                data_present: false,
            };
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, text.to_owned()))
        };
        let dead = failed("Operation failed - received 0 responses and 1 failures: READ_TOO_MANY_TOMBSTONES");
        assert_eq!((judge(&dead), is_of_tombstones(&dead)), (Failure::Final, true));
        let other = failed("Operation failed - received 0 responses and 1 failures: UNKNOWN");
        assert_eq!((judge(&other), is_of_tombstones(&other)), (Failure::Doubtful, false));
    }
}
