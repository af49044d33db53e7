//! `atoll table attributes`: attributes of a table, a run or a step.

use super::TableArguments;
use super::import::is_for_imports;
use crate::attributes::{parse_attribute, show};
use crate::session::Access;
use crate::{Failure, Session};
use atoll_tables::AttributesOf;
use clap::Args;
use serde_json::Value;

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
        show(session, &attributes, |name| !is_for_imports(name))
    }
}
