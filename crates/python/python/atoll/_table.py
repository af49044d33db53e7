"""Tables: rows with a schema, of which every sample of every region is cheap."""

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
from .errors import InvalidInputError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from ._store import Store, Stores


#: How long one wait for a new version lasts; then the next one begins.
_FOLLOW_SECONDS = 60.0

#: How long a pack that computes is waited for when it is to stop.
_STOP_SECONDS = 1.0


def _known_as(step: Step) -> tuple[str, ...]:
    """What tells it from other steps. A time that is no number is no other one than itself here."""
    return tuple(map(repr, step))


#: The attempt of a run, and the last step that it made visible.
_Progress = tuple[int, int | None]


def _first_new(before: list[_Progress], now: list[_Progress]) -> int:
    """From which step on a run may have new ones: those of an attempt become complete in rising order."""
    if not before or [attempt for attempt, _ in before] != [attempt for attempt, _ in now]:
        return 0
    return min(0 if last is None else min(last + 1, 2**64 - 1) for _, last in before)


class Table(Asking, Noted, Appending):
    """A table of a store; made by :meth:`Store.create_table`, opened by :meth:`Store.table`.

    Everything that can be asked of a query can be asked of a table: ``t.box(...)``, ``t.sample(0.01)``, ``t.arrow()``.
    Can be pickled: what is pickled is the place of the store and the name.
    """

    def __init__(self, native: _atoll.Table, store: Store | Stores) -> None:
        super().__init__()
        self._native = native
        self._store = store
        self._packer: _atoll.Packer | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def columns(self) -> list[str]:
        """Names of its columns, in their order."""
        return self._native.columns

    @property
    def schema(self) -> _atoll.Schema:
        """Its columns, with types, units and descriptions when printed; ``pyarrow.schema(t.schema)`` and others read it."""
        return self._native.schema

    def add_column(
        self, name: str, kind: Any, *, unit: str | None = None, description: str | None = None
    ) -> int:
        """Adds a column, which may be null: rows that are there have no value in it, rows that come may.

        ``t.add_column("charge", "float32", unit="e", description="partial charge")``. ``kind`` is a type as for
        :meth:`Store.create_table`. Writers that know nothing of the column go on as before; versions before it are asked
        without it. Answers the version from which on it is there; adding the same column again changes nothing.

        Raises ``InvalidInputError`` for a name that another column has, ``ConflictError`` where another process adds one
        of that name just now.
        """
        [(_, type_name, _)] = fields({label(name, "the name of a column"): kind})
        told = (("unit", unit), ("description", description))
        notes = {key: label(text, key) for key, text in told if text is not None}
        return self._native.add_column(name, type_name, notes)

    @property
    def id(self) -> list[str]:
        """The columns that name a row."""
        return self._native.roles[0]

    @property
    def sample_key(self) -> list[str]:
        """The columns that name a unit of sampling."""
        return self._native.roles[1]

    @property
    def index(self) -> list[str]:
        """The columns that boxes are about."""
        return self._native.roles[2]

    @property
    def unique(self) -> bool:
        """Whether it refuses rows whose id their run has already."""
        return self._native.unique

    @property
    def store(self) -> Store | Stores:
        """The store it lies in; several, if it is one table of several stores."""
        return self._store

    def version(self) -> int:
        """The number of the version that is current; every edit makes the next."""
        return self._native.version()

    def query(self) -> Query:
        """The query for all of it."""
        return Query(self)

    def runs(self, *, where: Expression | str | None = None) -> list[Run]:
        """The runs in it, by name; with ``where``, those whose attributes satisfy a condition.

        ``t.runs(where="temperature > 300 and solvent = 'water'")``: a run that lacks an attribute has no value in it,
        and ``run`` is its name. Raises ``InvalidInputError`` for an attribute that no run has.
        """
        return [Run(*found) for found in self._native.runs(None if where is None else condition_text(where))]

    def steps(self, run: str | None = None) -> list[Step]:
        """The complete steps of a run, or of all, in their order."""
        return [Step(*found) for found in self._native.steps(None if run is None else label(run, "run"))]

    def last_complete(self, run: str) -> int | None:
        """The last step of a run of which every rank's rows are there; ``None`` before the first."""
        return self._native.last_complete(label(run, "run"))

    def at(
        self, *, step: SupportsIndex | None = None, time: SupportsFloat | None = None, nearest: bool = False
    ) -> Query:
        """The rows of one step: by its number, or by its physical time (with ``nearest``, the closest there is).

        Needs a column ``step``. A number is a condition like any other: nothing is looked up, and a step that is not there
        has no rows. Where several runs have steps of that time, the rows of all of them are meant; which these are is
        looked up now.

        Raises ``NotFoundError`` where no step has that time, ``UnsupportedError`` where that time is a different step in
        different runs, and one query cannot tell them apart.
        """
        if (step is None) == (time is None):
            raise InvalidInputError.hinted("at needs a step or a time, and not both", "write at(step=7) or at(time=0.5)")
        if step is not None:
            return self._of_steps([whole(step, "step")])
        wanted = number(time, "a time")
        return self._of_pairs(self._at_time(wanted, nearest=nearest), f"time {wanted:g}")

    def _at_time(self, wanted: float, *, nearest: bool) -> tuple[list[Step], list[Step]]:
        """The steps of that time, and all others."""
        found = self.steps()
        # A time that is no number is never the closest.
        far = [inf if step.time is None or isnan(step.time - wanted) else abs(step.time - wanted) for step in found]
        away = min(far, default=inf)
        if away == inf or (away > 0 and not nearest):
            raise NotFoundError.hinted(f"no step has time {wanted:g}", "nearest=True takes the closest one")
        meant = [step for step, distance in zip(found, far, strict=True) if distance == away]
        return meant, [step for step, distance in zip(found, far, strict=True) if distance != away]

    def _of_pairs(self, divided: tuple[list[Step], list[Step]], called: str) -> Query:
        """The rows of some steps of some runs: a query can say which runs and which steps, but not which of which."""
        meant, others = divided
        runs, steps = {step.run for step in meant}, {step.step for step in meant}
        for other in others:
            if other.run in runs and other.step in steps:
                first = meant[0]
                raise UnsupportedError.hinted(
                    f"{called} is that of different steps in different runs, and step {other.step} of run "
                    f"{other.run!r} has another: one query cannot tell them apart",
                    f"ask each run by itself: of_runs({first.run!r}).where(\"step = {first.step}\")",
                )
        return self._of_steps(sorted(steps)).of_runs(*sorted(runs))

    def last(self) -> Query:
        """The rows of the last complete step; of several runs, the greatest step number.

        Needs a column ``step``. Raises ``NotFoundError`` before the first step.
        """
        complete = [run.last_complete for run in self.runs() if run.last_complete is not None]
        if not complete:
            raise NotFoundError.hinted("no step is complete yet", "follow() waits for the steps that come")
        return self._of_steps([max(complete)])

    def _of_steps(self, steps: list[int]) -> Query:
        if "step" not in self.columns:
            raise UnsupportedError.hinted(
                "the table has no column \"step\"", "give it one, or ask by a column that you have: where(...)"
            )
        return self.where(col("step") == steps[0] if len(steps) == 1 else col("step").is_in(steps))

    def follow(self, run: str | None = None, *, from_start: bool = False) -> Iterator[Step]:
        """Yields each step, of a run or of all, as it becomes complete; for ever, until Ctrl-C or ``break``.

        Begins with the next one, or with those that are there. A step that a later attempt writes again comes again.
        """
        # From now on means from this call, not from the first step that is taken from what it returns.
        version = self.version()
        seen = Counter() if from_start else Counter(map(_known_as, self._steps_so_far(run)))
        return self._arriving(run, version, seen)

    def _arriving(self, run: str | None, version: int, seen: Counter[tuple[str, ...]]) -> Iterator[Step]:
        told: dict[str, list[_Progress]] = {}
        while True:
            # Counted, since steps of several stores may be alike in everything that is told of them.
            there: Counter[tuple[str, ...]] = Counter()
            for found in self._steps_since(run, told):
                known = _known_as(found)
                there[known] += 1
                if there[known] > seen[known]:
                    seen[known] += 1
                    yield found
            version = self._native.follow(version, _FOLLOW_SECONDS)

    def _steps_since(self, run: str | None, told: dict[str, list[_Progress]]) -> list[Step]:
        """The steps that may be new since what was told of the runs: most versions bring one rank's rows and no step."""
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
            # A run that is waited for may not have begun.
            return []

    def pack(self, *, whole: bool = False, share: float = 1.0) -> Packed:
        """Rearranges what was appended, so that boxes and samples read little more than they return.

        Changes no answer, but for which of the rows of one id, where several runs have them, comes first. Does what is worth
        doing, or, with ``whole``, everything, whatever that costs; takes at most this ``share`` of a processor, above 0 and
        up to 1. Doing it again is harmless, in any process; others may append and ask meanwhile.
        """
        return Packed(**self._native.pack(bool(whole), number(share, "share")))

    def info(self) -> Info:
        """What the current version is made of: rows, bytes, blocks, runs and steps. Of several stores as one that of all
        together: runs of one name in two stores are two.
        """
        return Info(**self._native.info())

    def delete(
        self,
        where: Expression | str | None = None,
        *,
        run: str | None = None,
        steps: tuple[SupportsIndex | None, SupportsIndex | None] | None = None,
        all: bool = False,
    ) -> int:
        """Deletes the rows that are there now and meet all that is said; the version in which they are gone.

        ``t.delete("x is nan")``, ``t.delete(run="b")``, ``t.delete(run="a", steps=(100, None))`` with the first step and
        the one behind the last; everything with ``all=True``. Rows that come later stay. Versions before keep what they
        had, until :meth:`vacuum`. With a whole run go its attributes, unless a snapshot may show the run.

        Raises ``NotFoundError`` for a run that is not there, ``InvalidInputError`` for a condition that does not fit.
        """
        if all == any(said is not None for said in (where, run, steps)):
            raise InvalidInputError.hinted(
                "delete needs to be told which rows", "give a condition, run= or steps=; or all=True for everything"
            )
        between = None if steps is None else steps_between(steps)
        run = None if run is None else label(run, "run")
        return self._native.delete(run, between, None if where is None else condition_text(where))

    def create_snapshot(self, name: str, version: int | None = None) -> int:
        """Keeps a version, the current one unless another is given, under a name; the version.

        ``t.as_of(name)`` asks it, whatever :meth:`vacuum` takes away. Doing it again changes nothing.

        Raises ``ConflictError`` where there is one of that name with another version, ``NotFoundError`` for a version
        that is gone.
        """
        name = label(name, "the name of a snapshot")
        return self._native.create_snapshot(name, None if version is None else whole(version, "version"))

    def snapshots(self) -> dict[str, int]:
        """The snapshots: the version that each keeps, by name."""
        return dict(self._native.snapshots())

    def delete_snapshot(self, name: str) -> None:
        """Forgets a snapshot. What only it kept goes with the next :meth:`vacuum`.

        Raises ``NotFoundError`` if there is none of that name.
        """
        self._native.delete_snapshot(label(name, "the name of a snapshot"))

    def vacuum(self) -> Vacuumed:
        """Removes what only versions before the current one need; they can be asked no longer, but for those that a
        snapshot keeps. Also removes what processes left that ended while they wrote.

        A query that reads meanwhile begins again by itself; a :meth:`refine` may end with ``NotFoundError``.
        """
        return Vacuumed(*self._native.vacuum())

    def copy_to(self, store: Store, name: str | None = None, *, version: int | str | None = None) -> Copied:
        """Copies the table to another store, such as a ring, or in its own store to another ``name``.

        What a version shows comes along as it is: rows, runs, steps, times, attributes; so the same samples come of both.
        Older versions, snapshots and steps that are not complete do not. ``version`` is a number or the name of a
        snapshot; without it the current one is copied.

        Others may write meanwhile. What was interrupted is no table yet: the same call goes on with it, and
        :meth:`Store.drop_table` removes it.

        Raises ``ConflictError`` if the store has a table of that name, ``NotFoundError`` for a version that is gone.
        """
        if not hasattr(store, "drop_table"):
            hint = "open the store first: copy_to(atoll.open(...)); a name within it is name="
            raise InvalidInputError.hinted(f"a table is copied to a store, and {store!r} is none", hint)
        number = self._native.snapshot_version(version) if isinstance(version, str) else version
        number = None if number is None else whole(number, "version")
        return Copied(*self._native.copy_to(store._native, name or self.name, number))

    def keep_packed(self, *, share: float = 1.0, bytes_per_second: int | None = None, idle: float = 10.0) -> None:
        """Keeps the table packed from now on, in a thread of this process, as ``pack="background"`` does.

        Packs what is appended once it is worth it, and what is left when nothing came for ``idle`` seconds. Takes at
        most this ``share`` of a processor, and reads and writes at most so many ``bytes_per_second``. Of all handles
        and processes that keep a table packed, one does at a time. Ends with :meth:`stop_packing`, when the store is
        closed, or when nothing refers to this table any more; what was packed stays, and nothing is half done.

        Raises ``InvalidInputError`` for a share or budget that makes no sense.
        """
        if bytes_per_second is not None:
            bytes_per_second = whole(bytes_per_second, "bytes_per_second")
        # A call that is refused ends nothing, so the new one begins before the old one ends.
        budget = None if bytes_per_second is None else whole(bytes_per_second, "bytes_per_second")
        began = self._native.keep_packed(number(share, "share"), budget, number(idle, "idle"))
        try:
            self.stop_packing()
        finally:
            self._packer = began
            # Only a table of one store comes so far.
            self._store._packing.add(self)  # type: ignore[union-attr]

    def stop_packing(self) -> None:
        """Ends what :meth:`keep_packed` began; raises what went wrong, if it had ended by itself.

        Returns at once, or within a second if it has just begun to compute; the rest of that computation is in vain.
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
        return f'<atoll table "{self.name}": {", ".join(self.columns)}>'

    def _repr_html_(self) -> str:
        roles = {"id": self.id, "sample key": self.sample_key, "index": self.index}

        def of(column: str) -> str:
            # An index column may be an element of a vector.
            return ", ".join(
                role for role, columns in roles.items() if any(column == column_parts(name, self)[0] for name in columns)
            )

        body = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(_type_shown(kind))}{' or null' if nullable else ''}</td>"
            f"<td>{of(name)}</td></tr>"
            for name, kind, nullable in self.schema.fields()
        )
        head = "<tr><th>column</th><th>type</th><th>role</th></tr>"
        return f"<p>Table <b>{html.escape(self.name)}</b></p><table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _type_shown(kind: str) -> str:
    """A type as it is written when a table is made: ``float32[3]`` of vectors."""
    element, comma, length = kind.removeprefix("fixed_size_list[").removesuffix("]").partition(", ")
    return f"{element}[{length}]" if comma else kind
