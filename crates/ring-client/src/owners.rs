//! Which node leads which slot, as a client knows it: four bytes for a slot, and each address once.
//!
//! Invariant: a slot without a named owner has none; any node is asked about it.

use crate::answer::bracketed;
use atoll_resp::Value;
use std::collections::HashMap;

/// Stands for no address.
const NONE: u32 = u32::MAX;

/// The owners of all slots.
#[derive(Debug, Default)]
pub struct Owners {
    /// For each slot the index of its owner's address.
    places: Box<[u32]>,
    addresses: Vec<Box<str>>,
}

impl Owners {
    /// This many slots without owners.
    #[must_use]
    pub fn nobodys(slots: usize) -> Self {
        Self { places: vec![NONE; slots].into_boxed_slice(), addresses: Vec::new() }
    }

    /// The owners of this many slots, from a `CLUSTER SLOTS` reply.
    #[must_use]
    pub fn read(ranges: &[Value], slots: usize) -> Self {
        let mut owners = Self::nobodys(slots);
        let mut places: HashMap<String, u32> = HashMap::new();
        for range in ranges {
            let Value::Array(parts) = range else { continue };
            let [Value::Integer(first), Value::Integer(last), Value::Array(node), ..] = &parts[..] else {
                continue;
            };
            let [host, Value::Integer(port), ..] = &node[..] else { continue };
            let Some(host) = host.bytes() else { continue };
            let address = bracketed(&format!("{}:{port}", String::from_utf8_lossy(host)));
            let (Ok(first), Ok(last)) = (usize::try_from(*first), usize::try_from(*last)) else { continue };
            let addresses = &mut owners.addresses;
            let place = *places.entry(address).or_insert_with_key(|address| {
                addresses.push(address.as_str().into());
                addresses.len() as u32 - 1
            });
            let slots = owners.places.iter_mut().take(last.saturating_add(1)).skip(first);
            slots.for_each(|owner| *owner = place);
        }
        owners.addresses.shrink_to_fit();
        owners
    }

    /// The owner of a slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&str> {
        self.addresses.get(usize::try_from(*self.places.get(slot)?).ok()?).map(|address| &**address)
    }

    /// All known nodes.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(|address| &**address)
    }

    /// Makes a node the owner of a slot.
    pub(crate) fn set(&mut self, slot: usize, address: &str) {
        let Some(owner) = self.places.get_mut(slot) else { return };
        let known = self.addresses.iter().position(|one| **one == *address);
        let place = known.unwrap_or_else(|| {
            self.addresses.push(address.into());
            self.addresses.len() - 1
        });
        *owner = place as u32;
    }

    /// Removes a node as an owner.
    pub(crate) fn forget(&mut self, address: &str) {
        let Some(gone) = self.addresses.iter().position(|one| **one == *address) else { return };
        let last = self.addresses.len() - 1;
        self.addresses.swap_remove(gone);
        for place in &mut self.places {
            *place = match *place as usize {
                at if at == gone => NONE,
                at if at == last => gone as u32,
                _ => continue,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, port: i64) -> Value {
        let node = Value::Array(vec![Value::String(b"10.0.0.1".to_vec()), Value::Integer(port)]);
        Value::Array(vec![Value::Integer(first), Value::Integer(last), node])
    }

    fn all(owners: &Owners) -> Vec<Option<String>> {
        (0..owners.places.len()).map(|slot| owners.get(slot).map(|one| one[9..].to_owned())).collect()
    }

    #[test]
    fn slots_are_whose_a_node_says_and_who_is_forgotten_has_none() {
        let mut owners = Owners::read(&[range(0, 1, 7), range(3, 3, 8), range(4, 9, 7)], 6);
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
    fn a_table_of_a_million_slots_is_kept_as_well() {
        let slots = 1 << 20;
        let ranges: Vec<_> = (0..64).map(|at| range(at << 14, ((at + 1) << 14) - 1, at)).collect();
        let owners = Owners::read(&ranges, slots);
        for slot in [0, (1 << 14) - 1, 1 << 14, slots - 1] {
            assert_eq!(owners.get(slot).map(|one| &one[9..]), Some((slot >> 14).to_string().as_str()));
        }
        assert!(owners.get(slots).is_none());
    }
}
