//! Tests which member of the queue may commit: none is woken that would find nothing to take, and none waits
//! for one that has left.

use super::*;

fn lane(rank: u32) -> Lane {
    (RunId::from("a"), 1, rank)
}

fn ready() -> Ready {
    Ready {
        blocks: Vec::new(),
        ids: Vec::new(),
        session: SessionId(1),
        is_alone: false,
        is_in_doubt: Arc::default(),
    }
}

#[test]
fn nobody_is_told_to_commit_who_could_not_be_taken() {
    let queue = AppendQueue::default();
    let writing = queue.join(vec![lane(0)]);
    let both = queue.join(vec![lane(0), lane(1)]);
    let mut last = queue.join(vec![lane(1)]);
    assert_eq!(both.ready(ready()), Some(false));
    assert_eq!(last.ready(ready()), Some(false), "it stands behind one who stands behind one who writes");
    queue.members().nudge();
    assert!(last.answers.try_recv().is_err());
    assert!(queue.members().take(SessionId(1)).is_empty());
    assert_eq!(writing.ready(ready()), Some(true));
    assert_eq!(queue.members().take(SessionId(1)).len(), 3);
}

#[test]
fn who_may_commit_is_taken_and_who_is_taken_could_commit() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let queue = AppendQueue::default();
        let mut places: Vec<QueuePlace<'_>> = Vec::new();
        for _ in 0..random.usize(1..8) {
            let lanes = (0..random.u32(1..3)).map(|_| lane(random.u32(..4)));
            places.push(queue.join(lanes.collect()));
        }
        for place in &places {
            if random.bool() {
                let _ = place.ready(ready());
            }
        }
        if random.u8(..3) == 0 {
            let failed = random.usize(..places.len());
            drop(places.remove(failed));
        }
        places.iter_mut().for_each(|place| while place.answers.try_recv().is_ok() {});
        queue.members().nudge();
        let told = places.iter_mut().any(|place| place.answers.try_recv().is_ok());
        let taken = queue.members().take(SessionId(1));
        assert_eq!(told, !taken.is_empty(), "seed {seed}");
    }
}

/// A group of all that are ready, as the append that has the turn takes it.
fn group(queue: &AppendQueue) -> Group<'_> {
    let taken = queue.members().take(SessionId(1));
    Group { queue, taken }
}

#[test]
fn who_leaves_while_it_is_committed_blocks_nobody_when_that_was_in_vain() {
    let queue = AppendQueue::default();
    let mut first = queue.join(vec![lane(0)]);
    let left = queue.join(vec![lane(1)]);
    assert_eq!((first.ready(ready()), left.ready(ready())), (Some(true), Some(true)));
    let mut behind = queue.join(vec![lane(1)]);
    let mut group = group(&queue);
    assert_eq!(group.taken.len(), 2);
    drop(left);
    group.tell(&Fate::Fenced, usize::MAX);
    drop(group);
    let tickets: Vec<u64> = queue.members().waiting.iter().map(|member| member.ticket).collect();
    assert_eq!(tickets, [first.ticket, behind.ticket], "who left is there no more");
    assert!(matches!(first.answers.try_recv(), Ok(AppendAnswer::Anew)), "who stayed writes again");
    // An earlier step of its rank is lost, so it must be appended again with that one.
    assert_eq!(behind.ready(ready()), None);
    assert!(behind.answers.try_recv().is_err(), "nobody has to tell it");
    drop(behind);
    let later = queue.join(vec![lane(1)]);
    assert_eq!(later.ready(ready()), Some(true), "the rank is free");
}

#[test]
fn who_is_behind_one_that_left_does_not_write_again() {
    let queue = AppendQueue::default();
    let left = queue.join(vec![lane(1)]);
    let mut behind = queue.join(vec![lane(1)]);
    assert_eq!(left.ready(ready()), Some(true));
    assert_eq!(behind.ready(ready()), Some(true));
    let mut group = group(&queue);
    drop(left);
    group.tell(&Fate::Fenced, usize::MAX);
    drop(group);
    assert!(matches!(behind.answers.try_recv(), Ok(AppendAnswer::Behind)), "it lacks the step before it");
    assert_eq!(behind.ready(ready()), None);
}
