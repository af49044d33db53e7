//! The hello that each side sends before its first frame, in a format that never changes.
//!
//! ```text
//!  0      8        10       12        14         16       20         28
//!  | magic | status | lowest | highest | guard | length | checksum | greeting ... length bytes
//! ```
//! The client offers the versions that it speaks and a greeting. The server accepts one of them with a
//! greeting of its own, or refuses with its versions and a reason. `guard` is the low half-word of XXH3-64
//! over the other fields before `checksum`, so that a damaged length is not waited for; `checksum` is XXH3-64
//! of all other bytes.

use crate::WireError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use twox_hash::XxHash3_64;

/// The first bytes of every connection.
pub const MAGIC: [u8; 8] = *b"\x89atollw\n";
/// Oldest version of the protocol that this build speaks.
pub const VERSION_LOWEST: u16 = 1;
/// Newest version of the protocol that this build speaks.
pub const VERSION_HIGHEST: u16 = 1;
/// Longest greeting in bytes.
pub const GREETING_BYTES_MAX: usize = 64 << 10;

const FIXED_BYTES: usize = 28;

/// The meaning of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The client offers a connection.
    Offer,
    /// The server accepts; lowest and highest are the chosen version.
    Accept,
    /// The server refuses; the greeting is the reason.
    Refuse,
}

impl Status {
    const ALL: [Self; 3] = [Self::Offer, Self::Accept, Self::Refuse];
}

/// One hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its meaning.
    pub status: Status,
    /// Oldest version spoken.
    pub lowest: u16,
    /// Newest version spoken.
    pub highest: u16,
    /// Bytes for the layer above; in a refusal, the reason.
    pub greeting: Vec<u8>,
}

impl Hello {
    /// A client's hello with the versions of this build.
    #[must_use]
    pub const fn offer(greeting: Vec<u8>) -> Self {
        Self { status: Status::Offer, lowest: VERSION_LOWEST, highest: VERSION_HIGHEST, greeting }
    }

    /// A server's refusal.
    #[must_use]
    pub fn refuse(reason: &str) -> Self {
        let greeting = reason.as_bytes()[..reason.len().min(1000)].to_vec();
        Self { status: Status::Refuse, lowest: VERSION_LOWEST, highest: VERSION_HIGHEST, greeting }
    }

    /// The newest version that both this build and the peer speak.
    ///
    /// # Errors
    /// [`WireError::Version`] if there is none.
    pub fn common_version(&self) -> Result<u16, WireError> {
        let newest = self.highest.min(VERSION_HIGHEST);
        if newest >= self.lowest.max(VERSION_LOWEST) {
            return Ok(newest);
        }
        Err(WireError::Version {
            theirs_lowest: self.lowest,
            theirs_highest: self.highest,
            ours_lowest: VERSION_LOWEST,
            ours_highest: VERSION_HIGHEST,
        })
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let status = match self.status {
            Status::Offer => 0_u16,
            Status::Accept => 1,
            Status::Refuse => 2,
        };
        let mut bytes = MAGIC.to_vec();
        for field in [status, self.lowest, self.highest, 0] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&u32::try_from(self.greeting.len()).unwrap_or(u32::MAX).to_le_bytes());
        let guard = guard(&bytes);
        bytes[14..16].copy_from_slice(&guard.to_le_bytes());
        let checksum = checksum(&bytes, &self.greeting);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&self.greeting);
        bytes
    }

    /// Decodes a hello; none until all its bytes have arrived.
    ///
    /// # Errors
    /// [`WireError`] for bytes that are not a hello.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let begins = bytes.len().min(MAGIC.len());
        if bytes[..begins] != MAGIC[..begins] {
            let mut found = [0; 8];
            found[..begins].copy_from_slice(&bytes[..begins]);
            return Err(WireError::NotAtoll { found });
        }
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else { return Ok(None) };
        let half = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        if half(14) != guard(&fixed[..20]) {
            let (found, expected) = (u64::from(guard(&fixed[..20])), u64::from(half(14)));
            return Err(WireError::Checksum { part: "a hello", found, expected });
        }
        let length = u32::from_le_bytes([fixed[16], fixed[17], fixed[18], fixed[19]]) as usize;
        if length > GREETING_BYTES_MAX {
            let max = GREETING_BYTES_MAX as u64;
            return Err(WireError::TooLarge { part: "a greeting", bytes: length as u64, max });
        }
        let Some(greeting) = rest.get(..length) else { return Ok(None) };
        let mut expected = [0; 8];
        expected.copy_from_slice(&fixed[20..]);
        let (found, expected) = (checksum(&fixed[..20], greeting), u64::from_le_bytes(expected));
        if found != expected {
            return Err(WireError::Checksum { part: "a hello", found, expected });
        }
        let status = Status::ALL.get(usize::from(half(8))).copied();
        let status = status.ok_or(WireError::Protocol { problem: "unknown status of a hello", stream: 0 })?;
        Ok(Some(Self { status, lowest: half(10), highest: half(12), greeting: greeting.to_vec() }))
    }

    /// Sends the hello.
    pub(crate) async fn send(&self, to: &mut (impl AsyncWrite + Unpin)) -> Result<(), WireError> {
        to.write_all(&self.encode()).await.map_err(WireError::io("send a hello"))?;
        to.flush().await.map_err(WireError::io("send a hello"))
    }

    /// Receives a hello, and reads no byte beyond it.
    pub(crate) async fn receive(from: &mut (impl AsyncRead + Unpin)) -> Result<Self, WireError> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES);
        loop {
            if let Some(hello) = Self::decode(&bytes)? {
                return Ok(hello);
            }
            let missing = if bytes.len() < FIXED_BYTES {
                FIXED_BYTES - bytes.len()
            } else {
                let length = u32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]) as usize;
                FIXED_BYTES + length - bytes.len()
            };
            let read = from.take(missing as u64).read_buf(&mut bytes).await;
            match read.map_err(WireError::io("receive a hello"))? {
                0 if bytes.is_empty() => return Err(WireError::Closed),
                0 => return Err(WireError::Torn { bytes: bytes.len() }),
                _ => {}
            }
        }
    }
}

fn guard(fixed: &[u8]) -> u16 {
    let mut fields = fixed.to_vec();
    fields[14..16].fill(0);
    (XxHash3_64::oneshot(&fields) & 0xffff) as u16
}

fn checksum(fixed: &[u8], greeting: &[u8]) -> u64 {
    let mut all = fixed.to_vec();
    all.extend_from_slice(greeting);
    XxHash3_64::oneshot(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_comes_out_as_it_went_in_and_a_flipped_bit_is_noticed() {
        let hello = Hello::offer(b"how do you do".to_vec());
        let bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes).unwrap(), Some(hello));
        for end in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..end]).unwrap(), None, "cut at {end}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Hello::decode(&damaged), Ok(Some(_))), "bit {bit}");
        }
    }

    #[test]
    fn versions_without_overlap_are_an_error_that_names_both_ranges() {
        let newer = Hello { lowest: 8, highest: 9, ..Hello::offer(Vec::new()) };
        let message = newer.common_version().unwrap_err().to_string();
        assert!(message.contains("8 to 9") && message.contains("1 to 1"), "{message}");
        let wider = Hello { lowest: 1, highest: 9, ..Hello::offer(Vec::new()) };
        assert_eq!(wider.common_version().unwrap(), 1);
    }
}
