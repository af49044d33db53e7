//! Compact encoding of the bounding boxes of pieces: some 30 bytes for three coordinates and a step.
//!
//! For each index column, a byte gives the kind of its values, plus [`INCOMPARABLE`] if some rows are null or
//! NaN; then follow the least and the greatest value. Integers are stored as the least value and the distance
//! to the greatest, floats as they are, in 32 bits if both values fit.
//!
//! Invariant: a box that cannot be read counts as absent, and every query opens a piece without a box.

use super::bytes::{Reader, Writer};
use crate::lattice::{Extent, Scalar};
use crate::planted::{self, Bug};
use crate::protocol::TightBox;

/// No row has a value that compares.
const NOTHING: u8 = 0;
const SIGNED: u8 = 1;
const UNSIGNED: u8 = 2;
const HALF_FLOATS: u8 = 3;
const FLOATS: u8 = 4;
/// A flag that is added to the kind.
const INCOMPARABLE: u8 = 8;

/// The box of rows with these extents, one per index column.
pub(in crate::table) fn tight_box(extents: &[Extent]) -> TightBox {
    let mut writer = Writer::default();
    for extent in extents {
        let kind = |kind: u8| [kind + if extent.has_incomparable() { INCOMPARABLE } else { 0 }];
        match extent.range() {
            Some((Scalar::Signed(least), Scalar::Signed(greatest))) => {
                writer.plain(&kind(SIGNED));
                // Zigzag: the sign goes to the lowest bit, so that numbers near zero are short.
                writer.number((least << 1 ^ least >> 63) as u64);
                let far = greatest.wrapping_sub(least) as u64;
                writer.number(far.saturating_sub(planted::is(Bug::BoxTooSmall).into()));
            }
            Some((Scalar::Unsigned(least), Scalar::Unsigned(greatest))) => {
                writer.plain(&kind(UNSIGNED));
                writer.number(least);
                writer.number(greatest.wrapping_sub(least));
            }
            Some((Scalar::Float(least), Scalar::Float(greatest))) => {
                let fits = |value: f64| f64::from(value as f32).to_bits() == value.to_bits();
                if fits(least) && fits(greatest) {
                    writer.plain(&kind(HALF_FLOATS));
                    [least, greatest].iter().for_each(|&value| writer.plain(&(value as f32).to_le_bytes()));
                } else {
                    writer.plain(&kind(FLOATS));
                    [least, greatest].iter().for_each(|value| writer.plain(&value.to_le_bytes()));
                }
            }
            // All values of a column are of one kind, so mixed ranges do not occur.
            Some(_) | None => writer.plain(&kind(NOTHING)),
        }
    }
    TightBox(writer.into_bytes().into())
}

/// Decodes the extents of a box.
pub(in crate::table) fn extents_of(tight: &TightBox) -> Option<Vec<Extent>> {
    let mut reader = Reader::new(&tight.0);
    let mut extents = Vec::new();
    while !reader.is_at_end() {
        extents.push(read_extent(&mut reader)?);
    }
    Some(extents)
}

fn read_extent(reader: &mut Reader<'_>) -> Option<Extent> {
    let kind = *reader.plain(1)?.first()?;
    let has_incomparable = kind & INCOMPARABLE != 0;
    let range = match kind & !INCOMPARABLE {
        NOTHING => None,
        SIGNED => {
            let (least, far) = (reader.number()?, reader.number()?);
            let least = (least >> 1) as i64 ^ -((least & 1) as i64);
            Some((Scalar::Signed(least), Scalar::Signed(least.checked_add_unsigned(far)?)))
        }
        UNSIGNED => {
            let (least, far) = (reader.number()?, reader.number()?);
            Some((Scalar::Unsigned(least), Scalar::Unsigned(least.checked_add(far)?)))
        }
        HALF_FLOATS => {
            let mut next = || Some(f32::from_le_bytes(reader.plain(4)?.try_into().ok()?));
            Some((Scalar::Float(next()?.into()), Scalar::Float(next()?.into())))
        }
        FLOATS => {
            let mut next = || Some(f64::from_le_bytes(reader.plain(8)?.try_into().ok()?));
            Some((Scalar::Float(next()?), Scalar::Float(next()?)))
        }
        _ => return None,
    };
    let is_in_order = range.is_none_or(|(least, greatest)| least <= greatest);
    is_in_order.then_some(Extent::new(range, has_incomparable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_comes_back_bit_by_bit_and_in_few_bytes() {
        let signed = |least, greatest| Some((Scalar::Signed(least), Scalar::Signed(greatest)));
        let float = |least, greatest| Some((Scalar::Float(least), Scalar::Float(greatest)));
        let ranges = [
            None,
            signed(-1, -1),
            signed(i64::MIN, i64::MAX),
            signed(0, 200),
            Some((Scalar::Unsigned(7), Scalar::Unsigned(u64::MAX))),
            float(-0.0, 0.5),
            float(f64::NEG_INFINITY, f64::INFINITY),
            float(0.1, 1e300),
        ];
        for has_incomparable in [false, true] {
            let extents = ranges.map(|range| Extent::new(range, has_incomparable));
            assert_eq!(extents_of(&tight_box(&extents)).unwrap(), extents);
        }
        let usual = [float(0.0, 1.0), float(-1.0, 1.0), float(0.25, 0.5), signed(100_000, 100_000)];
        let bytes = tight_box(&usual.map(|range| Extent::new(range, false))).0.len();
        assert!(bytes <= 32, "{bytes}");
    }

    #[test]
    fn what_is_no_box_is_none() {
        let extents = [Extent::new(Some((Scalar::Float(0.1), Scalar::Float(0.2))), false)];
        let bytes = tight_box(&extents).0;
        for cut in 1..bytes.len() {
            assert_eq!(extents_of(&TightBox(bytes[..cut].into())), None, "cut at {cut}");
        }
        let nan = [&[FLOATS][..], &f64::NAN.to_le_bytes(), &1f64.to_le_bytes()].concat();
        let inside_out = [&[HALF_FLOATS][..], &2f32.to_le_bytes(), &1f32.to_le_bytes()].concat();
        let too_far = [&[UNSIGNED][..], &[255; 9], &[1, 1]].concat();
        for bytes in [nan, inside_out, too_far, vec![5], vec![16]] {
            assert_eq!(extents_of(&TightBox(bytes.clone().into())), None, "{bytes:?}");
        }
    }
}
