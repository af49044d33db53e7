//! `atoll table export`, and reading its files back: the same rows, and no other file is overwritten.

use super::support::{Answer, Workspace};
use super::{CREATE, atoll, csv, filled, lines, words};
use std::collections::BTreeSet;

#[test]
fn every_format_brings_the_same_rows_back() {
    let place = filled();
    for name in ["out.csv", "out.parquet", "out.arrow"] {
        atoll(&place, &format!("table export t {name}")).text();
        let other = name.split('.').nth(1).unwrap();
        // A file exported from a table knows its roles; for CSV they have to be given.
        let roles = if other == "csv" { "--id pid,step --sample-key pid --index x,step" } else { "" };
        atoll(&place, &format!("table create {other} --like {name} {roles}")).text();
        // In the order of the weights, steps do not rise.
        let imported = atoll(&place, &format!("table import {other} {name} --parts --json")).json();
        assert_eq!(imported["rows"], 1000, "{name}");
        let again = atoll(&place, &format!("table query {other} --format csv"));
        assert_eq!(lines(&again), lines(&atoll(&place, "table query t --format csv")), "{name}");
    }
    let exists = atoll(&place, "table export t out.csv");
    assert!(exists.fails(11).contains("--force"), "{}", exists.stderr);
    assert!(atoll(&place, "table export t out.csv --force").text().contains("1000 rows"));
}

#[test]
fn arrays_and_dumps_bring_the_same_rows_back() {
    let place = filled();
    let columns = "--columns pid,step,x";
    let expected = lines(&atoll(&place, &format!("table query t {columns} --format csv")));
    for name in ["one.npy", "two.npz", "three.dump"] {
        let (other, format) = name.split_once('.').unwrap();
        atoll(&place, &format!("table export t {name} {columns}")).text();
        let roles = "--id pid,step --sample-key pid --index x,step";
        atoll(&place, &format!("table create {other} --like {name} {roles}")).text();
        // Only the steps of a dump rise.
        let parts = if format == "dump" { "" } else { "--parts" };
        let imported = atoll(&place, &format!("table import {other} {name} {parts} --json")).json();
        assert_eq!(imported["rows"], 1000, "{name}");
        let again = atoll(&place, &format!("table query {other} {columns} --format csv"));
        assert_eq!(lines(&again), expected, "{name}");
        atoll(&place, &format!("table query t {columns} --output answer.{format}")).text();
        assert_eq!(place.read(&format!("answer.{format}")), place.read(name), "{name}");
    }
    let piped = atoll(&place, &format!("table export t - {columns} --format npz"));
    assert!(piped.exit == Some(0) && piped.stdout == place.read("two.npz"), "{}", piped.stderr);
}

#[test]
fn an_export_gives_columns_other_names_in_every_format() {
    let place = filled();
    let (columns, rename) = ("--columns pid,step,x", "--rename pid=id,x=xu");
    let plain = lines(&atoll(&place, &format!("table query t {columns} --format csv")));
    for name in ["a.csv", "a.parquet", "a.arrow", "a.npy", "a.npz", "a.dump"] {
        let format = name.split('.').nth(1).unwrap();
        atoll(&place, &format!("table export t {name} {columns} {rename}")).text();
        if format == "parquet" {
            let told = atoll(&place, &format!("table create none --like {name}"));
            assert!(told.fails(2).contains("--id is missing"), "{}", told.stderr);
        }
        let roles = "--id id,step --sample-key id --index xu,step";
        atoll(&place, &format!("table create {format} --like {name} {roles}")).text();
        let parts = if format == "dump" { "" } else { "--parts" };
        atoll(&place, &format!("table import {format} {name} {parts}")).text();
        let again = lines(&atoll(&place, &format!("table query {format} --columns id,step,xu --format csv")));
        assert_eq!((&*again[0], &again[1..]), ("id,step,xu", &plain[1..]), "{name}");
    }
    // The box spans the column of positions under its new name.
    let dump = atoll(&place, &format!("table export t - --format lammps {columns}"));
    let renamed = String::from_utf8(place.read("a.dump")).unwrap();
    assert!(renamed.replace("ITEM: ATOMS id xu\n", "ITEM: ATOMS pid x\n") == dump.text(), "{renamed}");
    let objects = atoll(&place, &format!("table export t - --format jsonl {columns} {rename}"));
    assert!(objects.text().contains("\"id\"") && !objects.text().contains("\"pid\""), "{}", objects.text());
    // Names may change places.
    let exchanged =
        atoll(&place, "table export t - --format csv --columns pid,step --rename pid=step,step=pid");
    assert_eq!(lines(&exchanged)[0], "step,pid");
}

#[test]
fn names_that_no_column_has_and_names_that_two_would_have_are_refused_and_leave_no_file() {
    let place = filled();
    for (arguments, told, hint) in [
        ("--rename pidd=id", "\"pidd\", which is not a column of the file", "did you mean \"pid\"?"),
        ("--columns step,x --rename pid=id", "\"pid\", which is not a column", "there are: "),
        ("--rename x=step", "two columns would be called \"step\"", "choose another name"),
        ("--rename pid=a,x=a", "two columns would be called \"a\"", "leave it out with --columns"),
        ("--rename pid=a --rename pid=b", "gives column \"pid\" two names", "one name"),
    ] {
        let refused = atoll(&place, &format!("table export t b.csv {arguments}"));
        let stderr = refused.fails(2);
        assert!(stderr.contains(told) && stderr.contains(hint), "{arguments}: {stderr}");
        let names = std::fs::read_dir(place.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.starts_with("b.")).count(), 0, "{arguments}");
    }
}

#[test]
fn what_arrays_and_dumps_cannot_hold_is_told_and_leaves_no_file() {
    let place = filled();
    for name in ["a.npy", "a.npz"] {
        let told = atoll(&place, &format!("table export t {name}"));
        assert!(told.fails(14).contains("column \"name\" is utf8"), "{}", told.stderr);
    }
    let told = atoll(&place, "table export t a.dump");
    assert!(told.fails(14).contains("column \"name\" has no value in a row of step 0"), "{}", told.stderr);
    let told = atoll(&place, "table query t --columns pid,step --output a.dump");
    assert!(told.fails(14).contains("\"x\" is not among the columns"), "{}", told.stderr);
    let told = atoll(&place, "table query t --output a.csv --bounds 0:1,0:1,0:1");
    assert!(told.fails(2).contains("--bounds"), "{}", told.stderr);
    let names = std::fs::read_dir(place.folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), BTreeSet::from(["data", "run.csv"].map(str::to_owned)));
}

#[test]
fn the_box_of_a_dump_is_given_or_that_of_the_step_the_run_or_the_table_or_of_the_rows() {
    let place = filled();
    let boxes = |arguments: &str| -> Vec<String> {
        let dump =
            atoll(&place, &format!("table export t - --format lammps --columns pid,step,x {arguments}"));
        let lines: Vec<&str> = dump.text().lines().collect();
        let heads = (0..lines.len()).filter(|line| lines[*line].starts_with("ITEM: BOX"));
        heads.map(|line| format!("{} {}", &lines[line][17..], lines[line + 1])).collect()
    };
    assert_eq!(boxes("--bounds -1:2000,0:2,0:3"), ["ff ff ff -1.0 2000.0"; 5]);
    let by_rows = boxes("");
    assert!(by_rows.len() == 5 && by_rows.iter().all(|one| one.starts_with("ss pp pp ")), "{by_rows:?}");
    let cell = |of: &str, length: u32| {
        let cell = format!("'cell={{\"axes\":[\"x\"],\"lengths\":[{length}]}}'");
        atoll(&place, &format!("table attributes t {of} {cell}")).text();
    };
    cell("", 1000);
    assert_eq!(boxes(""), ["pp pp pp 0.0 1000.0"; 5]);
    cell("--run run", 2000);
    cell("--run run --step 20", 3000);
    let of_step = |step: usize| if step == 2 { "pp pp pp 0.0 3000.0" } else { "pp pp pp 0.0 2000.0" };
    assert_eq!(boxes(""), [0, 1, 2, 3, 4].map(of_step));
}

#[test]
fn a_dump_has_the_rows_of_one_run_in_each_step_and_the_cell_of_the_run_that_its_version_has() {
    let place = filled();
    let cell = "'cell={\"axes\":[\"x\"],\"lengths\":[2000]}'";
    atoll(&place, &format!("table attributes t --run run {cell}")).text();
    let export = |arguments: &str| {
        atoll(&place, &format!("table export t - --format lammps --columns pid,step,x {arguments}"))
    };
    let version = atoll(&place, "table export t a.csv --json").json()["version"].to_string();
    let alone = export("");
    assert!(alone.text().contains("pp pp pp\n0.0 2000.0\n"), "{}", alone.stderr);
    // Later steps of another run: the snapshots are those of two runs now, but not in that version.
    place.write("later.csv", csv(5..6, 200));
    atoll(&place, "table import t later.csv").text();
    let both = export("");
    assert!(both.text().matches("ITEM: BOX BOUNDS ss pp pp").count() == 6, "{}", both.text());
    assert!(export(&format!("--as-of {version}")).stdout == alone.stdout);
    // The same steps once more.
    place.write("again.csv", csv(4..5, 200));
    atoll(&place, "table import t again.csv").text();
    for arguments in ["", "--bounds 0:1,0:1,0:1"] {
        let told = export(arguments);
        let runs = "the runs \"again\" and \"run\" both have rows of step 40";
        assert!(told.fails(2).contains(runs), "{arguments}: {}", told.stderr);
    }
    assert!(export("--run run").stdout == alone.stdout);
    assert!(export(&format!("--as-of {version}")).stdout == alone.stdout);
}

#[test]
fn files_with_long_texts_come_back_in_parts_that_fit() {
    let place = Workspace::new();
    atoll(&place, "table create t --column id:int64,text:utf8 --id id --index id").text();
    let mut file = "id,text\n".to_owned();
    for row in 0..50_000 {
        file += &format!("{row},{}\n", format!("{row:08}").repeat(256));
    }
    place.write("long.csv", &file);
    atoll(&place, "table import t long.csv").text();
    let names = ["long.parquet", "long.arrow"];
    for name in names {
        atoll(&place, &format!("table export t {name}")).text();
    }
    for name in names {
        let imported = atoll(&place, &format!("table import t {name} --run {name} --parts --json")).json();
        assert_eq!(
            (&imported["rows"], imported["steps"].as_u64() > Some(3)),
            (&50_000.into(), true),
            "{name}"
        );
    }
}

#[test]
fn a_schema_that_info_writes_makes_the_same_table() {
    let place = filled();
    let schema = atoll(&place, "table info t --schema");
    place.write("t.json", schema.text());
    atoll(&place, "table create u --schema t.json").text();
    assert_eq!(atoll(&place, "table info u --schema").text(), schema.text());
    let info = atoll(&place, "table info t --json").json();
    assert_eq!((&info["rows"], &info["runs"], &info["steps"]), (&1000.into(), &1.into(), &5.into()));
    assert!(atoll(&place, "table info t").text().contains("whatever has one pid"));
}

#[test]
fn an_export_takes_no_name_that_is_taken_and_leaves_nothing_but_its_file() {
    let place = filled();
    place.run(&words("--store data kv put p s 1")).text();
    for (export, name) in [("table export t", "out.csv"), ("kv export", "all.jsonl")] {
        let part = format!("{name}.part");
        place.write(&part, "mine");
        // What a killed process left behind is removed.
        place.write(&format!("{name}.atoll.part"), "left behind");
        atoll(&place, &format!("{export} {name}")).text();
        assert_eq!(place.read(&part), b"mine", "{export}");
        let names = std::fs::read_dir(place.folder.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let of_it: BTreeSet<String> = names.filter(|other| other.contains(name)).collect();
        assert_eq!(of_it, BTreeSet::from([name.to_owned(), part]), "{export}");
    }
}

#[test]
fn of_exports_to_one_name_at_once_one_has_it_and_the_others_are_told() {
    let place = Workspace::new();
    place.write("run.csv", csv(0..20, 1000));
    atoll(&place, CREATE).text();
    atoll(&place, "table import t run.csv").text();
    let expected = atoll(&place, "table export t - --format csv").stdout;
    let export = words("--store data table export t out.csv");
    let children: Vec<_> = (0..4).map(|_| place.spawn(&export)).collect();
    let answers = children.into_iter().map(|child| Answer::from(child.wait_with_output().unwrap()));
    let exits: Vec<Option<i32>> = answers.map(|answer| answer.exit).collect();
    assert_eq!(exits.iter().filter(|exit| **exit == Some(0)).count(), 1, "{exits:?}");
    assert!(exits.iter().all(|exit| matches!(exit, Some(0 | 11))), "{exits:?}");
    assert!(place.read("out.csv") == expected, "the file is not one export");
}
