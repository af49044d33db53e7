//! Whole manifests: they survive a round trip, old formats are read, and damage is detected.

use super::*;
use crate::lattice::{self, Scalar};
use crate::protocol::{Block, BlockId, Edit, LastStep};
use crate::table::codec::tight_box;

fn object(session: u128, sequence: u64) -> ObjectId {
    ObjectId { session: SessionId(session), sequence }
}

fn piece(object: ObjectId, run: Option<&str>, steps: StepRange) -> Piece {
    let extent = Extent { run: run.map(RunId::from), steps };
    let (form, weights) = (Form::Block, WeightRange::ALL);
    let signed = |least, greatest| Some((Scalar::Signed(least), Scalar::Signed(greatest)));
    let float = |least, greatest| Some((Scalar::Float(least), Scalar::Float(greatest)));
    let ranges = [float(-0.5, 0.5), float(0.25, 1.0), float(0.0, 12.5), signed(100, 120)];
    let tight = Some(tight_box(&ranges.map(|range| lattice::Extent::new(range, false))));
    Piece { object, part: 0, form, weights, rows: 1000, bytes: 24_000, front_bytes: 700, extent, tight }
}

fn append(run: &str, step: u64, rank: u32, sequence: u64, time: Option<f64>) -> Edit {
    let id = BlockId { run: run.into(), attempt: 1, step, rank };
    let piece = Some(piece(object(u128::from(rank) + 1, sequence), Some(run), StepRange::only(step)));
    Edit::Append { blocks: vec![Block { id, time: time.map(StepTime::from), piece }] }
}

/// A manifest with every kind of content.
fn rich() -> Manifest {
    let mut manifest = Manifest::default();
    let mut make = |edit: Edit| manifest = manifest.apply(&edit).unwrap();
    for run in ["a", "b"] {
        make(Edit::Begin { run: run.into(), attempt: 1, ranks: 2, last: LastStep::Any });
    }
    for step in 0..4 {
        make(append("a", step, 0, step, Some(step as f64 / 3.0)));
        make(append("a", step, 1, step, None));
    }
    make(append("b", u64::MAX - 1, 0, 100, Some(f64::NAN)));
    make(append("b", u64::MAX - 1, 1, 101, None));
    make(append("a", 9, 1, 200, Some(-0.0)));
    let scope = |expression: Option<&str>, steps| Scope {
        run: Some("a".into()),
        steps,
        expression: expression.map(Into::into),
    };
    let column = AddedColumn { name: "charge".into(), text: "{}".into() };
    make(Edit::AddColumn { column });
    make(Edit::Delete { scope: scope(None, StepRange::only(1)) });
    make(Edit::Delete { scope: scope(Some("x < 0.5"), StepRange { from: 2, to: Some(u64::MAX) }) });
    let taken = object(1, 0);
    let half = WeightRange { from: 0, to: Some(1 << 63) };
    let remove = vec![crate::protocol::Removal { object: taken, part: 0, weights: half, rows: 400 }];
    let cube = Piece {
        form: Form::Cube,
        part: 7,
        front_bytes: 1 << 40,
        tight: None,
        rows: 300,
        weights: half,
        ..piece(object(9, 0), None, StepRange::ALL)
    };
    let base = Version(10);
    make(Edit::Pack { base, remove, add: vec![cube], dropped: 100 });
    make(Edit::RaiseFloor { to: Version(3) });
    manifest
}

#[test]
fn a_manifest_with_everything_in_it_comes_back_and_in_few_bytes() {
    let manifest = rich();
    assert!(!manifest.tombstones.is_empty() && !manifest.retired.is_empty() && !manifest.busy.is_empty());
    let bytes = whole_to_bytes(&manifest);
    assert_eq!(whole_from_bytes("t", &bytes).unwrap(), Whole::Manifest(manifest));
    let begin = Edit::Begin { run: "a".into(), attempt: 1, ranks: 1, last: LastStep::Any };
    let mut long = Manifest::default().apply(&begin).unwrap();
    for step in 0..1000 {
        long = long.apply(&append("a", step, 0, step, Some(0.1))).unwrap();
    }
    let bytes = whole_to_bytes(&long);
    assert!(bytes.len() < 1000 * 80, "{} bytes for 1000 blocks and steps", bytes.len());
}

/// A manifest of one block in the format before pieces had front lengths and boxes.
fn without_boxes() -> Vec<u8> {
    let mut writer = Writer::default();
    writer.plain(&[MANIFEST_WITHOUT_BOXES, 1]);
    writer.plain(&7_u128.to_be_bytes());
    writer.count(1);
    writer.text("a");
    [5, 1, 1].iter().for_each(|&number| writer.number(number));
    // The object, its part, its form, all weights, rows, bytes, run, one step, born, clean to.
    writer.plain(&[0, 9, 0, 0, 0, 0, 10, 99, 1, 3, 1, 1, 2, 3]);
    [0, 0, 0].iter().for_each(|&count| writer.count(count));
    writer.into_bytes()
}

#[test]
fn a_manifest_from_before_there_were_boxes_is_read_and_its_pieces_have_none() {
    let Whole::Manifest(manifest) = whole_from_bytes("t", &without_boxes()).unwrap() else { panic!() };
    let piece = &manifest.pieces.values().next().unwrap().piece;
    assert_eq!((piece.object, piece.rows, piece.bytes), (object(7, 9), 10, 99));
    assert_eq!((piece.front_bytes, &piece.tight, piece.extent.steps), (0, &None, StepRange::only(3)));
    let newer = [&[6][..], &without_boxes()[1..]].concat();
    let error = whole_from_bytes("t", &newer).unwrap_err();
    assert!(error.to_string().contains("format"), "{error}");
}

#[test]
fn a_manifest_without_added_columns_is_written_as_before_there_were_any() {
    let with = rich();
    let without = Manifest { columns: Arc::default(), ..with.clone() };
    assert_eq!((whole_to_bytes(&with)[0], whole_to_bytes(&without)[0]), (MANIFEST_WITH_COLUMNS, MANIFEST));
    let Whole::Manifest(read) = whole_from_bytes("t", &whole_to_bytes(&without)).unwrap() else { panic!() };
    assert_eq!(read, without);
}

#[test]
fn damaged_bytes_are_an_error_or_another_manifest_and_never_a_panic() {
    let bytes = whole_to_bytes(&rich());
    for cut in 0..bytes.len() {
        assert!(whole_from_bytes("t", &bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(whole_from_bytes("t", &[bytes.as_slice(), b"x"].concat()).is_err(), "longer");
    for place in 1..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << bit;
            let _ = whole_from_bytes("t", &flipped);
        }
    }
}

#[test]
fn the_names_of_parts_come_back() {
    let name = object(u128::MAX, 1 << 40);
    assert_eq!(whole_from_bytes("t", &join_whole(name, 3)).unwrap(), Whole::Parts(name, 3));
    assert!(whole_from_bytes("t", &join_whole(name, 3)[..18]).is_err());
}

#[test]
fn a_manifest_that_the_first_tables_wrote_is_read_as_before() {
    let session = "0000000000000000000000000000002a";
    let text = format!(
        r#"{{"format":1,"version":5,"floor":1,
        "pieces":[{{"piece":{{"object":["{session}",1],"part":0,"weights":[0,null],"rows":10,"run":"a","steps":[3,4]}},
                   "born":2,"clean_to":3}}],
        "runs":{{"a":{{"attempt":1,"ranks":2,"published":3,"complete":[[3,1]],"arriving":[[4,[[0,null]]]]}}}},
        "tombstones":[],"retired":[[["{session}",9],1,2]]}}"#
    );
    let Whole::Manifest(manifest) = whole_from_bytes("t", text.as_bytes()).unwrap() else { panic!() };
    let run = &manifest.runs["a"];
    let step = Published { attempt: 1, time: None, rows: 10, is_deleted: false };
    assert_eq!(run.complete.iter().collect::<Vec<_>>(), [(&3, &step)]);
    assert_eq!(
        (run.arriving[&4][&0].clone(), run.published),
        (Arrived { time: None, placed: None }, Some(3))
    );
    let piece = &manifest.pieces.values().next().unwrap().piece;
    assert_eq!((piece.object, piece.form, piece.bytes), (object(42, 1), Form::Block, 0));
    assert_eq!((manifest.version, manifest.floor), (Version(5), Version(1)));
    assert!(manifest.busy.contains("a") && manifest.steps == 1 && manifest.retired.len() == 1);
}

#[test]
fn a_manifest_in_billions_of_parts_is_refused() {
    let unreadable = whole_from_bytes("t", &join_whole(object(1, 2), u32::MAX)).unwrap_err();
    assert!(matches!(unreadable, TableError::Damaged { .. }), "{unreadable}");
}
