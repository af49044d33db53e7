//! Attaching: the contract over a connection to the process that owns the store.
//!
//! [`serve`] is the server, for any store. [`AttachedStore`] is the client, and turns into a store in its own
//! process when its [`Reattach`] reports that this process has become the owner.
//!
//! Invariant: a write whose connection was lost is repeated only where that cannot apply it twice; otherwise
//! its outcome is reported as unknown.
//! Invariant: a sync never reports success for buffered writes that were acknowledged by an owner that was
//! lost.
//! Invariant: a client that found its owner by a record is answered by the owner that wrote the record, or
//! refused.
//! Invariant: no bytes from a peer cause a panic or an allocation beyond the limits of the wire.

mod answer;
mod attachment;
mod buffered;
mod bytes;
mod call;
mod client;
mod fault;
mod link;
mod many;
mod request;
mod server;
mod snapshots;

#[cfg(test)]
mod round_trip;

pub(crate) use attachment::attach_to;
pub use attachment::{Attachment, attach};
pub use bytes::DecodeError;
pub use client::{AttachedStore, Reattach, Route};
pub use request::Request;
pub use server::{ServeOptions, Server, serve, serve_connection};
pub use snapshots::{Served, Snapshots};

use atoll_wire::Limits;

/// What a client sends in its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Whether the client only reads.
    pub is_read_only: bool,
    /// The ownership that the client looks for, by the nonce of its record; none if any owner will do.
    pub owner: Option<u64>,
}

impl Greeting {
    /// Format 1 named no ownership.
    const FORMAT: u8 = 2;

    fn encode(self) -> Vec<u8> {
        let mut bytes = vec![Self::FORMAT, u8::from(self.is_read_only)];
        bytes.extend(self.owner.map(u64::to_le_bytes).iter().flatten());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let owner = match bytes.get(2..) {
            Some([]) => Some(None),
            Some(nonce) => nonce.try_into().ok().map(|nonce| Some(u64::from_le_bytes(nonce))),
            None => None,
        };
        match (bytes, owner) {
            ([Self::FORMAT, mode @ (0 | 1), ..], Some(owner)) => Ok(Self { is_read_only: *mode == 1, owner }),
            _ => {
                Err("the greeting is of a release that this owner does not know; use the same release".into())
            }
        }
    }
}

/// The refusal of a client that looks for another owner.
const OTHER_OWNER: &str = "this is the owner of another folder, or a later one";

/// Reads every kind of message from arbitrary bytes; for fuzzing.
pub fn check_bytes(bytes: &[u8]) {
    use atoll_store::{
        Buffer, Capabilities, PartitionPage, Place, ScanPage, Split, Timestamp, Waited, Written,
    };
    let _ = Greeting::decode(bytes);
    let _ = Request::decode(bytes);
    let _ = answer::decode::<Option<Buffer>>(bytes);
    let _ = answer::decode::<Written>(bytes);
    let _ = answer::decode::<ScanPage>(bytes);
    let _ = answer::decode::<Waited>(bytes);
    let _ = answer::decode::<PartitionPage>(bytes);
    let _ = answer::decode::<Vec<Split>>(bytes);
    let _ = answer::decode::<Place>(bytes);
    let _ = answer::decode::<Timestamp>(bytes);
    let _ = answer::decode::<Capabilities>(bytes);
    let _ = answer::decode_one(bytes);
    let _ = atoll_wire::check_bytes(bytes, 1 << 10, Limits::default());
}
