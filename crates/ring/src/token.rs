//! The secret that clients show before they are let in.
//!
//! Invariant: it is never shown by `Debug`, and how long it takes to refuse a wrong one tells nothing about
//! it.

use crate::NodeError;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// A secret that nodes and clients share.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

/// Random bytes in a token that is made.
const RANDOM_BYTES: usize = 32;

/// Random bytes in the name of the file that it is written to first.
const NAME_BYTES: usize = 8;

/// Bytes of a token at least, and at most.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=1024;

impl Token {
    /// The token in a file that only its owner may read; one is made if there is none.
    ///
    /// # Errors
    /// [`NodeError::Token`] if others may read it or it is no token, [`NodeError::Folder`] if it cannot be
    /// read or made.
    pub fn of_file(path: &Path) -> Result<Self, NodeError> {
        let failed = |source| NodeError::Folder { path: path.to_owned(), source };
        let wrong = |problem| NodeError::Token { path: path.to_owned(), problem };
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(path).map_err(failed)?;
                File::open(path).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        if metadata.mode() & 0o077 != 0 {
            return Err(wrong("others than its owner may read it; chmod 600"));
        }
        let mut text = Vec::new();
        let most = *LENGTHS.end() as u64 + 2;
        (&mut file).take(most).read_to_end(&mut text).map_err(failed)?;
        Self::new(text.trim_ascii()).ok_or_else(|| wrong("16 to 1,024 visible characters are expected"))
    }

    /// A token of 16 to 1,024 visible characters.
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        let is_token = LENGTHS.contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
        is_token.then(|| Self(text.into()))
    }

    /// The secret itself, to be shown to another node.
    pub(crate) fn text(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is it. How long that takes follows from its length alone.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        is_same(&self.0, shown)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Whether a secret is what was shown. How long that takes follows from the length of the secret alone.
pub(crate) fn is_same(secret: &[u8], shown: &[u8]) -> bool {
    let mut difference = usize::from(shown.len() != secret.len());
    for (at, byte) in secret.iter().enumerate() {
        let other = shown.get(at).copied().unwrap_or(!byte);
        difference |= usize::from(std::hint::black_box(byte ^ other));
    }
    std::hint::black_box(difference) == 0
}

/// Makes a file with a new token, unless somebody else does at the same time.
fn make(path: &Path) -> io::Result<()> {
    let mut random = [0; RANDOM_BYTES];
    fill_randomly(&mut random)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut unfinished = OpenOptions::new();
    // A name that nobody else has: processes of several containers have one number, and one that was killed
    // leaves its file behind.
    let mut chosen = [0; NAME_BYTES];
    fill_randomly(&mut chosen)?;
    let temporary = folder.join(format!(".{name}.{}", hexadecimal(&chosen)));
    let mut file = unfinished.write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = (|| {
        file.set_permissions(Permissions::from_mode(0o600))?;
        writeln!(file, "{}", hexadecimal(&random))?;
        file.sync_all()?;
        // Whoever comes second keeps the token of whoever came first.
        match std::fs::hard_link(&temporary, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    std::fs::remove_file(&temporary)?;
    written
}

/// Fills with bytes that nobody can foresee.
pub(crate) fn fill_randomly(target: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while let Some(rest) = target.get_mut(at..).filter(|rest| !rest.is_empty()) {
        at += getrandom(rest, GetRandomFlags::empty())?;
    }
    Ok(())
}

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
