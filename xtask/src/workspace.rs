//! Where the repository is, and which crates it has.

use crate::cargo;
use crate::failure::Failure;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The folder with the workspace's Cargo.toml.
pub fn root() -> Result<PathBuf, Failure> {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(root) = ROOT.get() {
        return Ok(root.clone());
    }
    let here = std::env::current_dir().map_err(Failure::io("read the current directory"))?;
    // `cargo xtask` sets this to the folder of this crate; the bare binary searches upwards from the
    // working folder.
    let start = std::env::var_os("CARGO_MANIFEST_DIR").map_or(here, PathBuf::from);
    let found = start.ancestors().find(|folder| {
        std::fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|text| text.contains("[workspace]"))
    });
    match found {
        Some(root) => Ok(ROOT.get_or_init(|| root.to_path_buf()).clone()),
        None => Err(Failure::Usage {
            problem: format!("no Atoll checkout at or above {}", start.display()),
            usage: "run `cargo xtask` inside a checkout".to_owned(),
        }),
    }
}

/// The folder for builds.
pub fn target_dir() -> Result<PathBuf, Failure> {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let root = root()?;
    Ok(chosen.map_or_else(|| root.join("target"), |chosen| root.join(chosen)))
}

/// A dependency of a crate on another crate of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The crate that it depends on.
    pub on: String,
    /// Whether only tests, examples and benches need it.
    pub only_tests: bool,
}

/// One target of a crate: a library, program, test or example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its kind: `lib`, `bin`, `test`, `example`, ...
    pub kind: String,
    /// Features without which Cargo silently leaves it out.
    pub required_features: Vec<String>,
    /// Whether `cargo test` runs it.
    pub is_tested: bool,
}

/// One crate of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its folder below the root, with forward slashes.
    pub folder: String,
    /// Its dependencies in the workspace.
    pub dependencies: Vec<Dependency>,
    /// Every crate that it needs in all configurations, and not only for its tests, whether in the
    /// workspace or not.
    pub required: Vec<String>,
    /// Its targets.
    pub targets: Vec<Target>,
}

/// The crates of the workspace, as Cargo reports them.
pub fn packages() -> Result<Vec<Package>, Failure> {
    let root = root()?;
    let mut command = cargo::command()?;
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let text = crate::run::captured("cargo metadata", &mut command)?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| Failure::Malformed {
        what: "the output of cargo metadata".to_owned(),
        problem: error.to_string(),
    })?;
    let mut packages: Vec<Package> =
        list(&metadata, "packages").iter().map(|package| read_package(package, &root)).collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

fn read_package(package: &Value, root: &std::path::Path) -> Package {
    let manifest = PathBuf::from(text(package, "manifest_path"));
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
    let dependencies = list(package, "dependencies")
        .iter()
        // Only path dependencies are in this workspace.
        .filter(|dependency| dependency.get("path").is_some_and(Value::is_string))
        .map(|dependency| Dependency {
            on: text(dependency, "name"),
            only_tests: dependency.get("kind").and_then(Value::as_str) == Some("dev"),
        });
    let is_required = |dependency: &&Value| {
        let is_for_tests = dependency.get("kind").and_then(Value::as_str) == Some("dev");
        !is_for_tests && dependency.get("optional").and_then(Value::as_bool) != Some(true)
    };
    let required = list(package, "dependencies").iter().filter(is_required);
    let targets = list(package, "targets").iter().map(|target| Target {
        name: text(target, "name"),
        kind: list(target, "kind").first().and_then(Value::as_str).unwrap_or_default().to_owned(),
        required_features: texts(target, "required-features"),
        is_tested: target.get("test").and_then(Value::as_bool).unwrap_or(false),
    });
    Package {
        name: text(package, "name"),
        folder: folder.map(|folder| folder.to_string_lossy().replace('\\', "/")).unwrap_or_default(),
        dependencies: dependencies.collect(),
        required: required.map(|dependency| text(dependency, "name")).collect(),
        targets: targets.collect(),
    }
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    list(value, field).iter().filter_map(|each| each.as_str().map(str::to_owned)).collect()
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}
