"""What every test here gets: the built program, and a store of its own."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

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
