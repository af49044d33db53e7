"""Which checkpoint a start goes on from: the newest one that all ranks have, and not the beginning where there was one.

What was named is noted in the table, after that, so that a start that finds nothing knows whether there was something: it
begins where nothing was ever named, and fails otherwise, for the disk may be another one, or the name mistyped. Who is alone, one
process or the first rank of a communicator, takes what has its name, noted or not: no other rank has to have it too. So a file that
was named, and not noted as the job was killed between the two, counts; only where it was the first one of its run, and is not there
at the next start, nobody knows of it. Who names none through the writer is asked nothing: nothing is noted.

Ranks without a communicator have files of their own. A crash may come when some of them have named their checkpoint of a step and
others have not. So a later attempt goes on from the newest one that all have noted. When a rank names the checkpoint of a step, all
have named the one before it, since they have given the steps behind that: two are enough.

Such a rank says that it notes before it has a checkpoint: one that was named and not noted, as where the job was killed between the
two, is nobody's, the first one too.

A rank that does not find the checkpoint to go on from fails. Where it has an earlier one that all have, it notes what is gone,
and the next attempt goes on from that. Where it has none, nothing is noted, and nobody begins over what the table has before
somebody deletes that.

Invariant: ranks of one attempt that ask, in whatever order, are answered alike: only what earlier attempts noted counts, of
what is there, what is gone and what files are called, and what a rank forgets while others still ask, none could have chosen.
Earlier attempts note nothing any more once one of them has asked: the store refuses them, however late they are.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ._checkpoints import Checkpoint, named, newest, set_aside, step_of, steps_there
from .errors import ConflictError

if TYPE_CHECKING:
    from ._table import Table

#: So many checkpoints of a rank are remembered: two are needed, and more where somebody removes the newest ones. They stay in
#: the table as long as the run, and every start reads those of all ranks. Of those before, only which was the first.
NOTED_MAX = 50
#: Which attempt is said to have noted what was there before anybody noted.
BEFORE_ALL = -1


class Agreement:
    """What one rank of a run notes of its checkpoints, and reads of those of the others."""

    def __init__(self, table: Table, run: str, attempt: int, rank: int, size: int) -> None:
        self._native, self._run, self._attempt, self._rank, self._size = table._native, run, attempt, rank, size
        self._pattern: str | None = None
        # What is noted of this rank. Nobody else writes it, so it is read once: each checkpoint would read those of all ranks.
        self._cell: dict[str, Any] = {"since": attempt, "pattern": None, "is_own": False, "steps": {}, "first": None}
        self._is_read = False

    def begin(self, last_complete: int | None) -> None:
        """Says that this rank notes its checkpoints, before there is one: a later attempt then knows that it has none."""
        # Where steps are complete already, there may be checkpoints of ranks that did not note theirs.
        if self._rank not in self._noted() and last_complete is None:
            self._keep()

    def note(self, path: str | os.PathLike[str], last: int | None) -> None:
        """Notes a checkpoint that has its name now; `last` is the step that was given last."""
        # As a whole: ranks may have working folders of their own.
        path = os.path.abspath(path)
        step = None if self._pattern is None else step_of(self._pattern, path)
        # What is kept beside the checkpoints that resume asks for is none of them, but where there are no others.
        is_aside = self._pattern is not None and step is None
        step = last if step is None else step
        if step is None:
            return
        if self._size > 1 and last is None:
            # No step of this attempt was given, so others may still ask for what earlier ones noted. And it is the state that
            # this attempt began with: that is noted already, by the attempt that computed it, or it is the beginning.
            return
        if not self._is_read:
            self._noted()
        # All ranks of this attempt have asked, for the steps before this are complete: what is of a future that it replaced can go.
        steps = {
            text: note
            for text, note in self._cell["steps"].items()
            if not _is_gone(note, self._attempt + 1) and (int(text) <= step or note["by"] == self._attempt)
        }
        steps |= {str(step): {"path": path, "by": self._attempt} | ({"is_aside": True} if is_aside else {})}
        newest_first = sorted(steps, key=int, reverse=True)[:NOTED_MAX]
        firsts = _firsts(self._cell) + [{"step": int(text), "by": note["by"]} for text, note in steps.items()]
        first = min(firsts, key=lambda first: first["step"])
        self._keep(is_own=True, first=first, steps={step: steps[step] for step in newest_first})

    def resume(self, pattern: str | os.PathLike[str], last_complete: int | None) -> Checkpoint | None:
        """The checkpoint to go on from; later ones of this rank are set aside."""
        self._pattern = os.path.abspath(pattern)
        noted = self._noted()
        cells = [cell for rank, cell in noted.items() if rank < self._size and cell["since"] < self._attempt]
        if self._size == 1:
            chosen = self._alone(pattern, last_complete)
        elif cells:
            chosen = self._agreed(pattern, _named_again([_before(cell, self._attempt) for cell in cells]), last_complete)
        else:
            # It is the first start, or what is there is of ranks that did not note theirs.
            chosen = newest(pattern, last_complete)
        set_aside(pattern, after=None if chosen is None else chosen.step)
        if self._size > 1 or self._cell["steps"]:
            self._choose(chosen)
        return chosen

    def _choose(self, chosen: Checkpoint | None) -> None:
        """Notes what this rank goes on from; what it named of later steps is of a future that is replaced."""
        after = None if chosen is None else chosen.step
        # What is gone stays noted until all ranks of this attempt have asked: then they give steps.
        left = {
            step: note
            for step, note in self._cell["steps"].items()
            if _is_gone(note, self._attempt + 1) or (after is not None and int(step) <= after)
        }
        if chosen is not None and (str(chosen.step) not in left or _is_gone(left[str(chosen.step)], self._attempt + 1)):
            left[str(chosen.step)] = {"path": os.path.abspath(chosen.path), "by": BEFORE_ALL}
        self._keep(**self._asked(), steps=left, first=None if after is None else self._cell.get("first"))

    def _asked(self) -> dict[str, Any]:
        """How the files of this rank are called from now on, and how they were, and how many, before this attempt asked."""
        cell, pattern = self._cell, self._pattern
        is_first = cell.get("asked") != self._attempt
        was = {"pattern": cell["pattern"], "is_own": cell["is_own"], "counts": _counts(cell, self._attempt)}
        before = was if is_first else cell["before"]
        # Files of its own have names of their own: under another name there may be one for all.
        is_own = cell["is_own"] and cell["pattern"] in (None, pattern)
        return {"asked": self._attempt, "before": before, "pattern": pattern, "is_own": is_own}

    def _alone(self, pattern: str | os.PathLike[str], last_complete: int | None) -> Checkpoint | None:
        """The newest one that is there, unless a newer one was named; none where none was."""
        if last_complete is None:
            return None
        found = newest(pattern, last_complete)
        there = {step: note for step, note in self._cell["steps"].items() if not _is_gone(note, self._attempt + 1)}
        usual = [int(step) for step, note in there.items() if "is_aside" not in note] or [int(step) for step in there]
        last = max((step for step in usual if step <= last_complete), default=None)
        if last is not None and (found is None or found.step < last):
            self._refuse(pattern, last, is_earlier_there=found is not None)
        forgotten = _forgotten([self._cell | {"steps": {}}], last_complete)
        if found is None and forgotten is not None:
            self._refuse(pattern, forgotten, is_earlier_there=False)
        return found

    def _agreed(
        self, pattern: str | os.PathLike[str], cells: list[dict[str, Any]], last_complete: int | None
    ) -> Checkpoint | None:
        """The newest one that all ranks have; none if there is none."""
        common = _common(cells, last_complete)
        if common:
            step, *earlier = common
            found = named(pattern, step)
            if found is None:
                self._refuse(pattern, step, is_earlier_there=not steps_there(pattern).isdisjoint(earlier))
            return found
        before = [cell | {"steps": {step: cell["paths"][step] or "" for step in cell["steps"]}} for cell in cells]
        gone = _common(before, last_complete)
        if gone:
            self._note_found(pattern)
        missed = gone[0] if gone else _forgotten(cells, last_complete)
        if missed is not None:
            self._refuse(pattern, missed, is_earlier_there=False)
        return None

    def _refuse(self, pattern: str | os.PathLike[str], step: int, *, is_earlier_there: bool) -> NoReturn:
        """Says that the checkpoint of `step` is not found, and what would be right."""
        if self._size == 1:
            problem = f"run {self._run!r} goes on from step {step}, and there is no checkpoint of it at {str(pattern)!r}"
            those, each = "that is there", ""
        else:
            who = f"rank {self._rank} has" if named(pattern, step) is None else f"others than rank {self._rank} have"
            problem = f"the ranks of run {self._run!r} go on from step {step}, and {who} no checkpoint of it at {str(pattern)!r}"
            those, each = "that all ranks have", " of each rank"
        path = self._cell["steps"].get(str(step), {}).get("path")
        problem += "" if path is None else f"; it named one {path!r}"
        if not is_earlier_there:
            raise ConflictError.hinted(
                problem,
                "mount the disk that it is on, bring it back, or mend the pattern; to begin again, delete the steps of the run, "
                f"as with table.delete(run={self._run!r})",
            )
        self._miss(pattern, step)
        raise ConflictError.hinted(
            problem,
            f"mount the disk that it is on, or bring it back; or start again: the next start goes on from an earlier one {those}; "
            f"and keep the newest two checkpoints{each}",
        )

    def _miss(self, pattern: str | os.PathLike[str], step: int) -> None:
        """Notes which checkpoints of this rank are gone, that of `step` among them."""
        there, own = steps_there(pattern), self._cell["steps"]
        steps = {text: note for text, note in own.items() if int(text) not in there}
        steps[str(step)] = own.get(str(step), {"path": None, "by": self._attempt})
        # One that is gone for the second time is gone from now on.
        again = {text: {name: noted for name, noted in note.items() if name != "back"} for text, note in steps.items()}
        gone = {
            text: note | {"gone": self._attempt if "back" in steps[text] else note.get("gone", self._attempt)}
            for text, note in again.items()
        }
        self._keep(steps=own | gone)

    def _note_found(self, pattern: str | os.PathLike[str]) -> None:
        """Notes what is there again of what was gone. At once, where no rank goes on: each lacks what another one has."""
        there, own = steps_there(pattern), self._cell["steps"]
        # For the next attempt: other ranks of this one may have been answered without it.
        back = {
            step: note | {"back": self._attempt}
            for step, note in own.items()
            if _is_gone(note, self._attempt + 1) and int(step) in there
        }
        if back:
            self._keep(steps=own | back)

    def _noted(self) -> dict[int, dict[str, Any]]:
        """What is noted of all ranks."""
        cells = {rank: json.loads(text) for rank, text in self._native.rank_notes(self._run, self._attempt).items()}
        # A copy of an older version of the table has the notes of now, and its attempts go on from those of then.
        noted = {rank: cell for rank, cell in cells.items() if cell["since"] <= self._attempt}
        self._cell, self._is_read = noted.get(self._rank, self._cell), True
        return noted

    def _keep(self, **changed: Any) -> None:
        cell = self._cell | changed
        self._native.set_rank_notes(json.dumps(cell), self._run, self._attempt, self._rank)
        self._cell = cell


def _before(cell: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """What earlier attempts noted of a rank: its paths by step, None where it is gone, and how each was called."""
    notes = {step: note for step, note in cell["steps"].items() if note["by"] < attempt}
    gone = {step: note["gone"] for step, note in notes.items() if _is_gone(note, attempt)}
    paths = {step: note["path"] for step, note in notes.items()}
    there = {step: None if step in gone else path for step, path in paths.items()}
    by = {step: note["by"] for step, note in notes.items()}
    # Ranks of this attempt may have said already how their files are called from now on.
    was = {"counts": _counts(cell, attempt), **(cell["before"] if cell.get("asked") == attempt else {})}
    first = next((first for first in _firsts(cell) if first["by"] < attempt), None)
    return {**cell, **was, "first": first, "steps": there, "paths": paths, "gone": gone, "by": by}


def _is_gone(note: Mapping[str, Any], attempt: int) -> bool:
    """Whether earlier attempts than this one missed a checkpoint, and did not find it again since."""
    return note.get("gone", attempt) < attempt <= note.get("back", attempt)


def _named_again(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These ranks, without what is gone for one that names none, and was named for it by another one since."""

    def is_back(cell: Mapping[str, Any], step: str) -> bool:
        since = max(other["by"].get(step, BEFORE_ALL) for other in cells)
        return not cell["is_own"] and step in cell["gone"] and cell["gone"][step] < since

    def left(cell: Mapping[str, Any], of: Mapping[str, Any]) -> dict[str, Any]:
        return {step: noted for step, noted in of.items() if not is_back(cell, step)}

    return [cell | {"steps": left(cell, cell["steps"]), "by": left(cell, cell["by"])} for cell in cells]


def _counts(cell: Mapping[str, Any], attempt: int) -> dict[str, int]:
    """How many checkpoints a rank named in each attempt before this one, as far as it remembers."""
    return dict(Counter(str(note["by"]) for note in cell["steps"].values() if BEFORE_ALL < note["by"] < attempt))


def _common(cells: list[dict[str, Any]], last_complete: int | None) -> list[int]:
    """The steps up to the last complete one that each of these ranks has a checkpoint of, newest first."""
    steps = {int(step) for cell in cells for step in cell["steps"]}
    up_to = [step for step in steps if last_complete is not None and step <= last_complete]
    common = [step for step in up_to if all(_has(cell, step, cells) for cell in cells)]
    return sorted((step for step in common if _is_of_one_attempt(step, cells)), reverse=True)


def _forgotten(cells: list[dict[str, Any]], last_complete: int | None) -> int | None:
    """The first of the steps up to the last complete one that a rank has named, where it remembers none of these."""
    if last_complete is None:
        return None
    forgetful = [cell for cell in cells if all(int(step) > last_complete for step in cell["steps"])]
    firsts = (first["step"] for cell in forgetful for first in _firsts(cell))
    return min((first for first in firsts if first <= last_complete), default=None)


def _firsts(cell: Mapping[str, Any]) -> list[dict[str, int]]:
    """The first step of which a rank named a checkpoint, which it remembers also where that is long gone; none without one."""
    first = cell.get("first")
    return [] if first is None else [first]


def _is_of_one_attempt(step: int, cells: list[dict[str, Any]]) -> bool:
    """Whether what ranks named for a step is one state; two attempts may have computed it, and one of them not on all ranks."""
    return len({cell["by"].get(str(step), BEFORE_ALL) for cell in cells} - {BEFORE_ALL}) <= 1


def _has(cell: Mapping[str, Any], step: int, cells: list[dict[str, Any]]) -> bool:
    if cell["is_own"] or str(step) in cell["steps"]:
        return cell["steps"].get(str(step)) is not None
    # A rank that names none may go on from one that another rank names for both; if it never asked, nobody knows its names, and it
    # says itself where it has no such file.
    if cell["pattern"] is None or _names_none(cell, step, cells):
        return True
    paths = (other["steps"].get(str(step)) for other in cells)
    return any(path is not None and step_of(cell["pattern"], path) == step for path in paths)


def _names_none(cell: Mapping[str, Any], step: int, cells: list[dict[str, Any]]) -> bool:
    """Whether another rank named the step and one more in an attempt in which this one named none: it would have named one of them.

    So it goes on from what the other one names, also where the pattern that it asked with was not that of the files.
    """
    named_by = ((other["counts"], str(other["by"].get(str(step)))) for other in cells)
    return any(by not in cell["counts"] and counts.get(by, 0) > 1 for counts, by in named_by)
