//! The answers of `COMMAND`: the commands and the positions of their keys, so that clients can find the right
//! node.

use super::{COMMANDS, CommandRequest, Keys, Specification, find};
use crate::ReplyWriter;

impl CommandRequest<'_> {
    /// Writes the answer.
    pub fn answer(&self, writer: &mut ReplyWriter<'_>) {
        match self {
            Self::Count => writer.integer(COMMANDS.len() as i64),
            Self::Info(None) => {
                writer.array(COMMANDS.len());
                COMMANDS.iter().for_each(|row| information(row, writer));
            }
            Self::Info(Some(names)) => {
                writer.array(names.len());
                for name in names {
                    match find(name) {
                        Some(row) => information(row, writer),
                        None => writer.null_array(),
                    }
                }
            }
            Self::Docs(names) if names.is_empty() => documents(COMMANDS.iter(), COMMANDS.len(), writer),
            Self::Docs(names) => {
                let rows: Vec<_> = names.iter().filter_map(|name| find(name)).collect();
                documents(rows.iter().copied(), rows.len(), writer);
            }
            Self::List => {
                writer.array(COMMANDS.len());
                COMMANDS.iter().for_each(|row| writer.string(row.name.as_bytes()));
            }
            Self::Keys(keys) => {
                writer.array(keys.len());
                keys.iter().for_each(|key| writer.string(key));
            }
        }
    }
}

/// Name, arity, flags, first key, last key, and the step between keys; then access categories, hints, the
/// same keys in the newer format, and subcommands.
fn information(row: &Specification, writer: &mut ReplyWriter<'_>) {
    writer.array(10);
    writer.string(row.name.as_bytes());
    writer.integer(row.arity.into());
    writer.set(row.flags.len());
    row.flags.iter().for_each(|flag| writer.simple(flag.name()));
    writer.integer(row.keys.first.into());
    writer.integer(row.keys.last.into());
    writer.integer(row.keys.step.into());
    writer.set(1);
    writer.simple(&format!("@{}", row.group.name()));
    writer.array(0);
    let specifications = usize::from(row.keys != Keys::NONE);
    writer.array(specifications);
    if specifications > 0 {
        key_specification(row, writer);
    }
    writer.array(0);
}

fn key_specification(row: &Specification, writer: &mut ReplyWriter<'_>) {
    let map = |writer: &mut ReplyWriter<'_>, name: &str, pairs: usize| {
        writer.string(name.as_bytes());
        writer.map(pairs);
    };
    let number = |writer: &mut ReplyWriter<'_>, name: &str, value: i64| {
        writer.string(name.as_bytes());
        writer.integer(value);
    };
    writer.map(3);
    writer.string(b"flags");
    writer.set(1);
    writer.simple(if row.is_write() { "RW" } else { "RO" });
    map(writer, "begin_search", 2);
    writer.string(b"type");
    writer.string(b"index");
    map(writer, "spec", 1);
    number(writer, "index", row.keys.first.into());
    map(writer, "find_keys", 2);
    writer.string(b"type");
    writer.string(b"range");
    map(writer, "spec", 3);
    // Relative to the first key, or to the end.
    let last = i64::from(row.keys.last);
    number(writer, "lastkey", if last < 0 { last } else { last - i64::from(row.keys.first) });
    number(writer, "keystep", row.keys.step.into());
    number(writer, "limit", 0);
}

fn documents<'a>(rows: impl Iterator<Item = &'a Specification>, count: usize, writer: &mut ReplyWriter<'_>) {
    writer.map(count);
    for row in rows {
        writer.string(row.name.as_bytes());
        writer.map(2);
        for (name, value) in [("summary", row.summary), ("group", row.group.name())] {
            writer.string(name.as_bytes());
            writer.string(value.as_bytes());
        }
    }
}
