//! Whether a store still holds everything that its node ever claimed to have.
//!
//! What was synced is there. What was only handed to the operating system is there unless the machine went
//! down since. After a clean stop everything was synced.
//!
//! Invariant: a doubt persists until the configuration group knows of it, however many incarnations end
//! before.
//! Invariant: a node whose store may lack something says so before it is asked for anything.

use crate::NodeError;
use crate::options::Persistence;
use atoll_engine::{Durability, Engine, WriteBatch};

/// Whether the contents of the store can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reliance {
    /// Everything that was ever claimed is there.
    Whole,
    /// Something may be missing.
    Doubtful,
}

/// The tree about the node itself.
pub(crate) const NODE: &str = "node";
const BOOT: &[u8] = b"boot";
const CLEAN: &[u8] = b"clean";
/// Present while the configuration group may not know that something is missing.
const DOUBT: &[u8] = b"doubt";
/// How durable the writes of the last run were.
const PERSISTENCE: &[u8] = b"persistence";

/// The id that Linux gives to the current boot; each boot has another one.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Judges a store that was just opened, and records that it is in use.
pub(crate) fn judge(engine: &Engine, persistence: Persistence) -> Result<Reliance, NodeError> {
    // Without a boot id each start of a node counts as a new boot.
    let boot = std::fs::read(BOOT_ID).unwrap_or_default();
    let tree = engine.tree(NODE)?;
    let kept = tree.get(BOOT)?.map(|value| value.to_buffer()).transpose()?;
    let is_same_boot = !boot.is_empty() && kept.as_deref() == Some(&boot[..]);
    let is_clean = tree.get(CLEAN)?.is_some();
    let before = tree.get(PERSISTENCE)?.map(|value| value.to_buffer()).transpose()?;
    // What is there depends on the options of the last run, not on those of this one. For a store that was
    // never used it is unknown whether the node is new or its data are lost.
    let is_whole = match (before.as_deref(), &kept) {
        (Some(b"always"), _) => true,
        (Some(b"everysec"), _) => is_same_boot || is_clean,
        _ => false,
    };
    let is_told = tree.get(DOUBT)?.is_none();
    let is_whole = is_whole && is_told && persistence != Persistence::Off;
    let mut batch = WriteBatch::new();
    batch.put(&tree, PERSISTENCE, name_of(persistence));
    batch.put(&tree, BOOT, &boot);
    batch.delete(&tree, CLEAN);
    if !is_whole {
        batch.put(&tree, DOUBT, b"");
    }
    engine.write(&batch, Durability::Synced)?;
    Ok(if is_whole { Reliance::Whole } else { Reliance::Doubtful })
}

/// Whether the last run had chosen to keep nothing: its cells lack what was recorded about them.
pub(crate) fn kept_nothing(engine: &Engine) -> Result<bool, NodeError> {
    let before = engine.tree(NODE)?.get(PERSISTENCE)?.map(|value| value.to_buffer()).transpose()?;
    Ok(before.as_deref() == Some(name_of(Persistence::Off)))
}

fn name_of(persistence: Persistence) -> &'static [u8] {
    match persistence {
        Persistence::Always => b"always",
        Persistence::EverySecond => b"everysec",
        Persistence::Off => b"off",
    }
}

/// Records that the configuration group knows what this incarnation began with.
pub(crate) fn note_told(engine: &Engine) -> Result<(), NodeError> {
    let tree = engine.tree(NODE)?;
    if tree.get(DOUBT)?.is_some() {
        let mut batch = WriteBatch::new();
        batch.delete(&tree, DOUBT);
        engine.write(&batch, Durability::Flushed)?;
    }
    Ok(())
}

/// Records that everything was handed over. Closing the engine makes it durable.
pub(crate) fn note_clean_end(engine: &Engine) -> Result<(), NodeError> {
    let tree = engine.tree(NODE)?;
    let mut batch = WriteBatch::new();
    batch.put(&tree, CLEAN, b"");
    engine.write(&batch, Durability::Buffered)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_engine::Options;

    fn forget_boot(engine: &Engine) {
        let tree = engine.tree(NODE).unwrap();
        tree.put(BOOT, b"another", Durability::Buffered).unwrap();
    }

    #[test]
    fn what_was_not_synced_is_relied_on_until_the_machine_goes_down() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let judged = |persistence| judge(&engine, persistence).unwrap();
        assert_eq!(judged(Persistence::EverySecond), Reliance::Doubtful, "it is new, or what it had is gone");
        note_told(&engine).unwrap();
        assert_eq!(
            judged(Persistence::EverySecond),
            Reliance::Whole,
            "the process ended, the machine did not"
        );
        forget_boot(&engine);
        assert_eq!(judged(Persistence::EverySecond), Reliance::Doubtful);
        note_told(&engine).unwrap();
        note_clean_end(&engine).unwrap();
        forget_boot(&engine);
        assert_eq!(judged(Persistence::EverySecond), Reliance::Whole, "it stopped as it should");
        forget_boot(&engine);
        assert_eq!(judged(Persistence::EverySecond), Reliance::Doubtful, "that counts once");
    }

    #[test]
    fn what_the_life_before_had_chosen_counts_and_not_what_is_chosen_now() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let judged = |persistence| judge(&engine, persistence).unwrap();
        judged(Persistence::EverySecond);
        note_told(&engine).unwrap();
        forget_boot(&engine);
        assert_eq!(judged(Persistence::Always), Reliance::Doubtful, "the last second was not synced");
        note_told(&engine).unwrap();
        forget_boot(&engine);
        assert_eq!(judged(Persistence::EverySecond), Reliance::Whole, "everything was synced");
        assert_eq!(judged(Persistence::Off), Reliance::Doubtful);
        note_told(&engine).unwrap();
        note_clean_end(&engine).unwrap();
        assert_eq!(judged(Persistence::EverySecond), Reliance::Doubtful, "cells were in memory alone");
    }
    #[test]
    fn a_doubt_that_nobody_was_told_of_outlives_a_clean_end() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let judged = || judge(&engine, Persistence::EverySecond).unwrap();
        judged();
        note_told(&engine).unwrap();
        forget_boot(&engine);
        for _ in 0..2 {
            assert_eq!(judged(), Reliance::Doubtful);
            note_clean_end(&engine).unwrap();
        }
        note_told(&engine).unwrap();
        assert_eq!(judged(), Reliance::Whole);
    }
}
