//! `atoll table import`: killed or repeated, it brings in every row exactly once.

use super::support::{Answer, Workspace};
use super::{CREATE, atoll, csv, filled, lines, rows_of, sorted, words};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;

#[test]
fn a_bad_record_stops_an_import_and_the_mended_file_goes_on_from_there() {
    let place = Workspace::new();
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
    assert!(skipped.text().contains("skipped 1 bad record"), "{}", skipped.stderr);
    assert!(skipped.stderr.contains("other.csv, line 22"), "{}", skipped.stderr);
    let appended = atoll(&place, "table append t other.csv --run once --skip-bad 1 --json");
    assert_eq!(appended.json()["skipped"], 1);
    let notes: Vec<serde_json::Value> =
        appended.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [skipped, other_step] = &notes[..] else { panic!("{notes:?}") };
    assert!(skipped["note"].as_str().unwrap().contains("other.csv, line 22"), "{skipped}");
    assert!(other_step["note"].as_str().unwrap().contains("in its column \"step\""), "{other_step}");
}

#[test]
fn a_file_that_grew_is_gone_on_with_and_another_one_is_refused() {
    let place = Workspace::new();
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
fn a_file_that_differs_only_behind_its_first_mebibyte_is_another_one() {
    let whole = csv(0..5, 20_000);
    let place_of_line = |at: usize| at + whole[at..].find('\n').unwrap() + 1;
    let (at, next) = (place_of_line(3 << 19), place_of_line(place_of_line(3 << 19)));
    assert!(whole.len() > next + (64 << 10), "{}", whole.len());
    for parts in ["", "--parts"] {
        let place = Workspace::new();
        atoll(&place, CREATE).text();
        let import = format!("table import t run.csv {parts}");
        place.write("run.csv", &whole);
        atoll(&place, &import).text();
        // One line was put in, or taken out, or the file is that of a shorter run which began alike.
        let others = [format!("{}{}", &whole[..next], &whole[at..]), [&whole[..at], &whole[next..]].concat()];
        for other in others.iter().map(String::as_str).chain([&whole[..at]]) {
            place.write("run.csv", other);
            let refused = atoll(&place, &import);
            assert!(refused.fails(11).contains("another file"), "{}", refused.stderr);
        }
        place.write("run.csv", csv(0..6, 20_000));
        assert!(atoll(&place, &import).text().contains("imported 20000 rows"));
        assert_eq!(atoll(&place, "table query t --count").text(), "120000\n");
    }
}

#[test]
fn a_record_that_is_mended_behind_the_first_mebibyte_is_gone_on_from() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    let good = csv(0..5, 20_000);
    let bad = good.replacen("\n0,40,", "\n0,4O,", 1);
    let before = good.find("\n0,40,").unwrap();
    assert!(before > (1 << 20) + (64 << 10) && bad.len() == good.len());
    place.write("run.csv", &bad);
    atoll(&place, "table import t run.csv").fails(12);
    // What comes before the bad line must be as it was.
    place.write("run.csv", format!("{}{}", &good[..1 << 20], &good[(1 << 20) + 100..]));
    let refused = atoll(&place, "table import t run.csv");
    assert!(refused.fails(11).contains("another file"), "{}", refused.stderr);
    place.write("run.csv", &good);
    assert_eq!(atoll(&place, "table import t run.csv --json").json()["rows"], 40_000);
    assert_eq!(atoll(&place, "table query t --count").text(), "100000\n");
}

/// A LAMMPS dump of these steps; no two snapshots have an atom in common.
fn dump(steps: std::ops::Range<u64>, atoms: u64) -> String {
    let mut text = String::new();
    for step in steps {
        text += &format!("ITEM: TIMESTEP\n{step}\nITEM: NUMBER OF ATOMS\n{atoms}\n");
        text += "ITEM: BOX BOUNDS pp pp pp\n0 1\n0 1\n0 1\nITEM: ATOMS id x\n";
        (1..=atoms).for_each(|id| text += &format!("{id} {step}.{id}\n"));
    }
    text
}

#[test]
fn a_dump_from_which_a_snapshot_is_cut_out_after_its_error_is_gone_on_with() {
    for atoms in [20, 20_000] {
        let dump = |steps| dump(steps, atoms);
        let torn = dump(5..6);
        let torn = &torn[..=torn[..torn.len() / 2].rfind('\n').unwrap()];
        let cases = [
            // A run that appends was restarted, and wrote step 5 again.
            (dump(0..6) + &dump(5..8), dump(0..8), (12, "a second snapshot of step 5"), 8),
            // It was killed while it wrote step 5, and goes on with step 6.
            (
                dump(0..5) + torn + &dump(6..8),
                dump(0..5) + &dump(6..8),
                (18, "atoms of step 5 are missing"),
                7,
            ),
        ];
        for (bad, good, (code, problem), snapshots) in cases {
            let place = Workspace::new();
            let create = "table create d --column id:int64,step:int64,x:float64 --id id,step --index x,step";
            atoll(&place, create).text();
            place.write("run.dump", &bad);
            let stopped = atoll(&place, "table import d run.dump");
            assert!(stopped.fails(code).contains(problem), "{}", stopped.stderr);
            // What the table has must be as it was.
            place.write("run.dump", good.replacen(&format!("\n{atoms} 4.{atoms}\n"), "\n1 4.5\n", 1));
            let refused = atoll(&place, "table import d run.dump");
            assert!(refused.fails(11).contains("another file"), "{}", refused.stderr);
            place.write("run.dump", &good);
            let imported = atoll(&place, "table import d run.dump --json").json();
            assert_eq!(imported["rows"], (snapshots - 5) * atoms, "{problem}");
            assert_eq!(atoll(&place, "table query d --count").text(), format!("{}\n", snapshots * atoms));
        }
    }
}

#[test]
fn a_quote_that_is_closed_after_the_error_makes_no_other_file() {
    for (particles, parts) in [(20, ""), (20, "--parts"), (20_000, ""), (20_000, "--parts")] {
        let place = Workspace::new();
        atoll(&place, CREATE).text();
        let good = csv(0..5, particles);
        place.write("run.csv", format!("{}\n", good.strip_suffix("\"\n").unwrap()));
        let import = format!("table import t run.csv {parts}");
        let stopped = atoll(&place, &import);
        assert!(stopped.fails(18).contains("ends within quotes"), "{}", stopped.stderr);
        place.write("run.csv", &good);
        atoll(&place, &import).text();
        assert_eq!(atoll(&place, "table query t --count").text(), format!("{}\n", 5 * particles));
    }
}

#[test]
fn a_file_that_grew_is_not_passed_over_because_of_a_step_that_somebody_appended_to_its_run() {
    for parts in ["", "--parts"] {
        let place = Workspace::new();
        atoll(&place, CREATE).text();
        place.write("grows.csv", csv(0..3, 50));
        let import = format!("table import t grows.csv {parts}");
        atoll(&place, &import).text();
        place.write("late.csv", csv(50..51, 5));
        atoll(&place, "table append t late.csv --run grows --step 300").text();
        place.write("grows.csv", csv(0..8, 50));
        let refused = atoll(&place, &import);
        assert!(refused.fails(11).contains("has step 300 that no import wrote"), "{}", refused.stderr);
        // The last step may be deleted again, and other writers may append to the run.
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
    for (round, parts) in ["", "--parts"].into_iter().cycle().take(40).enumerate() {
        // Both ways, and again until at least one kill came before the end: all of them may come late.
        if round >= 2 && was_partial {
            break;
        }
        let place = Workspace::new();
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
            // It may have come to its end before, but to no other one.
            let ended = child.wait().unwrap();
            assert!(ended.success() || ended.signal() == Some(9), "round {round}: {ended}");
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
    let place = Workspace::new();
    place.write("run.csv", csv(0..14, 10_000));
    atoll(&place, CREATE).text();
    let imported = atoll(&place, "table import t run.csv --packed --json").json();
    assert_eq!((&imported["rows"], &imported["steps"]), (&140_000.into(), &14.into()));
    let info = atoll(&place, "table info t --json").json();
    assert_eq!((&info["rows"], &info["blocks"]), (&140_000.into(), &0.into()), "{info}");
    assert!(info["cubes"].as_u64().unwrap() > 0, "{info}");
    // Little is new, and it comes as blocks.
    place.write("run.csv", csv(0..16, 10_000));
    let more = atoll(&place, "table import t run.csv --packed --json").json();
    assert_eq!((&more["rows"], &more["steps"]), (&20_000.into(), &2.into()));
    let info = atoll(&place, "table info t --json").json();
    assert_eq!((&info["rows"], &info["blocks"]), (&160_000.into(), &2.into()), "{info}");
}

#[test]
fn whole_steps_before_a_bad_record_of_a_packed_import_are_in() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    place.write("run.csv", csv(0..3, 10) + "x,30,0,a\n");
    let refused = atoll(&place, "table import t run.csv --packed");
    // The third step is not known to be complete.
    assert!(refused.stderr.contains("20 rows in 2 steps were imported"), "{}", refused.stderr);
    assert_eq!(sorted(&place, "").len(), 20);
    place.write("run.csv", csv(0..4, 10));
    assert_eq!(atoll(&place, "table import t run.csv --packed --json").json()["rows"], 20);
    assert_eq!(sorted(&place, "").len(), 40);
}

#[test]
fn a_run_that_no_import_made_is_left_alone() {
    let place = Workspace::new();
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
fn standard_input_needs_a_name_for_its_run_and_brings_rows() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    let arguments = words("--store data table import t - --format csv");
    let unnamed = place.run_with(&arguments, b"");
    assert!(unnamed.fails(2).contains("no name that the run could have"), "{}", unnamed.stderr);
    let named = place.run_with(&[&arguments[..], &["--run", "piped"]].concat(), csv(0..2, 20).as_bytes());
    assert!(named.text().contains("imported 40 rows in 2 steps"), "{}", named.text());
    assert_eq!(sorted(&place, ""), rows_of(&csv(0..2, 20)));
}

#[test]
fn bad_records_that_are_told_before_any_row_make_no_step() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    place.write("many.csv", format!("pid,step,x,name\n{}1,2,3,a\n", "1,2\n".repeat(70_000)));
    let imported = atoll(&place, "table import t many.csv --parts --skip-bad 100000 --json").json();
    let told = |name: &str| imported[name].as_u64().unwrap();
    assert_eq!((told("rows"), told("steps"), told("skipped")), (1, 1, 70_000));
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
    // A user who repairs a line does as the hint says, even if it is the first line.
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
fn a_restart_replaces_what_the_run_had() {
    let place = filled();
    place.write("run.csv", csv(3..9, 30));
    assert!(atoll(&place, "table import t run.csv").fails(11).contains("another file"));
    atoll(&place, "table import t run.csv --restart").text();
    assert_eq!(sorted(&place, ""), rows_of(&csv(3..9, 30)));
}

#[test]
fn of_two_imports_that_begin_one_run_at_once_nobodys_rows_are_taken_away() {
    let place = Workspace::new();
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
fn an_import_that_brought_nothing_in_does_not_keep_the_name_of_the_run() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    place.write("run.csv", "pid,step,x,name\n1,-1,0.5,a\n");
    atoll(&place, "table import t run.csv").fails(2);
    place.write("run.csv", csv(0..2, 5));
    assert_eq!(atoll(&place, "table import t run.csv --json").json()["rows"], 10);
    // Once it has a step, it does.
    place.write("run.csv", csv(1..2, 6));
    assert!(atoll(&place, "table import t run.csv").fails(11).contains("another file"));
}

#[test]
fn a_file_that_grew_is_not_passed_over_because_of_a_step_that_somebody_brought_into_the_attempt_of_its_import()
 {
    for packed in ["", "--packed"] {
        let place = Workspace::new();
        atoll(&place, CREATE).text();
        place.write("run.csv", csv(0..2, 5));
        atoll(&place, &format!("table import t run.csv {packed}")).text();
        place.write("other.csv", "pid,step,x,name\n9,990,1,\n");
        atoll(&place, "table append t other.csv --run run --attempt 1 --step 990").text();
        place.write("run.csv", csv(0..4, 5));
        let refused = atoll(&place, &format!("table import t run.csv {packed}"));
        assert!(refused.fails(11).contains("990"), "{}", refused.stderr);
        atoll(&place, "table delete t --run run --steps 990:991").text();
        let more = atoll(&place, &format!("table import t run.csv {packed} --json")).json();
        assert_eq!(more["rows"], 10);
    }
}
