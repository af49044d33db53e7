//! LMDB through heed, in its fastest mode: writes go through the map, without a sync at each commit, and with
//! one at the end.

use super::{Beside, Engine, EngineError};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};
use std::path::Path;

const MAP_BYTES: usize = 64 << 30;

/// An open environment.
pub struct Lmdb {
    // Declared before the environment, so that it is dropped first.
    reading: Option<RoTxn<'static, WithTls>>,
    env: Env,
    records: Database<Bytes, Bytes>,
}

impl Lmdb {
    /// Opens or creates it.
    #[allow(unsafe_code, reason = "opening a mapped file is unsafe in heed")]
    pub fn open(folder: &Path) -> Result<Self, EngineError> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        // SAFETY: only this process opens the folder, once, and nothing else writes to it. Without syncs a
        // loss of power may damage the file, but no measured run survives that anyway.
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP);
            options.open(folder)?
        };
        let mut writing = env.write_txn()?;
        let records = env.create_database(&mut writing, None)?;
        writing.commit()?;
        Ok(Self { reading: None, env, records })
    }
}

impl Engine for Lmdb {
    fn load_batch(
        &mut self,
        records: &mut dyn ExactSizeIterator<Item = (&[u8], &[u8])>,
    ) -> Result<(), EngineError> {
        let mut writing = self.env.write_txn()?;
        for (key, value) in records {
            self.records.put(&mut writing, key, value)?;
        }
        Ok(writing.commit()?)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let mut writing = self.env.write_txn()?;
        self.records.put(&mut writing, key, value)?;
        Ok(writing.commit()?)
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), EngineError> {
        match &self.reading {
            Some(reading) => found(self.records.get(reading, key)?),
            None => {
                let reading = self.env.read_txn()?;
                found(self.records.get(&reading, key)?);
            }
        }
        Ok(())
    }

    fn scan(
        &mut self,
        first: &[u8],
        count: usize,
        entry: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), EngineError> {
        let fresh;
        let reading = match &self.reading {
            Some(reading) => reading,
            None => {
                fresh = self.env.read_txn()?;
                &fresh
            }
        };
        let from = (std::ops::Bound::Included(first), std::ops::Bound::Unbounded);
        for record in self.records.range(reading, &from)?.take(count) {
            let (key, value) = record?;
            entry(key, value);
        }
        Ok(())
    }

    fn beside(&self) -> Result<Beside, EngineError> {
        let (env, records) = (self.env.clone(), self.records);
        Ok(Box::new(move || Box::new(Self { reading: None, env, records })))
    }

    fn expect_only_reads(&mut self) -> Result<(), EngineError> {
        self.reading = Some(self.env.clone().static_read_txn()?);
        Ok(())
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        Ok(self.env.force_sync()?)
    }

    fn close(self: Box<Self>) -> Result<(), EngineError> {
        let Self { reading, env, .. } = *self;
        drop(reading);
        env.prepare_for_closing().wait();
        Ok(())
    }
}
