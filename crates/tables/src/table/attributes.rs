//! Attributes of runs: what a writer notes of where a run comes from. They are no part of the versions: the last
//! writer wins.

use super::{Table, TableError, check_name, codec};
use atoll_store::{Cell, ReadOptions, WriteOptions};
use std::collections::BTreeMap;

impl Table {
    /// Sets the attributes of a run, all of them; whoever sets them last wins. The run need not have begun.
    ///
    /// # Errors
    /// [`TableError::Name`], errors of the store.
    pub async fn set_run_attributes(
        &self,
        run: &str,
        attributes: &BTreeMap<String, String>,
    ) -> Result<(), TableError> {
        check_name("run", run)?;
        let (partition, text) = (self.names.attributes(), codec::attributes_to_json(attributes));
        self.store.put(Cell::new(&partition, run), text.as_bytes(), WriteOptions::default()).await?;
        Ok(())
    }

    /// The attributes of a run; none if nobody set any.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn run_attributes(&self, run: &str) -> Result<BTreeMap<String, String>, TableError> {
        let partition = self.names.attributes();
        match self.store.get(Cell::new(&partition, run), ReadOptions::default()).await? {
            Some(text) => codec::attributes_from_json(&self.name, &text),
            None => Ok(BTreeMap::new()),
        }
    }
}
