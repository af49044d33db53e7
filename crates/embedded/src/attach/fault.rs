//! Encoding of the contract's errors.
//!
//! A conflict is sent whole, and so are the errors whose facts are not fixed texts of the program. The others
//! arrive as [`StoreError::Remote`], with their kind, outcome, message and hint.

use super::bytes::{DecodeError, Reader, Writer};
use atoll_store::{Conflict, ErrorKind, Outcome, Source, StoreError};
use std::sync::Arc;

type Decoded<T> = Result<T, DecodeError>;

/// Fixed texts that both programs contain, so that an error with one of them arrives unchanged.
const KNOWN: [&str; 18] = [
    "partition key",
    "sort key",
    "value",
    "value inside a condition",
    "batch operations",
    "batch bytes",
    "page",
    "limit",
    "get",
    "write",
    "create",
    "delete_partition",
    "scan",
    "wait",
    "sync",
    "reads",
    "waiters",
    "readers",
];

/// The cause of an error in another process, as text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RemoteCause(String);

pub(super) fn write_error(to: &mut Writer, error: &StoreError) {
    match error {
        StoreError::Conflict(conflict) => {
            to.byte(1);
            to.count(conflict.condition);
            to.counted(&conflict.sort);
            to.option(conflict.actual.as_deref(), Writer::counted);
            to.number(conflict.actual_bytes);
        }
        StoreError::Superseded { what } => texts(to, 2, &[what]),
        StoreError::Limit { what, actual, max } if known(what).is_some() => {
            texts(to, 3, &[what]);
            to.number(*actual);
            to.number(*max);
        }
        StoreError::Unauthenticated { place } => texts(to, 4, &[place]),
        StoreError::Owned { place, host, pid } => {
            texts(to, 5, &[place, host]);
            to.number(u64::from(*pid));
        }
        StoreError::Unavailable { place, reason, source } => {
            texts(to, 6, &[place, reason]);
            to.option(source.as_ref(), |to, source| to.counted(story(&**source).as_bytes()));
        }
        StoreError::Corrupt { place, problem } => texts(to, 7, &[place, problem]),
        StoreError::OutOfSpace { place, source } => {
            texts(to, 8, &[place]);
            to.option(source.as_ref(), |to, source| to.counted(story(&**source).as_bytes()));
        }
        StoreError::ReadOnly { place } => texts(to, 9, &[place]),
        StoreError::NewerFormat { place, found, supported } => {
            texts(to, 10, &[place]);
            to.number(u64::from(*found));
            to.number(u64::from(*supported));
        }
        other => {
            texts(to, 0, &[other.kind().code(), &story(other)]);
            to.flag(other.outcome() == Outcome::Unknown);
            to.option(other.hint(), |to, hint| to.counted(hint.as_bytes()));
        }
    }
}

pub(super) fn read_error(from: &mut Reader<'_>) -> Decoded<StoreError> {
    let text = |from: &mut Reader<'_>| from.text("text");
    let source = |from: &mut Reader<'_>| -> Decoded<Option<Source>> {
        Ok(from.option("cause", |from| from.text("cause"))?.map(|text| Arc::new(RemoteCause(text)) as _))
    };
    Ok(match from.byte("error")? {
        0 => StoreError::Remote {
            // This release could not act on the kind of a later one.
            kind: ErrorKind::from_code(&text(from)?).unwrap_or(ErrorKind::Internal),
            message: text(from)?,
            unknown: from.flag("outcome")?,
            hint: from.option("hint", text)?,
        },
        1 => StoreError::Conflict(Box::new(Conflict {
            condition: from.size("condition")?,
            sort: from.counted("sort key")?.to_vec(),
            actual: from.option("value", |from| from.buffer("value"))?,
            actual_bytes: from.number("length")?,
        })),
        2 => StoreError::Superseded { what: text(from)? },
        3 => {
            let (what, actual, max) = (text(from)?, from.number("amount")?, from.number("limit")?);
            match known(&what) {
                Some(what) => StoreError::Limit { what, actual, max },
                None => StoreError::Remote {
                    kind: ErrorKind::Limit,
                    message: format!("{what}: {actual} exceeds the limit of {max}"),
                    unknown: false,
                    hint: None,
                },
            }
        }
        4 => StoreError::Unauthenticated { place: text(from)? },
        5 => StoreError::Owned { place: text(from)?, host: text(from)?, pid: small(from)? },
        6 => StoreError::Unavailable { place: text(from)?, reason: text(from)?, source: source(from)? },
        7 => StoreError::Corrupt { place: text(from)?, problem: text(from)? },
        8 => StoreError::OutOfSpace { place: text(from)?, source: source(from)? },
        9 => StoreError::ReadOnly { place: text(from)? },
        10 => StoreError::NewerFormat { place: text(from)?, found: small(from)?, supported: small(from)? },
        _ => return Err(from.error("error")),
    })
}

fn known(text: &str) -> Option<&'static str> {
    KNOWN.into_iter().find(|&known| known == text)
}

fn small(from: &mut Reader<'_>) -> Decoded<u32> {
    u32::try_from(from.number("number")?).map_err(|_| from.error("number"))
}

fn texts(to: &mut Writer, code: u8, texts: &[&str]) {
    to.byte(code);
    texts.iter().for_each(|text| to.counted(text.as_bytes()));
}

/// An error with its causes, in one line.
fn story(error: &dyn std::error::Error) -> String {
    let mut story = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        story = format!("{story}: {error}");
        cause = error.source();
    }
    story
}
