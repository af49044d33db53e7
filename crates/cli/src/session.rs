//! What a verb works with: the settings, the output, and the store once it is open.
//!
//! Invariant: an opened store is closed, also after a failure or an interruption.

use crate::failure::unreported;
use crate::output::{Output, note};
use crate::store_defaults::with_defaults;
use crate::{Failure, GlobalArguments, options};
use atoll_open::{Location, Maintenance, Mode, Opened, StoreUrl};
use atoll_options::{Origin, Settings};
use atoll_store::{Durability, ErrorKind, ReadOptions, Store, StoreError, WriteOptions, within};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long to wait for a store before telling the user what we wait for.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a verb uses the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Only reads: nothing is created, no byte changes.
    Read,
    /// Waits for another writer, and creates a missing store: the waiting verb may start first.
    Wait,
    /// Changes an existing store.
    Change,
    /// Writes, and creates a missing store.
    Create,
}

/// Whether a URL names a folder that holds no store.
fn is_absent(url: &str) -> bool {
    match StoreUrl::parse(url).map(|url| url.location) {
        Ok(Location::Folder(folder)) => !folder.join("store.atoll").exists(),
        _ => false,
    }
}

/// Why opening a store may take long.
fn whose_answer(url: &str) -> &'static str {
    match StoreUrl::parse(url).map(|url| url.location) {
        Ok(Location::Ring(_) | Location::Cassandra(_)) => "its nodes do not answer yet",
        _ => "the process that owns it is opening it or does not answer",
    }
}

/// How long the store may take for each answer, if a deadline was set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience {
    deadline: Option<Duration>,
    place: String,
}

impl Patience {
    /// The result of a read within that time; a read that times out has no effect.
    pub(crate) async fn read<T>(
        &self,
        reading: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        within(self.deadline, ("read", &self.place), || false, reading).await
    }
}

/// One run of the program.
pub struct Session {
    pub(crate) settings: Settings,
    pub(crate) output: Output,
    opened: Mutex<Vec<Opened>>,
    /// Whether the verb changes anything.
    changes: AtomicBool,
    ends_on_interrupt: AtomicBool,
    hint_on_interrupt: Mutex<Option<&'static str>>,
}

impl Session {
    pub(crate) fn new(global: &GlobalArguments, settings: Settings) -> Self {
        Self {
            settings,
            output: Output::new(global.json),
            opened: Mutex::new(Vec::new()),
            changes: AtomicBool::new(false),
            ends_on_interrupt: AtomicBool::new(false),
            hint_on_interrupt: Mutex::new(None),
        }
    }

    /// Whether the command line itself names a store.
    pub(crate) fn names_store(&self) -> bool {
        self.settings.setting("store").is_some_and(|setting| matches!(setting.origin, Origin::Flag { .. }))
    }

    /// The URL of the store.
    pub(crate) fn store_url(&self) -> Result<String, Failure> {
        let url: String = self.settings.get("store")?;
        if !url.is_empty() {
            return Ok(url);
        }
        Err(Failure::Usage {
            problem: "no store is named".to_owned(),
            hint: "add --store ./data, or set ATOLL_STORE".to_owned(),
        })
    }

    /// Opens the store for the kind of use that the verb makes of it.
    pub(crate) async fn open(&self, access: Access) -> Result<Opened, Failure> {
        self.open_url(&self.store_url()?, access).await
    }

    /// Opens another store than the one of the settings, for the same kind of use. Its calls have the
    /// durability class and the deadline of the settings, unless the caller chooses others.
    pub(crate) async fn open_url(&self, url: &str, access: Access) -> Result<Opened, Failure> {
        let mut options = options::open_options(&self.settings)?;
        options.mode = if access == Access::Read { Mode::Read } else { Mode::Write };
        options.create = matches!(access, Access::Create | Access::Wait);
        let is_made = options.create && is_absent(url);
        let mut opened = self.within_patience(url, atoll_open::open_with_maintenance(url, &options)).await?;
        opened.store = with_defaults(opened.store, self.write_options()?, url);
        if is_made {
            // A mistyped folder would otherwise be noticed much later.
            note(&format!("there was no store in {}: a new one was made", opened.place));
        }
        if matches!(access, Access::Change | Access::Create) {
            self.will_change();
        }
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(opened.clone());
        Ok(opened)
    }

    /// Waits for an opening store: says what it waits for if that takes long, and gives up at the deadline.
    async fn within_patience(
        &self,
        url: &str,
        opening: impl Future<Output = Result<Opened, StoreError>>,
    ) -> Result<Opened, Failure> {
        let deadline = self.write_options()?.deadline;
        let mut opening = std::pin::pin!(opening);
        let first = deadline.map_or(PATIENCE, |deadline| deadline.min(PATIENCE));
        if let Ok(opened) = tokio::time::timeout(first, &mut opening).await {
            return Ok(opened?);
        }
        if deadline.is_none_or(|deadline| deadline > PATIENCE) && !self.output.is_json() {
            note(&format!("waiting for {url}: {}", whose_answer(url)));
        }
        let Some(deadline) = deadline else { return Ok(opening.await?) };
        match tokio::time::timeout(deadline.saturating_sub(first), opening).await {
            Ok(opened) => Ok(opened?),
            Err(_) => Err(StoreError::Unavailable {
                place: url.to_owned(),
                reason: "it could not be opened before the deadline".to_owned(),
                source: None,
            }
            .into()),
        }
    }

    /// Opens the store, without its maintenance handle.
    pub(crate) async fn store(&self, access: Access) -> Result<Arc<dyn Store>, Failure> {
        Ok(self.open(access).await?.store)
    }

    /// Opens the store and returns its maintenance handle, or fails with `unsupported` and a hint.
    pub(crate) async fn maintenance(
        &self,
        access: Access,
        what: &str,
        hint: &'static str,
    ) -> Result<(Arc<dyn Maintenance>, String), Failure> {
        let opened = self.open(access).await?;
        match opened.maintenance {
            Some(maintenance) => Ok((maintenance, opened.place)),
            None => Err(StoreError::Unsupported { what: format!("{what} of {}", opened.place), hint }.into()),
        }
    }

    /// The options of reads.
    pub(crate) fn read_options(&self) -> Result<ReadOptions, Failure> {
        Ok(ReadOptions { deadline: self.write_options()?.deadline, ..ReadOptions::default() })
    }

    /// How long to wait for each page of a listing.
    pub(crate) fn patience(&self) -> Result<Patience, Failure> {
        Ok(Patience { deadline: self.write_options()?.deadline, place: self.store_url()? })
    }

    /// The options of writes.
    pub(crate) fn write_options(&self) -> Result<WriteOptions, Failure> {
        options::write_options(&self.settings)
    }

    /// Whether everything acknowledged survives the end of the process, even if closing the store fails.
    fn has_logged(&self, store: &dyn Store) -> bool {
        let class =
            self.write_options().map(|options| store.capabilities().durability_for(options.durability));
        matches!(class, Ok(Ok(class)) if class > Durability::Buffered)
    }

    /// Marks that the verb changes something, even if it opens nothing for writing.
    pub(crate) fn will_change(&self) {
        self.changes.store(true, Ordering::Release);
    }

    /// Makes an interruption the intended end from here on, not a failure.
    pub(crate) fn end_on_interrupt(&self) {
        self.ends_on_interrupt.store(true, Ordering::Release);
    }

    /// Sets the hint that an interruption is reported with.
    pub(crate) fn hint_on_interrupt(&self, hint: &'static str) {
        *self.hint_on_interrupt.lock().unwrap_or_else(PoisonError::into_inner) = Some(hint);
    }

    /// The result of a verb that was interrupted.
    pub(crate) fn interrupted(&self, exit: u8) -> Result<(), Failure> {
        if self.ends_on_interrupt.load(Ordering::Acquire) {
            Ok(())
        } else {
            let hint = *self.hint_on_interrupt.lock().unwrap_or_else(PoisonError::into_inner);
            Err(Failure::Interrupted { exit, hint })
        }
    }

    /// Closes all opened stores.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        let mut result = Ok(());
        for opened in opened {
            let has_logged = self.has_logged(&*opened.store);
            let closed = match opened.store.close().await {
                // The change is in the log: reporting a failure would make the user repeat it.
                Err(error) if error.kind() == ErrorKind::OutOfSpace && has_logged => {
                    note(&format!("{error} for its cleanup on closing; everything written is in its log"));
                    Ok(())
                }
                closed => closed.map_err(Failure::from),
            };
            result = result.and(closed);
        }
        result
    }

    /// Flushes the output. If the verb itself failed, its failure is reported instead of this one.
    pub(crate) fn flush_output(&self) -> Result<(), Failure> {
        let told = self.output.flush();
        if self.changes.load(Ordering::Acquire) { told.map_err(unreported) } else { told }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_while_opening_names_what_is_waited_for() {
        for (url, who) in
            [("ring://127.0.0.1:1/", "nodes"), ("cassandra://a/k", "nodes"), ("./data", "process")]
        {
            assert!(whose_answer(url).contains(who), "{url}");
        }
    }
}
