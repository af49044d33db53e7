//! No engine: answers every get with a generated value that was never stored, to measure the bench itself.

use super::{Engine, EngineError};
use crate::workloads::{KEY_BYTES, Key, fill_value};

/// Generates values instead of looking them up.
pub struct Harness {
    value: Vec<u8>,
}

impl Harness {
    /// Answers with values of this length.
    pub fn new(value_bytes: usize) -> Self {
        Self { value: vec![0; value_bytes] }
    }
}

impl Engine for Harness {
    fn load_batch(
        &mut self,
        records: &mut dyn ExactSizeIterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        records.for_each(|record| {
            std::hint::black_box(record);
        });
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        std::hint::black_box((key, value));
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(key);
        fill_value(&Key(bytes), 0, &mut self.value);
        found(Some(&self.value));
        Ok(())
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        Ok(())
    }
}
