//! Files of rows that are compressed as a whole: the line that reads one, or unpacks it.
//!
//! Invariant: a line that is told works as it stands: a pipe is named only for a format that is read from
//! beginning to end, and for a verb that reads a pipe.

use crate::Failure;
use crate::text::quoted;
use atoll_row_files::{Compression, Format, Input, RowFileError};
use std::path::{Path, PathBuf};

/// The verb that reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadingVerb {
    /// It looks at a file, and opens what it is told by its name.
    Create,
    Import,
    Append,
}

impl ReadingVerb {
    /// The verb as it is typed, if a pipe will do for it.
    const fn of_pipe(self) -> Option<&'static str> {
        match self {
            Self::Create => None,
            Self::Import => Some("import"),
            Self::Append => Some("append"),
        }
    }

    /// The failure of a file of rows, with what to type instead where the file is compressed.
    pub(crate) fn failure(self, error: RowFileError) -> Failure {
        match &error {
            RowFileError::Compressed { input, compression, format } => {
                let line = self.line(input, *compression, Some(*format));
                Failure::Compressed { error: Box::new(error), line }
            }
            _ => error.into(),
        }
    }

    /// What reads the file, whose format within is known or not.
    pub(crate) fn line(self, input: &Input, compression: Compression, format: Option<Format>) -> String {
        let program = compression.program();
        let path = match input {
            Input::Standard => {
                return format!("put `{program} |` before the command, which unpacks what comes");
            }
            Input::File(path) => path,
        };
        let file = quoted(&path.to_string_lossy());
        // Whatever a name says of the format, an archive is no file of rows.
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

/// What the name of a compressed file says of the format within.
pub(crate) fn format_within(path: &Path) -> Option<Format> {
    Format::of_path(Path::new(path.file_stem()?))
}

fn is_archive(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    name.ends_with(".tgz")
        || Path::new(&name).file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with(".tar"))
}

/// Where the bytes within go: the name without the ending of the compression, or another one beside it.
fn unpacked(path: &Path) -> PathBuf {
    match Compression::of_path(path) {
        Some(_) => path.with_extension(""),
        None => path
            .with_file_name(format!("unpacked-{}", path.file_name().unwrap_or_default().to_string_lossy())),
    }
}
