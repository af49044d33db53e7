//! Edits as JSON.

use super::{FORMAT, FORMAT_NEWEST, TableError, damaged, from_json, to_json};
use crate::protocol::{
    AddedColumn, Block, BlockId, Edit, EditId, Extent, Form, LastStep, LoadedStep, ObjectId, Piece, Removal,
    RunId, Scope, SessionId, StepRange, StepTime, TightBox, Version, WeightRange,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(super) struct StoredPiece {
    object: (String, u64),
    part: u32,
    #[serde(default, skip_serializing_if = "is_block")]
    form: StoredForm,
    weights: (u64, Option<u64>),
    rows: u64,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    front: u64,
    /// A tight box, two hexadecimal digits per byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tight: Option<String>,
    run: Option<String>,
    steps: (u64, Option<u64>),
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredForm {
    #[default]
    Block,
    Cube,
}

fn is_block(form: &StoredForm) -> bool {
    *form == StoredForm::Block
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredScope {
    run: Option<String>,
    steps: (u64, Option<u64>),
    expression: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredBlock {
    run: String,
    attempt: u64,
    step: u64,
    rank: u32,
    /// The bits of an `f64`, so that every time survives unchanged, including infinities and NaN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<u64>,
    piece: Option<StoredPiece>,
}

#[derive(Serialize, Deserialize)]
struct StoredStep {
    step: u64,
    rows: u64,
    /// As in a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct StoredRemoval {
    object: (String, u64),
    part: u32,
    weights: (u64, Option<u64>),
    rows: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredEdit {
    Begin { run: String, attempt: u64, ranks: u32 },
    Append { blocks: Vec<StoredBlock> },
    Load { run: String, attempt: u64, steps: Vec<StoredStep>, add: Vec<StoredPiece> },
    Pack { base: u64, remove: Vec<StoredRemoval>, add: Vec<StoredPiece>, dropped: u64 },
    Delete { scope: StoredScope },
    RaiseFloor { to: u64 },
    Forget { objects: Vec<(String, u64)> },
    AddColumn { name: String, column: String },
}

#[derive(Serialize, Deserialize)]
struct StoredNamedEdit {
    format: u64,
    session: String,
    sequence: u64,
    edit: StoredEdit,
}

pub(in crate::table) fn edit_to_json(id: EditId, edit: &Edit) -> String {
    let session = session_name(id.session);
    // A release that does not know the edit reports it as newer, rather than as damage.
    let format = match edit {
        Edit::Load { .. } | Edit::AddColumn { .. } => FORMAT_NEWEST,
        _ => FORMAT,
    };
    to_json(&StoredNamedEdit { format, session, sequence: id.sequence, edit: edit.into() })
}

pub(in crate::table) fn edit_from_json(table: &str, text: &[u8]) -> Result<(EditId, Edit), TableError> {
    let stored: StoredNamedEdit = from_json(table, "an edit", text)?;
    let session = session_of(&stored.session).ok_or_else(|| damaged(table, "an edit has no session"))?;
    let edit = edit_of(stored.edit).ok_or_else(|| damaged(table, "an edit names no object"))?;
    Ok((EditId { session, sequence: stored.sequence }, edit))
}

impl From<&Piece> for StoredPiece {
    fn from(piece: &Piece) -> Self {
        Self {
            object: object_name(piece.object),
            part: piece.part,
            form: match piece.form {
                Form::Block => StoredForm::Block,
                Form::Cube => StoredForm::Cube,
            },
            weights: (piece.weights.from, piece.weights.to),
            rows: piece.rows,
            bytes: piece.bytes,
            front: piece.front_bytes,
            tight: piece.tight.as_ref().map(|tight| digits(&tight.0)),
            run: piece.extent.run.as_ref().map(|run| run.0.to_string()),
            steps: (piece.extent.steps.from, piece.extent.steps.to),
        }
    }
}

pub(super) fn piece_of(stored: StoredPiece) -> Option<Piece> {
    let tight = match stored.tight {
        Some(digits) => Some(TightBox(bytes_of(&digits)?.into())),
        None => None,
    };
    Some(Piece {
        object: object_of(&stored.object)?,
        part: stored.part,
        form: match stored.form {
            StoredForm::Block => Form::Block,
            StoredForm::Cube => Form::Cube,
        },
        weights: weights_of(stored.weights),
        rows: stored.rows,
        bytes: stored.bytes,
        front_bytes: stored.front,
        extent: Extent { run: stored.run.as_deref().map(RunId::from), steps: steps_of(stored.steps) },
        tight,
    })
}

impl From<&Scope> for StoredScope {
    fn from(scope: &Scope) -> Self {
        Self {
            run: scope.run.as_ref().map(|run| run.0.to_string()),
            steps: (scope.steps.from, scope.steps.to),
            expression: scope.expression.as_deref().map(str::to_owned),
        }
    }
}

pub(super) fn scope_of(stored: StoredScope) -> Scope {
    Scope {
        run: stored.run.as_deref().map(RunId::from),
        steps: steps_of(stored.steps),
        expression: stored.expression.map(Into::into),
    }
}

impl From<&Edit> for StoredEdit {
    fn from(edit: &Edit) -> Self {
        match edit {
            // A stored edit was committed, so its condition on the version before held.
            Edit::Begin { run, attempt, ranks, last: _ } => {
                Self::Begin { run: run.0.to_string(), attempt: *attempt, ranks: *ranks }
            }
            Edit::Append { blocks } => Self::Append { blocks: blocks.iter().map(stored_block).collect() },
            Edit::Load { run, attempt, steps, add } => Self::Load {
                run: run.0.to_string(),
                attempt: *attempt,
                steps: steps.iter().map(stored_step).collect(),
                add: add.iter().map(Into::into).collect(),
            },
            Edit::Pack { base, remove, add, dropped } => Self::Pack {
                base: base.0,
                remove: remove.iter().map(stored_removal).collect(),
                add: add.iter().map(Into::into).collect(),
                dropped: *dropped,
            },
            Edit::Delete { scope } => Self::Delete { scope: scope.into() },
            Edit::RaiseFloor { to } => Self::RaiseFloor { to: to.0 },
            Edit::Forget { objects } => {
                Self::Forget { objects: objects.iter().map(|object| object_name(*object)).collect() }
            }
            Edit::AddColumn { column } => {
                Self::AddColumn { name: column.name.to_string(), column: column.text.to_string() }
            }
        }
    }
}

fn stored_block(block: &Block) -> StoredBlock {
    let BlockId { run, attempt, step, rank } = &block.id;
    let (time, piece) = (block.time.map(|time| time.0), block.piece.as_ref().map(Into::into));
    StoredBlock { run: run.0.to_string(), attempt: *attempt, step: *step, rank: *rank, time, piece }
}

fn stored_step(step: &LoadedStep) -> StoredStep {
    StoredStep { step: step.step, rows: step.rows, time: step.time.map(|time| time.0) }
}

fn step_of(stored: &StoredStep) -> LoadedStep {
    LoadedStep { step: stored.step, rows: stored.rows, time: stored.time.map(StepTime) }
}

fn stored_removal(removal: &Removal) -> StoredRemoval {
    StoredRemoval {
        object: object_name(removal.object),
        part: removal.part,
        weights: (removal.weights.from, removal.weights.to),
        rows: removal.rows,
    }
}

fn edit_of(stored: StoredEdit) -> Option<Edit> {
    Some(match stored {
        StoredEdit::Begin { run, attempt, ranks } => {
            Edit::Begin { run: run.as_str().into(), attempt, ranks, last: LastStep::Any }
        }
        StoredEdit::Append { blocks } => {
            Edit::Append { blocks: blocks.into_iter().map(block_of).collect::<Option<_>>()? }
        }
        StoredEdit::Load { run, attempt, steps, add } => Edit::Load {
            run: run.as_str().into(),
            attempt,
            steps: steps.iter().map(step_of).collect(),
            add: add.into_iter().map(piece_of).collect::<Option<_>>()?,
        },
        StoredEdit::Pack { base, remove, add, dropped } => Edit::Pack {
            base: Version(base),
            remove: remove.into_iter().map(removal_of).collect::<Option<_>>()?,
            add: add.into_iter().map(piece_of).collect::<Option<_>>()?,
            dropped,
        },
        StoredEdit::Delete { scope } => Edit::Delete { scope: scope_of(scope) },
        StoredEdit::RaiseFloor { to } => Edit::RaiseFloor { to: Version(to) },
        StoredEdit::Forget { objects } => {
            Edit::Forget { objects: objects.iter().map(object_of).collect::<Option<_>>()? }
        }
        StoredEdit::AddColumn { name, column } => {
            Edit::AddColumn { column: AddedColumn { name: name.into(), text: column.into() } }
        }
    })
}

fn block_of(stored: StoredBlock) -> Option<Block> {
    let piece = match stored.piece {
        Some(piece) => Some(piece_of(piece)?),
        None => None,
    };
    let run = stored.run.as_str().into();
    let id = BlockId { run, attempt: stored.attempt, step: stored.step, rank: stored.rank };
    Some(Block { id, time: stored.time.map(StepTime), piece })
}

fn removal_of(stored: StoredRemoval) -> Option<Removal> {
    let object = object_of(&stored.object)?;
    Some(Removal { object, part: stored.part, weights: weights_of(stored.weights), rows: stored.rows })
}

fn weights_of((from, to): (u64, Option<u64>)) -> WeightRange {
    WeightRange { from, to }
}

fn steps_of((from, to): (u64, Option<u64>)) -> StepRange {
    StepRange { from, to }
}

fn object_name(object: ObjectId) -> (String, u64) {
    (session_name(object.session), object.sequence)
}

pub(super) fn object_of((session, sequence): &(String, u64)) -> Option<ObjectId> {
    Some(ObjectId { session: session_of(session)?, sequence: *sequence })
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.len().is_multiple_of(2).then(|| digits.as_bytes().chunks(2).map(byte).collect())?
}

fn session_name(session: SessionId) -> String {
    format!("{:032x}", session.0)
}

fn session_of(name: &str) -> Option<SessionId> {
    u128::from_str_radix(name, 16).ok().map(SessionId)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(steps: StepRange) -> Piece {
        Piece {
            object: ObjectId { session: SessionId(7), sequence: 3 },
            part: 0,
            form: Form::Cube,
            weights: WeightRange { from: 5, to: None },
            rows: 30,
            bytes: 4096,
            front_bytes: 512,
            extent: Extent { run: Some("a".into()), steps },
            tight: Some(TightBox(vec![1, 171].into())),
        }
    }

    #[test]
    fn edits_are_stored_in_bytes_that_stay_the_same() {
        let (run, time) = (RunId::from("a"), Some(StepTime::from(0.5)));
        let id = EditId { session: SessionId(7), sequence: 4 };
        let step = |step, time| LoadedStep { step, time, rows: 15 };
        let steps = vec![step(1, time), step(2, None)];
        let load = Edit::Load {
            run: run.clone(),
            attempt: 1,
            steps,
            add: vec![piece(StepRange { from: 1, to: Some(3) })],
        };
        let block = BlockId { run: run.clone(), attempt: 1, step: 3, rank: 2 };
        let empty = Block { id: block, time, piece: None };
        let column = AddedColumn { name: "charge".into(), text: "{}".into() };
        let head = |format| {
            format!(
                r#"{{"format":{format},"session":"00000000000000000000000000000007","sequence":4,"edit":"#
            )
        };
        let object = r#"["00000000000000000000000000000007",3]"#;
        let loaded = format!(
            r#"{{"load":{{"run":"a","attempt":1,"steps":[{{"step":1,"rows":15,"time":4602678819172646912}},{{"step":2,"rows":15}}],"add":[{{"object":{object},"part":0,"form":"cube","weights":[5,null],"rows":30,"bytes":4096,"front":512,"tight":"01ab","run":"a","steps":[1,3]}}]}}}}"#
        );
        let appended = r#"{"append":{"blocks":[{"run":"a","attempt":1,"step":3,"rank":2,"time":4602678819172646912,"piece":null}]}}"#;
        let begin = |last| Edit::Begin { run: run.clone(), attempt: 1, ranks: 3, last };
        // Earlier releases can read an edit that was made with a condition.
        assert_eq!(edit_to_json(id, &begin(LastStep::Is(Some(5)))), edit_to_json(id, &begin(LastStep::Any)));
        let cases = [
            (2, load, loaded.as_str()),
            (1, Edit::Append { blocks: vec![empty] }, appended),
            (1, begin(LastStep::Any), r#"{"begin":{"run":"a","attempt":1,"ranks":3}}"#),
            (2, Edit::AddColumn { column }, r#"{"add-column":{"name":"charge","column":"{}"}}"#),
        ];
        for (format, edit, text) in cases {
            let stored = edit_to_json(id, &edit);
            assert_eq!(stored, format!("{}{text}}}", head(format)));
            assert_eq!(edit_from_json("run", stored.as_bytes()).unwrap(), (id, edit));
        }
    }
}
