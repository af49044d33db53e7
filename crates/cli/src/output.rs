//! Standard output, notes on standard error, and whether to write JSON.

use crate::Failure;
use crate::failure::output_failure;
use serde_json::{Value, json};
use std::io::{BufWriter, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether the reader of standard error expects JSON objects and nothing else.
static NOTES_ARE_JSON: AtomicBool = AtomicBool::new(false);

/// Where results go.
pub struct Output {
    json: bool,
    is_terminal: bool,
    stdout: Mutex<BufWriter<Stdout>>,
}

impl Output {
    /// Writes to the standard output of this process.
    pub(crate) fn new(json: bool) -> Self {
        let stdout = std::io::stdout();
        NOTES_ARE_JSON.store(json, Ordering::Relaxed);
        Self { json, is_terminal: stdout.is_terminal(), stdout: Mutex::new(BufWriter::new(stdout)) }
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether the output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// How many characters fit on a line, if the output is a terminal that reports its width.
    pub(crate) fn room(&self) -> Option<usize> {
        let size = self.is_terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok())??;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }

    /// Writes one line of text.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        writeln!(self.lock(), "{}", text.as_ref()).map_err(output_failure)
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.lock().write_all(bytes).map_err(output_failure)
    }

    /// Runs `write` on the output.
    pub(crate) fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        write(&mut *self.lock()).map_err(output_failure)
    }

    /// Writes one JSON value on one line.
    pub(crate) fn json(&self, value: &Value) -> Result<(), Failure> {
        self.line(value.to_string())
    }

    /// Writes the text, or the JSON value if JSON is wanted.
    pub(crate) fn either(
        &self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        if self.json { self.json(&json()) } else { self.line(text()) }
    }

    /// Hands everything to the operating system.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        self.lock().flush().map_err(output_failure)
    }

    fn lock(&self) -> MutexGuard<'_, BufWriter<Stdout>> {
        self.stdout.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports a failure on standard error; if that fails, it cannot be reported at all.
pub(crate) fn report(failure: &Failure, json: bool, colored: bool) {
    let mut stderr = std::io::stderr().lock();
    if json {
        let _ = writeln!(stderr, "{}", failure.to_json());
        return;
    }
    for (label, text) in failure.to_lines() {
        let (on, off) = match label {
            _ if !colored => ("", ""),
            "error" => ("\x1b[1;31m", "\x1b[0m"),
            "hint" => ("\x1b[1;36m", "\x1b[0m"),
            _ => ("\x1b[1m", "\x1b[0m"),
        };
        let _ = writeln!(stderr, "{on}{label}:{off} {text}");
    }
}

/// Writes a note that is neither result nor failure to standard error, which belongs to the whole process.
pub(crate) fn note(text: &str) {
    match NOTES_ARE_JSON.load(Ordering::Relaxed) {
        true => note_json(&json!({ "note": text })),
        false => drop(writeln!(std::io::stderr().lock(), "{text}")),
    }
}

/// Writes a note that is JSON, whatever format was asked for.
pub(crate) fn note_json(value: &Value) {
    // A failed write cannot be reported anywhere.
    drop(writeln!(std::io::stderr().lock(), "{value}"));
}
