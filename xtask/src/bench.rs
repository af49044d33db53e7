//! `cargo xtask bench NAME`: builds the benches' own crate on demand and runs one of them.

mod cassandra;
mod ring;
mod tables;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::lock::Lock;
use crate::{cargo, run, workspace};
use std::path::PathBuf;

const MANIFEST: &str = "benches/Cargo.toml";
/// How the benches are compiled; Cargo would look for it beside the folder it runs in.
const CONFIG: &str = "benches/.cargo/config.toml";

/// Runs one bench with this terminal as its own.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let name = arguments.required("NAME")?;
    if !workspace::root()?.join(MANIFEST).exists() {
        return Err(arguments.wrong(format!("{MANIFEST} is missing from this checkout")));
    }
    let _lock = alone()?;
    match name.as_str() {
        "tables" => return tables::run(arguments),
        "cassandra" => return cassandra::run(arguments),
        "ring" => return ring::run(arguments),
        _ => {}
    }
    let peers = arguments.flag("--peers");
    let mut command = cargo::building()?;
    command.args(["run", "--config", CONFIG, "--release", "--manifest-path", MANIFEST]);
    if peers {
        println!("Building the rivals too: RocksDB alone takes minutes the first time.");
        crate::requirements::cpp_compiler("RocksDB, a rival,")?;
        crate::requirements::libclang("the bindings of RocksDB, a rival,")?;
        crate::requirements::key_value_libraries("short pairs beside them")?;
        command.args(["--features", "peers"]);
    }
    command.arg("--").arg(&name);
    if peers {
        command.arg("--peers");
    }
    // Everything else is the bench's to judge: it knows its own flags best.
    command.args(arguments.rest().iter().filter(|word| *word != "--"));
    run::attached(&format!("bench {name}"), &mut command)
}

/// Benches side by side measure each other, and take each other's stores and answers away.
fn alone() -> Result<Lock, Failure> {
    let folder =
        std::env::var_os("ATOLL_BENCH_DIR").map_or_else(workspace::target_dir, |at| Ok(PathBuf::from(at)))?;
    Lock::take(&folder.join("atoll-bench.lock"), "measure")
}
