"""`Writer`: writes the steps of a running simulation to a table, from one rank or many.

`step` copies its arrays into a bounded buffer and returns; a thread of the writer appends them to the table, with the
interpreter lock released, while the simulation computes on. A step becomes visible in the table when the blocks of all
ranks are there. The first step of a new attempt replaces that step and all later ones of earlier attempts. So nothing
is doubled and nothing is lost after a crash, provided that the simulation resumes from a checkpoint that is not past
`last_complete`: `checkpoint` and `resume` ensure that.

Invariant: steps are appended in the order in which they were given, each once.
Invariant: steps that were given and not yet appended take at most `buffer_bytes`, or are one single step.
Invariant: an error of the background thread is raised by the next call of any method, and by every later one; if no
call follows, it is printed when the writer is finalized.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import re
import sys
import time as clock
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat, SupportsIndex

from . import _atoll
from ._agreement import Agreement
from ._checkpoints import Checkpoint, finish, machine, sync_own, unfinished
from ._collectives import all_or_none, check_alike, told_by_first
from ._columns import Nothing, TableColumns, columns_of, copies, rows_of
from ._convert import label, native_column, number, whole
from ._provenance import of_run, with_attempt
from ._pump import Pump, Step
from .errors import ConflictError, InvalidInputError, LimitError, TimedOutError

if TYPE_CHECKING:
    import os

    from ._columns import Kept
    from ._table import Table

#: The default of `buffer_bytes`: how many bytes may wait for the background thread.
BUFFER_BYTES = 256 << 20
#: The columns that a writer fills where the table has them and the arrays of a step lack them.
FILLED = ("step", "time", "run", "rank")
#: The longest single wait for a new version of the table, in seconds.
LOOK_SECONDS = 60.0
#: From this many rows on, a load splits a step into several objects; fewer rows are one object, as in an append, where
#: they fit.
LOADED_ROWS_MIN = 1 << 17
#: A job id becomes its number times this, plus the number of times that the scheduler has restarted the job.
JOB_RESTARTS_MAX = 1000


class _State(NamedTuple):
    """What a rank needs to know of its run."""

    attempt: int
    #: The last step that this attempt made visible.
    published: int | None
    last_complete: int | None
    #: Whether this rank has written anything in this attempt.
    has_given: bool


class Writer:
    """Writes the steps of a simulation to a table, from one process or from each rank of an MPI job.

    ``run`` names the run; all ranks of all attempts of one simulation give the same name. ``rank`` and ``size`` say
    which writer this is, and of how many; by default they come from ``comm``, or are 0 and 1.

    Every start of the simulation is an attempt of its own, with a higher number than all before; a later attempt ends
    the earlier ones. With ``comm``, an mpi4py communicator that holds exactly the ranks that write, rank 0 takes the
    next number and tells the others, so all ranks construct their writers together. Ranks without a communicator give
    ``attempt``: a number, or the scheduler's job id as a text (``"81234"``, ``"81234.server"``; a job that the
    scheduler has restarted k times under the same id is ``"81234:k"``). A single rank needs neither.

    ``buffer_bytes`` is how much may wait to be written before :meth:`step` waits for room. ``deck`` is the input of the
    simulation: a path, or the text itself (a single word such as ``"inputs/in.lammps"`` is a path). It is kept with the
    run, together with ``attributes`` (texts, numbers and truth values, by which :meth:`Table.runs` finds the run), the
    command, the host, and the versions of the packages in use.

    If the table has a column ``step``, ``time``, ``run`` or ``rank`` that the arrays of a step lack, the writer fills
    it: columns of numbers, a ``time`` of ``float64``, and a ``run`` of texts.

    >>> with atoll.Writer(table, run="duct") as writer:             # doctest: +SKIP
    ...     for step in range(0, 1000, 10):
    ...         writer.step(step, time, {"pid": ids, "x": x, "y": y})

    Raises ``InvalidInputError`` for several ranks with neither ``comm`` nor ``attempt``, and ``ConflictError`` where
    this or a later attempt has written already.
    """

    #: The table that the steps are written to.
    table: Table
    #: The name of the run.
    run: str
    #: Which of the writers this is, from 0 on.
    rank: int
    #: How many writers there are: a step is visible once all of them have given it.
    size: int
    #: The number of this attempt of the run.
    attempt: int

    def __init__(
        self,
        table: Table,
        run: str,
        *,
        rank: int | None = None,
        size: int | None = None,
        comm: Any = None,
        attempt: int | str | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        deck: str | os.PathLike[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._comm = comm
        if comm is None:
            self._take(table, run, (rank, size), buffer_bytes)
        else:
            # A rank whose own arguments are wrong must not leave the others waiting in the first exchange.
            all_or_none(comm, lambda: self._take(table, run, (rank, size), buffer_bytes))
            # As text: a rank may have it as a number of NumPy.
            told = f"run {self.run!r} of table {self.table.name!r}, {self.size} ranks, attempt={attempt}"
            check_alike(comm, told, "the writers of all ranks write one run")
        self.attempt = self._begin_all(attempt, deck, attributes or {})
        # Ranks with a communicator share their checkpoints, so the first rank notes them, as a single process does.
        # Without one, the ranks have to agree which of their own checkpoints all of them have.
        self._agreement = Agreement(table, run, self.attempt, *((self.rank, self.size) if comm is None else (0, 1)))
        if comm is None and self.size > 1:
            self._agreement.begin(self._state().last_complete)
        self._last: int | None = None
        # Not a bound method: an unreferenced writer must be finalized while its thread still runs.
        self._pump = Pump(functools.partial(_append, table, run, self.attempt, (self.rank, self.size)), buffer_bytes)
        # A writer that was not closed still writes its last steps, at the latest when the process ends.
        self._finish = weakref.finalize(self, _end_unclosed, self._pump, run)
        _before_child_ends(self._finish, of=self)

    def _take(self, table: Table, run: str, place: tuple[int | None, int | None], buffer_bytes: int) -> None:
        """Take the arguments of this rank, or raise for one that is wrong."""
        if not hasattr(table, "begin"):
            hint = "open the table: atoll.Writer(store.table(NAME), run=...)"
            raise InvalidInputError.hinted(f"a Writer needs a table, not {table!r}", hint)
        self.table, self.run = table, str(label(run, "run"))
        self.rank, self.size = _rank_and_size(*place, self._comm)
        if whole(buffer_bytes, "buffer_bytes") < 1:
            raise InvalidInputError(f"buffer_bytes must be 1 or more, not {buffer_bytes}")
        self._columns = TableColumns(table.schema)
        self._block_bytes_max: int = table._native.block_bytes_max
        self._ids: list[str] = table._native.roles[0]

    def step(self, step: SupportsIndex, time: SupportsFloat | None, arrays: Any, *, give: bool = False) -> None:
        """Write the rows of one step of this rank: copy them, and return while they are being written.

        ``step`` rises from call to call. ``time`` is the simulated time, in a unit of your choice. ``arrays`` are
        columns by name, each of shape (rows,), or (rows, k) for vectors; or a data frame or structured array. With
        ``give=True``, the writer keeps the arrays instead of copying them, and you must not change them again.

        The call blocks only while the buffer is full. Every rank gives every step, a rank without rows with arrays of
        length 0, because a step becomes visible when the rows of all ranks have come. A rank that skips a step that
        another rank gave learns so from a later call.

        Missing values stay missing, as in :meth:`Table.append`: those of PyArrow, Polars and the nullable types of
        pandas, and ``None`` in lists.

        The rows of one rank and step are one object of the store, which has at most 64 MiB, with its directory and its
        marks of missing values. A writer that is the only rank loads larger steps as several objects
        (:meth:`Table.load`), which takes a multiple of their memory meanwhile.

        Raises ``InvalidInputError`` for a step that is no whole number or does not rise, a time that is no number,
        columns that the table does not have or that the step lacks, columns of different lengths, and columns that
        cannot be converted or have another type than the table's; ``LimitError`` for more than one object holds.
        The writer can be used after these errors. An error that depends on single values, such as 0.5 for whole numbers
        or a missing value in a column that is not nullable, may be found in the background, and then ends the writer.
        Also raises any error of an earlier step.
        """
        self._pump.check()
        # Checked here, not in the background: an error there ends the writer, with all the steps that wait.
        step, time = whole(step, "step"), None if time is None else number(time, "time")
        if self._last is not None and step <= self._last:
            raise InvalidInputError.hinted(
                f"step {step} comes after step {self._last}; steps rise",
                "give all rows of a step in one call; to compute earlier steps again, begin another attempt with a new writer",
            )
        given = columns_of(arrays)
        self._check_names(given, step)
        columns = {name: self._columns.taken(name, values) for name, values in given.items()}
        rows = rows_of(columns)
        known = {"step": step, "time": math.nan if time is None else time, "run": self.run, "rank": self.rank}
        filled = self._columns.missing(columns, known, rows)
        # A column that is not given is missing in every row.
        columns = {name: values for name, values in columns.items() if not isinstance(values, Nothing)}
        self._columns.check_types(self.table, columns, filled, rows)
        columns |= filled
        self._check_fits(columns, step, rows)
        # Reserve room before copying: otherwise each calling thread could hold a step outside the buffer.
        bytes_given = sum(values.nbytes for values in columns.values())
        self._pump.reserve(bytes_given)
        try:
            kept = Step(step, time, columns if give else copies(columns), bytes_given)
        except BaseException:
            self._pump.release(bytes_given)
            raise
        self._pump.put(kept)
        self._last = step

    def _check_names(self, names: Iterable[str], step: int) -> None:
        """Refuse columns that the table does not have, and a step that lacks columns."""
        misfit = self._columns.misfit(names, FILLED)
        if misfit is not None:
            # Another process may have added columns since.
            self._columns = TableColumns(self.table.schema)
            misfit = self._columns.misfit(names, FILLED)
        if misfit is not None:
            problem, hint = misfit
            raise InvalidInputError.hinted(f"step {step} of run {self.run!r} {problem}", hint)

    def _check_fits(self, columns: Mapping[str, Kept], step: int, rows: int) -> None:
        """Refuse rows that no object of the store holds; those of a single writer are loaded as several objects."""
        limit = self._block_bytes_max
        if self.size == 1 and rows >= LOADED_ROWS_MIN:
            # Such a load has rows of any number, and to measure them would take a copy of them.
            return
        if not self._columns.may_exceed(columns, self._ids, rows, limit):
            return
        # The object itself is the measure: it has a directory, and says which values are missing.
        measured = _atoll.rows([native_column(name, values) for name, values in columns.items()])
        taken, longest = self.table._native.bytes_at_most(measured)
        if taken <= limit or (self.size == 1 and longest <= limit // 2):
            return
        if self.size == 1:
            raise LimitError.hinted(
                f"a row of step {step} takes {longest} bytes, and one may take {limit // 2}: half an object of this store",
                "write shorter texts or vectors; none of the step was stored",
            )
        raise LimitError.hinted(
            f"the rows of rank {self.rank} in step {step} take {taken} bytes, and those of one rank and step may "
            f"take {limit}: an object of this store",
            "write the step from more ranks, with fewer columns or narrower ones, or not all rows; none of it was stored",
        )

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every step given so far is complete: the rows of this rank and of all other ranks are visible.

        Gives up after ``timeout`` seconds; by default it never does. Raises ``TimedOutError`` then, ``ConflictError``
        where a later attempt has begun, so that the step can never be complete, and any error of an earlier step.
        """
        ends = None if timeout is None else clock.monotonic() + timeout
        self._pump.drain(ends)
        self._complete(ends)

    def _written(self, failed: BaseException | None, ends: float | None) -> None:
        """Raise what failed, or write what this rank has given."""
        if failed is not None:
            raise failed
        self._pump.drain(ends)

    def _complete(self, ends: float | None) -> None:
        """Wait for the rows of the other ranks; `ends` is a reading of the monotonic clock."""
        if self._last is None:
            return
        seen = self.table.version()
        while True:
            state = self._own_state()
            if state.published is not None and state.published >= self._last:
                return
            left = LOOK_SECONDS if ends is None else ends - clock.monotonic()
            if left <= 0:
                raise TimedOutError.hinted(
                    f"step {self._last} is not complete: not all of {self.size} ranks have given it",
                    "every rank gives every step, with arrays of length 0 if it has no rows; check the logs of the others",
                )
            seen = self.table._native.follow(seen, min(left, LOOK_SECONDS))

    @property
    def last_complete(self) -> int | None:
        """The last step that is visible, of this attempt or earlier ones; a checkpoint must not be past it."""
        self._pump.check()
        return self._state().last_complete

    @property
    def longest_append(self) -> float:
        """The longest time that writing one step took, in seconds, for example while a node of a ring was lost.

        The simulation computes on meanwhile, unless its buffer is full or it waits for a checkpoint.
        """
        return self._pump.longest

    @contextlib.contextmanager
    def checkpoint(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> Iterator[Path]:
        """Write a checkpoint that counts only once every step before it is complete for all ranks.

        The body writes to the path that it receives: a file, or a folder that it creates there. Nothing of an earlier
        start is left at that path. After the body comes a flush, all ranks wait for each other, and the file or folder
        gets its final name, which is noted in the table. With ``comm``, all ranks enter together and write one file, or
        into one folder, and each machine syncs it. Without it, each rank has its own checkpoints and keeps the newest
        two, since after a crash all ranks resume from one that all have. An exception of the body on one rank is raised
        on all, with a note of the rank.

        The flush gives up after ``timeout`` seconds; by default it waits until all ranks have given their steps. Raises
        ``TimedOutError`` then, ``ConflictError`` where a later attempt has begun, ``OSError`` where the file cannot be
        synced or renamed, and any error of an earlier step or of the store. Until it is renamed, the file has
        ``.unfinished`` added to its name, and it keeps that name after any of these errors before the rename.

        >>> with writer.checkpoint(f"checkpoint.{step}") as unfinished:  # doctest: +SKIP
        ...     lmp.command(f"write_restart {unfinished}")
        """
        if self._comm is None:
            part = unfinished(path)
            yield part
            self.flush(timeout)
            self._name(part, path)
            return
        # No rank begins to write unless all can: the body may be a collective operation of all ranks.
        is_first = self._comm.Get_rank() == 0
        part = all_or_none(self._comm, lambda: unfinished(path, is_first=is_first))
        check_alike(self._comm, str(path), "a checkpoint of all ranks is one file")
        failed: BaseException | None = None
        try:
            yield part
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - passed on whole
            failed = error
        ends = None if timeout is None else clock.monotonic() + timeout
        # First, so that no rank waits for the steps of a rank that failed and will not give them.
        all_or_none(self._comm, lambda: self._written(failed, ends))
        all_or_none(self._comm, lambda: self._complete(ends))
        # Rank 0 syncs for its machine when it gives the name, and the first rank of each other machine for that one.
        machines = self._comm.allgather(machine())
        rank = self._comm.Get_rank()
        syncs = rank > 0 and machines[rank] not in machines[:rank]
        all_or_none(self._comm, lambda: sync_own(part) if syncs else None)
        # No rank continues, and perhaps ends the job, before the checkpoint has its final name.
        told_by_first(self._comm, lambda: self._name(part, path))

    def _name(self, part: Path, path: str | os.PathLike[str]) -> None:
        """Give a checkpoint its final name, after syncing the table: it must not be ahead of it after a power loss."""
        self.table._sync()
        # Syncing takes a while: a later attempt may have begun meanwhile, and looked for a checkpoint to resume from.
        self._own_state()
        finish(part, path)
        self._own_state()
        self._agreement.note(path, self._last)

    def resume(self, pattern: str | os.PathLike[str]) -> Checkpoint | None:
        """Return the newest checkpoint that all ranks have, up to :attr:`last_complete`; None to start anew.

        ``pattern`` is a path with ``{step}`` in place of the number, as in ``"restart/airway.{step}"``. Call this
        method before the first step; with ``comm``, on all ranks together. Checkpoints of later steps belong to a
        future that this attempt replaces: ``.superseded`` is added to their names.

        Raises ``ConflictError`` where there was a checkpoint and it is not found, so that the run does not start over
        and replace the steps that it has: mount the disk, correct the pattern, bring the checkpoint back, or delete the
        steps (:meth:`Table.delete`). If an earlier checkpoint is there, the next attempt resumes from it. With
        ``comm``, the error is raised on all ranks; without it, on the ranks that do not find theirs.
        """
        if self._comm is None:
            return self._resume(pattern)
        return told_by_first(self._comm, lambda: self._resume(pattern))

    def close(self) -> None:
        """Write the remaining steps and end, without waiting for other ranks. Raises the error if writing failed."""
        self._pump.finish()
        self._finish.detach()
        self._pump.check()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._pump.finish()
        self._finish.detach()
        if error is None:
            self._pump.check()
            return
        besides = self._pump.error
        if besides is not None and besides is not error:
            # The error of the body says more about the simulation: keep it, and add this one as a note.
            error.add_note(f"in addition, atoll.Writer failed: {besides}")

    def __repr__(self) -> str:
        return f"<atoll.Writer of run {self.run!r}, attempt {self.attempt}, rank {self.rank} of {self.size}>"

    def _begin_all(
        self, attempt: int | str | None, deck: str | os.PathLike[str] | None, attributes: Mapping[str, Any]
    ) -> int:
        """Begin an attempt and note its provenance; with a communicator, on all ranks or on none."""
        is_first = self.rank == 0 if self._comm is None else self._comm.Get_rank() == 0

        def begin() -> int:
            # Check the notes first: beginning an attempt ends the one before it.
            about = of_run(deck, attributes) if is_first else {}
            number = self._begin(attempt)
            if is_first:
                # The notes of earlier attempts stay, texts as texts and numbers as numbers.
                known = self.table.attributes(run=self.run)
                about = with_attempt(known | about, number)
                # Write changes only, so that values that other writers set meanwhile are not overwritten.
                same = {name for name in known.keys() & about.keys() if repr(known[name]) == repr(about[name])}
                changed = {name: value for name, value in about.items() if name not in same}
                self.table.set_attributes(dict.fromkeys(known.keys() - about.keys()) | changed, run=self.run)
            return number

        if self._comm is None:
            return begin()
        return told_by_first(self._comm, begin) if attempt is None else all_or_none(self._comm, begin)

    def _begin(self, attempt: int | str | None) -> int:
        if attempt is not None:
            number = _attempt_number(attempt)
            self.table.begin(self.run, self.size, attempt=number)
            # This rank has written nothing yet, so any rows of it belong to another start under the same number. The
            # rows that ranks of that start left would become part of the steps of this one.
            if self._state().has_given:
                raise ConflictError.hinted(
                    f"attempt {attempt} of run {self.run!r} has written already", _hint_of_next(attempt)
                )
            return number
        if self.size > 1 and self._comm is None:
            raise InvalidInputError.hinted(
                f"{self.size} ranks must agree which attempt of run {self.run!r} this is",
                "give comm= (an mpi4py communicator), or attempt= (a number that rises with every start of the "
                "simulation, or the scheduler's job id)",
            )
        return self.table.begin(self.run, self.size)

    def _state(self) -> _State:
        state = self.table._native.run_state(self.run, self.rank)
        if state is None:
            raise ConflictError.hinted(
                f"run {self.run!r} is gone from table {self.table.name!r}",
                "another process deleted it; a new writer starts it again",
            )
        return _State(*state)

    def _own_state(self) -> _State:
        """Return the state; raise if a later attempt has begun."""
        state = self._state()
        if state.attempt != self.attempt:
            raise ConflictError.hinted(
                f"attempt {state.attempt} of run {self.run!r} has begun; this is {self.attempt}",
                "another start of this simulation writes the run now: stop one of the two; a new start takes "
                "the next attempt",
            )
        return state

    def _resume(self, pattern: str | os.PathLike[str]) -> Checkpoint | None:
        return self._agreement.resume(pattern, self._state().last_complete)


def _append(table: Table, run: str, attempt: int, place: tuple[int, int], given: Step) -> None:
    """Write a step. The simulation sees a failure at a later step, so a note says which step it was."""
    try:
        _write(table, run, attempt, place, given)
    except Exception as error:
        error.add_note(f"in step {given.step} of run {run!r}, rank {place[0]}")
        raise


def _write(table: Table, run: str, attempt: int, place: tuple[int, int], given: Step) -> None:
    rank, size = place
    try:
        table.append(given.columns, run=run, step=given.step, time=given.time, rank=rank, attempt=attempt)
    except LimitError:
        if size > 1:
            raise
        # Only one rank writes, so all rows are here: a load may split them into several objects in one edit.
        table.load([(given.step, given.time, given.columns)], run=run, attempt=attempt)


def _end_unclosed(pump: Pump, run: str) -> None:
    """Write the remaining steps of a writer that was not closed. The interpreter prints the exception if that fails."""
    if pump.is_own_thread():
        # The pump's own thread happened to garbage-collect the writer; it cannot wait for itself.
        pump.end()
        atexit.register(_end_unclosed, pump, run)
        _before_child_ends(_end_unclosed, pump, run)
        return
    pump.finish()
    pump.check_untold(f"atoll.Writer of run {run!r} was not closed; not all of its steps are written")


def _before_child_ends(do: Callable[..., object], *args: object, of: object = None) -> None:
    """Call `do` before a child of multiprocessing ends, or when `of` is collected before that.

    Some kinds of children end without running the functions registered with `atexit`.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(of, do, args, exitpriority=0)


def _rank_and_size(rank: int | None, size: int | None, comm: Any) -> tuple[int, int]:
    """Return the rank of this writer, and the number of writers."""
    rank = rank if rank is not None else (0 if comm is None else comm.Get_rank())
    size = size if size is not None else (1 if comm is None else comm.Get_size())
    if size < 1 or not 0 <= rank < size:
        raise InvalidInputError.hinted(
            f"there is no rank {rank} of {size}", "ranks count from 0 to size - 1; give both rank= and size=, or comm="
        )
    return rank, size


def _hint_of_next(attempt: int | str) -> str:
    if not isinstance(attempt, str):
        return f"every start needs a higher one: attempt={attempt + 1}"
    job, _, restarts = attempt.partition(":")
    return f'every start needs a higher one; a job that was restarted says so: attempt="{job}:{int(restarts or 0) + 1}"'


def _attempt_number(attempt: int | str) -> int:
    """Return a number as it is, and ids such as `81234.server` and its third restart `81234:3` as rising numbers."""
    if not isinstance(attempt, str):
        return whole(attempt, "attempt")
    found = re.fullmatch(r"(\d+)(?:[^\d:][^:]*)?(?::(\d+))?", attempt)
    if found is None or int(found[2] or 0) >= JOB_RESTARTS_MAX:
        raise InvalidInputError.hinted(
            f"{attempt!r} is not the id of a job", "write its number, and after a colon how often it was restarted"
        )
    return int(found[1]) * JOB_RESTARTS_MAX + int(found[2] or 0)
