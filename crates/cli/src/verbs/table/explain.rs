//! `atoll table explain`: shows what a query would read.

use super::TableArguments;
use super::question::QuestionArguments;
use crate::session::Access;
use crate::{Failure, Session};
use clap::Args;

/// `atoll table explain`
#[derive(Args, Debug)]
pub struct Explain {
    #[command(flatten)]
    table: TableArguments,
    #[command(flatten)]
    question: QuestionArguments,
}

impl Explain {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Read).await?;
        let explanation = table.explain(&self.question.query(&table).await?).await?;
        session.output.either(
            || explanation.to_string().trim_end().to_owned(),
            || serde_json::to_value(&explanation).unwrap_or_default(),
        )
    }
}
