"""Appending: rows as steps of runs, one step at a time or whole runs that already exist."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from typing import Any, SupportsFloat, SupportsIndex

from . import _atoll
from ._convert import label, number, rows, whole
from ._loading import load
from ._told import Loaded
from .errors import ConflictError, InvalidInputError


class _Turn:
    """The next step that a rank of an attempt appends, with the lock that lets one thread at a time append it."""

    __slots__ = ("lock", "step")

    def __init__(self) -> None:
        # Re-entrant: a signal handler may append while its own thread is inside an append.
        self.lock, self.step = threading.RLock(), 0


class Appending:
    """The methods of a table that add rows."""

    _native: _atoll.Table

    def __init__(self) -> None:
        #: The attempt of each run that was begun through this handle.
        self._attempts: dict[str, int] = {}
        #: The runs whose attempt :meth:`append` or :meth:`load` began by itself.
        self._begun_unasked: set[str] = set()
        # Re-entrant, so that a signal handler that would begin a run while one is being begun gets an error, not a
        # deadlock.
        self._beginning, self._is_beginning = threading.RLock(), False
        self._turns: dict[tuple[str, int, int], _Turn] = {}
        self._own_turn = threading.RLock()
        self._own_step = 0
        #: Whether the warning about rows whose step column differs from ``step`` was given.
        self._has_warned = False

    def _sync(self) -> None:
        """Wait until everything acknowledged is on disk. Works on a closed store too, which its tables keep open."""
        self._native.sync()

    def begin(self, run: str, ranks: SupportsIndex = 1, *, attempt: SupportsIndex | None = None) -> int:
        """Begin an attempt of a run and return its number: from now on only this attempt may append to the run.

        ``ranks`` writers append to each step, and a step becomes visible once all of them have. ``attempt`` defaults to
        the next number. The steps that the attempt writes replace those of earlier attempts, from its first step on.

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
        """Append rows and return the version that has them.

        ``data`` is a mapping of column names to arrays (shape (n,), or (n, k) for vectors), a data frame, or any object
        that supports the Arrow interface. It is copied before this call returns. Nullable columns can be left out.
        Numbers may have another width or kind, and times another unit, as long as every value fits; nothing is rounded.

        Without ``run``, the rows are the next step of a run private to this handle of the table. With ``run``, the
        attempt is the one that :meth:`begin` began through this handle, or a new one. ``step`` defaults to the next
        number that no writer has used for this rank: past the last complete step and past the steps that this handle
        appended. ``time`` is the physical time of the step, in a unit of your choice.

        Appending a step a second time changes nothing; without ``attempt``, it also warns, since the rows may differ.
        Only a new attempt can write a deleted step again; it begins by itself if the current attempt did. Rows whose
        ``step`` column differs from ``step`` are appended as ``step`` but found by the number in the column; the first
        such rows cause a warning. A *new* attempt that writes a step replaces that step and all later ones of earlier
        attempts, so you have to ask for it, with ``attempt`` or :meth:`begin`.

        Raises ``InvalidInputError`` where the rows do not fit the table, and for a step, rank or attempt without
        ``run``. Raises ``ConflictError`` where another attempt of the run has begun meanwhile; where the run already
        has ``step`` or later steps and no attempt was begun through this handle; where the step was deleted and
        ``attempt`` is the one that wrote it; and where ids are unique and the run already has some of them.
        """
        # Refuse rows that do not fit before a run is begun for them.
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
        progress: Callable[[Loaded], object] | None = None,
    ) -> int:
        """Load whole steps that already exist, packed as they come, and return the version that has the last one::

            t.load(((step, read(step)) for step in range(0, 1000, 10)), run="published")

        Each item of ``steps`` is ``(step, rows)`` or ``(step, time, rows)``, in rising order, with the rows of all
        ranks; rows are what :meth:`append` takes. Rows are written once, not twice as when they are appended and packed
        later. Steps become visible in groups that hold about ``tree_bytes`` of rows. Loading takes about thirteen times
        that much memory; a few large trees are faster to query. Steps loaded before an error stay, always whole:
        :meth:`last_complete` says where to continue. Loading the same steps again changes nothing.

        ``progress`` is called with a :class:`Loaded` after each step, and once more when all of them are in the table:
        ``progress=print`` shows them. An error that it raises ends the load as an error in ``steps`` does.

        Raises ``InvalidInputError`` where the rows do not fit the table or a step does not come after those of the run.
        Raises ``ConflictError`` where only some ranks have written a step; where another attempt has begun; where the
        run already has the first step and no attempt was begun through this handle; where the attempt wrote a step that
        was deleted since; and where ids are unique and the run already has some of them.
        """
        run, tree_bytes = label(run, "run"), whole(tree_bytes, "tree_bytes")
        if progress is not None and not callable(progress):
            raise InvalidInputError.hinted(f"progress is called, but {progress!r} cannot be", "write progress=print")
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
                raise _deleted_step_error(run, step)

        version = load(begin, check, steps, progress)
        return self._native.version() if version is None else version

    def _step_of(self, step: SupportsIndex, held: _atoll.Rows) -> int:
        """Check a step number. Warn of the first rows whose step column differs: queries find them by the column."""
        step = whole(step, "step")
        said = None if self._has_warned else held.other_step(step)
        if said is not None:
            # Warn once: the text differs from step to step, so Python would not filter the repetitions.
            self._has_warned = True
            warnings.warn(
                f'the rows are step {step}, but their column "step" has {said} in one of them: queries by that column, such as'
                " at() and last(), find the row there; further rows like this are not reported",
                stacklevel=3,
            )
        return step

    def _attempt_of(self, run: str, step: int | None = None) -> int:
        # One thread begins the attempt for all: a second attempt would end the first.
        with self._beginning:
            if run in self._attempts:
                return self._attempts[run]
            last = None if step is None else self._native.last_complete(run)
            if step is not None and last is not None and step <= last:
                raise ConflictError.hinted(
                    f'run "{run}" has steps up to {last}: a new attempt that writes step {step} would replace them from there on',
                    f'leave out step=, which takes the next one; or, if you mean it, call begin("{run}") first',
                )
            if self._is_beginning:
                raise ConflictError.hinted(
                    f'this thread is beginning a run, and run "{run}" cannot be begun meanwhile',
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
        """Begin an attempt that can write a deleted step: the attempt that wrote the step cannot write it again."""
        with self._beginning:
            is_ours = not is_told and run in self._begun_unasked
            if is_ours and self._attempts.get(run) == attempt:
                del self._attempts[run]
        if not is_ours:
            raise _deleted_step_error(run, step)
        return self._attempt_of(run, step)

    def _there_already(
        self, block: tuple[str, int, int, int], held: _atoll.Rows, time: float | None, *, is_told: bool
    ) -> int:
        """Return a version that has the step already, and warn that these rows may differ from its rows."""
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
        """Append as the next step: past the complete steps and past those that this rank has appended."""
        run, attempt, rank = writer
        turn = self._turn(*writer)
        with turn.lock:
            # Other handles and processes may write as this rank too: each append gets a step of its own.
            step, version = self._native.append_next(run, attempt, rank, turn.step, held, time)
            turn.step = max(turn.step, step + 1)
        return version

    def _append_own(self, held: _atoll.Rows, time: float | None) -> int:
        """Append to the run of this handle. No other handle writes to it, so its steps are counted here."""
        with self._own_turn:
            run = f"append-{self._native.handle_number:032x}"
            if self._own_step == 0:
                self._native.begin(run, 1, 1)
            # Count a failed append as well: it may have taken effect, and its step must not be used for other rows.
            step, self._own_step = self._own_step, self._own_step + 1
            return self._native.append(run, 1, step, 0, held, time)


def _deleted_step_error(run: str, step: int) -> ConflictError:
    return ConflictError.hinted(
        f'step {step} of run "{run}" was deleted, and the attempt that wrote it cannot write it again',
        f'a new attempt can: begin("{run}") first',
    )
