//! `docs/reference/command-line.md` says what the program says: every verb with its options.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

mod support;

use std::fmt::Write;
use support::Workspace;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/command-line.md");

/// Set to write the page anew instead of comparing it.
const WRITE: &str = "WRITE_REFERENCE";

const BEGINNING: &str = "# Every command

What `atoll COMMAND -h` prints, for every command; `--help` tells more about some options. The page is made from the
program, and a test compares the two. [The command line](../guide/command-line.md) explains how to name a store, write
keys and values, and use `atoll` in scripts. The [options that every command takes](#atoll) stand once, at the top.
";

/// The short help of a command, by its words.
fn help(place: &Workspace, words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["-h"]).collect();
    place.run(&words).text().to_owned()
}

/// The commands that a help lists, but for `help` itself.
fn commands(help: &str) -> Vec<String> {
    let Some((_, listed)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = listed.lines().take_while(|line| !line.is_empty());
    // A description that goes on in another line is indented further than a name.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

/// A help without the options that every command takes.
fn without_global_options(help: &str) -> String {
    let Some((before, behind)) = help.split_once("\nGlobal options:\n") else { return help.to_owned() };
    let rest = behind.split_once("\n\n").map_or("", |(_, rest)| rest);
    format!("{before}\n{rest}").trim_end().to_owned()
}

/// Adds a command and, below it, those that it has.
fn add(page: &mut String, place: &Workspace, words: &[String]) {
    let help = help(place, words);
    let shown = if words.is_empty() { help.trim_end().to_owned() } else { without_global_options(&help) };
    let title = [&["atoll".to_owned()], words].concat().join(" ");
    let level = if words.len() < 2 { "##" } else { "###" };
    write!(page, "\n{level} {title}\n\n```text\n{shown}\n```\n").unwrap();
    for name in commands(&help) {
        add(page, place, &[words, &[name]].concat());
    }
}

#[test]
fn the_reference_lists_every_command_as_the_program_explains_it() {
    let mut page = BEGINNING.to_owned();
    add(&mut page, &Workspace::new(), &[]);
    assert!(page.contains("\n### atoll ring keyspace create\n"), "commands below commands are missing");
    if std::env::var_os(WRITE).is_some() {
        std::fs::create_dir_all(std::path::Path::new(PAGE).parent().unwrap()).unwrap();
        std::fs::write(PAGE, &page).unwrap();
    }
    let kept = std::fs::read_to_string(PAGE).unwrap_or_default();
    let differing = kept.lines().zip(page.lines()).find(|(kept, said)| kept != said);
    assert!(kept == page, "made anew by `{WRITE}=1 cargo test -p atoll --test reference`: {differing:?}");
}
