"""Which checkpoint a start goes on from: the newest one that all ranks have, and not the beginning where there was one.

What was named is noted in the table, after that, so that a start that finds nothing knows whether there was something: it
begins where nothing was ever named, and fails otherwise, for the disk may be another one, or the name mistyped. Who is alone, one
process or the first rank of a communicator, takes what has its name, noted or not: no other rank has to have it too. So a file that
was named, and not noted as the job was killed between the two, counts; only where it was the first one of its run, and is not there
at the next start, nobody knows of it. Who names none through the writer is asked nothing: nothing is noted.

A note is of a path. Which step it is of, and whether resume asks for it or keeps it aside, is judged when a start asks
(`_checkpoint_notes`). What was kept aside counts only where there is nothing else, as where the pattern is mistyped.

Ranks without a communicator have files of their own. A crash may come when some of them have named their checkpoint of a step and
others have not. So a later attempt goes on from the newest one that all have noted. When a rank names the checkpoint of a step, all
have named the one before it, since they have given the steps behind that: two are enough.

Such a rank says that it notes before it has a checkpoint: one that was named and not noted, as where the job was killed between the
two, is nobody's, the first one too.

A rank that does not find the checkpoint to go on from fails. Where it has an earlier one that all have, it notes what is gone,
and the next attempt goes on from that. Where it has none, nothing is noted, and nobody begins over what the table has before
somebody deletes that.

Invariant: ranks of one attempt that ask, in whatever order, are answered alike: only what earlier attempts noted counts. What is
noted while others may ask bears the number of its attempt, and what is noted already is forgotten only once steps are given.
Earlier attempts note nothing any more once one of them has asked: the store refuses them, however late they are.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NoReturn

from ._checkpoint_notes import (
    AFTER_ALL,
    BEFORE_ALL,
    Cell,
    Named,
    cut,
    in_common,
    is_gone,
    named_again,
    ranks_of,
    read,
    with_gone,
)
from ._checkpoints import Checkpoint, named, newest, set_aside, step_of, steps_there, with_step
from .errors import ConflictError

if TYPE_CHECKING:
    from ._table import Table

#: So many checkpoints of a rank are remembered: two are needed, and more where somebody removes the newest ones. They stay in
#: the table as long as the run, and every start reads those of all ranks. Of those before, only which was the first.
NOTED_MAX = 50
#: So many patterns that a rank asked with are remembered.
PATTERNS_MAX = 10


class Agreement:
    """What one rank of a run notes of its checkpoints, and reads of those of the others."""

    def __init__(self, table: Table, run: str, attempt: int, rank: int, size: int) -> None:
        self._native, self._run, self._attempt, self._rank, self._size = table._native, run, attempt, rank, size
        self._pattern: str | None = None
        # What is noted of this rank. Nobody else writes it, so it is read once: each checkpoint would read those of all ranks.
        self._cell: Cell = {"since": attempt, "asked": [], "named": {}}
        self._is_read = False
        # What is noted of this rank by step, as this attempt judges it.
        self._steps: dict[int, Named] = {}

    def begin(self, last_complete: int | None) -> None:
        """Says that this rank notes its checkpoints, before there is one: a later attempt then knows that it has none."""
        # Where steps are complete already, there may be checkpoints of ranks that did not note theirs.
        if self._rank not in self._noted() and last_complete is None:
            self._keep()

    def note(self, path: str | os.PathLike[str], last: int | None) -> None:
        """Notes a checkpoint that has its name now; `last` is the step that was given last."""
        # As a whole: ranks may have working folders of their own.
        path = os.path.abspath(path)
        if self._size > 1 and last is None:
            # No step of this attempt was given, so others may still ask for what earlier ones noted. And it is the state that
            # this attempt began with: that is noted already, by the attempt that computed it, or it is the beginning.
            return
        if last is None and self._pattern is not None:
            last = step_of(self._pattern, path)
        if last is None:
            return
        if not self._is_read:
            self._noted()
        # All ranks of this attempt have asked, for the steps before this are complete: what is of a future that it replaced can go.
        named = {
            path: note
            for path, note in self._cell["named"].items()
            if "replaced" not in note and (note["last"] <= last or note["by"] == self._attempt)
        }
        named |= {path: {"last": last, "by": self._attempt}}
        self._keep(asked=self._asked(), named=cut(named, self._pattern, NOTED_MAX))

    def resume(self, pattern: str | os.PathLike[str], last_complete: int | None) -> Checkpoint | None:
        """The checkpoint to go on from; later ones of this rank are set aside."""
        self._pattern = os.path.abspath(pattern)
        noted = self._noted()
        cells = {rank: cell for rank, cell in noted.items() if rank < self._size and cell["since"] < self._attempt}
        if self._size == 1:
            chosen = self._alone(pattern, last_complete)
        elif cells:
            chosen = self._agreed(pattern, cells, last_complete)
        else:
            # It is the first start, or what is there is of ranks that did not note theirs.
            chosen = newest(pattern, last_complete)
        set_aside(pattern, after=None if chosen is None else chosen.step)
        if self._size > 1 or self._cell["named"]:
            self._choose(chosen)
        return chosen

    def _choose(self, chosen: Checkpoint | None) -> None:
        """Notes what this rank goes on from; what it named of later steps is of a future that is replaced."""
        step_by_path = {named.path: step for step, named in self._steps.items()}

        def is_later(path: str, note: dict[str, Any]) -> bool:
            return chosen is None or step_by_path.get(path, note["last"]) > chosen.step

        # Not dropped: other ranks of this attempt may still ask.
        named = {
            path: {"replaced": self._attempt} | note if is_later(path, note) else note
            for path, note in self._cell["named"].items()
        }
        if chosen is not None and (chosen.step not in self._steps or self._steps[chosen.step].gone is not None):
            named[os.path.abspath(chosen.path)] = {"last": chosen.step, "by": BEFORE_ALL, "since": self._attempt}
        self._keep(asked=self._asked(), named=named)

    def _asked(self) -> list[list[Any]]:
        """The patterns that this rank asked with, and since which attempt."""
        asked = self._cell["asked"]
        is_known = self._pattern is None or (asked and asked[-1][0] == self._pattern)
        return asked if is_known else [*asked, [self._pattern, self._attempt]][-PATTERNS_MAX:]

    def _alone(self, pattern: str | os.PathLike[str], last_complete: int | None) -> Checkpoint | None:
        """The newest one that is there, unless a newer one was named; none where none was."""
        self._steps = ranks_of({self._rank: self._cell}, str(self._pattern), AFTER_ALL)[self._rank].steps
        found = newest(pattern, last_complete)
        # Where nothing is there, also what was missed before.
        looked_for = (step for step, named in self._steps.items() if found is None or named.gone is None)
        last = max((step for step in looked_for if last_complete is not None and step <= last_complete), default=None)
        if last is not None and (found is None or found.step < last):
            self._refuse(pattern, last, is_earlier_there=found is not None)
        return found

    def _agreed(
        self, pattern: str | os.PathLike[str], cells: dict[int, Cell], last_complete: int | None
    ) -> Checkpoint | None:
        """The newest one that all ranks have; none if there is none."""
        judged = named_again(ranks_of(cells, str(self._pattern), self._attempt))
        ranks = list(judged.values())
        self._steps = judged[self._rank].steps if self._rank in judged else {}
        common = in_common(ranks, last_complete)
        if common:
            step, *earlier = common
            found = named(pattern, step)
            if found is None:
                self._refuse(pattern, step, is_earlier_there=not steps_there(pattern).isdisjoint(earlier))
            return found
        missed = in_common(with_gone(ranks), last_complete)
        if missed:
            self._note_found(pattern)
            self._refuse(pattern, missed[0], is_earlier_there=False)
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
        if step in self._steps:
            problem += f"; it named one {self._steps[step].path!r}"
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
        there, notes = steps_there(pattern), self._cell["named"]
        gone = {
            named.path: {name: noted for name, noted in notes[named.path].items() if name != "back"} | {"gone": self._attempt}
            for known, named in self._steps.items()
            if known not in there and not is_gone(notes[named.path], AFTER_ALL)
        }
        if step not in self._steps:
            note = {"last": step, "by": BEFORE_ALL, "since": self._attempt, "gone": self._attempt}
            gone[with_step(str(self._pattern), step)] = note
        self._keep(named=notes | gone)

    def _note_found(self, pattern: str | os.PathLike[str]) -> None:
        """Notes what is there again of what was gone. At once, where no rank goes on: each lacks what another one has."""
        there, notes = steps_there(pattern), self._cell["named"]
        # For the next attempt: other ranks of this one may have been answered without it.
        back = {
            named.path: notes[named.path] | {"back": self._attempt}
            for step, named in self._steps.items()
            if step in there and is_gone(notes[named.path], AFTER_ALL)
        }
        if back:
            self._keep(named=notes | back)

    def _noted(self) -> dict[int, Cell]:
        """What is noted of all ranks."""
        cells = {rank: read(text) for rank, text in self._native.rank_notes(self._run, self._attempt).items()}
        # A copy of an older version of the table has the notes of now, and its attempts go on from those of then.
        noted = {rank: cell for rank, cell in cells.items() if cell["since"] <= self._attempt}
        self._cell, self._is_read = noted.get(self._rank, self._cell), True
        return noted

    def _keep(self, **changed: Any) -> None:
        cell = self._cell | changed
        self._native.set_rank_notes(json.dumps(cell), self._run, self._attempt, self._rank)
        self._cell = cell
