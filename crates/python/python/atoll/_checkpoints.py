"""Checkpoints: files, or folders of files, that count once they have their final name, and which of them are found.

Invariant: a checkpoint has its final name only after all of it is on disk.
Invariant: unfinished files of a start that was killed are never part of a later checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

from .errors import InvalidInputError

#: What is added to the name of a checkpoint until it counts.
UNFINISHED = ".unfinished"
#: What is added to the name of a checkpoint whose future was replaced by a restart from an earlier one; followed by a
#: number if a folder of that name exists.
SUPERSEDED = ".superseded"
#: What a file system reports when an existing file or folder keeps a rename from replacing it.
IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
#: Where Linux tells one start of one machine from all others.
BOOT = Path("/proc/sys/kernel/random/boot_id")
#: The place of the step in a pattern.
MARK = "{step}"
#: A placeholder for any number, which occurs in no path.
NUMBER = "\0"


class Checkpoint(NamedTuple):
    """A checkpoint that has its final name: what :meth:`Writer.resume` returns."""

    #: The step that it belongs to: the next one is the first to compute.
    step: int
    #: Where it lies, a file or a folder.
    path: Path


def unfinished(path: str | os.PathLike[str], *, is_first: bool = True) -> Path:
    """Return where to write what will become `path`: beside it, so that a rename is enough.

    The first of the ranks that write the checkpoint removes what is there: no rank begins before all have asked.
    """
    path = Path(path)
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in made:
            # The name of a folder is part of its parent.
        _sync(folder.parent)
    part = path.with_name(path.name + UNFINISHED)
    if is_first:
        _remove(part)
    return part


def finish(part: Path, path: str | os.PathLike[str]) -> None:
    """Give a written file or folder its final name, after syncing all of it to disk."""
    _sync_all(part)
    replaced = None
    try:
        part.replace(path)
    except OSError as error:
        if not _is_in_the_way(Path(path), error):
            raise
        # A rename replaces a file, but not a folder that has anything in it.
        replaced = _set_aside(Path(path))
        part.replace(path)
    _sync(Path(path).parent)
    if replaced is not None:
        _remove(replaced)


def machine() -> str:
    """Return what tells this machine from others: each has its own buffers of what is not on disk yet."""
    try:
        return BOOT.read_text()
    except OSError:
        return platform.node()


def sync_own(part: Path) -> None:
    """Sync what this machine has written of a checkpoint that the ranks of several machines write.

    On a shared file system, a sync by another machine does not reach it. What this machine does not see, or sees though
    another has removed it, it has not written.
    """
    with contextlib.suppress(FileNotFoundError):
        _sync_all(part, passed_over=(FileNotFoundError,))


def newest(pattern: str | os.PathLike[str], up_to: int | None) -> Checkpoint | None:
    """Return the newest checkpoint up to step `up_to`; none for None, since no step is complete then."""
    steps = [] if up_to is None else [found for found in _found(pattern) if found.step <= up_to]
    return max(steps, default=None)


def named(pattern: str | os.PathLike[str], step: int) -> Checkpoint | None:
    """Return the checkpoint of a step, if it is there."""
    return next((found for found in _found(pattern) if found.step == step), None)


def steps_there(pattern: str | os.PathLike[str]) -> set[int]:
    """Return the steps that have a checkpoint."""
    return {found.step for found in _found(pattern)}


def step_of(pattern: str | os.PathLike[str], path: str | os.PathLike[str]) -> int | None:
    """Return the step in the name of a path; none if the path does not match the pattern."""
    match = _regex(str(Path(pattern))).fullmatch(str(Path(path)))
    return None if match is None else int(match[1])


def step_of_other(pattern: str | os.PathLike[str], path: str | os.PathLike[str]) -> int | None:
    """Return the step of a path of another rank, whose pattern has other numbers: `state.10.1` for `state.{step}.0`."""
    match = _regex(str(Path(pattern)), are_numbers_free=True).fullmatch(str(Path(path)))
    return None if match is None else int(match[1])


def with_step(pattern: str | os.PathLike[str], step: int) -> str:
    """Return the path of the checkpoint of a step."""
    return str(pattern).replace(MARK, str(step))


def set_aside(pattern: str | os.PathLike[str], *, after: int | None) -> None:
    """Rename the checkpoints of steps past `after`, or all of them for None."""
    for found in _found(pattern):
        if after is None or found.step > after:
            # Another rank with the same pattern may have renamed it first.
            with contextlib.suppress(FileNotFoundError):
                _set_aside(found.path)


def _set_aside(path: Path) -> Path:
    """Rename a checkpoint to the next superseded name that no folder has, and return that name."""
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
    """Whether a rename failed because something exists at `path`: a file would be replaced, a folder is not."""
    return error.errno in IN_THE_WAY and os.path.lexists(path)


def _remove(path: Path) -> None:
    """Remove a file, or a folder with everything in it, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _parts(pattern: str | os.PathLike[str]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Return the folder of a pattern, the name that has the step in it, and the parts that follow."""
    parts = Path(pattern).parts
    place = next((place for place, part in enumerate(parts) if MARK in part), None)
    if place is None:
        raise InvalidInputError(f"{str(pattern)!r} does not mark the place of the step; put {MARK} there")
    return parts[:place], parts[place], parts[place + 1 :]


def _found(pattern: str | os.PathLike[str]) -> list[Checkpoint]:
    before, numbered, behind = _parts(pattern)
    name, folder = _regex(numbered), Path(*before)
    files = folder.iterdir() if folder.is_dir() else ()
    named = ((name.fullmatch(file.name), file) for file in files)
    # The name with the step may be that of a folder that holds the checkpoint.
    found = [(match[1], file.joinpath(*_with_step(behind, match[1]))) for match, file in named if match]
    return [Checkpoint(int(step), path) for step, path in found if path.exists()]


def _regex(pattern: str, *, are_numbers_free: bool = False) -> re.Pattern[str]:
    if are_numbers_free:
        # Except numbers that touch the step: the border between the two would be ambiguous.
        pattern = re.sub(r"(?<![\d}])\d+(?![\d{])", NUMBER, pattern)
    before, *behind = (re.escape(part).replace(NUMBER, r"\d+") for part in pattern.split(MARK))
    return re.compile(before + r"(\d+)" + r"\1".join(behind))


def _with_step(parts: tuple[str, ...], step: str) -> list[str]:
    return [part.replace(MARK, step) for part in parts]


def _sync_all(part: Path, passed_over: tuple[type[OSError], ...] = ()) -> None:
    """Sync a file to disk, or a folder with everything in it, except what has errors that are passed over."""
    if not part.is_dir():
        _sync(part)
        return

    def failed(error: OSError) -> None:
        if not isinstance(error, passed_over):
            raise error

    # The contents of a folder before the folder itself.
    for folder, _, files in os.walk(part, topdown=False, onerror=failed):
        for file in (Path(folder, name) for name in files):
            # A link is only its name, and opening a pipe might block forever.
            with contextlib.suppress(*passed_over):
                if stat.S_ISREG(file.lstat().st_mode):
                    _sync(file)
        with contextlib.suppress(*passed_over):
            _sync(Path(folder))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems sync folders by themselves, and refuse the call.
        if not (path.is_dir() and error.errno in (errno.EINVAL, errno.ENOTSUP)):
            raise
    finally:
        os.close(descriptor)
