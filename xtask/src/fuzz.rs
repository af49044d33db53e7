//! `cargo xtask fuzz TARGET`: libFuzzer with AddressSanitizer, on the installed stable toolchain.
//!
//! Without a target it lists them; they are functions in `fuzz/src/targets.rs`. Inputs that reach new code
//! are kept below the target folder. A finding is written to `fuzz/findings/TARGET/`, to be committed: the
//! tests replay it from then on.

use crate::arguments::Arguments;
use crate::console::{heading, seconds};
use crate::failure::{Failure, shown};
use crate::{cargo, requirements, run, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTES: u64 = 10;
/// An input that takes longer than this is a finding.
const INPUT_SECONDS_MAX: u64 = 10;
const MEMORY_MIB_MAX: u64 = 2048;
const INPUT_BYTES_MAX: u64 = 64 * 1024;

/// The instrumentation that libFuzzer needs in every crate: edges, comparisons, and a counter for each
/// edge.
const INSTRUMENTATION: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Zsanitizer=address",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
    "-Ccodegen-units=1",
];

/// Fuzzes one target.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let minutes: u64 = arguments.option("--minutes")?.unwrap_or(MINUTES);
    let known = targets()?;
    let Some(target) = arguments.word() else {
        arguments.finish()?;
        println!("The fuzz targets; `cargo xtask fuzz TARGET` runs one:\n");
        known.iter().for_each(|target| println!("  {target}"));
        return Ok(());
    };
    if !known.contains(&target) {
        return Err(
            arguments.wrong(format!("there is no fuzz target {target:?}; there is: {}", known.join(", ")))
        );
    }
    arguments.finish()?;
    requirements::cpp_compiler("libFuzzer")?;
    heading(&format!("Fuzzing {target} for {minutes} minutes"));
    let program = build()?;
    fuzz(&program, &target, minutes)
}

/// The names in the table of fuzz targets.
fn targets() -> Result<Vec<String>, Failure> {
    let path = "fuzz/src/targets.rs";
    let source = std::fs::read_to_string(workspace::root()?.join(path))
        .map_err(Failure::io(format!("read {path}")))?;
    Ok(names_in(&source))
}

/// The names in the rows `("name", function),` of the table.
fn names_in(source: &str) -> Vec<String> {
    let table =
        source.split("pub const TARGETS").nth(1).and_then(|rest| rest.split("];").next()).unwrap_or_default();
    table.split("(\"").skip(1).filter_map(|row| row.split('"').next()).map(str::to_owned).collect()
}

fn build() -> Result<PathBuf, Failure> {
    let (host, target_dir) = (cargo::host()?, workspace::target_dir()?.join("fuzz"));
    let mut command = cargo::building()?;
    command.args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    // Naming the host as the target keeps build scripts and macros free of instrumentation.
    command.args(["--target", &host, "--features", "libfuzzer"]);
    command.env("CARGO_TARGET_DIR", &target_dir).env_remove("CARGO_ENCODED_RUSTFLAGS");
    // Sanitizers are unstable flags; the stable compiler supports them with RUSTC_BOOTSTRAP.
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", INSTRUMENTATION.join(" "));
    run::step("build the targets with coverage and AddressSanitizer", &mut command)?;
    Ok(target_dir.join(host).join("release/fuzz"))
}

fn fuzz(program: &Path, target: &str, minutes: u64) -> Result<(), Failure> {
    let root = workspace::root()?;
    let corpus = workspace::target_dir()?.join("fuzz/corpus").join(target);
    let findings = root.join("fuzz/findings").join(target);
    let seeds = root.join("fuzz/seeds").join(target);
    for folder in [&corpus, &findings, &seeds] {
        std::fs::create_dir_all(folder).map_err(Failure::io(format!("make {}", shown(folder))))?;
    }
    let before = Instant::now();
    let mut command = Command::new(program);
    command.current_dir(&root).env("ATOLL_FUZZ_TARGET", target).args([&corpus, &seeds, &findings]);
    command.arg(format!("-artifact_prefix={}/", findings.display()));
    command.args([format!("-max_total_time={}", minutes * 60), format!("-timeout={INPUT_SECONDS_MAX}")]);
    command.args([format!("-rss_limit_mb={MEMORY_MIB_MAX}"), format!("-max_len={INPUT_BYTES_MAX}")]);
    command.args(["-print_final_stats=1", "-print_funcs=0"]);
    run::attached(&format!("fuzzing {target} (the input is below fuzz/findings/{target})"), &mut command)?;
    println!("\n{target}: no finding in {}.", seconds(before.elapsed().max(Duration::from_secs(1))));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_targets_is_read_from_its_source() {
        let source = "pub const TARGETS: &[(&str, Target)] = &[\n    (\"key\", key),\n    (\"page\", page),\n];\n(\"no\")";
        assert_eq!(names_in(source), ["key", "page"]);
    }
}
