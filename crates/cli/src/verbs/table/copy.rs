//! `atoll table copy`: copies a table unchanged to another store, or under another name.

use super::{TableArguments, version_called};
use crate::progress::Progress;
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use atoll_tables::CopyProgress;
use clap::Args;
use serde_json::json;

/// `atoll table copy`
#[derive(Args, Debug)]
pub struct Copy {
    #[command(flatten)]
    table: TableArguments,
    /// Store to copy to; by default the one that holds the table
    #[arg(long, value_name = "URL", required_unless_present = "name")]
    to: Option<String>,
    /// Name of the copy, if it differs from that of the table
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Copy this version of the table, or the version of this snapshot
    #[arg(long, value_name = "VERSION|SNAPSHOT", allow_negative_numbers = true)]
    as_of: Option<String>,
}

impl Copy {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let here =
            super::existing_store(session, if self.to.is_some() { Access::Read } else { Access::Change })
                .await?;
        let table = self.table.open_in(&here).await?;
        let there = match &self.to {
            Some(url) => session.open_url(url, Access::Create).await?.store,
            None => here,
        };
        let name = self.name.as_ref().unwrap_or(&self.table.table);
        session.hint_on_interrupt("what was copied so far is kept; the same command continues from there");
        let progress = Progress::bytes(None, !session.output.is_json());
        let mut told = |copied: CopyProgress| {
            progress.set_total(copied.total.max(copied.bytes));
            progress.set(copied.bytes, String::new());
        };
        let version = version_called(&table, self.as_of.as_deref()).await?;
        let report = table.copy_to(&there, name, version, &mut told).await?;
        drop(progress);
        let before = report.objects - report.copied;
        session.output.either(
            || {
                let (version, rows) = (report.version, report.rows);
                let (bytes, objects) = (report.bytes, report.objects);
                let text = format!(
                    "copied version {version} as table {name}: {}, {bytes} bytes",
                    counted(rows, "row")
                );
                match before {
                    0 => text,
                    before => format!("{text}; {before} of {objects} objects were there before"),
                }
            },
            || {
                json!({
                    "table": name,
                    "version": report.version.0,
                    "rows": report.rows,
                    "objects": report.objects,
                    "objects_before": before,
                    "bytes": report.bytes,
                })
            },
        )
    }
}
