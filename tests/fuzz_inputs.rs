//! Replays every input that ever broke a parser, and every seed of a fuzzer, without a fuzzer.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "../fuzz/src/targets.rs"]
mod targets;

use std::path::{Path, PathBuf};
use targets::TARGETS;

fn inputs(kind: &str, target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz").join(kind).join(target);
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect()
}

#[test]
fn no_seed_and_no_former_finding_breaks_its_parser() {
    for (name, target) in TARGETS {
        let seeds = inputs("seeds", name);
        // A target without inputs would never fail.
        assert!(!seeds.is_empty(), "{name} has no seed in fuzz/seeds/{name}: a valid input is one");
        for path in seeds.into_iter().chain(inputs("findings", name)) {
            println!("replay with: cargo xtask fuzz {name} --minutes 0; the input is {}", path.display());
            target(&std::fs::read(&path).unwrap());
        }
    }
}

#[test]
fn every_folder_of_inputs_belongs_to_a_target() {
    for kind in ["seeds", "findings"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz").join(kind);
        for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_known = name.starts_with('.') || TARGETS.iter().any(|(target, _)| *target == name);
            assert!(is_known, "fuzz/{kind}/{name} belongs to no target: its inputs are never replayed");
        }
    }
}
