//! The arguments of a request, consumed from the front.

use super::{CommandError, Pairs};
use crate::{Request, parse_integer};

/// The remaining arguments.
pub(super) struct Arguments<'a> {
    request: Request<'a>,
    at: usize,
}

impl<'a> Arguments<'a> {
    pub(super) fn of(request: Request<'a>) -> Self {
        Self { request, at: 0 }
    }

    /// The name of the command, as it was written.
    pub(super) fn name(&self) -> &'a [u8] {
        self.request.get(0).unwrap_or_default()
    }

    /// The remaining arguments as a request.
    pub(super) fn request(&mut self) -> Request<'a> {
        let rest = self.request.behind(self.at);
        self.at = self.request.len();
        rest
    }

    pub(super) fn left(&self) -> usize {
        self.request.len() - self.at
    }

    /// The next argument. The number of arguments was checked before: if there is none, the table of commands
    /// is wrong, and the argument is empty.
    pub(super) fn next(&mut self) -> &'a [u8] {
        self.optional().unwrap_or_default()
    }

    pub(super) fn optional(&mut self) -> Option<&'a [u8]> {
        let next = self.request.get(self.at)?;
        self.at += 1;
        Some(next)
    }

    /// The argument of an option word that requires one.
    pub(super) fn behind_word(&mut self) -> Result<&'a [u8], CommandError> {
        self.optional().ok_or(CommandError::Syntax)
    }

    pub(super) fn rest(&mut self) -> Vec<&'a [u8]> {
        let rest = self.request.iter().skip(self.at).collect();
        self.at = self.request.len();
        rest
    }

    /// The remaining arguments in pairs.
    pub(super) fn pairs(&mut self) -> Result<Pairs<'a>, CommandError> {
        if !self.left().is_multiple_of(2) {
            let name = String::from_utf8_lossy(self.name()).to_ascii_lowercase();
            return Err(CommandError::Arity { name });
        }
        Ok(std::iter::from_fn(|| Some((self.optional()?, self.optional()?))).collect())
    }

    pub(super) fn integer(&mut self) -> Result<i64, CommandError> {
        parse_integer(self.next()).ok_or(CommandError::Integer)
    }

    /// Checks that no arguments remain.
    pub(super) fn end(&self) -> Result<(), CommandError> {
        if self.left() == 0 { Ok(()) } else { Err(CommandError::Syntax) }
    }
}

/// Whether an argument is this word, ignoring case.
pub(super) fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
