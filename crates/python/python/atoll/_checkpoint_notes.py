"""Notes on the checkpoints of the ranks of a run, and which checkpoints all ranks have, judged when a start asks.

A note holds the path that was named, the step that was given last by then, and the attempts that named it, missed it,
found it again, or resumed from an earlier one. The step of a path follows from the patterns that its rank asked with
before and from the one that is asked with now. A path that fits none of these, such as "final" or "diag.7", is kept
aside: it is no checkpoint if there are others.

The patterns of ranks differ in their numbers, as in `state.{step}.0` and `state.{step}.1`, so paths of a rank that
never asked can be recognized by the pattern of another. If they differ in more than that, the paths of a rank are
unknown until it has asked.

Invariant: everything is judged by the notes before the attempt that asks, so it does not matter which rank asks first.
This module reads and writes nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ._checkpoints import step_of, step_of_other, with_step

#: The attempt that counts as the author of checkpoints from before notes were taken.
BEFORE_ALL = -1
#: An attempt later than that of any note.
AFTER_ALL = 1 << 64
#: How many kinds of names are remembered of a rank: one is that of the checkpoints, the others are files kept aside.
KINDS_MAX = 10

#: The note on a path that a rank named: {"last": STEP, "by": ATTEMPT}; "gone", "back" and "replaced", with an attempt
#: each; and "since", the attempt that noted it, if that is a later one than the attempt that named it.
Note = dict[str, Any]
#: The notes of a rank: {"since": ATTEMPT, "asked": [[PATTERN, ATTEMPT], ...], "named": {PATH: NOTE, ...}}.
Cell = dict[str, Any]


class Named(NamedTuple):
    """A checkpoint of a rank."""

    path: str
    #: The attempt that named it.
    by: int
    #: The attempt that missed it, where it is gone.
    gone: int | None


class Rank(NamedTuple):
    """The state of a rank that earlier attempts left."""

    #: Its checkpoints by step, except those of a replaced future.
    steps: dict[int, Named]
    #: The pattern that it last asked with; none if it never asked.
    pattern: str | None
    #: Whether it named checkpoints of that pattern itself: then it has no others.
    is_own: bool
    #: How many checkpoints it named in each attempt, as far as its notes go back.
    counts: Counter[int]


def parse_notes(text: str) -> Cell:
    """Parse the notes of a rank. Earlier builds kept one path for each step."""
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


def newest_of_each_kind(notes: Mapping[str, Note], pattern: str | None, most: int) -> dict[str, Note]:
    """Keep the first and the newest `most` notes of each kind of names: files kept aside displace no checkpoint.

    The first ones record that there was a checkpoint, even if the last steps are deleted.
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
    """Return what attempts before this one left of these ranks, for a rank that asks with a pattern."""
    ranks = {
        rank: _make_rank(cell, _matching_steps(cell, pattern, attempt), pattern, attempt)
        for rank, cell in cells.items()
    }
    if any(rank.steps for rank in ranks.values()):
        return ranks
    # The pattern may be mistyped: take the paths as checkpoints of the steps that were given last.
    return {rank: _make_rank(cell, _last_steps(cell, attempt), None, attempt) for rank, cell in cells.items()}


def _patterns(cell: Cell, attempt: int) -> list[str]:
    """Return the patterns that a rank asked with before this attempt, newest last."""
    return [pattern for pattern, by in cell["asked"] if by < attempt]


def _notes(cell: Cell, attempt: int) -> dict[str, Note]:
    """Return what a rank noted before this attempt."""
    return {path: note for path, note in cell["named"].items() if note.get("since", note["by"]) < attempt}


def _matching_steps(cell: Cell, pattern: str, attempt: int) -> dict[str, int]:
    """Return the steps of the paths of a rank, except of those kept aside."""

    def step(path: str) -> int | None:
        steps = (step_of(asked, path) for asked in reversed(_patterns(cell, attempt)))
        return next((step for step in steps if step is not None), step_of_other(pattern, path))

    steps = {path: step(path) for path in _notes(cell, attempt)}
    return {path: step for path, step in steps.items() if step is not None}


def _last_steps(cell: Cell, attempt: int) -> dict[str, int]:
    """Return, for each path of a rank, the step that was given last when the rank named it."""
    return {path: note["last"] for path, note in _notes(cell, attempt).items()}


def _make_rank(cell: Cell, steps: Mapping[str, int], pattern: str | None, attempt: int) -> Rank:
    """Make a rank from the steps of its paths; `pattern` is the one that is asked with, if the paths have it."""
    notes, newest = _notes(cell, attempt), _patterns(cell, attempt)[-1:]
    own = [path for path in steps if notes[path]["by"] > BEFORE_ALL]
    # A rank with files of its own has names of its own; a checkpoint under another name may be one for all ranks.
    is_own = any(pattern is None or _has_any([pattern, *newest], path) for path in own)
    # Of two paths of one step, as on two disks, the newer one counts.
    there = sorted((notes[path]["by"], path) for path in steps if notes[path].get("replaced", attempt) >= attempt)
    gone = {path: notes[path]["gone"] for path in steps if is_gone(notes[path], attempt)}
    named = {steps[path]: Named(path, by, gone.get(path)) for by, path in there}
    return Rank(named, newest[0] if newest else None, is_own, Counter(notes[path]["by"] for path in own))


def _has_any(patterns: list[str], path: str) -> bool:
    """Whether a path matches one of these patterns, except for its numbers."""
    return any(step_of_other(pattern, path) is not None for pattern in patterns)


def is_gone(note: Note, attempt: int) -> bool:
    """Whether an attempt before this one missed a checkpoint, and none has found it again since."""
    return note.get("gone", attempt) < attempt <= note.get("back", attempt)


def named_again(ranks: Mapping[int, Rank]) -> dict[int, Rank]:
    """Return these ranks; one that names no checkpoints loses those it missed that another rank has named since."""

    def is_back(rank: Rank, step: int, gone: int | None) -> bool:
        since = max(other.steps[step].by for other in ranks.values() if step in other.steps)
        return not rank.is_own and gone is not None and gone < since

    def left(rank: Rank) -> dict[int, Named]:
        return {step: named for step, named in rank.steps.items() if not is_back(rank, step, named.gone)}

    return {number: rank._replace(steps=left(rank)) for number, rank in ranks.items()}


def with_gone(ranks: Collection[Rank]) -> list[Rank]:
    """Return these ranks as if their missing checkpoints were there."""
    return [rank._replace(steps={step: named._replace(gone=None) for step, named in rank.steps.items()}) for rank in ranks]


def in_common(ranks: Collection[Rank], last_complete: int | None) -> list[int]:
    """Return the steps, up to the last complete one, of which all of these ranks have a checkpoint, newest first."""
    steps = {step for rank in ranks for step in rank.steps}
    up_to = [step for step in steps if last_complete is not None and step <= last_complete]
    common = [step for step in up_to if all(_has_checkpoint(rank, step, ranks) for rank in ranks)]
    return sorted((step for step in common if _is_of_one_attempt(step, ranks)), reverse=True)


def _is_of_one_attempt(step: int, ranks: Collection[Rank]) -> bool:
    """Whether the ranks named one state for a step; two attempts may have computed it, one of them not on all ranks."""
    return len({rank.steps[step].by for rank in ranks if step in rank.steps} - {BEFORE_ALL}) <= 1


def _has_checkpoint(rank: Rank, step: int, ranks: Collection[Rank]) -> bool:
    if rank.is_own or step in rank.steps:
        return step in rank.steps and rank.steps[step].gone is None
    # A rank that names no checkpoints may resume from one that another rank names for both. If it never asked, its
    # names are unknown: the rank itself reports then that it has no such file.
    if rank.pattern is None or _names_none(rank, step, ranks):
        return True
    named = (other.steps[step] for other in ranks if step in other.steps)
    return any(at.gone is None and step_of(rank.pattern, at.path) == step for at in named)


def _names_none(rank: Rank, step: int, ranks: Collection[Rank]) -> bool:
    """Whether another rank named the step and one more in an attempt in which this rank named none.

    Had this rank been naming checkpoints, it would have named one of the two. So it resumes from what the other rank
    names, even if the pattern that it asked with does not match those files.
    """
    named_by = ((other.counts, other.steps[step].by) for other in ranks if step in other.steps)
    return any(by not in rank.counts and counts[by] > 1 for counts, by in named_by)
