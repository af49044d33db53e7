//! Calls of the contract, encoded as commands.
//!
//! Invariant: nothing is sent that a node would not take in: it would end the connection in the middle of
//! the request, and the write would look as if it might have happened.

use atoll_resp::Limits as Door;
use atoll_store::{
    Batch, ByteRange, Condition, Direction, Limits, Mutation, Projection, RequestId, ScanRequest, SortRange,
    StoreError,
};
use std::ops::Bound;

/// An encoded request.
pub(crate) type Written = Vec<u8>;

/// Most bytes of the words of a batch before its partition, and of those of one operation beside its keys and
/// its value.
const FIRST_WORDS_BYTES: usize = b"AT.ID".len() + (u128::BITS as usize / 4) + 2 * 20 + b"AT.BATCH".len();
const OPERATION_WORDS_BYTES: usize = b"DELRANGE[(".len();

/// The same as numbers of words, with the partition, the keys and the value.
const FIRST_WORDS: usize = 6;
const OPERATION_WORDS: usize = 3;

/// Most bytes of all words of a batch.
const BATCH_BYTES_MAX: usize = Limits::CONTRACT.value_bytes as usize
    + Limits::CONTRACT.batch_bytes
    + Limits::CONTRACT.partition_key_bytes
    + Limits::CONTRACT.batch_operations * OPERATION_WORDS_BYTES
    + FIRST_WORDS_BYTES;

const _: () = assert!(
    BATCH_BYTES_MAX <= Door::AUTHENTICATED.total_bytes
        && Limits::CONTRACT.value_bytes as usize <= Door::AUTHENTICATED.string_bytes
        && FIRST_WORDS + Limits::CONTRACT.batch_operations * OPERATION_WORDS <= Door::AUTHENTICATED.elements,
    "a node takes in every batch that the contract allows"
);

/// `AT.BATCH`, done once. The client promises not to repeat its writes before `floor`.
///
/// # Errors
/// `limit` for a batch that a node would not take in, which none within the limits of the contract is.
pub(crate) fn batch(batch: &Batch, request: RequestId, floor: u64) -> Result<Written, StoreError> {
    let mut ends = Vec::new();
    for mutation in &batch.mutations {
        if let Mutation::DeleteRange(range) = mutation {
            ends.push(ends_of(range));
        }
    }
    let mut ends = ends.iter();
    let [client, sequence, floor] =
        [format!("{:x}", request.client), request.sequence.to_string(), floor.to_string()];
    let mut words: Vec<&[u8]> = vec![b"AT.ID", client.as_bytes(), sequence.as_bytes(), floor.as_bytes()];
    words.extend([&b"AT.BATCH"[..], &batch.partition]);
    for condition in &batch.conditions {
        match condition {
            Condition::Absent(sort) => words.extend([&b"IFABSENT"[..], sort]),
            Condition::Equals(sort, value) => words.extend([&b"IFEQ"[..], sort, value]),
        }
    }
    for mutation in &batch.mutations {
        match mutation {
            Mutation::Put(sort, value) => words.extend([&b"PUT"[..], sort, value]),
            Mutation::Append(sort, value) => words.extend([&b"APPEND"[..], sort, value]),
            Mutation::Delete(sort) => words.extend([&b"DEL"[..], sort]),
            Mutation::DeleteRange(_) => {
                if let Some((from, to)) = ends.next() {
                    words.extend([&b"DELRANGE"[..], from, to]);
                }
            }
        }
    }
    check(&words, &Door::AUTHENTICATED)?;
    Ok(crate::connection::written(&words))
}

/// Refuses words that a node would not take in as one request.
fn check(words: &[&[u8]], door: &Door) -> Result<(), StoreError> {
    let longest = words.iter().map(|word| word.len()).max().unwrap_or_default();
    let total = words.iter().map(|word| word.len()).sum::<usize>();
    for (what, actual, max) in [
        ("words of a request", words.len(), door.elements),
        ("value", longest, door.string_bytes),
        ("batch bytes", total, door.total_bytes),
    ] {
        if actual > max {
            return Err(StoreError::Limit { what, actual: actual as u64, max: max as u64 });
        }
    }
    Ok(())
}

/// `AT.GET`.
pub(crate) fn get(partition: &[u8], sort: &[u8], range: ByteRange) -> Written {
    if range == ByteRange::ALL {
        return crate::connection::written(&[b"AT.GET", partition, sort]);
    }
    let [offset, len] = numbers(range);
    crate::connection::written(&[b"AT.GET", partition, sort, offset.as_bytes(), len.as_bytes()])
}

/// `AT.RANGE`, from after the last entry of the previous page.
pub(crate) fn range(request: &ScanRequest, last: Option<&[u8]>) -> Written {
    let (mut from, mut to) = ends_of(&request.range);
    if let Some(last) = last {
        let behind = [b"(", last].concat();
        match request.direction {
            Direction::Forward => from = behind,
            Direction::Backward => to = behind,
        }
    }
    let limit = u64::try_from(request.limit).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs()).to_string();
    let mut words: Vec<&[u8]> = vec![b"AT.RANGE", &request.partition, &from, &to, b"LIMIT", limit.as_bytes()];
    if request.direction == Direction::Backward {
        words.push(b"REV");
    }
    let [offset, len] = match request.projection {
        Projection::Bytes(range) => numbers(range),
        Projection::KeysOnly | Projection::Values => Default::default(),
    };
    match request.projection {
        Projection::KeysOnly => words.push(b"KEYS"),
        Projection::Values => {}
        Projection::Bytes(_) => words.extend([&b"BYTES"[..], offset.as_bytes(), len.as_bytes()]),
    }
    crate::connection::written(&words)
}

/// Numbers of the protocol are at most 2^63 - 1.
fn numbers(range: ByteRange) -> [String; 2] {
    let most = i64::MAX.unsigned_abs();
    [range.offset, range.len.unwrap_or(most)].map(|number| number.min(most).to_string())
}

fn ends_of(range: &SortRange) -> (Vec<u8>, Vec<u8>) {
    let end = |bound: &Bound<Vec<u8>>, all: &[u8]| match bound {
        Bound::Unbounded => all.to_vec(),
        Bound::Included(sort) => [b"[", sort.as_slice()].concat(),
        Bound::Excluded(sort) => [b"(", sort.as_slice()].concat(),
    };
    (end(&range.from, b"-"), end(&range.to, b"+"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_resp::RequestParser;
    use atoll_store::{Buffer, ErrorKind};

    const LONGEST: RequestId = RequestId { client: u128::MAX, sequence: u64::MAX };

    /// The lengths of the words of a batch.
    fn lengths(of: &Batch) -> Vec<usize> {
        let written = batch(of, LONGEST, u64::MAX).unwrap();
        let mut parser = RequestParser::new(Door::AUTHENTICATED);
        let request = parser.parse(&written).unwrap().unwrap();
        request.iter().map(<[u8]>::len).collect()
    }

    #[test]
    fn no_words_are_longer_than_those_that_the_door_was_made_for() {
        let first = lengths(&Batch::on(*b"pp"));
        assert_eq!((first.len(), first.iter().sum::<usize>()), (FIRST_WORDS, FIRST_WORDS_BYTES + 2));
        let range = SortRange { from: Bound::Included(b"k".to_vec()), to: Bound::Excluded(b"l".to_vec()) };
        // Each with the bytes that the contract counts, or would count in company.
        let operations = [
            (Batch::on(*b"pp").if_absent(*b"k"), 1),
            (Batch::on(*b"pp").if_equals(*b"k", &b"vvv"[..]), 4),
            (Batch::on(*b"pp").put(*b"k", &b"vvv"[..]), 4),
            (Batch::on(*b"pp").append(*b"k", &b"vvv"[..]), 4),
            (Batch::on(*b"pp").delete(*b"k"), 1),
            (Batch::on(*b"pp").delete_range(SortRange::all()), 0),
            (Batch::on(*b"pp").delete_range(range), 2),
        ];
        let mut longest = 0;
        for (one, counted) in operations {
            let words = lengths(&one).split_off(first.len());
            assert!(words.len() <= OPERATION_WORDS, "{one:?}");
            longest = longest.max(words.iter().sum::<usize>() - counted);
        }
        assert_eq!(longest, OPERATION_WORDS_BYTES);
    }

    #[test]
    fn what_a_node_would_not_take_in_is_refused_before_it_is_sent() {
        let refused = |of: &Batch| batch(of, LONGEST, 0).unwrap_err();
        let half = Buffer::build(40 << 20, |_| ());
        let twice = refused(&Batch::on(*b"p").put(*b"k", half.clone()).put(*b"l", half));
        assert_eq!(twice.kind(), ErrorKind::Limit);
        assert!(twice.to_string().starts_with("batch of "), "{twice}");
        let long = refused(&Batch::on(*b"p").put(*b"k", Buffer::build((64 << 20) + 1, |_| ())));
        assert!(long.to_string().starts_with("value of 67108865 bytes"), "{long}");
        let door = Door { elements: 2, string_bytes: 3, total_bytes: 5, depth: 1 };
        assert!(check(&[b"abc", b"de"], &door).is_ok());
        let beyond: [&[&[u8]]; 3] = [&[b"abc", b"def"], &[b"abcd"], &[b"a", b"b", b"c"]];
        for words in beyond {
            assert_eq!(check(words, &door).map_err(|error| error.kind()), Err(ErrorKind::Limit), "{words:?}");
        }
    }
}
