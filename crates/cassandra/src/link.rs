//! The link to the cluster: sends statements, retries them where that is harmless, and measures the round
//! trip.
//!
//! Invariant: each call of [`Link::decide`] sends a conditional batch once; its caller knows what a doubtful
//! answer means.

use crate::bind::Bind;
use crate::failure::{Failure, is_of_replicas, is_of_tombstones, judge, refused, told, unknown};
use crate::guarantees::Guarantees;
use crate::kept::Kept;
use crate::options::Options;
use crate::profiles::Profiles;
use crate::settings::ClusterSettings;
use crate::settle::Settled;
use crate::statements::Statements;
use atoll_store::{ErrorKind, StoreError};
use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::response::query_result::{QueryResult, QueryRowsResult};
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlValue, Row};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Requests in flight per node at which a cluster performs best.
const REQUESTS_PER_NODE: usize = 64;

/// The most requests in flight; a cluster that one client can saturate gains nothing from more.
const REQUESTS_MAX: usize = 1024;

/// A session with its prepared statements.
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) statements: Statements,
    pub(crate) profiles: Profiles,
    pub(crate) options: Options,
    pub(crate) place: String,
    /// One budget of requests in flight, shared by all bulk operations.
    pub(crate) budget: Arc<Semaphore>,
    /// A separate budget for deletions of chunks, of which any number may be due at once and for which no
    /// caller waits.
    pub(crate) deletions: Semaphore,
    pub(crate) parallelism: usize,
    pub(crate) kept: Kept,
    pub(crate) settled: Settled,
    /// The largest change of one partition that every node accepted when the store was opened.
    pub(crate) mutation_bytes_max: u64,
    pub(crate) guarantees: Guarantees,
    round_trip_ns: AtomicU64,
}

/// The outcome of a conditional batch.
#[derive(Debug)]
pub(crate) enum Decided {
    /// All conditions held, and all changes were applied.
    Applied,
    /// A condition did not hold.
    Lost,
    /// Nothing happened, and nothing will.
    Refused(StoreError),
    /// Nothing happened; the cluster may recover.
    Passing(ExecutionError),
    /// It may have happened, or may happen later.
    Doubtful(StoreError),
}

impl Link {
    pub(crate) fn new(
        session: Session,
        statements: Statements,
        profiles: Profiles,
        options: Options,
        settings: ClusterSettings,
        round_trip: Duration,
    ) -> Self {
        let nodes = session.get_cluster_state().get_nodes_info().len().max(1);
        let parallelism = (nodes * REQUESTS_PER_NODE).min(REQUESTS_MAX);
        let kept = Kept::new(options.memory_bytes);
        Self {
            place: options.place(),
            session,
            statements,
            profiles,
            options,
            budget: Arc::new(Semaphore::new(parallelism * 2)),
            deletions: Semaphore::new(parallelism / 2),
            parallelism,
            kept,
            settled: Settled::default(),
            mutation_bytes_max: settings.mutation_bytes_max.unwrap_or(u64::MAX),
            guarantees: Guarantees::new(settings),
            round_trip_ns: AtomicU64::new(round_trip.as_nanos() as u64),
        }
    }

    /// The usual time of one request.
    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip_ns.load(Ordering::Relaxed))
    }

    /// The rows of a statement that is harmless when sent twice: a read, or a write that repeats the same
    /// values.
    pub(crate) async fn rows(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: &impl SerializeRow,
    ) -> Result<QueryRowsResult, StoreError> {
        let result = self.run(what, statement, values).await;
        let result = result.map_err(|error| refused(&self.place, what, error))?;
        result.into_rows_result().map_err(|error| self.not_understood(&error))
    }

    /// The same as [`rows`](Self::rows), but none if the read met too many tombstones.
    pub(crate) async fn rows_among_dead(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: &impl SerializeRow,
    ) -> Result<Option<QueryRowsResult>, StoreError> {
        match self.run(what, statement, values).await {
            Ok(result) => result.into_rows_result().map(Some).map_err(|error| self.not_understood(&error)),
            Err(error) if is_of_tombstones(&error) => Ok(None),
            Err(error) => Err(refused(&self.place, what, error)),
        }
    }

    /// The same as [`rows`](Self::rows) for a caller who only has to know whether another try can help.
    pub(crate) async fn rows_or_failure(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: &impl SerializeRow,
    ) -> Result<QueryRowsResult, Failure> {
        let result = self.run(what, statement, values).await.map_err(|error| judge(&error))?;
        result.into_rows_result().map_err(|_| Failure::Final)
    }

    /// Sends a statement that is harmless when sent twice, until it is answered or the time is up.
    async fn run(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: &impl SerializeRow,
    ) -> Result<QueryResult, ExecutionError> {
        let mut patience = Patience::new(self.options.request_time_out);
        loop {
            let started = Instant::now();
            match self.session.execute_unpaged(statement, values).await {
                Ok(result) => {
                    self.took(started.elapsed());
                    return Ok(result);
                }
                Err(error) if judge(&error) == Failure::Final || !patience.goes_on().await => {
                    return Err(error);
                }
                Err(error) => tracing::debug!(what, %error, "a request is tried again"),
            }
        }
    }

    /// The same for a write: after a doubtful error its outcome stays unknown.
    pub(crate) async fn write(
        &self,
        what: &'static str,
        statement: &PreparedStatement,
        values: &impl SerializeRow,
    ) -> Result<(), StoreError> {
        let mut patience = Patience::new(self.options.request_time_out);
        let mut is_doubtful = false;
        loop {
            match self.session.execute_unpaged(statement, values).await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    let failure = judge(&error);
                    is_doubtful |= failure == Failure::Doubtful;
                    if failure != Failure::Final && patience.goes_on().await {
                        tracing::debug!(what, %error, "a write is tried again");
                        continue;
                    }
                    return Err(match is_doubtful {
                        true => unknown(what, error),
                        false => refused(&self.place, what, error),
                    });
                }
            }
        }
    }

    /// Sends one conditional batch, exactly once.
    pub(crate) async fn decide(&self, changes: &[(&PreparedStatement, Vec<Bind<'_>>)]) -> Decided {
        let mut batch = Batch::new(BatchType::Unlogged);
        batch.set_execution_profile_handle(Some(self.profiles.serial.clone()));
        batch.set_is_idempotent(false);
        batch.set_consistency(self.majority());
        for (statement, _) in changes {
            batch.append_statement((*statement).clone());
        }
        let values: Vec<&Vec<Bind<'_>>> = changes.iter().map(|(_, values)| values).collect();
        match self.session.batch(&batch, values).await {
            Ok(result) => self.applied(result),
            Err(error) if self.may_be_done(&error) => Decided::Doubtful(unknown("write", error)),
            Err(error) if judge(&error) == Failure::Final => {
                Decided::Refused(refused(&self.place, "write", error))
            }
            Err(error) => Decided::Passing(error),
        }
    }

    /// Whether a conditional change that failed like this may have happened, or may happen later.
    pub(crate) fn may_be_done(&self, error: &ExecutionError) -> bool {
        match judge(error) {
            Failure::Final => false,
            Failure::Passing => is_of_replicas(error) && !self.guarantees.is_refusal_final(),
            Failure::Doubtful => true,
        }
    }

    fn applied(&self, result: QueryResult) -> Decided {
        let rows = result.into_rows_result();
        let row = rows.as_ref().ok().and_then(|rows| rows.first_row::<Row>().ok());
        match row.as_ref().and_then(|row| row.columns.first()) {
            Some(Some(CqlValue::Boolean(true))) => Decided::Applied,
            Some(Some(CqlValue::Boolean(false))) => Decided::Lost,
            // The batch was answered, so it may well have been applied.
            _ => Decided::Doubtful(StoreError::Unknown {
                what: "write",
                reason: "its answer was not understood".to_owned(),
                source: None,
            }),
        }
    }

    pub(crate) fn majority(&self) -> Consistency {
        match self.options.consistency {
            crate::options::Consistency::Quorum => Consistency::Quorum,
            crate::options::Consistency::LocalQuorum => Consistency::LocalQuorum,
        }
    }

    /// The error for an answer whose form does not match the schema.
    pub(crate) fn not_understood(&self, error: &dyn std::fmt::Display) -> StoreError {
        told(
            ErrorKind::Corrupt,
            format!("{}: the cluster answered in a form that does not fit the tables: {error}", self.place),
            "the tables may have been altered: open the store again, which names what differs",
        )
    }

    /// Updates the round trip: a moving average in which each answer counts an eighth.
    fn took(&self, elapsed: Duration) {
        let (old, new) = (self.round_trip_ns.load(Ordering::Relaxed), elapsed.as_nanos() as u64);
        self.round_trip_ns.store(old - old / 8 + new / 8, Ordering::Relaxed);
    }
}

/// A time limit for retries, with growing pauses that are randomised between clients.
pub(crate) struct Patience {
    ends: Instant,
    pause: Duration,
}

const PAUSE_FIRST: Duration = Duration::from_millis(4);
const PAUSE_MAX: Duration = Duration::from_millis(250);

impl Patience {
    pub(crate) fn new(time_out: Duration) -> Self {
        Self { ends: Instant::now() + time_out, pause: PAUSE_FIRST }
    }

    /// Pauses and returns true, or returns false if the time is up.
    pub(crate) async fn goes_on(&mut self) -> bool {
        let pause = self.pause.mul_f64(fastrand::f64() + 0.5);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        if Instant::now() + pause >= self.ends {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}
