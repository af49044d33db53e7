//! What the machine must have, and the exact command that installs what it lacks.

use crate::failure::Failure;
use std::process::{Command, Stdio};

/// How each package manager calls what Atoll needs.
struct Packages {
    manager: &'static str,
    install: &'static str,
    compiler: &'static str,
    cpp_compiler: &'static str,
    python: &'static str,
}

const MANAGERS: &[Packages] = &[
    Packages {
        manager: "apt-get",
        install: "sudo apt-get install -y",
        compiler: "gcc libc6-dev",
        cpp_compiler: "g++",
        python: "python3 python3-venv",
    },
    Packages {
        manager: "dnf",
        install: "sudo dnf install -y",
        compiler: "gcc",
        cpp_compiler: "gcc-c++",
        python: "python3.11",
    },
    Packages {
        manager: "zypper",
        install: "sudo zypper install -y",
        compiler: "gcc",
        cpp_compiler: "gcc-c++",
        python: "python311",
    },
    Packages {
        manager: "pacman",
        install: "sudo pacman -S --noconfirm",
        compiler: "gcc",
        cpp_compiler: "gcc",
        python: "python",
    },
    Packages {
        manager: "apk",
        install: "sudo apk add",
        compiler: "build-base",
        cpp_compiler: "build-base",
        python: "python3",
    },
    Packages {
        manager: "brew",
        install: "brew install",
        compiler: "gcc",
        cpp_compiler: "gcc",
        python: "python@3.12",
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

/// Without a C linker rustc cannot link anything.
pub fn linker() -> Result<(), Failure> {
    if ["cc", "gcc", "clang"].iter().any(|program| runs(program, "--version")) {
        return Ok(());
    }
    Err(Failure::Missing {
        what: "a C linker",
        needed_for: "every Rust build",
        install: install_command(|packages| packages.compiler),
    })
}

/// libFuzzer is C++.
pub fn cpp_compiler() -> Result<(), Failure> {
    if ["c++", "g++", "clang++"].iter().any(|program| runs(program, "--version")) {
        return Ok(());
    }
    Err(Failure::Missing {
        what: "a C++ compiler",
        needed_for: "libFuzzer",
        install: install_command(|packages| packages.cpp_compiler),
    })
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

fn install_command(package: impl Fn(&Packages) -> &'static str) -> String {
    let here = MANAGERS.iter().find(|packages| runs(packages.manager, "--version"));
    let packages = here.unwrap_or(&MANAGERS[0]);
    format!("{} {}", packages.install, package(packages))
}
