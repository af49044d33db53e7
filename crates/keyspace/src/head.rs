//! Heads: the cells of keys themselves.
//!
//! ```text
//! 00 value                 a string
//! 01 deadline value        a string with a deadline
//! 02 fields                a hash with this many fields
//! 03 deadline fields       a hash with a deadline
//! ```
//! Numbers have eight bytes, little-endian.

use crate::KeyspaceError;

/// Most bytes of a head before the value of a string.
pub(crate) const HEAD_BYTES_MAX: usize = 17;

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Hash { fields: u64 },
}

/// The part of a head before the value of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// When the key is deleted, in milliseconds since 1970.
    pub(crate) deadline_ms: Option<u64>,
}

impl Head {
    /// Decodes a head from its bytes, or from the first of them.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, KeyspaceError> {
        Self::read(bytes).ok_or(KeyspaceError::Corrupt { what: "a head" })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&flags, rest) = bytes.split_first()?;
        let (deadline_ms, rest) = match flags & 1 {
            0 => (None, rest),
            _ => {
                let (deadline, rest) = rest.split_first_chunk()?;
                (Some(u64::from_le_bytes(*deadline)), rest)
            }
        };
        let kind = match flags >> 1 {
            0 => Kind::String,
            1 => Kind::Hash { fields: u64::from_le_bytes(*rest.first_chunk()?) },
            _ => return None,
        };
        Some(Self { kind, deadline_ms })
    }

    /// Encodes a head; for a string, only the bytes before its value.
    pub(crate) fn encode(self) -> Encoded {
        let mut encoded = Encoded { bytes: [0; HEAD_BYTES_MAX], len: 1 };
        let mut push = |number: u64| {
            encoded.bytes[encoded.len..encoded.len + 8].copy_from_slice(&number.to_le_bytes());
            encoded.len += 8;
        };
        if let Some(deadline) = self.deadline_ms {
            push(deadline);
        }
        let mut flags = u8::from(self.deadline_ms.is_some());
        if let Kind::Hash { fields } = self.kind {
            push(fields);
            flags |= 2;
        }
        encoded.bytes[0] = flags;
        encoded
    }

    /// The offset of a string's value.
    pub(crate) fn value_at(self) -> usize {
        if self.deadline_ms.is_some() { 9 } else { 1 }
    }

    /// Whether the key counts as absent at this time.
    pub(crate) fn is_overdue(self, now_ms: u64) -> bool {
        self.deadline_ms.is_some_and(|deadline| deadline <= now_ms)
    }
}

/// An encoded head.
pub(crate) struct Encoded {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl std::ops::Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_say_what_was_written() {
        for kind in [Kind::String, Kind::Hash { fields: 0 }, Kind::Hash { fields: u64::MAX }] {
            for deadline_ms in [None, Some(0), Some(u64::MAX)] {
                let head = Head { kind, deadline_ms };
                let encoded = head.encode();
                assert_eq!(Head::decode(&encoded).unwrap(), head);
                for cut in 0..encoded.len() {
                    assert!(Head::decode(&encoded[..cut]).is_err(), "{head:?} {cut}");
                }
                if kind == Kind::String {
                    assert_eq!(head.value_at(), encoded.len());
                }
            }
        }
        assert!(Head::decode(&[4, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
