"""Checkpoints: files, or folders of files, that count once they have their name, and which of them a restart may use.

Invariant: a checkpoint has its final name only after all of it is on the disk.
Invariant: what a start that was killed left unfinished is no part of a later checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from pathlib import Path
from typing import NamedTuple, NoReturn

from .errors import InvalidInputError

#: What a checkpoint is called until it counts.
UNFINISHED = ".unfinished"
#: What is added to the name of a checkpoint whose future was replaced by a restart from an earlier one; and a number, where a
#: folder that is called so is there already.
SUPERSEDED = ".superseded"
#: What a file system says where something of this name is in the way of a folder, or a folder in the way of a file.
IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
#: Where the number of the step stands in a pattern.
MARK = "{step}"
#: Stands for any number, and in no path.
NUMBER = "\0"


class Checkpoint(NamedTuple):
    """A checkpoint that counts."""

    step: int
    path: Path


def unfinished(path: str | os.PathLike[str], *, is_first: bool = True) -> Path:
    """Where to write what will become `path`; beside it, so that a rename is enough.

    Nothing is there any more where this is the first of the ranks that write it: none begins before all have asked.
    """
    path = Path(path)
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in made:
        # A folder's name is what its own folder holds.
        _sync(folder.parent)
    part = path.with_name(path.name + UNFINISHED)
    if is_first:
        _remove(part)
    return part


def finish(part: Path, path: str | os.PathLike[str]) -> None:
    """Gives a written file or folder its name, after the disk has all of it."""
    _sync_all(part)
    replaced = None
    try:
        part.replace(path)
    except OSError as error:
        if not _is_in_the_way(Path(path), error):
            raise
        # One folder cannot take the place of another in one step, as a file does.
        replaced = _set_aside(Path(path))
        part.replace(path)
    _sync(Path(path).parent)
    if replaced is not None:
        _remove(replaced)


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
                _set_aside(found.path)


def _set_aside(path: Path) -> Path:
    """Takes its name away from a checkpoint, and says which it has now: the next one that no folder has."""
    aside, number = path.with_name(path.name + SUPERSEDED), 0
    while True:
        try:
            return path.replace(aside)
        except OSError as error:
            if not _is_in_the_way(aside, error):
                raise
        number += 1
        aside = path.with_name(f"{path.name}{SUPERSEDED}.{number}")


def _is_in_the_way(path: Path, error: OSError) -> bool:
    """Whether a rename failed since something of that name is there, which a file replaces and a folder does not."""
    return error.errno in IN_THE_WAY and os.path.lexists(path)


def _remove(path: Path) -> None:
    """Takes away a file, or a folder with all that is in it; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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


def _sync_all(part: Path) -> None:
    """Brings a file to the disk, or a folder with all that is in it."""
    if not part.is_dir():
        _sync(part)
        return
    # What a folder holds comes before it.
    for folder, _, files in os.walk(part, topdown=False, onerror=_raise):
        for file in (Path(folder, name) for name in files):
            # A link has nothing but its name, and a pipe might be waited for for ever.
            if stat.S_ISREG(file.lstat().st_mode):
                _sync(file)
        _sync(Path(folder))


def _raise(error: OSError) -> NoReturn:
    raise error


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
