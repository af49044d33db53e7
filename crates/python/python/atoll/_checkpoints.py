"""Checkpoints: files that count once they have their name, and which of them a restart may use.

Invariant: a file has its final name only after all of it is on the disk.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from .errors import InvalidInputError

#: What a checkpoint is called until it counts.
UNFINISHED = ".unfinished"
#: What is added to the name of a checkpoint whose future was replaced by a restart from an earlier one.
SUPERSEDED = ".superseded"


class Checkpoint(NamedTuple):
    """A checkpoint that counts."""

    step: int
    path: Path


def unfinished(path: str | os.PathLike[str]) -> Path:
    """Where to write what will become `path`; beside it, so that a rename is enough."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(path.name + UNFINISHED)


def finish(part: Path, path: str | os.PathLike[str]) -> None:
    """Gives a written file its name, after the disk has it."""
    _sync(part)
    part.replace(path)
    _sync(Path(path).parent)


def newest(pattern: str | os.PathLike[str], up_to: int | None) -> Checkpoint | None:
    """The newest checkpoint that is not past step `up_to`; none if that is None, for then no step is complete."""
    steps = [] if up_to is None else [found for found in _found(pattern) if found.step <= up_to]
    return max(steps, default=None)


def set_aside(pattern: str | os.PathLike[str], *, after: int | None) -> list[Path]:
    """Renames the checkpoints of steps past `after`, or all of them if it is None; answers their new names."""
    late = [found.path for found in _found(pattern) if after is None or found.step > after]
    return [path.replace(path.with_name(path.name + SUPERSEDED)) for path in late]


def _found(pattern: str | os.PathLike[str]) -> list[Checkpoint]:
    path = Path(pattern)
    before, mark, behind = path.name.partition("{step}")
    if not mark:
        raise InvalidInputError(f"{str(pattern)!r} does not say where the step stands; put {{step}} there")
    name = re.compile(re.escape(before) + r"(\d+)" + re.escape(behind))
    files = path.parent.iterdir() if path.parent.is_dir() else ()
    named = ((name.fullmatch(file.name), file) for file in files)
    return [Checkpoint(int(match[1]), file) for match, file in named if match]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
