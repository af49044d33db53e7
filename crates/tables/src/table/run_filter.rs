//! Selects runs by their attributes, such as a temperature, with a condition of the expression grammar.
//!
//! The attributes of all runs become one batch with a row for each run. An attribute that a run lacks is
//! null; `run` is its name, unless an attribute has that name. Runs of several tables are rows of one batch,
//! so an attribute known in one table is known for all.

use super::entries::all_entries;
use super::query::arrow;
use super::strike::is_true;
use super::{Attributes, RunSummary, Table, TableError, codec};
use crate::expression::{Expression, ExpressionError};
use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array, new_null_array,
};
use arrow_schema::{DataType, Field, Schema};
use atoll_store::{ScanEntry, ScanRequest, SortRange};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Table {
    /// The runs whose attributes satisfy a condition, sorted by name.
    ///
    /// # Errors
    /// [`TableError::Filter`] for a condition on an attribute that no run has, or that does not fit its
    /// values; otherwise as [`Table::runs`].
    pub async fn runs_where(&self, condition: &Expression) -> Result<Vec<RunSummary>, TableError> {
        Ok(runs_where(std::slice::from_ref(self), condition).await?.into_iter().flatten().collect())
    }

    /// The attributes of all runs that have any, by name of the run, read at once. The runs need not exist.
    ///
    /// # Errors
    /// As [`Table::attributes`].
    pub async fn attributes_of_runs(&self) -> Result<BTreeMap<String, Attributes>, TableError> {
        // Keys of other attributes begin with a control character; names of runs do not.
        let range = SortRange::half_open(vec![b' '], vec![0xff]);
        let request = ScanRequest { range, ..ScanRequest::all(self.names.attributes()) };
        let of_entry = |entry: ScanEntry| {
            let name = String::from_utf8_lossy(&entry.sort).into_owned();
            Ok((name, codec::attributes_from_json(&self.name, &entry.value)?))
        };
        all_entries(&*self.store, request).await?.into_iter().map(of_entry).collect()
    }
}

/// The runs whose attributes satisfy a condition, as one list per table.
pub(crate) async fn runs_where(
    tables: &[Table],
    condition: &Expression,
) -> Result<Vec<Vec<RunSummary>>, TableError> {
    let (mut runs, mut of_each) = (Vec::new(), Vec::new());
    for (place, table) in tables.iter().enumerate() {
        let of_table = table.runs().await?;
        let mut known = table.attributes_of_runs().await?;
        of_each.extend(of_table.iter().map(|run| known.remove(&run.name).unwrap_or_default()));
        runs.extend(of_table.into_iter().map(|run| (place, run)));
    }
    let names: Vec<&str> = runs.iter().map(|(_, run)| run.name.as_str()).collect();
    let batch = as_batch(&names, &of_each, &condition.mentioned())?;
    let found = is_true(&condition.bind(&batch.schema())?.evaluate(&batch)?);
    let mut meant = vec![Vec::new(); tables.len()];
    for ((place, run), _) in runs.into_iter().zip(found.iter()).filter(|(_, is_meant)| *is_meant) {
        meant[place].push(run);
    }
    Ok(meant)
}

/// One row for each run. Attributes that the condition does not mention are null columns of the right name:
/// each attempt of each run may have some of its own, so there may be many.
fn as_batch(runs: &[&str], of_each: &[Attributes], asked: &[String]) -> Result<RecordBatch, TableError> {
    let names: BTreeSet<&String> = of_each.iter().flat_map(BTreeMap::keys).collect();
    let column = |name: &&String| {
        if !asked.contains(name) {
            return Ok(new_null_array(&DataType::Null, runs.len()));
        }
        let values: Vec<_> =
            of_each.iter().map(|of| of.get(*name).filter(|value| !value.is_null())).collect();
        column_of(name, &values)
    };
    let named = |name| Ok::<(&str, ArrayRef), ExpressionError>((String::as_str(name), column(&name)?));
    let mut columns = names.iter().copied().map(named).collect::<Result<Vec<_>, _>>()?;
    if columns.iter().all(|(name, _)| *name != "run") {
        columns.push(("run", Arc::new(StringArray::from(runs.to_vec()))));
    }
    let field = |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns).map_err(arrow)
}

/// The values of one attribute as a column of the narrowest type that fits all of them. If some are lists or
/// objects, a condition can only ask which runs have the attribute.
///
/// Numbers that no type holds are an error: a condition would find runs with a number next to the one it
/// names.
fn column_of(name: &str, values: &[Option<&Value>]) -> Result<ArrayRef, ExpressionError> {
    let there = || values.iter().flatten();
    let column: ArrayRef = if there().any(|value| value.is_array() || value.is_object()) {
        let mut lists = ListBuilder::new(StringBuilder::new());
        values.iter().for_each(|value| lists.append(value.is_some()));
        Arc::new(lists.finish())
    } else if there().all(|value| value.is_i64()) {
        let numbers: Int64Array = values.iter().map(|value| value.and_then(Value::as_i64)).collect();
        Arc::new(numbers)
    } else if there().all(|value| value.is_u64()) {
        let numbers: UInt64Array = values.iter().map(|value| value.and_then(Value::as_u64)).collect();
        Arc::new(numbers)
    } else if there().all(|value| value.is_number()) {
        if let Some(whole) = there().find_map(|value| no_double(value)) {
            return Err(ExpressionError::no_common_type(name, whole));
        }
        let numbers: Float64Array = values.iter().map(|value| value.and_then(Value::as_f64)).collect();
        Arc::new(numbers)
    } else if there().all(|value| value.is_boolean()) {
        let truths: BooleanArray = values.iter().map(|value| value.and_then(Value::as_bool)).collect();
        Arc::new(truths)
    } else {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let texts: StringArray = values.iter().map(|value| value.map(text)).collect();
        Arc::new(texts)
    };
    Ok(column)
}

/// The value, if it is a whole number that no double equals.
fn no_double(value: &Value) -> Option<i128> {
    let whole = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))?;
    ((whole as f64) as i128 != whole).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use serde_json::json;

    #[test]
    fn an_attribute_has_the_narrowest_type_that_holds_what_the_runs_say() {
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        let cases = [
            (vec![json!(1), json!(2)], DataType::Int64),
            (vec![json!(1), json!(2.5)], DataType::Float64),
            (vec![json!(1), json!(u64::MAX)], DataType::UInt64),
            (vec![json!(-1), json!(1_u64 << 63)], DataType::Float64),
            (vec![json!(2.5), json!(1_u64 << 53)], DataType::Float64),
            (vec![json!(true)], DataType::Boolean),
            (vec![json!("cold"), json!(3)], DataType::Utf8),
            (vec![json!([1, 2])], list.clone()),
            (vec![json!({"axes": ["x"]}), json!(1)], list),
        ];
        for (values, wanted) in cases {
            let column = column_of("a", &values.iter().map(Some).chain([None]).collect::<Vec<_>>()).unwrap();
            assert_eq!(column.data_type(), &wanted, "{values:?}");
            assert_eq!(column.null_count(), 1, "{values:?}");
        }
    }

    #[test]
    fn numbers_that_no_type_holds_are_refused_and_not_rounded() {
        let cases = [
            (vec![json!(-1), json!(u64::MAX)], "18446744073709551615"),
            (vec![json!(0.5), json!((1_i64 << 53) + 1)], "9007199254740993"),
            (vec![json!(i64::MIN + 1), json!(0.5)], "-9223372036854775807"),
        ];
        for (values, wanted) in cases {
            let refused = column_of("seed", &values.iter().map(Some).collect::<Vec<_>>()).unwrap_err();
            assert!(refused.to_string().contains(wanted), "{refused}");
            assert!(refused.to_string().contains("seed"), "{refused}");
        }
    }

    #[test]
    fn a_whole_number_beyond_those_with_a_sign_is_found_and_no_other_in_its_place() {
        let of = |seed: u64| Attributes::from([("seed".to_owned(), json!(seed))]);
        let of_each = [of(u64::MAX), of(u64::MAX - 1), of(7)];
        let batch = as_batch(&["a", "b", "c"], &of_each, &["seed".to_owned()]).unwrap();
        for (condition, wanted) in [
            (format!("seed = {}", u64::MAX), [true, false, false]),
            (format!("seed < {}", u64::MAX), [false, true, true]),
            ("seed = 7".to_owned(), [false, false, true]),
        ] {
            let bound = Expression::parse(&condition).unwrap().bind(&batch.schema()).unwrap();
            let found = is_true(&bound.evaluate(&batch).unwrap());
            assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{condition}");
        }
    }

    #[test]
    fn of_what_nobody_asks_for_there_is_no_value() {
        let of = |place: usize| {
            let host = (format!("attempt.{place}.host"), json!("x".repeat(1000)));
            Attributes::from([host, ("temperature".to_owned(), json!(place))])
        };
        let of_each: Vec<Attributes> = (0..200).map(of).collect();
        let batch = as_batch(&["r"; 200], &of_each, &["temperature".to_owned()]).unwrap();
        assert_eq!(batch.num_columns(), 202);
        assert!(batch.get_array_memory_size() < 100_000, "{}", batch.get_array_memory_size());
    }
}
