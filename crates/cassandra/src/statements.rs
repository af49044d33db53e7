//! Every statement that the store sends, prepared once, each with the consistency that it needs.
//!
//! Invariant: what can change is read at SERIAL and written by conditional batches alone; plain statements only
//! write chunks and created cells, and only read what `create` vowed, what is being looked for, or listings.

use crate::options::Consistency as Majority;
use crate::profiles::Profiles;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

/// The statements of one store.
#[derive(Debug)]
pub(crate) struct Statements {
    /// Rows by (kind, sort key), with values: serial.
    pub(crate) names: PreparedStatement,
    /// The same without values: serial.
    pub(crate) names_heads: PreparedStatement,
    /// The same without values, at a majority: to notice changes.
    pub(crate) names_glance: PreparedStatement,
    /// One cell from any replica.
    pub(crate) cell_near: PreparedStatement,
    /// One cell from a majority.
    pub(crate) cell: PreparedStatement,
    /// Rows by (kind, sort key) with the time at which they were written, at a majority: before `create`.
    pub(crate) look: PreparedStatement,
    /// A page in order, with values: serial.
    pub(crate) page: [PreparedStatement; 2],
    /// The same without values.
    pub(crate) page_heads: [PreparedStatement; 2],
    /// Heads of a range, at a majority: to find what a deleted range leaves behind.
    pub(crate) range_heads: PreparedStatement,

    /// The condition that a conditional batch turns on.
    pub(crate) advance: PreparedStatement,
    /// Any row that is only a head: winners.
    pub(crate) note: PreparedStatement,
    /// A remembered request id.
    pub(crate) remember: PreparedStatement,
    /// A piece.
    pub(crate) put: PreparedStatement,
    /// A piece, if there is none.
    pub(crate) put_absent: PreparedStatement,
    /// Nothing, if there is no piece.
    pub(crate) guard_absent: PreparedStatement,
    /// All pieces of a cell.
    pub(crate) delete_cell: PreparedStatement,
    /// The pieces of a cell behind one.
    pub(crate) delete_pieces: PreparedStatement,
    /// Cells from one sort key to before another.
    pub(crate) delete_range: PreparedStatement,
    /// Cells from one sort key on.
    pub(crate) delete_from: PreparedStatement,

    /// A created cell, at a majority, with a timestamp of our own.
    pub(crate) create: PreparedStatement,
    /// A chunk, at a majority.
    pub(crate) put_chunk: PreparedStatement,
    /// A chunk from any replica.
    pub(crate) chunk_near: PreparedStatement,
    /// A chunk from a majority.
    pub(crate) chunk: PreparedStatement,
    /// A chunk that nothing refers to.
    pub(crate) delete_chunk: PreparedStatement,
    /// Who owns chunks, in the order of tokens.
    pub(crate) owners: PreparedStatement,
    /// Partition keys in the order of tokens.
    pub(crate) list: PreparedStatement,
    /// The same behind one of them.
    pub(crate) list_after: PreparedStatement,
}

/// How a statement is sent.
#[derive(Clone, Copy)]
enum Sent {
    /// As a read that sees every conditional write before it.
    Serial,
    /// Inside conditional batches, whose own settings count.
    Conditional,
    /// To a majority; harmless when it happens twice.
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
const PIECE: &str = "p = ? AND kind = 0 AND s = ? AND piece = ?";

impl Statements {
    pub(crate) async fn prepare(
        session: &Session,
        profiles: &Profiles,
        majority: Majority,
        keyspace: &str,
    ) -> Result<Self, PrepareError> {
        let prepare = Preparing { session, profiles, majority, keyspace };
        let of = |text: String, sent| {
            let prepare = &prepare;
            async move { prepare.prepare(&text, sent).await }
        };
        let names = |columns| format!("SELECT {columns} FROM {{k}}.cells WHERE p = ? AND (kind, s) IN ?");
        let one = || {
            "SELECT kind, s, piece, head, value FROM {k}.cells WHERE p = ? AND kind = 0 AND s = ?".to_owned()
        };
        let page = |columns, order| {
            format!(
                "SELECT {columns} FROM {{k}}.cells WHERE {RANGE} ORDER BY kind {order}, s {order}, piece {order} LIMIT ?"
            )
        };
        let (heads, values) = ("kind, s, piece, head", "kind, s, piece, head, value");
        let text = |text: &str| text.to_owned();
        Ok(Self {
            names: of(names(values), Sent::Serial).await?,
            names_heads: of(names(heads), Sent::Serial).await?,
            names_glance: of(names(heads), Sent::Majority).await?,
            cell_near: of(one(), Sent::Near).await?,
            cell: of(one(), Sent::Majority).await?,
            look: of(names("kind, s, piece, head, value, writetime(head)"), Sent::Majority).await?,
            page: [of(page(values, "ASC"), Sent::Serial).await?, of(page(values, "DESC"), Sent::Serial).await?],
            page_heads: [of(page(heads, "ASC"), Sent::Serial).await?, of(page(heads, "DESC"), Sent::Serial).await?],
            range_heads: of(format!("SELECT {heads} FROM {{k}}.cells WHERE {RANGE} LIMIT ?"), Sent::Majority).await?,
            advance: of(
                text("UPDATE {k}.cells SET head = ? WHERE p = ? AND kind = 1 AND s = 0x AND piece = 0 IF head = ?"),
                Sent::Conditional,
            )
            .await?,
            note: of(
                text("UPDATE {k}.cells SET head = ? WHERE p = ? AND kind = 2 AND s = ? AND piece = 0"),
                Sent::Conditional,
            )
            .await?,
            remember: of(
                text("UPDATE {k}.cells USING TTL ? SET head = ? WHERE p = ? AND kind = 3 AND s = ? AND piece = 0"),
                Sent::Conditional,
            )
            .await?,
            put: of(format!("UPDATE {{k}}.cells SET head = ?, value = ? WHERE {PIECE}"), Sent::Conditional).await?,
            put_absent: of(
                format!("UPDATE {{k}}.cells SET head = ?, value = ? WHERE {PIECE} IF head = null"),
                Sent::Conditional,
            )
            .await?,
            guard_absent: of(
                text("UPDATE {k}.cells SET guard = null WHERE p = ? AND kind = 0 AND s = ? AND piece = 0 IF head = null"),
                Sent::Conditional,
            )
            .await?,
            delete_cell: of(text("DELETE FROM {k}.cells WHERE p = ? AND kind = 0 AND s = ?"), Sent::Conditional).await?,
            delete_pieces: of(
                text("DELETE FROM {k}.cells WHERE p = ? AND kind = 0 AND s = ? AND piece > ?"),
                Sent::Conditional,
            )
            .await?,
            delete_range: of(
                text("DELETE FROM {k}.cells WHERE p = ? AND kind = 0 AND s >= ? AND s < ?"),
                Sent::Conditional,
            )
            .await?,
            delete_from: of(text("DELETE FROM {k}.cells WHERE p = ? AND kind = 0 AND s >= ?"), Sent::Conditional)
                .await?,
            create: of(
                format!("UPDATE {{k}}.cells USING TIMESTAMP ? SET head = ?, value = ? WHERE {PIECE}"),
                Sent::Majority,
            )
            .await?,
            put_chunk: of(
                text("INSERT INTO {k}.chunks (id, n, data, p, s, count) VALUES (?, ?, ?, ?, ?, ?)"),
                Sent::Majority,
            )
            .await?,
            chunk_near: of(text("SELECT data FROM {k}.chunks WHERE id = ? AND n = ?"), Sent::Near).await?,
            chunk: of(text("SELECT data FROM {k}.chunks WHERE id = ? AND n = ?"), Sent::Majority).await?,
            delete_chunk: of(text("DELETE FROM {k}.chunks WHERE id = ? AND n = ?"), Sent::Majority).await?,
            owners: of(
                text("SELECT id, n, p, s, count, writetime(count), token(id, n) FROM {k}.chunks WHERE token(id, n) >= ? LIMIT ?"),
                Sent::Majority,
            )
            .await?,
            list: of(
                text("SELECT p, kind, token(p) FROM {k}.cells WHERE token(p) >= ? AND token(p) <= ? PER PARTITION LIMIT 1 LIMIT ?"),
                Sent::Majority,
            )
            .await?,
            list_after: of(
                text("SELECT p, kind, token(p) FROM {k}.cells WHERE token(p) >= token(?) AND token(p) <= ? PER PARTITION LIMIT 1 LIMIT ?"),
                Sent::Majority,
            )
            .await?,
        })
    }
}
