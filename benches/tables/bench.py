"""What every phase gets: the rows, the questions, where things lie, and where figures go."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .asked.plan import Plan
from .asked.truth import Truth
from .data.dataset import Dataset
from .origin import commit
from .report.measured import Measured, Origin

ROWS_TABLE = "rows"
"""Sampled by row."""
PATHS_TABLE = "paths"
"""Sampled by particle."""
_OF_MINUTES = 0.9
"""Share of the minutes asked for that what lasts has to last, to be a figure."""


@dataclass
class Bench:
    """One run of the bench."""

    folder: Path
    counter: Path
    """The program that loads and counts, the Rust half."""
    dataset: Dataset
    truth: Truth
    plan: Plan
    is_quick: bool
    measured: Measured = field(default_factory=Measured)
    is_packed: bool = True
    """Whether tables are packed before they are asked."""
    packed_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes of the objects that each packed table consists of."""
    rounds: int = 5
    """How often everything that is timed is repeated."""
    minutes: float = 10.0
    """How long what is written for long is written."""

    commit: str = field(default_factory=commit)
    """Of this checkout."""

    url: str | None = None
    """The store of all tables, where it is no folder."""

    def store(self, table: str) -> Path | str:
        """The store of a table: a folder each, so that its size is the table's."""
        return self.url or self.folder / f"atoll-{table}"

    def is_long(self, seconds: float) -> bool:
        """Whether what is to last as long as was asked for has done so."""
        return seconds >= _OF_MINUTES * self.minutes * 60.0

    def run_counter(self, *words: object) -> None:
        """Runs the Rust half to its end."""
        subprocess.run([str(self.counter), *map(str, words)], check=True)

    def begin(self, phase: str) -> None:
        """What is recorded from now on is of this phase."""
        told(phase)
        self.measured.now = Origin(phase, self.commit, self.dataset.rows, self.minutes)

    def leave_out(self, what: str, why: object) -> None:
        """Keeps for the end what could not run, and says so now."""
        self.measured.left_out.append(f"{what}: {why}")
        told(f"LEFT OUT: {what}: {why}")

    def fail(self, what: str, why: str, keys: Collection[str]) -> None:
        """Keeps for the end what came to no end, and says so now: these bars do not hold, and the bench does not end well."""
        self.measured.fail(what, why, keys)
        told(f"FAILED: {what}: {why}")


@contextlib.contextmanager
def fresh(folder: Path) -> Iterator[Path]:
    """A folder of which nothing is left of a run before, nor will be of this one, however it ends."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(text: str) -> None:
    """A line about the progress, beside the table's own output."""
    print(text, file=sys.stderr, flush=True)


def in_turn(programs: Sequence, turn: int) -> list:
    """All of them, another one first in every round."""
    first = turn % len(programs) if programs else 0
    return [*programs[first:], *programs[:first]]
