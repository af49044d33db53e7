//! Counts error replies by their first word, which says what kind of error it is.

use super::Counter;

/// First words of a node's errors. Any other counts as `other`.
const KINDS: [&str; 19] = [
    "AUTHENTICATION",
    "CLUSTERDOWN",
    "CONFLICT",
    "CROSSSLOT",
    "ERR",
    "FORGOTTEN",
    "INTERNAL",
    "LOADING",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNKNOWN",
    "WRONGPASS",
    "WRONGTYPE",
    "other",
];

/// The count of each kind.
#[derive(Debug, Default)]
pub(crate) struct ErrorKinds([Counter; KINDS.len()]);

impl ErrorKinds {
    /// Counts an error reply.
    pub(crate) fn count(&self, reply: &[u8]) {
        let text = reply.get(1..).unwrap_or_default();
        let word = text.split(|&byte| byte == b' ' || byte == b'\r').next().unwrap_or_default();
        let place = KINDS.iter().position(|kind| kind.as_bytes() == word).unwrap_or(KINDS.len() - 1);
        if let Some(counter) = self.0.get(place) {
            counter.add(1);
        }
    }

    /// Each kind with its count.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        KINDS.into_iter().zip(self.0.iter().map(Counter::get))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_word() {
        let kinds = ErrorKinds::default();
        for reply in ["-MOVED 1 a:1\r\n", "-MOVED 2 a:1\r\n", "-OOM\r\n", "-SURPRISE it\r\n", "-", ""] {
            kinds.count(reply.as_bytes());
        }
        let counted: Vec<_> = kinds.counts().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("MOVED", 2), ("OOM", 1), ("other", 3)]);
    }
}
