//! Import: a thread reads windows, the store writes them, and progress is recorded after each.
//!
//! Invariant: a window is recorded as done only after all its batches were acknowledged.

use crate::Failure;
use crate::progress::Progress;
use crate::transfer::progress_mark::{Mark, MarkCell};
use crate::transfer::window::{Window, Windows};
use crate::transfer::{
    BinaryReader, Columns, CsvReader, Format, Input, JsonLinesReader, RecordReader, SourcePosition,
    TransferError,
};
use atoll_store::{Batch, Store, WriteOptions};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;
use tokio::sync::mpsc;

/// How an import reports its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressReport {
    /// A bar on a terminal
    Auto,
    /// No progress
    Never,
    /// A JSON object on standard error after each window
    Json,
}

/// What to import, and how.
pub(crate) struct Import {
    pub(crate) input: Input,
    pub(crate) format: Format,
    pub(crate) columns: Columns,
    pub(crate) skip_bad: u64,
    pub(crate) restart: bool,
    pub(crate) progress: ProgressReport,
    pub(crate) in_flight: usize,
    pub(crate) window_bytes: usize,
    pub(crate) options: WriteOptions,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Imported {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: u64,
    /// Records that an earlier, interrupted import wrote.
    pub(crate) records_before: u64,
}

/// Imports into `store`.
pub(crate) async fn import(store: &dyn Store, import: Import) -> Result<Imported, Failure> {
    let mark_cell = import.input.repeatable().map(MarkCell::of);
    let mark = match &mark_cell {
        Some(cell) if !import.restart => cell.read(store, import.options.deadline).await?,
        _ => None,
    };
    let mut done = ImportState::starting_at(mark.as_ref());
    let (sender, mut windows) = mpsc::channel(1);
    spawn_reader(&import, store, mark, sender);
    let progress = Progress::bytes(import.input.bytes(), import.progress == ProgressReport::Auto);
    let mut is_complete = false;
    while let Some(message) = windows.recv().await {
        let Some(window) = message? else {
            is_complete = true;
            break;
        };
        let end = done.add(&window);
        write_window(store, window, &import).await?;
        if let Some(cell) = &mark_cell {
            cell.write(store, &done.mark(end, import.plan()), import.options).await?;
        }
        progress.set(end.offset, format!("{} records", done.records_in_all()));
        done.tell(import.progress, end);
        // A store in memory never makes this task wait, so it yields to let an interruption in.
        tokio::task::yield_now().await;
    }
    if !is_complete {
        return Err(TransferError::ReaderLost { file: import.input.name() }.into());
    }
    if let Some(cell) = &mark_cell {
        cell.clear(store, import.options).await?;
    }
    Ok(done.imported)
}

impl Import {
    /// Everything that decides which records the bytes become.
    fn plan(&self) -> String {
        format!("{} {:?}", self.format.name(), self.columns)
    }

    fn unit(&self) -> &'static str {
        if self.format == Format::Binary { "record" } else { "line" }
    }
}

/// What has been done so far.
struct ImportState {
    imported: Imported,
    skipped_before: u64,
    checksum: u64,
}

impl ImportState {
    fn starting_at(mark: Option<&Mark>) -> Self {
        let records_before = mark.map_or(0, |mark| mark.records);
        Self {
            imported: Imported { records_before, ..Imported::default() },
            skipped_before: mark.map_or(0, |mark| mark.skipped),
            checksum: 0,
        }
    }

    fn add(&mut self, window: &Window) -> SourcePosition {
        self.imported.records += window.records;
        self.imported.bytes += window.bytes;
        self.imported.skipped += window.skipped;
        self.checksum = window.checksum;
        window.end
    }

    fn records_in_all(&self) -> u64 {
        self.imported.records_before + self.imported.records
    }

    fn mark(&self, end: SourcePosition, plan: String) -> Mark {
        Mark::new(
            end,
            self.records_in_all(),
            self.skipped_before + self.imported.skipped,
            self.checksum,
            plan,
        )
    }

    fn tell(&self, report: ProgressReport, end: SourcePosition) {
        if report == ProgressReport::Json {
            let line = json!({ "progress": { "offset": end.offset, "lines": end.lines, "records": self.records_in_all() } });
            crate::output::note_json(&line);
        }
    }
}

type WindowResult = Result<Option<Window>, TransferError>;

/// Reads on a thread of its own, one window ahead of the writes.
fn spawn_reader(import: &Import, store: &dyn Store, mark: Option<Mark>, sender: mpsc::Sender<WindowResult>) {
    let limits = store.capabilities().limits;
    let source = Source {
        input: import.input.clone(),
        format: import.format,
        columns: import.columns.clone(),
        plan: import.plan(),
    };
    let (window_bytes, unit) = (import.window_bytes, import.unit());
    let skips = import.skip_bad.saturating_sub(mark.as_ref().map_or(0, |mark| mark.skipped));
    tokio::task::spawn_blocking(move || {
        let start = mark.as_ref().map(Mark::place).unwrap_or_default();
        let mut windows = match source.open(mark) {
            Ok(reader) => {
                Windows::new(reader, start, limits, window_bytes, unit, skips, Box::new(tell_skipped))
            }
            // After a failure of the store the receiver is gone, and the error matters no more.
            Err(error) => return drop(sender.blocking_send(Err(error))),
        };
        loop {
            let window = windows.next();
            let is_last = !matches!(window, Ok(Some(_)));
            if sender.blocking_send(window).is_err() || is_last {
                return;
            }
        }
    });
}

fn tell_skipped(error: &TransferError) {
    crate::output::note(&format!("skipped: {error}"));
}

/// What the reading thread needs to know.
struct Source {
    input: Input,
    format: Format,
    columns: Columns,
    plan: String,
}

impl Source {
    fn open(&self, mark: Option<Mark>) -> Result<Box<dyn RecordReader>, TransferError> {
        let place = mark.as_ref().map(Mark::place).unwrap_or_default();
        let source = match (self.input.repeatable(), mark) {
            (Some(path), Some(mark)) => {
                if mark.plan != self.plan {
                    return Err(TransferError::OtherPlan { file: self.input.name() });
                }
                let source = self.input.open_at(path, mark.offset)?;
                source
                    .and_then(|mut source| (source.checksum() == mark.checksum).then_some(source))
                    .ok_or_else(|| TransferError::Changed { file: self.input.name(), offset: mark.offset })?
            }
            _ => self.input.open()?,
        };
        Ok(match self.format {
            Format::Jsonl => Box::new(JsonLinesReader::new(source, place)),
            Format::Binary => Box::new(BinaryReader::new(source, place)?),
            Format::Csv if place.offset > 0 => {
                Box::new(CsvReader::resume(self.input.open()?, source, place, &self.columns)?)
            }
            Format::Csv => Box::new(CsvReader::new(source, &self.columns)?),
        })
    }
}

/// Writes the partitions of a window concurrently, and the batches of each partition in order.
async fn write_window(store: &dyn Store, window: Window, import: &Import) -> Result<(), Failure> {
    let writes = window.partitions.into_iter().map(|batches| write_partition(store, batches, import.options));
    stream::iter(writes).buffer_unordered(import.in_flight.max(1)).try_collect::<()>().await
}

async fn write_partition(
    store: &dyn Store,
    batches: Vec<Batch>,
    options: WriteOptions,
) -> Result<(), Failure> {
    for batch in batches {
        store.write(batch, options).await?;
    }
    Ok(())
}
