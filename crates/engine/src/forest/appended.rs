//! How an append changes a value.

use super::NewValue;
use crate::backing::Backing;
use crate::value::{Added, Chain, INLINE_BELOW, Piece, Stored};
use atoll_buffer::Buffer;

/// Outcome of an append to a value.
pub(crate) enum Appended<'a> {
    /// The value stays as it is, or absent.
    Nothing,
    /// The new value.
    To(NewValue<'a>),
    /// The new value, which a piece was joined into that exists no more by itself.
    Joined(NewValue<'a>, Piece),
}

/// Appends `added` to a value. A short result is assembled in `room`; a longer one can grow in place next
/// time if `grows` says so.
pub(crate) fn appended<'a>(
    current: Option<Stored<'_>>,
    added: &NewValue<'a>,
    room: &'a mut [u8; INLINE_BELOW],
    grows: bool,
    (backing, epoch): (&Backing, u64),
) -> Appended<'a> {
    let last = match added {
        NewValue::Inline([]) if current.is_some() => return Appended::Nothing,
        NewValue::Inline(bytes) => Added::Bytes(bytes),
        NewValue::Chain(chain) => Added::Piece(&chain.pieces()[0]),
    };
    let front;
    let chain = match (current, last) {
        (None | Some(Stored::Inline(&[])), _) => return Appended::To(added.clone()),
        (Some(Stored::Inline(old)), Added::Bytes(new)) if old.len() + new.len() < INLINE_BELOW => {
            let len = old.len() + new.len();
            room[..old.len()].copy_from_slice(old);
            room[old.len()..len].copy_from_slice(new);
            return Appended::To(NewValue::Inline(&room[..len]));
        }
        (Some(Stored::Inline(old)), Added::Bytes(new)) => {
            return Appended::To(NewValue::Chain(Chain::begun(old, new, grows, backing, epoch)));
        }
        (Some(Stored::Inline(old)), Added::Piece(_)) => {
            front = Chain::One(Piece::waiting(Buffer::copy_from(old), epoch, backing));
            &front
        }
        (Some(Stored::Chain(chain)), _) => chain,
    };
    match (chain.appended(last, grows, backing, epoch), last) {
        ((whole, true), Added::Piece(piece)) => Appended::Joined(NewValue::Chain(whole), piece.clone()),
        ((whole, _), _) => Appended::To(NewValue::Chain(whole)),
    }
}
