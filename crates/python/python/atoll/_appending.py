"""Appending: rows as steps of runs, one by one or whole runs that are there already."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable
from typing import Any, SupportsFloat, SupportsIndex

from . import _atoll
from ._convert import label, number, rows, whole
from ._loading import load
from .errors import ConflictError, InvalidInputError


class _Turn:
    """Which step a rank of an attempt appends next, and that one thread at a time does so."""

    __slots__ = ("lock", "step")

    def __init__(self) -> None:
        # Re-entrant: a signal handler may append in the middle of an append of its thread.
        self.lock, self.step = threading.RLock(), 0


class Appending:
    """The part of a table that is about what comes into it."""

    _native: _atoll.Table

    def __init__(self) -> None:
        #: The attempt of each run that was begun here.
        self._attempts: dict[str, int] = {}
        #: The runs of which nobody said that an attempt is to begin.
        self._begun_unasked: set[str] = set()
        # Re-entrant, so that a signal handler that would begin a run in the middle of a beginning gets an error.
        self._beginning, self._is_beginning = threading.RLock(), False
        self._turns: dict[tuple[str, int, int], _Turn] = {}
        self._own_turn = threading.RLock()
        self._own_step = 0
        #: Whether it was warned of rows that say another step than theirs.
        self._has_warned = False

    def _sync(self) -> None:
        """Has everything that was acknowledged on the disk. A table keeps its store open, also where somebody closed that."""
        self._native.sync()

    def begin(self, run: str, ranks: SupportsIndex = 1, *, attempt: SupportsIndex | None = None) -> int:
        """Begins an attempt of a run, and says which: from now on only it may append to the run.

        ``ranks`` writers append to each step, and a step is visible once all of them have. Without ``attempt`` it is
        the next one. Steps that the attempt writes replace those of earlier attempts from there on.

        Raises ``ConflictError`` where a later attempt has begun.
        """
        run, ranks = label(run, "run"), whole(ranks, "ranks", end=2**32)
        if attempt is None:
            attempt = self._native.begin_next(run, ranks)
        else:
            attempt = whole(attempt, "attempt")
            self._native.begin(run, attempt, ranks)
        self._attempts[run] = attempt
        self._begun_unasked.discard(run)
        return attempt

    def append(
        self,
        data: Any,
        *,
        run: str | None = None,
        step: SupportsIndex | None = None,
        time: SupportsFloat | None = None,
        rank: SupportsIndex = 0,
        attempt: SupportsIndex | None = None,
    ) -> int:
        """Appends rows, and says which version has them.

        ``data`` is a mapping of column names to arrays (shape (n,), or (n, k) for vectors), a data frame, or anything
        that speaks Arrow. It is copied before this returns. Columns that may be null can be left out; numbers
        may have another width or kind, and times another unit, if every value fits; nothing is rounded.

        Without ``run`` the rows go to a run of this process's own, as its next step. With ``run``, its attempt is the
        one that :meth:`begin` began here, or a new one; ``step``, if it is not given, is the next one that nobody has
        appended as this rank, behind the last complete one and those that this handle appended. ``time`` is the
        physical time of the step, in the unit of your choice. Appending a step again changes nothing, and warns where no
        ``attempt`` is given: the rows may be others. One that was deleted is written by a new attempt, which begins where
        nobody asked for the one before. Rows that say another step in their column ``step`` are appended as ``step`` and found as
        what they say, which is warned of once. A *new* attempt that writes a step replaces that step and all later ones of earlier
        attempts, which has to be said: by ``attempt`` or :meth:`begin`.

        Raises ``InvalidInputError`` where the rows do not fit the table, and for a step, rank or attempt without ``run``;
        ``ConflictError`` where another attempt of the run has begun meanwhile, where the run has steps from ``step`` on and no
        attempt was begun here, where the attempt that was asked for wrote the step and it was deleted, or where ids are unique
        and the run has some of these already.
        """
        # What does not fit is refused before a run is begun for it.
        held, time = self._native.conformed(rows(data)), None if time is None else number(time, "time")
        if run is None:
            if step is not None or rank or attempt is not None:
                raise InvalidInputError.hinted("a step, a rank and an attempt belong to a run", "say which: run=")
            return self._append_own(held, time)
        run, step = label(run, "run"), None if step is None else self._step_of(step, held)
        is_told = attempt is not None
        attempt = self._attempt_of(run, step) if attempt is None else whole(attempt, "attempt")
        rank = whole(rank, "rank", end=2**32)
        if step is None:
            return self._append_next((run, attempt, rank), held, time)
        version = self._native.append_new(run, attempt, step, rank, held, time)
        if version is None and step in self._native.deleted_steps(run, step)[:1]:
            attempt = self._attempt_behind(run, attempt, step, is_told=is_told)
            version = self._native.append_new(run, attempt, step, rank, held, time)
        if version is None:
            version = self._there_already((run, attempt, step, rank), held, time, is_told=is_told)
        turn = self._turn(run, attempt, rank)
        with turn.lock:
            turn.step = max(turn.step, step + 1)
        return version

    def load(
        self,
        steps: Iterable[tuple[SupportsIndex, Any] | tuple[SupportsIndex, SupportsFloat | None, Any]],
        *,
        run: str,
        attempt: SupportsIndex | None = None,
        tree_bytes: SupportsIndex = 64 << 20,
    ) -> int:
        """Loads whole steps that are all there already, packed as they come, and says which version has the last of them::

            t.load(((step, read(step)) for step in range(0, 1000, 10)), run="published")

        Each of ``steps`` is ``(step, rows)`` or ``(step, time, rows)``, in rising order, with the rows of all ranks; rows
        are what :meth:`append` takes. Nothing is written twice, as it is when rows are appended and packed later, and the
        steps are visible some at a time, as many as have about ``tree_bytes`` of rows. That takes about thirteen times as much
        memory; few large trees are asked faster. What came before an error stays, and never half a step:
        :meth:`last_complete` says where to go on. Loading again what is there changes nothing.

        Raises ``InvalidInputError`` where the rows do not fit the table or a step does not lie behind those of the run,
        ``ConflictError`` where a step has come of some ranks only, where another attempt has begun, where the run has the
        first step already and no attempt was begun here, where a step was deleted that the attempt wrote, or where ids are
        unique and the run has some of these already.
        """
        run, tree_bytes = label(run, "run"), whole(tree_bytes, "tree_bytes")
        told = None if attempt is None else whole(attempt, "attempt")

        gone = frozenset[int]()

        def begin(first: int) -> _atoll.Loader:
            nonlocal gone
            attempt = self._attempt_of(run, first) if told is None else told
            gone = frozenset(self._native.deleted_steps(run, first))
            if first in gone:
                attempt, gone = self._attempt_behind(run, attempt, first, is_told=told is not None), frozenset()
            return self._native.loader(run, attempt, tree_bytes)

        def check(step: int) -> None:
            if step in gone:
                raise _deleted(run, step)

        version = load(begin, check, steps)
        return self._native.version() if version is None else version

    def _step_of(self, step: SupportsIndex, held: _atoll.Rows) -> int:
        """A step by its number. Whoever asks for it goes by the column: the first rows that say another one there are warned of."""
        step = whole(step, "step")
        said = None if self._has_warned else held.other_step(step)
        if said is not None:
            # Each text would be a new one to Python, and a run has thousands of steps.
            self._has_warned = True
            warnings.warn(
                f'the rows are step {step}, and one of them says {said} in its column "step": whoever asks by that column, as'
                " at() and last() do, finds it there; of others that come it is not said again",
                stacklevel=3,
            )
        return step

    def _attempt_of(self, run: str, step: int | None = None) -> int:
        # One thread begins for all: a second attempt would end the first.
        with self._beginning:
            if run in self._attempts:
                return self._attempts[run]
            last = None if step is None else self._native.last_complete(run)
            if step is not None and last is not None and step <= last:
                raise ConflictError.hinted(
                    f'run "{run}" has steps up to {last}: a new attempt that writes step {step} would replace them from there on',
                    f'leave step= out, which takes the next one; or say that you mean it: begin("{run}") first',
                )
            if self._is_beginning:
                raise ConflictError.hinted(
                    f'a run is being begun by this thread, and run "{run}" cannot be begun in the middle of that',
                    "this is a signal handler: append to a run that was begun before the signal can come",
                )
            self._is_beginning = True
            try:
                attempt = self.begin(run)
            finally:
                self._is_beginning = False
            self._begun_unasked.add(run)
            return attempt

    def _attempt_behind(self, run: str, attempt: int, step: int, *, is_told: bool) -> int:
        """An attempt that can write a step which was deleted, as the one that wrote it cannot."""
        with self._beginning:
            is_ours = not is_told and run in self._begun_unasked
            if is_ours and self._attempts.get(run) == attempt:
                del self._attempts[run]
        if not is_ours:
            raise _deleted(run, step)
        return self._attempt_of(run, step)

    def _there_already(
        self, block: tuple[str, int, int, int], held: _atoll.Rows, time: float | None, *, is_told: bool
    ) -> int:
        """Says which version has a step already, and warns: the rows may be others."""
        if is_told:
            return self._native.append(*block, held, time)
        run, _, step, rank = block
        warnings.warn(
            f'run "{run}" has rows of step {step} and rank {rank} already: nothing was changed. To replace them, and all'
            f' steps behind, begin("{run}") and append again',
            stacklevel=3,
        )
        return self._native.version()

    def _turn(self, run: str, attempt: int, rank: int) -> _Turn:
        return self._turns.setdefault((run, attempt, rank), _Turn())

    def _append_next(self, writer: tuple[str, int, int], held: _atoll.Rows, time: float | None) -> int:
        """Appends as the next step: behind those that are complete, and those that this rank has given already."""
        run, attempt, rank = writer
        turn = self._turn(*writer)
        with turn.lock:
            # Other handles and processes may be this rank too: each gets a step of its own.
            step, version = self._native.append_next(run, attempt, rank, turn.step, held, time)
            turn.step = max(turn.step, step + 1)
        return version

    def _append_own(self, held: _atoll.Rows, time: float | None) -> int:
        """Appends to the run that is this process's own: no other writes to it, so its steps can be counted here."""
        with self._own_turn:
            run = f"append-{self._native.handle_number:032x}"
            if self._own_step == 0:
                self._native.begin(run, 1, 1)
            # Also where the append fails: it may be there all the same, and other rows under its step would count as it.
            step, self._own_step = self._own_step, self._own_step + 1
            return self._native.append(run, 1, step, 0, held, time)


def _deleted(run: str, step: int) -> ConflictError:
    return ConflictError.hinted(
        f'step {step} of run "{run}" was deleted, and the attempt that wrote it cannot write it again',
        f'a new attempt can: begin("{run}") first',
    )
