//! Every statement that the store sends, prepared once, each with the consistency that it needs.
//!
//! Invariant: state that can change is read at SERIAL and written only by conditional batches. Plain
//! statements write only chunks and created cells, and read only cells under the vow of `create`, listings,
//! and what a glance or a search looks for.

use crate::options::Consistency as Majority;
use crate::profiles::Profiles;
use futures::try_join;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use std::sync::Arc;

/// The statements of one store.
#[derive(Debug)]
pub(crate) struct Statements {
    /// Reads of cells.
    pub(crate) reads: Reads,
    /// The parts of conditional batches.
    pub(crate) changes: Changes,
    /// Chunks, created cells and listings.
    pub(crate) plain: Plain,
}

/// Reads of cells.
#[derive(Debug)]
pub(crate) struct Reads {
    /// Rows by (kind, sort key), with values; serial.
    pub(crate) names: PreparedStatement,
    /// The same without values; serial.
    pub(crate) names_heads: PreparedStatement,
    /// The same without values, at a majority; used to notice changes.
    pub(crate) names_glance: PreparedStatement,
    /// One cell from any replica.
    pub(crate) cell_near: PreparedStatement,
    /// One cell from a majority.
    pub(crate) cell: PreparedStatement,
    /// Rows by (kind, sort key) with their write times, at a majority; used before `create`.
    pub(crate) look: PreparedStatement,
    /// Creations that were seen, read at a majority, which has all of them afterwards. Read repair covers
    /// only the columns that are asked for; `writetime(value)` includes the value, which itself stays in the
    /// cluster.
    pub(crate) settle: PreparedStatement,
    /// A page in order, with values, ascending and descending; serial.
    pub(crate) page: [PreparedStatement; 2],
    /// The same without values.
    pub(crate) page_heads: [PreparedStatement; 2],
    /// Heads of a range, at a majority; used to find the chunks that a deleted range leaves behind.
    pub(crate) range_heads: PreparedStatement,
}

/// The parts of conditional batches.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Moves the head, on the condition that it is the expected one.
    pub(crate) advance: PreparedStatement,
    /// Writes the row of a winner, which is only a head.
    pub(crate) note: PreparedStatement,
    /// Writes the row of a request id.
    pub(crate) remember: PreparedStatement,
    /// Writes a piece.
    pub(crate) put: PreparedStatement,
    /// Writes a piece if it does not exist.
    pub(crate) put_absent: PreparedStatement,
    /// Writes nothing, on the condition that a piece does not exist.
    pub(crate) guard_absent: PreparedStatement,
    /// Deletes all pieces of a cell.
    pub(crate) delete_cell: PreparedStatement,
    /// Deletes the pieces of a cell behind a given one.
    pub(crate) delete_pieces: PreparedStatement,
    /// Deletes cells from one sort key up to, but excluding, another.
    pub(crate) delete_range: PreparedStatement,
    /// Deletes cells from one sort key on.
    pub(crate) delete_from: PreparedStatement,
}

/// Chunks, created cells and listings.
#[derive(Debug)]
pub(crate) struct Plain {
    /// Writes a created cell at a majority, with a timestamp chosen by the client.
    pub(crate) create: PreparedStatement,
    /// Writes a chunk at a majority.
    pub(crate) put_chunk: PreparedStatement,
    /// Reads a chunk from any replica.
    pub(crate) chunk_near: PreparedStatement,
    /// Reads a chunk from a majority.
    pub(crate) chunk: PreparedStatement,
    /// Deletes a chunk that no cell refers to.
    pub(crate) delete_chunk: PreparedStatement,
    /// Deletes a chunk that no cell refers to, unless it was written again since a given time.
    pub(crate) delete_old_chunk: PreparedStatement,
    /// The chunks from one token to another, with their owners, in the order of tokens.
    pub(crate) owners: PreparedStatement,
    /// The partition keys in the order of tokens.
    pub(crate) list: PreparedStatement,
}

/// How a statement is sent.
#[derive(Clone, Copy)]
enum Sent {
    /// As a read that sees every earlier conditional write.
    Serial,
    /// In a conditional batch, whose own settings count.
    Conditional,
    /// To a majority; harmless when sent twice.
    Majority,
    /// To one replica.
    Near,
}

struct Preparing<'a> {
    session: &'a Session,
    profiles: &'a Profiles,
    majority: Majority,
    keyspace: &'a str,
}

impl Preparing<'_> {
    async fn prepare(&self, text: &str, sent: Sent) -> Result<PreparedStatement, PrepareError> {
        let text = text.replace("{k}", self.keyspace);
        let mut statement = self.session.prepare(text).await?;
        let is_local = self.majority == Majority::LocalQuorum;
        let profile = match sent {
            Sent::Serial | Sent::Conditional => &self.profiles.serial,
            Sent::Majority | Sent::Near => &self.profiles.plain,
        };
        statement.set_execution_profile_handle(Some(profile.clone()));
        statement.set_is_idempotent(matches!(sent, Sent::Majority | Sent::Near));
        statement.set_consistency(match (sent, is_local) {
            (Sent::Serial, false) => Consistency::Serial,
            (Sent::Serial, true) => Consistency::LocalSerial,
            (Sent::Near, false) => Consistency::One,
            (Sent::Near, true) => Consistency::LocalOne,
            (Sent::Conditional | Sent::Majority, false) => Consistency::Quorum,
            (Sent::Conditional | Sent::Majority, true) => Consistency::LocalQuorum,
        });
        Ok(statement)
    }
}

const RANGE: &str = "p = ? AND (kind, s) >= (0, ?) AND (kind, s) < (?, ?)";

impl Statements {
    pub(crate) async fn prepare(
        session: &Session,
        profiles: &Profiles,
        majority: Majority,
        keyspace: &str,
    ) -> Result<Self, PrepareError> {
        let preparing = Preparing { session, profiles, majority, keyspace };
        let (reads, changes, plain) =
            try_join!(Reads::prepare(&preparing), Changes::prepare(&preparing), Plain::prepare(&preparing))?;
        Ok(Self { reads, changes, plain })
    }
}

fn names(columns: &str) -> String {
    format!("SELECT {columns} FROM {{k}}.cells WHERE p = ? AND (kind, s) IN ?")
}

fn page(columns: &str, order: &str) -> String {
    format!(
        "SELECT {columns} FROM {{k}}.cells WHERE {RANGE} ORDER BY kind {order}, s {order}, piece {order} LIMIT ?"
    )
}

const HEADS: &str = "kind, s, piece, head";
const VALUES: &str = "kind, s, piece, head, value";

impl Reads {
    async fn prepare(preparing: &Preparing<'_>) -> Result<Self, PrepareError> {
        let one = format!("SELECT {VALUES} FROM {{k}}.cells WHERE p = ? AND kind = 0 AND s = ?");
        let before_create = names("kind, s, piece, head, value, writetime(head)");
        let range_heads = format!("SELECT {HEADS} FROM {{k}}.cells WHERE {RANGE} LIMIT ?");
        let serial = async |text: String| preparing.prepare(&text, Sent::Serial).await;
        let majority = async |text: &str| preparing.prepare(text, Sent::Majority).await;
        Ok(Self {
            names: serial(names(VALUES)).await?,
            names_heads: serial(names(HEADS)).await?,
            names_glance: majority(&names(HEADS)).await?,
            cell_near: preparing.prepare(&one, Sent::Near).await?,
            cell: majority(&one).await?,
            look: majority(&before_create).await?,
            settle: majority(&names("kind, s, piece, head, writetime(value)")).await?,
            page: [serial(page(VALUES, "ASC")).await?, serial(page(VALUES, "DESC")).await?],
            page_heads: [serial(page(HEADS, "ASC")).await?, serial(page(HEADS, "DESC")).await?],
            range_heads: majority(&range_heads).await?,
        })
    }
}

impl Changes {
    async fn prepare(preparing: &Preparing<'_>) -> Result<Self, PrepareError> {
        let piece = "p = ? AND kind = 0 AND s = ? AND piece = ?";
        let put = format!("UPDATE {{k}}.cells SET head = ?, value = ? WHERE {piece}");
        let row = |kind: u8| format!("WHERE p = ? AND kind = {kind} AND s = ? AND piece = 0");
        let of = async |text: &str| preparing.prepare(text, Sent::Conditional).await;
        let cells = "DELETE FROM {k}.cells WHERE p = ? AND kind = 0 AND";
        Ok(Self {
            advance: of(
                "UPDATE {k}.cells SET head = ? WHERE p = ? AND kind = 1 AND s = 0x AND piece = 0 IF head = ?",
            )
            .await?,
            note: of(&format!("UPDATE {{k}}.cells SET head = ? {}", row(2))).await?,
            remember: of(&format!("UPDATE {{k}}.cells USING TTL ? SET head = ? {}", row(3))).await?,
            put: of(&put).await?,
            put_absent: of(&format!("{put} IF head = null")).await?,
            guard_absent: of(&format!("UPDATE {{k}}.cells SET guard = null {} IF head = null", row(0)))
                .await?,
            delete_cell: of(&format!("{cells} s = ?")).await?,
            delete_pieces: of(&format!("{cells} s = ? AND piece > ?")).await?,
            delete_range: of(&format!("{cells} s >= ? AND s < ?")).await?,
            delete_from: of(&format!("{cells} s >= ?")).await?,
        })
    }
}

impl Plain {
    async fn prepare(preparing: &Preparing<'_>) -> Result<Self, PrepareError> {
        let piece = "p = ? AND kind = 0 AND s = ? AND piece = ?";
        let create = format!("UPDATE {{k}}.cells USING TIMESTAMP ? SET head = ?, value = ? WHERE {piece}");
        let chunk = "SELECT data FROM {k}.chunks WHERE id = ? AND n = ?";
        let owners = "SELECT id, n, p, s, writetime(s), token(id, n) FROM {k}.chunks \
                      WHERE token(id, n) >= ? AND token(id, n) <= ? LIMIT ?";
        let list = "SELECT p, kind FROM {k}.cells WHERE token(p) >= ? AND token(p) <= ? LIMIT ?";
        let of = async |text: &str| preparing.prepare(text, Sent::Majority).await;
        let mut create = of(&create).await?;
        // The driver would report only how the last of its tries ended, and hide the outcome of the first.
        create.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
        Ok(Self {
            create,
            put_chunk: of("INSERT INTO {k}.chunks (id, n, data, p, s) VALUES (?, ?, ?, ?, ?)").await?,
            chunk_near: preparing.prepare(chunk, Sent::Near).await?,
            chunk: of(chunk).await?,
            delete_chunk: of("DELETE FROM {k}.chunks WHERE id = ? AND n = ?").await?,
            delete_old_chunk: of("DELETE FROM {k}.chunks USING TIMESTAMP ? WHERE id = ? AND n = ?").await?,
            owners: of(owners).await?,
            list: of(list).await?,
        })
    }
}
