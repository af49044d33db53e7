//! Appending: the rows of one rank and step become a block, and the block part of a version.

use super::ledger::is_unknown;
use super::{Table, TableError};
use crate::block::encode_block;
use crate::protocol::{
    Block, BlockId, Edit, Extent, ObjectId, Piece, RunId, StepRange, Version, WeightRange,
};
use arrow_array::RecordBatch;
use atoll_store::{Cell, WriteOptions};

/// How often an object is written, should the outcome be unknown. Creating it again is harmless.
const CREATE_ATTEMPTS_MAX: usize = 5;

impl Table {
    /// Begins an attempt of a run: from now on only this attempt may append to the run. Doing it again is
    /// harmless.
    ///
    /// # Errors
    /// [`TableError::Edit`] where a later attempt has begun; errors of the store.
    pub async fn begin(&self, run: &str, attempt: u64, ranks: u32) -> Result<Version, TableError> {
        self.ledger.commit(Edit::Begin { run: RunId::from(run), attempt, ranks }).await
    }

    /// Appends the rows of one rank and step; the version that has them.
    ///
    /// They become visible with the version in which the last rank's rows of the step come. Appending the same
    /// block again changes nothing.
    ///
    /// # Errors
    /// [`TableError::Block`] where the rows do not fit the table, [`TableError::TooLarge`],
    /// [`TableError::Edit`] where the attempt or step may not be written, errors of the store.
    pub async fn append(&self, id: BlockId, rows: &RecordBatch) -> Result<Version, TableError> {
        let extent = Extent { run: Some(id.run.clone()), steps: StepRange::only(id.step) };
        let piece = if rows.num_rows() == 0 {
            // Still checked: a rank that has no rows now will have some later.
            self.encode(rows)?;
            None
        } else {
            let object = self.ledger.new_object();
            self.put_object(object, &self.encode(rows)?).await?;
            let rows = rows.num_rows() as u64;
            Some(Piece { object, part: 0, weights: WeightRange::ALL, rows, extent })
        };
        self.ledger.commit(Edit::Append { blocks: vec![Block { id, piece }] }).await
    }

    fn encode(&self, rows: &RecordBatch) -> Result<Vec<u8>, TableError> {
        encode_block(&self.schema, rows)
            .map_err(|source| TableError::Block { object: "new rows".to_owned(), source })
    }

    async fn put_object(&self, object: ObjectId, bytes: &[u8]) -> Result<(), TableError> {
        let max = self.store.capabilities().limits.value_bytes;
        if bytes.len() as u64 > max {
            return Err(TableError::TooLarge { bytes: bytes.len() as u64, max });
        }
        let partition = self.names.object(object);
        let cell = Cell::new(&partition, b"");
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.store.create(cell, bytes, WriteOptions::default()).await {
                Ok(_) => return Ok(()),
                Err(error) if is_unknown(&error) && attempts < CREATE_ATTEMPTS_MAX => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
