//! The difference between two schemas, for a caller that asked for one and finds the other.

use super::notes::{TOLD, is_same_column};
use super::{TableSchema, TypeName};
use arrow_schema::Field;

impl TableSchema {
    /// The first difference between this schema and another; `None` if they are equal.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        self.first_difference(other, |mine, asked| mine == asked, |is, was| is == was)
    }

    /// The first difference that makes tables of the two schemas different tables. Of what is noted on a
    /// column, units and descriptions belong to a table; other texts are notes of libraries.
    pub(crate) fn difference_of_table(&self, other: &Self) -> Option<String> {
        let is_noted_alike = |mine: &Field, asked: &Field| {
            mine.data_type() == asked.data_type()
                && TOLD.iter().all(|&key| mine.metadata().get(key) == asked.metadata().get(key))
        };
        self.first_difference(other, is_noted_alike, |is, was| is == was)
    }

    /// The first difference for which a table of this schema cannot take the rows of one of the other. Of
    /// what is noted on a column, and of the times of steps, only two units that differ are one.
    pub(crate) fn difference_of_rows(&self, other: &Self) -> Option<String> {
        let is_time_alike = |is: Option<&str>, was: Option<&str>| is.is_none() || was.is_none() || is == was;
        self.first_difference(other, is_same_column, is_time_alike)
    }

    /// The first difference, where `is_noted_alike` judges the notes of columns of one name and type, and
    /// `is_time_alike` the units of the times of steps.
    fn first_difference(
        &self,
        other: &Self,
        is_noted_alike: impl Fn(&Field, &Field) -> bool,
        is_time_alike: impl Fn(Option<&str>, Option<&str>) -> bool,
    ) -> Option<String> {
        self.difference_of_columns(other, is_noted_alike).or_else(|| {
            let (mine, others) = (self.roles(), other.roles());
            let names = |what: &str, mine: &[String], others: &[String]| {
                (mine != others)
                    .then(|| format!("its {what} is {}, and not {}", mine.join(", "), others.join(", ")))
            };
            names("id", &mine.id, &others.id)
                .or_else(|| names("sample key", &mine.sample_key, &others.sample_key))
                .or_else(|| names("index", &mine.index, &others.index))
                .or_else(|| {
                    (mine.salt != others.salt)
                        .then(|| format!("its salt is {}, and not {}", mine.salt, others.salt))
                })
                .or_else(|| {
                    (self.has_unique_ids != other.has_unique_ids).then(|| match self.has_unique_ids {
                        true => "its ids are unique".to_owned(),
                        false => "its ids need not be unique".to_owned(),
                    })
                })
                .or_else(|| {
                    let told =
                        |unit: Option<&str>| unit.map_or("no unit".to_owned(), |unit| format!("\"{unit}\""));
                    let (is, was) = (self.time_unit(), other.time_unit());
                    (!is_time_alike(is, was))
                        .then(|| format!("the times of its steps have {}, and not {}", told(is), told(was)))
                })
        })
    }

    fn difference_of_columns(
        &self,
        other: &Self,
        is_noted_alike: impl Fn(&Field, &Field) -> bool,
    ) -> Option<String> {
        let (mine, others) = (self.columns().fields(), other.columns().fields());
        for field in mine {
            let Some((_, asked)) = others.find(field.name()) else {
                return Some(format!("it has a column \"{}\"", field.name()));
            };
            let (is, was) = (type_text(field), type_text(asked));
            if is != was {
                return Some(format!("column \"{}\" is {is} in it, and not {was}", field.name()));
            }
        }
        if let Some(asked) = others.iter().find(|asked| mine.find(asked.name()).is_none()) {
            return Some(format!("it has no column \"{}\"", asked.name()));
        }
        if mine.iter().zip(others).any(|(mine, other)| mine.name() != other.name()) {
            return Some("its columns are in another order".to_owned());
        }
        mine.iter()
            .zip(others)
            .find(|(mine, asked)| !is_noted_alike(mine, asked))
            .map(|(mine, asked)| difference_of_notes(mine, asked))
    }
}

/// The first difference between the notes of two columns of one name and type.
fn difference_of_notes(mine: &Field, asked: &Field) -> String {
    let name = mine.name();
    let told = |field: &Field, key: &str| match field.metadata().get(key) {
        Some(text) => format!("\"{text}\""),
        None => "none".to_owned(),
    };
    for key in TOLD {
        let (is, was) = (mine.metadata().get(key), asked.metadata().get(key));
        if is != was {
            return format!(
                "the {key} of column \"{name}\" is {}, and not {}",
                told(mine, key),
                told(asked, key)
            );
        }
    }
    format!("the notes of column \"{name}\" differ")
}

/// The type of a column as users write it, with a `?` if the column is nullable.
fn type_text(field: &Field) -> String {
    format!("{}{}", TypeName::told(field.data_type()), if field.is_nullable() { "?" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Roles, column};
    use arrow_schema::{DataType, Schema};
    use std::sync::Arc;

    fn schema(columns: Vec<Arc<Field>>, change: impl FnOnce(&mut Roles)) -> TableSchema {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut roles = Roles {
            id: names(&["pid", "step"]),
            sample_key: Vec::new(),
            index: names(&["x", "step"]),
            salt: 0,
        };
        change(&mut roles);
        TableSchema::new(Schema::new(columns), &roles).unwrap()
    }

    fn columns(x: DataType, nullable: bool) -> Vec<Arc<Field>> {
        let number = |name| column(name, DataType::Int64, false);
        vec![number("pid"), number("step"), column("x", x, nullable)]
    }

    #[test]
    fn the_first_difference_is_told_in_words() {
        let plain = || columns(DataType::Float64, false);
        let one = schema(plain(), |_| {});
        let difference = |other: TableSchema| one.difference(&other).unwrap_or_default();
        assert_eq!(difference(schema(plain(), |_| {})), "");
        let narrow = schema(columns(DataType::Float32, false), |_| {});
        assert_eq!(difference(narrow), "column \"x\" is float64 in it, and not float32");
        assert_eq!(
            difference(schema(columns(DataType::Float64, true), |_| {})),
            "column \"x\" is float64 in it, and not float64?"
        );
        let more = [plain(), vec![column("y", DataType::Utf8, false)]].concat();
        assert_eq!(difference(schema(more.clone(), |_| {})), "it has no column \"y\"");
        assert_eq!(schema(more, |_| {}).difference(&one).unwrap(), "it has a column \"y\"");
        let turned = vec![plain()[2].clone(), plain()[0].clone(), plain()[1].clone()];
        assert_eq!(difference(schema(turned, |_| {})), "its columns are in another order");
        assert_eq!(
            difference(schema(plain(), |roles| roles.id.truncate(1))),
            "its id is pid, step, and not pid"
        );
        let key = schema(plain(), |roles| roles.sample_key = vec!["pid".to_owned()]);
        assert_eq!(difference(key), "its sample key is pid, step, and not pid");
        assert_eq!(
            difference(schema(plain(), |roles| roles.index.truncate(1))),
            "its index is x, step, and not x"
        );
        assert_eq!(difference(schema(plain(), |roles| roles.salt = 7)), "its salt is 0, and not 7");
        assert_eq!(difference(one.clone().with_unique_ids()), "its ids need not be unique");
        assert_eq!(
            difference(one.clone().with_time_unit("ps").unwrap()),
            "the times of its steps have no unit, and not \"ps\""
        );
        let noted = |key: &str, text: &str| {
            let note = std::collections::HashMap::from([(key.to_owned(), text.to_owned())]);
            let x = column("x", DataType::Float64, false).as_ref().clone().with_metadata(note);
            schema(vec![plain()[0].clone(), plain()[1].clone(), Arc::new(x)], |_| {})
        };
        assert_eq!(difference(noted("unit", "nm")), "the unit of column \"x\" is none, and not \"nm\"");
        assert_eq!(
            noted("unit", "nm").difference(&noted("unit", "pm")).unwrap(),
            "the unit of column \"x\" is \"nm\", and not \"pm\""
        );
        assert_eq!(
            noted("description", "of the wall").difference(&one).unwrap(),
            "the description of column \"x\" is \"of the wall\", and not none"
        );
        assert_eq!(difference(noted("seen", "1")), "the notes of column \"x\" differ");
        // Notes of libraries make no other table, and only two units that differ keep rows apart.
        let (nm, pm, told) = (noted("unit", "nm"), noted("unit", "pm"), noted("description", "of the wall"));
        assert_eq!(one.difference_of_table(&noted("seen", "1")), None);
        assert_eq!(one.difference_of_table(&told), one.difference(&told));
        assert_eq!(one.difference_of_table(&nm), one.difference(&nm));
        assert_eq!((one.difference_of_rows(&told), one.difference_of_rows(&nm)), (None, None));
        assert_eq!(nm.difference_of_rows(&pm), nm.difference(&pm));
        let turned = schema(vec![plain()[2].clone(), plain()[0].clone(), plain()[1].clone()], |_| {});
        assert_eq!(one.difference_of_rows(&turned).unwrap(), "its columns are in another order");
        let unique = one.clone().with_unique_ids();
        assert_eq!(one.difference_of_rows(&unique).unwrap(), "its ids need not be unique");
    }

    #[test]
    fn only_two_units_of_time_that_differ_keep_rows_apart() {
        let one = schema(columns(DataType::Float64, false), |_| {});
        let timed = |unit: &str| one.clone().with_time_unit(unit).unwrap();
        assert_eq!(one.difference_of_rows(&timed("ps")), None);
        assert_eq!(timed("ps").difference_of_rows(&one), None);
        assert_eq!(
            timed("ps").difference_of_rows(&timed("fs")).unwrap(),
            "the times of its steps have \"ps\", and not \"fs\""
        );
        assert_eq!(one.difference_of_table(&timed("ps")), one.difference(&timed("ps")));
        assert!(one.difference_of_table(&timed("ps")).is_some());
    }
}
