//! `atoll table pack`: turns blocks into cubes, so that queries read less.

use super::TableArguments;
use crate::progress::Progress;
use crate::session::Access;
use crate::text::counted;
use crate::{Failure, Session};
use atoll_options::parse_duration;
use atoll_tables::{KeepPacked, PackOptions, PackProgress, PackReport, Table};
use clap::Args;
use serde_json::json;
use std::time::Duration;

/// `atoll table pack`
#[derive(Args, Debug)]
pub struct Pack {
    #[command(flatten)]
    table: TableArguments,
    /// Rewrite everything into as few trees as possible, whatever the cost
    #[arg(long)]
    whole: bool,
    /// Leave blocks alone while all of them together have fewer rows than this
    #[arg(long, value_name = "N", conflicts_with = "whole")]
    rows_min: Option<u64>,
    /// Share of one processor to use, above 0 and at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    share: f64,
    /// Bytes to read and write per second, both together
    #[arg(long, value_name = "N")]
    bytes_per_second: Option<u64>,
    /// Keep running and pack new rows, until interrupted; if several do this, one of them packs
    #[arg(long, conflicts_with = "whole")]
    follow: bool,
    /// With --follow: pack the rest after this long without new rows, such as 10s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "follow")]
    idle: Option<Duration>,
}

impl Pack {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let table = self.table.open(session, Access::Change).await?;
        let defaults = PackOptions::default();
        let options = PackOptions {
            is_whole: self.whole,
            rows_min: if self.whole { 0 } else { self.rows_min.unwrap_or(defaults.rows_min) },
            share: self.share,
            bytes_per_second: self.bytes_per_second,
            ..defaults
        };
        if self.follow {
            return self.follow(session, &table, options).await;
        }
        session.hint_on_interrupt(
            "nothing is lost: what was packed so far stays packed, and the rest is unchanged",
        );
        let nothing = if self.whole {
            "there is nothing to pack"
        } else {
            "nothing is worth packing yet; --whole packs whatever there is"
        };
        let progress = Progress::bytes(Some(0), !session.output.is_json());
        let told = |packed: PackProgress| {
            progress.set_total(packed.total);
            progress.set(packed.bytes, String::new());
        };
        let report = table.pack_with_progress(&options, &told).await?;
        drop(progress);
        show(session, &report, nothing)
    }

    /// Keeps packing until it is interrupted, which is the intended end.
    async fn follow(&self, session: &Session, table: &Table, pack: PackOptions) -> Result<(), Failure> {
        session.end_on_interrupt();
        let defaults = KeepPacked::default();
        let how = KeepPacked { pack, idle: self.idle.unwrap_or(defaults.idle), ..defaults };
        let (close, closed) = tokio::sync::oneshot::channel::<()>();
        let (mut shown, mut close) = (Ok(()), Some(close));
        let until = async {
            let _ = closed.await;
        };
        let told = |report: &PackReport| {
            shown = show(session, report, "there is nothing to pack").and_then(|()| session.output.flush());
            if shown.is_err() {
                // The reader of the output is gone.
                close.take();
            }
        };
        table.keep_packed(&how, until, told).await?;
        shown
    }
}

fn show(session: &Session, report: &PackReport, nothing: &str) -> Result<(), Failure> {
    session.output.either(
        || match report.version {
            None => nothing.to_owned(),
            Some(version) => format!(
                "packed {}: {} became {} with {}; version {version}",
                counted(report.rows, "row"),
                counted(report.objects_before, "object"),
                report.objects_after,
                counted(report.cubes, "cube")
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
