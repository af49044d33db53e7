//! Bad input through the command line: an error that says what is wrong, where, and what would be right, or a
//! defined result.
//!
//! `docs/guide/bad-input.md` lists the cases, and this file has a test for each of its lines.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use support::{Answer, Workspace};

/// Runs the program on the store of this folder; words in single quotes may contain spaces.
fn atoll(place: &Workspace, line: &str) -> Answer {
    let words = line.split('\'').enumerate().flat_map(|(at, part)| {
        if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect::<Vec<_>>() }
    });
    place.run(&["--store", "data"].into_iter().chain(words).collect::<Vec<_>>())
}

const CREATE: &str = "table create t --column pid:int64,step:int64,x:float64?,name:utf8? --id pid,step --sample-key pid --index x,step";

fn created(flags: &str) -> Workspace {
    let place = Workspace::new();
    atoll(&place, &format!("{CREATE} {flags}")).text();
    place
}

fn count(place: &Workspace, question: &str) -> u64 {
    atoll(place, &format!("table query t --count {question}")).text().trim().parse().unwrap()
}

/// Imports a CSV file with this text.
fn import(place: &Workspace, name: &str, text: &str) -> Answer {
    place.write(name, format!("pid,step,x,name\n{text}"));
    atoll(place, &format!("table import t {name}"))
}

#[test]
fn nan_infinity_and_null_in_an_index_column_are_kept_and_found_by_their_own_conditions() {
    let place = created("");
    import(&place, "a.csv", "1,0,0.5,\n2,0,nan,\n3,0,inf,\n4,0,-inf,\n5,0,,\n").text();
    for packed in [false, true] {
        if packed {
            atoll(&place, "table pack t --whole").text();
        }
        let questions = [
            ("", 5),
            ("--where 'x is nan'", 1),
            ("--where 'x is null'", 1),
            ("--where 'x = inf'", 1),
            ("--where 'x = -inf'", 1),
            ("--box x=0:1", 1),
            ("--box x=0:", 2),
            ("--box x=:", 5),
            ("--box step=0:1", 5),
        ];
        for (question, rows) in questions {
            assert_eq!(count(&place, question), rows, "{question}, packed: {packed}");
        }
    }
}

#[test]
fn a_wrong_value_is_told_with_its_line_and_column_and_what_came_before_is_in() {
    let cases = [
        ("1.5,1,0,a", "column \"pid\": \"1.5\" is not an int64"),
        ("99999999999999999999,1,0,a", "column \"pid\": \"99999999999999999999\" is not an int64"),
        (",1,0,a", "column \"pid\": there is no value"),
        ("1,1,abc,a", "column \"x\": \"abc\" is not a float64"),
        ("1,1,0", "3 fields where the header has 4"),
        ("1,1,0,a,b", "5 fields where the header has 4"),
    ];
    for (record, problem) in cases {
        let place = created("");
        let refused = import(&place, "a.csv", &format!("1,0,0,a\n2,0,0,b\n{record}\n"));
        let told = refused.fails(12);
        assert!(told.contains(&format!("a.csv, line 4: {problem}")) && told.contains("--skip-bad"), "{told}");
        // A step is known to be complete when another one begins, and the next step has no good row.
        assert!(told.contains("0 rows in 0 steps were imported as run a before that"), "{told}");
        let told = import(&place, "b.csv", &format!("1,0,0,a\n2,1,0,b\n{record}\n"));
        assert!(
            told.stderr
                .contains("1 row in 1 step was imported as run b before that; the run has its steps up to 0")
        );
    }
}

#[test]
fn a_whole_number_written_as_a_float_is_taken_where_integers_are_and_any_other_float_is_refused() {
    let place = Workspace::new();
    atoll(&place, "table create t --column pid:int64,kind:int64? --id pid --index pid").text();
    // As pandas writes integers with missing values.
    place.write("a.csv", "pid,kind\n1,3.0\n2,\n3,3e2\n4,9007199254740993.0\n");
    atoll(&place, "table import t a.csv").text();
    for question in ["kind = 3", "kind is null", "kind = 300", "kind = 9007199254740993"] {
        assert_eq!(count(&place, &format!("--where '{question}'")), 1, "{question}");
    }
    for odd in ["3.5", "9223372036854775808.0", "1e400"] {
        place.write("b.csv", format!("pid,kind\n5,{odd}\n"));
        let refused = atoll(&place, "table import t b.csv");
        let told = format!("b.csv, line 2: column \"kind\": \"{odd}\" is not an int64");
        assert!(refused.fails(12).contains(&told), "{}", refused.stderr);
    }
    // Such a column is still one of floats, unless a schema says otherwise.
    atoll(&place, "table create u --like a.csv --id pid --index pid").text();
    assert!(atoll(&place, "table info u").text().contains("float64"));
}

#[test]
fn days_are_taken_as_instants_and_instants_as_days_where_they_fit_exactly() {
    let place = Workspace::new();
    place.write("a.csv", "pid,when\n1,2026-01-02\n2,\n");
    atoll(&place, "table create days --column pid:int64,when:date32? --id pid --index pid").text();
    atoll(&place, "table create t --column 'pid:int64,when:timestamp[us]?' --id pid --index pid").text();
    atoll(&place, "table import days a.csv").text();
    atoll(&place, "table export days days.parquet").text();
    atoll(&place, "table import t days.parquet").text();
    atoll(&place, "table export t instants.parquet").text();
    atoll(&place, "table import days instants.parquet --run again").text();
    for (table, shown) in [("days --run again", "1,2026-01-02"), ("t", "1,2026-01-02T00:00:00")] {
        let rows = atoll(&place, &format!("table query {table} --format csv --columns pid,when"));
        // Rows are returned in the order of their weights.
        let rows: BTreeSet<&str> = rows.text().lines().collect();
        assert_eq!(rows, BTreeSet::from(["pid,when", shown, "2,"]), "{table}");
    }
    place.write("odd.csv", "pid,when\n3,2026-01-02T00:00:01\n");
    atoll(&place, "table import t odd.csv").text();
    atoll(&place, "table export t odd.parquet --run odd").text();
    let refused = atoll(&place, "table import days odd.parquet");
    assert!(refused.fails(12).contains("2026-01-02T00:00:01 is not exactly date32"), "{}", refused.stderr);
}

#[test]
fn another_type_or_unit_is_refused_and_nothing_is_rounded() {
    let place = Workspace::new();
    place.write("a.csv", "pid,when\n1,2026-01-01T00:00:00.000000001\n");
    atoll(&place, "table create ns --column 'pid:int64,when:timestamp[ns]' --id pid --index when").text();
    atoll(&place, "table import ns a.csv").text();
    atoll(&place, "table export ns a.parquet").text();
    // Converted to seconds, these instants would lose precision.
    atoll(&place, "table create t --column 'pid:int64,when:timestamp[s]' --id pid --index when").text();
    let refused = atoll(&place, "table import t a.parquet");
    assert!(refused.fails(12).contains("column \"when\" of a.parquet"), "{}", refused.stderr);
    atoll(&place, "table create n --column pid:int64,when:int64 --id pid --index when").text();
    let refused = atoll(&place, "table import n a.parquet");
    assert!(refused.fails(12).contains("which cannot be converted to int64"), "{}", refused.stderr);
    assert_eq!((count(&place, ""), atoll(&place, "table query n --count").text()), (0, "0\n"));
}

#[test]
fn a_schema_that_drifts_is_refused_by_column_and_can_be_renamed_or_passed_over() {
    let place = created("");
    place.write("renamed.csv", "pidd,step,x\n1,0,0\n");
    place.write("more.csv", "pid,step,x,name,charge\n2,1,0,a,1\n");
    place.write("fewer.csv", "pid,step\n3,2\n");
    place.write("twice.csv", "pid,step,x,x\n4,3,1,2\n");
    let renamed = atoll(&place, "table import t renamed.csv");
    assert!(renamed.fails(12).contains("--rename pidd=pid"), "{}", renamed.stderr);
    let more = atoll(&place, "table import t more.csv");
    assert!(more.fails(12).contains("column \"charge\", which the table lacks"), "{}", more.stderr);
    atoll(&place, "table import t twice.csv").fails(12);
    assert_eq!(count(&place, ""), 0, "nothing of them is in");
    atoll(&place, "table import t renamed.csv --rename pidd=pid").text();
    place.write("both.csv", "pidd,n,x\n1,3,0\n");
    atoll(&place, "table import t both.csv --rename pidd=pid,n=step").text();
    atoll(&place, "table import t more.csv --ignore-extra").text();
    atoll(&place, "table import t fewer.csv").text();
    assert_eq!(
        (count(&place, ""), count(&place, "--where 'x is null'")),
        (4, 1),
        "a column that may be null may lack"
    );
}

#[test]
fn an_empty_text_is_no_null_wherever_it_comes_from() {
    let place = created("");
    place.write("a.jsonl", "{\"pid\":1,\"step\":0,\"name\":\"\"}\n{\"pid\":2,\"step\":0,\"name\":null}\n");
    atoll(&place, "table import t a.jsonl").text();
    import(&place, "b.csv", "3,0,1,\"\"\n4,0,1,\n").text();
    for name in ["c.csv", "c.jsonl", "c.parquet"] {
        atoll(&place, &format!("table export t {name} --run a --run b")).text();
        atoll(&place, &format!("table import t {name} --run {}", name.replace('.', "-"))).text();
    }
    for run in ["c-csv", "c-jsonl", "c-parquet"] {
        let empty =
            ["--store", "data", "table", "query", "t", "--count", "--run", run, "--where", "name = ''"];
        assert_eq!(place.run(&empty).text().trim(), "2", "{run}");
        assert_eq!(count(&place, &format!("--run {run} --where 'name is null'")), 2, "{run}");
    }
}

#[test]
fn steps_that_fall_are_refused_each_time_with_the_way_out() {
    let place = created("");
    for again in 0..2 {
        let refused = import(&place, "falls.csv", "1,5,0,a\n1,3,0,a\n");
        assert!(refused.fails(2).contains("step 3 comes after step 5"), "{again}: {}", refused.stderr);
        assert!(refused.stderr.contains("--parts"), "{}", refused.stderr);
        assert_eq!(count(&place, ""), 1);
    }
    atoll(&place, "table import t falls.csv --run parts --parts").text();
    assert_eq!(count(&place, "--run parts"), 2);
}

#[test]
fn rows_that_came_to_the_last_step_since_are_not_passed_over_in_silence() {
    for packed in ["", "--packed"] {
        let place = created("");
        let whole = (0..40).map(|row| format!("{row},{},0.5,a\n", row / 10)).collect::<String>();
        // Seven rows of the third step had been written at that moment.
        let half: String = whole.split_inclusive('\n').take(27).collect();
        place.write("run.csv", format!("pid,step,x,name\n{half}"));
        let import = format!("table import t run.csv {packed}");
        assert!(atoll(&place, &import).text().contains("imported 27 rows in 3 steps"));
        place.write("run.csv", format!("pid,step,x,name\n{whole}"));
        let refused = atoll(&place, &import);
        let told = refused.fails(11);
        assert!(told.contains("run \"run\" has 7 rows of step 2, but run.csv has more"), "{told}");
        assert!(told.contains("--restart"), "{told}");
        assert_eq!(count(&place, ""), 27, "nothing behind the gap is in");
        atoll(&place, &format!("{import} --restart")).text();
        assert_eq!(count(&place, ""), 40);
        assert!(atoll(&place, &import).text().contains("imported 0 rows"));
    }
}

#[test]
fn a_number_that_was_cut_when_it_was_imported_does_not_stay_once_the_file_is_complete() {
    for parts in ["", "--parts"] {
        let place = created("");
        let write =
            |rest: &str| place.write("run.csv", format!("pid,step,name,x\n1,0,a,0.5\n2,0,b,0.1{rest}"));
        let import = format!("table import t run.csv {parts}");
        write("");
        assert!(atoll(&place, &import).text().contains("imported 2 rows"));
        assert!(atoll(&place, &import).text().contains("imported 0 rows"), "it is as it was");
        for _ in 0..2 {
            write("875\n3,1,c,2\n");
            let refused = atoll(&place, &import);
            assert!(
                refused.fails(11).contains("was imported while its last line was cut"),
                "{}",
                refused.stderr
            );
            assert!(refused.stderr.contains("--restart"), "{}", refused.stderr);
            assert_eq!(count(&place, ""), 2, "nothing behind that line is in");
        }
        atoll(&place, &format!("{import} --restart")).text();
        let found = atoll(&place, "table query t --format csv --columns x --where 'pid = 2'");
        assert_eq!(found.text(), "x\n0.1875\n");
        // What the run had before it began anew says nothing about it.
        assert!(atoll(&place, &import).text().contains("imported 0 rows"));
        // A line that lacked nothing but its end may get that.
        let import = format!("{import} --run ended");
        write("");
        atoll(&place, &import).text();
        write("\n3,1,c,2\n");
        assert!(atoll(&place, &import).text().contains("imported 1 row"));
        assert_eq!(count(&place, "--run ended"), 3);
    }
}

#[test]
fn an_estimate_tells_how_many_rows_have_no_value() {
    let place = Workspace::new();
    place.write("n.csv", "id,x,n\n1,nan,1\n2,1,\n3,3,5\n4,,1\n");
    atoll(&place, "table create n --column id:int64,x:float64?,n:int64? --id id --index x").text();
    atoll(&place, "table import n n.csv").text();
    assert_eq!(
        atoll(&place, "table estimate n --mean x").text(),
        "2 (exact, 4 rows read, 2 of 4 rows without a value)\n"
    );
    let json = atoll(&place, "table estimate n --sum n --json").json();
    assert_eq!((json["value"].as_f64(), json["missing"].as_u64()), (Some(7.0), Some(1)), "{json}");
    let groups = atoll(&place, "table estimate n --mean x --group-by n --json");
    let group: serde_json::Value = serde_json::from_str(groups.text().lines().next().unwrap()).unwrap();
    assert_eq!(group["missing"].as_u64(), Some(2), "a group without any value was met all the same: {group}");
}

#[test]
fn a_number_that_json_has_none_for_is_the_same_text_in_an_estimate_as_in_rows() {
    let place = Workspace::new();
    atoll(&place, "table create n --column id:int64,x:float64,kind:int64 --id id --index x").text();
    let none = atoll(&place, "table estimate n --mean x --json").json();
    assert_eq!((&none["value"], &none["missing"]), (&"NaN".into(), &0.into()), "{none}");
    let rows: String = (0..3000).map(|row| format!("{row},0.5,{}\n", row % 2)).collect();
    place.write("n.csv", format!("id,x,kind\n{rows}"));
    atoll(&place, "table import n n.csv").text();
    // If all units are alike, the sample does not tell how far another one may lie.
    let constant = atoll(&place, "table estimate n --mean x --sample 0.1 --json").json();
    assert_eq!(constant["value"].as_f64(), Some(0.5), "{constant}");
    assert_eq!((&constant["low"], &constant["high"]), (&"-inf".into(), &"inf".into()), "{constant}");
    let groups = atoll(&place, "table estimate n --mean x --group-by kind --sample 0.1 --json");
    for line in groups.text().lines() {
        let group: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&group["low"], &group["high"]), (&"-inf".into(), &"inf".into()), "{group}");
    }
}

#[test]
fn an_empty_table_an_empty_file_and_a_step_without_rows_have_answers() {
    let place = created("");
    assert_eq!(atoll(&place, "table query t --format csv").text(), "pid,step,x,name\n");
    assert_eq!(
        (count(&place, "--box x=0:1"), count(&place, "--sample 0.1"), count(&place, "--first 3")),
        (0, 0, 0)
    );
    assert_eq!(atoll(&place, "table estimate t --mean x").text(), "NaN (exact)\n");
    assert_eq!(atoll(&place, "table estimate t --rows").text(), "0 (exact)\n");
    assert_eq!(atoll(&place, "table pack t --whole --json").json()["rows"], 0);
    assert!(import(&place, "none.csv", "").text().contains("imported 0 rows in 0 steps"));
    place.write("nothing.csv", "");
    assert!(atoll(&place, "table import t nothing.csv").fails(12).contains("there is no header line"));
    for rows in ["1,0,0.5,a\n2,0,0.5,b\n", "1,1,0.5,a\n"] {
        place.write("rows.csv", rows);
        let told = atoll(&place, "table import t rows.csv");
        assert!(told.fails(12).contains("the first line of a CSV file names its columns"), "{}", told.stderr);
    }
    atoll(&place, "table append t none.csv --run empty --step 4").text();
    assert_eq!(atoll(&place, "table steps t").text(), "run    step  rows\nempty     4     0\n");
    atoll(&place, "table export t none.parquet").text();
    atoll(&place, "table create again --like none.parquet").text();
    assert!(atoll(&place, "table import again none.parquet").text().contains("imported 0 rows"));
}

#[test]
fn a_box_inside_out_is_refused_with_its_place_and_one_without_width_is_empty() {
    let place = created("");
    import(&place, "a.csv", "1,0,1,a\n").text();
    let refused = atoll(&place, "table query t --box x=3:1");
    assert!(refused.fails(12).contains("the range begins at 3 and ends at 1"), "{}", refused.stderr);
    assert!(refused.stderr.contains("low:high, without its high end"), "{}", refused.stderr);
    assert!(atoll(&place, "table query t --box x=nan:1").fails(12).contains("nan"));
    assert_eq!((count(&place, "--box x=1:1"), count(&place, "--where 'x > 3 and x < 1'")), (0, 0));
}

#[test]
fn ids_that_repeat_are_refused_with_where_they_are_and_nothing_of_the_step_is_kept() {
    let place = created("--unique");
    assert!(atoll(&place, "table info t").text().contains("pid, step, once in a run"));
    import(&place, "a.csv", "1,0,0,a\n2,0,0,b\n").text();
    let inside = import(&place, "b.csv", "7,0,0,a\n8,0,0,b\n7,0,0,c\n");
    assert!(inside.fails(12).contains("pid=7, step=0 is in rows 0 and 2"), "{}", inside.stderr);
    assert!(inside.stderr.contains("0 rows in 0 steps were imported as run b"), "{}", inside.stderr);
    place.write("c.csv", "pid,step,x,name\n9,1,0,a\n2,0,0,b\n");
    let across = atoll(&place, "table append t c.csv --run a --step 5");
    assert!(across.fails(11).contains("pid=2, step=0 is in step 0 already"), "{}", across.stderr);
    assert!(across.stderr.contains("none of these rows were stored"), "{}", across.stderr);
    assert_eq!(count(&place, ""), 2);
    // Another run may have the same ids, and the same file again is the same run.
    atoll(&place, "table append t c.csv --run c").text();
    assert!(atoll(&place, "table import t a.csv").text().contains("imported 0 rows"));
    assert_eq!(count(&place, ""), 4);
    // A table created from an export of this one has unique ids as well.
    atoll(&place, "table export t a.parquet --where 'pid < 3'").text();
    atoll(&place, "table create u --like a.parquet").text();
    assert!(atoll(&place, "table info u --json").json()["schema"]["unique"].as_bool().unwrap());
}

/// Steps of 500 rows; every hundredth name contains a comma and is therefore quoted.
fn steps(count: u64) -> String {
    let mut text = String::new();
    for row in 0..count * 500 {
        let name = if row % 100 == 0 { "\"a, b\"" } else { "c" };
        writeln!(text, "{},{},0.{row},{name}", row % 500, row / 500).unwrap();
    }
    text
}

#[test]
fn a_torn_file_of_every_format_is_told_as_such_and_the_whole_one_goes_on_from_there() {
    let place = created("");
    import(&place, "whole.csv", &steps(20)).text();
    let names = ["a.csv", "a.jsonl", "a.parquet", "a.arrow"];
    for name in names {
        atoll(&place, &format!("table export t {name}")).text();
        let whole = place.read(name);
        let stem = format!("torn-{}", name.split('.').nth(1).unwrap());
        // The CSV file is cut right after a quote that opens a field: what follows would be one field.
        let cut = match name {
            "a.csv" => whole.windows(3).rposition(|part| part == b",\"a").unwrap() + 2,
            _ => whole.len() * 3 / 4,
        };
        place.write(name, &whole[..cut]);
        atoll(&place, &format!("table create {stem} --like whole.csv --id pid,step --index x,step")).text();
        let import = format!("table import {stem} {name} --parts --set import.window=16KiB");
        let torn = atoll(&place, &import);
        assert!(matches!(torn.exit, Some(12 | 18)), "{name}: {}", torn.stderr);
        assert!(torn.stderr.contains(name) && torn.stderr.contains("hint: "), "{name}: {}", torn.stderr);
        let before: u64 =
            atoll(&place, &format!("table query {stem} --count")).text().trim().parse().unwrap();
        place.write(name, &whole);
        let rest = atoll(&place, &format!("{import} --json")).json()["rows"].as_u64().unwrap();
        assert_eq!((before + rest, rest > 0), (10_000, true), "{name}: {before} rows were in");
        let sorted = |table: &str| {
            let answer =
                atoll(&place, &format!("table query {table} --format csv --columns pid,step,x,name"));
            let mut lines: Vec<String> = answer.text().lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&stem), sorted("t"), "{name}");
    }
}

#[test]
fn a_torn_dump_and_a_torn_array_are_told_with_what_is_missing() {
    let place = Workspace::new();
    let mut dump = String::new();
    for step in 0..3 {
        write!(dump, "ITEM: TIMESTEP\n{step}\nITEM: NUMBER OF ATOMS\n40\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\nITEM: ATOMS id x\n").unwrap();
        (0..40).for_each(|atom| writeln!(dump, "{atom} 0.5").unwrap());
    }
    place.write("whole.dump", &dump);
    atoll(&place, "table create t --like whole.dump --id id,step --index x,step").text();
    let lines: Vec<&str> = dump.lines().collect();
    place.write("a.dump", lines[..lines.len() - 7].join("\n") + "\n");
    let torn = atoll(&place, "table import t a.dump");
    assert!(torn.fails(18).contains("a.dump ends early: 7 atoms of step 2 are missing"), "{}", torn.stderr);
    assert!(torn.stderr.contains("80 rows in 2 steps were imported as run a before that"), "{}", torn.stderr);
    place.write("a.dump", &dump);
    assert_eq!(atoll(&place, "table import t a.dump --json").json()["rows"], 40);
    // An array of two columns whose last rows are missing.
    let mut array = b"\x93NUMPY\x01\x00".to_vec();
    let mut header = "{'descr': '<f8', 'fortran_order': False, 'shape': (10, 2), }".to_owned();
    header += &" ".repeat(117 - header.len());
    header.push('\n');
    array.extend((header.len() as u16).to_le_bytes());
    array.extend(header.as_bytes());
    (0..14).for_each(|value| array.extend(f64::from(value).to_le_bytes()));
    place.write("a.npy", &array);
    atoll(&place, "table create n --column a:float64,b:float64 --id a --index b").text();
    let torn = atoll(&place, "table import n a.npy --names a,b");
    assert!(torn.fails(18).contains("rows of 10 are missing"), "{}", torn.stderr);
    assert_eq!(atoll(&place, "table query n --count").text(), "0\n");
}

#[test]
fn a_snapshot_that_a_restart_wrote_again_into_its_dump_doubles_no_atoms() {
    let place = Workspace::new();
    let mut dump = String::new();
    for step in [0, 100, 100, 200] {
        write!(dump, "ITEM: TIMESTEP\n{step}\nITEM: NUMBER OF ATOMS\n2\nITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\nITEM: ATOMS id x\n1 0.5\n2 0.25\n").unwrap();
    }
    place.write("a.dump", &dump);
    atoll(&place, "table create t --like a.dump --id id,step --index x,step").text();
    for packed in ["", " --packed --restart"] {
        let twice = atoll(&place, &format!("table import t a.dump{packed}"));
        assert!(twice.fails(12).contains("a second snapshot of step 100"), "{}", twice.stderr);
        assert!(twice.stderr.contains("--parts"), "{}", twice.stderr);
        assert_eq!(atoll(&place, "table query t --count --where 'step >= 100'").text(), "0\n");
    }
    assert_eq!(atoll(&place, "table import t a.dump --parts --run both --json").json()["rows"], 8);
}

#[test]
fn a_record_that_is_being_written_is_not_passed_over_and_is_in_once_it_is_whole() {
    for (name, head, first, second) in [
        ("a.csv", "pid,step,x,name\n", "1,0,0.5,a\n", "2,0,0.5,b\n"),
        ("a.jsonl", "", "{\"pid\":1,\"step\":0}\n", "{\"pid\":2,\"step\":0}\n"),
    ] {
        let place = created("");
        let import = format!("table import t {name} --parts --skip-bad 5");
        place.write(name, format!("{head}{first}{}", &second[..4]));
        let torn = atoll(&place, &import);
        assert!(torn.fails(12).contains("has no end"), "{name}: {}", torn.stderr);
        assert!(!torn.stderr.contains("--skip-bad N"), "{name}: {}", torn.stderr);
        assert!(torn.stderr.contains("1 row in 1 step was imported"), "{name}: {}", torn.stderr);
        place.write(name, format!("{head}{first}{second}"));
        assert_eq!(atoll(&place, &format!("{import} --json")).json()["rows"], 1, "{name}");
        assert_eq!(count(&place, ""), 2, "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_larger_than_the_memory_that_is_given_is_imported_within_it() {
    use std::io::{BufRead, BufReader};
    const ROWS: usize = 96 << 10;
    let place = created("");
    let text = "x".repeat(1 << 10);
    let mut file = "pid,step,x,name\n".to_owned();
    (0..ROWS).for_each(|row| writeln!(file, "{row},{},0.5,{text}", row / 500).unwrap());
    place.write("large.csv", &file);
    let words = "--store data table import t large.csv --set engine.memory=16MiB --set import.window=1MiB --progress json";
    let mut child = place.spawn(&words.split(' ').collect::<Vec<_>>());
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    // The peak of resident memory, read at each imported step.
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        line.unwrap();
        let told = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = told
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok());
        peak_kib = peak.unwrap_or(0).max(peak_kib);
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(count(&place, ""), ROWS as u64);
    let file_kib = file.len() / 1024;
    println!("{peak_kib} KiB of memory for a file of {file_kib} KiB");
    assert!(peak_kib > 0 && peak_kib < file_kib * 3 / 4, "{peak_kib} KiB for a file of {file_kib} KiB");
}

#[test]
fn what_is_no_regular_file_gives_its_run_no_name() {
    let place = created("");
    let refused = atoll(&place, "table import t /dev/null --format csv");
    assert!(refused.fails(2).contains("no name that the run could have"), "{}", refused.stderr);
}

#[test]
fn a_name_that_the_file_does_not_have_is_told_wherever_it_is_typed() {
    let place = created("");
    place.write("a.csv", "pidd,step,x,name\n1,0,0.5,a\n");
    let refused = atoll(&place, "table import t a.csv --rename pid=pidd --ignore-extra");
    assert!(refused.fails(12).contains("no column \"pid\""), "{}", refused.stderr);
    let refused = atoll(&place, "table create u --like a.csv --rename sep=step --id pidd --index x");
    assert!(refused.fails(12).contains("no column \"sep\""), "{}", refused.stderr);
    let refused = atoll(&place, "table create u --like a.csv --without nmae --id pidd --index x");
    assert!(refused.stderr.contains("nmae") && refused.stderr.contains("name"), "{}", refused.stderr);
    assert_ne!(refused.exit, Some(0));
}

#[test]
fn rows_are_not_written_with_commas_where_tabs_are_meant() {
    let place = created("");
    import(&place, "a.csv", "1,0,0.5,a\n").text();
    let refused = atoll(&place, "table export t a.tsv");
    assert!(refused.fails(2).contains("tabs"), "{}", refused.stderr);
    atoll(&place, "table export t a.tsv --format csv").text();
}

#[test]
fn an_interrupted_restart_does_not_say_that_the_same_command_goes_on() {
    let place = created("");
    let mut file = "pid,step,x,name\n".to_owned();
    (0..200_000).for_each(|row| writeln!(file, "{row},{},0.5,a", row / 10).unwrap());
    place.write("a.csv", &file);
    for (flag, goes_on) in [("", "the same command continues"), ("--restart", "without --restart")] {
        let line = format!("--store data table import t a.csv {flag} --progress json");
        let mut child = place.spawn(&line.split_whitespace().collect::<Vec<_>>());
        let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut told = String::new();
        std::io::BufRead::read_line(&mut stderr, &mut told).unwrap();
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        std::io::Read::read_to_string(&mut stderr, &mut told).unwrap();
        child.wait().unwrap();
        assert!(told.contains(goes_on), "{flag}: {told}");
    }
}

#[test]
fn a_vector_of_another_length_and_a_member_twice_are_refused_and_told_by_line() {
    let place = Workspace::new();
    let columns = "pid:int64,v:fixed_size_list[float64, 2]?";
    atoll(&place, &format!("table create t --column '{columns}' --id pid --index pid")).text();
    place.write("a.csv", "pid,v[0],v[1],v[2]\n1,2,3,4\n");
    let refused = atoll(&place, "table import t a.csv --ignore-extra");
    assert!(refused.fails(12).contains("a vector of 3 elements"), "{}", refused.stderr);
    for record in ["\"pid\":2,\"v\":[1]", "\"pid\":2,\"v\":[1,2,3]", "\"pid\":2,\"pid\":3"] {
        place.write("a.jsonl", format!("{{\"pid\":1,\"v\":[1,2]}}\n{{{record}}}\n"));
        let refused = atoll(&place, "table import t a.jsonl --parts --ignore-extra --restart");
        assert!(refused.fails(12).contains("a.jsonl, line 2"), "{record}: {}", refused.stderr);
    }
}

#[test]
fn an_instant_that_no_text_stands_for_is_kept_and_not_written_as_a_text() {
    let place = Workspace::new();
    atoll(&place, "table create t --column pid:int64,when:timestamp[us] --id pid --index pid").text();
    let header =
        "{'descr': [('pid', '<i8'), ('when', '<M8[us]')], 'fortran_order': False, 'shape': (1,), }\n";
    let mut array = b"\x93NUMPY\x01\x00".to_vec();
    array.extend((header.len() as u16).to_le_bytes());
    array.extend(header.as_bytes());
    array.extend([1, i64::MAX].map(i64::to_le_bytes).concat());
    place.write("a.npy", &array);
    atoll(&place, "table import t a.npy").text();
    for name in ["out.csv", "out.jsonl"] {
        let refused = atoll(&place, &format!("table export t {name}"));
        assert!(refused.fails(14).contains("column \"when\""), "{}", refused.stderr);
        assert!(refused.stderr.contains("Parquet") && !place.folder.path().join(name).exists());
    }
    atoll(&place, "table export t out.parquet").text();
    atoll(&place, "table import t out.parquet --run again").text();
    assert_eq!(count(&place, ""), 2);
}

#[test]
fn a_column_that_a_file_has_no_value_of_is_told_with_what_names_its_type() {
    let place = Workspace::new();
    place.write("header.csv", "a,b\n");
    let answer = atoll(&place, "table create h --like header.csv --id a --index a");
    let told = answer.fails(12);
    assert!(told.contains("header.csv has no value of a, b") && told.contains("--types a:"), "{told}");
    assert!(told.contains("it is utf8"), "{told}");
    let made = atoll(&place, "table create h --like header.csv --types a:int64,b:float64 --id a --index a");
    assert_eq!(made.exit, Some(0), "{}", made.stderr);
    assert!(!made.stderr.contains("no value"), "{}", made.stderr);
    place.write("full.csv", "a,b\n1,\n");
    let made = atoll(&place, "table create f --like full.csv --id a --index a");
    assert!(made.stderr.contains("has no value of b,"), "{}", made.stderr);
    assert!(!atoll(&place, "table info f --schema").text().contains("no_value"));
}

#[test]
fn numbers_beyond_a_double_are_told_with_its_digits_and_as_what_they_are() {
    let place = Workspace::new();
    atoll(&place, "table create n --column id:uint64,x:float64 --id id --index id").text();
    place.write("n.csv", "id,x\n18446744073709551615,1.7e308\n0,-1e-300\n");
    atoll(&place, "table import n n.csv").text();
    let sum = atoll(&place, "table estimate n --sum id");
    assert!(sum.text().contains("1.8446744073709552e19 (exact to 16 digits, 2 rows read"), "{}", sum.text());
    place.write("m.csv", "id,x\n9007199254740993,0\n-9007199254740992,0\n");
    atoll(&place, "table create m --column id:int64,x:float64 --id id --index id").text();
    atoll(&place, "table import m m.csv").text();
    let sum = atoll(&place, "table estimate m --sum id");
    assert!(sum.text().starts_with("1 (exact, 2 rows read"), "{}", sum.text());
    let sum = atoll(&place, "table estimate n --sum x");
    assert!(sum.text().starts_with("1.7e308 (exact to 16 digits"), "{}", sum.text());
    let small = atoll(&place, "table estimate n --sum x --where 'x < 0'");
    assert!(small.text().contains("-1e-300 (exact"), "{}", small.text());
}

#[test]
fn a_type_that_is_called_otherwise_and_what_is_no_cell_are_told_how_they_are_written() {
    let place = created("");
    for (typed, meant) in [("float", "float64"), ("(3)f4", "float32[3]"), ("double[2]?", "float64[2]")] {
        let refused = atoll(
            &place,
            &format!("table create u --column pid:int64 --column 'x:{typed}' --id pid --index pid"),
        );
        assert!(refused.fails(2).contains(&format!("did you mean {meant}?")), "{}", refused.stderr);
    }
    for cell in ["[10,10,10]", "cube", "{\"lengths\": [10]}"] {
        let refused = atoll(&place, &format!("table attributes t 'cell={cell}'"));
        let told = "the attribute \"cell\" must be a periodic cell, such as {\"axes\": [\"x\", \"y\", \"z\"]";
        assert!(refused.fails(12).contains(told), "{}", refused.stderr);
    }
    assert_eq!(atoll(&place, "table attributes t").text(), "");
}

#[test]
fn a_table_that_nobody_could_drop_is_not_created() {
    let place = created("--unit x=PLACEHOLDER");
    let schema = atoll(&place, "table info t --schema").text().to_owned();
    assert!(schema.contains("PLACEHOLDER"), "{schema}");
    place.write("long.json", schema.replace("PLACEHOLDER", &"m".repeat(1 << 20)));
    let refused = atoll(&place, "table create long --schema long.json");
    let told = refused.fails(13);
    assert!(told.contains("schema of a table of ") && told.contains("1048576"), "{told}");
    assert!(!atoll(&place, "table list").text().contains("long"));
}
