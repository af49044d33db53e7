"""What is noted of the checkpoints of the ranks of a run, and which of them all ranks have: judged when a start asks.

A note keeps the path that was named, the step that was given last by then, and the attempts that named it, missed it, found it
again, and went on from an earlier one. Which step it is of is told by the patterns that its rank asked with and by the one that is
asked with now. What fits none of these, as "final" or "diag.7", is kept aside, and is no checkpoint where there are others.

Patterns of ranks differ in their numbers, as in `state.{step}.0` and `state.{step}.1`: so files of another rank are known where it
never asked. Where they differ in more than that, nobody knows its files before it has asked.

Invariant: all is judged as it was before the attempt that asks, so it does not matter which rank asks first. Nothing is read or
written here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ._checkpoints import step_of, step_of_other, with_step

#: Which attempt is said to have named what was there before anybody noted.
BEFORE_ALL = -1
#: An attempt that all notes are of earlier ones for.
AFTER_ALL = 1 << 64
#: So many kinds of names are remembered of a rank: one is that of the checkpoints, others are kept aside.
KINDS_MAX = 10

#: A path that a rank named: {"last": STEP, "by": ATTEMPT}, and with an attempt each, "gone", "back" and "replaced"; and "since",
#: where it was noted later than named.
Note = dict[str, Any]
#: What is noted of a rank: {"since": ATTEMPT, "asked": [[PATTERN, ATTEMPT], ...], "named": {PATH: NOTE, ...}}.
Cell = dict[str, Any]


class Named(NamedTuple):
    """A checkpoint of a rank."""

    path: str
    #: The attempt that named it.
    by: int
    #: The attempt that missed it, where it is gone.
    gone: int | None


class Rank(NamedTuple):
    """What earlier attempts left of a rank."""

    #: Its checkpoints by step, but those of a future that was replaced.
    steps: dict[int, Named]
    #: The pattern that it asked with last; none if it never asked.
    pattern: str | None
    #: Whether it named checkpoints of that pattern itself: then it has no others.
    is_own: bool
    #: How many checkpoints it named in each attempt, as far as it remembers.
    counts: Counter[int]


def read(text: str) -> Cell:
    """What is noted of a rank. Earlier builds kept one path a step."""
    cell = json.loads(text)
    if "steps" not in cell:
        return cell
    pattern = cell["pattern"]
    steps = {note["path"] or with_step(pattern or step, int(step)): (step, note) for step, note in cell["steps"].items()}
    named = {
        path: {"last": int(step)} | {name: note[name] for name in ("by", "gone", "back") if name in note}
        for path, (step, note) in steps.items()
    }
    return {"since": cell["since"], "asked": [] if pattern is None else [[pattern, BEFORE_ALL]], "named": named}


def cut(notes: Mapping[str, Note], pattern: str | None, most: int) -> dict[str, Note]:
    """The first one and so many of the newest ones of each kind of names: what is kept aside pushes out no checkpoint.

    The first ones tell that there was something, also where the last steps are deleted.
    """
    kinds: dict[str, list[str]] = {}
    for path in sorted(notes, key=lambda path: notes[path]["last"]):
        kinds.setdefault(re.sub(r"\d+", "0", path), []).append(path)

    def worth(paths: list[str]) -> tuple[bool, bool, bool, int]:
        is_usual = pattern is not None and step_of(pattern, paths[-1]) is not None
        has_step = any(str(notes[path]["last"]) in re.findall(r"\d+", path) for path in paths)
        return is_usual, has_step, len(paths) > 1, notes[paths[-1]]["last"]

    left = sorted(kinds.values(), key=worth, reverse=True)[:KINDS_MAX]
    return {path: notes[path] for paths in left for path in paths[:1] + paths[-most:]}


def ranks_of(cells: Mapping[int, Cell], pattern: str, attempt: int) -> dict[int, Rank]:
    """What attempts before this one left of these ranks, for one of them that asks with a pattern."""
    ranks = {rank: _rank(cell, _usual(cell, pattern, attempt), pattern, attempt) for rank, cell in cells.items()}
    if any(rank.steps for rank in ranks.values()):
        return ranks
    # The pattern may be mistyped: then they are checkpoints of the steps that were given last.
    return {rank: _rank(cell, _lasts(cell, attempt), None, attempt) for rank, cell in cells.items()}


def _patterns(cell: Cell, attempt: int) -> list[str]:
    """What a rank asked with before this attempt, newest last."""
    return [pattern for pattern, by in cell["asked"] if by < attempt]


def _notes(cell: Cell, attempt: int) -> dict[str, Note]:
    """What a rank noted before this attempt."""
    return {path: note for path, note in cell["named"].items() if note.get("since", note["by"]) < attempt}


def _usual(cell: Cell, pattern: str, attempt: int) -> dict[str, int]:
    """The steps of the paths of a rank that are no asides."""

    def step(path: str) -> int | None:
        steps = (step_of(asked, path) for asked in reversed(_patterns(cell, attempt)))
        return next((step for step in steps if step is not None), step_of_other(pattern, path))

    steps = {path: step(path) for path in _notes(cell, attempt)}
    return {path: step for path, step in steps.items() if step is not None}


def _lasts(cell: Cell, attempt: int) -> dict[str, int]:
    """The steps that were given last when a rank named its paths."""
    return {path: note["last"] for path, note in _notes(cell, attempt).items()}


def _rank(cell: Cell, steps: Mapping[str, int], pattern: str | None, attempt: int) -> Rank:
    """A rank with these steps of its paths; `pattern` is the one that is asked with, where these have it."""
    notes, newest = _notes(cell, attempt), _patterns(cell, attempt)[-1:]
    own = [path for path in steps if notes[path]["by"] > BEFORE_ALL]
    # Files of its own have names of their own: under another name there may be one for all.
    is_own = any(pattern is None or _has_any([pattern, *newest], path) for path in own)
    # Of two that are of one step, as on two disks, the newer one.
    there = sorted((notes[path]["by"], path) for path in steps if notes[path].get("replaced", attempt) >= attempt)
    gone = {path: notes[path]["gone"] for path in steps if is_gone(notes[path], attempt)}
    named = {steps[path]: Named(path, by, gone.get(path)) for by, path in there}
    return Rank(named, newest[0] if newest else None, is_own, Counter(notes[path]["by"] for path in own))


def _has_any(patterns: list[str], path: str) -> bool:
    """Whether a path has one of these patterns, but for its numbers."""
    return any(step_of_other(pattern, path) is not None for pattern in patterns)


def is_gone(note: Note, attempt: int) -> bool:
    """Whether earlier attempts than this one missed a checkpoint, and did not find it again since."""
    return note.get("gone", attempt) < attempt <= note.get("back", attempt)


def named_again(ranks: Mapping[int, Rank]) -> dict[int, Rank]:
    """These ranks, without what is gone for one that names none, and was named for it by another one since."""

    def is_back(rank: Rank, step: int, gone: int | None) -> bool:
        since = max(other.steps[step].by for other in ranks.values() if step in other.steps)
        return not rank.is_own and gone is not None and gone < since

    def left(rank: Rank) -> dict[int, Named]:
        return {step: named for step, named in rank.steps.items() if not is_back(rank, step, named.gone)}

    return {number: rank._replace(steps=left(rank)) for number, rank in ranks.items()}


def with_gone(ranks: Collection[Rank]) -> list[Rank]:
    """These ranks, as if what is gone were there."""
    return [rank._replace(steps={step: named._replace(gone=None) for step, named in rank.steps.items()}) for rank in ranks]


def in_common(ranks: Collection[Rank], last_complete: int | None) -> list[int]:
    """The steps up to the last complete one that each of these ranks has a checkpoint of, newest first."""
    steps = {step for rank in ranks for step in rank.steps}
    up_to = [step for step in steps if last_complete is not None and step <= last_complete]
    common = [step for step in up_to if all(_has(rank, step, ranks) for rank in ranks)]
    return sorted((step for step in common if _is_of_one_attempt(step, ranks)), reverse=True)


def _is_of_one_attempt(step: int, ranks: Collection[Rank]) -> bool:
    """Whether what ranks named for a step is one state; two attempts may have computed it, and one of them not on all ranks."""
    return len({rank.steps[step].by for rank in ranks if step in rank.steps} - {BEFORE_ALL}) <= 1


def _has(rank: Rank, step: int, ranks: Collection[Rank]) -> bool:
    if rank.is_own or step in rank.steps:
        return step in rank.steps and rank.steps[step].gone is None
    # A rank that names none may go on from one that another rank names for both; if it never asked, nobody knows its names, and it
    # says itself where it has no such file.
    if rank.pattern is None or _names_none(rank, step, ranks):
        return True
    named = (other.steps[step] for other in ranks if step in other.steps)
    return any(at.gone is None and step_of(rank.pattern, at.path) == step for at in named)


def _names_none(rank: Rank, step: int, ranks: Collection[Rank]) -> bool:
    """Whether another rank named the step and one more in an attempt in which this one named none: it would have named one of them.

    So it goes on from what the other one names, also where the pattern that it asked with was not that of the files.
    """
    named_by = ((other.counts, other.steps[step].by) for other in ranks if step in other.steps)
    return any(by not in rank.counts and counts[by] > 1 for counts, by in named_by)
