//! The connection between a process and the store. Every operation yields to others before and after it is
//! carried out. Some writes are lost, some answers are lost, and some writes arrive late.

use crate::world::{Deed, World};
use atoll_conformance::Relay;
use atoll_store::{
    Batch, Buffer, Cell, Expectation, PartitionPage, PartitionQuery, Read, ReadOptions, ScanPage,
    ScanRequest, Store, StoreError, StoreFuture, StoreStream, Timestamp, Waited, WriteOptions, Written,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// The connection of one process.
pub struct Line {
    pub world: Arc<World>,
    /// One in this many writes meets with trouble; 0 for none.
    pub trouble: u32,
    /// The delete that the process is carrying out, recorded when it becomes true.
    pub deed: Arc<Mutex<Option<Arc<Deed>>>>,
}

/// The fate of a write.
enum Luck {
    Good,
    RequestLost,
    AnswerLost,
    Late,
}

impl Line {
    fn luck(&self) -> Luck {
        self.world.draw(|random| {
            if self.trouble == 0 || random.u32(..self.trouble) > 0 {
                return Luck::Good;
            }
            match random.u8(..3) {
                0 => Luck::RequestLost,
                1 => Luck::AnswerLost,
                _ => Luck::Late,
            }
        })
    }
}

fn unknown() -> StoreError {
    StoreError::Unknown { what: "a write", reason: "the line was cut".to_owned(), source: None }
}

/// Returns when it is this process's turn again.
pub async fn turn() {
    let mut had_turn = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut had_turn, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Relay for Line {
    fn inner(&self) -> &dyn Store {
        &self.world.store
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(async move {
            turn().await;
            let deed = self.deed.lock().unwrap().clone();
            let written = match self.luck() {
                Luck::Good => self.world.carry_out(batch, options, deed).await,
                Luck::RequestLost => Err(unknown()),
                Luck::AnswerLost => self.world.carry_out(batch, options, deed).await.and(Err(unknown())),
                Luck::Late => {
                    self.world.delay(batch, options, deed);
                    Err(unknown())
                }
            };
            turn().await;
            written
        })
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            turn().await;
            let value = self.world.store.get(cell, options).await;
            turn().await;
            value
        })
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        let answers = async move {
            turn().await;
            let mut answers: Vec<_> = self.world.store.get_many(reads).collect().await;
            self.world.draw(|random| random.shuffle(&mut answers));
            turn().await;
            futures::stream::iter(answers)
        };
        futures::stream::once(answers).flatten().boxed()
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        Box::pin(async move {
            turn().await;
            let page = self.world.store.scan(request).await;
            turn().await;
            page
        })
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        Box::pin(async move {
            turn().await;
            let page = self.world.store.partition_keys(query).await;
            turn().await;
            page
        })
    }

    /// Lets others have some turns.
    fn rest(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for _ in 0..=time.as_millis().min(16) {
                turn().await;
            }
            self.world.pass(time);
        })
    }

    /// No process waits for a change here; it rests for the time-out instead, and then looks.
    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        Box::pin(async move {
            self.rest(time_out).await;
            let current = self.world.store.get(cell, ReadOptions::default()).await?;
            let is_met = expectation.is_met(current.as_deref());
            Ok(if is_met { Waited::Met(current) } else { Waited::TimedOut })
        })
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        Box::pin(async { Ok(self.world.now()) })
    }
}
