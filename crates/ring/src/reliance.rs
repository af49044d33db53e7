//! Whether a store holds all that its node ever said it has, or something may be missing.
//!
//! What was synced is there. What was only handed to the system is there unless the machine went down since;
//! and after a node stopped as it should, everything was synced.
//!
//! Invariant: a doubt stays until the configuration group was told, however many lives end before that.
//! Invariant: a node whose store may lack something says so before it is asked for anything.

use crate::NodeError;
use crate::options::Persistence;
use atoll_engine::{Durability, Engine, WriteBatch};

/// Whether what is in the store can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reliance {
    /// All that was ever said to be there is.
    Whole,
    /// Something may be missing.
    Doubtful,
}

/// The tree about the node itself.
pub(crate) const NODE: &str = "node";
const BOOT: &[u8] = b"boot";
const CLEAN: &[u8] = b"clean";
/// There while the configuration group may not know that something is missing.
const DOUBT: &[u8] = b"doubt";
/// How durable writes of the last life were.
const PERSISTENCE: &[u8] = b"persistence";

/// What this system calls the time since the machine began; another one after each beginning.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Judges a store that was just opened, and notes that it is in use from now on.
pub(crate) fn judge(engine: &Engine, persistence: Persistence) -> Result<Reliance, NodeError> {
    // Where nobody tells, each beginning of a node counts as one of the machine.
    let boot = std::fs::read(BOOT_ID).unwrap_or_default();
    let tree = engine.tree(NODE)?;
    let kept = tree.get(BOOT)?.map(|value| value.to_buffer()).transpose()?;
    let is_same_boot = !boot.is_empty() && kept.as_deref() == Some(&boot[..]);
    let is_clean = tree.get(CLEAN)?.is_some();
    let before = tree.get(PERSISTENCE)?.map(|value| value.to_buffer()).transpose()?;
    // What the life before had chosen tells what is there, whatever is chosen now. Of a store that was never
    // used nobody knows whether the node is new, or what it had is gone.
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

/// Whether the life before had chosen to keep nothing: its cells are without what was said of them.
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

/// Notes that the configuration group knows what this life began with.
pub(crate) fn note_told(engine: &Engine) -> Result<(), NodeError> {
    let tree = engine.tree(NODE)?;
    if tree.get(DOUBT)?.is_some() {
        let mut batch = WriteBatch::new();
        batch.delete(&tree, DOUBT);
        engine.write(&batch, Durability::Flushed)?;
    }
    Ok(())
}

/// Notes that everything was handed over: closing the engine makes it last.
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
