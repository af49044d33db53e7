//! Questions to a table: queries, samples, boxes, conditions, estimates.

use super::support::Workspace;
use super::{atoll, csv, filled, lines, rows_of, sorted, words};
use std::collections::BTreeSet;

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
fn the_ends_of_a_column_are_shown_exactly() {
    let place = filled();
    let shown = |line: &str| atoll(&place, &format!("table query t {line}")).text().to_owned();
    assert_eq!(shown("--min step --max step"), "0\n40\n");
    assert_eq!(shown("--max step --box step=:30"), "20\n");
    let x = |pid: u64| (pid * 7919 % 1000) as f64 + 0.5;
    let least = (8..200).find(|pid| x(*pid) < 900.0).unwrap();
    assert_eq!(shown("--min pid --where 'pid > 7 and x < 900'"), format!("{least}\n"));
    let ends = (0..200).map(x).fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
    let told = atoll(&place, "table query t --min x --max x --json").json();
    assert_eq!((told["min"].as_f64(), told["max"].as_f64()), (Some(ends.0), Some(ends.1)), "{told}");
    assert!(told["version"].as_u64().is_some(), "{told}");
    assert_eq!(shown("--min step --where 'pid > 1000'"), "null\n");
    let text = atoll(&place, "table query t --min name");
    assert!(text.stderr.contains("only numbers and times have a least"), "{}", text.stderr);
    atoll(&place, "table query t --min x --count").fails(2);
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
    let cases: [(&str, i32, &str, &str); 18] = [
        ("table query t --where 'vz > 1'", 12, "there is no column", "a text is written"),
        ("table query t --where 'stp > 1'", 12, "there is no column", "did you mean step?"),
        ("table query t --where 'x >'", 12, "expected", "hint"),
        ("table query t --box x=3:1", 12, "--box", "without its high end"),
        ("table query t --columns nmae", 12, "has no column \"nmae\"", "did you mean \"name\"?"),
        ("table query t --sample 2", 2, "from 0 to 1", "0.01"),
        ("table query t --as-of -1", 2, "\"-1\" is not a version", "from 0"),
        ("table query t --as-of 99999999999999999999", 2, "is not a version", "snapshot"),
        ("table query u", 10, "there is no table \"u\"", "hint"),
        ("table create u --column x:flaot64 --id x --index x", 2, "did you mean float64?", "types are"),
        ("table create u --column x:float64,i:int64 --id j --index x", 12, "id names \"j\"", "names"),
        ("table create u --column x:utf8,i:int64 --id i --index x", 12, "index cannot use \"x\"", "--where"),
        ("table create u --column x:float64 --index x", 2, "--id is missing", "--id pid,step"),
        ("table create u --id x --index x", 2, "columns of the table", "--like"),
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
    // A thousand rows are read at once, which leaves nothing to estimate.
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
    let groups = atoll(&place, "table estimate t --mean pid --group-by step --json");
    let first: serde_json::Value = serde_json::from_str(&lines(&groups)[0]).unwrap();
    assert_eq!((first["group"].as_u64(), first["rows"].as_u64()), (Some(0), Some(200)), "{first}");
    let groups = lines(&atoll(&place, "table estimate t --mean pid --group-by step --groups 5,0,60"));
    assert_eq!(groups.len(), 7, "{groups:?}");
    assert_eq!((groups[1].as_str(), groups[6].as_str()), ("5\tnot seen", "60\tnot seen"));
    assert!(
        atoll(&place, "table estimate t --mean pid --group-by step --groups one")
            .fails(2)
            .contains("--groups")
    );
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
    assert!(atoll(&place, "table estimate t --mean y").fails(12).contains("y"));
    assert!(atoll(&place, "table estimate t --mean name").fails(12).contains("numbers"));
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
fn near_and_wrapped_boxes_use_the_cell_that_is_typed_or_kept() {
    let place = Workspace::new();
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
