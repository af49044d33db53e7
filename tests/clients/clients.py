"""The clients under test: what each one needs, how it is built, and how it is called.

A client is a program in a folder of its own, with the usual files of its language that list its dependencies.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The checks that every client makes: before nodes join and leave, meanwhile, and afterwards.
CHECKS = (
    "set-and-get",
    "set-options",
    "exists-and-del",
    "numbers",
    "expiry",
    "hashes",
    "several-keys",
    "scan",
    "pipelines",
    "moved",
    "wrong-type",
    "syntax-errors",
    "large-values",
    "empty-and-binary",
    "wrong-token",
    "both-protocols",
)

# Names of Debian's packages; other systems have similar ones.
PACKAGES = {
    "go": "golang-go",
    "node": "nodejs",
    "npm": "npm",
    "mvn": "maven",
    "javac": "default-jdk-headless",
    "java": "default-jdk-headless",
    "redis-cli": "redis-tools",
    "redis-benchmark": "redis-tools",
}
OTHER_INSTALLS = {
    "cargo": "https://rustup.rs",
    "redis": "cargo xtask clients, which makes .venv with redis-py in it",
}


@dataclass(frozen=True)
class Client:
    """How one client is built and called; `{built}` stands for the folder of the build."""

    name: str
    needs: tuple[str, ...]
    call: tuple[str, ...]
    build: tuple[tuple[str, ...], ...] = ()
    checks: tuple[str, ...] = CHECKS
    # Whether the program checks its own writes; without that it cannot tell what was lost.
    looks_up: bool = True
    modules: tuple[str, ...] = ()

    # The name of the program's folder, if it differs from the client's.
    folder: str = ""

    @property
    def place(self) -> Path:
        return HERE / (self.folder or self.name)

    def missing(self) -> list[str]:
        """What this machine lacks for the client, each with the command that installs it."""
        programs = [program for program in self.needs if not shutil.which(program)]
        modules = [module for module in self.modules if not has_module(module)]
        return [f"{name} is missing; install it with: {install(name)}" for name in programs + modules]

    def built_in(self, built: Path) -> Path:
        return built / (self.folder or self.name)

    def command(self, built: Path) -> list[str]:
        return [word.format(built=self.built_in(built), python=sys.executable) for word in self.call]

    def make(self, built: Path, log: Path) -> bool:
        """Builds the client; the output goes to the log."""
        folder = self.built_in(built)
        folder.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            for step in self.build:
                words = [word.format(built=folder) for word in step]
                ended = subprocess.run(words, cwd=self.place, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
                if ended.returncode != 0:
                    return False
        return True


def install(name: str) -> str:
    return OTHER_INSTALLS.get(name) or f"sudo apt-get install -y {PACKAGES[name]}"


def has_module(name: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True).returncode == 0


def of_java(name: str, program: str) -> Client:
    return Client(
        name,
        folder="java",
        needs=("mvn", "java", "javac"),
        build=(("mvn", "--batch-mode", "--quiet", "-DbuildFolder={built}", "compile"),),
        call=("java", "-cp", "{built}/classes:{built}/dependency/*", program),
    )


CLIENTS = (
    Client("redis-py", needs=(), modules=("redis",), call=("{python}", "conformance.py")),
    Client(
        "go-redis",
        needs=("go",),
        build=(("go", "build", "-mod=readonly", "-o", "{built}/conformance", "."),),
        call=("{built}/conformance",),
    ),
    Client(
        "ioredis",
        needs=("node", "npm"),
        build=(("npm", "ci", "--no-audit", "--no-fund"),),
        call=("node", "conformance.js"),
    ),
    of_java("jedis", "JedisTrial"),
    of_java("lettuce", "LettuceTrial"),
    Client(
        "redis-rs",
        needs=("cargo",),
        build=(("cargo", "build", "--locked", "--target-dir", "{built}"),),
        call=("{built}/debug/conformance-redis-rs",),
    ),
    Client("redis-cli", needs=("redis-cli",), call=("{python}", "conformance.py")),
    Client(
        "redis-benchmark",
        needs=("redis-benchmark",),
        call=("{python}", "conformance.py"),
        checks=("set-and-get", "pipelines", "both-protocols"),
        looks_up=False,
    ),
)
