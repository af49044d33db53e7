//! A connection to the owner of a store: the hello, and what the owner reported about itself in it.

use super::{Greeting, OTHER_OWNER, answer};
use atoll_store::{Capabilities, Durability, StoreError};
use atoll_wire::{Client, Limits, Lost, WireError};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// How long after its start a write with a request id may be sent again; after that the outcome is unknown,
/// and the caller decides.
const REPEAT_TIME: Duration = Duration::from_secs(5);
/// The least time between two writes with request ids at an owner. Times the number of ids that the owner
/// remembers, it is how soon an id may be forgotten.
const NAMED_WRITE_TIME: Duration = Duration::from_micros(5);

/// A connection to the owner of a store.
#[derive(Clone)]
pub struct Attachment {
    pub(super) client: Client,
    pub(super) capabilities: Arc<Capabilities>,
}

impl Attachment {
    /// Ends the connection as if the owner had ended: calls that wait for an answer look for the next owner.
    pub(crate) fn give_up(&self) {
        self.client.close();
    }

    /// Whether a write that asks for this class is acknowledged while only memory may hold it.
    pub(super) fn buffers(&self, asked: Option<Durability>) -> bool {
        self.capabilities.durability_for(asked).is_ok_and(|class| class == Durability::Buffered)
    }

    /// Checks that a request can be sent: one that is too long for the owner would end the connection, which
    /// other calls share.
    pub(super) fn check_length(&self, request: &[u8]) -> Result<(), StoreError> {
        let (actual, max) = (request.len() as u64, self.client.message_bytes_max() as u64);
        if actual <= max { Ok(()) } else { Err(StoreError::Limit { what: "request bytes", actual, max }) }
    }

    /// Checks that the owner really is lost: a request that found no room leaves the connection open.
    pub(super) fn check_room(&self, lost: &Lost) -> Result<(), StoreError> {
        match *lost.cause {
            WireError::TooLarge { max, bytes, .. } if self.client.is_open() => {
                Err(StoreError::Limit { what: "waiters", actual: bytes, max })
            }
            _ => Ok(()),
        }
    }
}

/// How long a store is sure to remember a request id, whatever others write meanwhile.
pub(super) fn name_is_known_for(capabilities: &Capabilities) -> Duration {
    let count = u32::try_from(capabilities.request_memory_count).unwrap_or(u32::MAX);
    NAMED_WRITE_TIME.saturating_mul(count).min(REPEAT_TIME).min(capabilities.request_memory)
}

/// Says hello to the owner at the other end of `transport`. Must be called within a Tokio runtime, which
/// then carries the connection.
///
/// # Errors
/// `unavailable` if nobody answers, `unsupported` if the owner runs another version.
pub async fn attach<T>(transport: T, place: &str, is_read_only: bool) -> Result<Attachment, StoreError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    attach_within(Limits::default(), transport, place, is_read_only).await
}

/// As [`attach`], to the owner whose record has this nonce; none if another process answers.
pub(crate) async fn attach_to<T>(
    owner: u64,
    transport: T,
    place: &str,
    is_read_only: bool,
) -> Result<Option<Attachment>, StoreError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let greeting = Greeting { is_read_only, owner: Some(owner) };
    match connect(Limits::default(), transport, greeting).await {
        Err(WireError::Refused { reason }) if reason == OTHER_OWNER => Ok(None),
        connected => welcomed(place, connected).map(Some),
    }
}

pub(super) async fn attach_within<T>(
    limits: Limits,
    transport: T,
    place: &str,
    is_read_only: bool,
) -> Result<Attachment, StoreError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let greeting = Greeting { is_read_only, owner: None };
    welcomed(place, connect(limits, transport, greeting).await)
}

async fn connect<T>(limits: Limits, transport: T, greeting: Greeting) -> Result<(Client, Vec<u8>), WireError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    Client::connect(transport, limits, greeting.encode()).await
}

fn welcomed(place: &str, connected: Result<(Client, Vec<u8>), WireError>) -> Result<Attachment, StoreError> {
    let (client, greeting) = connected.map_err(|error| refused(place, error))?;
    let capabilities = answer::decode(&greeting).map_err(|error| unavailable(place, error))??;
    Ok(Attachment { client, capabilities: Arc::new(capabilities) })
}

fn refused(place: &str, error: WireError) -> StoreError {
    match &error {
        // An owner refuses the greeting of another release.
        WireError::Version { .. } | WireError::Refused { .. } => StoreError::Unsupported {
            what: format!("attaching to the owner of {place} ({error})"),
            hint: "use the same release in all processes that share a store",
        },
        _ => unavailable(place, error),
    }
}

pub(super) fn unavailable(place: &str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    let reason = "the owner did not answer as it should".to_owned();
    StoreError::Unavailable { place: place.to_owned(), reason, source: Some(Arc::new(error)) }
}
