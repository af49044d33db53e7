//! The bench as a whole: a tiny run prints every bar and writes the files for other programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("atoll-bench-trial-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("makes a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bench(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_atoll-benches"))
        .env("ATOLL_BENCH_DIR", folder)
        .args(["engine", "--records", "2000"])
        .args(arguments)
        .output()
        .expect("runs")
}

fn rows(file: &Path) -> Vec<serde_json::Value> {
    serde_json::from_slice(&std::fs::read(file).expect("the file is there")).expect("a list of rows")
}

#[test]
fn without_rivals_ratios_are_not_measured_and_say_so() {
    let folder = Folder::new("alone");
    let file = folder.0.join("rows.json");
    let output = bench(&folder.0, &["--json", file.to_str().expect("a name")]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    for row in rows(&file) {
        let bar = row["bar"].as_str().unwrap_or_default();
        let needs_a_rival = ["better than", "RocksDB", "short pairs"].iter().any(|words| bar.contains(words));
        // Making control groups may not be permitted, and so few records need no cleaning.
        let may_be_absent = bar.contains("4x budget") || bar.contains("cleaning the log");
        assert!(row["figure"].is_number() != needs_a_rival || may_be_absent, "{row}");
    }
    let ratio = rows(&file)
        .into_iter()
        .find(|row| row["bar"].as_str().is_some_and(|bar| bar.contains("better than RocksDB")));
    let ratio = ratio.expect("the row is there");
    assert!(ratio["figure"].is_null() && ratio["holds"].is_null(), "{ratio}");
    assert!(shown.contains("not measured"));
    assert!(shown.contains("floor"), "the floors are measured in every build");
    assert!(!folder.0.join("atoll-bench-stores").read_dir().is_ok_and(|mut left| left.next().is_some()));
}

#[cfg(feature = "lmdb")]
#[test]
fn a_killed_process_loses_nothing_that_its_rival_acknowledged() {
    let folder = Folder::new("killed");
    let file = folder.0.join("rows.json");
    let output = bench(&folder.0, &["--engines", "lmdb", "--json", file.to_str().expect("a name")]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("killed itself") && told.contains("answers after"), "{told}");
    let recovery = rows(&file).into_iter().find(|row| row["unit"] == "s").expect("the row is there");
    assert!(recovery["peers"]["lmdb"].is_number() && recovery["figure"].is_null(), "{recovery}");
}

#[test]
fn an_engine_that_this_build_does_not_have_is_refused_with_what_there_is() {
    let folder = Folder::new("refused");
    let output = bench(&folder.0, &["--engines", "sqlite"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("floor"));
}
