"""Agreement of the ranks on the checkpoint to resume from: the newest that all have, never silently the beginning.

Once a checkpoint has its final name, a note of it goes into the table. So a start that finds no checkpoint knows
whether there was one: it begins anew only if none was ever named, and fails otherwise, since the disk may be another
one, or the pattern mistyped. A process that is alone, or the first rank of a communicator, takes any checkpoint that
has its final name, noted or not, since no other rank has to have it too. So a checkpoint that was named but not noted,
because the job was killed between the two, counts. Only if it was the first one of its run, and is missing at the next
start, does it go unnoticed. A program that names no checkpoints through the writer has no notes, and is not checked.

A note holds a path. The step of the path, and whether it is a checkpoint or a file that the program keeps aside, is
judged when a start asks (`_checkpoint_notes`). Files kept aside count only where there is nothing else, as with a
mistyped pattern.

Ranks without a communicator have checkpoints of their own. A crash may come when some of them have named their
checkpoint of a step and others have not, so a later attempt resumes from the newest step that all have noted. When a
rank names its checkpoint of a step, all ranks have named the one before, since they have given the steps after that
one: keeping two is enough.

Such a rank announces that it takes notes before it has a checkpoint. A checkpoint that it named but did not note,
because the job was killed between the two, then counts for no rank, even if it is the first one.

A rank that does not find the checkpoint to resume from fails. If it has an earlier one that all ranks have, it notes
which ones are gone, and the next attempt resumes from the earlier one. If it has none, nothing is noted, and no start
replaces the steps in the table until they are deleted.

Invariant: ranks of one attempt get the same answer, in whatever order they ask: only the notes of earlier attempts
count. Notes written while other ranks may still ask bear the number of their attempt, and notes are dropped only once
steps are given. Earlier attempts can write no more notes once a rank of this one has asked: the store refuses them,
however late.
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
    Note,
    in_common,
    is_gone,
    named_again,
    newest_of_each_kind,
    parse_notes,
    ranks_of,
    with_gone,
)
from ._checkpoints import Checkpoint, named, newest, set_aside, step_of, steps_there, with_step
from .errors import ConflictError

if TYPE_CHECKING:
    from ._table import Table

#: How many checkpoints of a rank are remembered, besides the first one. Two are needed, and more if the newest ones are
#: removed. They stay in the table as long as the run, and every start reads those of all ranks.
NOTED_MAX = 50
#: How many of them are remembered however long their paths are.
NOTED_MIN = 2
#: How many bytes the notes of a rank take, unless they are that few. The table takes 1 MiB, with the patterns.
NOTED_BYTES_MAX = 768 << 10
#: How many of the patterns that a rank asked with are remembered.
PATTERNS_MAX = 10


class Agreement:
    """The notes of one rank of a run on its checkpoints, compared with those of the other ranks."""

    def __init__(self, table: Table, run: str, attempt: int, rank: int, size: int) -> None:
        self._native, self._run, self._attempt, self._rank, self._size = table._native, run, attempt, rank, size
        self._pattern: str | None = None
        # The notes of this rank. No other process writes them, so they are read once: a read fetches those of all
        # ranks.
        self._cell: Cell = {"since": attempt, "asked": [], "named": {}}
        self._is_read = False
        # The checkpoints of this rank by step, as judged for this attempt.
        self._steps: dict[int, Named] = {}

    def begin(self, last_complete: int | None) -> None:
        """Announce, before the first checkpoint, that this rank takes notes: later attempts then know it has none."""
        # If steps are complete already, there may be checkpoints of ranks that took no notes.
        if self._rank not in self._noted() and last_complete is None:
            self._keep()

    def note(self, path: str | os.PathLike[str], last: int | None) -> None:
        """Note a checkpoint that has its final name now; `last` is the step that was given last."""
        path = _as_noted(path)
        if self._size > 1 and last is None:
            # This attempt has given no step, so other ranks may still ask for what earlier attempts noted. And the
            # checkpoint is the state that this attempt began with: the attempt that computed it has noted it, or it is
            # the beginning.
            return
        if last is None and self._pattern is not None:
            last = step_of(self._pattern, path)
        if last is None:
            return
        if not self._is_read:
            self._noted()
        # Earlier steps are complete, so all ranks of this attempt have asked: drop the notes of the replaced future.
        named = {
            path: note
            for path, note in self._cell["named"].items()
            if "replaced" not in note and (note["last"] <= last or note["by"] == self._attempt)
        }
        named |= {path: {"last": last, "by": self._attempt}}
        self._keep(asked=self._asked(), named=self._newest(named))

    def _newest(self, named: dict[str, Note]) -> dict[str, Note]:
        """Return the newest notes, fewer of them where their paths are very long."""
        most = NOTED_MAX
        kept = newest_of_each_kind(named, self._pattern, most)
        while most > NOTED_MIN and len(json.dumps(kept)) > NOTED_BYTES_MAX:
            most = max(NOTED_MIN, most // 2)
            kept = newest_of_each_kind(named, self._pattern, most)
        return kept

    def resume(self, pattern: str | os.PathLike[str], last_complete: int | None) -> Checkpoint | None:
        """Return the checkpoint to resume from; set later ones of this rank aside."""
        self._pattern = _as_noted(pattern)
        noted = self._noted()
        cells = {rank: cell for rank, cell in noted.items() if rank < self._size and cell["since"] < self._attempt}
        if self._size == 1:
            chosen = self._alone(pattern, last_complete)
        elif cells:
            chosen = self._agreed(pattern, cells, last_complete)
        else:
            # This is the first start, or the existing checkpoints are of ranks that took no notes.
            chosen = newest(pattern, last_complete)
        set_aside(pattern, after=None if chosen is None else chosen.step)
        if self._size > 1 or self._cell["named"]:
            self._choose(chosen)
        return chosen

    def _choose(self, chosen: Checkpoint | None) -> None:
        """Note what this rank resumes from, and that its checkpoints of later steps are of a replaced future."""
        step_by_path = {named.path: step for step, named in self._steps.items()}

        def is_later(path: str, note: dict[str, Any]) -> bool:
            return chosen is None or step_by_path.get(path, note["last"]) > chosen.step

        # Keep their notes: other ranks of this attempt may still ask.
        named = {
            path: {"replaced": self._attempt} | note if is_later(path, note) else note
            for path, note in self._cell["named"].items()
        }
        if chosen is not None and (chosen.step not in self._steps or self._steps[chosen.step].gone is not None):
            named[_as_noted(chosen.path)] = {"last": chosen.step, "by": BEFORE_ALL, "since": self._attempt}
        self._keep(asked=self._asked(), named=named)

    def _asked(self) -> list[list[Any]]:
        """Return the patterns that this rank asked with, each with the first attempt that did."""
        asked = self._cell["asked"]
        is_known = self._pattern is None or (asked and asked[-1][0] == self._pattern)
        return asked if is_known else [*asked, [self._pattern, self._attempt]][-PATTERNS_MAX:]

    def _alone(self, pattern: str | os.PathLike[str], last_complete: int | None) -> Checkpoint | None:
        """Return the newest checkpoint found, unless a newer one was named; none if none was found or named."""
        self._steps = ranks_of({self._rank: self._cell}, str(self._pattern), AFTER_ALL)[self._rank].steps
        found = newest(pattern, last_complete)
        # If nothing is found, checkpoints that earlier attempts missed count as well.
        looked_for = (step for step, named in self._steps.items() if found is None or named.gone is None)
        last = max((step for step in looked_for if last_complete is not None and step <= last_complete), default=None)
        if last is not None and (found is None or found.step < last):
            self._refuse(pattern, last, is_earlier_there=found is not None)
        return found

    def _agreed(
        self, pattern: str | os.PathLike[str], cells: dict[int, Cell], last_complete: int | None
    ) -> Checkpoint | None:
        """Return the newest checkpoint that all ranks have; none if there is none."""
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
        """Raise: the checkpoint of `step` is not found. The hint says what to do."""
        if self._size == 1:
            problem = f"run {self._run!r} would resume from step {step}, but there is no checkpoint of it at {str(pattern)!r}"
            those, each = "that is there", ""
        else:
            who = f"rank {self._rank} has" if named(pattern, step) is None else f"ranks other than rank {self._rank} have"
            problem = (
                f"the ranks of run {self._run!r} would resume from step {step}, but {who} no checkpoint of it "
                f"at {str(pattern)!r}"
            )
            those, each = "that all ranks have", " of each rank"
        if step in self._steps:
            problem += f"; it named {self._steps[step].path!r} for that step"
        if not is_earlier_there:
            raise ConflictError.hinted(
                problem,
                "mount the disk that it is on, bring it back, or correct the pattern; to begin again, delete the steps of the "
                f"run, as with table.delete(run={self._run!r})",
            )
        self._miss(pattern, step)
        raise ConflictError.hinted(
            problem,
            f"mount the disk that it is on, or bring it back; or start again: the next start resumes from an earlier one "
            f"{those}; and keep the newest two checkpoints{each}",
        )

    def _miss(self, pattern: str | os.PathLike[str], step: int) -> None:
        """Note which checkpoints of this rank are gone, including that of `step`."""
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
        """Note which missed checkpoints are back. Called when no rank can resume, since each lacks what another has."""
        there, notes = steps_there(pattern), self._cell["named"]
        # For the next attempt only: other ranks of this one may have been answered without the note.
        back = {
            named.path: notes[named.path] | {"back": self._attempt}
            for step, named in self._steps.items()
            if step in there and is_gone(notes[named.path], AFTER_ALL)
        }
        if back:
            self._keep(named=notes | back)

    def _noted(self) -> dict[int, Cell]:
        """Read the notes of all ranks."""
        cells = {rank: parse_notes(text) for rank, text in self._native.rank_notes(self._run, self._attempt).items()}
        # A copy of an older version of the table has the current notes, but its attempts continue from those of that
        # version.
        noted = {rank: cell for rank, cell in cells.items() if cell["since"] <= self._attempt}
        self._cell, self._is_read = noted.get(self._rank, self._cell), True
        return noted

    def _keep(self, **changed: Any) -> None:
        cell = self._cell | changed
        self._native.set_rank_notes(json.dumps(cell), self._run, self._attempt, self._rank)
        self._cell = cell


def _as_noted(path: str | os.PathLike[str]) -> str:
    """Return a path as notes have it: absolute, since ranks may have different working folders.

    Bytes of its name that are not UTF-8 are escaped, in paths and patterns alike: a note is a text, and one that could
    not be stored would leave a checkpoint that has its final name and counts for no rank.
    """
    return os.path.abspath(path).encode("utf-8", "backslashreplace").decode()
