//! Runs by their attributes: a condition about what was noted of each, such as its temperature.
//!
//! The attributes of all runs become a batch of one row for each run, so that the one grammar serves here too. A run
//! that lacks an attribute has no value in it; `run` is its name, unless an attribute is called so.

use super::entries::all_entries;
use super::query::arrow;
use super::strike::is_true;
use super::{Attributes, RunSummary, Table, TableError, codec};
use crate::expression::Expression;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use atoll_store::{ScanEntry, ScanRequest, SortRange};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Table {
    /// The runs whose attributes satisfy a condition, by name.
    ///
    /// # Errors
    /// [`TableError::Filter`] for a condition about an attribute that no run has, or that does not fit its values;
    /// otherwise as [`Table::runs`].
    pub async fn runs_where(&self, condition: &Expression) -> Result<Vec<RunSummary>, TableError> {
        let runs = self.runs().await?;
        let mut known = self.attributes_of_runs().await?;
        let of_each: Vec<Attributes> =
            runs.iter().map(|run| known.remove(&run.name).unwrap_or_default()).collect();
        let batch = as_batch(&runs, &of_each)?;
        let found = is_true(&condition.bind(&batch.schema())?.evaluate(&batch)?);
        Ok(runs.into_iter().zip(found.iter()).filter_map(|(run, is_meant)| is_meant.then_some(run)).collect())
    }

    /// The attributes of all runs that have any.
    async fn attributes_of_runs(&self) -> Result<BTreeMap<String, Attributes>, TableError> {
        // What is about something else begins with a control character, which no run's name does.
        let range = SortRange::half_open(vec![b' '], vec![0xff]);
        let request = ScanRequest { range, ..ScanRequest::all(self.names.attributes()) };
        let of_entry = |entry: ScanEntry| {
            let name = String::from_utf8_lossy(&entry.sort).into_owned();
            Ok((name, codec::attributes_from_json(&self.name, &entry.value)?))
        };
        all_entries(&*self.store, request).await?.into_iter().map(of_entry).collect()
    }
}

/// One row for each run. Lists and objects cannot be asked for.
fn as_batch(runs: &[RunSummary], of_each: &[Attributes]) -> Result<RecordBatch, TableError> {
    let names: BTreeSet<&String> = of_each.iter().flat_map(BTreeMap::keys).collect();
    let mut columns: Vec<(&str, ArrayRef)> = Vec::new();
    for name in names {
        let values: Vec<Option<&Value>> =
            of_each.iter().map(|of| of.get(name).filter(|value| !value.is_null())).collect();
        columns.extend(column_of(&values).map(|column| (name.as_str(), column)));
    }
    if columns.iter().all(|(name, _)| *name != "run") {
        let names: StringArray = runs.iter().map(|run| Some(run.name.as_str())).collect();
        columns.push(("run", Arc::new(names)));
    }
    let field = |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(schema), columns).map_err(arrow)
}

/// The values of one attribute as a column of the narrowest type that has them all; none for lists and objects.
fn column_of(values: &[Option<&Value>]) -> Option<ArrayRef> {
    let there = || values.iter().flatten();
    if there().any(|value| value.is_array() || value.is_object()) {
        None
    } else if there().all(|value| value.is_i64()) {
        let numbers: Int64Array = values.iter().map(|value| value.and_then(Value::as_i64)).collect();
        Some(Arc::new(numbers))
    } else if there().all(|value| value.is_number()) {
        let numbers: Float64Array = values.iter().map(|value| value.and_then(Value::as_f64)).collect();
        Some(Arc::new(numbers))
    } else if there().all(|value| value.is_boolean()) {
        let truths: BooleanArray = values.iter().map(|value| value.and_then(Value::as_bool)).collect();
        Some(Arc::new(truths))
    } else {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let texts: StringArray = values.iter().map(|value| value.map(text)).collect();
        Some(Arc::new(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array;
    use arrow_schema::DataType;
    use serde_json::json;

    #[test]
    fn an_attribute_has_the_narrowest_type_that_holds_what_the_runs_say() {
        let cases = [
            (vec![json!(1), json!(2)], Some(DataType::Int64)),
            (vec![json!(1), json!(2.5)], Some(DataType::Float64)),
            (vec![json!(true)], Some(DataType::Boolean)),
            (vec![json!("cold"), json!(3)], Some(DataType::Utf8)),
            (vec![json!([1, 2])], None),
            (vec![json!({"axes": ["x"]}), json!(1)], None),
        ];
        for (values, wanted) in cases {
            let column = column_of(&values.iter().map(Some).chain([None]).collect::<Vec<_>>());
            assert_eq!(column.as_ref().map(|column| column.data_type().clone()), wanted, "{values:?}");
            assert!(column.is_none_or(|column| column.null_count() == 1), "{values:?}");
        }
    }
}
