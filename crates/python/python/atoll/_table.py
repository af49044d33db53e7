"""Tables: rows with a schema, from which a sample of any region is cheap to read."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from math import inf, isnan
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

from . import _atoll
from ._appending import Appending
from ._attributes import Noted
from ._convert import fields, label, number, steps_between, whole
from ._expression import Expression, col, column_parts, condition_text
from ._query import Asking, Query
from ._told import Copied, Info, Packed, Run, Step, Vacuumed
from .errors import AtollError, InvalidInputError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from ._store import Store, Stores


#: The longest single wait for a new version, in seconds; after it the next wait begins.
_FOLLOW_SECONDS = 60.0

#: How long to wait for a running pack to stop, in seconds.
_STOP_SECONDS = 1.0


def _step_identity(step: Step) -> tuple[str, ...]:
    """Return what identifies a step. `repr` makes a NaN time equal to itself."""
    return tuple(map(repr, step))


#: The attempt of a run, and the last step that the attempt made visible.
_Progress = tuple[int, int | None]


def _first_new(before: list[_Progress], now: list[_Progress]) -> int:
    """Return the first step of a run that may be new: the steps of an attempt become complete in rising order."""
    if not before or [attempt for attempt, _ in before] != [attempt for attempt, _ in now]:
        return 0
    return min(0 if last is None else min(last + 1, 2**64 - 1) for _, last in before)


class Table(Asking, Noted, Appending):
    """A table of a store: created by :meth:`Store.create_table`, opened by :meth:`Store.table`.

    A table answers everything that a query answers: ``t.box(...)``, ``t.sample(0.01)``, ``t.arrow()``. It can be
    pickled: the pickle holds the place of the store and the name of the table.
    """

    def __init__(self, native: _atoll.Table, store: Store | Stores) -> None:
        super().__init__()
        self._native = native
        self._store = store
        self._packer: _atoll.Packer | None = None

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._native.name

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return self._native.columns

    @property
    def schema(self) -> _atoll.Schema:
        """The columns, printed with types, units and descriptions; ``pyarrow.schema(t.schema)`` and others read it."""
        return self._native.schema

    def add_column(
        self, name: str, kind: Any, *, unit: str | None = None, description: str | None = None
    ) -> int:
        """Add a nullable column and return the first version that has it.

        ``t.add_column("charge", "float32", unit="e", description="partial charge")``. ``kind`` is a type as for
        :meth:`Store.create_table`; ``unit`` and ``description`` take the place of those that a PyArrow field has.
        Existing rows have no value in the column; rows appended later may. Writers that do
        not know the column continue unchanged, and earlier versions are read without it. Adding the same column again
        changes nothing.

        Raises ``InvalidInputError`` for a name that another column has, and ``ConflictError`` where another process is
        adding a column of that name.
        """
        [(_, type_name, _, noted)] = fields({label(name, "the name of a column"): kind})
        told = (("unit", unit), ("description", description))
        notes = {key: label(text, key) for key, text in told if text is not None}
        return self._native.add_column(name, type_name, {**noted, **notes})

    @property
    def id(self) -> list[str]:
        """The columns that identify a row."""
        return self._native.roles[0]

    @property
    def sample_key(self) -> list[str]:
        """The columns that identify a unit of sampling."""
        return self._native.roles[1]

    @property
    def index(self) -> list[str]:
        """The columns on which boxes are cheap."""
        return self._native.roles[2]

    @property
    def unique(self) -> bool:
        """Whether the table refuses rows whose id their run already has."""
        return self._native.unique

    @property
    def time_unit(self) -> str | None:
        """The unit of the times of steps, as it was given to :meth:`Store.create_table`; ``None`` if none was."""
        return self._native.time_unit

    @property
    def store(self) -> Store | Stores:
        """The store that holds the table; several, for one table of several stores."""
        return self._store

    def version(self) -> int:
        """Return the number of the current version; every change makes the next version."""
        return self._native.version()

    def query(self) -> Query:
        """Return a query for the whole table."""
        return Query(self)

    def runs(self, *, where: Expression | str | None = None) -> list[Run]:
        """Return the runs, by name; with ``where``, those whose attributes satisfy a condition.

        ``t.runs(where="temperature > 300 and solvent = 'water'")``. An attribute that a run lacks is null, and ``run``
        is the name of the run. Raises ``InvalidInputError`` for an attribute that no run has.
        """
        return [Run(*found) for found in self._native.runs(None if where is None else condition_text(where))]

    def steps(self, run: str | None = None) -> list[Step]:
        """Return the complete steps, of one run or of all, in order."""
        return [Step(*found) for found in self._native.steps(None if run is None else label(run, "run"))]

    def last_complete(self, run: str) -> int | None:
        """Return the last step of a run for which every rank's rows are present; ``None`` before the first."""
        return self._native.last_complete(label(run, "run"))

    def at(
        self, *, step: SupportsIndex | None = None, time: SupportsFloat | None = None, nearest: bool = False
    ) -> Query:
        """Select the rows of one step: by number, or by physical time (with ``nearest``, the closest time there is).

        ``time`` is in :attr:`time_unit`, or else in the unit in which the writer gave it.

        Needs a column ``step``. A step number is a condition like any other: nothing is looked up, and a step that does
        not exist has no rows. A time is looked up now; where several runs have steps of that time, the query covers the
        rows of all of them.

        Raises ``NotFoundError`` where no step has that time, and ``UnsupportedError`` where that time is a different
        step in different runs and one query cannot tell them apart.
        """
        if (step is None) == (time is None):
            raise InvalidInputError.hinted("at needs a step or a time, but not both", "write at(step=7) or at(time=0.5)")
        if step is not None:
            return self._of_steps([whole(step, "step")])
        wanted = number(time, "a time")
        return self._of_pairs(self._at_time(wanted, nearest=nearest), f"time {wanted:g}")

    def _at_time(self, wanted: float, *, nearest: bool) -> tuple[list[Step], list[Step]]:
        """Return the steps of that time, and all others."""
        found = self.steps()
        # A NaN time is never the closest.
        far = [inf if step.time is None or isnan(step.time - wanted) else abs(step.time - wanted) for step in found]
        away = min(far, default=inf)
        if away == inf or (away > 0 and not nearest):
            raise NotFoundError.hinted(f"no step has time {wanted:g}", "nearest=True takes the closest one")
        meant = [step for step, distance in zip(found, far, strict=True) if distance == away]
        return meant, [step for step, distance in zip(found, far, strict=True) if distance != away]

    def _of_pairs(self, divided: tuple[list[Step], list[Step]], called: str) -> Query:
        """Select some steps of some runs. A query names runs and steps, but cannot pair a step with one of the runs."""
        meant, others = divided
        runs, steps = {step.run for step in meant}, {step.step for step in meant}
        for other in others:
            if other.run in runs and other.step in steps:
                first = meant[0]
                raise UnsupportedError.hinted(
                    f"{called} is a different step in different runs, and step {other.step} of run "
                    f"{other.run!r} also has another time: one query cannot tell them apart",
                    f"query each run by itself: of_runs({first.run!r}).where(\"step = {first.step}\")",
                )
        return self._of_steps(sorted(steps)).of_runs(*sorted(runs))

    def last(self) -> Query:
        """Select the rows of the last complete step; of several runs, the one with the greatest step number.

        Needs a column ``step``. Raises ``NotFoundError`` before the first complete step.
        """
        complete = [run.last_complete for run in self.runs() if run.last_complete is not None]
        if not complete:
            raise NotFoundError.hinted("no step is complete yet", "follow() waits for new steps")
        return self._of_steps([max(complete)])

    def _of_steps(self, steps: list[int]) -> Query:
        if "step" not in self.columns:
            raise UnsupportedError.hinted(
                "the table has no column \"step\"", "give it one, or query by a column that it has: where(...)"
            )
        return self.where(col("step") == steps[0] if len(steps) == 1 else col("step").is_in(steps))

    def follow(self, run: str | None = None, *, from_start: bool = False) -> Iterator[Step]:
        """Yield each step, of one run or of all, as it becomes complete; forever, until Ctrl-C or ``break``.

        Begins with the next step to complete or, with ``from_start``, with the steps that are already complete. A step
        that a later attempt writes again is yielded again.
        """
        run = None if run is None else label(run, "run")
        # "Next" counts from this call, not from the first `next()` on the iterator that it returns.
        version = self.version()
        seen = Counter() if from_start else Counter(map(_step_identity, self._steps_so_far(run)))
        return self._arriving(run, version, seen)

    def _arriving(self, run: str | None, version: int, seen: Counter[tuple[str, ...]]) -> Iterator[Step]:
        told: dict[str, list[_Progress]] = {}
        while True:
            # A multiset, since steps of several stores may be equal in every field.
            there: Counter[tuple[str, ...]] = Counter()
            for found in self._steps_since(run, told):
                known = _step_identity(found)
                there[known] += 1
                if there[known] > seen[known]:
                    seen[known] += 1
                    yield found
            version = self._native.follow(version, _FOLLOW_SECONDS)

    def _steps_since(self, run: str | None, told: dict[str, list[_Progress]]) -> list[Step]:
        """Return the steps that may be new since ``told``. Most versions add rows of one rank and complete no step."""
        now: dict[str, list[_Progress]] = {}
        for each in self.runs():
            if run is None or each.name == run:
                now.setdefault(each.name, []).append((each.attempt, each.published))
        found = []
        for name, progress in now.items():
            before = told.get(name, [])
            if progress != before:
                found += self._native.steps(name, _first_new(before, progress))
                told[name] = progress
        return [Step(*step) for step in found]

    def _steps_so_far(self, run: str | None) -> list[Step]:
        try:
            return self.steps(run)
        except NotFoundError:
            # The run that the caller waits for may not have begun.
            return []

    def pack(self, *, whole: bool = False, share: float = 1.0, bytes_per_second: SupportsIndex | None = None) -> Packed:
        """Rearrange appended rows so that boxes and samples read little more than they return.

        Answers stay the same, except for which of several rows with the same id, from several runs, comes first. Packs
        what is worth packing or, with ``whole``, everything at any cost. Uses at most ``share`` of a processor, above 0
        and up to 1, and reads and writes at most ``bytes_per_second``, both together; by default there is no limit.
        Packing again is harmless, from any process; other processes may append and query meanwhile. Ctrl-C ends it:
        what was packed so far stays packed.

        Raises ``InvalidInputError`` for a share or budget that makes no sense.
        """
        return Packed(**self._native.pack(bool(whole), number(share, "share"), budget_of(bytes_per_second)))

    def info(self) -> Info:
        """Describe the current version: rows, bytes, blocks, runs and steps.

        For several stores as one, these are totals: runs of the same name in two stores count as two.
        """
        return Info(**self._native.info())

    def delete(
        self,
        where: Expression | str | None = None,
        *,
        run: str | None = None,
        steps: tuple[SupportsIndex | None, SupportsIndex | None] | range | None = None,
        all: bool = False,
    ) -> int:
        """Delete the rows that are present now and match every argument; return the version without them.

        ``t.delete("x is nan")``, ``t.delete(run="b")``, ``t.delete(run="a", steps=(100, None))``, where ``steps`` is
        the first step and the one after the last, or a range such as ``range(100, 200)``; ``all=True`` deletes
        everything. Rows appended later are not affected. Earlier versions keep the rows until :meth:`vacuum`. Deleting
        a whole run deletes its attributes too, unless a snapshot may show the run.

        Raises ``NotFoundError`` for a run that does not exist, and ``InvalidInputError`` for a condition that does not
        fit the table.
        """
        if all == any(said is not None for said in (where, run, steps)):
            raise InvalidInputError.hinted(
                "delete needs a condition, run=, steps= or all=True", "all=True deletes everything"
            )
        between = None if steps is None else steps_between(steps)
        run = None if run is None else label(run, "run")
        return self._native.delete(run, between, None if where is None else condition_text(where))

    def create_snapshot(self, name: str, version: int | None = None) -> int:
        """Keep a version, by default the current one, under a name; return the version.

        ``t.as_of(name)`` queries it, whatever :meth:`vacuum` removes. Creating the same snapshot again changes nothing.

        Raises ``ConflictError`` where the name belongs to a snapshot of another version, and ``NotFoundError`` for a
        version that no longer exists.
        """
        name = label(name, "the name of a snapshot")
        return self._native.create_snapshot(name, None if version is None else whole(version, "version"))

    def snapshots(self) -> dict[str, int]:
        """Return the snapshots: the version that each keeps, by name."""
        return dict(self._native.snapshots())

    def delete_snapshot(self, name: str) -> None:
        """Delete a snapshot. The next :meth:`vacuum` removes what only the snapshot kept.

        Raises ``NotFoundError`` if there is no snapshot of that name.
        """
        self._native.delete_snapshot(label(name, "the name of a snapshot"))

    def vacuum(self) -> Vacuumed:
        """Remove what only earlier versions need.

        Earlier versions can then no longer be queried, except those that a snapshot keeps. Leftovers of processes that
        ended in the middle of a write are removed too. A query that is reading meanwhile restarts by itself; a
        :meth:`refine` may end with ``NotFoundError``.
        """
        return Vacuumed(*self._native.vacuum())

    def copy_to(self, store: Store, name: str | None = None, *, version: int | str | None = None) -> Copied:
        """Copy the table to another store, such as a ring, or within its own store to another ``name``.

        The copy has everything that one version shows: rows, runs, steps, times and attributes; both tables give the
        same samples. Older versions, snapshots and incomplete steps are not copied. ``version`` is a number or the name
        of a snapshot; by default the current version is copied.

        Other processes may write meanwhile. An interrupted copy is not yet a table: the same call continues it, and
        :meth:`Store.drop_table` removes it.

        Raises ``ConflictError`` if the store has a table of that name, and ``NotFoundError`` for a version that no
        longer exists.
        """
        if not hasattr(store, "drop_table"):
            hint = "open the store first: copy_to(atoll.open(...)); a name within it is name="
            raise InvalidInputError.hinted(f"a table is copied to a store, not to {store!r}", hint)
        number = self._native.snapshot_version(version) if isinstance(version, str) else version
        number = None if number is None else whole(number, "version")
        return Copied(*self._native.copy_to(store._native, name or self.name, number))

    def keep_packed(
        self, *, share: float = 1.0, bytes_per_second: SupportsIndex | None = None, idle: float = 10.0
    ) -> None:
        """Keep the table packed from now on, in a thread of this process, as ``pack="background"`` does.

        Packs appended rows once that is worthwhile, and the remainder after ``idle`` seconds without an append. Uses at
        most ``share`` of a processor, and reads and writes at most ``bytes_per_second``. If several handles or
        processes keep a table packed, one of them works at a time. Packing ends with :meth:`stop_packing`, when the
        store is closed, or when nothing refers to this table any more; what was packed stays, and no change is left
        half done.

        Raises ``InvalidInputError`` for a share or budget that makes no sense.
        """
        # Start the new packer before stopping the old one, so that a refused call stops nothing.
        budget = budget_of(bytes_per_second)
        began = self._native.keep_packed(number(share, "share"), budget, number(idle, "idle"))
        try:
            self.stop_packing()
        finally:
            self._packer = began
            # Only a table of a single store gets here.
            self._store._packing.add(self)  # type: ignore[union-attr]

    def stop_packing(self) -> None:
        """Stop what :meth:`keep_packed` started; if packing had already failed, raise its error.

        Returns at once, or within a second while a pack is computing; the result of that computation is discarded.
        """
        packer, self._packer = self._packer, None
        if packer is not None:
            packer.stop(_STOP_SECONDS)
            packer.check()

    @property
    def packing(self) -> Packed | None:
        """What was packed since this handle began to keep the table packed; ``None`` if it does not."""
        if self._packer is None:
            return None
        is_running, report = self._packer.progress()
        if not is_running:
            self.stop_packing()
        return Packed(**report)

    def __reduce__(self) -> tuple[Any, ...]:
        from ._reopened import reopened_table

        return reopened_table, (self._store._place(), self.name)

    def __repr__(self) -> str:
        try:
            # Those that are known: showing a table or a query reads nothing.
            columns = ", ".join(self._native.known_columns)
        except AtollError as error:
            # A traceback or a notebook may show this text: it never fails.
            return f'<atoll table "{self.name}", whose columns cannot be read now: {error}>'
        times = f"; times in {self.time_unit}" if self.time_unit else ""
        return f'<atoll table "{self.name}": {columns}{times}>'

    def _repr_html_(self) -> str | None:
        try:
            described = self.schema.fields()
            # An index column may be an element of a vector.
            roles = {
                role: {column_parts(name, self)[0] for name in named}
                for role, named in (("id", self.id), ("sample key", self.sample_key), ("index", self.index))
            }
        except AtollError:
            # The store cannot be reached: a notebook shows the text of `repr` instead.
            return None
        body = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(_type_shown(kind))}{' or null' if nullable else ''}</td>"
            f"<td>{', '.join(role for role, columns in roles.items() if name in columns)}</td></tr>"
            for name, kind, nullable in described
        )
        head = "<tr><th>column</th><th>type</th><th>role</th></tr>"
        times = f", times in {html.escape(self.time_unit)}" if self.time_unit else ""
        table = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
        return f"<p>Table <b>{html.escape(self.name)}</b>{times}</p>{table}"


def budget_of(bytes_per_second: SupportsIndex | None) -> int | None:
    """Check the bytes that a pack may read and write per second; ``None`` for no limit."""
    return None if bytes_per_second is None else whole(bytes_per_second, "bytes_per_second")


def _type_shown(kind: str) -> str:
    """Format a type as :meth:`Store.create_table` takes it: ``float32[3]`` for vectors."""
    element, comma, length = kind.removeprefix("fixed_size_list[").removesuffix("]").partition(", ")
    return f"{element}[{length}]" if comma else kind
