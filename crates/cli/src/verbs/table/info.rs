//! `atoll table info`: shows what a table consists of.

use super::TableArguments;
use super::create::{sampled, schema_value};
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use atoll_tables::TypeName;
use clap::Args;
use serde_json::json;

/// `atoll table info`
#[derive(Args, Debug)]
pub struct Info {
    #[command(flatten)]
    table: TableArguments,
    /// Show only the schema, as `create --schema` reads it
    #[arg(long)]
    schema: bool,
}

impl Info {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Read).await?;
        let schema = &*table.schema();
        if self.schema {
            return session.output.line(schema.to_json());
        }
        let info = table.info().await?;
        if session.output.is_json() {
            return session.output.json(&json!({
                "table": info.name,
                "version": info.version.0,
                "rows": info.rows,
                "runs": info.runs,
                "steps": info.steps,
                "blocks": info.blocks,
                "cubes": info.cubes,
                "bytes": info.bytes,
                "time_unit": schema.time_unit(),
                "schema": schema_value(schema),
            }));
        }
        let roles = schema.roles();
        let unique = if schema.has_unique_ids() { ", once in a run" } else { "" };
        let figures = [
            ("table", info.name.clone()),
            ("version", info.version.to_string()),
            ("rows", info.rows.to_string()),
            ("runs", format!("{} with {}", info.runs, counted(info.steps, "step"))),
            (
                "objects",
                [(info.blocks, "block"), (info.cubes, "cube"), (info.bytes, "byte")]
                    .map(|(count, one)| counted(count, one))
                    .join(", "),
            ),
            ("id", format!("{}{unique}", roles.id.join(", "))),
            ("samples", sampled(schema)),
            ("boxes over", roles.index.join(", ")),
        ];
        let times = schema.time_unit().map(|unit| ("times in", unit.to_owned()));
        for (name, text) in figures.into_iter().chain(times) {
            session.output.line(format!("{name:<12}{text}"))?;
        }
        for field in schema.columns().fields() {
            let type_name = TypeName::of(field.data_type()).map(|name| name.to_typed()).unwrap_or_default();
            let null = if field.is_nullable() { "?" } else { "" };
            let unit = field.metadata().get("unit").map(|unit| format!(" in {unit}")).unwrap_or_default();
            let about = field.metadata().get("description");
            let about = about.map(|about| format!(", {about}")).unwrap_or_default();
            session.output.line(format!(
                "{:<12}{}: {type_name}{null}{unit}{about}",
                "column",
                field.name()
            ))?;
        }
        Ok(())
    }
}
