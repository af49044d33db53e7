"""What every test here gets: the built program, a store of its own, and particles to put into it."""

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
    """Runs the program on a fresh store; refuses to go on after a failure unless told what to expect."""
    program = os.environ["PROGRAM_UNDER_TEST"]
    store = tmp_path / "store"
    # What the person at this machine has set is none of the tests' business.
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
    """JSON Lines, read by Python."""
    return lambda output: [json.loads(line) for line in output.decode().splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> package.Store:
    """An open store in a folder of its own."""
    with package.open(tmp_path / "tables") as opened:
        yield opened


def particles(count: int, seed: int, steps: int = 10) -> dict[str, numpy.ndarray]:
    """Particles of a few kinds over a few steps; the same for the same seed."""
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
    """Another Python process that runs some code with these words."""
    command = [sys.executable, "-c", PREFIX + code, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# Below the ports that the system hands out, also 20,000 above it, and apart from those of other tests.
FIRST_PORT = 12_500 + os.getpid() % 30 * 4


class Ring:
    """A ring of three nodes, each a process that may be killed."""

    def __init__(self, folder: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
        command = [os.environ["PROGRAM_UNDER_TEST"], "--json", "ring", "up", "--store", str(folder)]
        command += ["--port", str(FIRST_PORT)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert self.process.stdout
        self._pids = [node["pid"] for node in json.loads(self.process.stdout.readline())["nodes"]]
        #: Where each node is reached.
        self.nodes = [("127.0.0.1", FIRST_PORT + number) for number in range(3)]
        self.token = (folder / "token").read_text().strip()
        named = ",".join(f"{host}:{port}" for host, port in self.nodes)
        #: What a program opens.
        self.url = f"ring://{named}/?time-out=60s&token-file={folder / 'token'}"

    def copies_in_sync(self) -> int:
        """How many copies the slot has that has fewest; 0 while nobody says so."""
        command = [os.environ["PROGRAM_UNDER_TEST"], "--json", "ring", "status", "--store", self.url]
        told = subprocess.run(command, capture_output=True, check=False, timeout=120).stdout
        return json.loads(told)["copies_in_sync_min"] if told else 0

    def kill(self, at: int) -> None:
        """Ends a node with a signal that it cannot see, as soon as two others have everything."""
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
