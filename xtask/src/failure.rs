//! Why a verb stopped, and what its user can do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a verb stopped.
#[derive(Debug)]
pub enum Failure {
    /// The command line does not parse.
    Usage { problem: String, usage: String },
    /// This machine lacks a program.
    Missing { what: &'static str, needed_for: &'static str, install: String },
    /// A child process failed; its output was printed.
    Command { what: String, ended: String },
    /// Checks do not hold; each was printed.
    Broken { what: &'static str, count: usize },
    /// Checks were skipped that this machine should have been able to run.
    Skipped { count: usize },
    /// A file or process could not be used.
    Io { doing: String, source: io::Error },
    /// This machine's state does not allow it; `hint` tells the way out.
    Refused { problem: String, hint: String },
    /// A text does not have the format that it should have.
    Malformed { what: String, problem: String },
}

impl Failure {
    /// For `map_err`: an I/O error while `doing`.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// 2 for a misuse, as is usual for command lines; 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage { .. }) { 2 } else { 1 }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { usage, .. } => Some(usage.clone()),
            Self::Missing { install, .. } => Some(format!("install it with: {install}")),
            Self::Refused { hint, .. } => Some(hint.clone()),
            Self::Skipped { .. } => {
                Some("CI=true makes every skip an error; the reasons are above".to_owned())
            }
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage { problem, .. } | Self::Refused { problem, .. } => f.write_str(problem),
            Self::Missing { what, needed_for, .. } => write!(f, "{what} is missing; {needed_for} needs it"),
            Self::Command { what, ended } => write!(f, "{what} {ended}"),
            Self::Broken { what, count: 1 } => write!(f, "1 {what} does not hold"),
            Self::Broken { what, count } => write!(f, "{count} {what}s do not hold"),
            Self::Skipped { count } => write!(f, "{count} skipped that this machine should be able to run"),
            Self::Io { doing, source } => write!(f, "cannot {doing}: {source}"),
            Self::Malformed { what, problem } => write!(f, "{what} is malformed: {problem}"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A path as messages show it: relative to the workspace if it is inside.
pub fn shown(path: &std::path::Path) -> String {
    let root: Option<PathBuf> = crate::workspace::root().ok();
    let short = root.as_ref().and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path);
    short.display().to_string()
}
