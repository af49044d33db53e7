//! Whose the store in a folder is: of which node, of which ring, and whether its contents were meant to be
//! kept.
//!
//! Invariant: what a node acknowledged as the whole ring is never taken for a copy of a ring, nor the other
//! way round.
//! Invariant: a copy of one ring is never taken for a copy of another.
//! Invariant: contents that were not meant to be kept are deleted before the first reply, cells as well as
//! what is recorded about them.
//! Invariant: a node that is refused has changed nothing that matters to another one.
//! Invariant: a number binds a folder once its node may have begun under it. Until then another one takes its
//! place: of several nodes that join at once, only one gets the next number.

use crate::NodeError;
use crate::classes::Classes;
use crate::options::Persistence;
use crate::{keyspaces, log, others, reliance};
use atoll_engine::{Direction, Durability, Engine, WriteBatch};
use atoll_replica::{KeyspaceSet, NodeId};
use std::ops::{Bound, ControlFlow};

/// Key of the node's number in its ring, in the tree about the node itself.
const NUMBER: &[u8] = b"number";

/// Key of a mark: nothing has begun under the number. Stores of earlier builds lack it.
const UNUSED: &[u8] = b"number-unused";

/// Key of the ring's number.
const RING: &[u8] = b"ring";

/// Claims a store for a node of several, or, without a number, for a node that is the whole ring. The number
/// does not bind the store yet: see [`bind`].
pub(crate) fn take(engine: &Engine, persistence: Persistence, me: Option<NodeId>) -> Result<(), NodeError> {
    let kept = number(engine, NUMBER)?.map(u32::from_be_bytes);
    match (kept, me) {
        (Some(kept), None) => return Err(NodeError::OfRing { kept }),
        (Some(kept), Some(me)) if kept != me.0 && !is_unused(engine)? => {
            return Err(NodeError::OtherNode { kept, asked: me.0 });
        }
        _ => {}
    }
    let of_nothing = reliance::kept_nothing(engine)?;
    if !of_nothing.is_empty() {
        empty(engine, of_nothing)?;
    }
    let holds_something = holds_something(engine)?;
    // Keyspaces with a durability of their own go on with it, whatever is chosen for the node.
    if persistence == Persistence::Off
        && holds_any(engine, Classes::recorded(engine, persistence)?.of_first())?
    {
        return Err(NodeError::Kept);
    }
    let Some(me) = me.filter(|me| kept != Some(me.0)) else { return Ok(()) };
    if holds_something {
        return Err(NodeError::OfNoRing);
    }
    let (mut batch, tree) = (WriteBatch::new(), engine.tree(reliance::NODE)?);
    batch.put(&tree, NUMBER, &me.0.to_be_bytes());
    batch.put(&tree, UNUSED, b"");
    engine.write(&batch, Durability::Synced)?;
    Ok(())
}

/// Whether nothing has begun under the number of the store.
fn is_unused(engine: &Engine) -> Result<bool, NodeError> {
    Ok(engine.tree(reliance::NODE)?.get(UNUSED)?.is_some() && !holds_something(engine)?)
}

/// Binds a store to the number that it was claimed under. Has to be done before anything outside of the store
/// is kept for the node of this number.
pub(crate) fn bind(engine: &Engine) -> Result<(), NodeError> {
    let tree = engine.tree(reliance::NODE)?;
    if tree.get(UNUSED)?.is_some() {
        let mut batch = WriteBatch::new();
        batch.delete(&tree, UNUSED);
        engine.write(&batch, Durability::Synced)?;
    }
    Ok(())
}

/// The ring whose copies the store holds, if it holds any.
pub(crate) fn ring(engine: &Engine) -> Result<Option<u64>, NodeError> {
    let kept = number(engine, RING)?.map(u64::from_be_bytes);
    Ok(if kept.is_some() && holds_something(engine)? { kept } else { None })
}

/// Records the ring in which the node was given an incarnation, and binds the store to its number. Nodes have
/// the same small numbers in every ring, and slots the same sequences, so only this tells the copies of two
/// rings apart. A store of an earlier build belongs to the first ring that it joins.
pub(crate) fn join(engine: &Engine, ring: u64) -> Result<(), NodeError> {
    if number(engine, RING)?.map(u64::from_be_bytes) == Some(ring) {
        return Ok(());
    }
    if self::ring(engine)?.is_some() {
        return Err(NodeError::OtherRing);
    }
    let (mut batch, tree) = (WriteBatch::new(), engine.tree(reliance::NODE)?);
    batch.put(&tree, RING, &ring.to_be_bytes());
    batch.delete(&tree, UNUSED);
    engine.write(&batch, Durability::Synced)?;
    Ok(())
}

fn number<const BYTES: usize>(engine: &Engine, key: &[u8]) -> Result<Option<[u8; BYTES]>, NodeError> {
    let Some(kept) = engine.tree(reliance::NODE)?.get(key)? else { return Ok(None) };
    let kept = kept.to_buffer()?.as_ref().try_into();
    kept.map(Some).map_err(|_| NodeError::Corrupt { what: "the number of the node or of its ring" })
}

/// The trees that hold slots, and the tree of their logs.
fn trees(engine: &Engine) -> impl Iterator<Item = String> {
    let names = engine.tree_names().into_iter();
    names.filter(|name| name == others::LOG || keyspaces::is_tree(name))
}

fn holds_something(engine: &Engine) -> Result<bool, NodeError> {
    for name in trees(engine) {
        if !engine.tree(&name)?.is_empty()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether any of these keyspaces has cells, or entries in the log.
fn holds_any(engine: &Engine, some: KeyspaceSet) -> Result<bool, NodeError> {
    let names = engine.tree_names();
    for place in some.iter() {
        let tree = keyspaces::tree_of(place);
        if names.contains(&tree) && !engine.tree(&tree)?.is_empty()? {
            return Ok(true);
        }
        if names.iter().any(|name| name == others::LOG) {
            let (mut is_empty, (from, to)) = (true, log::names_of(place));
            let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
            engine.tree(others::LOG)?.scan(range, Direction::Forward, |_, _| {
                is_empty = false;
                ControlFlow::Break(())
            })?;
            if !is_empty {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Deletes everything of the slots of some keyspaces, in one commit.
fn empty(engine: &Engine, some: KeyspaceSet) -> Result<(), NodeError> {
    let names = engine.tree_names();
    let mut batch = WriteBatch::new();
    for place in some.iter() {
        let tree = keyspaces::tree_of(place);
        if names.contains(&tree) {
            batch.delete_range(&engine.tree(&tree)?, (Bound::Unbounded, Bound::Unbounded));
        }
        if names.iter().any(|name| name == others::LOG) {
            let (from, to) = log::names_of(place);
            let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
            batch.delete_range(&engine.tree(others::LOG)?, range);
        }
    }
    engine.write(&batch, Durability::Flushed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_engine::Options;
    use atoll_replica::KeyspaceRules;

    fn store() -> Engine {
        Engine::in_memory(Options::default()).unwrap()
    }

    fn put(engine: &Engine, tree: &str) {
        engine.tree(tree).unwrap().put(b"key", b"value", Durability::Buffered).unwrap();
    }

    #[test]
    fn a_store_stays_what_it_was_a_node_of_a_ring_or_a_ring_of_its_own() {
        let persistence = Persistence::EverySecond;
        for tree in ["slots", "slots-3", "log"] {
            let engine = store();
            take(&engine, persistence, None).unwrap();
            put(&engine, tree);
            take(&engine, persistence, None).unwrap();
            for _ in 0..2 {
                let refused = take(&engine, persistence, Some(NodeId(1)));
                assert!(matches!(refused, Err(NodeError::OfNoRing)), "{tree}: {refused:?}");
            }
            take(&engine, persistence, None).unwrap();
        }
        let engine = store();
        take(&engine, persistence, None).unwrap();
        take(&engine, persistence, Some(NodeId(2))).unwrap();
        put(&engine, "slots");
        take(&engine, persistence, Some(NodeId(2))).unwrap();
        let refused = take(&engine, persistence, None);
        assert!(matches!(refused, Err(NodeError::OfRing { kept: 2 })), "{refused:?}");
        let refused = take(&engine, persistence, Some(NodeId(3)));
        assert!(matches!(refused, Err(NodeError::OtherNode { kept: 2, asked: 3 })), "{refused:?}");
    }

    #[test]
    fn a_number_binds_a_store_once_something_may_have_begun_under_it() {
        let take_as = |engine: &Engine, node| take(engine, Persistence::EverySecond, Some(NodeId(node)));
        let is_of = |engine: &Engine, node| {
            take_as(engine, node).unwrap();
            let refused = take_as(engine, node + 1);
            assert!(matches!(refused, Err(NodeError::OtherNode { .. })), "{refused:?}");
            take_as(engine, node).unwrap();
        };
        let engine = store();
        for node in [4, 5, 5, 4, 7] {
            take_as(&engine, node).unwrap();
            reliance::judge(&engine, Persistence::EverySecond).unwrap();
        }
        let refused = take(&engine, Persistence::EverySecond, None);
        assert!(matches!(refused, Err(NodeError::OfRing { kept: 7 })), "{refused:?}");
        // It has registered.
        join(&engine, 1).unwrap();
        is_of(&engine, 7);
        // It keeps the configuration, though it has not registered.
        let engine = store();
        take_as(&engine, 3).unwrap();
        bind(&engine).unwrap();
        is_of(&engine, 3);
        // What is there was received under the number, whatever could be recorded of that.
        let engine = store();
        take_as(&engine, 4).unwrap();
        put(&engine, "slots");
        is_of(&engine, 4);
        // Earlier builds recorded the number alone.
        let engine = store();
        engine.tree(reliance::NODE).unwrap().put(NUMBER, &4_u32.to_be_bytes(), Durability::Buffered).unwrap();
        is_of(&engine, 4);
    }

    #[test]
    fn what_is_of_one_ring_is_of_no_other_one() {
        let engine = store();
        for ring in [7, 8, 8] {
            join(&engine, ring).unwrap();
        }
        put(&engine, "log");
        join(&engine, 8).unwrap();
        let refused = join(&engine, 7);
        assert!(matches!(refused, Err(NodeError::OtherRing)), "{refused:?}");
        let earlier = store();
        put(&earlier, "slots");
        join(&earlier, 7).unwrap();
        let refused = join(&earlier, 8);
        assert!(matches!(refused, Err(NodeError::OtherRing)), "{refused:?}");
    }

    #[test]
    fn what_outlives_nothing_goes_from_beside_what_was_kept() {
        let engine = store();
        take(&engine, Persistence::Always, None).unwrap();
        reliance::judge(&engine, Persistence::Always).unwrap();
        let rules = [None, Some(Persistence::Off), Some(Persistence::EverySecond)].map(|durability| {
            let name = "k".into();
            KeyspaceRules { name, copies: 0, in_sync_min: 0, latency_ms: 0, durability }
        });
        Classes::recorded(&engine, Persistence::Always).unwrap().of_rules(&rules).record(&engine).unwrap();
        ["slots-2", "slots-3"].iter().for_each(|tree| put(&engine, tree));
        let log = engine.tree(others::LOG).unwrap();
        let logged = |place: usize| [&log::names_of(place).0[..], &[0; 8]].concat();
        for place in [2, 3] {
            log.put(&logged(place), b"entry", Durability::Buffered).unwrap();
        }
        // Nothing of the first class is there, so it may be of any class from now on.
        take(&engine, Persistence::Off, None).unwrap();
        let is_empty = |tree: &str| engine.tree(tree).unwrap().is_empty().unwrap();
        assert!(is_empty("slots-2") && !is_empty("slots-3"));
        assert!(log.get(&logged(2)).unwrap().is_none() && log.get(&logged(3)).unwrap().is_some());
        log.put(&logged(1), b"entry", Durability::Buffered).unwrap();
        let refused = take(&engine, Persistence::Off, None);
        assert!(matches!(refused, Err(NodeError::Kept)), "an entry of the first class: {refused:?}");
    }

    #[test]
    fn what_outlives_nothing_is_gone_and_what_was_kept_never_is() {
        let engine = store();
        for (now, next) in [(Persistence::Off, Persistence::Off), (Persistence::Off, Persistence::Always)] {
            take(&engine, now, None).unwrap();
            reliance::judge(&engine, now).unwrap();
            ["slots", "slots-1"].iter().for_each(|tree| put(&engine, tree));
            take(&engine, next, None).unwrap();
            assert!(!holds_something(&engine).unwrap());
            reliance::judge(&engine, next).unwrap();
        }
        put(&engine, "slots");
        let refused = take(&engine, Persistence::Off, None);
        assert!(matches!(refused, Err(NodeError::Kept)), "{refused:?}");
        take(&engine, Persistence::EverySecond, None).unwrap();
        assert!(holds_something(&engine).unwrap());
    }
}
