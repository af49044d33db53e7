"""Which checkpoint ranks without a communicator go on from: one that all of them have.

A crash may come when some ranks have named their checkpoint of a step and others have not. So each rank notes in the table
what it has named, after that, and a later attempt goes on from the newest one that all have noted. When a rank names the
checkpoint of a step, all have named the one before it, since they have given the steps behind that: two are enough.

A rank says that it notes before it has a checkpoint: one that was named and not noted, as where the job was killed between the
two, is nobody's, the first one too.

A rank that does not find the checkpoint to go on from fails. Where it has an earlier one that all have, it notes what is gone,
and the next attempt goes on from that. Where it has none, the disk may be another one, or the name mistyped: nothing is noted, and
nobody begins over what the table has before somebody deletes that.

Invariant: ranks of one attempt that ask, in whatever order, are answered alike: only what earlier attempts noted counts, of
what is there, what is gone and what files are called, and what a rank forgets while others still ask, none could have chosen.
Earlier attempts note nothing any more once one of them has asked: the store refuses them, however late they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._checkpoints import Checkpoint, named, newest, set_aside, step_of, steps_there
from .errors import ConflictError

if TYPE_CHECKING:
    from ._table import Table

#: So many checkpoints of a rank are remembered: two are needed, and more where somebody removes the newest ones. They stay in
#: the table as long as the run, and every start reads those of all ranks.
NOTED_MAX = 50
#: Which attempt is said to have noted what was there before anybody noted.
BEFORE_ALL = -1


class Agreement:
    """What one rank of a run notes of its checkpoints, and reads of those of the others."""

    def __init__(self, table: Table, run: str, attempt: int, rank: int, size: int) -> None:
        self._native, self._run, self._attempt, self._rank, self._size = table._native, run, attempt, rank, size
        self._pattern: str | None = None
        # What is noted of this rank. Nobody else writes it, so it is read once: each checkpoint would read those of all ranks.
        self._cell: dict[str, Any] = {"since": attempt, "pattern": None, "is_own": False, "steps": {}}

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
        step = last if step is None else step
        if step is None:
            return
        # All ranks of this attempt have asked, for they have given steps: what is of a future that it replaced can go.
        steps = {
            text: note
            for text, note in self._cell["steps"].items()
            if "gone" not in note and (int(text) <= step or note["by"] == self._attempt)
        }
        steps |= {str(step): {"path": path, "by": self._attempt}}
        newest_first = sorted(steps, key=int, reverse=True)[:NOTED_MAX]
        self._keep(is_own=True, steps={step: steps[step] for step in newest_first})

    def resume(self, pattern: str | os.PathLike[str], last_complete: int | None) -> Checkpoint | None:
        """The checkpoint to go on from; later ones of this rank are set aside."""
        self._pattern = os.path.abspath(pattern)
        noted = self._noted()
        cells = [cell for rank, cell in noted.items() if rank < self._size and cell["since"] < self._attempt]
        if cells:
            chosen = self._agreed(pattern, _common([_before(cell, self._attempt) for cell in cells], last_complete))
        else:
            # It is the first start, or what is there is of ranks that did not note theirs.
            chosen = newest(pattern, last_complete)
        after = None if chosen is None else chosen.step
        set_aside(pattern, after=after)
        # What is gone stays noted until all ranks of this attempt have asked: then they give steps.
        left = {
            step: note
            for step, note in self._cell["steps"].items()
            if "gone" in note or (after is not None and int(step) <= after)
        }
        if chosen is not None and (str(chosen.step) not in left or "gone" in left[str(chosen.step)]):
            left[str(chosen.step)] = {"path": os.path.abspath(chosen.path), "by": BEFORE_ALL}
        self._keep(**self._asked(), steps=left)
        return chosen

    def _asked(self) -> dict[str, Any]:
        """How the files of this rank are called from now on, and how they were before the ranks of this attempt asked."""
        cell, pattern = self._cell, self._pattern
        is_first = cell.get("asked") != self._attempt
        before = {"pattern": cell["pattern"], "is_own": cell["is_own"]} if is_first else cell["before"]
        # Files of its own have names of their own: under another name there may be one for all.
        is_own = cell["is_own"] and cell["pattern"] in (None, pattern)
        return {"asked": self._attempt, "before": before, "pattern": pattern, "is_own": is_own}

    def _agreed(self, pattern: str | os.PathLike[str], common: list[int]) -> Checkpoint | None:
        """The newest of the steps that all ranks have a checkpoint of, newest first; none if there is none."""
        if not common:
            return None
        step, *earlier = common
        found = named(pattern, step)
        if found is not None:
            return found
        noted = self._cell["steps"].get(str(step), {}).get("path")
        problem = (
            f"the ranks of run {self._run!r} go on from step {step}, and rank {self._rank} has no checkpoint of it at "
            f"{str(pattern)!r}" + ("" if noted is None else f"; it named one {noted!r}")
        )
        if steps_there(pattern).isdisjoint(earlier):
            raise ConflictError.hinted(
                problem,
                "bring it back, or mend the pattern; to begin again, delete the steps of the run, as with "
                f"table.delete(run={self._run!r})",
            )
        self._miss(pattern, step)
        raise ConflictError.hinted(
            problem,
            "start again: the next start goes on from an earlier one that all ranks have; and keep the newest two "
            "checkpoints of each rank",
        )

    def _miss(self, pattern: str | os.PathLike[str], step: int) -> None:
        """Notes which checkpoints of this rank are gone, that of `step` among them."""
        there, own = steps_there(pattern), self._cell["steps"]
        steps = {text: note for text, note in own.items() if int(text) not in there}
        steps[str(step)] = own.get(str(step), {"path": None, "by": self._attempt})
        gone = {text: note | {"gone": note.get("gone", self._attempt)} for text, note in steps.items()}
        self._keep(steps=own | gone)

    def _noted(self) -> dict[int, dict[str, Any]]:
        """What is noted of all ranks."""
        cells = {rank: json.loads(text) for rank, text in self._native.rank_notes(self._run, self._attempt).items()}
        # Cells stay where a run is deleted; attempts of another one with its name may begin anew.
        noted = {rank: cell for rank, cell in cells.items() if cell["since"] <= self._attempt}
        self._cell = noted.get(self._rank, self._cell)
        return noted

    def _keep(self, **changed: Any) -> None:
        cell = self._cell | changed
        self._native.set_rank_notes(json.dumps(cell), self._run, self._attempt, self._rank)
        self._cell = cell


def _before(cell: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """What earlier attempts noted of a rank: its paths by step, None where it is gone."""
    steps = {step: note for step, note in cell["steps"].items() if note["by"] < attempt}
    paths = {step: None if note.get("gone", attempt) < attempt else note["path"] for step, note in steps.items()}
    # Ranks of this attempt may have said already how their files are called from now on.
    names = cell["before"] if cell.get("asked") == attempt else {}
    return {**cell, **names, "steps": paths, "by": {step: note["by"] for step, note in steps.items()}}


def _common(cells: list[dict[str, Any]], last_complete: int | None) -> list[int]:
    """The steps up to the last complete one that each of these ranks has a checkpoint of, newest first."""
    steps = {int(step) for cell in cells for step in cell["steps"]}
    up_to = [step for step in steps if last_complete is not None and step <= last_complete]
    common = [step for step in up_to if all(_has(cell, step, cells) for cell in cells)]
    return sorted((step for step in common if _is_of_one_attempt(step, cells)), reverse=True)


def _is_of_one_attempt(step: int, cells: list[dict[str, Any]]) -> bool:
    """Whether what ranks named for a step is one state; two attempts may have computed it, and one of them not on all ranks."""
    return len({cell["by"].get(str(step), BEFORE_ALL) for cell in cells} - {BEFORE_ALL}) <= 1


def _has(cell: Mapping[str, Any], step: int, cells: list[dict[str, Any]]) -> bool:
    if cell["is_own"] or str(step) in cell["steps"]:
        return cell["steps"].get(str(step)) is not None
    # A rank that names none may go on from one that another rank names for both; if it never asked, nobody knows its names, and it
    # says itself where it has no such file.
    if cell["pattern"] is None:
        return True
    paths = (other["steps"].get(str(step)) for other in cells)
    return any(path is not None and step_of(cell["pattern"], path) == step for path in paths)
