//! `atoll kv wait`: waits until a cell holds a value, or another one.

use crate::cells::cell_name;
use crate::session::Access;
use crate::verbs::kv::CellArguments;
use crate::verbs::kv::cell::show_value;
use crate::{Failure, Session};
use atoll_options::{format_duration, parse_duration};
use atoll_store::{Buffer, Cell, Expectation, StoreError, Waited};
use clap::Args;
use serde_json::json;
use std::time::Duration;

/// How long a store may take for one last look when the time is over.
const LAST_LOOK_MAX: Duration = Duration::from_secs(1);

/// `atoll kv wait`
#[derive(Args, Debug)]
pub struct Wait {
    #[command(flatten)]
    cell: CellArguments,
    #[command(flatten)]
    expectation: ExpectationArguments,
    /// Time to wait, such as 2s or 10min
    #[arg(long, value_name = "DURATION", default_value = "1min", value_parser = parse_duration)]
    timeout: Duration,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct ExpectationArguments {
    /// Wait until the cell holds this value
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    equals: Option<String>,
    /// Wait until the cell holds anything but this value
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    differs: Option<String>,
    /// Wait until the cell exists
    #[arg(long)]
    exists: bool,
    /// Wait until the cell does not exist
    #[arg(long)]
    absent: bool,
}

impl Wait {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let (partition, sort) = self.cell.keys()?;
        let expectation = self.expectation()?;
        let store = session.store(Access::Wait).await?;
        match self
            .waited(session, store.wait(Cell::new(&partition, &sort), expectation, self.timeout))
            .await?
        {
            Waited::Met(Some(value)) => show_value(session, self.cell.encoding, &value),
            Waited::Met(None) if session.output.is_json() => session.output.json(&json!({ "value": null })),
            Waited::Met(None) => Ok(()),
            Waited::TimedOut => Err(Failure::WaitEnded {
                what: format!("cell {} did not reach the expected state", cell_name(&partition, &sort)),
                time_out: format_duration(self.timeout),
            }),
        }
    }

    /// The result of a wait, limited in time even if the store does not answer at all. A wait of zero, which
    /// only asks for the present state, waits for the answer like any other read.
    async fn waited(
        &self,
        session: &Session,
        waiting: impl Future<Output = Result<Waited, StoreError>>,
    ) -> Result<Waited, Failure> {
        if self.timeout.is_zero() {
            return Ok(session.patience()?.read(waiting).await?);
        }
        let waited = tokio::time::timeout(self.timeout.saturating_add(LAST_LOOK_MAX), waiting).await;
        Ok(waited.unwrap_or(Ok(Waited::TimedOut))?)
    }

    fn expectation(&self) -> Result<Expectation, Failure> {
        let decode = |what, text| Ok::<_, Failure>(Buffer::from(self.cell.encoding.decode(what, text)?));
        Ok(match &self.expectation {
            ExpectationArguments { equals: Some(text), .. } => {
                Expectation::Equals(Some(decode("--equals", text)?))
            }
            ExpectationArguments { differs: Some(text), .. } => {
                Expectation::Differs(Some(decode("--differs", text)?))
            }
            ExpectationArguments { absent: true, .. } => Expectation::Equals(None),
            ExpectationArguments { .. } => Expectation::Differs(None),
        })
    }
}
