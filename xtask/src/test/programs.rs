//! The test programs, built once for all rooms so that every room sees the same features.

use crate::console::{Step, Verdict};
use crate::failure::{Failure, shown};
use crate::rooms::{FEATURED, Featured, OTHERS, ROOMS};
use crate::{cargo, cassandra, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One test program.
pub struct Program {
    /// The crate it tests.
    pub package: String,
    /// Its name: the crate, and the file of tests if it is one of several.
    pub name: String,
    executable: PathBuf,
    folder: PathBuf,
}

impl Program {
    /// A command that runs it as Cargo would, and shows what passing tests print, including skips.
    pub fn command(&self) -> Result<Command, Failure> {
        let mut command = Command::new(&self.executable);
        command.arg("--show-output").current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("RUST_BACKTRACE", "1");
        Ok(command)
    }

    /// This program, run from a copy in `folder` that no build replaces; its working folder stays the same.
    /// No link: some linkers write into the file that is there.
    pub fn copied_to(self, folder: &Path) -> Result<Self, Failure> {
        let copy = folder.join(self.executable.file_name().unwrap_or_default());
        let doing = format!("copy {}", shown(&self.executable));
        std::fs::copy(&self.executable, &copy).map_err(Failure::io(doing))?;
        Ok(Self { executable: copy, ..self })
    }

    /// A stand-in that runs another command as if it were a test program.
    #[cfg(test)]
    pub fn for_test(name: &str, executable: &str) -> Self {
        let folder = std::env::temp_dir();
        Self { package: name.to_owned(), name: name.to_owned(), executable: executable.into(), folder }
    }
}

/// The results of a build.
#[derive(Default)]
pub struct Built {
    /// Test programs.
    pub programs: Vec<Program>,
    /// The `atoll` program, if it was built.
    pub atoll: Option<PathBuf>,
    /// The test programs built with each feature, from the first request for that feature on; empty if they
    /// could not be built.
    featured: BTreeMap<&'static str, Vec<Program>>,
}

impl Built {
    /// A test program that is built with its feature. The first request for a feature builds all programs
    /// with that feature, of the room or of all rooms.
    pub fn featured(&mut self, wanted: &Featured, room: Option<&str>) -> Result<Option<&Program>, Failure> {
        if !self.featured.contains_key(wanted.feature) {
            let programs = build_featured(wanted.feature, room)?;
            self.featured.insert(wanted.feature, programs);
        }
        let programs = self.featured.get(wanted.feature).into_iter().flatten();
        let name = format!("{}/{}", wanted.package, wanted.test);
        Ok(programs.into_iter().find(|program| program.name == name))
    }
}

/// Builds the tests of a room, or of all; a room without a crate needs only the program.
pub fn build(room: Option<&str>) -> Result<Built, Failure> {
    if matches!(room, Some("sanitizer" | "benches")) {
        return Ok(Built::default());
    }
    if room.is_some_and(|room| OTHERS.contains(&room)) {
        return Ok(Built { atoll: build_atoll()?, ..Built::default() });
    }
    let mut built = build_tests(room)?;
    if built.atoll.is_none() && room.is_none() {
        built.atoll = build_atoll()?;
    }
    Ok(built)
}

fn build_tests(room: Option<&str>) -> Result<Built, Failure> {
    let mut command = building()?;
    // The tests of that room are spread over all crates.
    let room = room.filter(|name| *name != cassandra::ROOM);
    match room.and_then(|name| ROOMS.iter().find(|room| room.name == name)) {
        Some(room) => {
            let elsewhere = room.elsewhere.iter().map(|(package, _)| package);
            for package in room.packages.iter().chain(elsewhere) {
                command.args(["--package", package]);
            }
        }
        None => {
            command.arg("--workspace");
        }
    }
    built_by("cargo test --no-run", &mut command)
}

/// A Cargo command that builds tests and reports what it built.
pub fn building() -> Result<Command, Failure> {
    let mut command = cargo::building()?;
    command.args(["test", "--no-run", "--message-format", "json-render-diagnostics"]).args(cargo::locked());
    Ok(command)
}

/// Runs a Cargo build as one step; returns what it built.
pub fn built_by(name: &str, command: &mut Command) -> Result<Built, Failure> {
    let mut step = Step::start(name);
    let ran = run::watched(name, command, &mut step)?;
    if ran.succeeded() {
        step.end(Verdict::Passed, "");
        return Ok(artifacts(&ran.stdout));
    }
    step.end(Verdict::Failed, &ran.ended());
    for line in ran.everything.iter().filter(|line| !line.starts_with('{')) {
        println!("    {line}");
    }
    Err(Failure::Command { what: name.to_owned(), ended: ran.ended() })
}

/// Builds all test programs with a feature. Together with the tests of all rooms they are built from the
/// whole workspace, so that their dependencies have the same features and are built already.
fn build_featured(feature: &str, room: Option<&str>) -> Result<Vec<Program>, Failure> {
    let mut command = building()?;
    let is_wanted = |featured: &&Featured| room.is_none_or(|room| room == featured.room);
    let all = FEATURED.iter().filter(|featured| featured.feature == feature).filter(is_wanted);
    if room.is_none() {
        command.arg("--workspace");
    }
    for featured in all {
        command.args(["--features", &format!("{}/{feature}", featured.package), "--test", featured.test]);
        if room.is_some() {
            command.args(["--package", featured.package]);
        }
    }
    match built_by(&format!("build with feature {feature}"), &mut command) {
        Ok(built) => Ok(built.programs),
        // Already reported; the missing tests count as failed.
        Err(Failure::Command { .. }) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// Builds `atoll` separately: Cargo builds a program along with its tests only if its crate has integration
/// tests.
fn build_atoll() -> Result<Option<PathBuf>, Failure> {
    let mut command = cargo::building()?;
    command
        .args(["build", "--package", "atoll", "--message-format", "json-render-diagnostics"])
        .args(cargo::locked());
    let ran = run::step("cargo build --package atoll", &mut command)?;
    Ok(artifacts(&ran.stdout).atoll)
}

/// Reads Cargo's messages about what it built.
fn artifacts(lines: &[String]) -> Built {
    let mut built = Built::default();
    for message in lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let at = |path: &str| message.pointer(path).and_then(Value::as_str);
        let Some(executable) = at("/executable").map(PathBuf::from) else { continue };
        let (Some(manifest), Some(target)) = (at("/manifest_path"), at("/target/name")) else { continue };
        let kind = at("/target/kind/0").unwrap_or_default();
        let is_test = message.pointer("/profile/test").and_then(Value::as_bool) == Some(true);
        let folder = Path::new(manifest).parent().map(Path::to_path_buf).unwrap_or_default();
        if is_test && kind != "example" {
            let package = package_name(at("/package_id").unwrap_or_default(), target);
            let name = if kind == "test" { format!("{package}/{target}") } else { package.clone() };
            built.programs.push(Program { package, name, executable, folder });
        } else if kind == "bin" && target == "atoll" {
            built.atoll = Some(executable);
        }
    }
    built.programs.sort_by(|a, b| a.name.cmp(&b.name));
    built
}

/// The name in `path+file:///...#name@version`, or `...folder#version` when both agree.
fn package_name(id: &str, target: &str) -> String {
    let fragment = id.rsplit('#').next().unwrap_or_default();
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => {
            let folder = id.split('#').next().and_then(|path| path.rsplit('/').next());
            folder.unwrap_or(target).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_program_stays_as_it_is_while_a_build_replaces_the_program() {
        let folder = std::env::temp_dir().join(format!("atoll-program-copies-{}", std::process::id()));
        let (executable, copies) = (folder.join("tests-1"), folder.join("copies"));
        std::fs::create_dir_all(&copies).unwrap();
        std::fs::write(&executable, "as built").unwrap();
        let program = Program { executable: executable.clone(), ..Program::for_test("tests", "") };
        let command = program.copied_to(&copies).unwrap().command().unwrap();
        std::fs::write(&executable, "replaced").unwrap();
        assert_eq!(std::fs::read_to_string(command.get_program()).unwrap(), "as built");
        assert_eq!(command.get_current_dir(), Some(std::env::temp_dir().as_path()));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn package_names_are_read_from_ids() {
        assert_eq!(package_name("path+file:///a/crates/engine#atoll-engine@0.1.0", "x"), "atoll-engine");
        assert_eq!(package_name("path+file:///a/xtask#0.1.0", "x"), "xtask");
    }

    #[test]
    fn test_programs_and_the_product_are_told_apart() {
        let line = |kind: &str, name: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///a#{name}@1","manifest_path":"/a/Cargo.toml",
                "target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":"/t/{name}"}}"#
            )
            .replace('\n', "")
        };
        let lines = [line("lib", "engine", true), line("test", "crash", true), line("bin", "atoll", false)];
        let built = artifacts(&lines);
        let names: Vec<_> = built.programs.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["crash/crash", "engine"]);
        assert_eq!(built.atoll, Some(PathBuf::from("/t/atoll")));
    }
}
