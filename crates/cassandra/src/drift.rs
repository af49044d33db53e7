//! Checks that the tables still have the form in which they were made, so that an altered table is reported
//! when the store is opened, and not by a missing value later.
//!
//! Administrators remain free to change compaction and caching and to add columns.
//!
//! Invariant: nothing is repaired here. A dropped column takes its values with it, and only a backup has
//! them.

use crate::failure::told;
use atoll_store::{ErrorKind, StoreError};
use scylla::value::CqlValue;
use std::collections::HashMap;

/// Name, type, and role in the primary key, in order.
type Column = (&'static str, &'static str, &'static str);

const CELLS: &[Column] = &[
    ("p", "blob", "partition_key"),
    ("kind", "tinyint", "clustering"),
    ("s", "blob", "clustering"),
    ("piece", "int", "clustering"),
    ("head", "blob", "regular"),
    ("value", "blob", "regular"),
    ("guard", "blob", "regular"),
];
const CHUNKS: &[Column] = &[
    ("id", "blob", "partition_key"),
    ("n", "int", "partition_key"),
    ("data", "blob", "regular"),
    ("p", "blob", "regular"),
    ("s", "blob", "regular"),
];
const META: &[Column] = &[("name", "text", "partition_key"), ("number", "int", "regular")];

/// All tables with their columns.
const TABLES: [(&str, &[Column]); 3] = [("cells", CELLS), ("chunks", CHUNKS), ("meta", META)];

/// The tables as the cluster has them.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Type and kind of each column, by table and column name.
    pub(crate) columns: HashMap<(String, String), (String, String)>,
    /// After how many seconds the rows of a table expire; 0 for never.
    pub(crate) times_to_live: HashMap<String, i32>,
    /// The read repair of each table. Not every cluster offers a choice.
    pub(crate) read_repairs: HashMap<String, String>,
    /// Whether writes bypass the commit log.
    pub(crate) is_unlogged: bool,
}

impl Found {
    /// Takes one table from a row of system_schema.tables, given as named columns. Clusters that are
    /// compatible with Cassandra may lack some of them.
    pub(crate) fn take_table<'n>(&mut self, columns: impl Iterator<Item = (&'n str, Option<CqlValue>)>) {
        let (mut table, mut seconds, mut read_repair) = (None, 0, None);
        for (name, value) in columns {
            match (name, value) {
                ("table_name", Some(CqlValue::Text(name))) => table = Some(name),
                ("default_time_to_live", Some(CqlValue::Int(number))) => seconds = number,
                ("read_repair", Some(CqlValue::Text(how))) => read_repair = Some(how),
                _ => {}
            }
        }
        let Some(table) = table else { return };
        self.times_to_live.insert(table.clone(), seconds);
        self.read_repairs.extend(read_repair.map(|how| (table, how)));
    }

    /// The read repair of `cells`, if it is not the one by which a creation that was seen once stays.
    fn lax_repair(&self) -> Option<&str> {
        let how = self.read_repairs.get("cells")?;
        (!how.eq_ignore_ascii_case("BLOCKING")).then_some(how)
    }
}

/// Refuses tables that would lose or lack something.
pub(crate) fn check(place: &str, keyspace: &str, found: &Found) -> Result<(), StoreError> {
    for (table, columns) in TABLES {
        let Some(&seconds) = found.times_to_live.get(table) else {
            return Err(altered(
                place,
                format!("its table {table} is missing"),
                "it was dropped together with its rows: restore the keyspace from a snapshot \
                 (\"Backup and restore\" in the guide to Cassandra)"
                    .to_owned(),
            ));
        };
        for (name, kind, part) in columns {
            let here = found.columns.get(&(table.to_owned(), (*name).to_owned()));
            let problem = match here {
                None => format!("column {name} of its table {table} is missing"),
                Some((other, _)) if other != kind => {
                    format!("column {name} of its table {table} is of type {other}, but should be {kind}")
                }
                Some((_, other)) if other != part => {
                    format!("column {name} of its table {table} is {other}, but should be {part}")
                }
                Some(_) => continue,
            };
            let hint = "the table was altered, and a recreated column has none of its values: restore \
                        the keyspace from a snapshot (\"Backup and restore\" in the guide to Cassandra)";
            return Err(altered(place, problem, hint.to_owned()));
        }
        if seconds != 0 {
            return Err(altered(
                place,
                format!("rows of its table {table} are deleted by themselves after {seconds} s"),
                format!(
                    "ALTER TABLE {keyspace}.{table} WITH default_time_to_live = 0; then compare with a snapshot: rows \
                     that were written meanwhile go all the same"
                ),
            ));
        }
    }
    if let Some(how) = found.lax_repair() {
        return Err(altered(
            place,
            format!(
                "reads of its table cells do not repair what they find (read_repair is {how}), so that a value whose client \
                 ended while it was created would come and go"
            ),
            format!(
                "ALTER TABLE {keyspace}.cells WITH read_repair = 'BLOCKING'; then end the programs that have the keyspace open, \
                 and start them again"
            ),
        ));
    }
    if found.is_unlogged {
        return Err(altered(
            place,
            "writes to its keyspace are not logged (durable_writes), and are lost when their nodes end"
                .to_owned(),
            format!(
                "ALTER KEYSPACE {keyspace} WITH durable_writes = true; then `nodetool flush` on every node, so that \
                 what was written before is on disk too"
            ),
        ));
    }
    Ok(())
}

fn altered(place: &str, problem: String, hint: String) -> StoreError {
    told(ErrorKind::Corrupt, format!("the tables of {place} are not as Atoll made them: {problem}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> Found {
        let mut found = Found::default();
        for (table, columns) in TABLES {
            found.times_to_live.insert(table.to_owned(), 0);
            for (name, kind, part) in columns {
                let key = (table.to_owned(), (*name).to_owned());
                found.columns.insert(key, ((*kind).to_owned(), (*part).to_owned()));
            }
        }
        found
    }

    fn refusal(change: impl FnOnce(&mut Found)) -> String {
        let mut found = right();
        change(&mut found);
        let error = check("here", "\"k\"", &found).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        format!("{error} [{}]", error.hint().unwrap_or_default())
    }

    #[test]
    fn the_tables_are_compared_with_what_they_are_made_as() {
        for (made, (table, columns)) in crate::schema::tables("k").iter().zip(TABLES) {
            let (_, definition) = made.split_once(&format!("k.{table} (")).unwrap();
            let named = |column: &&Column| definition.contains(&format!("{} {}", column.0, column.1));
            assert_eq!(columns.iter().filter(named).count(), columns.len(), "{made}");
            let key = |part| {
                columns.iter().filter(|column| column.2 == part).map(|column| column.0).collect::<Vec<_>>()
            };
            let written = match (key("partition_key"), key("clustering")) {
                (one, more) if more.is_empty() && one.len() == 1 => format!("{} text PRIMARY KEY", one[0]),
                (several, more) if more.is_empty() => format!("PRIMARY KEY (({}))", several.join(", ")),
                (several, more) => format!("PRIMARY KEY (({}), {})", several.join(", "), more.join(", ")),
            };
            assert!(definition.contains(&written), "{written} is not in {made}");
        }
    }

    #[test]
    fn each_difference_that_loses_something_is_named() {
        let key = |table: &str, name: &str| (table.to_owned(), name.to_owned());
        check("here", "\"k\"", &right()).unwrap();
        let missing = refusal(|found| {
            found.times_to_live.remove("chunks");
        });
        assert!(missing.contains("table chunks is missing"), "{missing}");
        let dropped = refusal(|found| {
            found.columns.remove(&key("cells", "value"));
        });
        assert!(dropped.contains("column value of its table cells is missing"), "{dropped}");
        let other = refusal(|found| {
            found.columns.insert(key("meta", "number"), ("bigint".to_owned(), "regular".to_owned()));
        });
        assert!(other.contains("bigint") && other.contains("should be int"), "{other}");
        let ends = refusal(|found| {
            found.times_to_live.insert("cells".to_owned(), 60);
        });
        assert!(
            ends.contains("60 s") && ends.contains("\"k\".cells WITH default_time_to_live = 0"),
            "{ends}"
        );
    }

    #[test]
    fn a_keyspace_that_logs_nothing_is_refused() {
        let unlogged = refusal(|found| found.is_unlogged = true);
        assert!(unlogged.contains("\"k\" WITH durable_writes = true"), "{unlogged}");
    }

    #[test]
    fn cells_of_which_reads_do_not_repair_what_they_find_are_refused() {
        let none = refusal(|found| drop(found.read_repairs.insert("cells".to_owned(), "NONE".to_owned())));
        assert!(none.contains("\"k\".cells WITH read_repair = 'BLOCKING'"), "{none}");
        for (table, how) in
            [("cells", "BLOCKING"), ("cells", "blocking"), ("chunks", "NONE"), ("meta", "NONE")]
        {
            let mut found = right();
            found.read_repairs.insert(table.to_owned(), how.to_owned());
            check("here", "\"k\"", &found).unwrap();
        }
    }

    #[test]
    fn a_cluster_in_which_read_repair_cannot_be_chosen_has_none_that_is_wrong() {
        let text = |text: &str| Some(CqlValue::Text(text.to_owned()));
        let taken = |columns: &[(&str, Option<CqlValue>)]| {
            let mut found = right();
            found.times_to_live.clear();
            found.take_table(columns.iter().cloned());
            (found.times_to_live.get("cells").copied(), found.lax_repair().map(str::to_owned))
        };
        let (name, ends) = (("table_name", text("cells")), ("default_time_to_live", Some(CqlValue::Int(7))));
        let further = ("read_repair_chance", Some(CqlValue::Double(0.0)));
        assert_eq!(taken(&[name.clone(), ends.clone(), further]), (Some(7), None));
        assert_eq!(taken(&[name.clone(), ends.clone(), ("read_repair", text("BLOCKING"))]), (Some(7), None));
        let none = (Some(7), Some("NONE".to_owned()));
        assert_eq!(taken(&[("read_repair", text("NONE")), ends, name.clone()]), none);
        assert_eq!(taken(&[name, ("default_time_to_live", None), ("read_repair", None)]), (Some(0), None));
        assert_eq!(taken(&[("read_repair", text("NONE"))]), (None, None));
    }

    #[test]
    fn a_further_column_is_nobodys_business() {
        let mut found = right();
        found
            .columns
            .insert(("cells".to_owned(), "note".to_owned()), ("text".to_owned(), "regular".to_owned()));
        check("here", "\"k\"", &found).unwrap();
    }
}
