//! Tests which member of the line may commit: none is woken that would find nothing to take.

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
    let line = Line::default();
    let writing = line.join(vec![lane(0)]);
    let both = line.join(vec![lane(0), lane(1)]);
    let mut last = line.join(vec![lane(1)]);
    assert_eq!(both.ready(ready()), Some(false));
    assert_eq!(last.ready(ready()), Some(false), "it stands behind one who stands behind one who writes");
    line.members().nudge();
    assert!(last.told.try_recv().is_err());
    assert!(line.members().take(SessionId(1)).is_empty());
    assert_eq!(writing.ready(ready()), Some(true));
    assert_eq!(line.members().take(SessionId(1)).len(), 3);
}

#[test]
fn who_may_commit_is_taken_and_who_is_taken_could_commit() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let line = Line::default();
        let mut places: Vec<Place<'_>> = Vec::new();
        for _ in 0..random.usize(1..8) {
            let lanes = (0..random.u32(1..3)).map(|_| lane(random.u32(..4)));
            places.push(line.join(lanes.collect()));
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
        places.iter_mut().for_each(|place| while place.told.try_recv().is_ok() {});
        line.members().nudge();
        let told = places.iter_mut().any(|place| place.told.try_recv().is_ok());
        let taken = line.members().take(SessionId(1));
        assert_eq!(told, !taken.is_empty(), "seed {seed}");
    }
}
