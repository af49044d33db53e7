//! Splits: ranges of partition keys of similar size, for parallel readers.

use super::keys;
use super::pages::Part;
use atoll_engine::Tree;
use atoll_store::{Place, Split, StoreError, Token};

/// More parts than this gain nothing on one machine.
const PARTS_MAX: usize = 1024;

/// Divides the partitions among about `readers` readers; every partition lies in exactly one part.
pub(crate) fn deal(tree: &Tree, readers: usize) -> Result<Vec<Split>, StoreError> {
    if readers == 0 {
        return Err(StoreError::InvalidInput {
            what: "number of readers",
            problem: "it is 0".into(),
            hint: "ask for at least one split",
        });
    }
    let mut borders: Vec<Vec<u8>> = tree
        .dividing_keys(readers.min(PARTS_MAX) - 1)
        .iter()
        .map(|key| keys::split(key).map_or_else(|| plain(key), |(partition, _)| partition))
        .filter(|border| !border.is_empty())
        .collect();
    borders.sort();
    borders.dedup();
    let froms = std::iter::once(Vec::new()).chain(borders.iter().cloned());
    let tos = borders.iter().cloned().map(Some).chain(std::iter::once(None));
    Ok(froms.zip(tos).map(|(from, to)| Part { from, to }.to_split()).collect())
}

/// The partition that a shortened key stands for. Any border will do, as long as both parts beside it share
/// it.
fn plain(key: &[u8]) -> Vec<u8> {
    let end = key.iter().position(|&byte| byte == 0).unwrap_or(key.len());
    key[..end].to_vec()
}

impl Part {
    fn to_split(&self) -> Split {
        let mut token = vec![u8::from(self.to.is_some())];
        token.extend_from_slice(&(self.from.len() as u32).to_le_bytes());
        token.extend_from_slice(&self.from);
        token.extend_from_slice(self.to.as_deref().unwrap_or_default());
        Split { token: Token(token), place: Place::Here }
    }

    /// The part that a split describes.
    pub(crate) fn of(split: &Split) -> Result<Self, StoreError> {
        let foreign = || StoreError::InvalidInput {
            what: "split",
            problem: "this store did not return it".into(),
            hint: "pass a split of the same store unchanged",
        };
        let bytes = &split.token.0;
        let len = bytes.get(1..5).and_then(|len| <[u8; 4]>::try_from(len).ok()).ok_or_else(foreign)?;
        let from_end = 5usize.checked_add(u32::from_le_bytes(len) as usize).ok_or_else(foreign)?;
        let from = bytes.get(5..from_end).ok_or_else(foreign)?.to_vec();
        let rest = bytes[from_end..].to_vec();
        match bytes[0] {
            0 if rest.is_empty() => Ok(Self { from, to: None }),
            1 if rest > from => Ok(Self { from, to: Some(rest) }),
            _ => Err(foreign()),
        }
    }
}
