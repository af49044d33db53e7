"""Fixtures of all tests here: the built program, an open store, particles to put into it, and a ring of nodes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest

import atoll as package

Atoll = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def atoll(tmp_path: Path) -> Atoll:
    """Runs the program on a fresh store; fails on an unexpected exit code, unless another one is expected."""
    program = os.environ["PROGRAM_UNDER_TEST"]
    store = tmp_path / "store"
    # The settings of the person at this machine must not affect the tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
    environment["XDG_CONFIG_HOME"] = str(tmp_path)

    def run(*words: str, stdin: bytes = b"", expect: int = 0) -> subprocess.CompletedProcess:
        command = [program, *words, "--store", str(store)]
        ended = subprocess.run(
            command, input=stdin, capture_output=True, timeout=60, check=False, env=environment, cwd=tmp_path
        )
        assert ended.returncode == expect, f"{words}: {ended.returncode}\n{ended.stderr.decode()}"
        return ended

    return run


@pytest.fixture
def read_lines() -> Callable[[bytes], list]:
    """Parse JSON Lines."""
    return lambda output: [json.loads(line) for line in output.decode().splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> package.Store:
    """An open store in a folder of its own."""
    with package.open(tmp_path / "tables") as opened:
        yield opened


def particles(count: int, seed: int, steps: int = 10) -> dict[str, numpy.ndarray]:
    """Make particles of a few kinds over a few steps; the same for the same seed."""
    random = numpy.random.default_rng(seed)
    return {
        "pid": numpy.arange(count, dtype="int64") // steps,
        "step": numpy.arange(count, dtype="int64") % steps,
        "x": random.uniform(size=count),
        "pos": random.normal(size=(count, 3)).astype("float32"),
        "type": random.integers(1, 4, size=count).astype("int32"),
    }


@pytest.fixture
def table(store: package.Store) -> package.Table:
    """5,000 particles."""
    made = particles(5_000, seed=1)
    opened = store.create_table("run", made, id=("pid", "step"), sample_key="pid", index=("x", "step"))
    opened.append(made)
    return opened


PREFIX = "import os, sys, time, atoll\n"


def child(code: str, *words: object) -> subprocess.Popen:
    """Start another Python process that runs the code with these words as arguments."""
    command = [sys.executable, "-c", PREFIX + code, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# Below the ephemeral ports of the system, also with 20,000 added, and apart from the ports of other tests.
FIRST_PORT = 12_500 + os.getpid() % 30 * 4


class Ring:
    """A ring of three nodes, each a process that tests may kill."""

    def __init__(self, folder: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
        command = [os.environ["PROGRAM_UNDER_TEST"], "--json", "ring", "up", "--store", str(folder)]
        command += ["--port", str(FIRST_PORT)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert self.process.stdout
        self._pids = [node["pid"] for node in json.loads(self.process.stdout.readline())["nodes"]]
        #: The address of each node.
        self.nodes = [("127.0.0.1", FIRST_PORT + number) for number in range(3)]
        self.token = (folder / "token").read_text().strip()
        named = ",".join(f"{host}:{port}" for host, port in self.nodes)
        #: The URL with which a program opens the ring.
        self.url = f"ring://{named}/?time-out=60s&token-file={folder / 'token'}"

    def copies_in_sync(self) -> int:
        """Return the number of copies of the slot that has fewest; 0 while no node reports any."""
        command = [os.environ["PROGRAM_UNDER_TEST"], "--json", "ring", "status", "--store", self.url]
        told = subprocess.run(command, capture_output=True, check=False, timeout=120).stdout
        return json.loads(told)["copies_in_sync_min"] if told else 0

    def kill(self, at: int) -> None:
        """Kill a node, without warning, as soon as the two others have everything."""
        until = time.monotonic() + 60
        while self.copies_in_sync() < len(self.nodes):
            assert time.monotonic() < until, "copies are missing, though nothing was killed"
        os.kill(self._pids[at], signal.SIGKILL)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    """A ring that serves."""
    ring = Ring(tmp_path / "ring")
    yield ring
    ring.process.terminate()
    assert ring.process.wait(30) == 0
