//! The secret that clients show to be let in.
//!
//! Invariant: `Debug` never shows it, and the time to refuse a wrong one reveals nothing about it.

use crate::NodeError;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// A secret that nodes and clients share.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

/// Random bytes of a generated token.
const RANDOM_BYTES: usize = 32;

/// Random bytes in the name of the temporary file.
const NAME_BYTES: usize = 8;

/// Shortest and longest token, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=1024;

impl Token {
    /// Reads the token from a file that only its owner may read; makes the file if there is none.
    ///
    /// # Errors
    /// [`NodeError::Token`] if others may read the file or it holds no token, [`NodeError::Folder`] if it
    /// cannot be read or made.
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
            return Err(wrong("users other than its owner may read it; chmod 600"));
        }
        let mut text = Vec::new();
        let most = *LENGTHS.end() as u64 + 2;
        (&mut file).take(most).read_to_end(&mut text).map_err(failed)?;
        Self::new(text.trim_ascii()).ok_or_else(|| wrong("16 to 1,024 visible characters are expected"))
    }

    /// Makes a token of 16 to 1,024 visible characters.
    #[must_use]
    pub fn new(text: &[u8]) -> Option<Self> {
        let is_token = LENGTHS.contains(&text.len()) && text.iter().all(u8::is_ascii_graphic);
        is_token.then(|| Self(text.into()))
    }

    /// The secret itself, to be shown to another node.
    pub(crate) fn text(&self) -> &[u8] {
        &self.0
    }

    /// Whether `shown` is this token. The time depends on the token's length alone.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        is_same(&self.0, shown)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Whether `shown` is the secret. The time depends on the length of the secret alone.
pub(crate) fn is_same(secret: &[u8], shown: &[u8]) -> bool {
    let mut difference = usize::from(shown.len() != secret.len());
    for (at, byte) in secret.iter().enumerate() {
        let other = shown.get(at).copied().unwrap_or(!byte);
        difference |= usize::from(std::hint::black_box(byte ^ other));
    }
    std::hint::black_box(difference) == 0
}

/// Makes a file with a new token, unless another process makes one at the same time.
fn make(path: &Path) -> io::Result<()> {
    let mut random = [0; RANDOM_BYTES];
    fill_randomly(&mut random)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut unfinished = OpenOptions::new();
    // A unique name: process ids repeat across containers, and a process that is killed leaves its file
    // behind.
    let mut chosen = [0; NAME_BYTES];
    fill_randomly(&mut chosen)?;
    let temporary = folder.join(format!(".{name}.{}", hexadecimal(&chosen)));
    let mut file = unfinished.write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = (|| {
        file.set_permissions(Permissions::from_mode(0o600))?;
        writeln!(file, "{}", hexadecimal(&random))?;
        file.sync_all()?;
        // If two processes do this at once, both keep the token of the first.
        match std::fs::hard_link(&temporary, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    })();
    std::fs::remove_file(&temporary)?;
    written
}

/// Fills the target with unpredictable bytes.
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
