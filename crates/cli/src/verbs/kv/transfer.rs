//! `atoll kv import` and `atoll kv export`.

use crate::options::ImportSection;
use crate::output::note;
use crate::session::Access;
use crate::text::{Encoding, counted};
use crate::transfer::{Columns, Export, Format, Import, Input, ProgressReport, export, import};
use crate::{Failure, Session};
use atoll_options::Section;
use atoll_tables::Table;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// `atoll kv import`
#[derive(Args, Debug)]
pub struct ImportArguments {
    /// File to read; `-` is standard input
    file: PathBuf,
    /// Format; by default that of the file name's ending (.jsonl, .csv, .atoll)
    #[arg(long)]
    format: Option<Format>,
    /// Columns of the partition key, joined by the separator
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "CSV")]
    partition_columns: Vec<String>,
    /// Columns of the sort key, joined by the separator
    #[arg(
        long,
        visible_alias = "sort-column",
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "CSV"
    )]
    sort_columns: Vec<String>,
    /// Columns of the value: one is taken as it is, several become a JSON object; by default all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "CSV")]
    value_columns: Vec<String>,
    /// `json` makes the value a JSON object, even of a single column
    #[arg(long, value_name = "FORM", value_parser = ["json"], help_heading = "CSV")]
    value: Option<String>,
    /// Text between the parts of a key
    #[arg(long, value_name = "TEXT", default_value = "/", help_heading = "CSV")]
    separator: String,
    /// Character between fields; `\t` is the tab
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = parse_delimiter, help_heading = "CSV")]
    delimiter: u8,
    /// Skip up to this many bad records, reporting each on standard error
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad: u64,
    /// Start over, even if an import of this file was interrupted
    #[arg(long)]
    restart: bool,
    /// How to report progress
    #[arg(long, default_value = "auto")]
    progress: ProgressReport,
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("a delimiter is one ASCII character, such as ; or \\t".to_owned()),
    }
}

impl ImportArguments {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let import_of = self.import(session)?;
        import_of.input.check()?;
        let store = session.store(Access::Create).await?;
        if import_of.input.repeatable().is_some() {
            session
                .hint_on_interrupt("what was read so far is imported; the same command continues from there");
        }
        let imported = import(&*store, import_of).await?;
        session.output.either(
            || {
                let (records, bytes) = (counted(imported.records, "record"), counted(imported.bytes, "byte"));
                let mut text = format!("imported {records}, {bytes}");
                if imported.records_before > 0 {
                    text += &format!("; {} had been imported before", imported.records_before);
                }
                if imported.skipped > 0 {
                    text += &format!("; skipped {}", counted(imported.skipped, "bad one"));
                }
                text
            },
            || {
                json!({
                    "records": imported.records,
                    "bytes": imported.bytes,
                    "skipped": imported.skipped,
                    "records_before": imported.records_before,
                })
            },
        )
    }

    fn import(&self, session: &Session) -> Result<Import, Failure> {
        let options = ImportSection::from_settings(&session.settings)?;
        let input =
            if self.file == Path::new("-") { Input::Standard } else { Input::File(self.file.clone()) };
        Ok(Import {
            format: format_of(self.format, &self.file)?,
            input,
            columns: self.columns()?,
            skip_bad: self.skip_bad,
            restart: self.restart,
            progress: if session.output.is_json() && self.progress == ProgressReport::Auto {
                ProgressReport::Never
            } else {
                self.progress
            },
            in_flight: options.in_flight.into(),
            window_bytes: usize::try_from(options.window.0).unwrap_or(usize::MAX).clamp(1, 1 << 30),
            options: session.write_options()?,
        })
    }

    fn columns(&self) -> Result<Columns, Failure> {
        let names_some =
            !self.sort_columns.is_empty() || !self.value_columns.is_empty() || self.value.is_some();
        if self.partition_columns.is_empty() && names_some {
            return Err(Failure::Usage {
                problem: "columns are named, but none for the partition key".to_owned(),
                hint: "add --partition-columns NAMES".to_owned(),
            });
        }
        if self.separator.is_empty() && (self.partition_columns.len() > 1 || self.sort_columns.len() > 1) {
            return Err(Failure::Usage {
                problem: "without a separator, different columns could make the same key".to_owned(),
                hint: "choose one with --separator, such as /".to_owned(),
            });
        }
        Ok(Columns {
            partition: self.partition_columns.clone(),
            sort: self.sort_columns.clone(),
            value: self.value_columns.clone(),
            as_json: self.value.is_some(),
            separator: self.separator.clone(),
            delimiter: self.delimiter,
        })
    }
}

/// `atoll kv export`
#[derive(Args, Debug)]
pub struct ExportArguments {
    /// File to write; `-` is standard output
    file: PathBuf,
    /// Format; by default that of the file name's ending (.jsonl, .csv, .atoll)
    #[arg(long)]
    format: Option<Format>,
    /// Only this partition
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    partition: Option<String>,
    /// Only partitions with this prefix
    #[arg(long)]
    prefix: Option<String>,
    /// Encoding of keys and values in CSV (escaped or base64), and of --partition and --prefix
    #[arg(long, value_name = "ENCODING", default_value = "escaped")]
    encoding: Encoding,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

impl ExportArguments {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let decode = |what, text: &Option<String>| {
            let bytes = text.as_deref().map(|text| self.encoding.decode(text)).transpose();
            bytes.map_err(|source| Failure::Text { what, source })
        };
        let to_output = self.file == Path::new("-");
        let wanted = Export {
            format: format_of(self.format, &self.file)?,
            encoding: self.encoding,
            partition: decode("--partition", &self.partition)?,
            prefix: decode("--prefix", &self.prefix)?.unwrap_or_default(),
            replace: self.force,
            path: (!to_output).then(|| self.file.clone()),
            patience: session.patience()?,
        };
        let store = session.store(Access::Read).await?;
        let exported = export(&*store, &wanted, &session.output).await?;
        // A user who exports everything may take it for a backup.
        let is_all = wanted.partition.is_none() && wanted.prefix.is_empty();
        // The export is written by now, whatever is wrong with tables.
        let listing = async { Ok(Table::list(&*store).await.ok()) };
        let tables = match is_all {
            true => wanted.patience.read(listing).await.ok().flatten().map(|tables| tables.len()),
            false => Some(0),
        };
        if let Some(tables) = tables.filter(|tables| *tables > 0) {
            let are = if tables == 1 { "is" } else { "are" };
            let tables = counted(tables, "table");
            note(&format!(
                "{tables} {are} not in it: `atoll table export` writes their rows, and of a store in a folder `atoll store backup` keeps everything"
            ));
        }
        if to_output {
            return Ok(());
        }
        session.output.either(
            || {
                let (records, partitions) =
                    (counted(exported.records, "record"), counted(exported.partitions, "partition"));
                format!("exported {records} of {partitions}, {}", counted(exported.bytes, "byte"))
            },
            || {
                json!({
                    "records": exported.records,
                    "partitions": exported.partitions,
                    "bytes": exported.bytes,
                    "tables_left_out": tables,
                })
            },
        )
    }
}

fn format_of(named: Option<Format>, path: &Path) -> Result<Format, Failure> {
    let of_rows = atoll_row_files::Format::of_path(path);
    named.or_else(|| Format::of_path(path)).ok_or_else(|| Failure::Usage {
        problem: format!("the name \"{}\" does not tell the format", path.display()),
        hint: match of_rows {
            Some(format) => format!(
                "cells are JSON Lines, CSV or binary (--format); rows of {format} go to and from a table: \
                 `atoll table import`, `atoll table export`"
            ),
            None => "add --format jsonl, --format csv or --format binary".to_owned(),
        },
    })
}
