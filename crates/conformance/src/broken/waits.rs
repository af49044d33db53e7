//! Planted flaws of waits, one type each.

use super::planted::Flaw;
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Cell, Expectation, ReadOptions, Store, StoreError, StoreFuture, Waited, WriteOptions, Written,
};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::yield_now;

/// Waits until the cell changes from what it holds now.
async fn change(honest: &MemoryStore, cell: Cell<'_>, time_out: Duration) -> Result<Waited, StoreError> {
    let current = honest.get(cell, ReadOptions::default()).await?;
    honest.wait(cell, Expectation::Differs(current), time_out).await
}

/// Reads the cell, and only then begins to watch it.
#[derive(Default)]
pub struct MissedWakeUp;

impl Flaw for MissedWakeUp {
    fn wait<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        Box::pin(async move {
            let now = honest.get(cell, ReadOptions::default()).await?;
            if expectation.is_met(now.as_deref()) {
                return Ok(Waited::Met(now));
            }
            yield_now().await;
            loop {
                match change(honest, cell, time_out).await? {
                    Waited::Met(value) if expectation.is_met(value.as_deref()) => {
                        return Ok(Waited::Met(value));
                    }
                    Waited::Met(_) => {}
                    Waited::TimedOut => return Ok(Waited::TimedOut),
                }
            }
        })
    }
}

/// Waits for a change, even if the cell meets the expectation already.
#[derive(Default)]
pub struct EdgeTriggered;

impl Flaw for EdgeTriggered {
    fn wait<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        Box::pin(async move {
            honest.wait(cell, expectation.clone(), Duration::ZERO).await?;
            if change(honest, cell, time_out).await? == Waited::TimedOut {
                return Ok(Waited::TimedOut);
            }
            honest.wait(cell, expectation, time_out).await
        })
    }
}

/// Wakes every waiter of the store at every write.
#[derive(Default)]
pub struct WakesEverybody {
    written: Notify,
}

impl Flaw for WakesEverybody {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            let written = honest.write(batch, options).await;
            self.written.notify_waiters();
            written
        })
    }

    fn wait<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        let met = async move {
            loop {
                let written = self.written.notified();
                let now = honest.wait(cell, expectation.clone(), Duration::ZERO).await?;
                if now != Waited::TimedOut {
                    return Ok(now);
                }
                written.await;
            }
        };
        Box::pin(async move { tokio::time::timeout(time_out, met).await.unwrap_or(Ok(Waited::TimedOut)) })
    }

    fn close<'a>(&'a self, honest: &'a MemoryStore) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            honest.close().await?;
            self.written.notify_waiters();
            Ok(())
        })
    }
}

/// Gives up after half the time.
#[derive(Default)]
pub struct TimesOutEarly;

impl Flaw for TimesOutEarly {
    fn wait<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        honest.wait(cell, expectation, time_out / 2)
    }
}
