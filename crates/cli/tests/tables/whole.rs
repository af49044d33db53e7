//! Whole tables: created, listed, packed, gathered, kept in versions, dropped.

use super::support::{Answer, Workspace};
use super::{CREATE, atoll, csv, filled, lines, rows_of, sorted, words};
use std::io::{BufRead, BufReader};

#[test]
fn an_existing_table_is_not_reported_as_new() {
    let place = Workspace::new();
    let told: Vec<_> = (0..2).map(|_| atoll(&place, CREATE).text().to_owned()).collect();
    assert!(told[0].starts_with("table t has 4 columns"), "{told:?}");
    assert!(told[1].starts_with("table t was there already; it has 4 columns"), "{told:?}");
    let told: Vec<_> = (0..2).map(|_| atoll(&place, &format!("{CREATE} --json")).json()).collect();
    assert!(told.iter().all(|told| told["was_there"] == true), "{told:?}");
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
    let listed = lines(&atoll(&place, "table snapshot list t"));
    assert!(listed[0] == "snapshot  version" && listed[1].starts_with("whole     "), "{listed:?}");
    atoll(&place, "table snapshot delete t whole").text();
    assert!(atoll(&place, "table vacuum t --json").json()["objects"].as_u64().unwrap() >= 5);
    assert!(atoll(&place, "table query t --count --as-of whole").fails(10).contains("no snapshot"));
    assert_eq!(atoll(&place, "table query t --count").text(), "250\n");
    assert!(atoll(&place, "table snapshot delete t whole").fails(10).contains("whole"));
}

#[test]
fn a_condition_deletes_and_an_older_version_still_has_the_rows() {
    let place = filled();
    let before = atoll(&place, "table info t --json").json()["version"].as_u64().unwrap();
    let gone = |line: &str| atoll(&place, &format!("table delete t {line} --json")).json()["rows"].clone();
    let told = atoll(&place, "table delete t --where 'pid >= 50' --count");
    assert!(told.text().starts_with("750 rows are gone as of version"), "{}", told.text());
    assert_eq!(gone("--where 'pid >= 50' --count"), 0);
    assert_eq!(gone("--where 'pid >= 50'"), serde_json::Value::Null, "nobody asked that it be read");
    assert_eq!(atoll(&place, "table query t --count").text(), "250\n");
    assert_eq!(gone("--run run --steps 30:"), 100);
    assert_eq!(atoll(&place, "table query t --count").text(), "150\n");
    assert_eq!(atoll(&place, &format!("table query t --count --as-of {before}")).text(), "1000\n");
    atoll(&place, "table delete t").fails(2);
    assert_eq!(gone("--where 'pid < 10' --steps 0:10 --count"), 10);
    assert_eq!(gone("--all"), 140);
    assert_eq!(sorted(&place, ""), Vec::<String>::new());
}

#[test]
fn a_condition_may_begin_with_a_minus() {
    let place = filled();
    assert_eq!(atoll(&place, "table query t --count --where '-x > -1.0'").text(), "5\n");
    let share = atoll(&place, "table estimate t --share '-x > -1.0'");
    assert_eq!(share.exit, Some(0), "{}", share.stderr);
    let told = atoll(&place, "table delete t --where '-x > -1.0' --count");
    assert!(told.text().starts_with("5 rows are gone"), "{}", told.text());
    // An option in the place of the condition is none, and deletes nothing.
    let swallowed = atoll(&place, "table delete t --where --count");
    assert!(matches!(swallowed.exit, Some(2 | 12)), "{}", swallowed.stderr);
    assert_eq!(atoll(&place, "table query t --count").text(), "995\n");
}

#[test]
fn tables_and_steps_are_listed_and_a_dropped_table_is_gone() {
    let place = filled();
    let last = ["run  step  rows", "run    30   200", "run    40   200"];
    assert_eq!(lines(&atoll(&place, "table steps t --run run --last 2")), last);
    assert_eq!(atoll(&place, "table steps t --last 2 --json").json_lines().len(), 2);
    let runs = ["run  steps  last  rows", "run      5    40  1000"];
    assert_eq!(lines(&atoll(&place, "table steps t --runs")), runs);
    let tables = ["table  boxes over  samples", "t      x, step     whatever has one pid"];
    assert_eq!(lines(&atoll(&place, "table list")), tables);
    atoll(&place, "table append t run.csv --run timed --step 7 --time 0.5").text();
    let timed = ["run    step  time  rows", "timed     7   0.5  1000"];
    assert_eq!(lines(&atoll(&place, "table steps t --run timed")), timed);
    let mistyped = atoll(&place, "table drop tt");
    assert!(mistyped.fails(10).contains("did you mean \"t\"?") || mistyped.stderr.contains("there are: t"));
    atoll(&place, "table drop t").text();
    assert_eq!(atoll(&place, "table list").text(), "");
    atoll(&place, CREATE).text();
    assert_eq!(atoll(&place, "table query t --count").text(), "0\n", "nothing of the old one comes back");
}

#[test]
fn the_times_of_steps_are_shown_with_their_unit_and_a_copy_of_the_schema_has_it() {
    let place = filled();
    assert!(!atoll(&place, "table info t").text().contains("times in"));
    atoll(&place, &CREATE.replace("create t", "create timed --time-unit ps")).text();
    atoll(&place, "table append timed run.csv --run r --step 7 --time 0.5").text();
    let timed = ["run  step  time (ps)  rows", "r       7        0.5  1000"];
    assert_eq!(lines(&atoll(&place, "table steps timed")), timed);
    assert!(atoll(&place, "table info timed").text().contains("\ntimes in    ps\n"));
    assert_eq!(atoll(&place, "table info timed --json").json()["time_unit"], "ps");
    let followed = atoll(&place, "table follow timed --all --count 1");
    assert!(followed.text().contains("\ttime 0.5 ps\t"), "{}", followed.text());
    place.write("timed.json", atoll(&place, "table info timed --schema").text());
    atoll(&place, "table create again --schema timed.json").text();
    atoll(&place, "table export timed timed.parquet").text();
    atoll(&place, "table create like --like timed.parquet").text();
    atoll(&place, "table copy timed --as copied").text();
    for name in ["again", "like", "copied"] {
        assert_eq!(atoll(&place, &format!("table info {name} --json")).json()["time_unit"], "ps", "{name}");
    }
}

#[test]
fn a_table_like_a_file_has_the_salt_of_its_table_unless_another_is_chosen() {
    let place = filled();
    atoll(&place, &CREATE.replace("create t", "create salted --salt 7")).text();
    atoll(&place, "table append salted run.csv --run r --step 7").text();
    atoll(&place, "table export salted half.parquet --sample 0.5").text();
    for (salt, expected) in [("", "7"), ("--salt 8", "8"), ("--salt 0", "0")] {
        let name = format!("made-{expected}");
        atoll(&place, &format!("table create {name} --like half.parquet {salt}")).text();
        assert_eq!(atoll(&place, &format!("table info {name} --schema")).json()["salt"], expected);
    }
    assert_eq!(atoll(&place, "table info t --schema").json()["salt"], "0");
}

#[test]
fn of_what_an_import_notes_people_see_the_name_of_the_file() {
    let place = filled();
    assert_eq!(atoll(&place, "table attributes t --run run").text(), "import.file\trun.csv\n");
    let all = atoll(&place, "table attributes t --run run --json").json();
    assert_eq!(all.as_object().unwrap().len(), 4, "{all}");
    atoll(&place, "table attributes t --run run temperature=300").text();
    let told = atoll(&place, "table attributes t --run run");
    assert_eq!(lines(&told), ["import.file\trun.csv", "temperature\t300"]);
}

#[test]
fn pack_with_follow_packs_the_rest_and_ends_well_when_interrupted() {
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
fn gathering_stores_is_their_union_and_doubles_nothing() {
    let place = Workspace::new();
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
fn a_run_that_somebody_else_appended_to_is_not_gathered_on() {
    let place = Workspace::new();
    let source = |arguments: &str| place.run(&[&["--store", "one"], &words(arguments)[..]].concat());
    source(CREATE).text();
    place.write("run.csv", csv(0..2, 5));
    place.write("more.csv", csv(7..8, 1));
    source("table import t run.csv").text();
    let gather = || atoll(&place, "table gather t --from one --json");
    let count = || atoll(&place, "table query t --count").text().trim().to_owned();
    let version = gather().json()["version"].clone();
    // All rows of the store have been gathered: what others append after them, or delete, does not matter.
    atoll(&place, "table append t more.csv --run one").text();
    assert_eq!((gather().json()["rows"].clone(), count()), (0.into(), "11".to_owned()));
    atoll(&place, "table delete t --run one --steps 0:11").text();
    assert_eq!((gather().json()["rows"].clone(), count()), (0.into(), "1".to_owned()));
    // As after a gather that was interrupted before its first step.
    atoll(&place, "table delete t --run one").text();
    atoll(&place, &format!("table attributes t --run one gather.version={version}")).text();
    atoll(&place, "table append t more.csv --run one --step 5").text();
    let told = atoll(&place, "table gather t --from one");
    assert!(told.fails(11).contains("appended to it"), "{}", told.stderr);
    assert_eq!(count(), "1", "nothing came");
    atoll(&place, "table delete t --run one").text();
    assert_eq!((gather().json()["rows"].clone(), count()), (10.into(), "10".to_owned()));
}

/// Runs the program on the store `one`, from which a table is gathered.
fn on_source(place: &Workspace, arguments: &str) -> Answer {
    place.run(&[&["--store", "one"], &words(arguments)[..]].concat())
}

/// A store `one` with ten rows and these columns more than a table beside it, into which a gather of the
/// current version began and was interrupted before its first step. Returns that version.
fn interrupted_gather(columns: &[&str]) -> (Workspace, serde_json::Value) {
    let place = Workspace::new();
    on_source(&place, CREATE).text();
    place.write("run.csv", csv(0..2, 5));
    on_source(&place, "table import t run.csv").text();
    atoll(&place, CREATE).text();
    for column in columns {
        on_source(&place, &format!("table add-column t {column}:float32")).text();
    }
    let version = on_source(&place, "table info t --json").json()["version"].clone();
    atoll(&place, &format!("table attributes t --run one gather.version={version}")).text();
    (place, version)
}

#[test]
fn what_a_vacuum_of_the_store_took_before_the_first_step_is_no_matter_to_a_gather() {
    let (place, version) = interrupted_gather(&[]);
    on_source(&place, "table pack t --whole").text();
    on_source(&place, "table vacuum t").text();
    let told = atoll(&place, "table gather t --from one --json").json();
    assert_eq!(told["rows"], 10, "{told}");
    assert!(told["version"].as_u64() > version.as_u64(), "{told}");
}

#[test]
fn a_column_that_the_store_gets_meanwhile_does_not_stop_a_gather() {
    let (place, _) = interrupted_gather(&[]);
    on_source(&place, "table add-column t charge:float32").text();
    for rows in [10, 0] {
        assert_eq!(atoll(&place, "table gather t --from one --json").json()["rows"], rows);
    }
    // A gather that begins takes the newest columns, which the table lacks.
    atoll(&place, "table delete t --run one").text();
    let told = atoll(&place, "table gather t --from one");
    assert!(told.fails(2).contains("no column \"charge\""), "{}", told.stderr);
}

#[test]
fn columns_that_table_and_store_got_both_do_not_stop_a_gather_of_an_older_version() {
    let (place, _) = interrupted_gather(&["charge"]);
    on_source(&place, "table add-column t spin:float32").text();
    for column in ["charge", "spin"] {
        atoll(&place, &format!("table add-column t {column}:float32")).text();
    }
    assert_eq!(atoll(&place, "table gather t --from one --json").json()["rows"], 10);
}

#[test]
fn what_is_noted_on_a_column_does_not_stop_a_gather_unless_units_differ() {
    let gathered =
        |place: &Workspace| atoll(place, "table gather t --from one --json").json()["rows"].clone();
    // A gather that goes on, while the table got another column.
    let (place, _) = interrupted_gather(&["charge"]);
    atoll(&place, "table add-column t charge:float32 --unit e --description 'of an ion'").text();
    atoll(&place, "table add-column t spin:float32").text();
    assert_eq!(gathered(&place), 10);
    for (noted, refused) in [("", false), ("--unit e --description 'of an ion'", false), ("--unit C", true)] {
        let place = Workspace::new();
        on_source(&place, CREATE).text();
        place.write("run.csv", csv(0..2, 5));
        on_source(&place, "table import t run.csv").text();
        on_source(&place, "table add-column t charge:float32 --unit e --description 'partial charge'").text();
        atoll(&place, CREATE).text();
        atoll(&place, &format!("table add-column t charge:float32 {noted}")).text();
        if refused {
            let told = atoll(&place, "table gather t --from one");
            assert!(told.fails(2).contains("the unit of column \"charge\""), "{}", told.stderr);
        } else {
            assert_eq!(gathered(&place), 10, "{noted}");
        }
    }
}

#[test]
fn a_store_whose_columns_are_described_otherwise_is_gathered_into_a_table_with_one_column_more() {
    let place = Workspace::new();
    place.write("run.csv", csv(0..2, 5));
    for (store, description) in [("one", "partial charge"), ("two", "of an ion")] {
        let run = |arguments: &str| place.run(&[&["--store", store], &words(arguments)[..]].concat());
        run(CREATE).text();
        run("table import t run.csv").text();
        place
            .run(&[
                "--store",
                store,
                "table",
                "add-column",
                "t",
                "charge:float32",
                "--description",
                description,
            ])
            .text();
    }
    let gathered =
        |store: &str| atoll(&place, &format!("table gather t --from {store} --json")).json()["rows"].clone();
    assert_eq!(gathered("one"), 10);
    atoll(&place, "table add-column t spin:float32").text();
    assert_eq!(gathered("two"), 10);
    assert_eq!(atoll(&place, "table query t --count").text(), "20\n");
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
    assert!(refused.stderr.contains("has a column \"x\" already, of float64"), "{}", refused.stderr);
}

#[test]
fn the_columns_that_info_shows_are_taken_as_they_are_shown() {
    let place = Workspace::new();
    let columns = "id:int64,pos:float64[3],v:float32?[2]?,t:timestamp[us]";
    atoll(&place, &format!("table create t --column {columns} --id id --index t")).text();
    let shown: Vec<String> = lines(&atoll(&place, "table info t"))
        .into_iter()
        .filter_map(|line| Some(line.strip_prefix("column")?.trim().to_owned()))
        .collect();
    assert_eq!(shown.join(",").replace(": ", ":"), columns);
    let same = format!("table create t --column '{}' --id id --index t", shown.join(","));
    assert!(atoll(&place, &same).text().contains("was there already"));
}

#[test]
fn two_stores_in_folders_of_one_name_are_never_taken_for_each_other() {
    let place = Workspace::new();
    for (folder, store, steps) in [("a", "a/data", 0..2), ("b", "b/data", 5..8)] {
        std::fs::create_dir(place.folder.path().join(folder)).unwrap();
        let run = |arguments: &str| place.run(&[&["--store", store], &words(arguments)[..]].concat());
        run(CREATE).text();
        place.write("run.csv", csv(steps, 5));
        run("table import t run.csv").text();
    }
    let gathered = |line: &str| atoll(&place, &format!("table gather t --json {line}"));
    let refused = |line: &str| atoll(&place, &format!("table gather t {line}"));
    assert_eq!(gathered("--from a/data").json()["rows"], 10);
    let other = refused("--from b/data");
    assert!(other.fails(11).contains("another store"), "{}", other.stderr);
    assert!(other.stderr.contains("--run"), "{}", other.stderr);
    assert_eq!(atoll(&place, "table query t --count").text(), "10\n");
    assert_eq!(gathered("--from b/data --run other").json()["rows"], 15);
    assert_eq!(gathered("--from ./a/data").json()["rows"], 0);
    let both = refused("--from a/data --from b/data");
    assert!(both.fails(2).contains("--run"), "{}", both.stderr);
    let both: Vec<_> = gathered("--from a/data --from b/data --run data --run other").json_lines();
    assert_eq!(both.iter().map(|told| told["run"].as_str().unwrap()).collect::<Vec<_>>(), ["data", "other"]);
    let one = refused("--from a/data --from b/data --run data");
    assert!(one.fails(2).contains("1 name for 2 stores"), "{}", one.stderr);
    assert_eq!(atoll(&place, "table query t --count").text(), "25\n");
}

#[test]
fn a_store_that_moved_is_gathered_on_and_one_made_anew_in_its_place_is_not() {
    let (place, version) = interrupted_gather(&[]);
    let gathered = |line: &str| atoll(&place, &format!("table gather t --json {line}"));
    assert_eq!(gathered("--from one").json()["rows"], 10);
    let [one, moved] = ["one", "moved"].map(|name| place.folder.path().join(name));
    std::fs::rename(&one, &moved).unwrap();
    assert_eq!(gathered("--from moved --run one").json()["rows"], 0);
    // Made anew, it comes to the same version with the same rows.
    on_source(&place, CREATE).text();
    on_source(&place, "table import t run.csv").text();
    let caught_up = on_source(&place, "table info t --json").json()["version"].as_u64();
    assert!(caught_up >= version.as_u64(), "{caught_up:?} is behind {version}");
    let replaced = atoll(&place, "table gather t --from one");
    assert!(replaced.fails(11).contains("another store"), "{}", replaced.stderr);
    assert_eq!(atoll(&place, "table query t --count").text(), "10\n");
}

#[test]
fn an_older_state_of_a_store_is_not_the_one_that_was_gathered() {
    let place = Workspace::new();
    on_source(&place, CREATE).text();
    on_source(&place, "store copy older").text();
    place.write("run.csv", csv(0..2, 5));
    on_source(&place, "table import t run.csv").text();
    assert_eq!(atoll(&place, "table gather t --from one --json").json()["rows"], 10);
    let [one, moved, older] = ["one", "moved", "older"].map(|name| place.folder.path().join(name));
    std::fs::rename(&one, moved).unwrap();
    std::fs::rename(older, &one).unwrap();
    let restored = atoll(&place, "table gather t --from one");
    assert!(restored.fails(11).contains("an older state of the store"), "{}", restored.stderr);
}
