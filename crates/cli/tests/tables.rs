//! Tables through the command line: what goes in comes out, whatever the format and whoever is killed.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

#[path = "tables/copies.rs"]
mod copies;
#[path = "tables/files.rs"]
mod files;
#[path = "tables/imports.rs"]
mod imports;
mod support;
#[path = "tables/whole.rs"]
mod whole;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use support::{Answer, Place};

/// Runs the program on the store of this place.
fn atoll(place: &Place, arguments: &str) -> Answer {
    place.run(&[&["--store", "data"], &words(arguments)[..]].concat())
}

/// Words, of which those in single quotes may hold spaces.
fn words(line: &str) -> Vec<&str> {
    line.split('\'')
        .enumerate()
        .flat_map(|(place, part)| if place % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
        .collect()
}

const CREATE: &str = "table create t --column pid:int64,step:int64,x:float64,name:utf8? --id pid,step --sample-key pid --index x,step";

/// Rows of particles at steps, as CSV.
fn csv(steps: std::ops::Range<u64>, particles: u64) -> String {
    let mut text = "pid,step,x,name\n".to_owned();
    for step in steps {
        for pid in 0..particles {
            let name = if pid % 3 == 0 { String::new() } else { format!("\"p, {pid}\"") };
            text += &format!("{pid},{},{}.5,{name}\n", step * 10, pid * 7919 % 1000);
        }
    }
    text
}

fn lines(answer: &Answer) -> Vec<String> {
    answer.text().lines().map(str::to_owned).collect()
}

/// The rows of a query as CSV, sorted, without the header.
fn sorted(place: &Place, arguments: &str) -> Vec<String> {
    let mut rows = lines(&atoll(place, &format!("table query t --format csv {arguments}")));
    rows.remove(0);
    rows.sort();
    rows
}

/// The rows of a CSV text as `sorted` gives them.
fn rows_of(text: &str) -> Vec<String> {
    let mut rows: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
    rows.sort();
    rows
}

#[test]
fn a_table_that_is_there_already_is_not_told_as_new() {
    let place = Place::new();
    let told: Vec<_> = (0..2).map(|_| atoll(&place, CREATE).text().to_owned()).collect();
    assert!(told[0].starts_with("table t has 4 columns"), "{told:?}");
    assert!(told[1].starts_with("table t was there already; it has 4 columns"), "{told:?}");
    let told: Vec<_> = (0..2).map(|_| atoll(&place, &format!("{CREATE} --json")).json()).collect();
    assert!(told.iter().all(|told| told["was_there"] == true), "{told:?}");
}

/// A place with a table of 5 steps of 200 particles.
fn filled() -> Place {
    let place = Place::new();
    place.write("run.csv", csv(0..5, 200));
    atoll(&place, CREATE).text();
    let imported = atoll(&place, "table import t run.csv --json").json();
    assert_eq!((&imported["rows"], &imported["steps"]), (&1000.into(), &5.into()));
    place
}

#[test]
fn a_file_that_was_imported_is_answered_row_by_row() {
    let place = filled();
    assert_eq!(sorted(&place, ""), rows_of(&csv(0..5, 200)));
    assert_eq!(atoll(&place, "table query t --count").text(), "1000\n");
    assert_eq!(sorted(&place, "--box step=10:30 --where 'pid < 2'").len(), 4);
    let head = lines(&atoll(&place, "table head t -n 3 --columns pid,step"));
    assert_eq!(head.len(), 4);
    assert_eq!(head[0].split_whitespace().collect::<Vec<_>>(), ["pid", "step"]);
}

#[test]
fn samples_nest_keep_particles_whole_and_commute_with_boxes() {
    let place = filled();
    let small: BTreeSet<String> = sorted(&place, "--sample 0.1").into_iter().collect();
    let large: BTreeSet<String> = sorted(&place, "--sample 0.3").into_iter().collect();
    assert!(small.is_subset(&large) && small.len() < large.len() && !small.is_empty());
    assert_eq!(small.len() % 5, 0, "each particle has five steps");
    let other: BTreeSet<String> = sorted(&place, "--window 0.1:0.3").into_iter().collect();
    assert_eq!(small.union(&other).cloned().collect::<BTreeSet<_>>(), large);
    let boxed: BTreeSet<String> = sorted(&place, "--sample 0.3 --box step=20:").into_iter().collect();
    let expected = large.iter().filter(|row| row.split(',').nth(1).unwrap().parse::<u64>().unwrap() >= 20);
    assert_eq!(boxed, expected.cloned().collect());
    let sampled = atoll(&place, "table sample t 0.1 --format csv").text().lines().count();
    assert_eq!(sampled, small.len() + 1);
}

#[test]
fn rows_come_in_the_order_of_the_weights_so_that_a_beginning_is_a_sample() {
    let place = filled();
    let all = lines(&atoll(&place, "table query t --format csv"));
    let limited = lines(&atoll(&place, "table query t --format csv --limit 37"));
    assert_eq!(all[..38], limited);
    atoll(&place, "table export t all.csv").text();
    let exported = String::from_utf8(place.read("all.csv")).unwrap();
    assert_eq!(exported.lines().collect::<Vec<_>>(), all);
}

#[test]
fn every_format_brings_the_same_rows_back() {
    let place = filled();
    for name in ["out.csv", "out.parquet", "out.arrow"] {
        atoll(&place, &format!("table export t {name}")).text();
        let other = name.split('.').nth(1).unwrap();
        // A file that came out of a table knows its roles; CSV is told.
        let roles = if other == "csv" { "--id pid,step --sample-key pid --index x,step" } else { "" };
        atoll(&place, &format!("table create {other} --like {name} {roles}")).text();
        // In the order of the weights the steps do not rise.
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
fn files_with_long_texts_come_back_in_parts_that_fit() {
    let place = Place::new();
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
fn rows_are_json_lines_when_asked_for() {
    let place = filled();
    let answer = atoll(&place, "table query t --where 'pid = 4' --json");
    let rows: Vec<serde_json::Value> =
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 5);
    assert_eq!((&rows[0]["pid"], &rows[0]["name"]), (&4.into(), &"p, 4".into()));
}

#[test]
fn mistakes_are_answered_with_what_was_probably_meant() {
    let place = filled();
    place.write("bad.csv", "pidd,step,x,name\n1,2,3,x\n");
    place.write("extra.csv", "pid,step,x,name,nmae\n1,2,3,x,y\n");
    let cases: [(&str, i32, &str, &str); 16] = [
        ("table query t --where 'vz > 1'", 12, "there is no column", "a text stands"),
        ("table query t --where 'stp > 1'", 12, "there is no column", "did you mean step?"),
        ("table query t --where 'x >'", 12, "expected", "hint"),
        ("table query t --box x=3:1", 12, "--box", "without its high end"),
        ("table query t --columns nmae", 10, "has no column \"nmae\"", "did you mean \"name\"?"),
        ("table query t --sample 2", 2, "from 0 to 1", "0.01"),
        ("table query u", 10, "there is no table \"u\"", "hint"),
        ("table create u --column x:flaot64 --id x --index x", 2, "did you mean float64?", "types are"),
        ("table create u --column x:float64,i:int64 --id j --index x", 12, "id names \"j\"", "names"),
        ("table create u --column x:utf8,i:int64 --id i --index x", 12, "index cannot use \"x\"", "--where"),
        ("table create u --column x:float64 --index x", 2, "--id is missing", "--id pid,step"),
        ("table create u --id x --index x", 2, "which columns", "--like"),
        ("table create t --column x:float64,i:int64 --id i --index x", 11, "another schema", "another name"),
        ("table import t bad.csv", 12, "no column \"pid\"", "--rename pidd=pid"),
        ("table import t extra.csv", 12, "column \"nmae\"", "--ignore-extra"),
        ("table import t missing.csv", 10, "missing.csv", "spelling"),
    ];
    for (line, exit, message, hint) in cases {
        let answer = atoll(&place, line);
        let stderr = answer.fails(exit);
        assert!(stderr.contains(message) && stderr.contains(hint), "{line}: {stderr}");
        let json = atoll(&place, &format!("{line} --json"));
        let error: serde_json::Value = serde_json::from_str(json.stderr.lines().last().unwrap()).unwrap();
        assert_eq!(error["error"]["exit"], exit, "{line}");
    }
}

#[test]
fn a_bad_record_stops_an_import_and_the_mended_file_goes_on_from_there() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    let good = csv(0..3, 10);
    // The first line of step 20 is line 22.
    let bad = good.replacen("0,20,", "0,2O,", 1);
    place.write("run.csv", &bad);
    let stopped = atoll(&place, "table import t run.csv");
    assert!(
        stopped.fails(12).contains("run.csv, line 22: column \"step\": \"2O\" is not an int64"),
        "{}",
        stopped.stderr
    );
    place.write("run.csv", &good);
    assert_eq!(
        atoll(&place, "table import t run.csv --json").json()["rows"],
        20,
        "one step was known to be whole"
    );
    assert_eq!(sorted(&place, ""), rows_of(&good));
    place.write("other.csv", &bad);
    let skipped = atoll(&place, "table import t other.csv --skip-bad 1");
    assert!(skipped.text().contains("skipped 1 bad records"), "{}", skipped.stderr);
    assert!(skipped.stderr.contains("other.csv, line 22"), "{}", skipped.stderr);
    let appended = atoll(&place, "table append t other.csv --run once --skip-bad 1 --json");
    assert_eq!(appended.json()["skipped"], 1);
    let note: serde_json::Value = serde_json::from_str(appended.stderr.trim()).unwrap();
    assert!(note["note"].as_str().unwrap().contains("other.csv, line 22"), "{note}");
}

#[test]
fn a_file_that_grew_is_gone_on_with_and_another_one_is_refused() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    for parts in ["", "--parts"] {
        let import = format!("table import t grows.csv --run r{parts} {parts} --json");
        place.write("grows.csv", csv(0..3, 50));
        assert_eq!(atoll(&place, &import).json()["rows"], 150);
        assert_eq!(atoll(&place, &import).json()["rows"], 0, "all of it is there");
        place.write("grows.csv", csv(0..7, 50));
        assert_eq!(atoll(&place, &import).json()["rows"], 200);
        place.write("grows.csv", csv(1..8, 50));
        assert!(atoll(&place, &import).stderr.contains("another file"));
    }
    let mut twice = rows_of(&csv(0..7, 50));
    twice.extend(rows_of(&csv(0..7, 50)));
    twice.sort();
    assert_eq!(sorted(&place, ""), twice);
}

#[test]
fn a_file_that_grew_is_not_passed_over_because_of_a_step_that_somebody_appended_to_its_run() {
    for parts in ["", "--parts"] {
        let place = Place::new();
        atoll(&place, CREATE).text();
        place.write("grows.csv", csv(0..3, 50));
        let import = format!("table import t grows.csv {parts}");
        atoll(&place, &import).text();
        place.write("late.csv", csv(50..51, 5));
        atoll(&place, "table append t late.csv --run grows --step 300").text();
        place.write("grows.csv", csv(0..8, 50));
        let refused = atoll(&place, &import);
        assert!(refused.fails(11).contains("has step 300 that no import brought"), "{}", refused.stderr);
        // It may be taken away again, and others may write to the run beside.
        atoll(&place, "table delete t --run grows --steps 300:").text();
        assert!(atoll(&place, &import).text().contains("imported 250 rows"));
        assert_eq!(sorted(&place, ""), rows_of(&csv(0..8, 50)));
        atoll(&place, "table append t late.csv --run grows").text();
        atoll(&place, "table append t late.csv --run grows").text();
        assert_eq!(sorted(&place, "").len(), 410);
        atoll(&place, &format!("{import} --restart")).text();
        assert_eq!(sorted(&place, ""), rows_of(&csv(0..8, 50)));
    }
}

#[test]
fn an_import_killed_at_any_moment_goes_on_and_doubles_nothing() {
    let mut random = fastrand::Rng::with_seed(11);
    let text = csv(0..100, 40);
    let mut was_partial = false;
    for parts in ["", "--parts"] {
        let place = Place::new();
        place.write("run.csv", &text);
        atoll(&place, CREATE).text();
        let import = format!("table import t run.csv {parts} --progress json --set import.window=4KiB");
        let mut seen = 0;
        for _ in 0..4 {
            let mut child = place.spawn(&[&["--store", "data"], &words(&import)[..]].concat());
            let mut stderr = BufReader::new(child.stderr.take().unwrap());
            for _ in 0..random.usize(1..6) {
                let mut line = String::new();
                seen += stderr.read_line(&mut line).unwrap();
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(seen > 0);
        let before = sorted(&place, "").len();
        assert!(before > 0, "nothing after four kills");
        was_partial |= before < 4000;
        let last =
            atoll(&place, &format!("table import t run.csv {parts} --set import.window=8KiB --json")).json();
        assert_eq!(last["rows"], 4000 - before);
        assert_eq!(sorted(&place, ""), rows_of(&text), "parts: {parts:?}");
    }
    assert!(was_partial, "no kill came before the end");
}

#[test]
fn an_import_may_pack_as_it_goes_and_goes_on_where_its_last_step_is() {
    let place = Place::new();
    place.write("run.csv", csv(0..14, 10_000));
    atoll(&place, CREATE).text();
    let imported = atoll(&place, "table import t run.csv --packed --json").json();
    assert_eq!((&imported["rows"], &imported["steps"]), (&140_000.into(), &14.into()));
    let info = atoll(&place, "table info t --json").json();
    assert_eq!((&info["rows"], &info["blocks"]), (&140_000.into(), &0.into()), "{info}");
    assert!(info["cubes"].as_u64().unwrap() > 0, "{info}");
    // What came since is little, and comes as blocks.
    place.write("run.csv", csv(0..16, 10_000));
    let more = atoll(&place, "table import t run.csv --packed --json").json();
    assert_eq!((&more["rows"], &more["steps"]), (&20_000.into(), &2.into()));
    let info = atoll(&place, "table info t --json").json();
    assert_eq!((&info["rows"], &info["blocks"]), (&160_000.into(), &2.into()), "{info}");
}

#[test]
fn whole_steps_before_a_bad_record_of_a_packed_import_are_in() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    place.write("run.csv", csv(0..3, 10) + "x,30,0,a\n");
    let refused = atoll(&place, "table import t run.csv --packed");
    // Of the third nobody knows that it is whole.
    assert!(refused.stderr.contains("20 rows in 2 steps were imported"), "{}", refused.stderr);
    assert_eq!(sorted(&place, "").len(), 20);
    place.write("run.csv", csv(0..4, 10));
    assert_eq!(atoll(&place, "table import t run.csv --packed --json").json()["rows"], 20);
    assert_eq!(sorted(&place, "").len(), 40);
}

#[test]
fn a_run_that_no_import_made_is_left_alone() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 5));
    assert_eq!(
        atoll(&place, "table append t one.csv --run sim --step 7 --time 0.5 --json").json()["step"],
        7
    );
    assert_eq!(atoll(&place, "table append t one.csv --run sim --json").json()["step"], 8);
    let refused = atoll(&place, "table import t one.csv --run sim");
    assert!(refused.fails(11).contains("was not made by an import"), "{}", refused.stderr);
}

#[test]
fn appends_without_a_step_are_all_in_and_a_step_that_was_there_is_told() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 5));
    place.write("other.csv", csv(1..2, 7));
    let unsaid = atoll(&place, "table append t one.csv --run r --ranks 2");
    assert!(unsaid.fails(2).contains("which step it writes"), "{}", unsaid.stderr);
    assert!(unsaid.stderr.contains("--step N"), "{}", unsaid.stderr);
    atoll(&place, "table append t one.csv --run r --ranks 2 --step 3").text();
    // What another process brings as the same block is not in, and that is no secret.
    let again = atoll(&place, "table append t other.csv --run r --ranks 2 --step 3");
    assert!(again.text().contains("step 3 of run r was there already"), "{}", again.text());
    let again = atoll(&place, "table append t other.csv --run r --ranks 2 --step 3 --json").json();
    assert_eq!((&again["already_there"], &again["rows"]), (&true.into(), &0.into()));
    // Those that race take a step each.
    let first = atoll(&place, "table append t one.csv --run s --json").json();
    assert_eq!((&first["already_there"], &first["rows"]), (&false.into(), &5.into()));
    let append = words("--store data table append t other.csv --run s --json");
    let racing: Vec<_> = (0..4).map(|_| place.spawn(&append)).collect();
    let answers = racing.into_iter().map(|child| Answer::from(child.wait_with_output().unwrap()));
    let steps: BTreeSet<u64> = answers.map(|answer| answer.json()["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..5).collect());
    assert_eq!(sorted(&place, "--run s").len(), 5 + 4 * 7);
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
fn standard_input_needs_a_name_for_its_run_and_brings_rows() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    let arguments = words("--store data table import t - --format csv");
    let unnamed = place.run_with(&arguments, b"");
    assert!(unnamed.fails(2).contains("no name that the run could have"), "{}", unnamed.stderr);
    let named = place.run_with(&[&arguments[..], &["--run", "piped"]].concat(), csv(0..2, 20).as_bytes());
    assert!(named.text().contains("imported 40 rows in 2 steps"), "{}", named.text());
    assert_eq!(sorted(&place, ""), rows_of(&csv(0..2, 20)));
}

#[test]
fn a_mean_is_exact_of_everything_and_an_interval_of_a_sample() {
    let place = filled();
    let exact = atoll(&place, "table estimate t --mean x --json").json();
    assert_eq!((exact["exact"].as_bool(), exact["rows"].as_u64()), (Some(true), Some(1000)));
    let truth = exact["value"].as_f64().unwrap();
    let rows = sorted(&place, "--columns x");
    let sum: f64 = rows.iter().map(|row| row.parse::<f64>().unwrap()).sum();
    assert!((truth - sum / 1000.0).abs() < 1e-9, "{truth}");
    let sample = atoll(&place, "table estimate t --mean x --sample 0.4 --confidence 99.99% --json").json();
    let number = |name: &str| sample[name].as_f64().unwrap();
    assert!(number("low") < truth && truth < number("high"), "{sample}");
    assert!(sample["rows"].as_u64().unwrap() < 600, "{sample}");
    // A thousand rows are read at once, and then nothing is left to estimate.
    let all = atoll(&place, "table estimate t --mean x --within 10%").text().to_owned();
    assert!(all.contains("(exact, 1000 rows read)"), "{all}");
    let told = atoll(&place, "table estimate t --mean x --sample 0.4").text().to_owned();
    assert!(told.contains(" ± ") && told.contains("95 %") && told.contains("rows read"), "{told}");
    assert_eq!(
        atoll(&place, "table estimate t --rows --box step=10:30").text(),
        "400 (exact, 400 rows read)\n"
    );
}

#[test]
fn groups_shares_and_quantiles_are_estimated_and_what_makes_no_sense_is_refused() {
    let place = filled();
    let groups = lines(&atoll(&place, "table estimate t --mean pid --group-by step"));
    assert_eq!(groups.len(), 5);
    assert!(groups[0].starts_with("0\t99.5 (exact") && groups[4].starts_with("40\t"), "{groups:?}");
    let share = atoll(&place, "table estimate t --share 'pid < 50' --json").json();
    assert_eq!(share["value"].as_f64(), Some(0.25));
    let median = atoll(&place, "table estimate t --quantile pid:0.5 --json").json();
    assert!((99.0..=100.0).contains(&median["value"].as_f64().unwrap()), "{median}");
    assert!(atoll(&place, "table estimate t").fails(2).contains("--mean"));
    assert!(
        atoll(&place, "table estimate t --mean x --within 1% --sample 0.1").fails(2).contains("--sample")
    );
    atoll(&place, "table estimate t --mean x --sum x").fails(2);
    atoll(&place, "table estimate t --mean x --within -1%").fails(2);
    assert!(atoll(&place, "table estimate t --mean y").fails(10).contains("y"));
    assert!(atoll(&place, "table estimate t --mean name").fails(12).contains("numbers"));
}

#[test]
fn a_snapshot_keeps_its_version_through_a_vacuum_that_takes_the_others() {
    let place = filled();
    atoll(&place, "table snapshot create t whole").text();
    atoll(&place, "table delete t --where 'pid >= 50'").text();
    let between = atoll(&place, "table info t --json").json()["version"].as_u64().unwrap();
    atoll(&place, "table pack t --whole").text();
    assert!(atoll(&place, "table vacuum t --json").json()["oldest"].as_u64().unwrap() > between);
    assert_eq!(atoll(&place, "table query t --count --as-of whole").text(), "1000\n");
    assert!(atoll(&place, &format!("table query t --count --as-of {between}")).fails(10).contains("gone"));
    let listed = atoll(&place, "table snapshot list t").text().to_owned();
    assert!(listed.starts_with("whole\tversion "), "{listed}");
    atoll(&place, "table snapshot delete t whole").text();
    assert!(atoll(&place, "table vacuum t --json").json()["objects"].as_u64().unwrap() >= 5);
    assert!(atoll(&place, "table query t --count --as-of whole").fails(10).contains("no snapshot"));
    assert_eq!(atoll(&place, "table query t --count").text(), "250\n");
    assert!(atoll(&place, "table snapshot delete t whole").fails(10).contains("whole"));
}

#[test]
fn json_lines_that_were_written_are_read_again_and_bad_ones_are_told_by_line() {
    let place = filled();
    atoll(&place, "table export t rows.jsonl").text();
    atoll(&place, "table create again --like rows.jsonl --id pid,step --index x,step").text();
    atoll(&place, "table import again rows.jsonl --parts").text();
    let mut again = lines(&atoll(&place, "table query again --format csv --columns pid,step,x,name"));
    again.remove(0);
    again.sort();
    assert_eq!(again, sorted(&place, "--columns pid,step,x,name"));
    place.write("bad.jsonl", "{\"pid\": 1, \"step\": 1, \"x\": 2}\n{\"pid\": }\n");
    let refused = atoll(&place, "table import again bad.jsonl --parts");
    assert!(refused.stderr.contains("line 2"), "{}", refused.stderr);
    let skipped = atoll(&place, "table import again bad.jsonl --parts --skip-bad 1");
    assert!(skipped.text().contains("skipped 1 bad"), "{}", skipped.text());
    // Whoever mends a line does as the hint says, be it the first.
    let good = ["{\"pid\": 1, \"step\": 1, \"x\": 2}", "{\"pid\": 2, \"step\": 1, \"x\": 3}"];
    for bad in 0..2 {
        let mut lines = good;
        lines[bad] = "{\"pid\": 7, }";
        let import = format!("table import again mended.jsonl --run mended-{bad}");
        place.write("mended.jsonl", lines.join("\n"));
        let refused = atoll(&place, &import);
        assert!(refused.fails(12).contains(&format!("line {}", bad + 1)), "{}", refused.stderr);
        place.write("mended.jsonl", good.join("\n"));
        assert!(atoll(&place, &import).text().contains("imported 2 rows"));
    }
}

#[test]
fn a_condition_deletes_and_an_older_version_still_has_the_rows() {
    let place = filled();
    let before = atoll(&place, "table info t --json").json()["version"].as_u64().unwrap();
    atoll(&place, "table delete t --where 'pid >= 50'").text();
    assert_eq!(atoll(&place, "table query t --count").text(), "250\n");
    atoll(&place, "table delete t --run run --steps 30:").text();
    assert_eq!(atoll(&place, "table query t --count").text(), "150\n");
    assert_eq!(atoll(&place, &format!("table query t --count --as-of {before}")).text(), "1000\n");
    atoll(&place, "table delete t").fails(2);
    atoll(&place, "table delete t --all").text();
    assert_eq!(sorted(&place, ""), Vec::<String>::new());
}

#[test]
fn packing_changes_no_answer() {
    let place = filled();
    let questions = ["", "--sample 0.2", "--box step=10:30 --where 'pid < 50'", "--first 7"];
    let answers = || {
        questions.map(|question| {
            atoll(&place, &format!("table query t --format csv {question}")).text().to_owned()
        })
    };
    let before = answers();
    let packed = atoll(&place, "table pack t --whole --json").json();
    assert_eq!(packed["rows"], 1000);
    assert!(atoll(&place, "table info t --json").json()["cubes"].as_u64().unwrap() > 0);
    assert_eq!(answers(), before);
}

#[test]
fn a_restart_replaces_what_the_run_had() {
    let place = filled();
    place.write("run.csv", csv(3..9, 30));
    assert!(atoll(&place, "table import t run.csv").fails(11).contains("another file"));
    atoll(&place, "table import t run.csv --restart").text();
    assert_eq!(sorted(&place, ""), rows_of(&csv(3..9, 30)));
}

#[test]
fn tables_and_steps_are_listed_and_a_dropped_table_is_gone() {
    let place = filled();
    assert_eq!(lines(&atoll(&place, "table steps t"))[1], "run\tstep 10\t200 rows");
    assert_eq!(lines(&atoll(&place, "table steps t --run run --last 2")).len(), 2);
    assert_eq!(lines(&atoll(&place, "table steps t --runs")), ["run\t5 steps, the last 40\t1000 rows"]);
    assert!(atoll(&place, "table list").text().starts_with("t\t"));
    let mistyped = atoll(&place, "table drop tt");
    assert!(mistyped.fails(10).contains("did you mean \"t\"?") || mistyped.stderr.contains("there are: t"));
    atoll(&place, "table drop t").text();
    assert_eq!(atoll(&place, "table list").text(), "");
    atoll(&place, CREATE).text();
    assert_eq!(atoll(&place, "table query t --count").text(), "0\n", "nothing of the old one comes back");
}

#[test]
fn whoever_packs_and_stays_packs_what_is_left_and_ends_well_when_interrupted() {
    let place = filled();
    let mut packer = place.spawn(&words("--store data table pack t --follow --idle 50ms --share 0.9 --json"));
    let mut lines = BufReader::new(packer.stdout.take().unwrap()).lines();
    let packed: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((packed["rows"].as_u64(), packed["trees"].as_u64()), (Some(1000), Some(1)));
    let interrupted = std::process::Command::new("kill").args(["-INT", &packer.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    assert!(packer.wait().unwrap().success());
    assert_eq!(atoll(&place, "table info t --json").json()["blocks"], 0);
    atoll(&place, "table pack t --follow --whole").fails(2);
    atoll(&place, "table pack t --idle 1s").fails(2);
}

#[test]
fn whoever_follows_sees_each_step_once_as_it_comes() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 5));
    atoll(&place, "table append t one.csv --run sim --step 1").text();
    let follower = place.spawn(&words("--store data table follow t --all --count 3 --timeout 1min --json"));
    atoll(&place, "table append t one.csv --run sim --step 2 --time 0.5").text();
    atoll(&place, "table append t one.csv --run sim --step 3").text();
    let answer = Answer::from(follower.wait_with_output().unwrap());
    let steps: Vec<serde_json::Value> =
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(steps.iter().map(|step| step["step"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(steps[1]["time"], 0.5);
}

#[test]
fn several_that_begin_a_run_at_the_same_time_all_append_to_it() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 10));
    let append = ["--store", "data", "table", "append", "t", "one.csv", "--run", "r"];
    let children: Vec<_> = (0..6).map(|_| place.command(&append).spawn().unwrap()).collect();
    for child in children {
        Answer::from(child.wait_with_output().unwrap()).text();
    }
    assert_eq!(sorted(&place, "").len(), 60);
    // One began it, and the others joined.
    let steps = lines(&atoll(&place, "table steps t --json"));
    assert!(steps.iter().all(|step| step.contains("\"attempt\":1")), "{steps:?}");
}

#[test]
fn gathering_stores_is_their_union_and_doubles_nothing() {
    let place = Place::new();
    for (store, steps) in [("one", 0..3), ("two", 5..9)] {
        let run = |arguments: &str| place.run(&[&["--store", store], &words(arguments)[..]].concat());
        run(CREATE).text();
        place.write("run.csv", csv(steps, 40));
        run("table import t run.csv").text();
    }
    for _ in 0..2 {
        atoll(&place, "table gather t --from one --from ./two").text();
        let expected = rows_of(&(csv(0..3, 40) + csv(5..9, 40).split_once('\n').unwrap().1));
        assert_eq!(sorted(&place, ""), expected);
    }
    place.write("more.csv", csv(3..4, 40));
    place.run(&words("--store one table import t more.csv")).text();
    let again = atoll(&place, "table gather t --from one");
    assert!(again.stderr.contains("is not gathered"), "{}", again.stderr);
    let told = atoll(&place, "table gather t --from one --json").json();
    assert!(told["version_there"].as_u64() > told["version"].as_u64(), "{told}");
    let unknown = atoll(&place, "table gather t --from three");
    unknown.fails(10);
}

#[test]
fn reading_verbs_work_on_a_store_that_is_only_read() {
    let place = filled();
    for verb in
        ["list", "info t", "steps t", "head t", "query t --count", "sample t 0.1", "explain t", "export t -"]
    {
        let arguments = format!("--store file:data?mode=read table {verb} --json");
        assert_eq!(place.run(&words(&arguments)).exit, Some(0), "{verb}");
    }
}

#[test]
fn a_column_is_added_and_older_versions_show_the_older_columns() {
    let place = filled();
    let added = atoll(&place, "--json table add-column t charge:float32 --unit e --description 'a charge'");
    let told: serde_json::Value = serde_json::from_str(added.text()).unwrap();
    assert_eq!((&told["column"], &told["type"]), (&"charge".into(), &"float32".into()));
    let (version, rows) = (told["version"].as_u64().unwrap(), 1000);
    assert_eq!(
        atoll(&place, "table query t --where 'charge is null' --count").text().trim(),
        rows.to_string()
    );
    let before = atoll(&place, &format!("table query t --format csv --limit 1 --as-of {}", version - 1));
    assert_eq!(lines(&before)[0], "pid,step,x,name");
    place.write("more.csv", "pid,step,x,name,charge\n7,900,0.5,seven,-1.5\n");
    atoll(&place, "table append t more.csv --run more --step 900").text();
    let charged = atoll(&place, "table query t --where 'charge < 0' --format csv");
    assert_eq!(lines(&charged), ["pid,step,x,name,charge", "7,900,0.5,seven,-1.5"]);
    let info = atoll(&place, "table info t");
    assert!(info.text().contains("charge: float32? in e, a charge"), "{}", info.text());
    let refused = atoll(&place, "table add-column t x:float32");
    assert!(refused.stderr.contains("there are two columns \"x\""), "{}", refused.stderr);
}

#[test]
fn near_and_wrapped_boxes_use_the_cell_that_is_typed_or_kept() {
    let place = Place::new();
    place.write("run.csv", "id,x,y\n1,0.5,0\n2,9.5,0\n3,5,0\n4,9.5,5\n");
    atoll(&place, "table create t --column id:int64,x:float64,y:float64 --id id --index x,y").text();
    atoll(&place, "table import t run.csv").text();
    let ids = |arguments: &str| sorted(&place, &format!("{arguments} --columns id"));
    assert_eq!(ids("--near 0,0,0.5"), ["1"]);
    assert_eq!(ids("--near 0,0,0.5 --cell 10,10"), ["1", "2"]);
    assert_eq!(ids("--near 0,0,0.5 --cell 10,inf"), ["1", "2"]);
    assert_eq!(ids("--near -5,0,0.5 --cell 10,10,0"), ["3"]);
    assert_eq!(ids("--where 'near((x), (0), 0.5, cell(10))'"), ["1", "2", "4"]);
    for alone in ["--cell 10,10", "--box x=9:11 --cell 10,10", "--cell none"] {
        let refused = atoll(&place, &format!("table query t {alone}"));
        assert!(refused.fails(2).contains("--cell needs --wrap or --near"), "{}", refused.stderr);
    }
    let refused = atoll(&place, "table query t --box x=9:11 --wrap");
    assert!(refused.stderr.contains("the table has none"), "{}", refused.stderr);
    let kept = r#"table attributes t 'cell={"axes":["x","y"],"lengths":[10,null]}' runs=3 deck=tube.in"#;
    assert!(atoll(&place, kept).text().contains("runs\t3"));
    assert_eq!(ids("--box x=9:11 --wrap"), ["1", "2", "4"]);
    assert_eq!(ids("--near 0,0,0.5"), ["1", "2"]);
    assert_eq!(ids("--near 0,0,0.5 --cell none"), ["1"]);
    atoll(&place, "table attributes t deck=").text();
    assert_eq!(lines(&atoll(&place, "table attributes t")).len(), 2);
    let wrong = atoll(&place, "table attributes t cell=cube");
    assert!(wrong.fails(12).contains("\"axes\""), "{}", wrong.stderr);
    let absent = atoll(&place, r#"table attributes t 'cell={"axes":["X"],"lengths":[10]}'"#);
    assert!(absent.fails(12).contains("X"), "{}", absent.stderr);
    let vector = atoll(&place, r#"table attributes t 'cell={"axes":["x"],"lengths":[10,10]}'"#);
    assert!(vector.fails(12).contains("x"), "{}", vector.stderr);
}

#[test]
fn an_export_takes_no_name_that_is_taken_and_leaves_nothing_but_its_file() {
    let place = filled();
    place.run(&words("--store data kv put p s 1")).text();
    for (export, name) in [("table export t", "out.csv"), ("kv export", "all.jsonl")] {
        let part = format!("{name}.part");
        place.write(&part, "mine");
        // What a kill left behind does not stay.
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
    let place = Place::new();
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

#[test]
fn of_two_imports_that_begin_one_run_at_once_nobodys_rows_are_taken_away() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    for folder in ["a", "b"] {
        std::fs::create_dir(place.folder.path().join(folder)).unwrap();
    }
    for round in 0..4 {
        let texts = [csv(0..3, 5), csv(1..4, 7)];
        let names = ["a", "b"].map(|folder| format!("{folder}/out-{round}.csv"));
        names.iter().zip(&texts).for_each(|(name, text)| place.write(name, text));
        let both =
            names.each_ref().map(|name| place.spawn(&words(&format!("--store data table import t {name}"))));
        let answers = both.map(|child| Answer::from(child.wait_with_output().unwrap()));
        let rows = sorted(&place, &format!("--run out-{round}"));
        for (answer, text) in answers.iter().zip(&texts) {
            if answer.exit == Some(0) {
                assert_eq!(rows, rows_of(text), "round {round}: {answers:?}");
            } else {
                answer.fails(11);
            }
        }
        assert!(answers.iter().any(|answer| answer.exit == Some(0)), "round {round}: {answers:?}");
    }
}

#[test]
fn of_two_appends_that_begin_one_run_at_once_each_that_is_told_as_in_is_in() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 5));
    for round in 0..4 {
        let steps = [5, 10];
        let both = steps.map(|step| {
            place.spawn(&words(&format!("--store data table append t one.csv --run r{round} --step {step}")))
        });
        let answers = both.map(|child| Answer::from(child.wait_with_output().unwrap()));
        let there = atoll(&place, &format!("table steps t --run r{round}")).text().to_owned();
        for (answer, step) in answers.iter().zip(steps) {
            let is_in = there.contains(&format!("step {step}\t"));
            assert_eq!(answer.exit == Some(0), is_in, "round {round}, step {step}: {there} {answers:?}");
        }
    }
}

#[test]
fn an_import_that_brought_nothing_in_does_not_keep_the_name_of_the_run() {
    let place = Place::new();
    atoll(&place, CREATE).text();
    place.write("run.csv", "pid,step,x,name\n1,-1,0.5,a\n");
    atoll(&place, "table import t run.csv").fails(2);
    place.write("run.csv", csv(0..2, 5));
    assert_eq!(atoll(&place, "table import t run.csv --json").json()["rows"], 10);
    // Once something is in, it does.
    place.write("run.csv", csv(1..2, 6));
    assert!(atoll(&place, "table import t run.csv").fails(11).contains("another file"));
}

#[test]
fn a_step_that_is_appended_takes_no_place_of_later_ones_unless_a_new_attempt_is_named() {
    let place = Place::new();
    atoll(&place, &format!("{CREATE} --unique")).text();
    place.write("one.csv", csv(0..1, 5));
    place.write("two.csv", csv(1..2, 5));
    atoll(&place, "table append t one.csv --run r --step 10").text();
    // A second attempt has begun, and nothing of it is in.
    atoll(&place, "table append t one.csv --run r --attempt 2 --step 11").fails(11);
    let refused = atoll(&place, "table append t two.csv --run r --step 5");
    assert!(refused.fails(11).contains("has its steps up to 10"), "{}", refused.stderr);
    assert_eq!(lines(&atoll(&place, "table steps t")), ["r\tstep 10\t5 rows"]);
    let again = atoll(&place, "table append t two.csv --run r --step 10");
    assert!(again.text().contains("was there already"), "{}", again.text());
    atoll(&place, "table append t two.csv --run r --step 12").text();
    assert_eq!(lines(&atoll(&place, "table steps t")), ["r\tstep 10\t5 rows", "r\tstep 12\t5 rows"]);
    // Nor where it would begin an attempt of its own, and what is refused ends nobody else's.
    for rank in [0, 1] {
        let file = ["one.csv", "two.csv"][rank];
        let of_two = format!("--run s --step 10 --ranks 2 --attempt 1 --rank {rank}");
        atoll(&place, &format!("table append t {file} {of_two}")).text();
    }
    let refused = atoll(&place, "table append t two.csv --run s --step 5");
    assert!(refused.fails(11).contains("has its steps up to 10"), "{}", refused.stderr);
    place.write("four.csv", csv(3..4, 5));
    atoll(&place, "table append t four.csv --run s --step 11 --ranks 2 --attempt 1").text();
    // Who names an attempt means it.
    place.write("three.csv", csv(2..3, 5));
    atoll(&place, "table append t three.csv --run r --attempt 3 --step 5").text();
    assert_eq!(lines(&atoll(&place, "table steps t --run r")), ["r\tstep 5\t5 rows"]);
}
