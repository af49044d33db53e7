//! Latency classes: a client that can wait lets its requests be executed together with others.
//!
//! ```text
//! AT.CLASS 5 | 50 | 500 | NONE    OK: this connection's requests are answered within this many ms
//! AT.CLASS                        the class of this connection, or nil
//! ```

use super::arguments::{Arguments, is_word};
use super::{Command, CommandError};

/// The latency that a connection tolerates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatencyClass {
    /// As low as possible: requests are executed when they arrive.
    #[default]
    None,
    /// 5 ms: requests are executed when they arrive as well, because nothing is gained in so little time.
    Five,
    /// 50 ms.
    Fifty,
    /// 500 ms.
    FiveHundred,
}

impl LatencyClass {
    /// The class of this many milliseconds, if there is one.
    #[must_use]
    pub fn of_milliseconds(milliseconds: u64) -> Option<Self> {
        match milliseconds {
            5 => Some(Self::Five),
            50 => Some(Self::Fifty),
            500 => Some(Self::FiveHundred),
            _ => None,
        }
    }

    /// The latency in milliseconds; none for [`LatencyClass::None`].
    #[must_use]
    pub fn milliseconds(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Five => Some(5),
            Self::Fifty => Some(50),
            Self::FiveHundred => Some(500),
        }
    }

    /// The time for which a request may wait for others, in microseconds; none if it is executed when it
    /// arrives.
    #[must_use]
    pub fn slack_us(self) -> Option<u64> {
        match self {
            Self::None | Self::Five => None,
            Self::Fifty => Some(50_000),
            Self::FiveHundred => Some(500_000),
        }
    }
}

/// `AT.CLASS`.
pub(super) fn class<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let class = match arguments.optional() {
        None => None,
        Some(word) if is_word(word, "NONE") => Some(LatencyClass::None),
        Some(word) => {
            let number = crate::parse_integer(word).and_then(|number| u64::try_from(number).ok());
            Some(number.and_then(LatencyClass::of_milliseconds).ok_or(CommandError::LatencyClass)?)
        }
    };
    arguments.end()?;
    Ok(Command::Class(class))
}
