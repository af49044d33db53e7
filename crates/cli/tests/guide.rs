//! Pages of the guide, run command by command.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::Path;
use std::process::Command;
use support::{Answer, Workspace};

const PAGE: &str = include_str!("../../../docs/guide/ten-minutes.md");
const BAD_INPUT: &str = include_str!("../../../docs/guide/bad-input.md");
const TABLES: &str = include_str!("../../../docs/guide/tables.md");

/// The lines of a page's shell blocks, without those that install the program.
fn typed(page: &'static str) -> impl Iterator<Item = &'static str> {
    let mut is_shell = false;
    let lines = page.lines().filter(move |line| {
        if line.starts_with("```") {
            is_shell = *line == "```sh";
            return false;
        }
        is_shell
    });
    lines.filter(|line| !line.is_empty() && !line.starts_with("cargo "))
}

/// Runs a script with the program on its path.
fn run(place: &Workspace, script: &str) -> Answer {
    let program = Path::new(env!("CARGO_BIN_EXE_atoll")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var_os("PATH").unwrap().display());
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).current_dir(place.folder.path()).env("PATH", path);
    Answer::from(shell.env("HOME", place.folder.path()).output().unwrap())
}

#[test]
fn every_command_of_the_first_page_does_what_the_page_says() {
    let place = Workspace::new();
    let mut script = "set -o pipefail\n".to_owned();
    for line in typed(PAGE) {
        // Commands that wait are meant for a second terminal.
        let end = if line.contains(" kv wait ") { "& waiter=$!" } else { "; echo \"exit $?\"" };
        script += &format!("{line} {end}\n");
    }
    script += "wait $waiter; echo \"waited $?\"\n";
    let answer = run(&place, &script);
    let told = String::from_utf8_lossy(&answer.stdout);
    let ends: Vec<&str> =
        told.lines().filter_map(|line| line.split_once("exit ")).map(|(_, end)| end).collect();
    // One command fails, as the page says; output without a final newline may precede an exit code.
    let refused = ends.iter().filter(|end| **end != "0").copied().collect::<Vec<_>>();
    assert_eq!(refused, ["11"], "{told}\n{}", answer.stderr);
    assert!(ends.len() > 20, "{told}");
    assert!(told.contains("waited 0"), "{told}");
    assert!(told.contains("energy\t-1.25\nsteps\t4000\n"), "{told}");
    assert!(told.contains("['2026-01-01', '2026-01-02']"), "{told}");
}

#[test]
fn the_page_on_tables_opens_with_what_it_prints_and_each_of_its_commands_works() {
    let place = Workspace::new();
    let printed = TABLES.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let script: String =
        typed(TABLES).map(|line| format!("{line} && echo ended ||  echo \"FAILED: $?\"\n")).collect();
    let answer = run(&place, &script);
    let told = String::from_utf8_lossy(&answer.stdout);
    assert!(!told.contains("FAILED"), "{told}\n{}", answer.stderr);
    assert!(told.contains(&format!("ended\n{printed}ended\n")), "{told}\n{}", answer.stderr);
    assert!(told.matches("ended").count() > 20, "{told}");
}

#[test]
fn every_command_of_the_page_on_wrong_input_ends_as_the_page_says() {
    let place = Workspace::new();
    let script: String = typed(BAD_INPUT)
        .map(|line| {
            let (command, expected) = line.split_once("  # exit ").unwrap_or((line, "0"));
            format!(
                "{command}; told=$?; [ $told = {expected} ] && echo ended || echo \"FAILED with $told\"\n"
            )
        })
        .collect();
    let answer = run(&place, &script);
    let told = String::from_utf8_lossy(&answer.stdout);
    assert!(!told.contains("FAILED"), "{told}\n{}", answer.stderr);
    assert!(told.matches("ended").count() > 15, "{told}");
    assert!(told.contains("next     2     1\nnext     3     1\n"), "{told}");
    assert!(answer.stderr.contains("next.csv, line 4") && answer.stderr.contains("is in step 3 already"));
}
