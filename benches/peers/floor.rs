//! The floor: the ordered map of the standard library, which shows the cost of an ordered map that promises
//! nothing.

use super::{Engine, EngineError};
use std::collections::BTreeMap;

/// The map.
#[derive(Default)]
pub struct Floor {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Engine for Floor {
    fn load_batch(
        &mut self,
        records: &mut dyn ExactSizeIterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        self.map.extend(records.map(|(key, value)| (key.to_vec(), value.to_vec())));
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.map.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        found(self.map.get(key).map(Vec::as_slice));
        Ok(())
    }

    fn scan(
        &mut self,
        first: &[u8],
        count: usize,
        entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        self.map.range(first.to_vec()..).take(count).for_each(|(key, value)| entry(key, value));
        Ok(())
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        Ok(())
    }
}
