//! `--rename FROM=TO`: other names for the columns of a file, as it is read or written.

use super::parse_pair;
use crate::Failure;
use crate::row_format::did_you_mean;
use arrow_schema::{FieldRef, Fields};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The value of one `--rename`: a pair, or several separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Renames(Vec<(String, String)>);

/// A name may contain a comma: it separates pairs only if every piece is a pair.
pub(super) fn parse_renames(text: &str) -> Result<Renames, String> {
    match text.split(',').map(parse_pair).collect::<Result<Vec<_>, _>>() {
        Ok(pairs) => Ok(Renames(pairs)),
        Err(_) => parse_pair(text).map(|pair| Renames(vec![pair])),
    }
}

/// The pairs of all flags.
pub(super) fn pairs_of(typed: &[Renames]) -> Vec<(String, String)> {
    typed.iter().flat_map(|Renames(pairs)| pairs).cloned().collect()
}

/// The columns of an answer under the names that they have in a file. Refuses names that no column has, and
/// columns that would not be told apart.
pub(super) fn renamed(columns: &Fields, pairs: &[(String, String)]) -> Result<Fields, Failure> {
    let names: Vec<String> = columns.iter().map(|field| field.name().clone()).collect();
    let mut known = BTreeSet::new();
    for (from, _) in pairs {
        if !names.contains(from) {
            return Err(Failure::Usage {
                problem: format!("--rename names \"{from}\", which is not a column of the file"),
                hint: did_you_mean(from, &names),
            });
        }
        if !known.insert(from) {
            return Err(Failure::Usage {
                problem: format!("--rename gives column \"{from}\" two names"),
                hint: "give each column one name".to_owned(),
            });
        }
    }
    let under = |field: &FieldRef| match new_name(field.name(), pairs) {
        Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
        None => Arc::clone(field),
    };
    let renamed: Vec<FieldRef> = columns.iter().map(under).collect();
    let mut taken = BTreeSet::new();
    let twice = renamed.iter().map(|field| field.name().clone()).find(|name| !taken.insert(name.clone()));
    match twice {
        Some(twice) => Err(Failure::Usage {
            problem: format!("with --rename, two columns would be called \"{twice}\""),
            hint: "choose another name, rename the other column too, or leave it out with --columns"
                .to_owned(),
        }),
        None => Ok(renamed.into()),
    }
}

/// The columns along the axes of a box under their names in the file. An axis may be an element of vectors,
/// such as `pos[0]`.
///
/// Refuses to take a column for an axis that only got its name, if the box depends on the rows along it.
pub(super) fn axes_in_file(
    axes: &[String],
    columns: &Fields,
    pairs: &[(String, String)],
    asks_rows: impl Fn(usize) -> bool,
) -> Result<Vec<String>, Failure> {
    let is_of = |axis: &str, column: &str| {
        axis.strip_prefix(column).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
    };
    for (place, axis) in axes.iter().enumerate() {
        let is_written = columns.iter().any(|field| is_of(axis, field.name()));
        if !is_written && asks_rows(place) && pairs.iter().any(|(_, to)| is_of(axis, to)) {
            return Err(Failure::Usage {
                problem: format!(
                    "the box of a LAMMPS dump spans the column \"{axis}\", which is not written, and --rename gives its \
                     name to another"
                ),
                hint: format!("add {axis} to --columns, or give the box, such as --bounds 0:10,0:10,0:10"),
            });
        }
    }
    Ok(axes.iter().map(|axis| name_in_file(axis, pairs)).collect())
}

fn name_in_file(column: &str, pairs: &[(String, String)]) -> String {
    if let Some(name) = new_name(column, pairs) {
        return name.to_owned();
    }
    let vector = column.strip_suffix(']').and_then(|inside| inside.rsplit_once('['));
    match vector.and_then(|(vector, element)| Some((new_name(vector, pairs)?, element))) {
        Some((name, element)) => format!("{name}[{element}]"),
        None => column.to_owned(),
    }
}

fn new_name<'p>(column: &str, pairs: &'p [(String, String)]) -> Option<&'p str> {
    pairs.iter().find(|(from, _)| from == column).map(|(_, to)| to.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_schema::{DataType, Field};

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect()
    }

    fn fields(names: &[&str]) -> Fields {
        names.iter().map(|name| Field::new(*name, DataType::Int64, false)).collect()
    }

    #[test]
    fn names_may_change_places_and_no_two_columns_may_have_one() {
        let columns = fields(&["a", "b", "c"]);
        let names = |given: &[(&str, &str)]| {
            let fields = renamed(&columns, &pairs(given))?;
            Ok::<_, Failure>(fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names(&[]).unwrap(), "a b c");
        assert_eq!(names(&[("a", "b"), ("b", "a")]).unwrap(), "b a c");
        assert_eq!(names(&[("a", "b"), ("b", "d")]).unwrap(), "b d c");
        for (given, told) in [
            (&[("d", "e")][..], "\"d\", which is not a column"),
            (&[("a", "b")][..], "two columns would be called \"b\""),
            (&[("a", "x"), ("c", "x")][..], "two columns would be called \"x\""),
            (&[("a", "x"), ("a", "y")][..], "column \"a\" two names"),
        ] {
            let refused = names(given).unwrap_err();
            let is_usage = matches!(refused, Failure::Usage { .. });
            assert!(is_usage && refused.to_string().contains(told), "{refused}");
        }
    }

    #[test]
    fn an_element_of_a_vector_has_the_name_of_its_vector() {
        let given = pairs(&[("pos", "r"), ("x", "xu"), ("v[1]", "vy")]);
        let names = ["pos[0]", "pos", "x", "v[1]", "v[0]", "y", "]", "[0]"];
        let in_file = names.map(|name| name_in_file(name, &given));
        assert_eq!(in_file, ["r[0]", "r", "xu", "vy", "v[0]", "y", "]", "[0]"]);
    }

    #[test]
    fn a_column_that_got_the_name_of_an_axis_is_no_axis() {
        let axes = |axes: &[&str], written: &[&str], given: &[(&str, &str)]| {
            let axes: Vec<String> = axes.iter().map(|axis| (*axis).to_owned()).collect();
            axes_in_file(&axes, &fields(written), &pairs(given), |_| true)
        };
        let exchanged =
            axes(&["x", "pos[1]"], &["x", "vx", "pos"], &[("x", "vx"), ("vx", "x"), ("pos", "r")]);
        assert_eq!(exchanged.unwrap(), ["vx", "r[1]"]);
        // Whether the box needs the column is decided later.
        assert_eq!(axes(&["x"], &["vx"], &[("vx", "v")]).unwrap(), ["x"]);
        let refused = axes(&["x"], &["vx"], &[("vx", "x")]).unwrap_err();
        assert!(refused.to_string().contains("spans the column \"x\", which is not written"), "{refused}");
        assert!(axes(&["pos[1]"], &["v"], &[("v", "pos")]).is_err());
        // A periodic cell is not that of the rows: positions beyond it may have its names.
        let (named, unwrapped) = (["x".to_owned()], pairs(&[("xu", "x")]));
        assert_eq!(axes_in_file(&named, &fields(&["xu"]), &unwrapped, |_| false).unwrap(), ["x"]);
    }

    #[test]
    fn commas_stand_between_pairs_and_within_names() {
        let parsed = |text| parse_renames(text).map(|renames| pairs_of(&[renames]));
        let pairs = |given: &[(&str, &str)]| Ok(pairs(given));
        assert_eq!(parsed("id=pid"), pairs(&[("id", "pid")]));
        assert_eq!(parsed("id=pid,n=step"), pairs(&[("id", "pid"), ("n", "step")]));
        assert_eq!(parsed("x,y=pos"), pairs(&[("x,y", "pos")]));
        assert_eq!(parsed("id=a,b"), pairs(&[("id", "a,b")]));
        for wrong in ["", "id", "id=", "=pid", "id,n"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
