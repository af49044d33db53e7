//! The record of an owner: a few lines of text that a person can read, followed by their checksum.
//!
//! Invariant: an incomplete record is never accepted.

use super::host::HostIdentity;
use std::path::PathBuf;

/// The owner of a folder, and where to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// The process.
    pub identity: HostIdentity,
    /// Its socket, if it has one.
    pub socket: Option<PathBuf>,
    /// Different for every ownership, also by the same process.
    pub nonce: u64,
}

const TITLE: &str = "atoll owner 1";

impl OwnerRecord {
    /// The text.
    #[must_use]
    pub fn encode(&self) -> String {
        let HostIdentity { host, boot, namespace, pid, started, machine } = &self.identity;
        let socket = self.socket.as_deref().map(escape).unwrap_or_default();
        let nonce = self.nonce;
        let mut text = format!(
            "{TITLE}\nhost {host}\npid {pid}\nboot {boot}\nnamespace {namespace}\nstarted {started}\nsocket {socket}\nnonce {nonce}\nmachine {machine}\n"
        );
        text.push_str(&format!("sum {:016x}\n", checksum(text.as_bytes())));
        text
    }

    /// Reads a record; none for bytes that are not a complete record. Bytes after the checksum are left over
    /// from a longer record and are ignored.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let end = text.find("\nsum ")? + 1;
        let sum = text.get(end + 4..end + 20)?;
        if u64::from_str_radix(sum, 16).ok()? != checksum(&bytes[..end]) {
            return None;
        }
        let mut lines = text[..end].lines();
        if lines.next()? != TITLE {
            return None;
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        let (host, pid, boot) = (field("host")?, field("pid")?, field("boot")?);
        let (namespace, started, socket) = (field("namespace")?, field("started")?, field("socket")?);
        let nonce = field("nonce")?.parse().ok()?;
        // Older builds write no machine, and ignore it in a record.
        let machine = field("machine").unwrap_or_default();
        let (pid, started) = (pid.parse().ok()?, started.parse().ok()?);
        let identity = HostIdentity { host, boot, namespace, pid, started, machine };
        Some(Self { identity, socket: if socket.is_empty() { None } else { unescape(&socket) }, nonce })
    }
}

/// FNV-1a: enough to tell a whole record from a torn one, and to be checked by hand.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn escape(path: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |byte: u8| (0x21..0x7f).contains(&byte) && byte != b'%';
    let bytes = path.as_os_str().as_bytes();
    bytes
        .iter()
        .map(|&byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}

fn unescape(text: &str) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let code = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(code, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn record() -> OwnerRecord {
        let odd = std::ffi::OsString::from_vec(b"/a b/\n%\xff/socket".to_vec());
        OwnerRecord { identity: HostIdentity::of_this_process(), socket: Some(odd.into()), nonce: 42 }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_also_over_a_longer_one() {
        let text = record().encode();
        assert_eq!(OwnerRecord::decode(text.as_bytes()), Some(record()));
        let over = format!("{text}left over from before\nsum 00\n");
        assert_eq!(OwnerRecord::decode(over.as_bytes()), Some(record()));
        let without = OwnerRecord { socket: None, ..record() };
        assert_eq!(OwnerRecord::decode(without.encode().as_bytes()), Some(without));
    }

    #[test]
    fn a_record_of_a_build_that_told_no_machine_is_read() {
        let with = record().encode();
        let (head, _) = with.split_once("machine ").unwrap();
        let without = format!("{head}sum {:016x}\n", checksum(head.as_bytes()));
        let read = OwnerRecord::decode(without.as_bytes()).unwrap();
        let identity = HostIdentity { machine: String::new(), ..record().identity };
        assert_eq!(read, OwnerRecord { identity, ..record() });
    }

    #[test]
    fn a_torn_or_damaged_record_is_none() {
        let text = record().encode();
        for end in 0..text.len() - 1 {
            assert_eq!(OwnerRecord::decode(&text.as_bytes()[..end]), None, "cut at {end}");
        }
        for at in 0..text.len() - 1 {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            assert_ne!(OwnerRecord::decode(&damaged), Some(record()), "byte {at}");
        }
    }
}
