//! The Java that Cassandra runs on, and the JDK packages that must be opened to it.

use crate::failure::Failure;
use crate::requirements;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The other version that Cassandra 5.0 supports is 11. The flags in [`DOORS`] are those of this one.
const MAJOR: u32 = 17;

/// Packages of the JDK that Cassandra and its libraries reach into, by module. Each is a flag of its own.
const DOORS: &[(Door, &str, &[&str])] = &[
    (
        Door::Exports,
        "java.base",
        &["java.lang.ref", "jdk.internal.misc", "jdk.internal.ref", "jdk.internal.util", "sun.nio.ch"],
    ),
    (Door::Exports, "java.management.rmi", &["com.sun.jmx.remote.internal.rmi"]),
    (Door::Exports, "java.rmi", &["sun.rmi.registry", "sun.rmi.server"]),
    (Door::Exports, "java.sql", &["java.sql"]),
    (Door::Exports, "jdk.unsupported", &["sun.misc"]),
    (
        Door::Opens,
        "java.base",
        &[
            "java.io",
            "java.lang",
            "java.lang.module",
            "java.lang.reflect",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "jdk.internal.loader",
            "jdk.internal.math",
            "jdk.internal.module",
            "jdk.internal.ref",
            "jdk.internal.reflect",
            "jdk.internal.util.jar",
            "sun.nio.ch",
        ],
    ),
    (Door::Opens, "java.rmi", &["sun.rmi.transport.tcp"]),
    (Door::Opens, "jdk.management", &["com.sun.management.internal"]),
];

/// How far a package is opened to Cassandra.
#[derive(Clone, Copy)]
enum Door {
    /// Its public types may be used.
    Exports,
    /// Everything in it may be reached by reflection.
    Opens,
}

/// The JVM flags that open these packages.
pub fn doors() -> Vec<String> {
    let flag = |door| match door {
        Door::Exports => "--add-exports",
        Door::Opens => "--add-opens",
    };
    let each = DOORS.iter().flat_map(|(door, module, packages)| {
        packages.iter().map(move |package| format!("{}={module}/{package}=ALL-UNNAMED", flag(*door)))
    });
    each.collect()
}

/// The first Java of the right version, looked for in `JAVA_HOME`, on the path, and where distributions
/// install it.
pub fn java() -> Result<PathBuf, Failure> {
    let mut found = Vec::new();
    for candidate in candidates() {
        match version(&candidate) {
            Some(MAJOR) => return Ok(candidate),
            Some(other) => found.push(format!("{} is Java {other}", candidate.display())),
            None => {}
        }
    }
    let (install, needed_for) = (requirements::java_install(), "Apache Cassandra 5.0");
    if found.is_empty() {
        return Err(Failure::Missing { what: "Java 17", needed_for, install });
    }
    Err(Failure::Refused {
        problem: format!("{needed_for} needs Java {MAJOR}, and {}", found.join(", ")),
        hint: format!("install it with: {install}, or set JAVA_HOME to one that is there"),
    })
}

/// The program `name` of the same JDK.
pub fn beside(java: &Path, name: &str) -> PathBuf {
    java.with_file_name(name)
}

fn candidates() -> Vec<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("java"));
    let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains(&MAJOR.to_string()))
        .map(|entry| entry.path().join("bin/java"))
        .collect();
    installed.sort();
    let all = home.into_iter().chain(on_path).chain(installed);
    all.filter(|java| java.is_file()).collect()
}

fn version(java: &Path) -> Option<u32> {
    let output = Command::new(java).arg("-version").stdin(Stdio::null()).output().ok()?;
    major(&String::from_utf8_lossy(&output.stderr))
}

/// The number in `openjdk version "17.0.15"`, or 8 in `java version "1.8.0_392"`.
fn major(said: &str) -> Option<u32> {
    let mut numbers = said.split_once("version \"")?.1.split(|c: char| !c.is_ascii_digit());
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_java_are_read_as_each_age_wrote_them() {
        assert_eq!(major("openjdk version \"17.0.15\" 2025-04-15\n"), Some(17));
        assert_eq!(major("openjdk version \"25\" 2025-09-16\n"), Some(25));
        assert_eq!(major("java version \"1.8.0_392\"\n"), Some(8));
        assert_eq!(major("command not found"), None);
    }

    #[test]
    fn every_package_is_a_flag_of_its_own() {
        let doors = doors();
        assert!(doors.contains(&"--add-exports=java.sql/java.sql=ALL-UNNAMED".to_owned()));
        assert!(doors.contains(&"--add-opens=java.base/sun.nio.ch=ALL-UNNAMED".to_owned()));
        assert_eq!(doors.len(), DOORS.iter().map(|(_, _, packages)| packages.len()).sum::<usize>());
    }
}
