//! What an append makes of the value that there is.

use super::NewValue;
use crate::backing::Backing;
use crate::value::{Added, Chain, INLINE_BELOW, Piece, Stored};
use atoll_buffer::Buffer;

/// What an append makes of a value.
pub(crate) enum Appended<'a> {
    /// The value that there is, or none where there is none.
    Nothing,
    /// This.
    To(NewValue<'a>),
    /// This, in which a piece that was added is no more.
    Joined(NewValue<'a>, Piece),
}

/// What `added` makes of a value; a short one is put together in `room`. A longer one `grows` in place next
/// time.
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
