"""Where the rows of a run come from: what a writer notes with the run.

Every attempt adds attributes of its own, whose names begin with `attempt.N.`, since a restart may run elsewhere, with
other versions. The deck, and the attributes of the user, hold for the whole run. Only the last attempts are kept: all
attributes of a run are one value, which each start reads and writes.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ._convert import check_text
from .errors import InvalidInputError

#: A longer deck is cut: whenever a run is looked at, all of its attributes are read.
DECK_CHARACTERS_MAX = 100_000
#: A longer command is cut: the attributes of a run share one limit, and beyond it no restart could note itself.
COMMAND_CHARACTERS_MAX = 4_000
#: How many attempts of a run are remembered.
ATTEMPTS_MAX = 20
#: A single word with folders or a file extension, which is never a deck.
_PATH_ALONE = re.compile(r"[\w.~+@%-]*(?:/[\w.~+@%-]+)+|[\w~+@%-]+(?:\.\w+)*\.[A-Za-z]\w*")
#: The prefix of the names of an attempt's attributes.
OF_ATTEMPT = re.compile(r"attempt\.(\d+)\.")
#: The name of the attribute that has the command of an attempt.
_COMMAND = re.compile(r"attempt\.\d+\.command")


def of_run(deck: str | os.PathLike[str] | None, attributes: Mapping[str, Any]) -> dict[str, str | float]:
    """Return the attributes of a run."""
    if not isinstance(attributes, Mapping):
        raise InvalidInputError.hinted(
            f"attributes are values by name, not a {type(attributes).__name__}", 'write attributes={"temperature": 300}'
        )
    about = {str(name): _attribute_value(value) for name, value in attributes.items()}
    if deck is not None:
        about["deck"] = _deck_text(deck)[:DECK_CHARACTERS_MAX]
    # Checked before an attempt begins: one that cannot be noted would end the attempt before it for nothing.
    for name, value in about.items():
        check_text(name, "the name of an attribute")
        if isinstance(value, str):
            check_text(value, f'attribute "{name}"')
    return about


def of_attempt(attempt: int) -> dict[str, str | float]:
    """Return the attributes of an attempt."""
    about = {
        "command": _cut(_escaped(shlex.join(sys.orig_argv))),
        "host": platform.node(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(_versions().items())),
    }
    return {f"attempt.{attempt}.{name}": _escaped(text) for name, text in about.items()}


def with_attempt(about: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """Return the attributes of a run with those of an attempt added, and those of old attempts left out."""
    # Earlier builds kept commands of any length, and those of several attempts may have filled the room by now.
    shorter = {name: _cut(value) for name, value in about.items() if _COMMAND.fullmatch(name) and isinstance(value, str)}
    joined = {**about, **shorter, **of_attempt(attempt)}
    numbers = {name: int(match[1]) for name in joined if (match := OF_ATTEMPT.match(name))}
    last = {attempt, *sorted(set(numbers.values()))[-ATTEMPTS_MAX:]}
    return {name: value for name, value in joined.items() if name not in numbers or numbers[name] in last}


def _attribute_value(value: Any) -> str | float:
    """Keep numbers and truth values as they are, so that runs can be selected by them; make anything else a text."""
    if getattr(value, "shape", None) == ():
        # A NumPy scalar is a number.
        value = value.item()
    is_integer = isinstance(value, int) and -(2**63) <= value < 2**64
    is_finite = isinstance(value, float) and math.isfinite(value)
    return value if isinstance(value, str) or is_integer or is_finite else str(value)


def _escaped(text: str) -> str:
    """Escape bytes that are not UTF-8, as in the name of a file: an attribute is a text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _cut(command: str) -> str:
    """Cut a long command, and say so."""
    if len(command) <= COMMAND_CHARACTERS_MAX:
        return command
    mark = f" ... (cut: the command has {len(command):,} characters)"
    return command[: COMMAND_CHARACTERS_MAX - len(mark)] + mark


def _deck_text(deck: str | os.PathLike[str]) -> str:
    """Read the file at a path. A text that names no file is the deck itself, unless it can only be a path."""
    place = os.path.expanduser(deck)
    # `os.path.isfile` is false for a text that is too long for a path, where `Path` would raise.
    if isinstance(deck, str) and not os.path.isfile(place):  # noqa: PTH113
        if not _PATH_ALONE.fullmatch(deck):
            return deck
        raise FileNotFoundError(errno.ENOENT, "no such deck file (the text of a deck has more than one word)", deck)
    return Path(place).read_text(encoding="utf-8", errors="replace")


def _versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that this process has imported, as they report them.

    Listing installed packages would read a file of each one, on some clusters from a slow file system.
    """
    found = {"python": platform.python_version()}
    for name, module in list(sys.modules.items()):
        if "." in name or name in sys.stdlib_module_names:
            continue
        # A module that loads itself at the first access may fail in any way.
        with contextlib.suppress(Exception):
            version = getattr(module, "__version__", None)
            if isinstance(version, str | int):
                found[name] = str(version)
    return found
