//! Lineage: the schemas of a table, from the one it was created with to that of its newest version.
//!
//! A version lists the columns added up to it, and each block or object of cubes carries the checksum of the
//! schema it was written with. Columns are only ever added after all others, so a column has the same place
//! in all schemas, and rows written before it was added have no value in it.
//!
//! Invariant: each schema equals the previous one plus one column.

use super::{Table, TableError, codec};
use crate::block::{BlockError, schema_sum};
use crate::part::Part;
use crate::planted::{self, Bug};
use crate::protocol::{AddedColumn, Edit, Manifest, Version};
use crate::{SchemaError, TableSchema};
use arrow_schema::{Field, FieldRef};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The schemas of a table that this handle has seen.
pub(super) struct Lineage {
    /// One schema for each number of added columns.
    seen: Mutex<Vec<Seen>>,
}

struct Seen {
    schema: Arc<TableSchema>,
    sum: u64,
}

impl Seen {
    fn new(schema: TableSchema) -> Self {
        Self { sum: schema_sum(&schema), schema: Arc::new(schema) }
    }
}

impl Lineage {
    /// The lineage of a table created with this schema.
    pub(super) fn new(made_with: TableSchema) -> Self {
        Self { seen: Mutex::new(vec![Seen::new(made_with)]) }
    }

    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The schema with exactly these added columns.
    fn with(&self, table: &str, added: &[AddedColumn]) -> Result<Arc<TableSchema>, TableError> {
        let unreadable = |error| codec::damaged(table, &format!("an added column cannot be read: {error}"));
        let mut seen = self.seen();
        for column in added.iter().skip(seen.len() - 1) {
            let field = TableSchema::column_from_json(&column.text).map_err(unreadable)?;
            let next = seen[seen.len() - 1].schema.with_stored([Arc::new(field)]).map_err(unreadable)?;
            seen.push(Seen::new(next));
        }
        Ok(Arc::clone(&seen[added.len()].schema))
    }

    /// The schema of the newest version seen.
    pub(super) fn newest(&self) -> Arc<TableSchema> {
        let seen = self.seen();
        Arc::clone(&seen[seen.len() - 1].schema)
    }

    /// The schema that the table was created with.
    pub(super) fn first(&self) -> Arc<TableSchema> {
        Arc::clone(&self.seen()[0].schema)
    }

    /// Whether this is true of the schema that the table has, or of one that it had.
    pub(super) fn any(&self, is: impl Fn(&TableSchema) -> bool) -> bool {
        self.seen().iter().any(|seen| is(&seen.schema))
    }

    /// The schema with this checksum, if there is one.
    fn written_with(&self, sum: u64) -> Option<Arc<TableSchema>> {
        self.seen().iter().find(|seen| seen.sum == sum).map(|seen| Arc::clone(&seen.schema))
    }

    /// The schema with `count` columns, but none newer than `schema`: rows of several schemas that are
    /// written together get the columns of a single one.
    pub(super) fn with_columns_up_to(&self, schema: &Arc<TableSchema>, count: usize) -> Arc<TableSchema> {
        let is_older = count < schema.columns().fields().len();
        if is_older { self.with_columns(count) } else { Arc::clone(schema) }
    }

    /// The schema with `count` columns; the newest if there is none.
    pub(super) fn with_columns(&self, count: usize) -> Arc<TableSchema> {
        let seen = self.seen();
        let fits = seen.iter().find(|seen| seen.schema.columns().fields().len() == count);
        Arc::clone(&fits.unwrap_or(&seen[seen.len() - 1]).schema)
    }
}

impl Table {
    /// Adds a nullable column; returns the first version that has it. Earlier rows have no value in the
    /// column, and earlier versions are queried without it. Adding an identical column again changes nothing.
    ///
    /// The unit and the description of the column are metadata of the field, `unit` and `description`.
    ///
    /// # Errors
    /// [`TableError::Schema`] for a column that is not nullable, has an unsupported type or a name that is
    /// taken; [`TableError::Edit`] if another process adds a column of that name concurrently; errors of the
    /// store.
    pub async fn add_column(&self, column: Field) -> Result<Version, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        let schema = self.schema_of(&manifest)?;
        let text: Arc<str> = TableSchema::column_to_json(&column).into();
        let added = AddedColumn { name: column.name().as_str().into(), text };
        if !manifest.columns.contains(&added) {
            schema.with_added([Arc::new(column)])?;
        }
        let version = self.ledger.commit(Edit::AddColumn { column: added }).await?;
        self.learn_columns()?;
        Ok(version)
    }

    /// The columns and their roles in the current version.
    ///
    /// # Errors
    /// As [`Table::version`].
    pub async fn schema_now(&self) -> Result<Arc<TableSchema>, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        self.schema_of(&manifest)
    }

    /// Its columns and their roles in a version.
    ///
    /// # Errors
    /// [`TableError::VersionGone`] for one that can be read no longer, [`TableError::Edit`] for one that is
    /// not there yet, errors of the store.
    pub async fn schema_as_of(&self, version: Version) -> Result<Arc<TableSchema>, TableError> {
        let manifest = self.ledger.as_of(version).await?;
        self.schema_of(&manifest)
    }

    /// The schema of a version.
    pub(super) fn schema_of(&self, manifest: &Manifest) -> Result<Arc<TableSchema>, TableError> {
        let schema = self.lineage.with(&self.name, &manifest.columns)?;
        Ok(if planted::is(Bug::PastHasNewColumns) { self.lineage.newest() } else { schema })
    }

    /// Adds the columns of the newest version that this handle knows to the lineage.
    pub(super) fn learn_columns(&self) -> Result<(), TableError> {
        let known = self.ledger.known();
        known.map_or(Ok(()), |known| self.lineage.with(&self.name, &known.manifest.columns).map(drop))
    }

    /// This table pinned to the columns of a version.
    pub(super) fn at(&self, manifest: &Manifest) -> Result<Self, TableError> {
        let schema = self.schema_of(manifest)?;
        let schema = if self.also.is_empty() { schema } else { self.with_others(&schema)? };
        Ok(Self { schema, ..self.clone() })
    }

    /// A schema of this table, extended by the columns that only other tables of a union have.
    pub(super) fn with_others(&self, schema: &Arc<TableSchema>) -> Result<Arc<TableSchema>, SchemaError> {
        let is_new = |field: &&FieldRef| schema.columns().column_with_name(field.name()).is_none();
        let also: Vec<FieldRef> = self.also.iter().filter(is_new).cloned().collect();
        if also.is_empty() { Ok(Arc::clone(schema)) } else { schema.with_added(also).map(Arc::new) }
    }

    /// This table with additional columns in which no row has a value.
    pub(super) fn with_empty_columns(&self, columns: Vec<FieldRef>) -> Self {
        Self { also: columns.into(), ..self.clone() }
    }

    /// Opens an object from the bytes at its front, with the schema that it was written with.
    pub(super) fn open_part(&self, front: &[u8]) -> Result<Part, BlockError> {
        let schema = self.lineage.written_with(Part::schema_sum(front)?);
        Part::open(schema.unwrap_or_else(|| Arc::clone(&self.schema)), front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Roles, column};
    use arrow_schema::{DataType, Schema};

    #[test]
    fn rows_have_no_column_that_is_newer_than_those_they_are_written_with() {
        let columns = Schema::new(vec![column("pid", DataType::Int64, false)]);
        let names = || vec!["pid".to_owned()];
        let roles = Roles { id: names(), sample_key: Vec::new(), index: names(), salt: 0 };
        let lineage = Lineage::new(TableSchema::new(columns, &roles).unwrap());
        let before = lineage.newest();
        let text = TableSchema::column_to_json(&column("charge", DataType::Float32, true)).into();
        lineage.with("run", &[AddedColumn { name: "charge".into(), text }]).unwrap();
        let columns = |schema: Arc<TableSchema>| schema.columns().fields().len();
        assert_eq!(columns(lineage.with_columns(2)), 2);
        assert_eq!(columns(lineage.with_columns_up_to(&before, 2)), 1, "the column came after it was looked");
        assert_eq!(columns(lineage.with_columns_up_to(&lineage.newest(), 1)), 1);
    }
}
