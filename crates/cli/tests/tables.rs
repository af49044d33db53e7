//! Tables through the command line: what goes in comes out, whatever the format and whichever process is
//! killed.
#![allow(missing_docs, dead_code, clippy::unwrap_used, clippy::panic)]

#[path = "tables/answers.rs"]
mod answers;
#[path = "tables/appends.rs"]
mod appends;
#[path = "tables/copies.rs"]
mod copies;
#[path = "tables/files.rs"]
mod files;
#[path = "tables/imports.rs"]
mod imports;
#[path = "tables/mistakes.rs"]
mod mistakes;
#[path = "tables/screens.rs"]
mod screens;
mod support;
#[path = "tables/whole.rs"]
mod whole;

use support::{Answer, Workspace};

/// Runs the program on the store of this folder.
fn atoll(place: &Workspace, arguments: &str) -> Answer {
    place.run(&[&["--store", "data"], &words(arguments)[..]].concat())
}

/// Splits a line into words; those in single quotes may contain spaces.
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
fn sorted(place: &Workspace, arguments: &str) -> Vec<String> {
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

/// A folder with a table of 5 steps of 200 particles.
fn filled() -> Workspace {
    let place = Workspace::new();
    place.write("run.csv", csv(0..5, 200));
    atoll(&place, CREATE).text();
    let imported = atoll(&place, "table import t run.csv --json").json();
    assert_eq!((&imported["rows"], &imported["steps"]), (&1000.into(), &5.into()));
    place
}
