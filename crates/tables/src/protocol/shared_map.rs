//! A sorted map whose clones share what they have in common, so that a new version costs only what it
//! changes.
//!
//! Entries are stored in reference-counted chunks. A clone copies the list of chunks; a change copies the
//! chunk it touches, if another clone shares it. A table of 20,000 blocks has some 200 chunks.
//!
//! Invariant: no chunk is empty, and keys rise within each chunk and from chunk to chunk.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Maximum number of entries in a chunk. A trade-off: a change copies a whole chunk, a clone copies the list
/// of chunks.
const CHUNK_MAX: usize = 128;

/// A sorted map that is cheap to clone.
///
/// Two maps are equal if their entries are, however these are divided into chunks.
#[derive(Clone, Debug)]
pub struct SharedMap<K, V> {
    chunks: Vec<Arc<Vec<(K, V)>>>,
    len: usize,
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the map has no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (chunk, place) = self.find(key);
        let place = place.ok()?;
        self.chunks.get(chunk)?.get(place).map(|(_, value)| value)
    }

    /// Whether the map has the key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).1.is_ok()
    }

    /// Mutable access to the value of a key.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (chunk, place) = self.find(key);
        let place = place.ok()?;
        Arc::make_mut(self.chunks.get_mut(chunk)?).get_mut(place).map(|(_, value)| value)
    }

    /// Sets the value of a key; returns its previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (at, place) = self.find(&key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.push(key, value);
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match place {
            Ok(place) => chunk.get_mut(place).map(|entry| std::mem::replace(&mut entry.1, value)),
            Err(place) => {
                chunk.insert(place, (key, value));
                self.len += 1;
                if chunk.len() > CHUNK_MAX {
                    let upper = chunk.split_off(CHUNK_MAX / 2);
                    self.chunks.insert(at + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// Appends an entry after all others. A full chunk stays full instead of being split, because new names
    /// rise.
    fn push(&mut self, key: K, value: V) {
        self.len += 1;
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK_MAX => Arc::make_mut(last).push((key, value)),
            _ => self.chunks.push(Arc::new(vec![(key, value)])),
        }
    }

    /// Removes a key; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (at, place) = self.find(key);
        let place = place.ok()?;
        let chunk = Arc::make_mut(self.chunks.get_mut(at)?);
        let (_, value) = chunk.remove(place);
        self.len -= 1;
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
        Some(value)
    }

    /// Removes and returns the entries for which `goes` is true, in order. Chunks without such entries stay
    /// shared.
    pub fn extract(&mut self, mut goes: impl FnMut(&K, &V) -> bool) -> Vec<(K, V)> {
        let mut gone = Vec::new();
        for chunk in &mut self.chunks {
            let first = chunk.iter().position(|(key, value)| goes(key, value));
            let Some(first) = first else { continue };
            let chunk = Arc::make_mut(chunk);
            let mut tail = chunk.split_off(first).into_iter();
            // `goes` is called once per entry.
            gone.extend(tail.next());
            for (key, value) in tail {
                if goes(&key, &value) { gone.push((key, value)) } else { chunk.push((key, value)) }
            }
        }
        self.chunks.retain(|chunk| !chunk.is_empty());
        self.len -= gone.len();
        gone
    }

    /// Removes and returns the entries from `key` on, in order.
    pub fn split_off<Q: Ord + ?Sized>(&mut self, key: &Q) -> Vec<(K, V)>
    where
        K: Borrow<Q>,
    {
        let (at, place) = self.find(key);
        let place = place.unwrap_or_else(|place| place);
        let mut gone = Vec::new();
        if let Some(chunk) = self.chunks.get_mut(at) {
            gone = Arc::make_mut(chunk).split_off(place);
        }
        for chunk in self.chunks.drain((at + 1).min(self.chunks.len())..) {
            gone.extend(Arc::unwrap_or_clone(chunk));
        }
        self.chunks.retain(|chunk| !chunk.is_empty());
        self.len -= gone.len();
        gone
    }

    /// The entries, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> + Clone {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|(key, value)| (key, value))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + Clone {
        self.iter().map(|(key, _)| key)
    }

    /// The values, in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// The entries from `key` on, in order.
    pub fn since<Q: Ord + ?Sized>(&self, key: &Q) -> impl Iterator<Item = (&K, &V)> + Clone
    where
        K: Borrow<Q>,
    {
        let (at, place) = self.find(key);
        let place = place.unwrap_or_else(|place| place);
        let chunks = self.chunks.get(at..).unwrap_or_default().iter();
        chunks.flat_map(|chunk| chunk.iter()).skip(place).map(|(key, value)| (key, value))
    }

    /// The last entry whose key is at most `key`.
    pub fn last_up_to<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let at = self
            .chunks
            .partition_point(|chunk| chunk.first().is_some_and(|(first, _)| first.borrow() <= key));
        let chunk = self.chunks.get(at.checked_sub(1)?)?;
        let place = chunk.partition_point(|(found, _)| found.borrow() <= key);
        chunk.get(place.checked_sub(1)?).map(|(key, value)| (key, value))
    }

    /// The index of the chunk that has the key or where it belongs, and its place in that chunk.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> (usize, Result<usize, usize>)
    where
        K: Borrow<Q>,
    {
        let at =
            self.chunks.partition_point(|chunk| chunk.last().is_some_and(|(last, _)| last.borrow() < key));
        let Some(chunk) = self.chunks.get(at) else { return (at, Err(0)) };
        (at, chunk.binary_search_by(|(found, _)| found.borrow().cmp(key)))
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, V)> for SharedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        map.extend(entries);
        map
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Ord + Clone, V: Clone + Eq> Eq for SharedMap<K, V> {}

impl<K: Ord + Clone + Hash, V: Clone + Hash> Hash for SharedMap<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.len);
        self.iter().for_each(|entry| entry.hash(state));
    }
}

impl<K: Ord + Clone, V: Clone, Q: Ord + ?Sized> std::ops::Index<&Q> for SharedMap<K, V>
where
    K: Borrow<Q>,
{
    type Output = V;

    /// The value of a key that must be in the map.
    #[allow(clippy::panic, reason = "as every map does")]
    fn index(&self, key: &Q) -> &V {
        match self.get(key) {
            Some(value) => value,
            None => panic!("the key is not there"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The message of a failure names the seed that replays it.
    #[test]
    fn it_does_what_the_map_of_the_standard_library_does() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut map, mut model) = (SharedMap::default(), BTreeMap::new());
            for step in 0..2000_u32 {
                let key = random.u32(..600);
                match random.u8(..20) {
                    0 => {
                        let (low, high) = (key, key + random.u32(..200));
                        let gone = map.extract(|found, _| (low..high).contains(found));
                        let expected: Vec<_> =
                            model.range(low..high).map(|(key, value)| (*key, *value)).collect();
                        model.retain(|found, _| !(low..high).contains(found));
                        assert_eq!(gone, expected, "seed {seed}");
                    }
                    1 if random.u8(..4) == 0 => {
                        let expected: Vec<_> = model.split_off(&key).into_iter().collect();
                        assert_eq!(map.split_off(&key), expected, "seed {seed}");
                    }
                    2..6 => assert_eq!(map.remove(&key), model.remove(&key), "seed {seed}"),
                    6 => {
                        let since: Vec<_> = map.since(&key).collect();
                        assert_eq!(since, model.range(key..).collect::<Vec<_>>(), "seed {seed}");
                        assert_eq!(map.last_up_to(&key), model.range(..=key).next_back(), "seed {seed}");
                        assert_eq!(map.get(&key), model.get(&key), "seed {seed}");
                        assert_eq!(map.get_mut(&key), model.get_mut(&key), "seed {seed}");
                    }
                    _ => assert_eq!(map.insert(key, step), model.insert(key, step), "seed {seed}"),
                }
                assert_eq!(map.len(), model.len(), "seed {seed}");
                assert!(map.chunks.iter().all(|chunk| (1..=CHUNK_MAX).contains(&chunk.len())), "seed {seed}");
            }
            assert!(map.iter().eq(model.iter()), "seed {seed}");
            assert!(map.values().rev().eq(model.values().rev()), "seed {seed}");
        }
    }

    #[test]
    fn a_copy_stays_as_it_was_and_shares_what_did_not_change() {
        let mut map: SharedMap<u32, u32> = (0..1000).map(|key| (key, key)).collect();
        let copy = map.clone();
        map.insert(500, 0);
        map.remove(&501);
        map.extract(|key, _| *key == 502);
        assert!(copy.iter().eq((0..1000).collect::<Vec<_>>().iter().map(|key| (key, key))));
        let shared = map.chunks.iter().filter(|chunk| Arc::strong_count(chunk) > 1).count();
        assert_eq!(shared + 1, map.chunks.len());
    }

    #[test]
    fn maps_with_the_same_entries_are_equal_however_they_came_to_them() {
        let rising: SharedMap<u32, ()> = (0..500).map(|key| (key, ())).collect();
        let falling: SharedMap<u32, ()> = (0..500).rev().map(|key| (key, ())).collect();
        assert_ne!(rising.chunks.len(), falling.chunks.len());
        assert_eq!(rising, falling);
        let hash = |map: &SharedMap<u32, ()>| {
            let mut hasher = std::collections::hash_map::DefaultHasher::new();
            map.hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(&rising), hash(&falling));
    }
}
