//! Tests which member of the queue may commit: none is woken that would find nothing to take.

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
