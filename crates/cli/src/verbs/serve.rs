//! `atoll serve`: owns a store until it is stopped, so that other processes can attach to it.

use crate::session::Access;
use crate::{Failure, Session};
use atoll_open::{Location, StoreUrl};
use atoll_store::StoreError;
use clap::Args;
use serde_json::json;

/// `atoll serve`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll serve --store ./data
Other processes on this machine that open ./data meanwhile attach to this one. If another process owns the
store already, this one stands by and takes over when that process ends; it reports both.
Stops on Ctrl-C or SIGTERM, once everything is on disk.")]
pub struct Serve {}

impl Serve {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why the store could not be opened.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let url = session.store_url()?;
        let unserved = match StoreUrl::parse(&url).map_err(StoreError::from)?.location {
            Location::Memory => Some((
                "a memory store",
                "no process could attach to it; name a folder, such as --store ./data",
            )),
            Location::Cassandra(_) => Some((
                "a `cassandra:` store",
                "its nodes serve it already: every process opens the same URL itself",
            )),
            Location::Ring(_) => Some((
                "a `ring:` store",
                "its nodes serve it already: every process opens the same URL itself; `atoll ring serve` runs a node",
            )),
            Location::Folder(_) => None,
        };
        if let Some((store, hint)) = unserved {
            return Err(StoreError::Unsupported { what: format!("serving {store}"), hint }.into());
        }
        let opened = session.open(Access::Create).await?;
        session.end_on_interrupt();
        let (place, pid) = (opened.place, std::process::id());
        // A store in a folder has an owner.
        if let Some(upkeep) = opened.maintenance.filter(|upkeep| !upkeep.is_owner()) {
            session.output.either(
                || format!("standing by: another process serves {place}, and this one takes over when that ends, until Ctrl-C"),
                || json!({ "standing_by": place, "pid": pid }),
            )?;
            session.output.flush()?;
            upkeep.until_owner().await;
        }
        session.output.either(
            || format!("serving {place}, until Ctrl-C"),
            || json!({ "serving": place, "pid": pid }),
        )?;
        session.output.flush()?;
        std::future::pending().await
    }
}
