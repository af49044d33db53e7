//! What an error of a node means for the call, and what a map holds.

use atoll_resp::Value;
use atoll_store::{ErrorKind, StoreError};

/// What an error of a node means.
pub(crate) enum Refused {
    /// Another node has the slot.
    Moved(String),
    /// Nothing happened, and the same may do later.
    Later(String),
    /// It may have happened.
    Unknown(String),
    /// The call failed.
    Failed(StoreError),
}

/// Error of a node that has no place for one more connection.
pub(crate) const FULL: &[u8] = b"ERR max number of clients reached";

/// Whether a node says that it has no place for one more connection. It says so unasked, before any request.
pub(crate) fn is_full(text: &[u8]) -> bool {
    text.starts_with(b"ERR max number of clients")
}

/// Whether a node accepts no client at present: it is full, or has not learned the state of its ring yet.
pub(crate) fn is_busy(text: &[u8]) -> bool {
    is_full(text) || text.starts_with(b"LOADING ")
}

/// Whether a node says that the connection is of nobody. It says so as well on one that had authenticated, if
/// its user was changed since: nothing happened, and the connection is over.
pub(crate) fn is_of_nobody(text: &[u8]) -> bool {
    text.starts_with(b"NOAUTH ")
}

/// Whether a node answers a greeting by saying that the keyspace does not exist. A node that learns of the
/// keyspace late says so as well.
pub(crate) fn is_of_keyspace(text: &[u8]) -> bool {
    let is_of_user = || {
        let text = String::from_utf8_lossy(text);
        text.starts_with("NOPERM ") && text.contains(" begins in keyspace ")
    };
    text.starts_with(b"NOTFOUND ") || is_of_user()
}

/// The meaning of an error reply to the operation `what`.
pub(crate) fn meaning(text: &[u8], what: &'static str, place: &str) -> Refused {
    if is_full(text) {
        return Refused::Later(String::from_utf8_lossy(text).into_owned());
    }
    let text = String::from_utf8_lossy(text);
    let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
    match word {
        "MOVED" | "ASK" => match rest.split_once(' ') {
            Some((_, address)) => Refused::Moved(bracketed(address)),
            None => Refused::Later(text.into_owned()),
        },
        "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" | "LOADING" => Refused::Later(text.into_owned()),
        "NOAUTH" | "WRONGPASS" => Refused::Failed(StoreError::Unauthenticated { place: place.to_owned() }),
        "NOPERM" => Refused::Failed(StoreError::Remote {
            kind: ErrorKind::Unauthenticated,
            unknown: false,
            message: rest.to_owned(),
            hint: Some("the operator grants commands and keys, in the list of users".to_owned()),
        }),
        "OOM" => Refused::Failed(StoreError::OutOfSpace { place: place.to_owned(), source: None }),
        "UNKNOWN" => Refused::Unknown(rest.to_owned()),
        // Asking again would not help.
        "FORGOTTEN" => Refused::Failed(StoreError::Unknown { what, reason: rest.to_owned(), source: None }),
        // The text of Redis speaks of an operation that the caller did not ask for.
        "WRONGTYPE" => Refused::Failed(StoreError::Remote {
            kind: ErrorKind::InvalidInput,
            unknown: false,
            message: "it holds a plain Redis value, not cells".to_owned(),
            hint: Some("Redis clients read it with `GET`; use another partition key for cells".to_owned()),
        }),
        word => {
            let named = ErrorKind::ALL.into_iter().find(|kind| kind.names().resp == word);
            Refused::Failed(StoreError::Remote {
                kind: named.unwrap_or(ErrorKind::Internal),
                unknown: false,
                // One of our own words is the kind itself and need not be repeated.
                message: if named.is_some() { rest.to_owned() } else { text.clone().into_owned() },
                hint: None,
            })
        }
    }
}

/// The value of a name in a map, in either version of the protocol.
pub(crate) fn find<'a>(map: &'a Value, wanted: &str) -> Option<&'a Value> {
    let is_it = |name: &Value| name.bytes() == Some(wanted.as_bytes());
    match map {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| is_it(name)).map(|(_, value)| value),
        Value::Array(values) => values.chunks_exact(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1]),
        _ => None,
    }
}

/// An address with its host in brackets if the host contains colons, so that it can be connected to.
pub(crate) fn bracketed(address: &str) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_redis_cluster_say_what_to_do() {
        let of = |text: &str| meaning(text.as_bytes(), "write", "ring");
        assert!(matches!(of("MOVED 5 127.0.0.1:7"), Refused::Moved(to) if to == "127.0.0.1:7"));
        assert!(matches!(of("MOVED 5 ::1:7"), Refused::Moved(to) if to == "[::1]:7"));
        assert!(matches!(of("MOVED"), Refused::Later(_)));
        assert!(matches!(of("NOREPLICAS few"), Refused::Later(_)));
        assert!(matches!(of("ERR max number of clients reached"), Refused::Later(_)));
        let kind = |text| match of(text) {
            Refused::Failed(error) => (error.kind(), error.outcome() == atoll_store::Outcome::Unknown),
            _ => (ErrorKind::Internal, true),
        };
        assert!(matches!(of("UNKNOWN lost"), Refused::Unknown(why) if why == "lost"));
        assert_eq!(kind("FORGOTTEN old"), (ErrorKind::TimedOut, true));
        assert_eq!(kind("LIMIT long"), (ErrorKind::Limit, false));
        assert_eq!(kind("WRONGTYPE x"), (ErrorKind::InvalidInput, false));
        let plain = of("WRONGTYPE Operation against a key holding the wrong kind of value");
        let Refused::Failed(plain) = plain else { panic!("it is tried again") };
        assert_eq!(plain.to_string(), "it holds a plain Redis value, not cells");
        assert!(plain.hint().is_some_and(|hint| hint.contains("`GET`")), "{:?}", plain.hint());
        assert_eq!(kind("NOAUTH x"), (ErrorKind::Unauthenticated, false));
        assert_eq!(kind("NOPERM No permissions to access a key"), (ErrorKind::Unauthenticated, false));
    }
}
