//! Export: partition by partition, page by page, to a file that appears once it is complete.
//!
//! Invariant: a file of the wanted name is always a complete export.

use crate::Failure;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Progress;
use crate::session::Patience;
use crate::text::Encoding;
use crate::transfer::{Format, RESERVED_PREFIX, Record, binary, csv_rows, json_lines};
use atoll_store::{PartitionKey, PartitionQuery, ScanRequest, Store};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What to export, and how.
pub(crate) struct Export {
    /// The file; none for standard output.
    pub(crate) path: Option<PathBuf>,
    pub(crate) format: Format,
    pub(crate) encoding: Encoding,
    /// Exports only this partition.
    pub(crate) partition: Option<PartitionKey>,
    /// Exports only partitions with this prefix.
    pub(crate) prefix: Vec<u8>,
    pub(crate) replace: bool,
    /// How long to wait for each page.
    pub(crate) patience: Patience,
}

/// What an export did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exported {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) partitions: u64,
}

/// Exports from `store`.
pub(crate) async fn export(store: &dyn Store, export: &Export, output: &Output) -> Result<Exported, Failure> {
    let mut sheet = ExportRun {
        target: Target::open(export, output)?,
        format: export.format,
        encoding: export.encoding,
        patience: &export.patience,
        exported: Exported::default(),
        progress: Progress::bytes(None, export.path.is_some()),
    };
    sheet.begin()?;
    match &export.partition {
        Some(partition) => sheet.partition(store, partition).await?,
        None => sheet.all(store, &export.prefix).await?,
    }
    sheet.end()
}

/// An export under way.
struct ExportRun<'a> {
    target: Target<'a>,
    format: Format,
    encoding: Encoding,
    patience: &'a Patience,
    exported: Exported,
    progress: Progress,
}

impl ExportRun<'_> {
    fn begin(&mut self) -> Result<(), Failure> {
        let (format, encoding) = (self.format, self.encoding);
        self.target.write(|target| match format {
            Format::Jsonl => Ok(()),
            Format::Csv => write_row(&csv_rows::header(encoding), target),
            Format::Binary => binary::write_header(target),
        })
    }

    async fn all(&mut self, store: &dyn Store, prefix: &[u8]) -> Result<(), Failure> {
        let mut query = PartitionQuery::prefix(prefix);
        loop {
            let page = self.patience.read(store.partition_keys(query.clone())).await?;
            for partition in page.partitions.iter().filter(|key| !key.starts_with(RESERVED_PREFIX)) {
                self.partition(store, partition).await?;
            }
            match page.resume {
                Some(resume) => query.resume = Some(resume),
                None => return Ok(()),
            }
        }
    }

    async fn partition(&mut self, store: &dyn Store, partition: &[u8]) -> Result<(), Failure> {
        let mut request = ScanRequest::all(partition);
        loop {
            let page = self.patience.read(store.scan(request.clone())).await?;
            for entry in page.entries {
                let record =
                    Record { partition: partition.to_vec(), sort: entry.sort, value: entry.value.to_vec() };
                self.record(&record)?;
            }
            match page.resume {
                Some(resume) => request.resume = Some(resume),
                None => break,
            }
        }
        self.exported.partitions += 1;
        Ok(())
    }

    fn record(&mut self, record: &Record) -> Result<(), Failure> {
        let (format, encoding) = (self.format, self.encoding);
        self.target.write(|target| match format {
            Format::Jsonl => json_lines::write_line(record, target),
            Format::Csv => write_row(&csv_rows::fields(record, encoding), target),
            Format::Binary => binary::write_record(record, target),
        })?;
        self.exported.records += 1;
        self.exported.bytes += record.bytes() as u64;
        self.progress.set(self.exported.bytes, format!("{} records", self.exported.records));
        Ok(())
    }

    fn end(mut self) -> Result<Exported, Failure> {
        if self.format == Format::Binary {
            let count = self.exported.records;
            self.target.write(|target| binary::write_end(count, target))?;
        }
        self.target.finish()?;
        Ok(self.exported)
    }
}

fn write_row(fields: &[String; 3], target: &mut dyn Write) -> io::Result<()> {
    // The writer of the csv crate must own its target; for a single row that is a small buffer.
    let mut row = csv::Writer::from_writer(Vec::new());
    row.write_record(fields).map_err(io::Error::from)?;
    target.write_all(&row.into_inner().map_err(|error| io::Error::other(error.to_string()))?)
}

/// Where the bytes go.
enum Target<'a> {
    Output(&'a Output),
    File { file: NewFile, target: BufWriter<File> },
}

impl<'a> Target<'a> {
    fn open(export: &'a Export, output: &'a Output) -> Result<Self, Failure> {
        let Some(path) = &export.path else { return Ok(Self::Output(output)) };
        let (file, target) = NewFile::create(path, export.replace)?;
        Ok(Self::File { file, target: BufWriter::with_capacity(256 << 10, target) })
    }

    fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        match self {
            Self::Output(output) => output.write(write),
            Self::File { file, target } => {
                write(target).map_err(|source| file_failure("write", file.part(), source))
            }
        }
    }

    /// Makes the file durable and gives it its name.
    fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Output(output) => output.flush(),
            Self::File { file, mut target } => {
                target.flush().map_err(|source| file_failure("write", file.part(), source))?;
                drop(target);
                file.finish()
            }
        }
    }
}

fn file_failure(action: &'static str, path: &Path, source: io::Error) -> Failure {
    Failure::File { action, place: path.display().to_string(), source }
}
