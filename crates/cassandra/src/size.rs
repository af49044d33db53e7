//! The size of a conditional batch, as it is sent and as nodes log it.
//!
//! Both can be far above what the contract counts: a request names the partition in each of its statements,
//! and a range that is deleted around cells that are put becomes ranges between them, each with two bounds.
//!
//! Invariant: nothing is sent that nodes are known to refuse, so the error is `limit`, and the outcome is not
//! `unknown`.

use crate::bind::Bind;
use atoll_store::StoreError;

/// The largest request: what a node accepts by default (`native_transport_max_frame_size`), less what a
/// request has besides its statements.
const REQUEST_BYTES_MAX: u64 = (16 << 20) - (64 << 10);

/// What a statement has besides its values: its kind, its name, and their number.
const STATEMENT_BYTES: u64 = 24;

/// The length before each value.
const LENGTH_BYTES: u64 = 4;

/// Refuses a batch of statements with these values, all of one partition, that is too large for a request, or
/// for the log of a node that accepts changes of `change_bytes_max`.
pub(crate) fn check<'v>(
    partition: &[u8],
    statements: impl Iterator<Item = &'v [Bind<'v>]>,
    change_bytes_max: u64,
) -> Result<(), StoreError> {
    let (mut request, mut count) = (0_u64, 0_u64);
    for values in statements {
        request += STATEMENT_BYTES + values.iter().map(|value| LENGTH_BYTES + value.bytes()).sum::<u64>();
        count += 1;
    }
    // A change that is logged names its partition once.
    let repeated = count.saturating_sub(1) * partition.len() as u64;
    let change = request.saturating_sub(repeated);
    for (actual, max) in [(request, REQUEST_BYTES_MAX), (change, change_bytes_max)] {
        if actual > max {
            return Err(StoreError::Limit { what: "batch bytes", actual, max });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a batch that deletes that many ranges, with bounds of these lengths.
    fn checked(partition: usize, ranges: usize, bound: usize, change_bytes_max: u64) -> Option<(u64, u64)> {
        let (partition, bound) = (vec![1; partition], vec![2; bound]);
        let range = vec![Bind::Bytes(&partition), Bind::Bytes(&bound), Bind::Bytes(&bound)];
        let statements = vec![range; ranges];
        match check(&partition, statements.iter().map(Vec::as_slice), change_bytes_max) {
            Ok(()) => None,
            Err(StoreError::Limit { what: "batch bytes", actual, max }) => Some((actual, max)),
            Err(_) => Some((0, 0)),
        }
    }

    #[test]
    fn a_request_counts_the_partition_with_each_statement_and_both_bounds_of_a_range() {
        assert_eq!(checked(16 << 10, 900, 10, u64::MAX), None);
        let one = 24 + 3 * 4 + (16 << 10) + 2 * 1000;
        assert_eq!(checked(16 << 10, 1000, 1000, u64::MAX), Some((1000 * one, (16 << 20) - (64 << 10))));
        assert_eq!(checked(1, 1000, 9 << 10, u64::MAX).map(|(actual, _)| actual), Some(18_469_000));
    }

    #[test]
    fn a_change_that_nodes_log_counts_the_partition_once() {
        let change = (16 << 10) + 500 * (24 + 3 * 4 + 2 * 1000);
        assert_eq!(checked(16 << 10, 500, 1000, change), None);
        assert_eq!(checked(16 << 10, 500, 1000, change - 1), Some((change, change - 1)));
    }

    #[test]
    fn what_values_take_is_what_they_are_sent_as() {
        let values = [Bind::Null, Bind::Bytes(b"12"), Bind::Sealed(7, b"123"), Bind::Int(1), Bind::Big(1)];
        assert_eq!(values.map(|value| value.bytes()), [0, 2, 11, 4, 8]);
    }
}
