//! The box of a snapshot, `ITEM: BOX BOUNDS`: given, periodic, or as far as the rows reach.

use super::layout::doubles;
use crate::RowFileError;
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Schema};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The ends of an axis that the rows do not have, as in a simulation of two dimensions.
const FLAT: (f64, f64) = (-0.5, 0.5);

/// How far a box reaches beyond rows that all have one position along an axis: LAMMPS refuses a box without
/// thickness.
const MARGIN: f64 = 0.5;

/// One axis of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum AxisBounds {
    /// The box repeats along the axis, from one end to the other.
    Periodic(f64, f64),
    /// The box has these ends.
    Fixed(f64, f64),
    /// The box reaches as far as the rows of the snapshot.
    #[default]
    OfRows,
}

/// The box of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SnapshotBox {
    /// Its axes: x, y and z.
    pub axes: [AxisBounds; 3],
    /// The tilts xy, xz and yz of its edges, as in LAMMPS; zeros for an upright box.
    pub tilts: [f64; 3],
}

/// The boxes of the snapshots of a LAMMPS dump.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotBoxes {
    /// The columns of positions along x, y and z: numbers, or elements of vectors, written `pos[0]`.
    pub axes: Vec<String>,
    /// The box of all steps that have none of their own.
    pub all: SnapshotBox,
    /// The boxes of steps by their numbers.
    pub of_steps: BTreeMap<u64, SnapshotBox>,
}

impl SnapshotBoxes {
    /// The box of a step.
    pub(super) fn of_step(&self, step: i128) -> &SnapshotBox {
        u64::try_from(step).ok().and_then(|step| self.of_steps.get(&step)).unwrap_or(&self.all)
    }

    /// Whether a box may depend on the positions along an axis.
    #[must_use]
    pub fn asks_rows(&self, axis: usize) -> bool {
        let is_of_rows = |one: &SnapshotBox| one.axes.get(axis) == Some(&AxisBounds::OfRows);
        is_of_rows(&self.all) || self.of_steps.values().any(is_of_rows)
    }
}

/// The column, or the element of its vectors, with the positions along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    place: usize,
    element: Option<usize>,
}

impl Axis {
    /// The columns of the three axes. Refuses to write boxes that depend on a column which is not there.
    pub(super) fn all(schema: &Schema, boxes: &SnapshotBoxes) -> Result<[Option<Self>; 3], RowFileError> {
        let mut axes = [None; 3];
        for (axis, (found, name)) in axes.iter_mut().zip(&boxes.axes).enumerate() {
            *found = Self::named(schema, name);
            if found.is_none() && boxes.asks_rows(axis) {
                return Err(RowFileError::Unsupported {
                    what: format!(
                        "the box of a LAMMPS dump spans its positions, and \"{name}\" is not among the columns"
                    ),
                    hint: "add it to --columns, or give the box, such as --bounds 0:10,0:10,0:10",
                });
            }
        }
        Ok(axes)
    }

    fn named(schema: &Schema, name: &str) -> Option<Self> {
        if let Some((place, field)) = schema.column_with_name(name) {
            return field.data_type().is_numeric().then_some(Self { place, element: None });
        }
        let (vector, element) = name.strip_suffix(']')?.rsplit_once('[')?;
        let element: usize = element.parse().ok()?;
        let (place, field) = schema.column_with_name(vector)?;
        let DataType::FixedSizeList(item, len) = field.data_type() else { return None };
        let is_there = item.data_type().is_numeric() && usize::try_from(*len).is_ok_and(|len| element < len);
        is_there.then_some(Self { place, element: Some(element) })
    }

    /// The least and the greatest position of some rows, without those that are missing or not finite.
    fn span(self, rows: &RecordBatch) -> Result<Option<(f64, f64)>, ArrowError> {
        let column = rows.column(self.place);
        let (values, from, each) = match (self.element, column.as_fixed_size_list_opt()) {
            (Some(element), Some(vectors)) => {
                let each = usize::try_from(vectors.value_length()).unwrap_or(1).max(1);
                let values = vectors.values().slice(vectors.value_offset_at(0), vectors.len() * each);
                (values, element, each)
            }
            _ => (column.clone(), 0, 1),
        };
        if let Some(singles) = values.as_primitive_opt::<Float32Type>() {
            let own = singles.iter().flatten().skip(from).step_by(each);
            let span = span_of(own.filter(|value| value.is_finite()));
            return Ok(span.map(|(low, high)| (as_written(low), as_written(high))));
        }
        let values = cast(&values, &DataType::Float64)?;
        // With a null among them the elements cannot be told apart by their places. Such rows are refused
        // when they are written.
        let own = doubles(&values).into_iter().skip(from).step_by(each);
        Ok(span_of(own.filter(|value| value.is_finite())))
    }
}

/// The least and the greatest of some finite values.
fn span_of<T: Copy + PartialOrd>(values: impl Iterator<Item = T>) -> Option<(T, T)> {
    values.fold(None, |span: Option<(T, T)>, value| {
        let (low, high) = span.unwrap_or((value, value));
        Some((if value < low { value } else { low }, if value > high { value } else { high }))
    })
}

/// The number that a reader finds in the line of a row: 0.1 is written for the single next to it, whose own
/// value is a little more.
fn as_written(single: f32) -> f64 {
    single.to_string().parse().unwrap_or_else(|_| f64::from(single))
}

/// The same span, or a wider one if it has no thickness. The next number may be further away than the margin
/// if the numbers are large.
fn with_thickness((low, high): (f64, f64)) -> (f64, f64) {
    let margin = MARGIN.max(low.abs() * f64::EPSILON);
    if low < high { (low, high) } else { (low - margin, high + margin) }
}

/// How far the rows of a snapshot reach along each axis.
#[derive(Debug)]
pub(super) struct Spans {
    axes: [Option<Axis>; 3],
    spans: [Option<(f64, f64)>; 3],
}

impl Spans {
    pub(super) fn of(axes: &[Option<Axis>; 3]) -> Self {
        Self { axes: *axes, spans: [None; 3] }
    }

    /// Adds some rows.
    pub(super) fn add(&mut self, rows: &RecordBatch) -> Result<(), ArrowError> {
        for (axis, span) in self.axes.iter().zip(&mut self.spans) {
            let Some(axis) = axis else { continue };
            let Some((low, high)) = axis.span(rows)? else { continue };
            *span = Some(span.map_or((low, high), |(least, most)| (low.min(least), high.max(most))));
        }
        Ok(())
    }
}

impl SnapshotBox {
    /// Writes `ITEM: BOX BOUNDS` and its three lines.
    pub(super) fn write(&self, spans: &Spans, text: &mut String) {
        let [xy, xz, yz] = self.tilts;
        let is_tilted = self.tilts != [0.0; 3];
        // The bounds of a tilted box are those of the upright box around it.
        let least = |tilts: &[f64]| tilts.iter().copied().fold(0.0, f64::min);
        let most = |tilts: &[f64]| tilts.iter().copied().fold(0.0, f64::max);
        let (along_x, along_y) = ([xy, xz, xy + xz], [yz]);
        let around = [(least(&along_x), most(&along_x)), (least(&along_y), most(&along_y)), (0.0, 0.0)];
        let ends = |axis: usize| {
            let (below, above) = around.get(axis).copied().unwrap_or_default();
            match self.axes.get(axis).copied().unwrap_or_default() {
                AxisBounds::Periodic(low, high) => ("pp", low + below, high + above),
                AxisBounds::Fixed(low, high) => ("ff", low + below, high + above),
                AxisBounds::OfRows => {
                    let is_flat = spans.axes.get(axis).is_none_or(Option::is_none);
                    let span = spans.spans.get(axis).copied().flatten();
                    let (low, high) = span.map_or(FLAT, with_thickness);
                    // Tilted edges take the rows at their far ends along, so the box itself has to reach as
                    // far again on the other side.
                    (if is_flat { "pp" } else { "ss" }, low + below - above, high + above - below)
                }
            }
        };
        let lines = [(ends(0), xy), (ends(1), xz), (ends(2), yz)];
        text.push_str("ITEM: BOX BOUNDS");
        text.push_str(if is_tilted { " xy xz yz" } else { "" });
        for ((kind, ..), _) in lines {
            text.push(' ');
            text.push_str(kind);
        }
        text.push('\n');
        for ((_, low, high), tilt) in lines {
            // Writing into a text cannot fail.
            let _ = match is_tilted {
                true => writeln!(text, "{low:?} {high:?} {tilt:?}"),
                false => writeln!(text, "{low:?} {high:?}"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Float32Array};
    use std::sync::Arc;

    fn written(one: SnapshotBox) -> String {
        let spans = Spans {
            axes: [Some(Axis { place: 0, element: None }), Some(Axis { place: 1, element: None }), None],
            spans: [Some((-1.5, 2.0)), None, None],
        };
        let mut text = String::new();
        one.write(&spans, &mut text);
        text
    }

    #[test]
    fn a_box_that_nobody_gave_reaches_as_far_as_the_rows_and_is_flat_where_they_have_no_axis() {
        assert_eq!(
            written(SnapshotBox::default()),
            // LAMMPS refuses a box whose ends are one, so the y axis, which has no rows, is a unit thick too.
            "ITEM: BOX BOUNDS ss ss pp\n-1.5 2.0\n-0.5 0.5\n-0.5 0.5\n"
        );
    }

    #[test]
    fn a_box_has_a_thickness_wherever_its_rows_lie() {
        for place in [0.0, -3.0, 1e15, -1e17, 1e300] {
            let (low, high) = with_thickness((place, place));
            assert!(low < place && place < high, "{place}: {low} {high}");
        }
        assert_eq!(with_thickness((2.0, 2.0)), (1.5, 2.5));
        assert_eq!(with_thickness((2.0, 2.125)), (2.0, 2.125));
    }

    #[test]
    fn a_tilted_box_that_reaches_as_far_as_the_rows_holds_all_of_them() {
        let axes = [AxisBounds::OfRows, AxisBounds::Periodic(0.0, 10.0), AxisBounds::Periodic(0.0, 1.0)];
        let text = written(SnapshotBox { axes, tilts: [2.0, -3.0, 0.0] });
        // Readers take 0 + min(0, 2, -3, -1) and 0 + max(0, 2, -3, -1) off again: x from -3.5 to 5 at the
        // bottom, and from -1.5 to 7 at the far end of y, which is tilted by 2.
        assert!(text.starts_with("ITEM: BOX BOUNDS xy xz yz ss pp pp\n-6.5 7.0 2.0\n"), "{text}");
        let (low, high) = (-6.5 + 3.0, 7.0 - 2.0);
        for tilt in [0.0, 2.0, -3.0, -1.0] {
            assert!(low + tilt <= -1.5 && high + tilt >= 2.0, "{tilt}");
        }
    }

    #[test]
    fn a_box_of_singles_spans_what_is_written_of_them() {
        let values = vec![0.1_f32, 0.7, f32::NAN, -0.3, f32::INFINITY];
        let column: ArrayRef = Arc::new(Float32Array::from(values));
        let rows = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let axis = Axis { place: 0, element: None };
        assert_eq!(axis.span(&rows).unwrap(), Some((-0.3, 0.7)));
    }

    #[test]
    fn a_tilted_box_is_told_by_the_upright_one_around_it() {
        let axes = [AxisBounds::Periodic(0.0, 10.0), AxisBounds::Fixed(0.0, 1e300), AxisBounds::OfRows];
        let tilted = SnapshotBox { axes, tilts: [2.0, -3.0, 1.0] };
        // x from 0 + min(0, 2, -3, -1) to 10 + max(0, 2, -3, -1).
        assert_eq!(
            written(tilted),
            "ITEM: BOX BOUNDS xy xz yz pp ff pp\n-3.0 12.0 2.0\n0.0 1e300 -3.0\n-0.5 0.5 1.0\n"
        );
    }

    #[test]
    fn a_step_may_have_a_box_of_its_own() {
        let own = SnapshotBox { axes: [AxisBounds::Fixed(0.0, 1.0); 3], tilts: [0.0; 3] };
        let boxes = SnapshotBoxes { of_steps: BTreeMap::from([(7, own)]), ..SnapshotBoxes::default() };
        assert_eq!((boxes.of_step(7), boxes.of_step(8), boxes.of_step(-7)), (&own, &boxes.all, &boxes.all));
    }
}
