//! Every verb of the real program: its help, its mistakes, its exit codes, its JSON.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use support::{Answer, Workspace};

/// Every verb there is, as `--help` reaches it.
const VERBS: [&str; 65] = [
    "",
    "kv",
    "kv put",
    "kv get",
    "kv delete",
    "kv append",
    "kv cas",
    "kv wait",
    "kv scan",
    "kv import",
    "kv export",
    "table",
    "table create",
    "table add-column",
    "table attributes",
    "table estimate",
    "table snapshot create",
    "table vacuum",
    "table list",
    "table info",
    "table head",
    "table query",
    "table sample",
    "table explain",
    "table import",
    "table append",
    "table export",
    "table steps",
    "table follow",
    "table delete",
    "table drop",
    "table copy",
    "table gather",
    "table pack",
    "store",
    "store info",
    "store attributes",
    "store check",
    "store stats",
    "store snapshot",
    "store snapshot create",
    "store snapshot list",
    "store snapshot delete",
    "store copy",
    "store backup",
    "store upgrade",
    "ls",
    "serve",
    "ring",
    "ring serve",
    "ring up",
    "ring status",
    "ring leave",
    "ring stay",
    "ring recover",
    "ring keyspace",
    "ring keyspace create",
    "ring keyspace list",
    "ring slurm",
    "cluster",
    "cluster up",
    "doctor",
    "config",
    "config show",
    "completions",
];

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn the_list_of_verbs_is_the_one_that_was_agreed() {
    let help = Workspace::new().run(&["--help"]);
    let golden = include_str!("golden/help.txt");
    assert_eq!(help.text(), golden, "if this is meant, put the new text into tests/golden/help.txt");
}

#[test]
fn every_verb_explains_itself_with_examples() {
    let place = Workspace::new();
    for verb in VERBS {
        let help = place.run(&[words(verb), vec!["--help"]].concat());
        let is_group =
            ["kv", "table", "store", "store snapshot", "ring", "ring keyspace", "cluster", "config"]
                .contains(&verb);
        assert!(help.text().contains("Usage: atoll"), "{verb}");
        assert!(is_group || help.text().contains("Examples:\n  "), "{verb} has no examples");
    }
}

#[test]
fn prose_after_the_examples_stands_apart_from_them_and_fills_its_lines() {
    let place = Workspace::new();
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    for verb in VERBS {
        let help = place.run(&[words(verb), vec!["--help"]].concat());
        let Some((_, told)) = help.text().split_once("\nExamples:\n") else { continue };
        for (line, next) in told.lines().zip(told.lines().skip(1)).filter(|(_, next)| is_prose(next)) {
            assert!(!line.starts_with(' '), "{verb}: {next:?} stands right below {line:?}");
            let word = next.split(' ').next().unwrap();
            let is_full = line.chars().count() + 1 + word.chars().count() > 100;
            assert!(line.is_empty() || is_full, "{verb}: {line:?} ends before {next:?}");
        }
    }
}

#[test]
fn nonsense_at_every_verb_gets_an_error_with_a_hint_and_the_exit_code_of_usage() {
    let place = Workspace::new();
    for verb in VERBS {
        for nonsense in ["--no-such-flag", "nonsense\u{7}", "--json=maybe"] {
            let answer = place.run(&[words(verb), vec![nonsense, "x", "y", "z", "w"]].concat());
            assert_eq!(answer.exit, Some(2), "{verb} {nonsense}: {}", answer.stderr);
            answer.fails(2);
        }
    }
}

#[test]
fn a_verb_without_its_group_is_answered_with_the_groups_that_have_it() {
    let place = Workspace::new();
    for (typed, meant) in [
        (&["status"][..], "did you mean `atoll ring status`?"),
        (&["put", "a", "b", "c"], "did you mean `atoll kv put`?"),
        (&["import", "run.csv"], "did you mean `atoll kv import` or `atoll table import`?"),
    ] {
        assert!(place.run(typed).fails(2).contains(meant), "{typed:?}: {}", place.run(typed).stderr);
        let json = place.run(&[typed, &["--json"]].concat());
        assert!(json.stderr.contains(meant), "{typed:?}: {}", json.stderr);
    }
    assert!(place.run(&["nonsense"]).fails(2).contains("--help"));
}

#[test]
fn unknown_log_settings_are_refused_before_anything_is_done() {
    let place = Workspace::new();
    for (name, value) in [("ATOLL_LOG", "info=loud"), ("ATOLL_LOG_FORMAT", "xml")] {
        let mut command = place.command(&["kv", "put", "--store", "data", "part", "cell", "value"]);
        let data = command.get_current_dir().unwrap().join("data");
        let output = command.env(name, value).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(name) && told.contains(value) && told.contains("hint: use "), "{told}");
        assert!(!data.exists(), "{name}");
    }
}

#[test]
fn random_command_lines_never_panic_and_always_end_with_a_known_code() {
    let seed = 31;
    let mut random = fastrand::Rng::with_seed(seed);
    let parts = [
        "kv",
        "get",
        "put",
        "cas",
        "scan",
        "import",
        "export",
        "wait",
        "store",
        "ls",
        "config",
        "show",
        "doctor",
        "completions",
        "bash",
        "table",
        "query",
        "--where",
        "a",
        "",
        "-",
        "--",
        "--json",
        "--hex",
        "--limit",
        "-1",
        "9999999999999999999999",
        "--store",
        "mem:",
        "ring:",
        "file:%",
        "--set",
        "engine.memory=1",
        "x=",
        "--prefix",
        "\\x",
        "--timeout",
        "1ms",
        "--exists",
        "--format",
        "csv",
        "--durability",
        "synced",
        "--config",
        "/nowhere",
        "é",
        "--escaped",
        "--delimiter",
        ";",
    ];
    let known = [0, 2, 10, 11, 12, 13, 14, 16, 17, 18, 20];
    let place = Workspace::new();
    for round in 0..150 {
        let line: Vec<&str> = (0..random.usize(1..8)).map(|_| parts[random.usize(..parts.len())]).collect();
        let answer = place.run(&line);
        let exit = answer.exit.unwrap_or(-1);
        assert!(
            known.contains(&exit),
            "seed {seed}, round {round}, {line:?}: exit {exit}, {}",
            answer.stderr
        );
        if exit != 0 && !answer.stderr.starts_with('{') && !answer.stderr.contains("Usage:") {
            assert!(answer.stderr.contains("error: "), "{line:?}: {}", answer.stderr);
        }
    }
}

#[test]
fn each_kind_of_failure_has_its_own_exit_code() {
    let place = Workspace::new();
    let cases: [(&str, i32, &str); 20] = [
        ("--store mem: kv import missing.csv", 10, "cannot open missing.csv"),
        ("--store mem: kv import . --format csv", 12, "cannot read ."),
        ("--store mem: kv import x.csv --partition-columns a,b --separator=", 2, "without a separator"),
        ("--store mem: kv import x.csv --sort-columns a", 2, "none for the partition key"),
        ("--store mem: kv get p s", 10, "there is no cell \"p\" \"s\""),
        ("--store mem: kv cas p s new --expect old", 11, "does not hold"),
        ("--store mem: kv put --hex zz 00 00", 12, "the partition key cannot be read"),
        ("--store mem: kv put --escaped \\q 00 00", 12, "is not an escape"),
        ("--store fiel:x ls", 12, "did you mean \"file\"?"),
        ("--store mem: --set engine.memroy=1 ls", 12, "there is no option \"engine.memroy\""),
        ("--store mem: --set engine.memory=lots ls", 12, "is not a size"),
        ("--store ring:job ls", 12, "no node follows"),
        ("--store mem: store check", 14, "the check of mem:"),
        ("--store mem: store copy there", 14, "a copy of mem:"),
        ("--store mem: store backup there", 14, "a backup of mem:"),
        ("--store mem: store upgrade", 14, "an upgrade of mem:"),
        ("--store mem: kv wait p s --exists --timeout 20ms", 17, "within 20ms"),
        ("--store mem: kv delete p", 2, "nothing to remove is named"),
        ("ls", 2, "no store is named"),
        ("--store mem: kv import cells", 2, "does not tell the format"),
    ];
    for (line, exit, message) in cases {
        let answer = place.run(&words(line));
        assert!(answer.fails(exit).contains(message), "{line}: {}", answer.stderr);
    }
}

#[test]
fn ring_status_does_not_hint_at_itself_and_a_missing_token_file_is_not_found() {
    let run = |line: &str| Workspace::new().run(&words(line));
    // No process listens at port 1.
    let asked = run("ring status --store ring://127.0.0.1:1/");
    let told = asked.fails(16);
    assert!(told.contains("hint: start the nodes") && !told.contains("ring status"), "{told}");
    let other = run("kv get p s --store ring://127.0.0.1:1/?time-out=1s");
    assert!(other.fails(16).contains("`atoll ring status"), "{}", other.stderr);
    let absent = run("ring status --store ring://127.0.0.1:1/?token-file=nowhere");
    let told = absent.fails(10);
    assert!(told.contains("there is no token-file \"nowhere\"") && told.contains("first line"), "{told}");
}

#[test]
fn a_file_brings_nothing_into_the_partitions_of_atoll_itself() {
    let place = Workspace::new();
    let cell =
        |partition: &str| format!("{{\"partition\": \"{partition}\", \"sort\": \"s\", \"value\": \"v\"}}\n");
    // Where imports note how far they came.
    place.write("cells.jsonl", cell("\\u0000atoll.import") + &cell("ours"));
    let refused = place.run(&words("--store data kv import cells.jsonl"));
    let told = "line 1: the partition belongs to Atoll itself";
    assert!(refused.fails(12).contains(told), "{}", refused.stderr);
    let skipped = place.run(&words("--store data kv import cells.jsonl --skip-bad 1"));
    assert!(skipped.text().contains("imported 1 record"), "{}", skipped.stderr);
    assert!(skipped.stderr.contains(told), "{}", skipped.stderr);
    let key = "0061746f6c6c2e696d706f7274";
    place.run(&words(&format!("--store data kv get --hex {key} 73"))).fails(10);
}

#[test]
fn a_limit_is_told_in_its_unit() {
    let long = "k".repeat(20_000);
    let refused = Workspace::new().run(&["--store", "mem:", "kv", "put", &long, "s", "v"]);
    let told = "partition key of 20000 bytes exceeds the limit of 16384 bytes";
    assert!(refused.fails(13).contains(told), "{}", refused.stderr);
}

#[test]
fn failures_are_one_json_object_when_asked_for() {
    let place = Workspace::new();
    for (line, kind, exit) in [
        ("--json --store mem: kv get p s", "not-found", 10),
        ("--json --store mem: kv cas p s new --expect old", "conflict", 11),
        ("--json kv gte p s", "usage", 2),
        ("--json ls", "usage", 2),
    ] {
        let answer = place.run(&words(line));
        let error: serde_json::Value = serde_json::from_str(&answer.stderr).unwrap();
        assert_eq!(error["error"]["kind"], kind, "{line}");
        assert_eq!(error["error"]["exit"], exit, "{line}");
        assert_eq!(answer.exit, Some(exit), "{line}");
        assert!(error["error"]["hint"].is_string(), "{line}");
    }
}

#[test]
fn missing_arguments_are_named_in_json_too() {
    let place = Workspace::new();
    for (line, named) in
        [("--json kv", "a verb"), ("--json kv get p", "<SORT>"), ("--json table append t", "<FILE>")]
    {
        let answer = place.run(&words(line));
        let error: serde_json::Value = serde_json::from_str(&answer.stderr).unwrap();
        assert!(error["error"]["message"].as_str().unwrap().contains(named), "{line}: {error}");
    }
}

#[test]
fn config_show_says_where_each_option_was_set() {
    let place = Workspace::new();
    place.write("atoll.toml", "store = \"mem:\"\n\n[engine]\nmemory = \"64MiB\"\n");
    let mut command = place.command(&["config", "show", "--json", "--durability", "synced"]);
    let shown = Answer::from(command.env("ATOLL_ENGINE_KEEP", "5s").output().unwrap()).json_lines();
    let find = |key: &str| shown.iter().find(|option| option["key"] == key).unwrap().clone();
    assert_eq!(find("engine.memory")["value"], "64MiB");
    assert_eq!(find("engine.memory")["place"], serde_json::json!({ "name": "atoll.toml", "line": 4 }));
    assert_eq!(
        (find("engine.keep")["origin"].clone(), find("engine.keep")["value"].clone()),
        ("environment".into(), "5s".into())
    );
    assert_eq!(find("write.durability")["place"], "--durability");
    assert_eq!(find("engine.checkpoint")["origin"], "default");
    let text = place.run(&["config", "show"]);
    assert!(text.text().contains("# atoll.toml, line 4\n"), "{}", text.text());
}

#[test]
fn the_output_of_config_show_is_an_options_file() {
    let place = Workspace::new();
    let first = place.run(&["config", "show", "--set", "engine.memory=7MiB"]);
    let (tops, sections): (Vec<&str>, Vec<&str>) =
        first.text().lines().partition(|line| !line.split(" = ").next().unwrap().contains('.'));
    place.write("copy.toml", [tops, sections].concat().join("\n"));
    let second = place.run(&["config", "show", "--json", "--config", "copy.toml"]).json_lines();
    let memory = second.iter().find(|option| option["key"] == "engine.memory").unwrap();
    assert_eq!((&memory["value"], &memory["origin"]), (&"7MiB".into(), &"file".into()));
}

#[test]
fn a_broken_options_file_is_named_with_its_line() {
    let place = Workspace::new();
    place.write("atoll.toml", "[engine]\nmemroy = \"1MiB\"\n");
    let answer = place.run(&["--store", "mem:", "ls"]);
    let stderr = answer.fails(12);
    assert!(stderr.contains("atoll.toml, line 2: there is no option \"engine.memroy\""), "{stderr}");
    assert!(stderr.contains("hint: did you mean \"engine.memory\"?"), "{stderr}");
}

#[test]
fn options_that_another_user_left_in_the_folder_are_refused_unless_they_are_named() {
    let place = Workspace::new();
    place.write("atoll.toml", "store = \"mem:\"\n");
    place.run(&["kv", "put", "p", "s", "v"]).text();
    if std::os::unix::fs::chown(place.folder.path().join("atoll.toml"), Some(65534), None).is_err() {
        println!("SKIPPED [other-user] a file cannot be given away here");
        return;
    }
    let refused = place.run(&["kv", "put", "p", "s", "v"]);
    assert!(
        refused.fails(2).contains("atoll.toml in the current folder belongs to another user (65534)"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("hint: read it, and if it is right, name it with --config atoll.toml"));
    place.run(&["--config", "atoll.toml", "kv", "put", "p", "s", "v"]).text();
}

#[test]
fn completions_are_there_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let answer = Workspace::new().run(&["completions", shell]);
        assert!(answer.text().contains("doctor"), "{shell}");
    }
}

#[test]
fn completions_know_the_words_that_an_option_takes() {
    let scripts = [
        ("bash", "compgen -W \"auto always never\""),
        ("zsh", ":WHEN:(auto always never)"),
        ("fish", "never\\t"),
    ];
    for (shell, words) in scripts {
        let answer = Workspace::new().run(&["completions", shell]);
        assert!(answer.text().contains(words), "{shell} does not know {words}");
    }
    // Other words are still refused with the place where they were set.
    let wrong = Workspace::new().run(&["--color", "sometimes", "ls", "--store", "mem:"]);
    assert!(wrong.fails(12).contains("auto, always or never"), "{}", wrong.stderr);
}

#[test]
fn the_doctor_measures_a_place_and_leaves_nothing_behind() {
    let place = Workspace::new();
    let report = place.run(&["doctor", "not/there/yet", "--json"]).json();
    let findings = report["findings"].as_array().unwrap();
    let names: Vec<&str> = findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect();
    for name in [
        "kernel",
        "file system",
        "free space",
        "writable",
        "locking",
        "links",
        "sockets",
        "direct I/O",
        "fsync",
    ] {
        assert!(names.contains(&name), "{name} is missing: {names:?}");
    }
    // No part of Atoll uses io_uring, so whether the kernel allows it says nothing about a store.
    assert!(!names.contains(&"io_uring"), "{names:?}");
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 0);
    assert!(place.run(&["doctor", "."]).text().contains("fsync"));
}

#[test]
fn the_doctor_fails_where_a_store_could_not_be_so_that_a_job_may_ask_it_first() {
    let place = Workspace::new();
    // No folder can be created there, whatever rights a user has.
    let unfit = place.run(&["doctor", "/proc"]);
    assert!(unfit.fails(16).contains("/proc is not fit for a store: "), "{}", unfit.stderr);
    assert!(unfit.stderr.contains("writable: no: "), "{}", unfit.stderr);
    let shown = String::from_utf8_lossy(&unfit.stdout).into_owned();
    assert!(shown.contains("! writable") && shown.contains("mode=read"), "{shown}");
    let unfit = place.run(&["doctor", "/proc", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&unfit.stderr).unwrap();
    assert_eq!((&told["error"]["kind"], &told["error"]["exit"]), (&"unavailable".into(), &16.into()));
    let report: serde_json::Value = serde_json::from_slice(&unfit.stdout).unwrap();
    let bad = |finding: &serde_json::Value| finding["name"] == "writable" && finding["grade"] == "bad";
    assert!(report["findings"].as_array().unwrap().iter().any(bad), "{report}");
}

#[test]
fn a_reader_that_closes_the_output_ends_the_program_silently() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let place = Workspace::new();
    let mut command = place.command(&["completions", "bash"]);
    let answer = Answer::from(command.stdout(writer).output().unwrap());
    assert_eq!((answer.exit, answer.stderr.as_str()), (Some(0), ""));
}

#[test]
fn store_info_shows_the_limits() {
    let info = Workspace::new().run(&["store", "info", "--store", "mem:", "--json"]).json();
    assert_eq!(info["limits"]["value_bytes"], 64 << 20);
    assert!(Workspace::new().run(&["store", "info", "--store", "mem:"]).text().contains("up to 64MiB"));
}

#[test]
fn attributes_of_a_store_keep_their_types_and_info_shows_them() {
    let place = Workspace::new();
    let run = |words: &[&str]| place.run(&[words, &["--store", "data"]].concat());
    let missing = run(&["store", "attributes", "a=1"]);
    missing.fails(10);
    run(&["kv", "put", "p", "s", "v"]).text();
    assert_eq!(run(&["store", "attributes"]).text(), "");
    assert_eq!(
        run(&["store", "attributes", "seed=42", "project=tubes"]).text(),
        "project\ttubes\nseed\t42\n"
    );
    let all = run(&["store", "attributes", "project=", "cutoffs=[2.5,true]", "--json"]).json();
    assert_eq!(all, serde_json::json!({ "seed": 42, "cutoffs": [2.5, true] }));
    assert_eq!(run(&["store", "info", "--json"]).json()["attributes"], all);
    let info = run(&["store", "info"]);
    assert!(info.text().contains("\nattribute             seed = 42\n"), "{}", info.text());
    run(&["store", "attributes", "seed"]).fails(2);
    run(&["store", "attributes", "seed=99999999999999999999"]).fails(2);
    // They are neither a table nor a partition of the user, and a copy of the store has them.
    assert_eq!(run(&["table", "list"]).text(), "");
    assert_eq!(run(&["ls", "--json"]).json_lines().len(), 1);
    run(&["store", "copy", "copy"]).text();
    assert_eq!(place.run(&["store", "attributes", "--store", "copy", "--json"]).json(), all);
}

#[test]
fn a_store_in_memory_or_on_other_machines_is_not_served() {
    for nothing_to_own in ["mem:", "cassandra://nobody.invalid/k", "ring://nobody.invalid/"] {
        Workspace::new().run(&["serve", "--store", nothing_to_own]).fails(14);
    }
}

#[cfg(feature = "cassandra")]
#[test]
fn an_unreachable_cluster_is_reported_without_log_lines_of_the_driver() {
    // No process listens at the lowest port.
    let url = "cassandra://127.0.0.1:1/k?connect-time-out=2s";
    let answer = Workspace::new().run(&["kv", "get", "--store", url, "p", "a"]);
    let told = answer.fails(16);
    assert!(told.starts_with("error: ") && told.contains("127.0.0.1:1"), "{told}");
    assert!(!told.contains("WARN") && !told.contains("ERROR"), "{told}");
}

#[test]
fn torn_binary_input_is_named_with_its_offset() {
    let place = Workspace::new();
    let answer = place.run_with(&["kv", "export", "--store", "mem:", "-", "--format", "binary"], b"");
    assert_eq!(answer.exit, Some(0), "{}", answer.stderr);
    place.write("torn.atoll", &answer.stdout[..answer.stdout.len() - 1]);
    let torn = place.run(&["kv", "import", "--store", "mem:", "torn.atoll"]);
    assert!(torn.fails(18).contains("torn.atoll ends early, at byte 16"), "{}", torn.stderr);
    let json = place.run_with(&["kv", "import", "--store", "mem:", "-", "--format", "binary"], b"{}");
    assert!(json.fails(12).contains("standard input is not a binary export"), "{}", json.stderr);
}

#[test]
fn an_interruption_is_heard_while_input_is_awaited() {
    let place = Workspace::new();
    let arguments = "kv import --store mem: - --format jsonl --progress json --set import.window=1";
    let mut child = place.spawn(&words(arguments));
    let mut stdin = child.stdin.take().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    // Two records, because a window is handed over when the next one begins.
    stdin
        .write_all(b"{\"partition\":\"p\",\"value\":\"1\"}\n{\"partition\":\"p\",\"value\":\"2\"}\n")
        .unwrap();
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("progress"), "{line}");
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    line.clear();
    while stderr.read_line(&mut line).unwrap() > 0 {}
    assert_eq!(status.code(), Some(130), "{line}");
    assert!(line.contains("error: interrupted"), "{line}");
    drop(stdin);
}

/// The peak of a process's resident memory, in KiB.
#[cfg(target_os = "linux")]
fn memory_peak_kib(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn the_memory_of_an_import_does_not_grow_with_its_source() {
    const BYTES: usize = 256 << 20;
    let place = Workspace::new();
    let mut command = place.command(&words("kv import --store mem: - --format jsonl --progress json"));
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    // The same hundred cells over and over, so that the store itself stays small.
    let chunk: String = (0..100)
        .map(|at| format!("{{\"partition\":\"p\",\"sort\":\"{at}\",\"value\":\"{}\"}}\n", "v".repeat(10_000)))
        .collect();
    let chunks = BYTES / chunk.len();
    let writer = std::thread::spawn(move || {
        (0..chunks).for_each(|_| stdin.write_all(chunk.as_bytes()).unwrap());
        stdin
    });
    let (mut line, mut records) = (String::new(), 0);
    // The last windows are still pending at this moment; the others are what could have piled up.
    while records < chunks as u64 * 100 * 9 / 10 {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "the import ended early");
        let progress: serde_json::Value = serde_json::from_str(&line).unwrap();
        records = progress["progress"]["records"].as_u64().unwrap();
    }
    let peak = memory_peak_kib(child.id());
    drop(writer.join().unwrap());
    assert!(child.wait().unwrap().success());
    assert!(peak < 96 << 10, "{peak} KiB at the peak for {} KiB of input", BYTES >> 10);
}

#[test]
fn keys_that_look_like_negative_numbers_are_keys_everywhere() {
    let place = Workspace::new();
    let run = |line: &str| place.run(&[vec!["--store", "data"], words(line)].concat());
    for sort in ["-2", "-1", "0"] {
        run(&format!("kv put -7 {sort} v")).text();
    }
    assert_eq!(run("kv get -7 -1").text(), "v");
    assert_eq!(run("kv scan -7 --from -1 --to -2 --keys-only").text(), "-1\n");
    assert_eq!(run("kv scan -7 --prefix -2 --keys-only").text(), "-2\n");
    assert_eq!(run("ls --prefix -7").text(), "-7\n");
    run("kv delete -7 --from -1 --to 0").text();
    assert_eq!(run("ls -7 --json").json()["sort"], "0");
}

#[test]
fn creating_a_store_is_reported_so_that_a_mistyped_folder_is_noticed() {
    let place = Workspace::new();
    let run = |line: &str| place.run(&words(line));
    let made = run("kv put --store data p s 1");
    assert_eq!((made.text(), &*made.stderr), ("", "there was no store in data: a new one was made\n"));
    let there = run("kv put --store data p s 2");
    assert_eq!((there.text(), &*there.stderr), ("", ""));
    let made = run("kv append --store file:dta p s 1 --json");
    let told: serde_json::Value = serde_json::from_str(&made.stderr).unwrap();
    assert!(told["note"].as_str().unwrap().contains("dta"), "{told}");
    for line in ["kv put --store mem: p s 1", "kv get --store none p s"] {
        assert!(!run(line).stderr.contains("was made"), "{line}");
    }
}

#[test]
fn a_variable_that_is_not_utf8_is_refused_and_never_becomes_another_folder() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Workspace::new();
    let run = |words: &[&str], variables: &[(&str, &[u8])]| {
        let mut command = place.command(words);
        command.envs(variables.iter().map(|(name, text)| (name, OsStr::from_bytes(text))));
        Answer::from(command.output().unwrap())
    };
    for (name, text) in [("ATOLL_STORE", &b"./d\xff"[..]), ("ATOLL_CASSANDRA_PASSWORD", b"geheim\xfc")] {
        let refused = run(&["kv", "put", "p", "s", "v"], &[("ATOLL_STORE", b"./d"), (name, text)]);
        assert!(refused.fails(2).contains(name), "{}", refused.stderr);
        assert!(!refused.stderr.contains("geheim"), "{}", refused.stderr);
        assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 0, "{name}");
    }
    // The path of the options file need not be UTF-8.
    let odd = OsStr::from_bytes(b"k\xfcche");
    let folder = place.folder.path().join(odd).join("atoll");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("atoll.toml"), "store = \"./chosen\"\n").unwrap();
    let shown = run(&["config", "show"], &[("XDG_CONFIG_HOME", odd.as_bytes())]);
    assert!(shown.text().contains("./chosen"), "{}", shown.text());
    let shown =
        run(&["config", "show"], &[("ATOLL_CONFIG", folder.join("atoll.toml").as_os_str().as_bytes())]);
    assert!(shown.text().contains("./chosen"), "{}", shown.text());
}

/// Whether a process was sent SIGTERM and has not received it yet.
#[cfg(target_os = "linux")]
fn is_about_to_hear(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    pending >> 14 & 1 == 1
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_comes_twice_at_once_as_timeout_sends_it_is_one() {
    use rustix::process::{Pid, Signal, kill_process};
    let place = Workspace::new();
    for round in 0..20 {
        let mut serve = place.spawn(&["serve", "--store", "d", "--json"]);
        support::started(&mut serve);
        kill_process(Pid::from_child(&serve), Signal::TERM).unwrap();
        // The kernel would merge an earlier second signal with the first.
        while is_about_to_hear(serve.id()) {
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&serve), Signal::TERM).unwrap();
        assert_eq!(serve.wait().unwrap().code(), Some(0), "round {round}");
    }
}
