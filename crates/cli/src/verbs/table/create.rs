//! `atoll table create`: creates a table from columns, from a file that has them, or from a schema.

use super::import::reader_lost;
use super::renames::{Renames, pairs_of, parse_renames};
use super::{parse_delimiter, parse_pair};
use crate::compressed::ReadingVerb;
use crate::row_format::{RowFormat, format_of};
use crate::session::Access;
use crate::{Failure, Session};
use arrow_schema::{Field, Schema};
use atoll_row_files::{Input, NO_VALUE_KEY, ReadOptions, describe};
use atoll_tables::{Roles, SchemaError, Table, TableSchema, TypeName};
use clap::Args;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The metadata key under which an exported file keeps the schema of its table.
pub(super) const SCHEMA_KEY: &str = "atoll.schema";

/// `atoll table create`
#[derive(Args, Debug)]
pub struct Create {
    /// Name of the new table
    table: String,
    /// Columns, such as x:float64 or name:utf8?, where ? makes it nullable; several separated by commas
    #[arg(long = "column", visible_alias = "columns", value_name = "NAME:TYPE", conflicts_with_all = ["like", "schema"])]
    columns: Vec<String>,
    /// Take the columns of this file
    #[arg(long, value_name = "FILE", conflicts_with = "schema")]
    like: Option<PathBuf>,
    /// Take everything from this schema, as written by `info --schema`
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Columns that identify a row; only --unique refuses rows that are equal in all of them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "schema")]
    id: Vec<String>,
    /// Columns that identify what is sampled as a whole, such as a particle; by default the row
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "schema")]
    sample_key: Vec<String>,
    /// Columns that boxes may limit: 1 to 8 columns of numbers or times
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "schema")]
    index: Vec<String>,
    /// Unit of a column, stored with it
    #[arg(long = "unit", value_name = "NAME=UNIT", value_parser = parse_pair, conflicts_with = "schema")]
    units: Vec<(String, String)>,
    /// Unit of the times of steps, such as ps
    #[arg(long, value_name = "UNIT", conflicts_with = "schema")]
    time_unit: Option<String>,
    /// Refuse rows whose id their run has already; each append then checks for duplicates
    #[arg(long, conflicts_with = "schema")]
    unique: bool,
    /// Salt of the weights, by default 0 or that of the file of --like; samples of tables with different
    /// salts are independent
    #[arg(long, conflicts_with = "schema")]
    salt: Option<u64>,
    #[command(flatten)]
    file: FileArguments,
}

/// How the file of `--like` is read.
#[derive(Args, Debug)]
struct FileArguments {
    /// Format of the file, if its ending does not show it
    #[arg(long, help_heading = "With --like")]
    format: Option<RowFormat>,
    /// Types of columns instead of guesses, such as time:timestamp[ns]; several separated by commas
    #[arg(long, value_name = "NAME:TYPE", help_heading = "With --like")]
    types: Vec<String>,
    /// Rename a column of the file; several separated by commas
    #[arg(long, value_name = "FROM=TO", value_parser = parse_renames, help_heading = "With --like")]
    rename: Vec<Renames>,
    /// Leave out columns of the file
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "With --like")]
    without: Vec<String>,
    /// Character between the fields of a CSV file; `\t` is the tab
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = parse_delimiter, help_heading = "With --like")]
    delimiter: u8,
    /// Text that stands for a missing value in a text file, besides the empty field
    #[arg(long, value_name = "TEXT", help_heading = "With --like")]
    null: Option<String>,
    /// Names of the columns of a NumPy array that has none
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "With --like")]
    names: Vec<String>,
}

impl Create {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let schema = self.table_schema().await?;
        let store = session.store(Access::Create).await?;
        let was_there = Table::open(Arc::clone(&store), &self.table).await.is_ok();
        let table = Table::create(store, &self.table, schema).await?;
        let schema = &*table.schema();
        session.output.either(
            || {
                let roles = schema.roles();
                let columns = schema.columns().fields().len();
                let index = roles.index.join(", ");
                let unique = if schema.has_unique_ids() { ", and takes each id once in a run" } else { "" };
                let was_there = if was_there { "was there already; it " } else { "" };
                format!(
                    "table {} {was_there}has {columns} {}, boxes over {index}, and samples {}{unique}",
                    self.table,
                    if columns == 1 { "column" } else { "columns" },
                    sampled(schema)
                )
            },
            || json!({ "table": self.table, "was_there": was_there, "schema": schema_value(schema) }),
        )
    }

    async fn table_schema(&self) -> Result<TableSchema, Failure> {
        if let Some(path) = &self.schema {
            let place = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|source| Failure::File {
                action: "read the schema",
                place,
                source,
            })?;
            return Ok(TableSchema::from_json(&text)?);
        }
        let (columns, known) = match &self.like {
            Some(path) => self.columns_of_file(path).await?,
            None => (parse_columns("--column", &self.columns)?, None),
        };
        if columns.is_empty() {
            return Err(Failure::Usage {
                problem: "the columns of the table are not given".to_owned(),
                hint: "add --column NAME:TYPE for each, --like FILE or --schema FILE".to_owned(),
            });
        }
        if self.like.is_some() {
            self.check_delimiter(&columns)?;
        }
        let time_unit = self.time_unit.clone().or_else(|| Some(known.as_ref()?.time_unit()?.to_owned()));
        let is_unique = self.unique || known.as_ref().is_some_and(TableSchema::has_unique_ids);
        let roles = self.roles(known.map(|known| known.roles()))?;
        let present: Vec<String> = columns.iter().map(|field| field.name().clone()).collect();
        let columns = self.with_units(with_keys(columns, &roles))?;
        let schema = TableSchema::new(Schema::new(columns), &roles).map_err(|error| match error {
            SchemaError::Unknown { nearest: None, .. } if self.like.is_some() => {
                Failure::Role { error: Box::new(error), present }
            }
            error => error.into(),
        })?;
        let schema = if is_unique { schema.with_unique_ids() } else { schema };
        Ok(match time_unit {
            Some(unit) => schema.with_time_unit(&unit)?,
            None => schema,
        })
    }

    /// A file with another delimiter seems to have one column, whose name contains those of all.
    fn check_delimiter(&self, columns: &[Field]) -> Result<(), Failure> {
        let present: Vec<String> = columns.iter().map(|field| field.name().clone()).collect();
        let mut named = self.id.iter().chain(&self.index);
        let delimiter = |name: &String| crate::table_hints::delimiter_within(name, &present);
        match named.find_map(|name| Some((name, delimiter(name)?))) {
            None => Ok(()),
            Some((name, delimiter)) => Err(Failure::Delimiter {
                column: name.clone(),
                found: present.into_iter().next().unwrap_or_default(),
                delimiter,
            }),
        }
    }

    /// The roles as given; those not given are taken from what the file says.
    fn roles(&self, known: Option<Roles>) -> Result<Roles, Failure> {
        let known = known.unwrap_or_default();
        let or = |given: &[String], known: Vec<String>| if given.is_empty() { known } else { given.to_vec() };
        let roles = Roles {
            id: or(&self.id, known.id),
            sample_key: or(&self.sample_key, known.sample_key),
            index: or(&self.index, known.index),
            salt: self.salt.unwrap_or(known.salt),
        };
        for (flag, names, example) in [("--id", &roles.id, "pid,step"), ("--index", &roles.index, "x,y,z")] {
            if names.is_empty() {
                return Err(Failure::Usage {
                    problem: format!("{flag} is missing: a table needs an id and index columns"),
                    hint: format!("add {flag} with the names of columns, such as {flag} {example}"),
                });
            }
        }
        Ok(roles)
    }

    /// The columns of a file, and the schema of the table that it was exported from, if any.
    async fn columns_of_file(&self, path: &Path) -> Result<(Vec<Field>, Option<TableSchema>), Failure> {
        let types = parse_columns("--types", &self.file.types)?;
        let options = ReadOptions {
            delimiter: self.file.delimiter,
            null: self.file.null.clone(),
            rename: pairs_of(&self.file.rename),
            columns: self.file.names.clone(),
            types: types.iter().map(|field| (field.name().clone(), field.data_type().clone())).collect(),
            ..ReadOptions::default()
        };
        let format = format_of(self.file.format, path, ReadingVerb::Create)?;
        let input = Input::File(path.to_owned());
        let file = input.name();
        // On a thread of its own, so that an interruption is noticed while a large file is read.
        let described = tokio::task::spawn_blocking(move || describe(&input, format, &options)).await;
        let described = described.map_err(|lost| reader_lost(&lost, file))??;
        let known = described.metadata().get(SCHEMA_KEY).and_then(|text| TableSchema::from_json(text).ok());
        let names: Vec<String> = described.fields().iter().map(|field| field.name().clone()).collect();
        if let Some(name) = self.file.without.iter().find(|name| !names.contains(name)) {
            return Err(Failure::Usage {
                problem: format!("--without names \"{name}\", which is not a column of {}", path.display()),
                hint: crate::row_format::did_you_mean(name, &names),
            });
        }
        let columns = described.fields().iter().map(|field| field.as_ref().clone());
        let mut columns: Vec<Field> =
            columns.filter(|field| !self.file.without.contains(field.name())).collect();
        tell_guessed(path, &mut columns);
        Ok((columns, known))
    }

    fn with_units(&self, columns: Vec<Field>) -> Result<Vec<Field>, Failure> {
        let names: Vec<String> = columns.iter().map(|field| field.name().clone()).collect();
        if let Some((name, _)) = self.units.iter().find(|(name, _)| !names.contains(name)) {
            return Err(Failure::Usage {
                problem: format!("--unit names \"{name}\", which is not a column of the table"),
                hint: crate::row_format::did_you_mean(name, &names),
            });
        }
        let with_unit = |field: Field| {
            let Some((_, unit)) = self.units.iter().find(|(name, _)| name == field.name()) else {
                return field;
            };
            let own = field.metadata().iter().map(|(key, value)| (key.clone(), value.clone()));
            let metadata: HashMap<String, String> = own.chain([("unit".to_owned(), unit.clone())]).collect();
            field.with_metadata(metadata)
        };
        Ok(columns.into_iter().map(with_unit).collect())
    }
}

/// Warns of columns whose type is a guess because they have no values.
fn tell_guessed(path: &Path, columns: &mut [Field]) {
    let mut guessed = Vec::new();
    for column in columns {
        if column.metadata_mut().remove(NO_VALUE_KEY).is_some() {
            guessed.push(column.name().clone());
        }
    }
    if let [first, ..] = guessed.as_slice() {
        crate::output::note(&format!(
            "{} has no value of {}, taken for utf8: say so if it is another type, as in --types {}:float64",
            path.display(),
            crate::text::listed(&guessed),
            crate::text::listed(std::slice::from_ref(first))
        ));
    }
}

/// Makes the columns of the id and of the sample key non-nullable.
fn with_keys(columns: Vec<Field>, roles: &Roles) -> Vec<Field> {
    let is_key = |name: &String| roles.id.contains(name) || roles.sample_key.contains(name);
    columns
        .into_iter()
        .map(|field| if is_key(field.name()) { field.with_nullable(false) } else { field })
        .collect()
}

/// What a table samples, for people.
pub(super) fn sampled(schema: &TableSchema) -> String {
    if schema.samples_entities() {
        format!("whatever has one {}", schema.roles().sample_key.join(", "))
    } else {
        "rows".to_owned()
    }
}

/// A schema as JSON.
pub(super) fn schema_value(schema: &TableSchema) -> Value {
    serde_json::from_str(&schema.to_json()).unwrap_or(Value::Null)
}

/// Parses columns as they are typed: `x:float64,name:utf8?`.
fn parse_columns(flag: &str, texts: &[String]) -> Result<Vec<Field>, Failure> {
    texts.iter().flat_map(|text| parts(text)).map(|part| parse_column(flag, part)).collect()
}

pub(super) fn parse_column(flag: &str, text: &str) -> Result<Field, Failure> {
    let shown = if flag.starts_with('-') { format!("{flag} ") } else { String::new() };
    let wrong = |problem: String| Failure::Usage {
        problem: format!("{flag} \"{text}\": {problem}"),
        hint: format!(
            "write, for example, {shown}x:float64 or {shown}name:utf8?; types are {}",
            TypeName::SUPPORTED
        ),
    };
    let (name, type_name) = text.split_once(':').ok_or_else(|| wrong("it is not NAME:TYPE".to_owned()))?;
    let (type_name, nullable) = match type_name.strip_suffix('?') {
        Some(type_name) => (type_name, true),
        None => (type_name, false),
    };
    let unknown = |question: Option<String>| {
        let question = question.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        wrong(format!("{type_name:?} is not a type{question}"))
    };
    let parsed = type_name.trim().parse::<TypeName>();
    let type_name = parsed.map_err(|error| unknown(error.meant))?;
    Ok(Field::new(name.trim(), type_name.data_type().clone(), nullable))
}

/// The elements of a list; a comma in brackets belongs to a type.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (place, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[start..place].trim());
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_with_types_that_hold_commas() {
        let fields = parse_columns(
            "--column",
            &["t:timestamp[ns, UTC]?, p:fixed_size_list[float32, 3]".into(), "n:utf8".into()],
        );
        let shown: Vec<(String, bool)> =
            fields.unwrap().iter().map(|field| (field.name().clone(), field.is_nullable())).collect();
        assert_eq!(shown, [("t".to_owned(), true), ("p".to_owned(), false), ("n".to_owned(), false)]);
    }

    #[test]
    fn a_mistyped_type_is_answered_with_the_nearest() {
        for (text, expected) in [("x:flaot64", "float64"), ("x:string", "utf8"), ("x:int", "int64")] {
            let problem = parse_columns("--column", &[text.to_owned()]).unwrap_err().to_string();
            assert!(problem.contains(&format!("did you mean {expected}?")), "{problem}");
        }
        assert!(parse_columns("--column", &["x".to_owned()]).is_err());
    }
}
