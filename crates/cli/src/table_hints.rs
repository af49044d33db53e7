//! Hints for failures of tables, of files of rows, and of conditions.

use crate::compressed::ReadingVerb;
use crate::text::listed;
use atoll_errors::ErrorKind;
use atoll_row_files::RowFileError;
use atoll_tables::block::BlockError;
use atoll_tables::expression::ExpressionError;
use atoll_tables::protocol::EditError;
use atoll_tables::{SchemaError, TableError};

/// Hints for failures of tables: flags of this program where there is one, otherwise the table's own hint.
pub(crate) fn of_table(error: &TableError) -> Option<String> {
    let hint = match error {
        TableError::Schema(error) => return of_schema(error),
        TableError::NotFound { .. } => "`atoll table list` lists the tables",
        TableError::Arriving { .. } => {
            "copy it again, which continues where it stopped; or remove it with `atoll table drop`"
        }
        TableError::NoSnapshot { .. } => "`atoll table snapshot list` lists them",
        TableError::Damaged { .. } | TableError::ObjectGone { .. } => {
            "`atoll store check` shows the extent of the damage"
        }
        TableError::Block { source: BlockError::Null { .. }, .. } => {
            "fill in the value, or create a table in which the column may be null"
        }
        TableError::Edit(EditError::StaleAttempt { .. }) | TableError::Fenced { .. } => {
            "another process writes the run now; let it, or choose another --run"
        }
        TableError::Edit(EditError::StepOrder { .. }) => {
            "steps of a run rise; choose a later one, or another --run"
        }
        TableError::Edit(EditError::Ranks { .. }) => {
            "give --ranks as when the attempt began, or a higher --attempt"
        }
        TableError::NoRun { near: None, table, .. } => {
            return Some(format!("`atoll table steps {table} --runs` lists the runs that there are"));
        }
        TableError::Edit(EditError::Ahead { .. }) => "`atoll table info TABLE` shows the current version",
        TableError::TooLarge { .. } => {
            "import with --parts, which cuts the file into parts that fit, whatever their steps"
        }
        other => return other.hint().or_else(|| of_kind(other.kind())),
    };
    Some(hint.to_owned())
}

fn of_kind(kind: ErrorKind) -> Option<String> {
    let hint = match kind {
        ErrorKind::Corrupt => "`atoll store check` finds what is damaged",
        ErrorKind::NewerFormat | ErrorKind::Unsupported => "use the release that wrote it, or a later one",
        ErrorKind::Conflict => "check the current state with `atoll table info`, then try again",
        ErrorKind::Unavailable => "try again; `atoll doctor PATH` checks the place",
        ErrorKind::TimedOut => "check whether it happened with `atoll table steps`",
        ErrorKind::Internal => "this is a bug in Atoll: please report it with the command that you ran",
        ErrorKind::NotFound => {
            "check the spelling; `atoll table list` shows the tables of a store, `atoll table info TABLE` the columns of one"
        }
        _ => "`--help` after the verb shows what it takes, with examples",
    };
    Some(hint.to_owned())
}

/// Hints for refused schemas.
pub(crate) fn of_schema(error: &SchemaError) -> Option<String> {
    let hint = match error {
        SchemaError::Unknown { .. } | SchemaError::RoleTwice { .. } => {
            "--id, --sample-key and --index take names of columns"
        }
        SchemaError::RoleCount { .. } => "name columns with --id and --index, with commas between",
        SchemaError::RoleType { .. } => {
            "boxes are over numbers and times; ask about other columns with --where"
        }
        SchemaError::RoleNullable { .. } => "write the column without ?",
        SchemaError::Twice { .. } | SchemaError::Name { .. } => {
            "give it another name; files are read with --rename FROM=TO"
        }
        SchemaError::Taken { .. } => "give it another name; `atoll table info TABLE` lists the columns",
        SchemaError::Type { .. } => "leave the column out, or name another type with --types NAME:TYPE",
        SchemaError::ColumnCount { .. } => "leave columns out with --without NAMES",
        SchemaError::Damaged { .. } => "write a schema with `atoll table info TABLE --schema`",
        SchemaError::NewerFormat { .. } => "use the release that wrote it, or a later one",
        _ => "`atoll table create --help` has examples",
    };
    Some(hint.to_owned())
}

/// The hint for a role that names a column which the file does not have.
pub(crate) fn of_role(present: &[String]) -> String {
    if present.iter().any(|name| name.parse::<f64>().is_ok()) {
        return NAMES_FIRST.to_owned();
    }
    format!(
        "the columns of the file are: {}; --id, --sample-key and --index name some of them",
        listed(present)
    )
}

/// How a CSV file starts.
const NAMES_FIRST: &str =
    "the first line of a CSV file names its columns: write such a line before the others";

/// Hints for files of rows.
pub(crate) fn of_rows(error: &RowFileError) -> Option<String> {
    let hint = match error {
        RowFileError::Open { source, .. }
        | RowFileError::Read { source, .. }
        | RowFileError::Write { source, .. } => {
            crate::failure::hint_of_io(source).unwrap_or("look at it with `ls -l`")
        }
        // Skipping would not help: the line may be half a record.
        RowFileError::Record { problem, .. } if problem.ends_with("the line has no end") => {
            "wait until the file is complete, or end its last line, and run the same command again"
        }
        RowFileError::Record { skipped, .. } => {
            return Some(format!(
                "repair it and run the same command again, which continues from there; or skip up to N bad records with \
                 --skip-bad N (skipped so far: {skipped})"
            ));
        }
        RowFileError::Header { .. } => NAMES_FIRST,
        // A name that is a number is a value, so the header line is missing.
        RowFileError::Extra { column, .. } if column.parse::<f64>().is_ok() => NAMES_FIRST,
        RowFileError::Missing { present, .. } if present.iter().any(|name| name.parse::<f64>().is_ok()) => {
            NAMES_FIRST
        }
        RowFileError::Missing { column, present, .. } if delimiter_within(column, present).is_some() => {
            let delimiter = delimiter_within(column, present).unwrap_or(";");
            return Some(format!(
                "the fields of the file have another delimiter: add --delimiter '{delimiter}'"
            ));
        }
        RowFileError::Missing { column, nearest: Some(nearest), .. } => {
            return Some(format!("is it \"{nearest}\"? then add --rename {nearest}={column}"));
        }
        RowFileError::Missing { present, .. } => {
            return Some(format!(
                "the columns of the file are: {}; --rename FROM=TO renames one",
                listed(present)
            ));
        }
        RowFileError::Rename { nearest, present, .. } => {
            return Some(match nearest {
                Some(nearest) => format!("did you mean \"{nearest}\"?"),
                None => format!("the columns of the file are: {}", listed(present)),
            });
        }
        RowFileError::Extra { column, nearest: Some(nearest), .. } => {
            return Some(format!(
                "is it \"{nearest}\"? then add --rename {column}={nearest}; or add --ignore-extra"
            ));
        }
        RowFileError::Extra { .. } => "skip it with --ignore-extra",
        RowFileError::Twice { column, .. } if column.parse::<f64>().is_ok() => NAMES_FIRST,
        RowFileError::Twice { .. } => "give each column a name of its own",
        RowFileError::Type { .. } => {
            "create a table with the types of the file with `atoll table create --like`"
        }
        RowFileError::Value { .. } => "correct the value, or create a table whose column accepts it",
        RowFileError::Malformed { .. } => "is the format right? name it with --format",
        // For a verb that has no better hint, because it opens files by name.
        RowFileError::Compressed { input, compression, format } => {
            return Some(ReadingVerb::Create.line(input, *compression, Some(*format)));
        }
        RowFileError::Torn { .. } => {
            "everything before that place is in the table; get the whole file, and run the same command again"
        }
        RowFileError::Misfit { hint, .. } | RowFileError::Unsupported { hint, .. } => hint,
        _ => "`atoll table import --help` has examples",
    };
    Some(hint.to_owned())
}

/// The delimiter, as it is typed, inside the only column name of a file that seems to have just one column.
pub(crate) fn delimiter_within(column: &str, present: &[String]) -> Option<&'static str> {
    let [only] = present else { return None };
    let delimiters = [(';', ";"), ('\t', r"\t"), ('|', "|"), (' ', " ")].into_iter();
    delimiters
        .filter(|(delimiter, _)| only.contains(*delimiter))
        .find(|(delimiter, _)| only.split(*delimiter).any(|name| name.trim().trim_matches('"') == column))
        .map(|(_, typed)| typed)
}

/// The hint for a condition or box: what the grammar suggests, or where it is documented.
pub(crate) fn of_expression(error: &ExpressionError) -> String {
    error.hint().unwrap_or_else(|| {
        "conditions look like 'type = 2 and vz > 0.5', boxes like x=0:1,step=100:".to_owned()
    })
}

/// The text of a condition with markers under the wrong part.
pub(crate) fn pointed(error: &ExpressionError) -> Vec<String> {
    let rendered = error.render();
    rendered
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("hint:"))
        .map(|line| format!(" {line}"))
        .collect()
}

/// The hint for a table that does not exist.
pub(crate) fn of_absent_table(table: &str, present: &[String]) -> String {
    if present.is_empty() {
        return "the store has no table yet; `atoll table create` makes one".to_owned();
    }
    crate::row_format::did_you_mean(table, present)
}
