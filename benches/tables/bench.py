"""What every phase needs: the rows, the questions, the places of files, and where figures go."""

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
"""The share of the requested minutes that a long measurement must last to count as a figure."""


@dataclass
class Bench:
    """One run of the bench."""

    folder: Path
    counter: Path
    """The program that loads and counts: the bench's Rust half."""
    dataset: Dataset
    truth: Truth
    plan: Plan
    is_quick: bool
    measured: Measured = field(default_factory=Measured)
    is_packed: bool = True
    """Whether tables are packed before they are queried."""
    packed_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes of the objects of each packed table."""
    rounds: int = 5
    """How often every timed step is repeated."""
    minutes: float = 10.0
    """How long a long measurement lasts."""

    commit: str = field(default_factory=commit)
    """The commit of this checkout."""

    url: str | None = None
    """The store of all tables, if it is not a folder."""

    def store(self, table: str) -> Path | str:
        """The store of a table: each table has a folder of its own, so that the folder's size is the table's."""
        return self.url or self.folder / f"atoll-{table}"

    def is_long(self, seconds: float) -> bool:
        """Whether a long measurement lasted as long as requested."""
        return seconds >= _OF_MINUTES * self.minutes * 60.0

    def run_counter(self, *words: object) -> None:
        """Runs the Rust half until it ends."""
        subprocess.run([str(self.counter), *map(str, words)], check=True)

    def begin(self, phase: str) -> None:
        """Starts a phase: figures recorded from here on belong to it."""
        told(phase)
        self.measured.now = Origin(phase, self.commit, self.dataset.rows, self.minutes)

    def leave_out(self, what: str, why: object) -> None:
        """Records for the summary what could not run, and reports it at once."""
        self.measured.left_out.append(f"{what}: {why}")
        told(f"LEFT OUT: {what}: {why}")

    def fail(self, what: str, why: str, keys: Collection[str]) -> None:
        """Records for the summary what did not complete, and reports it at once: these bars fail, and the bench ends as
        failed.
        """
        self.measured.fail(what, why, keys)
        told(f"FAILED: {what}: {why}")


@contextlib.contextmanager
def fresh(folder: Path) -> Iterator[Path]:
    """A folder that is removed before this run and after it, however the run ends."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(text: str) -> None:
    """Prints a line about the progress, separate from the table's own output."""
    print(text, file=sys.stderr, flush=True)


def in_turn(programs: Sequence, turn: int) -> list:
    """All programs, starting with a different one in every round."""
    first = turn % len(programs) if programs else 0
    return [*programs[first:], *programs[:first]]
