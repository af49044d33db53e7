//! Programs and libraries that the machine must have, and the exact command that installs a missing one.

use crate::failure::Failure;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What each package manager calls a package that Atoll needs.
struct Packages {
    manager: &'static str,
    install: &'static str,
    compiler: &'static str,
    cpp_compiler: &'static str,
    libclang: &'static str,
    key_value_libraries: &'static str,
    key_value_servers: &'static str,
    networks: &'static str,
    python: &'static str,
    java: &'static str,
    maven: &'static str,
}

const MANAGERS: &[Packages] = &[
    Packages {
        manager: "apt-get",
        install: "sudo apt-get install -y",
        compiler: "gcc libc6-dev",
        cpp_compiler: "g++",
        libclang: "libclang-dev clang",
        key_value_libraries: "libkyotocabinet-dev libdb5.3-dev",
        key_value_servers: "redis-server memcached",
        networks: "iproute2 util-linux",
        python: "python3 python3-venv",
        java: "openjdk-17-jdk-headless",
        maven: "maven",
    },
    Packages {
        manager: "dnf",
        install: "sudo dnf install -y",
        compiler: "gcc",
        cpp_compiler: "gcc-c++",
        libclang: "clang-devel",
        key_value_libraries: "kyotocabinet-devel libdb-devel",
        key_value_servers: "redis memcached",
        networks: "iproute util-linux",
        python: "python3.11",
        java: "java-17-openjdk-devel",
        maven: "maven",
    },
    Packages {
        manager: "zypper",
        install: "sudo zypper install -y",
        compiler: "gcc",
        cpp_compiler: "gcc-c++",
        libclang: "clang-devel",
        key_value_libraries: "libkyotocabinet-devel libdb-4_8-devel",
        key_value_servers: "redis memcached",
        networks: "iproute2 util-linux",
        python: "python311",
        java: "java-17-openjdk-devel",
        maven: "maven",
    },
    Packages {
        manager: "pacman",
        install: "sudo pacman -S --noconfirm",
        compiler: "gcc",
        cpp_compiler: "gcc",
        libclang: "clang",
        key_value_libraries: "kyotocabinet db",
        key_value_servers: "redis memcached",
        networks: "iproute2 util-linux",
        python: "python",
        java: "jdk17-openjdk",
        maven: "maven",
    },
    Packages {
        manager: "apk",
        install: "sudo apk add",
        compiler: "build-base",
        cpp_compiler: "build-base",
        libclang: "clang-dev",
        key_value_libraries: "kyotocabinet-dev db-dev",
        key_value_servers: "redis memcached",
        networks: "iproute2 util-linux",
        python: "python3",
        java: "openjdk17",
        maven: "maven",
    },
    Packages {
        manager: "brew",
        install: "brew install",
        compiler: "gcc",
        cpp_compiler: "gcc",
        libclang: "llvm",
        key_value_libraries: "kyoto-cabinet berkeley-db",
        key_value_servers: "redis memcached",
        networks: "util-linux",
        python: "python@3.12",
        java: "openjdk@17",
        maven: "maven",
    },
];

/// Whether `program --version` (or what `argument` says) runs and succeeds.
pub fn runs(program: &str, argument: &str) -> bool {
    let quiet = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// A C compiler: rustc links through it, and crates such as `zstd-sys` compile C. For that it needs the
/// headers of the C library, which some distributions pack by themselves.
pub fn compiler() -> Result<(), Failure> {
    if ["cc", "gcc", "clang"].iter().any(|program| runs(program, "--version")) {
        return Ok(());
    }
    Err(Failure::Missing {
        what: "a C compiler with its headers",
        needed_for: "every Rust build",
        install: install_command(|packages| packages.compiler),
    })
}

/// A C++ compiler, for libFuzzer and RocksDB.
pub fn cpp_compiler(needed_for: &'static str) -> Result<(), Failure> {
    if ["c++", "g++", "clang++"].iter().any(|program| runs(program, "--version")) {
        return Ok(());
    }
    Err(Failure::Missing {
        what: "a C++ compiler",
        needed_for,
        install: install_command(|packages| packages.cpp_compiler),
    })
}

/// libclang, with which bindgen reads C++ headers. Without it a build fails late and at length.
pub fn libclang(needed_for: &'static str) -> Result<(), Failure> {
    let mut folders: Vec<PathBuf> =
        std::env::var_os("LIBCLANG_PATH").map(PathBuf::from).into_iter().collect();
    let found = Command::new("llvm-config").arg("--libdir").stderr(Stdio::null()).output();
    folders.extend(found.ok().map(|output| String::from_utf8_lossy(&output.stdout).trim().into()));
    for folder in ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt/homebrew/opt/llvm/lib"] {
        folders.push(folder.into());
        // `/usr/lib/x86_64-linux-gnu` and `/usr/lib/llvm-19/lib`, depending on the distribution.
        let below = entries(Path::new(folder));
        folders.extend(
            below.iter().filter(|path| path.is_dir()).flat_map(|path| [path.clone(), path.join("lib")]),
        );
    }
    if folders.iter().flat_map(|folder| entries(folder)).any(|path| is_libclang(&path)) {
        return Ok(());
    }
    Err(Failure::Missing {
        what: "libclang",
        needed_for,
        install: install_command(|packages| packages.libclang),
    })
}

/// Kyoto Cabinet and Berkeley DB, which are system libraries.
pub fn key_value_libraries(needed_for: &'static str) -> Result<(), Failure> {
    if includes("#include <kclangc.h>\n#include <db.h>\n") {
        return Ok(());
    }
    Err(Failure::Missing {
        what: "Kyoto Cabinet or Berkeley DB with its header",
        needed_for,
        install: install_command(|packages| packages.key_value_libraries),
    })
}

/// Redis with its own client, and memcached.
pub fn key_value_servers(needed_for: &'static str) -> Result<(), Failure> {
    if ["redis-server", "redis-cli", "memcached"].iter().all(|program| runs(program, "--version")) {
        return Ok(());
    }
    Err(Failure::Missing {
        what: "redis-server, redis-cli or memcached",
        needed_for,
        install: install_command(|packages| packages.key_value_servers),
    })
}

/// The tool that makes network namespaces and links between them.
pub fn networks(needed_for: &'static str) -> Result<(), Failure> {
    let programs = [("ip", "-Version"), ("unshare", "--version"), ("nsenter", "--version")];
    if programs.iter().all(|(program, argument)| runs(program, argument)) {
        return Ok(());
    }
    Err(Failure::Missing {
        what: "ip, unshare or nsenter",
        needed_for,
        install: install_command(|packages| packages.networks),
    })
}

/// Whether the C compiler finds these headers.
fn includes(source: &str) -> bool {
    let mut compiler = Command::new("cc");
    compiler.args(["-E", "-x", "c", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut running) = compiler.spawn() else { return false };
    let is_told = running.stdin.take().is_some_and(|mut input| input.write_all(source.as_bytes()).is_ok());
    running.wait().is_ok_and(|status| is_told && status.success())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// `libclang.so`, `libclang-19.so.1`, `libclang.dylib`; not `libclang-cpp.so`, nor a static library.
fn is_libclang(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(rest) = name.strip_prefix("libclang") else { return false };
    let is_shared = rest.contains(".so") || rest.ends_with(".dylib");
    is_shared && !rest.starts_with("-cpp") && rest.starts_with(['.', '-'])
}

/// The first Python that is new enough and can make environments.
pub fn python() -> Result<String, Failure> {
    let can = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
    let names = ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python"];
    let good = |name: &&str| {
        let mut probe = Command::new(name);
        probe.args(["-c", can]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    names.iter().find(|name| good(name)).map(|name| (*name).to_owned()).ok_or_else(|| Failure::Missing {
        what: "Python 3.11 or newer with its venv module",
        needed_for: "the Python environment in .venv",
        install: install_command(|packages| packages.python),
    })
}

/// Maven, which fetches Cassandra.
pub fn maven() -> Result<(), Failure> {
    if runs("mvn", "--version") {
        return Ok(());
    }
    let install = install_command(|packages| packages.maven);
    Err(Failure::Missing { what: "Maven", needed_for: "fetching Apache Cassandra", install })
}

/// The command that installs Java 17.
pub fn java_install() -> String {
    install_command(|packages| packages.java)
}

fn install_command(package: impl Fn(&Packages) -> &'static str) -> String {
    let here = MANAGERS.iter().find(|packages| runs(packages.manager, "--version"));
    let packages = here.unwrap_or(&MANAGERS[0]);
    format!("{} {}", packages.install, package(packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_is_told_from_what_lies_beside_it() {
        for name in ["libclang.so", "libclang-19.so.1", "libclang.so.19.1", "libclang.dylib"] {
            assert!(is_libclang(Path::new(name)), "{name}");
        }
        for name in ["libclang-cpp.so.19", "libclang.a", "libclangBasic.a", "libclangd.so", "clang"] {
            assert!(!is_libclang(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn headers_are_found_by_the_compiler() {
        assert!(includes("#include <stdio.h>\n"));
        assert!(!includes("#include <no-such-header-of-atoll.h>\n"));
    }

    #[test]
    fn what_is_missing_comes_with_the_command_that_installs_it() {
        let command = install_command(|packages| packages.libclang);
        assert!(
            command.contains("install") || command.contains("add") || command.contains("-S"),
            "{command}"
        );
    }
}
