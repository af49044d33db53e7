"""Checkpoints: files that count once they have their name, and which of them a restart may use.

Invariant: a file has its final name only after all of it is on the disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path
from typing import NamedTuple

from .errors import InvalidInputError

#: What a checkpoint is called until it counts.
UNFINISHED = ".unfinished"
#: What is added to the name of a checkpoint whose future was replaced by a restart from an earlier one.
SUPERSEDED = ".superseded"
#: Where the number of the step stands in a pattern.
MARK = "{step}"
#: Stands for any number, and in no path.
NUMBER = "\0"


class Checkpoint(NamedTuple):
    """A checkpoint that counts."""

    step: int
    path: Path


def unfinished(path: str | os.PathLike[str]) -> Path:
    """Where to write what will become `path`; beside it, so that a rename is enough."""
    path = Path(path)
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in made:
        # A folder's name is what its own folder holds.
        _sync(folder.parent)
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


def named(pattern: str | os.PathLike[str], step: int) -> Checkpoint | None:
    """The checkpoint of a step, if it is there."""
    return next((found for found in _found(pattern) if found.step == step), None)


def steps_there(pattern: str | os.PathLike[str]) -> set[int]:
    """The steps of which there are checkpoints."""
    return {found.step for found in _found(pattern)}


def step_of(pattern: str | os.PathLike[str], path: str | os.PathLike[str]) -> int | None:
    """Of which step a path is by its name; none where it does not have the pattern."""
    match = _regex(str(Path(pattern))).fullmatch(str(Path(path)))
    return None if match is None else int(match[1])


def step_of_other(pattern: str | os.PathLike[str], path: str | os.PathLike[str]) -> int | None:
    """Of which step a path is that another rank named, whose pattern differs in its numbers: `state.10.1` by `state.{step}.0`."""
    match = _regex(str(Path(pattern)), are_numbers_free=True).fullmatch(str(Path(path)))
    return None if match is None else int(match[1])


def with_step(pattern: str | os.PathLike[str], step: int) -> str:
    """A path that is of a step by its name."""
    return str(pattern).replace(MARK, str(step))


def set_aside(pattern: str | os.PathLike[str], *, after: int | None) -> None:
    """Renames the checkpoints of steps past `after`, or all of them if it is None."""
    for found in _found(pattern):
        if after is None or found.step > after:
            # Another rank, with the same pattern, may have been faster.
            with contextlib.suppress(FileNotFoundError):
                found.path.replace(found.path.with_name(found.path.name + SUPERSEDED))


def _parts(pattern: str | os.PathLike[str]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """A pattern's folder, the name with the step in it, and what comes behind that."""
    parts = Path(pattern).parts
    place = next((place for place, part in enumerate(parts) if MARK in part), None)
    if place is None:
        raise InvalidInputError(f"{str(pattern)!r} does not say where the step stands; put {MARK} there")
    return parts[:place], parts[place], parts[place + 1 :]


def _found(pattern: str | os.PathLike[str]) -> list[Checkpoint]:
    before, numbered, behind = _parts(pattern)
    name, folder = _regex(numbered), Path(*before)
    files = folder.iterdir() if folder.is_dir() else ()
    named = ((name.fullmatch(file.name), file) for file in files)
    # What stands for a step may be a folder; what counts is in it.
    found = [(match[1], file.joinpath(*_with_step(behind, match[1]))) for match, file in named if match]
    return [Checkpoint(int(step), path) for step, path in found if path.exists()]


def _regex(pattern: str, *, are_numbers_free: bool = False) -> re.Pattern[str]:
    if are_numbers_free:
        # But those that touch the step: nobody could tell where it begins.
        pattern = re.sub(r"(?<![\d}])\d+(?![\d{])", NUMBER, pattern)
    before, *behind = (re.escape(part).replace(NUMBER, r"\d+") for part in pattern.split(MARK))
    return re.compile(before + r"(\d+)" + r"\1".join(behind))


def _with_step(parts: tuple[str, ...], step: str) -> list[str]:
    return [part.replace(MARK, step) for part in parts]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems bring folders to the disk by themselves, and say so.
        if not (path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP)):
            raise
    finally:
        os.close(descriptor)
