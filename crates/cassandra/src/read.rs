//! Reads of single cells: linearizable, or under the vow of `create`.
//!
//! Invariant: a cell that refers to a missing chunk is read again, because it was changed meanwhile; it is
//! damaged only if it still refers to that chunk.

use crate::cells::Pieces;
use crate::chunks::{Found, Owner};
use crate::codec::ChunkId;
use crate::link::Link;
use crate::settle::Settling;
use crate::store::Shared;
use atoll_store::{Buffer, ByteRange, StoreError};
use std::sync::Arc;

/// How often an item is read again because it changed during the read. A partition takes some hundred writes
/// a second, and a read some milliseconds, so at worst about two of three reads are disturbed: sixteen
/// disturbed reads in a row happen once in a thousand times, and this many practically never.
const MOVES_MAX: usize = 64;

/// Some bytes of a cell; none if the cell is absent.
pub(crate) async fn read(
    shared: &Arc<Shared>,
    partition: &[u8],
    sort: &[u8],
    range: ByteRange,
    is_vowed: bool,
) -> Result<Option<Buffer>, StoreError> {
    if is_vowed && let Some(bytes) = read_vowed(shared, partition, sort, range).await? {
        return Ok(bytes);
    }
    let mut moves = Moves::default();
    loop {
        let pieces = read_pieces(shared, partition, sort).await?;
        if pieces.is_empty() {
            return Ok(None);
        }
        let of = Owner { partition, sort };
        match shared.link.joined(of, &pieces, range).await? {
            Found::Bytes(bytes) => return Ok(Some(bytes)),
            Found::Gone(id) => moves.gone(&shared.link, of, id)?,
        }
    }
}

/// The pieces of a cell, at SERIAL.
pub(crate) async fn read_pieces(
    shared: &Arc<Shared>,
    partition: &[u8],
    sort: &[u8],
) -> Result<Pieces, StoreError> {
    crate::lanes::read(&shared.link, &shared.lanes, partition, sort).await
}

/// The cell from memory, from one replica, or else from a majority; none if these cannot give an answer.
async fn read_vowed(
    shared: &Arc<Shared>,
    partition: &[u8],
    sort: &[u8],
    range: ByteRange,
) -> Result<Option<Option<Buffer>>, StoreError> {
    let (link, of) = (&shared.link, Owner { partition, sort });
    if let Some(created) = link.kept.cell(partition, sort)
        && let Found::Bytes(bytes) = link.of_created(of, &created, range).await?
    {
        return Ok(Some(Some(bytes)));
    }
    let turn = link.kept.turn(partition);
    for statement in [&link.statements.reads.cell_near, &link.statements.reads.cell] {
        let pieces = {
            let _permit = link.permit().await;
            link.cell_by(statement, partition, sort).await?
        };
        let found = match &pieces[..] {
            [] => continue,
            [piece] => link.of_created(of, &link.take_in(turn, of, piece)?, range).await?,
            pieces => link.joined(of, pieces, range).await?,
        };
        if let Found::Bytes(bytes) = found {
            return Ok(Some(Some(bytes)));
        }
    }
    Ok(None)
}

/// Counts the retries of a read whose subject keeps changing.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    count: usize,
    /// How many of these retries saw no change, only replicas that differed.
    half_made: usize,
    /// The missing chunks that the last read named.
    gone: Option<ChunkId>,
}

impl Moves {
    /// Notes that a cell, read at SERIAL, named a missing chunk. Chunks are deleted only after the cell has
    /// stopped referring to them: to see a missing one once means that the read was a moment late, to see it
    /// again means damage.
    pub(crate) fn gone(&mut self, link: &Link, of: Owner<'_>, id: ChunkId) -> Result<(), StoreError> {
        if self.gone == Some(id) {
            return Err(link.damaged(of, "a chunk of its value is gone"));
        }
        self.gone = Some(id);
        self.again(&link.place)
    }

    /// Notes creations that a majority did not have as they were seen.
    pub(crate) fn unsettled(&mut self, link: &Link, settling: &Settling) -> Result<(), StoreError> {
        self.unsettled_at(&link.place, &link.options.keyspace, settling)
    }

    fn unsettled_at(&mut self, place: &str, keyspace: &str, settling: &Settling) -> Result<(), StoreError> {
        self.half_made += usize::from(settling.is_half_made());
        // If something changed as well, that alone may be the cause.
        self.again(place).map_err(|error| match self.half_made == self.count {
            true => half_made(place, keyspace),
            false => error,
        })
    }

    /// Notes that the subject changed while it was read; an error after too many changes.
    pub(crate) fn again(&mut self, place: &str) -> Result<(), StoreError> {
        self.count += 1;
        if self.count < MOVES_MAX {
            return Ok(());
        }
        Err(crate::failure::told(
            atoll_store::ErrorKind::Unavailable,
            format!(
                "{place} could not be read as of one moment: what was read changed {MOVES_MAX} times meanwhile"
            ),
            "try again when fewer clients write there",
        ))
    }
}

fn half_made(place: &str, keyspace: &str) -> StoreError {
    crate::failure::told(
        atoll_store::ErrorKind::Unavailable,
        format!(
            "{place} could not be read as of one moment: a value is there whose creation broke off before most of its replicas had \
             it, and those that were asked differ"
        ),
        format!(
            "start the nodes that are down (`nodetool status` names them), then `nodetool repair {}`, after which all replicas \
             have it; waiting does not help",
            keyspace
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settle::Majority;
    use atoll_store::ErrorKind;

    #[test]
    fn what_changes_all_the_time_is_busy_and_not_damaged() {
        let mut moves = Moves::default();
        let error = (0..1000).find_map(|_| moves.again("here").err()).unwrap();
        assert_eq!((error.kind(), moves.count), (ErrorKind::Unavailable, MOVES_MAX));
        assert!(error.to_string().contains("changed"), "{error}");
    }

    #[test]
    fn a_creation_that_broke_off_is_not_told_as_changes_by_others() {
        let settling = |others: &[Majority]| Settling {
            asked: 1,
            others: others.iter().enumerate().map(|(at, other)| (vec![at as u8], *other)).collect(),
        };
        let after = |first: &Settling| {
            let mut moves = Moves::default();
            moves.unsettled_at("here", "k", first).unwrap();
            let broken_off = settling(&[Majority::Absent]);
            let error = (0..1000).find_map(|_| moves.unsettled_at("here", "k", &broken_off).err()).unwrap();
            assert_eq!((error.kind(), moves.count), (ErrorKind::Unavailable, MOVES_MAX));
            format!("{error} [{}]", error.hint().unwrap_or_default())
        };
        let said = after(&settling(&[Majority::Absent, Majority::Absent]));
        assert!(said.contains("creation broke off") && said.contains("nodetool repair k`"), "{said}");
        assert!(!said.contains("changed"), "{said}");
        for changed in [settling(&[]), settling(&[Majority::Absent, Majority::Another])] {
            let said = after(&changed);
            assert!(said.contains("changed"), "{said}");
        }
    }
}
