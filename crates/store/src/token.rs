//! Resume tokens: where a scan or a listing resumes, bound to the request that it belongs to.
//!
//! A token is a version byte, a 64-bit hash of the request and the last key returned. It holds no state of
//! the store, so it outlives a restart, and another process on the same store accepts it.
//!
//! Invariant: a token that no store issued for this very request is refused as `invalid-input`. Damage is
//! detected because the hash covers the last key too.

use crate::{Direction, Limits, PartitionKey, PartitionQuery, ScanRequest, SortKey, StoreError, Token};
use std::ops::Bound;
use twox_hash::XxHash3_64;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 9;

impl ScanRequest {
    /// Checks the request and returns the sort key after which the page begins (before which, for a backward
    /// scan).
    ///
    /// # Errors
    /// `invalid-input` for a limit of 0 or a token of another request, `limit` for long keys.
    pub fn check(&self, limits: &Limits) -> Result<Option<SortKey>, StoreError> {
        limits.check_partition(&self.partition)?;
        limits.check_range(&self.range)?;
        check_page_limit(self.limit)?;
        let Some(token) = &self.resume else { return Ok(None) };
        let last = open(token, |last| self.fingerprint(last))?;
        if self.range.contains(&last) { Ok(Some(last)) } else { Err(foreign()) }
    }

    /// The token that resumes this scan after the sort key `last`.
    #[must_use]
    pub fn token_after(&self, last: &[u8]) -> Token {
        seal(self.fingerprint(last), last)
    }

    /// A hash of the request and the last key. The page limit may differ from page to page, so it is left
    /// out.
    fn fingerprint(&self, last: &[u8]) -> u64 {
        let direction = match self.direction {
            Direction::Forward => 0,
            Direction::Backward => 1,
        };
        let mut bytes = vec![b's', direction];
        push(&mut bytes, &self.partition);
        push_bound(&mut bytes, &self.range.from);
        push_bound(&mut bytes, &self.range.to);
        push(&mut bytes, last);
        XxHash3_64::oneshot(&bytes)
    }
}

impl PartitionQuery {
    /// Checks the query and returns the partition key after which the page begins.
    ///
    /// # Errors
    /// `invalid-input` for a limit of 0 or a token of another query.
    pub fn check(&self) -> Result<Option<PartitionKey>, StoreError> {
        check_page_limit(self.limit)?;
        self.resume.as_ref().map(|token| open(token, |last| self.fingerprint(last))).transpose()
    }

    /// The token that resumes this listing after the partition key `last`.
    #[must_use]
    pub fn token_after(&self, last: &[u8]) -> Token {
        seal(self.fingerprint(last), last)
    }

    fn fingerprint(&self, last: &[u8]) -> u64 {
        let mut bytes = vec![b'p', u8::from(self.split.is_some())];
        push(&mut bytes, &self.prefix);
        if let Some(split) = &self.split {
            push(&mut bytes, &split.token.0);
        }
        push(&mut bytes, last);
        XxHash3_64::oneshot(&bytes)
    }
}

fn check_page_limit(limit: usize) -> Result<(), StoreError> {
    if limit > 0 {
        return Ok(());
    }
    Err(StoreError::InvalidInput {
        what: "page limit",
        problem: "it is 0".into(),
        hint: "ask for at least one entry a page",
    })
}

fn push(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

fn push_bound(bytes: &mut Vec<u8>, bound: &Bound<SortKey>) {
    let (kind, key) = match bound {
        Bound::Unbounded => (0, &[][..]),
        Bound::Included(key) => (1, key.as_slice()),
        Bound::Excluded(key) => (2, key.as_slice()),
    };
    bytes.push(kind);
    push(bytes, key);
}

fn seal(fingerprint: u64, last: &[u8]) -> Token {
    Token([&[VERSION][..], &fingerprint.to_le_bytes(), last].concat())
}

fn open(token: &Token, fingerprint: impl Fn(&[u8]) -> u64) -> Result<Vec<u8>, StoreError> {
    let (header, last) = token.0.split_at_checked(HEADER_BYTES).ok_or_else(foreign)?;
    let genuine = header[0] == VERSION && header[1..] == fingerprint(last).to_le_bytes();
    if genuine { Ok(last.to_vec()) } else { Err(foreign()) }
}

fn foreign() -> StoreError {
    StoreError::InvalidInput {
        what: "resume token",
        problem: "no page of this request returned it".into(),
        hint: "pass the token of the former page unchanged, with the same request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Place, SortRange, Split};

    fn kind_of<T: std::fmt::Debug>(result: Result<T, StoreError>) -> ErrorKind {
        result.expect_err("must be refused").kind()
    }

    #[test]
    fn a_token_resumes_its_own_request_and_no_other() {
        let request = ScanRequest { range: SortRange::prefix(b"a"), ..ScanRequest::all(*b"p") };
        let resume = Some(request.token_after(b"ab"));
        let same = ScanRequest { limit: 7, resume: resume.clone(), ..request.clone() };
        assert_eq!(same.check(&Limits::CONTRACT).unwrap(), Some(b"ab".to_vec()));
        for other in [
            ScanRequest { direction: Direction::Backward, resume: resume.clone(), ..request.clone() },
            ScanRequest { partition: b"q".to_vec(), resume: resume.clone(), ..request.clone() },
            ScanRequest { range: SortRange::all(), resume: resume.clone(), ..request.clone() },
        ] {
            assert_eq!(kind_of(other.check(&Limits::CONTRACT)), ErrorKind::InvalidInput, "{other:?}");
        }
    }

    #[test]
    fn a_token_with_any_bit_flipped_or_byte_missing_is_refused() {
        let request = ScanRequest::all(*b"p");
        let token = request.token_after(b"key");
        let refused = |bytes: Vec<u8>| {
            let damaged = ScanRequest { resume: Some(Token(bytes)), ..request.clone() };
            assert_eq!(kind_of(damaged.check(&Limits::CONTRACT)), ErrorKind::InvalidInput);
        };
        for bit in 0..token.0.len() * 8 {
            let mut bytes = token.0.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            refused(bytes);
        }
        for len in 0..token.0.len() {
            refused(token.0[..len].to_vec());
        }
    }

    #[test]
    fn a_listing_token_is_bound_to_prefix_and_split() {
        let query = PartitionQuery::prefix(*b"a");
        let resume = Some(query.token_after(b"ab"));
        let same = PartitionQuery { resume: resume.clone(), ..query.clone() };
        assert_eq!(same.check().unwrap(), Some(b"ab".to_vec()));
        let split = Some(Split { token: Token(vec![]), place: Place::Here });
        for other in [
            PartitionQuery { prefix: b"b".to_vec(), resume: resume.clone(), ..query.clone() },
            PartitionQuery { split, resume, ..query.clone() },
        ] {
            assert_eq!(kind_of(other.check()), ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_page_of_no_entries_is_refused() {
        let request = ScanRequest { limit: 0, ..ScanRequest::all(*b"p") };
        assert_eq!(kind_of(request.check(&Limits::CONTRACT)), ErrorKind::InvalidInput);
        assert_eq!(
            kind_of(PartitionQuery { limit: 0, ..PartitionQuery::prefix(*b"") }.check()),
            ErrorKind::InvalidInput
        );
    }
}
