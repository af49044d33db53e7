//! Files of rows that are compressed as a whole: suggests the command line that reads or unpacks one.
//!
//! Invariant: a suggested command line works as it stands. It names a pipe only for a format that can be read
//! as a stream, and only for a verb that reads from a pipe.

use crate::Failure;
use crate::text::quoted;
use atoll_row_files::{Compression, Format, Input, RowFileError};
use std::path::{Path, PathBuf};

/// The verb that reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadingVerb {
    /// Inspects a file, which it opens by name.
    Create,
    Import,
    Append,
}

impl ReadingVerb {
    /// The verb as it is typed, if it can read from a pipe.
    const fn of_pipe(self) -> Option<&'static str> {
        match self {
            Self::Create => None,
            Self::Import => Some("import"),
            Self::Append => Some("append"),
        }
    }

    /// The failure of reading a file of rows; for a compressed file it says what to type instead.
    pub(crate) fn failure(self, error: RowFileError) -> Failure {
        match &error {
            RowFileError::Compressed { input, compression, format } => {
                let line = self.line(input, *compression, Some(*format));
                Failure::Compressed { error: Box::new(error), line }
            }
            _ => error.into(),
        }
    }

    /// The command line that reads `input`; `format` is the format of the uncompressed bytes, if it is known.
    pub(crate) fn line(self, input: &Input, compression: Compression, format: Option<Format>) -> String {
        let program = compression.program();
        let path = match input {
            Input::Standard => {
                return format!("put `{program} |` before the command, which unpacks what comes");
            }
            Input::File(path) => path,
        };
        let file = quoted(&path.to_string_lossy());
        // An archive is not a file of rows, whatever format its name suggests.
        if is_archive(path) {
            return format!("it is an archive: `tar -xf {file}` unpacks it; then name a file of it");
        }
        match (self.of_pipe(), format.filter(|format| format.is_streamed())) {
            (Some(verb), Some(format)) => {
                let format = format.option();
                format!(
                    "`{program} {file} | atoll table {verb} TABLE - --format {format} --run NAME` reads it"
                )
            }
            _ => {
                let target = quoted(&unpacked(path).to_string_lossy());
                format!("unpack it first: `{program} {file} > {target}`; then name {target}")
            }
        }
    }
}

/// The format of the uncompressed bytes, going by the name of a compressed file.
pub(crate) fn format_within(path: &Path) -> Option<Format> {
    Format::of_path(Path::new(path.file_stem()?))
}

fn is_archive(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    name.ends_with(".tgz")
        || Path::new(&name).file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with(".tar"))
}

/// Where the uncompressed bytes go: the name without its compression suffix, or another name beside it.
fn unpacked(path: &Path) -> PathBuf {
    match Compression::of_path(path) {
        Some(_) => path.with_extension(""),
        None => path
            .with_file_name(format!("unpacked-{}", path.file_name().unwrap_or_default().to_string_lossy())),
    }
}
