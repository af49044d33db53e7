//! Pins: the epochs that are still being read, so that what their readers need stays in place.
//!
//! An item on disk was born in one epoch and died in a later one; its space may be reused once no pin lies in
//! between. Epochs grow by one with every checkpoint.
//!
//! Invariant: a pin is taken under the lock that is needed to record a death.

use crate::threads::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pinned epochs, with the number of pins of each.
#[derive(Default)]
pub(crate) struct Pins(Mutex<BTreeMap<u64, usize>>);

/// Keeps everything that was alive in one epoch.
#[derive(Clone)]
pub(crate) struct Pin {
    _guard: Arc<Guard>,
}

struct Guard {
    pins: Arc<Pins>,
    epoch: u64,
}

impl Pins {
    pub(crate) fn pin(self: &Arc<Self>, epoch: u64) -> Pin {
        *self.0.lock().entry(epoch).or_default() += 1;
        Pin { _guard: Arc::new(Guard { pins: Arc::clone(self), epoch }) }
    }

    /// Whether something that lived in epochs `birth..death` is pinned.
    pub(crate) fn holds(&self, birth: u64, death: u64) -> bool {
        birth < death && self.0.lock().range(birth..death).next().is_some()
    }

    /// The newest pinned epoch before `epoch`.
    pub(crate) fn newest_before(&self, epoch: u64) -> Option<u64> {
        self.0.lock().range(..epoch).next_back().map(|(&pinned, _)| pinned)
    }

    /// The pinned epochs before `epoch`.
    pub(crate) fn before(&self, epoch: u64) -> Vec<u64> {
        self.0.lock().range(..epoch).map(|(&pinned, _)| pinned).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().sum()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut pins = self.pins.0.lock();
        if let Some(count) = pins.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.epoch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_holds_what_lived_in_its_epoch_until_the_last_clone_is_gone() {
        let pins = Arc::new(Pins::default());
        let pin = pins.pin(5);
        let clone = pin.clone();
        assert!(pins.holds(5, 6) && pins.holds(2, 9));
        assert!(!pins.holds(2, 5) && !pins.holds(6, 9) && !pins.holds(5, 5));
        assert_eq!((pins.before(6), pins.before(5)), (vec![5], vec![]));
        drop(pin);
        assert!(pins.holds(5, 6));
        drop(clone);
        assert!(!pins.holds(0, u64::MAX));
    }
}
