//! `atoll table pack`: blocks become cubes, so that questions read less.

use super::TableArguments;
use crate::session::Access;
use crate::{Failure, Session};
use atoll_tables::PackOptions;
use clap::Args;
use serde_json::json;

/// `atoll table pack`
#[derive(Args, Debug)]
pub struct Pack {
    #[command(flatten)]
    table: TableArguments,
    /// Rewrite everything into as few trees as possible, whatever that costs
    #[arg(long)]
    whole: bool,
    /// Leave blocks alone while all of them together have fewer rows than this
    #[arg(long, value_name = "N", conflicts_with = "whole")]
    rows_min: Option<u64>,
    /// The share of one processor that it may take, above 0 and at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    share: f64,
}

impl Pack {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Change).await?;
        let defaults = PackOptions::default();
        let options = PackOptions {
            is_whole: self.whole,
            rows_min: if self.whole { 0 } else { self.rows_min.unwrap_or(defaults.rows_min) },
            share: self.share,
            ..defaults
        };
        session
            .hint_on_interrupt("nothing is lost: what was packed so far is packed, and the rest as it was");
        let report = table.pack(&options).await?;
        session.output.either(
            || match report.version {
                None => "there is nothing to pack".to_owned(),
                Some(version) => format!(
                    "packed {} rows: {} objects became {} with {} cubes; version {version}",
                    report.rows, report.objects_before, report.objects_after, report.cubes
                ),
            },
            || {
                json!({
                    "version": report.version,
                    "rows": report.rows,
                    "dropped": report.dropped,
                    "trees": report.trees,
                    "cubes": report.cubes,
                    "objects_before": report.objects_before,
                    "objects_after": report.objects_after,
                    "bytes_read": report.bytes_read,
                    "bytes_written": report.bytes_written,
                })
            },
        )
    }
}
