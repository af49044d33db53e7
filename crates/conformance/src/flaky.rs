//! A connection between client and store that loses requests and answers, so that outcomes become unknown.
//!
//! Invariant: it reports `unknown` whenever it interferes, and otherwise passes calls on unchanged.

use crate::relay::{Relay, Relayed};
use crate::subject::SharedStore;
use atoll_store::{Batch, Store, StoreError, StoreFuture, WriteOptions, Written};
use parking_lot::Mutex;

/// A store behind a connection that loses some writes or their answers.
pub type Flaky = Relayed<Line>;

/// The connection.
pub struct Line {
    inner: SharedStore,
    random: Mutex<fastrand::Rng>,
}

impl Flaky {
    /// Puts `inner` behind such a connection; what it loses follows from the seed.
    #[must_use]
    pub fn new(inner: SharedStore, seed: u64) -> Self {
        Self(Line { inner, random: Mutex::new(fastrand::Rng::with_seed(seed)) })
    }
}

fn lost(what: &str) -> StoreError {
    StoreError::Unknown { what: "a write", reason: format!("the line lost {what}"), source: None }
}

impl Relay for Line {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let (luck, delay) = {
            let mut random = self.random.lock();
            (random.u8(0..12), random.u8(0..10))
        };
        Box::pin(async move {
            match luck {
                0 => Err(lost("the request")),
                1 => {
                    self.inner.write(batch, options).await.ok();
                    Err(lost("the answer"))
                }
                2 => {
                    // The request is still under way when the client gives up.
                    let inner = self.inner.clone();
                    tokio::spawn(async move {
                        for _ in 0..delay {
                            tokio::task::yield_now().await;
                        }
                        inner.write(batch, options).await.ok();
                    });
                    Err(lost("patience"))
                }
                _ => self.inner.write(batch, options).await,
            }
        })
    }
}
