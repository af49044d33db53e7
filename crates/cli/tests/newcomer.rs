//! What a new user types, and the answers: the next command to type, in words that need no knowledge of the
//! internals.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

mod support;

use support::{Answer, Workspace};

fn run(place: &Workspace, line: &str) -> Answer {
    place.run(&line.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn a_folder_behind_a_verb_that_takes_none_is_answered_with_how_a_store_is_named() {
    let place = Workspace::new();
    for verb in ["store check", "store info", "serve", "table list", "ring status"] {
        let answer = run(&place, &format!("{verb} ./data"));
        assert!(
            answer.fails(2).contains("hint: is it a store? name it with --store ./data"),
            "{}",
            answer.stderr
        );
        let told = run(&place, &format!("{verb} ./data --json")).stderr;
        assert!(told.contains("name it with --store ./data"), "{told}");
    }
    let odd = place.run(&["store", "check", "my data"]);
    assert!(odd.fails(2).contains("--store 'my data'"), "{}", odd.stderr);
    let other = run(&place, "kv put p s v ./data");
    assert!(!other.fails(2).contains("is it a store"), "{}", other.stderr);
}

#[test]
fn a_cause_in_the_message_is_not_repeated() {
    // No process listens at port 1.
    for line in ["ring status", "kv get p s"] {
        let line = format!("{line} --store ring://127.0.0.1:1/?time-out=1s");
        let told = run(&Workspace::new(), &line).stderr;
        assert_eq!(told.matches("Connection refused").count(), 1, "{told}");
        let object = run(&Workspace::new(), &format!("{line} --json")).stderr;
        assert_eq!(object.matches("Connection refused").count(), 1, "{object}");
    }
}

#[test]
fn a_swap_without_a_condition_is_answered_with_both_that_there_are() {
    let told = run(&Workspace::new(), "--store mem: kv cas p s v").stderr;
    assert!(told.contains("--expect <VALUE>") && told.contains("--expect-absent"), "{told}");
}

#[test]
fn a_swap_that_comes_too_late_names_the_cell() {
    let place = Workspace::new();
    run(&place, "--store data kv put run-7 steps 5000");
    let late = run(&place, "--store data kv cas run-7 steps 6000 --expect 4000");
    let told = late.fails(11);
    assert!(told.contains("error: cell \"run-7\" \"steps\" does not hold what was expected\n"), "{told}");
    assert!(told.contains("found: \"5000\""), "{told}");
}

#[test]
fn a_count_that_is_no_whole_number_is_refused_in_words_of_people() {
    let place = Workspace::new();
    for (typed, told) in [
        ("table query t --limit -3", "'-3' for '--limit <N>': it is not a whole number from 0 on"),
        ("table query t --first 1.5", "'1.5' for '--first <N>': it is not a whole number from 0 on"),
        ("kv scan p --limit many", "'many' for '--limit <LIMIT>': it is not a whole number from 0 on"),
        (
            "kv get p s --offset 99999999999999999999",
            "'99999999999999999999' for '--offset <OFFSET>': it is too large",
        ),
    ] {
        for json in ["", " --json"] {
            let answer = run(&place, &format!("--store mem: {typed}{json}"));
            assert_eq!(answer.exit, Some(2), "{typed}: {}", answer.stderr);
            assert!(answer.stderr.contains(told), "{typed}: {}", answer.stderr);
        }
    }
}

#[test]
fn a_column_in_a_question_that_is_like_none_is_answered_with_those_there_are() {
    let place = Workspace::new();
    run(&place, "--store data table create t --column pid:int64,x:float64 --id pid --index x");
    for question in [
        "query t --box zzz=0:1",
        "query t --where zzz>1",
        "delete t --where zzz>1",
        "estimate t --share zzz>1",
    ] {
        let answer = run(&place, &format!("--store data table {question}"));
        assert!(answer.fails(12).contains("hint: there are: pid, x"), "{question}: {}", answer.stderr);
    }
    let text = run(&place, "--store data table query t --where x=abc");
    assert!(text.fails(12).contains("'single quotes'"), "{}", text.stderr);
}

#[test]
fn the_doctor_says_that_a_file_is_no_place_for_a_store() {
    let place = Workspace::new();
    place.write("weather.csv", "a,b\n");
    for asked in ["weather.csv", "weather.csv/within"] {
        let answer = run(&place, &format!("doctor {asked}"));
        assert!(answer.fails(2).contains("weather.csv is a file"), "{}", answer.stderr);
    }
}

#[test]
fn a_format_that_there_is_not_is_answered_with_all_that_there_are() {
    let place = Workspace::new();
    for verb in ["query t", "sample t 0.1", "head t", "export t x", "import t x"] {
        let told = run(&place, &format!("--store mem: table {verb} --format foo")).stderr;
        assert!(
            told.contains("[possible values: csv, jsonl, parquet, arrow, npy, npz, lammps]"),
            "{verb}: {told}"
        );
    }
}

#[test]
fn a_file_of_rows_among_cells_is_answered_with_the_verbs_on_tables() {
    let place = Workspace::new();
    for verb in ["kv import run.parquet", "kv export run.arrow"] {
        let answer = run(&place, &format!("--store mem: {verb}"));
        assert!(answer.fails(2).contains("`atoll table import`"), "{}", answer.stderr);
    }
}

#[test]
fn an_import_of_a_file_that_is_not_there_makes_no_store() {
    let place = Workspace::new();
    let answer = run(&place, "--store fresh kv import missing.csv");
    assert!(answer.fails(10).contains("missing.csv"), "{}", answer.stderr);
    assert!(!place.folder.path().join("fresh").exists());
}

#[test]
fn a_folder_in_place_of_cells_and_a_value_that_cannot_be_read_make_no_store() {
    let place = Workspace::new();
    for (line, told) in [
        ("kv import . --format csv", "cannot read ."),
        ("kv put --hex 00 00 zz", "the value cannot be read"),
        ("kv append --hex 00 00 zz", "the value cannot be read"),
        ("kv cas --hex 00 00 zz --expect-absent", "the value cannot be read"),
    ] {
        let answer = run(&place, &format!("--store fresh {line}"));
        assert!(answer.fails(12).contains(told), "{line}: {}", answer.stderr);
        assert!(!place.folder.path().join("fresh").exists(), "{line}");
    }
}

/// The screen output of a command, run in a terminal by `script`.
fn seen(place: &Workspace, said: &str, arguments: &str) -> String {
    let typed = format!("env {said} '{}' {arguments}", env!("CARGO_BIN_EXE_atoll"));
    let mut screen = std::process::Command::new("script");
    screen.args(["-q", "-c", &typed, "/dev/null"]).current_dir(place.folder.path());
    screen.env("HOME", place.folder.path()).env("TERM", "xterm").env_remove("NO_COLOR");
    for name in ["ATOLL_STORE", "ATOLL_COLOR"] {
        screen.env_remove(name);
    }
    let output = screen.stdin(std::process::Stdio::null()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn colours_that_are_switched_off_are_missing_from_help_and_errors_too() {
    let place = Workspace::new();
    for arguments in ["--help", "kv gett", "kv get --help", "ls --config nowhere"] {
        assert!(seen(&place, "A=1", arguments).contains('\u{1b}'), "{arguments} has colours otherwise");
        for (said, flag) in [
            ("NO_COLOR=1", ""),
            ("TERM=dumb", ""),
            ("ATOLL_COLOR=never", ""),
            ("A=1", "--color never "),
            ("A=1", "--color=never "),
        ] {
            let told = seen(&place, said, &format!("{flag}{arguments}"));
            assert!(!told.contains('\u{1b}'), "{said} {flag}{arguments}: {told:?}");
        }
    }
}
