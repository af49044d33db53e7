//! How rows that are wider than the screen are shown.

use super::support::Workspace;
use super::{atoll, lines};
use std::process::{Command, Stdio};

/// The lines that a screen of 40 columns shows of a command, run in a terminal by `script`.
fn seen(place: &Workspace, arguments: &str) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_atoll");
    let typed = format!("stty cols 40 rows 24; '{program}' --store data {arguments}");
    let mut screen = Command::new("script");
    screen.args(["-q", "-e", "-c", &typed, "/dev/null"]).current_dir(place.folder.path());
    screen.env("HOME", place.folder.path()).env_remove("ATOLL_STORE").stdin(Stdio::null());
    let output = screen.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn rows_that_are_wider_than_the_screen_lack_columns_in_the_middle_and_one_row_stands_on_its_side() {
    let place = Workspace::new();
    let names: Vec<String> = (10..30).map(|number| format!("c{number}")).collect();
    let row = |row: u64| (0..20).map(|column| (row * 100 + column).to_string()).collect::<Vec<_>>().join(",");
    place.write("wide.csv", format!("{}\n{}\n{}\n", names.join(","), row(1), row(2)));
    atoll(&place, "table create t --like wide.csv --id c10 --index c11").text();
    atoll(&place, "table import t wide.csv").text();
    let screen = seen(&place, "table query t");
    assert_eq!(screen[0], "c10  c11  c12  c13  …  c27  c28  c29");
    let told = "13 columns were left out for want of room, c14 to c26: name";
    assert!(screen[3].starts_with(told) && screen[3].contains("--columns"), "{screen:?}");
    assert_eq!(screen.len(), 4, "{screen:?}");
    let one = seen(&place, "table query t --where 'c10 = 200'");
    assert_eq!((one.len(), &*one[0], &*one[19]), (20, "c10  200", "c29  219"), "{one:?}");
    assert_eq!(seen(&place, "table query t --where 'c10 = 200' --columns c10,c11"), ["c10  c11", "200  201"]);
    // Without a screen there is no limit.
    assert_eq!(lines(&atoll(&place, "table query t"))[0], names.join("  "));
}
