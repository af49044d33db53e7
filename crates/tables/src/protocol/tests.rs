//! Tests the rules of the protocol one by one. `tests/protocol.rs` explores how they combine.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

const ME: SessionId = SessionId(1);

fn object(sequence: u64) -> ObjectId {
    ObjectId { session: ME, sequence }
}

fn piece(sequence: u64, rows: u64, run: Option<&str>, steps: StepRange) -> Piece {
    let extent = Extent { run: run.map(Into::into), steps };
    let (form, weights) = (Form::Block, WeightRange::ALL);
    Piece {
        object: object(sequence),
        part: 0,
        form,
        weights,
        rows,
        bytes: 0,
        front_bytes: 0,
        extent,
        tight: None,
    }
}

/// A block of 10 rows of run "a", in the object with this number.
fn block(attempt: u64, step: u64, rank: u32, sequence: u64) -> Block {
    let id = BlockId { run: "a".into(), attempt, step, rank };
    let piece = piece(sequence, 10, Some("a"), StepRange::only(step));
    Block { id, time: None, piece: Some(piece) }
}

fn begin(attempt: u64, ranks: u32) -> Edit {
    Edit::Begin { run: "a".into(), attempt, ranks, last: LastStep::Any }
}

fn append(block: Block) -> Edit {
    Edit::Append { blocks: vec![block] }
}

/// Takes the first `rows` rows of an object, those with weights below `to`.
fn removal(sequence: u64, to: Option<u64>, rows: u64) -> Removal {
    Removal { object: object(sequence), part: 0, weights: WeightRange { from: 0, to }, rows }
}

fn delete_light() -> Edit {
    Edit::Delete { scope: Scope { run: None, steps: StepRange::ALL, expression: Some("light".into()) } }
}

fn after(edits: &[Edit]) -> Manifest {
    edits.iter().fold(Manifest::default(), |manifest, edit| manifest.apply(edit).unwrap())
}

/// Steps 1, 2, 3 of attempt 1 with one rank, in objects 1, 2, 3: version 4.
fn three_steps() -> Manifest {
    let appended = (1..4).map(|step| append(block(1, step, 0, step)));
    after(&std::iter::once(begin(1, 1)).chain(appended).collect::<Vec<_>>())
}

fn run(manifest: &Manifest) -> &Run {
    &manifest.runs[&RunId::from("a")]
}

fn visible(manifest: &Manifest) -> Vec<u64> {
    manifest.pieces.keys().map(|key| key.object.sequence).collect()
}

fn ranges() -> Vec<WeightRange> {
    let ends = (0..5).map(Some).chain([None]);
    ends.flat_map(|to| (0..5).map(move |from| WeightRange { from, to })).collect()
}

#[test]
fn what_is_arriving_for_ever_is_looked_at_in_place_of_what_an_earlier_attempt_has_there() {
    // Rank 1 of attempt 2 skips step 1, which older releases accepted. Step 2 is its first complete one, so
    // step 1 of attempt 1 stays.
    let edits =
        [begin(2, 2), append(block(2, 1, 0, 11)), append(block(2, 2, 1, 12)), append(block(2, 2, 0, 13))];
    let manifest = edits.iter().fold(three_steps(), |manifest, edit| manifest.applied(edit).unwrap());
    assert_eq!(visible(&manifest), [1, 12, 13]);
    let looked_at = manifest.with_arriving();
    assert_eq!(visible(&looked_at), [11, 12, 13], "not both of step 1");
    assert_eq!(looked_at.steps, 2);
    let next = append(block(2, 3, 1, 14));
    assert!(
        manifest.apply(&next).is_ok(),
        "what is behind what is visible is lost already, and keeps nobody"
    );
}

#[test]
fn no_step_that_some_ranks_gave_is_passed_over_by_another() {
    let skipped = |step, rank, lost, of, later| {
        let id = block(1, step, rank, 0).id;
        Err(EditError::Skipped { id, lost, rank: of, later })
    };
    let first = after(&[begin(1, 3), append(block(1, 5, 0, 1)), append(block(1, 5, 2, 2))]);
    // Rank 1 goes on without step 5.
    assert_eq!(first.apply(&append(block(1, 6, 1, 3))), skipped(6, 1, 5, 1, 6));
    // Rank 0 has gone on without step 6, which rank 2 writes.
    let second = first.apply(&append(block(1, 7, 0, 3))).unwrap();
    assert_eq!(second.apply(&append(block(1, 6, 2, 4))), skipped(6, 2, 6, 0, 7));
    // The error names the first of several lost steps.
    let far = second.apply(&append(block(1, 7, 2, 4))).unwrap();
    assert_eq!(far.apply(&append(block(1, 8, 1, 5))), skipped(8, 1, 5, 1, 8));
    // Steps in order are accepted, also within one edit, and blocks that are there may be appended again.
    let late = Edit::Append { blocks: vec![block(1, 5, 1, 5), block(1, 5, 0, 6), block(1, 7, 1, 7)] };
    assert_eq!(run(&far.apply(&late).unwrap()).last_complete(), Some(7));
}

#[test]
fn the_refusal_of_a_step_that_can_never_be_complete_says_what_to_do() {
    let id = |step, rank| block(1, step, rank, 0).id;
    let passes = EditError::Skipped { id: id(6, 1), lost: 5, rank: 1, later: 6 };
    assert_eq!(
        passes.to_string(),
        "step 5 of run \"a\" can never be complete: rank 1 goes on to step 6 without it"
    );
    assert!(passes.hint().unwrap().starts_with("write step 5 of rank 1 first"));
    let comes_late = EditError::Skipped { id: id(6, 2), lost: 6, rank: 0, later: 7 };
    assert!(comes_late.hint().unwrap().contains("begin a new attempt"));
}

#[test]
fn ranges_of_weights_agree_with_sets_of_weights() {
    let set =
        |range: &WeightRange| (0..8).filter(|weight| range.contains(*weight)).collect::<BTreeSet<u64>>();
    let some = ranges().into_iter().filter(|range| !range.is_empty()).collect::<Vec<_>>();
    for (one, other) in some.iter().flat_map(|one| some.iter().map(move |other| (one, other))) {
        assert_eq!(one.meets(other), !set(one).is_disjoint(&set(other)), "{one:?} {other:?}");
        assert_eq!(one.covers(other), set(one).is_superset(&set(other)), "{one:?} {other:?}");
        if one.covers(other) {
            let rest: BTreeSet<u64> = one.without(other).flat_map(|range| set(&range)).collect();
            assert_eq!(rest, &set(one) - &set(other), "{one:?} {other:?}");
        }
    }
}

#[test]
fn a_step_is_visible_with_the_block_of_its_last_rank() {
    let one = after(&[begin(1, 2), append(block(1, 5, 0, 1))]);
    assert!(visible(&one).is_empty() && run(&one).last_complete().is_none());
    let both = one.apply(&append(block(1, 5, 1, 2))).unwrap();
    assert_eq!((visible(&both), run(&both).last_complete()), (vec![1, 2], Some(5)));
}

#[test]
fn a_step_that_was_deleted_as_a_whole_is_not_the_last_complete_one() {
    let delete =
        |from| Edit::Delete { scope: Scope { run: None, steps: StepRange::since(from), expression: None } };
    let tail = three_steps().apply(&delete(3)).unwrap();
    assert_eq!(run(&tail).last_complete(), Some(2));
    let all = tail.apply(&delete(0)).unwrap();
    assert_eq!((run(&all).last_complete(), run(&all).published), (None, Some(3)));
}

#[test]
fn a_rank_without_rows_completes_a_step_too() {
    let empty = Block { piece: None, ..block(1, 5, 1, 0) };
    let both = after(&[begin(1, 2), append(block(1, 5, 0, 1)), append(empty)]);
    assert_eq!((visible(&both), run(&both).last_complete()), (vec![1], Some(5)));
}

#[test]
fn a_block_counts_once_under_whatever_name_it_comes_again() {
    let arriving = after(&[begin(1, 2), append(block(1, 5, 0, 1))]);
    assert_eq!(arriving.apply(&append(block(1, 5, 0, 9))), Err(EditError::AlreadyDone));
    let there = three_steps();
    assert_eq!(there.apply(&append(block(1, 2, 0, 9))), Err(EditError::AlreadyDone));
    let both = Edit::Append { blocks: vec![block(1, 3, 0, 9), block(1, 4, 0, 10)] };
    assert_eq!(visible(&there.apply(&both).unwrap()), [1, 2, 3, 10]);
}

#[test]
fn only_the_attempt_that_began_last_may_append_and_only_what_it_said() {
    let name = || RunId::from("a");
    let manifest = after(&[begin(2, 1)]);
    let refused = |edit: Edit| manifest.apply(&edit).unwrap_err();
    assert_eq!(refused(begin(2, 1)), EditError::AlreadyDone);
    assert_eq!(refused(begin(2, 3)), EditError::Ranks { run: name(), actual: 1, asked: 3 });
    assert_eq!(refused(begin(1, 1)), EditError::StaleAttempt { run: name(), attempt: 1, current: 2 });
    let stale = EditError::StaleAttempt { run: name(), attempt: 1, current: 2 };
    assert_eq!(refused(append(block(1, 5, 0, 1))), stale);
    assert_eq!(refused(append(block(3, 5, 0, 1))), EditError::NotBegun { run: name(), attempt: 3 });
    assert_eq!(refused(append(block(2, 5, 1, 1))), EditError::Ranks { run: name(), actual: 1, asked: 2 });
}

#[test]
fn an_attempt_that_goes_on_from_a_step_begins_only_where_that_is_still_the_last_one() {
    let behind = |attempt, last| Edit::Begin { run: "a".into(), attempt, ranks: 1, last: LastStep::Is(last) };
    let went_on = |last| Err(EditError::RunWentOn { run: "a".into(), last });
    let nothing = Manifest::default();
    assert_eq!(nothing.apply(&behind(1, Some(0))), went_on(None));
    let begun = nothing.apply(&behind(1, None)).unwrap();
    assert_eq!(begun.apply(&behind(1, None)), Err(EditError::AlreadyDone));
    let there = three_steps();
    assert_eq!(there.apply(&behind(2, None)), went_on(Some(3)));
    assert_eq!(there.apply(&behind(2, Some(2))), went_on(Some(3)));
    assert_eq!(run(&there.apply(&behind(2, Some(3))).unwrap()).attempt, 2);
    // A step that was deleted whole does not count.
    let scope = Scope { run: None, steps: StepRange::since(3), expression: None };
    let shorter = there.apply(&Edit::Delete { scope }).unwrap();
    assert_eq!(shorter.apply(&behind(2, Some(3))), went_on(Some(2)));
    assert!(shorter.apply(&behind(2, Some(2))).is_ok());
}

#[test]
fn steps_of_a_rank_rise() {
    let two_ranks = after(&[begin(1, 2), append(block(1, 5, 0, 1))]);
    let late = block(1, 4, 0, 2);
    let order = EditError::StepOrder { id: late.id.clone(), last: 5 };
    assert_eq!(two_ranks.apply(&append(late.clone())), Err(order.clone()));
    assert!(two_ranks.apply(&append(block(1, 5, 1, 2))).is_ok(), "the other rank is not that far");
    let one_rank = after(&[begin(1, 1), append(block(1, 5, 0, 1))]);
    assert_eq!(one_rank.apply(&append(late)), Err(order));
}

#[test]
fn the_first_step_of_an_attempt_supersedes_it_and_all_later_steps_in_one_version() {
    let begun = three_steps().apply(&begin(2, 2)).unwrap();
    let half = begun.apply(&append(block(2, 2, 0, 4))).unwrap();
    assert_eq!(visible(&half), [1, 2, 3], "nothing goes before the new step is whole");
    let whole = half.apply(&append(block(2, 2, 1, 5))).unwrap();
    assert_eq!(visible(&whole), [1, 4, 5]);
    let attempts: Vec<_> = run(&whole).complete.iter().map(|(step, there)| (*step, there.attempt)).collect();
    assert_eq!((attempts, whole.steps), (vec![(1, 1), (2, 2)], 2));
    let life = Life { born: Version(3), retired: whole.version };
    assert_eq!(whole.retired[&object(2)], life);
}

#[test]
fn a_new_attempt_lets_go_of_what_was_arriving() {
    let arriving = after(&[begin(1, 2), append(block(1, 5, 0, 1))]);
    let begun = arriving.apply(&begin(2, 2)).unwrap();
    assert_eq!(begun.retired[&object(1)], Life { born: Version(2), retired: Version(3) });
    assert_eq!(begun.objects().count(), 0);
}

/// A load of these steps of run "a", 10 rows each, in the object with this number.
fn load(attempt: u64, steps: std::ops::RangeInclusive<u64>, sequence: u64) -> Edit {
    let within = StepRange { from: *steps.start(), to: Some(steps.end() + 1) };
    let loaded = |step| LoadedStep { step, time: None, rows: 10 };
    let steps: Vec<LoadedStep> = steps.map(loaded).collect();
    let add = vec![piece(sequence, 10 * steps.len() as u64, Some("a"), within)];
    Edit::Load { run: "a".into(), attempt, steps, add }
}

#[test]
fn a_load_is_visible_whole_or_not() {
    let begun = after(&[begin(1, 3)]);
    let loaded = begun.apply(&load(1, 1..=3, 7)).unwrap();
    assert_eq!((visible(&loaded), loaded.steps, run(&loaded).published), (vec![7], 3, Some(3)));
    assert!(run(&loaded).complete.values().all(|step| (step.attempt, step.rows) == (1, 10)));
    assert_eq!(loaded.apply(&load(1, 1..=3, 8)), Err(EditError::AlreadyDone));
    assert_eq!(loaded.apply(&load(1, 2..=2, 8)), Err(EditError::AlreadyDone));
    let half = loaded.apply(&load(1, 3..=4, 8));
    assert!(matches!(half, Err(EditError::StepOrder { last: 3, .. })), "{half:?}");
    let Edit::Load { run: name, attempt, mut steps, add } = load(1, 5..=6, 8) else { unreachable!() };
    steps.reverse();
    let back = loaded.apply(&Edit::Load { run: name, attempt, steps, add });
    assert!(matches!(back, Err(EditError::StepOrder { last: 6, .. })), "{back:?}");
    let reused = loaded.apply(&load(1, 4..=4, 7));
    assert_eq!(reused, Err(EditError::ObjectReused { object: object(7) }));
    let Edit::Load { run: name, attempt, steps, mut add } = load(1, 4..=4, 8) else { unreachable!() };
    add[0].rows += 1;
    let lost = loaded.apply(&Edit::Load { run: name, attempt, steps, add });
    assert_eq!(lost, Err(EditError::RowsDoNotAddUp { removed: 10, added: 11, dropped: 0 }));
    let nobody = after(&[]).apply(&load(1, 1..=1, 7));
    assert_eq!(nobody, Err(EditError::NotBegun { run: "a".into(), attempt: 1 }));
}

#[test]
fn a_load_waits_for_no_rank_and_passes_none_that_has_begun() {
    let arriving = after(&[begin(1, 2), append(block(1, 5, 0, 1))]);
    for steps in [4..=4, 5..=5, 6..=8] {
        let first = BlockId { step: *steps.start(), ..block(1, 0, 0, 0).id };
        let refused = Err(EditError::StepArriving { id: first, arriving: 5 });
        assert_eq!(arriving.apply(&load(1, steps.clone(), 7)), refused);
        assert_eq!(arriving.admits_load(&"a".into(), 1, steps), refused.map(drop));
    }
    let whole = arriving.apply(&append(block(1, 5, 1, 2))).unwrap();
    let loaded = whole.apply(&load(1, 6..=8, 7)).unwrap();
    assert_eq!((visible(&loaded), loaded.steps), (vec![1, 2, 7], 4));
    assert_eq!(loaded.apply(&append(block(1, 7, 1, 9))), Err(EditError::AlreadyDone));
}

#[test]
fn a_load_supersedes_from_its_first_step_on_and_no_delete_before_it_is_about_its_rows() {
    let deleted = three_steps().apply(&delete_light()).unwrap();
    let loaded = deleted.apply(&begin(2, 4)).unwrap().apply(&load(2, 2..=6, 7)).unwrap();
    assert_eq!((visible(&loaded), loaded.steps), (vec![1, 7], 6));
    let struck = |placed: &Placed| loaded.tombstones_of(placed).count();
    assert_eq!(loaded.pieces.values().map(struck).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(loaded.retired.keys().copied().collect::<Vec<_>>(), [object(2), object(3)]);
}

#[test]
fn a_delete_strikes_what_is_visible_and_not_what_becomes_so_later() {
    let arriving = after(&[begin(1, 2), append(block(1, 5, 0, 1))]);
    let deleted = arriving.apply(&delete_light()).unwrap();
    let later = deleted.apply(&append(block(1, 5, 1, 2))).unwrap();
    assert!(later.pieces.values().all(|placed| later.tombstones_of(placed).count() == 0));
    let struck = later.apply(&delete_light()).unwrap();
    assert!(struck.pieces.values().all(|placed| struck.tombstones_of(placed).count() == 1));
}

#[test]
fn a_delete_of_whole_steps_needs_no_tombstone() {
    let scope = Scope { run: None, steps: StepRange { from: 2, to: Some(3) }, expression: None };
    let deleted = three_steps().apply(&Edit::Delete { scope }).unwrap();
    assert_eq!((visible(&deleted), deleted.tombstones.len()), (vec![1, 3], 0));
}

fn pack(base: Version, remove: Vec<Removal>, add: Vec<Piece>, dropped: u64) -> Edit {
    Edit::Pack { base, remove, add, dropped }
}

#[test]
fn of_equal_deletes_the_last_is_kept_and_strikes_what_was_there_before_it() {
    let never = three_steps();
    let once = never.apply(&delete_light()).unwrap();
    let between = once.apply(&append(block(1, 4, 0, 4))).unwrap();
    let twice = between.apply(&delete_light()).unwrap();
    let struck = |manifest: &Manifest| -> Vec<usize> {
        manifest.pieces.values().map(|placed| manifest.tombstones_of(placed).count()).collect()
    };
    assert_eq!((twice.tombstones.len(), struck(&twice)), (1, vec![1; 4]));
    // Packs that read before the first delete, between both, and behind both, and left out what they saw.
    for (read, dropped, wanted) in [(&never, 0, [1_usize, 1]), (&once, 10, [1, 1]), (&twice, 10, [1, 0])] {
        let took = vec![removal(1, None, 10), removal(2, None, 10), removal(3, None, 10)];
        let cube = vec![piece(7, 30 - dropped, None, StepRange::ALL)];
        let packed = twice.apply(&pack(read.version, took, cube, dropped)).unwrap();
        assert_eq!(struck(&packed), wanted, "step 4 and the cube of version {}", read.version);
    }
    let scope = Scope { run: None, steps: StepRange::ALL, expression: Some("heavy".into()) };
    let other = twice.apply(&Edit::Delete { scope }).unwrap();
    assert_eq!((other.tombstones.len(), struck(&other)), (2, vec![2; 4]), "another scope is another delete");
}

#[test]
fn a_pack_may_take_an_end_of_a_range_and_the_rest_stays() {
    let mut boxed = block(1, 1, 0, 1);
    boxed.piece = boxed.piece.map(|piece| Piece { tight: Some(TightBox(vec![1].into())), ..piece });
    let manifest = after(&[begin(1, 1), append(boxed), append(block(1, 2, 0, 2)), append(block(1, 3, 0, 3))]);
    let low = Piece { weights: WeightRange { from: 0, to: Some(100) }, ..piece(7, 4, None, StepRange::ALL) };
    let packed =
        manifest.apply(&pack(manifest.version, vec![removal(1, Some(100), 4)], vec![low], 0)).unwrap();
    let rest = PieceKey { object: object(1), part: 0, weight_from: 100 };
    assert_eq!(packed.pieces[&rest].piece.rows, 6);
    let whole = PieceKey { weight_from: 0, ..rest };
    assert!(manifest.pieces[&whole].piece.tight.is_some());
    assert_eq!(packed.pieces[&rest].piece.tight, None, "its ends may be values of rows that are gone");
    assert!(packed.retired.is_empty(), "the object still answers for the rest");
    let again = pack(manifest.version, vec![removal(1, Some(100), 4)], vec![], 4);
    assert_eq!(packed.apply(&again), Err(EditError::InputGone { object: object(1) }));
    let middle = WeightRange { from: 200, to: Some(300) };
    let middle = Removal { weights: middle, ..removal(1, None, 1) };
    let refused = packed.apply(&pack(packed.version, vec![middle], vec![], 1));
    assert_eq!(refused, Err(EditError::MiddleTaken { object: object(1) }));
}

#[test]
fn a_pack_accounts_for_every_row() {
    let manifest = three_steps();
    let apply = |remove, add, dropped| manifest.apply(&pack(manifest.version, remove, add, dropped));
    let (whole, all) = (|| vec![removal(1, None, 10)], StepRange::ALL);
    assert!(apply(whole(), vec![piece(7, 9, None, all)], 1).is_ok());
    let lost = apply(whole(), vec![piece(7, 9, None, all)], 0);
    assert_eq!(lost, Err(EditError::RowsDoNotAddUp { removed: 10, added: 9, dropped: 0 }));
    let few = apply(vec![removal(1, None, 9)], vec![piece(7, 9, None, all)], 0);
    assert_eq!(few, Err(EditError::Miscounted { object: object(1), there: 10, asked: 9 }));
    let many = apply(vec![removal(1, Some(5), 11)], vec![piece(7, 11, None, all)], 0);
    assert_eq!(many, Err(EditError::Miscounted { object: object(1), there: 10, asked: 11 }));
    let unseen = manifest.apply(&pack(Version(1), whole(), vec![], 10));
    assert_eq!(unseen, Err(EditError::InputGone { object: object(1) }));
    let ahead = manifest.apply(&pack(Version(9), whole(), vec![], 10));
    assert_eq!(ahead.unwrap_err().kind(), atoll_errors::ErrorKind::InvalidInput);
}

#[test]
fn the_name_of_an_object_is_used_once() {
    let manifest = three_steps();
    let reused = Err(EditError::ObjectReused { object: object(2) });
    assert_eq!(manifest.apply(&append(block(1, 4, 0, 2))), reused);
    let steps = StepRange::ALL;
    let onto = pack(manifest.version, vec![removal(1, None, 10)], vec![piece(2, 10, None, steps)], 0);
    assert_eq!(manifest.apply(&onto), reused);
    let (one, other) = (piece(7, 5, None, steps), piece(7, 5, None, steps));
    let overlap = pack(manifest.version, vec![removal(1, None, 10)], vec![one, other], 0);
    assert_eq!(manifest.apply(&overlap), Err(EditError::ObjectReused { object: object(7) }));
}

#[test]
fn a_delete_goes_on_to_hold_for_what_a_pack_read_before_it() {
    let read = three_steps();
    let took = vec![removal(1, None, 10), removal(2, None, 10), removal(3, None, 10)];
    let deleted = read.apply(&delete_light()).unwrap();
    let packed =
        deleted.apply(&pack(read.version, took, vec![piece(7, 30, None, StepRange::ALL)], 0)).unwrap();
    let cube = packed.pieces.values().next().unwrap();
    assert_eq!(packed.tombstones_of(cube).count(), 1);
    let again = vec![removal(7, None, 30)];
    let clean = pack(packed.version, again, vec![piece(8, 20, None, StepRange::ALL)], 10);
    assert!(packed.apply(&clean).unwrap().tombstones.is_empty(), "heeded for good");
}

#[test]
fn objects_are_removable_exactly_when_no_version_that_names_them_can_be_read() {
    let life = |born, retired| Life { born: Version(born), retired: Version(retired) };
    for (born, retired) in (0..6).flat_map(|born| (born + 1..7).map(move |retired| (born, retired))) {
        for (from, snapshot) in (0..8).flat_map(|from| (0..8).map(move |snapshot| (from, snapshot))) {
            let retired_objects = SharedMap::from_iter([(object(1), life(born, retired))]);
            let floor = Version(7);
            let manifest =
                Manifest { floor, version: floor, retired: retired_objects, ..Manifest::default() };
            let holders = Holders {
                sessions: BTreeMap::from([(ME, Session { from: Version(from) })]),
                snapshots: BTreeSet::from([Version(snapshot)]),
            };
            let is_read = (born..retired).any(|version| version >= from || version == snapshot);
            assert_eq!(
                manifest.removable(&holders).is_empty(),
                is_read,
                "{born} {retired} {from} {snapshot}"
            );
            let early = Manifest { floor: Version(retired - 1), ..manifest };
            assert!(early.removable(&Holders::default()).is_empty());
        }
    }
}

#[test]
fn only_what_nobody_can_name_any_more_is_an_orphan() {
    let manifest = three_steps();
    let (ours, theirs) = (object(9), ObjectId { session: SessionId(2), sequence: 9 });
    let listed = [object(1), ours, theirs];
    let sessions = BTreeMap::from([(ME, Session { from: Version(0) })]);
    let holders = Holders { sessions, snapshots: BTreeSet::new() };
    assert_eq!(manifest.orphans(&listed, &holders), [theirs]);
    assert_eq!(manifest.orphans(&listed, &Holders::default()), [ours, theirs]);
}

#[test]
fn what_is_in_use_is_not_forgotten() {
    let manifest = three_steps();
    let forget = |sequence| Edit::Forget { objects: vec![object(sequence)] };
    assert_eq!(manifest.apply(&forget(1)), Err(EditError::InUse { object: object(1) }));
    let scope = Scope { run: None, steps: StepRange::only(1), expression: None };
    let retired = manifest.apply(&Edit::Delete { scope }).unwrap();
    assert_eq!(retired.apply(&forget(1)), Err(EditError::InUse { object: object(1) }), "below no floor");
    let raised = retired.apply(&Edit::RaiseFloor { to: retired.version }).unwrap();
    let forgotten = raised.apply(&forget(1)).unwrap();
    assert!(forgotten.retired.is_empty());
    assert_eq!(forgotten.apply(&forget(1)), Err(EditError::AlreadyDone));
}

#[test]
fn objects_of_arriving_steps_are_known_by_name_until_these_are_visible_or_given_up() {
    // As a reader of the stored manifest counts them.
    let counted = |manifest: &Manifest| {
        let mut counted = manifest.clone();
        counted.count();
        counted
    };
    let edits = [
        begin(1, 3),
        append(block(1, 5, 0, 1)),
        append(Block { piece: None, ..block(1, 5, 1, 0) }),
        append(block(1, 6, 0, 3)),
        append(block(1, 5, 2, 4)),
        begin(2, 2),
        append(block(2, 6, 0, 5)),
    ];
    let mut manifest = Manifest::default();
    let mut named = Vec::new();
    for edit in &edits {
        manifest = manifest.apply(edit).unwrap();
        assert_eq!(manifest, counted(&manifest), "after {edit:?}");
        named.push((1..6).filter(|number| manifest.names(object(*number))).collect::<Vec<_>>());
    }
    let all: [&[u64]; 7] = [&[], &[1], &[1], &[1, 3], &[1, 3, 4], &[1, 4], &[1, 4, 5]];
    assert_eq!(named, all);
    assert!(manifest.retired.contains_key(&object(3)));
    for number in [1, 3, 5] {
        let reused = Err(EditError::ObjectReused { object: object(number) });
        assert_eq!(manifest.apply(&append(block(2, 6, 1, number))), reused);
    }
    let shown = manifest.with_arriving();
    assert_eq!(shown, counted(&shown));
}

#[test]
fn a_floor_rises_and_never_beyond_what_is_there() {
    let manifest = three_steps();
    let raise = |to| Edit::RaiseFloor { to: Version(to) };
    assert_eq!(manifest.apply(&raise(5)).unwrap_err().kind(), atoll_errors::ErrorKind::InvalidInput);
    let raised = manifest.apply(&raise(4)).unwrap();
    assert_eq!(raised.apply(&raise(3)), Err(EditError::AlreadyDone));
    let holders = Holders { snapshots: BTreeSet::from([Version(2)]), ..Holders::default() };
    let readable: Vec<_> = (0..7).filter(|number| raised.is_readable(Version(*number), &holders)).collect();
    assert_eq!(readable, [2, 4, 5]);
}

/// A commit whose first write, from an empty table, has an unknown outcome.
fn in_doubt() -> (Commit, EditId) {
    let id = EditId { session: ME, sequence: 1 };
    let mut commit = Commit::new(id, begin(1, 1));
    let empty = Manifest::default();
    let view = View { head: Head::default(), manifest: &empty, session_stands: true };
    assert_eq!(commit.saw(view, |_| None), None);
    assert_eq!(commit.wrote(Outcome::Unknown), None);
    assert_eq!(commit.doubt(), Some(Version(1)));
    (commit, id)
}

/// How a commit in doubt ends or continues, given the head it sees, the author of version 1 and its session's
/// state.
fn sees(version: u64, maker: Option<EditId>, session_stands: bool) -> (Option<Ended>, Commit) {
    let (mut commit, _) = in_doubt();
    let other = Edit::Begin { run: "b".into(), attempt: 1, ranks: 1, last: LastStep::Any };
    let manifest = if version == 0 { Manifest::default() } else { after(&[other]) };
    let head = Head { version: Version(version), full: Version::EMPTY };
    let ended = commit.saw(View { head, manifest: &manifest, session_stands }, |_| maker);
    (ended, commit)
}

#[test]
fn a_doubt_ends_when_the_version_is_there_that_the_write_tried_to_make() {
    let (_, id) = in_doubt();
    let other = EditId { sequence: 2, ..id };
    assert_eq!(sees(1, Some(id), true).0, Some(Ended::Made(Version(1))));
    assert_eq!(sees(1, Some(id), false).0, Some(Ended::Made(Version(1))), "what is made is made");
    assert_eq!(sees(1, None, false).0, Some(Ended::Forgotten));
    assert_eq!(sees(1, Some(other), false).0, Some(Ended::Fenced));
    assert_eq!(sees(0, None, false).0, Some(Ended::Fenced), "without its session it cannot land");
    let (ended, again) = sees(0, None, true);
    assert!(ended.is_none() && again.doubt().is_some(), "it may still land");
    let (ended, onwards) = sees(1, Some(other), true);
    let Step::Write(proposal) = onwards.step() else { panic!("it goes on from the new head") };
    assert!(ended.is_none() && onwards.doubt().is_none());
    assert_eq!(proposal.head.version, Version(2));
}

#[test]
fn a_refused_write_in_doubt_looks_whether_it_was_its_own_that_stood_in_the_way() {
    let (mut commit, id) = in_doubt();
    let empty = Manifest::default();
    let view = View { head: Head::default(), manifest: &empty, session_stands: true };
    assert_eq!(commit.saw(view, |_| None), None);
    assert_eq!(commit.wrote(Outcome::Refused), None);
    let made = after(&[begin(1, 1)]);
    let head = Head { version: Version(1), full: Version::EMPTY };
    let view = View { head, manifest: &made, session_stands: true };
    assert_eq!(commit.saw(view, |_| Some(id)), Some(Ended::Made(Version(1))));
    assert_eq!(commit.step(), Step::Ended);
}

#[test]
fn a_block_of_a_rank_that_the_run_does_not_have_is_refused_also_where_its_step_is_visible() {
    let manifest = three_steps();
    let refused = EditError::Ranks { run: "a".into(), actual: 1, asked: 2 };
    assert_eq!(manifest.apply(&append(block(1, 2, 1, 9))), Err(refused.clone()));
    let blocks = vec![block(1, 4, 0, 8), block(1, 2, 1, 9)];
    assert_eq!(manifest.apply(&Edit::Append { blocks: blocks.clone() }), Err(refused));
    // A block that was once accepted is in the history of a table, which must stay readable.
    assert_eq!(visible(&manifest.applied(&Edit::Append { blocks }).unwrap()), [1, 2, 3, 8]);
}
