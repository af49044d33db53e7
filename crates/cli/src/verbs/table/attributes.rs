//! `atoll table attributes`: attributes of a table, a run or a step.

use super::TableArguments;
use super::import::is_for_imports;
use crate::session::Access;
use crate::{Failure, Session};
use atoll_tables::AttributesOf;
use clap::Args;
use serde_json::{Value, json};

/// `atoll table attributes`
#[derive(Args, Debug)]
pub struct AttributesVerb {
    #[command(flatten)]
    table: TableArguments,
    /// Attributes to set; without any, all are shown
    #[arg(value_name = "NAME=VALUE", value_parser = parse_attribute)]
    noted: Vec<(String, Option<Value>)>,
    /// Attributes of this run
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Attributes of this step of the run
    #[arg(long, value_name = "N", requires = "run")]
    step: Option<u64>,
}

/// Parses an attribute: the value as JSON, or else as text; none if nothing follows the `=`.
fn parse_attribute(text: &str) -> Result<(String, Option<Value>), String> {
    let (name, value) = text.split_once('=').ok_or("it is not NAME=VALUE")?;
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let value = (!value.is_empty()).then(|| serde_json::from_str(value).unwrap_or_else(|_| value.into()));
    Ok((name.to_owned(), value))
}

impl AttributesVerb {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let access = if self.noted.is_empty() { Access::Read } else { Access::Change };
        let table = self.table.open(session, access).await?;
        let of = AttributesOf::of(self.run.as_deref(), self.step);
        let attributes = match self.noted.is_empty() {
            true => table.attributes(of).await?,
            false => table.note(of, &self.noted.into_iter().collect()).await?,
        };
        table.close().await?;
        if session.output.is_json() {
            return session.output.json(&json!(attributes));
        }
        let told = attributes.iter().filter(|(name, _)| !is_for_imports(name));
        told.map(|(name, value)| match value {
            Value::String(text) => format!("{name}\t{text}"),
            other => format!("{name}\t{other}"),
        })
        .try_for_each(|line| session.output.line(line))
    }
}
