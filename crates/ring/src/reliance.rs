//! Whether a store still holds everything that its node ever claimed to have, keyspace by keyspace.
//!
//! What was synced is there. What was only handed to the operating system is there unless the machine went
//! down since. After a clean stop everything was synced.
//!
//! Invariant: a doubt persists until the configuration group knows of it, however many incarnations end
//! before.
//! Invariant: a node whose store may lack something says so before it is asked for anything.

use crate::NodeError;
use crate::classes::{self, Classes};
use crate::options::Persistence;
use atoll_engine::{Durability, Engine, WriteBatch};
use atoll_replica::{KeyspaceSet, Survived};

/// The tree about the node itself.
pub(crate) const NODE: &str = "node";
const BOOT: &[u8] = b"boot";
const CLEAN: &[u8] = b"clean";
/// The keyspaces of which something is missing without the configuration group knowing: two bytes, with a bit
/// for each. Earlier builds wrote no bytes, for all of them.
const DOUBT: &[u8] = b"doubt";
/// How durable the writes of the last run were, where the keyspace had no durability of its own.
const PERSISTENCE: &[u8] = b"persistence";

/// The id that Linux gives to the current boot; each boot has another one.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Judges a store that was just opened, and records that it is in use. Returns of which keyspaces everything
/// is there that was ever claimed.
pub(crate) fn judge(engine: &Engine, persistence: Persistence) -> Result<Survived, NodeError> {
    // Without a boot id each start of a node counts as a new boot.
    let boot = std::fs::read(BOOT_ID).unwrap_or_default();
    let tree = engine.tree(NODE)?;
    let kept = tree.get(BOOT)?.map(|value| value.to_buffer()).transpose()?;
    let is_same_boot = !boot.is_empty() && kept.as_deref() == Some(&boot[..]);
    let is_clean = tree.get(CLEAN)?.is_some();
    // What is there depends on the options of the last run, not on those of this one. For a store that was
    // never used it is unknown whether the node is new or its data are lost.
    let whole = match last_run(engine)? {
        None => KeyspaceSet::default(),
        Some(last) => {
            let flushed = last.all_of(Persistence::EverySecond);
            let lost = if is_same_boot || is_clean { KeyspaceSet::default() } else { flushed };
            let whole = KeyspaceSet::ALL.without(last.all_of(Persistence::Off)).without(lost);
            // What follows the node's own option outlives nothing from now on.
            let ends = persistence == Persistence::Off;
            if ends { whole.without(last.of_first()) } else { whole }
        }
    };
    let whole = whole.without(doubted(engine)?);
    let doubt = KeyspaceSet::ALL.without(whole);
    let mut batch = WriteBatch::new();
    batch.put(&tree, PERSISTENCE, name_of(persistence));
    batch.put(&tree, BOOT, &boot);
    batch.delete(&tree, CLEAN);
    if !doubt.is_empty() {
        batch.put(&tree, DOUBT, &doubt.bits().to_be_bytes());
    }
    engine.write(&batch, Durability::Synced)?;
    Ok(Survived::of(whole))
}

/// The keyspaces that an earlier start had doubts about, of which it could not tell the configuration group.
fn doubted(engine: &Engine) -> Result<KeyspaceSet, NodeError> {
    let Some(kept) = engine.tree(NODE)?.get(DOUBT)? else { return Ok(KeyspaceSet::default()) };
    let bits = <[u8; 2]>::try_from(&kept.to_buffer()?[..]).map(u16::from_be_bytes);
    Ok(bits.map_or(KeyspaceSet::ALL, KeyspaceSet::from_bits))
}

/// The durability of each keyspace in the last run; none if this store was never used.
fn last_run(engine: &Engine) -> Result<Option<Classes>, NodeError> {
    let before = engine.tree(NODE)?.get(PERSISTENCE)?.map(|value| value.to_buffer()).transpose()?;
    let first =
        before.and_then(|name| Persistence::ALL.into_iter().find(|class| name_of(*class) == &name[..]));
    first.map(|first| Classes::recorded(engine, first)).transpose()
}

/// The keyspaces of which the last run had chosen to keep nothing: their cells lack what was recorded about
/// them.
pub(crate) fn kept_nothing(engine: &Engine) -> Result<KeyspaceSet, NodeError> {
    Ok(last_run(engine)?.map(|last| last.all_of(Persistence::Off)).unwrap_or_default())
}

fn name_of(persistence: Persistence) -> &'static [u8] {
    match persistence {
        Persistence::Off => b"off",
        kept => classes::redis_name(kept).as_bytes(),
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
    use atoll_replica::KeyspaceRules;

    fn forget_boot(engine: &Engine) {
        let tree = engine.tree(NODE).unwrap();
        tree.put(BOOT, b"another", Durability::Buffered).unwrap();
    }

    #[test]
    fn what_was_not_synced_is_relied_on_until_the_machine_goes_down() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let judged = |persistence| judge(&engine, persistence).unwrap();
        assert_eq!(judged(Persistence::EverySecond), Survived::Nothing, "it is new, or what it had is gone");
        note_told(&engine).unwrap();
        assert_eq!(
            judged(Persistence::EverySecond),
            Survived::Everything,
            "the process ended, the machine did not"
        );
        forget_boot(&engine);
        assert_eq!(judged(Persistence::EverySecond), Survived::Nothing);
        note_told(&engine).unwrap();
        note_clean_end(&engine).unwrap();
        forget_boot(&engine);
        assert_eq!(judged(Persistence::EverySecond), Survived::Everything, "it stopped as it should");
        forget_boot(&engine);
        assert_eq!(judged(Persistence::EverySecond), Survived::Nothing, "that counts once");
    }

    #[test]
    fn what_the_life_before_had_chosen_counts_and_not_what_is_chosen_now() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let judged = |persistence| judge(&engine, persistence).unwrap();
        judged(Persistence::EverySecond);
        note_told(&engine).unwrap();
        forget_boot(&engine);
        assert_eq!(judged(Persistence::Always), Survived::Nothing, "the last second was not synced");
        note_told(&engine).unwrap();
        forget_boot(&engine);
        assert_eq!(judged(Persistence::EverySecond), Survived::Everything, "everything was synced");
        assert_eq!(judged(Persistence::Off), Survived::Nothing);
        note_told(&engine).unwrap();
        note_clean_end(&engine).unwrap();
        assert_eq!(judged(Persistence::EverySecond), Survived::Nothing, "cells were in memory alone");
    }

    #[test]
    fn each_keyspace_is_judged_by_its_own_durability() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let judged = |persistence| {
            let judged = judge(&engine, persistence).unwrap();
            (0..5).filter(|&keyspace| judged.has(keyspace)).collect::<Vec<_>>()
        };
        let classes =
            [Some(Persistence::Always), None, Some(Persistence::Off), Some(Persistence::EverySecond)];
        let rules = classes.map(|durability| {
            let name = "k".into();
            KeyspaceRules { name, copies: 0, in_sync_min: 0, latency_ms: 0, durability }
        });
        let used = |persistence| {
            let classes = Classes::recorded(&engine, persistence).unwrap().of_rules(&rules);
            classes.record(&engine).unwrap();
        };
        assert_eq!(judged(Persistence::EverySecond), [0; 0], "it is new, or what it had is gone");
        used(Persistence::EverySecond);
        note_told(&engine).unwrap();
        assert_eq!(kept_nothing(&engine).unwrap().iter().collect::<Vec<_>>(), [3]);
        assert_eq!(judged(Persistence::EverySecond), [0, 1, 2, 4], "the machine did not go down");
        note_told(&engine).unwrap();
        forget_boot(&engine);
        assert_eq!(judged(Persistence::Always), [1], "only this one was synced");
        // The doubt about the others outlives another start, and none comes in addition.
        note_clean_end(&engine).unwrap();
        assert_eq!(judged(Persistence::Always), [1]);
        note_told(&engine).unwrap();
        forget_boot(&engine);
        assert_eq!(
            judged(Persistence::Off),
            [1],
            "what is synced and has no rule ends with the choice of now"
        );
        note_told(&engine).unwrap();
        note_clean_end(&engine).unwrap();
        assert_eq!(kept_nothing(&engine).unwrap().iter().take(3).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(judged(Persistence::EverySecond), [1, 4], "a clean end syncs what is kept at all");
    }

    #[test]
    fn a_doubt_of_an_earlier_build_is_one_about_everything() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        judge(&engine, Persistence::Always).unwrap();
        let tree = engine.tree(NODE).unwrap();
        tree.put(DOUBT, b"", Durability::Buffered).unwrap();
        assert_eq!(judge(&engine, Persistence::Always).unwrap(), Survived::Nothing);
    }

    #[test]
    fn a_doubt_that_nobody_was_told_of_outlives_a_clean_end() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let judged = || judge(&engine, Persistence::EverySecond).unwrap();
        judged();
        note_told(&engine).unwrap();
        forget_boot(&engine);
        for _ in 0..2 {
            assert_eq!(judged(), Survived::Nothing);
            note_clean_end(&engine).unwrap();
        }
        note_told(&engine).unwrap();
        assert_eq!(judged(), Survived::Everything);
    }
}
