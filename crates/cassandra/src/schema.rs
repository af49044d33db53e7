//! The tables: how exactly one client creates them, and which format this build knows.
//!
//! Invariant: a keyspace that a newer release wrote is refused before anything else is read.
//! Invariant: clients that create the same keyspace at once do so through the same node, which runs the
//! statements one after the other.

use crate::drift::{self, Found};
use crate::failure::{database_error, refused, told};
use crate::options::Options;
use crate::profiles::Profiles;
use atoll_store::{ErrorKind, StoreError};
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::errors::{DbError, ExecutionError};
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::response::query_result::QueryResult;
use scylla::statement::unprepared::Statement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::Row;
use std::sync::Arc;

/// The format of the tables that this build writes, and the only one that it reads: no release wrote an older
/// one.
pub(crate) const FORMAT: i32 = 2;

/// The tables in the order of their creation; the one that marks the store as complete comes last.
pub(crate) fn tables(keyspace: &str) -> [String; 3] {
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.cells (p blob, kind tinyint, s blob, piece int, head blob, \
             value blob, guard blob, PRIMARY KEY ((p), kind, s, piece))"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.chunks (id blob, n int, data blob, p blob, s blob, \
             PRIMARY KEY ((id, n))) WITH compression = {{'enabled': 'false'}}"
        ),
        format!("CREATE TABLE IF NOT EXISTS {keyspace}.meta (name text PRIMARY KEY, number int)"),
    ]
}

/// Ensures that the tables exist and have a format that this build knows.
pub(crate) async fn ensure(
    session: &Session,
    profiles: &Profiles,
    options: &Options,
) -> Result<(), StoreError> {
    let schema = Schema { session, profiles, options, place: options.place() };
    match schema.format().await {
        Ok(Some(format)) => schema.check(format)?,
        Ok(None) if options.create && !options.read_only => schema.create().await?,
        Ok(None) => {
            return Err(told(
                ErrorKind::NotFound,
                format!("there is no store at {}", schema.place),
                "the first command that may write makes one: leave out mode=read and create=no; and check the spelling \
                 of the keyspace, capitals included",
            ));
        }
        // An altered table says more than the error of the statement that failed because of it.
        Err(error) => return Err(schema.check_drift().await.err().filter(is_drift).unwrap_or(error)),
    }
    schema.check_drift().await
}

fn is_drift(error: &StoreError) -> bool {
    error.kind() == ErrorKind::Corrupt
}

struct Schema<'a> {
    session: &'a Session,
    profiles: &'a Profiles,
    options: &'a Options,
    place: String,
}

impl Schema<'_> {
    fn check(&self, format: i32) -> Result<(), StoreError> {
        if format == FORMAT {
            return Ok(());
        }
        if format < FORMAT {
            return Err(told(
                ErrorKind::Unsupported,
                format!("{} has format {format}, from before the first release", self.place),
                format!(
                    "no build reads it any more: name another keyspace, or drop this one (DROP KEYSPACE {};)",
                    self.options.keyspace_quoted()
                ),
            ));
        }
        let (place, found) = (self.place.clone(), u32::try_from(format).unwrap_or(0));
        Err(StoreError::NewerFormat { place, found, supported: FORMAT as u32 })
    }

    /// The format of the keyspace; none if it holds no complete store.
    async fn format(&self) -> Result<Option<i32>, StoreError> {
        let mut read = Statement::new(format!(
            "SELECT number FROM {}.meta WHERE name = 'format'",
            self.options.keyspace_quoted()
        ));
        read.set_consistency(match self.options.consistency {
            crate::options::Consistency::Quorum => Consistency::Serial,
            crate::options::Consistency::LocalQuorum => Consistency::LocalSerial,
        });
        read.set_execution_profile_handle(Some(self.profiles.serial.clone()));
        let mut patience = crate::link::Patience::new(self.options.request_time_out);
        loop {
            match self.session.query_unpaged(read.clone(), ()).await {
                Ok(result) => return self.number(result),
                Err(error) if is_missing(&error) => return Ok(None),
                Err(error) if !is_passing(&error) || !patience.goes_on().await => {
                    return Err(self.refused("opening", error));
                }
                Err(_) => {}
            }
        }
    }

    fn number(&self, result: QueryResult) -> Result<Option<i32>, StoreError> {
        let corrupt = |error: &dyn std::fmt::Display| StoreError::Corrupt {
            place: self.place.clone(),
            problem: format!("the table meta has another form: {error}"),
        };
        let rows = result.into_rows_result().map_err(|error| corrupt(&error))?;
        let row = rows.maybe_first_row::<(Option<i32>,)>().map_err(|error| corrupt(&error))?;
        Ok(row.and_then(|(number,)| number))
    }

    async fn create(&self) -> Result<(), StoreError> {
        let node = self.first_node()?;
        if !self.has_keyspace().await? {
            self.define(&node, self.keyspace_definition()).await?;
        }
        for table in tables(&self.options.keyspace_quoted()) {
            self.define(&node, table).await?;
        }
        self.check_unclaimed().await?;
        let mut stamp = Statement::new(format!(
            "INSERT INTO {}.meta (name, number) VALUES ('format', {FORMAT}) IF NOT EXISTS",
            self.options.keyspace_quoted()
        ));
        stamp.set_execution_profile_handle(Some(self.profiles.serial.clone()));
        let mut patience = crate::link::Patience::new(self.options.request_time_out);
        // If it is sent again, it finds the row that it wrote before.
        while let Err(error) = self.session.query_unpaged(stamp.clone(), ()).await {
            if !is_passing(&error) || !patience.goes_on().await {
                return Err(self.refused("creating tables", error));
            }
        }
        match self.format().await? {
            Some(format) => self.check(format),
            None => Err(StoreError::NotFound { what: "store", name: self.place.clone() }),
        }
    }

    /// Checks that the tables are as they were made.
    async fn check_drift(&self) -> Result<(), StoreError> {
        let read = async |columns: &str, table: &str| {
            let read = format!("SELECT {columns} FROM system_schema.{table} WHERE keyspace_name = ?");
            let result = self.session.query_unpaged(read, (self.options.keyspace.as_str(),)).await;
            let rows = result.map_err(|error| self.refused("opening", error))?.into_rows_result();
            rows.map_err(|error| self.unread(table, &error))
        };
        let (columns, tables, keyspaces) = futures::try_join!(
            read("table_name, column_name, type, kind", "columns"),
            // Not every cluster has all the columns that are examined.
            read("*", "tables"),
            read("durable_writes", "keyspaces")
        )?;
        let mut found = Found::default();
        let rows = columns.rows::<(String, String, String, String)>();
        for row in rows.map_err(|error| self.unread("columns", &error))? {
            let (table, column, kind, part) = row.map_err(|error| self.unread("columns", &error))?;
            found.columns.insert((table, column), (kind, part));
        }
        let names: Vec<&str> = tables.column_specs().iter().map(|column| column.name()).collect();
        for row in tables.rows::<Row>().map_err(|error| self.unread("tables", &error))? {
            let row = row.map_err(|error| self.unread("tables", &error))?;
            found.take_table(names.iter().copied().zip(row.columns));
        }
        let logged =
            keyspaces.maybe_first_row::<(bool,)>().map_err(|error| self.unread("keyspaces", &error))?;
        found.is_unlogged = logged == Some((false,));
        drift::check(&self.place, &self.options.keyspace_quoted(), &found)
    }

    fn unread(&self, table: &str, error: &dyn std::fmt::Display) -> StoreError {
        StoreError::Unavailable {
            place: self.place.clone(),
            reason: format!("its system_schema.{table} is not understood: {error}"),
            source: None,
        }
    }

    /// Refuses cells without a format: rows are written only after the table `meta` states it.
    async fn check_unclaimed(&self) -> Result<(), StoreError> {
        let mut read =
            Statement::new(format!("SELECT p FROM {}.cells LIMIT 1", self.options.keyspace_quoted()));
        read.set_execution_profile_handle(Some(self.profiles.plain.clone()));
        let result =
            self.session.query_unpaged(read, ()).await.map_err(|error| self.refused("opening", error))?;
        let has_rows = result.into_rows_result().is_ok_and(|rows| rows.rows_num() > 0);
        if !has_rows || self.format().await?.is_some() {
            return Ok(());
        }
        Err(told(
            ErrorKind::Corrupt,
            format!("{} holds cells, and its table meta does not say by which format", self.place),
            "the table meta was dropped or emptied: restore it from a snapshot (\"Backup and restore\" in the \
             guide to Cassandra), or name another keyspace",
        ))
    }

    async fn has_keyspace(&self) -> Result<bool, StoreError> {
        let read = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let name = self.options.keyspace.as_str();
        let result = self
            .session
            .query_unpaged(read, (name,))
            .await
            .map_err(|error| self.refused("opening", error))?;
        let rows = result.into_rows_result();
        Ok(rows.is_ok_and(|rows| rows.rows_num() > 0))
    }

    fn keyspace_definition(&self) -> String {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info();
        let near = self.options.datacenter.clone().or_else(|| nodes.first()?.datacenter.clone());
        let there = nodes.iter().filter(|node| near.is_none() || node.datacenter == near).count();
        let copies = self.options.replication.unwrap_or(there.clamp(1, 3) as u32);
        let key = match (&near, self.options.consistency) {
            (Some(near), crate::options::Consistency::LocalQuorum) => near.replace('\'', "''"),
            _ => "replication_factor".to_owned(),
        };
        format!(
            "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {{'class': 'NetworkTopologyStrategy', '{key}': {copies}}}",
            self.options.keyspace_quoted()
        )
    }

    /// The node through which all clients send definitions: the same one while it is up.
    fn first_node(&self) -> Result<Arc<Node>, StoreError> {
        let state = self.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter().filter(|node| node.is_connected());
        nodes.min_by_key(|node| node.host_id).cloned().ok_or_else(|| StoreError::Unavailable {
            place: self.place.clone(),
            reason: "no node is connected".to_owned(),
            source: None,
        })
    }

    /// Runs a definition through `node`, and waits until every node knows it.
    async fn define(&self, node: &Arc<Node>, definition: String) -> Result<(), StoreError> {
        let target = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(Arc::clone(node)), None);
        let mut patience = crate::link::Patience::new(self.options.request_time_out);
        loop {
            let mut statement = Statement::new(definition.clone());
            statement.set_load_balancing_policy(Some(Arc::clone(&target)));
            statement.set_serial_consistency(Some(SerialConsistency::Serial));
            statement.set_request_timeout(Some(self.options.request_time_out));
            let error = match self.session.query_unpaged(statement, ()).await {
                Ok(_) => match self.session.await_schema_agreement().await {
                    Ok(_) => return Ok(()),
                    Err(error) => ExecutionError::SchemaAgreementError(error),
                },
                Err(error) => error,
            };
            if let Some((DbError::Unauthorized, text)) = database_error(&error) {
                return Err(self.lacks_rights(text));
            }
            if !is_passing(&error) || !patience.goes_on().await {
                return Err(self.refused("creating tables", error));
            }
        }
    }

    fn lacks_rights(&self, text: &str) -> StoreError {
        let role =
            self.options.credentials.as_ref().map_or("<role>", |credentials| credentials.user.as_str());
        let keyspace = self.options.keyspace_quoted();
        told(
            ErrorKind::Unauthenticated,
            format!("{} cannot be created: {text}", self.place),
            format!(
                "an administrator runs, once: {}; GRANT CREATE, SELECT, MODIFY ON KEYSPACE {keyspace} TO {role};",
                self.keyspace_definition()
            ),
        )
    }

    fn refused(&self, what: &'static str, error: ExecutionError) -> StoreError {
        if let Some((DbError::Unauthorized, text)) = database_error(&error) {
            return self.lacks_rights(text);
        }
        refused(&self.place, what, error)
    }
}

/// Whether the keyspace or a table does not exist, which Cassandra reports only in the message's text.
fn is_missing(error: &ExecutionError) -> bool {
    let Some((DbError::Invalid | DbError::ConfigError, text)) = database_error(error) else { return false };
    ["unconfigured table", "does not exist", "table does not exist"].iter().any(|words| text.contains(words))
}

fn is_passing(error: &ExecutionError) -> bool {
    crate::failure::judge(error) != crate::failure::Failure::Final
}
