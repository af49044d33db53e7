//! Java programs that Maven fetches from lists in this repository, kept outside of the checkout.
//!
//! Invariant: a folder of jars is complete if it exists: it is filled beside its final place and renamed at
//! the end.
//! Invariant: a changed list gets another folder; no folder is ever patched.

use crate::failure::Failure;
use crate::{requirements, run, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A set of jars that one list in this checkout fetches.
pub struct Jars {
    /// The list: a Maven project without sources.
    pub list: &'static str,
    /// The prefix of its folder's name.
    pub name: &'static str,
    /// What it is called in messages.
    pub what: &'static str,
}

/// Apache Cassandra itself.
pub const SERVER: Jars = Jars {
    list: "xtask/cassandra/pom.xml",
    name: "cassandra",
    what: "Apache Cassandra (66 MB the first time)",
};

/// The Spark connector that a rival of the bench reads Cassandra with.
pub const SPARK_CONNECTOR: Jars = Jars {
    list: "benches/tables/on_cassandra/spark-connector.xml",
    name: "spark-connector",
    what: "Spark's connector (23 MB the first time)",
};

impl Jars {
    /// Whether the jars have been fetched already.
    pub fn is_there(&self) -> bool {
        self.place().is_ok_and(|place| place.is_dir())
    }

    /// The folder with the jars; fetches them if it is missing.
    pub fn folder(&self) -> Result<PathBuf, Failure> {
        let place = self.place()?;
        if place.is_dir() {
            return Ok(place);
        }
        requirements::maven()?;
        let list = workspace::root()?.join(self.list);
        let unfinished = place.with_extension(format!("{}.part", std::process::id()));
        self.fetch(&list, &unfinished)?;
        match std::fs::rename(&unfinished, &place) {
            Ok(()) => Ok(place),
            // Another process finished first, with the same jars.
            Err(_) if place.is_dir() => {
                std::fs::remove_dir_all(&unfinished)
                    .map_err(Failure::io(format!("remove {}", unfinished.display())))?;
                Ok(place)
            }
            Err(error) => Err(Failure::io(format!("make {}", place.display()))(error)),
        }
    }

    fn place(&self) -> Result<PathBuf, Failure> {
        let list = workspace::root()?.join(self.list);
        let text = std::fs::read(&list).map_err(Failure::io(format!("read {}", self.list)))?;
        Ok(cache()?.join(format!("{}-{:016x}", self.name, fingerprint(&text))))
    }

    fn fetch(&self, list: &Path, into: &Path) -> Result<(), Failure> {
        let mut command = Command::new("mvn");
        command.args(["--quiet", "--batch-mode", "--strict-checksums", "--file"]).arg(list);
        command.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
        command.arg(format!("-DoutputDirectory={}", into.display()));
        run::step(&format!("fetch {}", self.what), &mut command).map(drop)
    }
}

/// The folder where downloads and builds outlive a clone, the same that `.ci/run` uses.
fn cache() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("atoll")).ok_or_else(|| Failure::Refused {
        problem: "there is no folder for downloads".to_owned(),
        hint: "set XDG_CACHE_HOME or HOME to an absolute path".to_owned(),
    })
}

/// FNV-1a: distinguishes lists. It need not resist an attacker.
fn fingerprint(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_list_is_another_folder() {
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_ne!(fingerprint(b"5.0.5"), fingerprint(b"5.0.6"));
    }
}
