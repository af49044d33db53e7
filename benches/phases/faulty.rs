//! An engine with a planted fault, in every store that the phases of a test's thread open.

use crate::peers::{Beside, Engine, EngineError};
use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;

/// The fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Every second put is acknowledged and lost.
    LosesPuts,
    /// Puts are visible while the store is open, and gone once it is closed.
    ForgetsAtClose,
    /// A scan returns its first entry repeatedly, as often as there are entries.
    RepeatsEntries,
}

thread_local! {
    static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Plants the fault in all stores that this thread opens from now on.
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// The engine with the planted fault, if there is one.
pub fn planted(engine: Box<dyn Engine>) -> Box<dyn Engine> {
    match PLANTED.get() {
        Some(fault) => Box::new(Faulty { engine, fault, puts: 0, held: HashMap::new() }),
        None => engine,
    }
}

struct Faulty {
    engine: Box<dyn Engine>,
    fault: Fault,
    puts: u64,
    /// Puts that never reach the engine.
    held: HashMap<Vec<u8>, Vec<u8>>,
}

impl Engine for Faulty {
    fn load_batch(
        &mut self,
        records: &mut dyn ExactSizeIterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        self.engine.load_batch(records)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.puts += 1;
        match self.fault {
            Fault::LosesPuts if self.puts.is_multiple_of(2) => Ok(()),
            Fault::ForgetsAtClose => {
                self.held.insert(key.to_vec(), value.to_vec());
                Ok(())
            }
            _ => self.engine.put(key, value),
        }
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        match self.held.get(key) {
            Some(value) => {
                found(Some(value));
                Ok(())
            }
            None => self.engine.get(key, found),
        }
    }

    fn scan(
        &mut self,
        first: &[u8],
        count: usize,
        entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        let mut shown: Option<(Vec<u8>, Vec<u8>)> = None;
        self.engine.scan(first, count, &mut |key, value| {
            if self.fault == Fault::RepeatsEntries {
                let (key, value) = shown.get_or_insert_with(|| (key.to_vec(), value.to_vec()));
                entry(key, value);
            } else {
                entry(key, value);
            }
        })
    }

    fn expect_only_reads(&mut self) -> Result<(), EngineError> {
        self.engine.expect_only_reads()
    }

    fn beside(&self) -> Result<Beside, EngineError> {
        let (beside, fault) = (self.engine.beside()?, self.fault);
        Ok(Box::new(move || Box::new(Self { engine: beside(), fault, puts: 0, held: HashMap::new() })))
    }

    fn checkpoint(&mut self) -> Result<(), EngineError> {
        self.engine.checkpoint()
    }

    fn copy_by_scans(&mut self, folder: &Path) -> Result<(), EngineError> {
        self.engine.copy_by_scans(folder)
    }

    fn segments_cleaned(&self) -> Option<u64> {
        self.engine.segments_cleaned()
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        self.engine.settle()
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        self.engine.close()
    }
}
