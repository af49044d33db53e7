//! Lists partition keys in the order of their slots, and within a slot of their hashes, as nodes store them.
//! Each page is asked from the node that leads its first slot by then.
//!
//! A split is a range of slots.
//!
//! Invariant: a page is complete up to the position at which the next one begins, whatever moves or is
//! deleted meanwhile.

use crate::connection::written;
use crate::store::Shared;
use atoll_keyspace::{SLOTS, ScanPage as Page, slot_of};
use atoll_resp::Value;
use atoll_store::{PartitionPage, PartitionQuery, Place, Split, StoreError, Token};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// One page.
pub(crate) async fn page(shared: &Shared, query: PartitionQuery) -> Result<PartitionPage, StoreError> {
    let slots = query.split.as_ref().map_or(Ok(0..=SLOTS - 1), |split| slots_of(&split.token))?;
    let begin = || Position { cursor: Page::cursor_of(*slots.start()), told: Vec::new() };
    let at = query.check()?.map_or_else(|| Ok(begin()), |last| Position::of(&last))?;
    let words = [at.cursor.to_string(), query.limit.clamp(1, 1000).to_string()];
    let [cursor, count] = &words;
    let pattern = pattern(&query.prefix);
    let request: [&[u8]; 8] =
        [b"AT.SCAN", cursor.as_bytes(), b"COUNT", count.as_bytes(), b"TYPE", b"hash", b"MATCH", &pattern];
    let slot = Page::slot_of(at.cursor);
    let answer = shared.nodes.read_slot("listing", slot, &written(&request)).await?;
    let (next, mut keys) = read(answer).ok_or_else(|| shared.nodes.odd("listing"))?;
    // Clients of Redis may have a hash under the empty key, which is not a partition.
    keys.retain(|key| !key.is_empty() && slots.contains(&slot_of(key)) && at.is_before(key));
    keys.sort_by_cached_key(|key| (Page::cursor_of_key(key), key.clone()));
    let is_done = next == 0 || Page::slot_of(next) > *slots.end();
    let mut behind = (!is_done).then(|| Position { cursor: next, told: Vec::new() });
    if keys.len() > query.limit {
        keys.truncate(query.limit);
        behind = keys.last().map(|last| Position::behind(last));
    }
    // Callers with few keys see them in order.
    keys.sort_unstable();
    let resume = behind.map(|behind| query.token_after(&behind.bytes()));
    Ok(PartitionPage { partitions: keys, resume })
}

/// Where a listing continues.
struct Position {
    cursor: u64,
    /// The last listed key, if the cursor begins at it.
    told: Vec<u8>,
}

impl Position {
    fn behind(key: &[u8]) -> Self {
        Self { cursor: Page::cursor_of_key(key), told: key.to_vec() }
    }

    /// Whether a key was not listed yet. The keys at one cursor have the same hash, and all come with it.
    fn is_before(&self, key: &[u8]) -> bool {
        (self.cursor, &self.told[..]) < (Page::cursor_of_key(key), key)
    }

    fn bytes(&self) -> Vec<u8> {
        [&self.cursor.to_be_bytes()[..], &self.told].concat()
    }

    fn of(bytes: &[u8]) -> Result<Self, StoreError> {
        let (cursor, told) = bytes.split_first_chunk().ok_or_else(|| foreign("resume token"))?;
        Ok(Self { cursor: u64::from_be_bytes(*cursor), told: told.to_vec() })
    }
}

/// The pattern of `SCAN` for keys with this prefix.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for &byte in prefix {
        if b"*?[]\\^-".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

fn read(answer: Value) -> Option<(u64, Vec<Vec<u8>>)> {
    let Value::Array(parts) = answer else { return None };
    let [cursor, Value::Array(keys)] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    let cursor = std::str::from_utf8(cursor.bytes()?).ok()?.parse().ok()?;
    let keys = keys.into_iter().map(|key| if let Value::String(key) = key { Some(key) } else { None });
    Some((cursor, keys.collect::<Option<_>>()?))
}

/// Adjacent ranges of slots.
pub(crate) fn splits(shared: &Shared, readers: usize) -> Result<Vec<Split>, StoreError> {
    if readers == 0 {
        return Err(StoreError::InvalidInput {
            what: "readers",
            problem: "there are none".to_owned(),
            hint: "ask for at least one reader",
        });
    }
    let count = u32::try_from(readers).unwrap_or(u32::MAX).min(u32::from(SLOTS));
    let edge = |at: u32| u32::from(SLOTS) * at / count;
    let split = |at: u32| {
        let (first, end) = (edge(at), edge(at + 1));
        let token = [&b"s"[..], &first.to_be_bytes(), &(end - 1).to_be_bytes()].concat();
        Split { token: Token(token), place: place(shared, u16::try_from(first).unwrap_or(0)) }
    };
    Ok((0..count).map(split).collect())
}

fn slots_of(token: &Token) -> Result<RangeInclusive<u16>, StoreError> {
    let read = || {
        let (first, rest) = token.0.strip_prefix(b"s")?.split_first_chunk()?;
        let last = <[u8; 4]>::try_from(rest).ok()?;
        let slot = |bytes| u16::try_from(u32::from_be_bytes(bytes)).ok().filter(|&slot| slot < SLOTS);
        Some(slot(*first)?..=slot(last)?)
    };
    read().filter(|slots| !slots.is_empty()).ok_or_else(|| foreign("split"))
}

fn foreign(what: &'static str) -> StoreError {
    StoreError::InvalidInput {
        what,
        problem: "no ring returned it".to_owned(),
        hint: "pass what the store returned, unchanged",
    }
}

/// Where a slot is.
pub(crate) fn place(shared: &Shared, slot: u16) -> Place {
    let owner: Option<Arc<str>> = shared.nodes.owner(slot);
    let host = owner.as_deref().and_then(|owner| owner.rsplit_once(':')).map(|(host, _)| host);
    let is_here = |host: &str| {
        host.trim_matches(['[', ']']).parse().is_ok_and(|host: std::net::IpAddr| host.is_loopback())
    };
    match host {
        Some(host) if !is_here(host) && host != "localhost" => Place::Host(host.to_owned()),
        _ => Place::Here,
    }
}
