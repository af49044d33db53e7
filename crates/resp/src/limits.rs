//! Limits on what a peer may send.

/// Limits on one request or one reply from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of a request, or elements of all aggregates of a reply together.
    pub elements: usize,
    /// Bytes of one string.
    pub string_bytes: usize,
    /// Bytes of all strings together.
    pub total_bytes: usize,
    /// Nesting of aggregates; for replies only.
    pub depth: usize,
}

/// Longest line, which is an inline request or the header of anything else, in bytes.
pub(crate) const LINE_BYTES: usize = 64 << 10;

/// The store contract's limits for one batch: its partition, its only value, the keys and other values, and
/// the number of its operations. The contract lies above this crate, so the crates above both compare them.
const PARTITION_BYTES: usize = 16 << 10;
const VALUE_BYTES: usize = 64 << 20;
const BATCH_BYTES: usize = 8 << 20;
const OPERATIONS: usize = 1000;

/// Room for the words that say what each operation is, `DELRANGE [from (to` being the longest ones.
const OPERATION_WORDS_BYTES: usize = 16;

/// Room for the words before the operations: `AT.ID client@date sequence floor AT.BATCH`.
const FIRST_WORDS_BYTES: usize = 128;

impl Limits {
    /// The limits before authentication: ten arguments of 16 KiB, as in Redis.
    pub const UNAUTHENTICATED: Self =
        Self { elements: 10, string_bytes: 16 << 10, total_bytes: 64 << 10, depth: 1 };

    /// The limits after it: the largest batch of the store contract fits, which is a value of 64 MiB under
    /// conditions of 8 MiB, with its partition and the words between them.
    pub const AUTHENTICATED: Self = Self {
        elements: 1 << 20,
        string_bytes: VALUE_BYTES,
        total_bytes: VALUE_BYTES
            + BATCH_BYTES
            + PARTITION_BYTES
            + OPERATIONS * OPERATION_WORDS_BYTES
            + FIRST_WORDS_BYTES,
        depth: 32,
    };

    /// Most bytes of a request within these limits, as [`write_request`](crate::write_request) writes it.
    #[must_use]
    pub const fn request_bytes_max(&self) -> usize {
        let head = LENGTH_LINE_BYTES + digits(self.elements);
        // Around each argument: the line with its length, here of one digit, and the line end behind it.
        let mut bytes = head + self.elements * (LENGTH_LINE_BYTES + 1 + 2) + self.total_bytes;
        // The longest lengths in all: each argument gets a second digit, which takes ten bytes of it, before
        // any gets a third one, which takes ninety more, and so on.
        let (mut left, mut price, mut shortest) = (self.total_bytes, 10, 10);
        while left >= price {
            let affordable = left / price;
            let count = if affordable < self.elements { affordable } else { self.elements };
            if count == 0 {
                break;
            }
            bytes += count;
            left -= count * price;
            (price, shortest) = (shortest * 9, shortest * 10);
        }
        bytes
    }
}

/// The line of a length without its digits: its kind, and the line end.
const LENGTH_LINE_BYTES: usize = 3;

const fn digits(number: usize) -> usize {
    let (mut left, mut count) = (number, 1);
    while left >= 10 {
        (left, count) = (left / 10, count + 1);
    }
    count
}

impl Default for Limits {
    fn default() -> Self {
        Self::AUTHENTICATED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_request;

    fn written(lengths: &[usize]) -> usize {
        let arguments: Vec<_> = lengths.iter().map(|&length| vec![b'x'; length]).collect();
        let mut request = Vec::new();
        write_request(&mut request, &arguments);
        request.len()
    }

    #[test]
    fn no_request_within_the_limits_is_longer_than_the_longest() {
        for total_bytes in [0, 1, 9, 10, 19, 20, 21, 99, 100, 109, 110, 111, 199, 200, 1_009, 1_010, 1_100] {
            let limits = Limits { elements: 2, string_bytes: total_bytes, total_bytes, depth: 1 };
            // An argument more, or a byte more, never makes a request shorter.
            let longest = (0..=total_bytes).map(|first| written(&[first, total_bytes - first])).max();
            assert_eq!(Some(limits.request_bytes_max()), longest, "{total_bytes}");
        }
        let many = Limits { elements: 12, string_bytes: 500, total_bytes: 12 * 10 + 3 * 90, depth: 1 };
        let lengths = [[100; 3].as_slice(), &[10; 9]].concat();
        assert_eq!(many.request_bytes_max(), written(&lengths));
    }
}
