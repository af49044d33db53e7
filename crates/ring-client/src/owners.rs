//! Which node leads which slot, as a client knows it: four bytes for a slot, and each address once; beside it
//! what the client learned since it was told so.
//!
//! Invariant: a slot without a named owner has none; any node is asked about it.

use crate::answer::bracketed;
use atoll_resp::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Stands for no address.
const NONE: u32 = u32::MAX;

/// The owners of all slots.
#[derive(Debug, Default)]
pub struct Owners {
    /// For each slot the index of its owner's address, as it was told.
    places: Box<[u32]>,
    addresses: Vec<Box<str>>,
    /// Slots of which another owner was named since. Whoever named it may have known an older table.
    moved: BTreeMap<usize, u32>,
    /// Owners that did not answer, and count as owners only of slots of which they were named again.
    doubted: BTreeSet<u32>,
}

impl Owners {
    /// This many slots without owners.
    #[must_use]
    pub fn nobodys(slots: usize) -> Self {
        Self { places: vec![NONE; slots].into_boxed_slice(), ..Self::default() }
    }

    /// The owners of this many slots, from the lists `nodes` and `slots` of an `AT.TABLE` reply; none if they
    /// are not such lists.
    #[must_use]
    pub fn read(nodes: &[Value], ranges: &[Value], slots: usize) -> Option<Self> {
        let mut owners = Self::nobodys(slots);
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut places = Vec::with_capacity(nodes.len());
        for node in nodes {
            let addresses = &mut owners.addresses;
            places.push(*known.entry(address_of(node)?).or_insert_with_key(|address| {
                addresses.push(address.as_str().into());
                addresses.len() as u32 - 1
            }));
        }
        let (ranges, rest) = ranges.as_chunks::<3>();
        if !rest.is_empty() {
            return None;
        }
        for range in ranges {
            let [Value::Integer(first), Value::Integer(last), Value::Integer(node)] = range else {
                return None;
            };
            let place = *places.get(usize::try_from(*node).ok()?)?;
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let slots = owners.places.iter_mut().take(last.saturating_add(1)).skip(first);
            slots.for_each(|owner| *owner = place);
        }
        owners.addresses.shrink_to_fit();
        Some(owners)
    }

    /// The owner of a slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&str> {
        let told = || self.places.get(slot).copied().filter(|place| !self.doubted.contains(place));
        let place = self.moved.get(&slot).copied().or_else(told)?;
        self.addresses.get(usize::try_from(place).ok()?).map(|address| &**address)
    }

    /// All known nodes.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(|address| &**address)
    }

    /// Makes a node the owner of a slot.
    pub(crate) fn set(&mut self, slot: usize, address: &str) {
        let Some(told) = self.places.get(slot).copied() else { return };
        let known = self.place_of(address);
        let place = known.unwrap_or_else(|| {
            self.addresses.push(address.into());
            self.addresses.len() as u32 - 1
        });
        if place == told && !self.doubted.contains(&place) {
            self.moved.remove(&slot);
        } else {
            self.moved.insert(slot, place);
        }
    }

    /// Makes the owner of a slot the one that was told again, if this node was named as its owner since.
    pub(crate) fn unlearn(&mut self, slot: usize, address: &str) {
        let Some(place) = self.moved.get(&slot).copied() else { return };
        if self.place_of(address) == Some(place) {
            self.moved.remove(&slot);
        }
    }

    /// Removes a node as an owner.
    pub(crate) fn forget(&mut self, address: &str) {
        let Some(gone) = self.place_of(address) else { return };
        self.moved.retain(|_, place| *place != gone);
        self.doubted.insert(gone);
    }

    /// Makes the removed nodes owners again of what they were told to own, except for slots that moved.
    pub(crate) fn trust_all(&mut self) {
        self.doubted.clear();
    }

    fn place_of(&self, address: &str) -> Option<u32> {
        self.addresses.iter().position(|one| **one == *address).map(|place| place as u32)
    }
}

/// The address of a node that is told as its host and its port.
fn address_of(node: &Value) -> Option<String> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Integer(port), ..] = &parts[..] else { return None };
    Some(bracketed(&format!("{}:{port}", String::from_utf8_lossy(host.bytes()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owners of this many slots: nodes with these ports, and ranges with the place of their node.
    fn read(ports: impl IntoIterator<Item = i64>, ranges: &[[i64; 3]], slots: usize) -> Owners {
        let host = || Value::String(b"10.0.0.1".to_vec());
        let node = |port| Value::Array(vec![host(), Value::Integer(port)]);
        let nodes: Vec<_> = ports.into_iter().map(node).collect();
        let ranges: Vec<_> = ranges.iter().flatten().copied().map(Value::Integer).collect();
        Owners::read(&nodes, &ranges, slots).unwrap()
    }

    fn all(owners: &Owners) -> Vec<Option<String>> {
        (0..owners.places.len()).map(|slot| owners.get(slot).map(|one| one[9..].to_owned())).collect()
    }

    #[test]
    fn slots_are_whose_a_node_says_and_who_is_forgotten_has_none() {
        // The third node is the first one under another name.
        let mut owners = read([7, 8, 7], &[[0, 1, 0], [3, 3, 1], [4, 9, 2]], 6);
        let some = |port: &str| Some(port.to_owned());
        assert_eq!(all(&owners), [some("7"), some("7"), None, some("8"), some("7"), some("7")]);
        assert_eq!(owners.addresses().count(), 2, "each is kept once");
        owners.set(2, "10.0.0.1:9");
        owners.set(4, "10.0.0.1:8");
        owners.forget("10.0.0.1:7");
        owners.forget("10.0.0.1:7");
        assert_eq!(all(&owners), [None, None, some("9"), some("8"), some("8"), None]);
    }

    #[test]
    fn who_is_trusted_again_has_what_it_had_and_nothing_that_moved() {
        let mut owners = read([7, 8], &[[0, 3, 0], [4, 5, 1]], 6);
        let some = |port: &str| Some(port.to_owned());
        owners.set(1, "10.0.0.1:8");
        owners.set(4, "10.0.0.1:7");
        owners.forget("10.0.0.1:7");
        owners.set(2, "10.0.0.1:7");
        assert_eq!(all(&owners), [None, some("8"), some("7"), None, some("8"), some("8")]);
        owners.trust_all();
        assert_eq!(all(&owners), [some("7"), some("8"), some("7"), some("7"), some("8"), some("8")]);
        owners.set(1, "10.0.0.1:7");
        assert_eq!(owners.get(1), Some("10.0.0.1:7"));
        assert_eq!(owners.moved.len(), 1, "what is as it was told takes no room: {:?}", owners.moved);
    }

    #[test]
    fn a_slot_that_did_not_move_to_a_node_has_the_owner_that_was_told() {
        let mut owners = read([7, 8, 9], &[[0, 3, 0]], 4);
        let some = |port: &str| Some(port.to_owned());
        for (slot, address) in [(1, "10.0.0.1:8"), (2, "10.0.0.1:9"), (3, "10.0.0.1:8")] {
            owners.set(slot, address);
        }
        // Slots that moved elsewhere or not at all, a node that nobody named, and a slot that does not exist.
        for (slot, port) in [(2, 8), (0, 7), (0, 8), (1, 5), (9, 8)] {
            owners.unlearn(slot, &format!("10.0.0.1:{port}"));
            assert_eq!(all(&owners), [some("7"), some("8"), some("9"), some("8")], "{slot} {port}");
        }
        owners.unlearn(1, "10.0.0.1:8");
        assert_eq!(all(&owners), [some("7"), some("7"), some("9"), some("8")]);
        owners.forget("10.0.0.1:7");
        owners.unlearn(3, "10.0.0.1:8");
        assert_eq!(all(&owners), [None, None, some("9"), None], "who did not answer is no owner");
    }

    #[test]
    fn a_table_of_a_million_slots_is_kept_as_well() {
        let slots = 1 << 20;
        let ranges: Vec<_> = (0..64).map(|at| [at << 14, ((at + 1) << 14) - 1, at]).collect();
        let owners = read(0..64, &ranges, slots);
        for slot in [0, (1 << 14) - 1, 1 << 14, slots - 1] {
            assert_eq!(owners.get(slot).map(|one| &one[9..]), Some((slot >> 14).to_string().as_str()));
        }
        assert!(owners.get(slots).is_none());
    }
}
