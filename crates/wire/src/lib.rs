//! Requests and answers between processes: length-prefixed, versioned, checksummed frames.
//!
//! Three layers, each usable without the one above. [`Decoder`] and [`encode_frame`] turn bytes into frames
//! and back without I/O. [`Assembler`] joins chunks into messages. [`Client`] and [`Connection`] carry many
//! requests at a time over anything that reads and writes bytes. [`simulated_pair`] is a transport that
//! splits and delays bytes as a seed determines. [`Addresses`] decides where to dial next.
//!
//! Invariant: bytes from a peer never cause a panic, nor an allocation beyond the stated [`Limits`].
//! Invariant: a frame is delivered only after its checksum over header and body was verified.
//! Invariant: every queue is bounded; a peer that does not read stops its sender.

mod addresses;
mod codec;
mod error;
mod frame;
mod hello;
mod message;

mod client;
mod outbox;
mod pipe;
mod server;

pub use addresses::{Addresses, like_first};
pub use client::{Client, Lost, Responses};
pub use codec::{Decoder, check_bytes};
pub use error::WireError;
pub use frame::{Flags, Frame, HEADER_BYTES, Kind, Limits, encode_frame};
pub use hello::{GREETING_BYTES_MAX, Hello, MAGIC, Status, VERSION_HIGHEST, VERSION_LOWEST};
pub use message::{Assembler, Message};
pub use pipe::{Faults, SimulatedPipe, simulated_pair};
pub use server::{Connection, Gone, Request, Responder};
