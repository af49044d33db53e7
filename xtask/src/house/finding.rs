//! One violation of the house rules.

use std::fmt;

/// A violation: where, what, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File and line, or a crate.
    pub place: String,
    /// What is wrong there.
    pub problem: String,
    /// How to correct it.
    pub remedy: String,
}

impl Finding {
    /// A violation at `place`.
    pub fn at(place: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place: place.into(), problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.problem, self.remedy)
    }
}
