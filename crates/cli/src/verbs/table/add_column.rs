//! `atoll table add-column`: adds a column for rows to come.

use super::TableArguments;
use super::create::parse_column;
use crate::session::Access;
use crate::{Failure, Session};
use atoll_tables::TypeName;
use clap::Args;
use serde_json::json;
use std::collections::HashMap;

/// `atoll table add-column`
#[derive(Args, Debug)]
pub struct AddColumn {
    #[command(flatten)]
    table: TableArguments,
    /// Column to add, such as charge:float32; it is always nullable
    #[arg(value_name = "NAME:TYPE")]
    column: String,
    /// Unit to store with the column
    #[arg(long)]
    unit: Option<String>,
    /// Description to store with the column
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

impl AddColumn {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let field = parse_column("the column", &self.column)?.with_nullable(true);
        let notes = [("unit", &self.unit), ("description", &self.description)];
        let notes: HashMap<String, String> =
            notes.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?))).collect();
        let field = field.with_metadata(notes);
        let (name, kind) = (field.name().clone(), TypeName::of(field.data_type()));
        let kind = kind.map(|kind| kind.to_string()).unwrap_or_default();
        let table = self.table.open(session, Access::Change).await?;
        let version = table.add_column(field).await?;
        table.close().await?;
        session.output.either(
            || format!("table {} has column {name}: {kind}? from version {version} on", table.name()),
            || json!({ "table": table.name(), "column": name, "type": kind, "version": version.0 }),
        )
    }
}
