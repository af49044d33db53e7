//! Starts this program again, for work in a place where namespaces may be made, or on a host.

use super::CutError;
use super::cluster::wait_until;
use crate::servers::own_child;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Starts this program again, after the words of a prefix; the child ends when this process does.
pub fn spawn(before: Vec<OsString>, words: &[OsString]) -> Result<Child, CutError> {
    let mut command = own_child(&before)?;
    command.args(words).stdin(Stdio::piped());
    command.spawn().map_err(CutError::io("start a child"))
}

/// Waits until it ends, which must be successful.
pub fn wait_for(mut child: Child, what: &str, most: Duration) -> Result<(), CutError> {
    // Its standard input stays open meanwhile: the child ends when that closes.
    let ended = wait_until(what, most, || {
        let status = child.try_wait().map_err(CutError::io(format!("wait for {what}")))?;
        match status {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(CutError::Command { what: what.to_owned(), words: status.to_string() }),
        }
    });
    if ended.is_err() {
        drop(child.kill());
        drop(child.wait());
    }
    ended
}

/// Reads the child's result.
pub fn read<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, CutError> {
    let text = std::fs::read_to_string(file).map_err(CutError::io(format!("read {}", file.display())))?;
    serde_json::from_str(&text).map_err(|source| CutError::Result { file: file.to_owned(), source })
}

/// A child's instructions or result as text.
pub fn text(of: &impl serde::Serialize) -> Result<String, CutError> {
    serde_json::to_string(of).map_err(|error| CutError::io("tell")(error.into()))
}
