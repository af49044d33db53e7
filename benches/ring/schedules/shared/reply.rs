//! Replies with nested lists, which only this part of the bench requests.

use crate::client::{Protocol, Reply};
use std::io;

/// How deeply lists may be nested.
const DEPTH_MAX: usize = 4;
/// How many items a list may have.
const ITEMS_MAX: usize = 1_000;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// `OK` and the like.
    Status(String),
    /// An error.
    Refused(String),
    /// A number.
    Number(i64),
    /// Bytes, or nothing.
    Text(Option<String>),
    /// Several.
    List(Vec<Self>),
}

/// Parses the reply at the beginning of `input` and returns its length as well; `None` while it is
/// incomplete.
pub fn parse(input: &[u8]) -> io::Result<Option<(Tree, usize)>> {
    parse_within(input, DEPTH_MAX)
}

fn parse_within(input: &[u8], depth: usize) -> io::Result<Option<(Tree, usize)>> {
    if input.first() != Some(&b'*') {
        let parsed = Protocol::Resp.parse(input).map_err(io::Error::other)?;
        return parsed.map(|(reply, taken)| leaf(reply).map(|leaf| (leaf, taken))).transpose();
    }
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let count =
        std::str::from_utf8(&input[1..end]).ok().and_then(|text| text.trim_end().parse::<usize>().ok());
    let count = count.filter(|count| *count <= ITEMS_MAX && depth > 0);
    let count = count.ok_or_else(|| io::Error::other("a list that is too long, too deep or none"))?;
    let (mut items, mut taken) = (Vec::new(), end + 1);
    for _ in 0..count {
        let Some((item, length)) = parse_within(&input[taken..], depth - 1)? else { return Ok(None) };
        items.push(item);
        taken += length;
    }
    Ok(Some((Tree::List(items), taken)))
}

fn leaf(reply: Reply<'_>) -> io::Result<Tree> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match reply {
        Reply::Done => Tree::Status("OK".to_owned()),
        Reply::Status(words) => Tree::Status(text(words)),
        Reply::Refused(words) => Tree::Refused(text(words)),
        Reply::Number(number) => Tree::Number(number),
        Reply::Value(bytes) => Tree::Text(Some(text(bytes))),
        Reply::Nothing => Tree::Text(None),
        Reply::End => return Err(io::Error::other("a reply of another language")),
    })
}
