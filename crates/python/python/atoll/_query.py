"""Queries: which rows are wanted, said step by step, and nothing read until an answer is asked for."""

from __future__ import annotations

import builtins
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat, SupportsIndex

from . import _atoll
from ._answer import Answer, Work
from ._cell import Cell
from ._convert import batch_rows, number, whole
from ._estimate import (
    Bin,
    Estimate,
    Estimating,
    Groups,
    Tolerant,
    _made,
    _Question,
    binned,
    estimated,
    grouped,
    tolerant,
)
from ._expression import Expression, column_name, column_text, condition_text, literal
from ._of_runs import OfRun, run_told, runs_in_both, runs_wanted
from ._plot import Plot, is_there, vector_element
from .errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    import numpy
    import pandas
    import polars
    import pyarrow
    from numpy.typing import ArrayLike

    from ._table import Table


class Asking(Estimating):
    """What can be asked, of a table as of a query on it. Every call gives a new query; none reads anything."""

    def query(self) -> Query:
        """The query itself; of a table, the one for all of it."""
        raise NotImplementedError

    def box(
        self,
        sides: Mapping[str, tuple[Any, Any]] | str | None = None,
        /,
        *,
        wrap: Cell | bool = False,
        **named: tuple[Any, Any],
    ) -> Query:
        """Rows within ranges, each ``(low, high)``: low is within, high is not, ``None`` leaves an end open.

        ``t.box(x=(0, 1), time=(2.0, None))``; names that are no Python names, and elements of vectors, in a mapping:
        ``t.box({"pos[0]": (0, 1)})``; or the text that the command line takes: ``t.box("x=0:1, time=2.0:")``.

        With ``wrap`` the box goes on behind the boundary of a periodic cell, the one that is given or, with ``True``, the
        one that the table has (:meth:`Table.set_cell`): it is the union of the pieces of its images, each half-open.
        Positions are taken to lie in the cell or at most one cell beside it, as simulations write them. A side with an
        open end, and columns that are no axis of the cell, are as they are.

        Raises ``InvalidInputError`` for a range inside out or a column named twice, or where there is no cell to wrap.
        """
        if not isinstance(wrap, Cell | bool):
            raise InvalidInputError.hinted(
                f"wrap is a cell, or whether to take the table's, not {wrap!r}",
                'name a column that is called so in a mapping: box({"wrap": (low, high)})',
            )
        if sides is not None and not isinstance(sides, str | Mapping):
            raise InvalidInputError.hinted(
                f"a side of a box has the name of its column, and {sides!r} has none", "write box(x=(low, high))"
            )
        text = sides if isinstance(sides, str) else ", ".join(_side(*side) for side in (sides or {}).items())
        text = ", ".join(part for part in (text, *(_side(*side) for side in named.items())) if part)
        if not text:
            return self.query()
        if wrap is False:
            return self.query()._and(_atoll.box_condition(text))
        return self.query()._and(_atoll.wrapped_condition(self._cell(wrap)._parts(), text))

    def near(
        self,
        point: ArrayLike,
        radius: SupportsFloat,
        *,
        cell: Cell | bool = True,
        axes: Sequence[str] | str | None = None,
    ) -> Query:
        """Rows at most ``radius`` from a point: ``t.near((1, 2, 3), 0.5)``.

        In the periodic cell of the one run that is asked for, or of the table (:meth:`Table.set_cell`), or another one, it
        is the distance to the nearest image of a row, upright and leaning cells alike, wherever the row was stored: neither
        it nor the point has to lie in the cell. Without a cell, or with ``cell=False``, it is the plain distance, of the
        columns ``axes``: by default the first index columns, as many as the point has numbers. Both ends are included;
        computed in doubles.

        Raises ``InvalidInputError`` for a point of other axes than the cell, a radius below 0 or beyond 32 cells.
        """
        if isinstance(point, str) or not hasattr(point, "__iter__"):
            raise InvalidInputError.hinted(
                f"a point has a number for each axis, and {point!r} is not several", "write near((1, 2, 3), 0.5)"
            )
        point, radius = [number(each, "each of a point") for each in point], number(radius, "a radius")
        found = self._known_cell() if cell is True else (cell or None)
        if found is None:
            names = axes or self.query().table.index[: len(point)]
            found = Cell((math.inf,) * len(point), axes=(names,) if isinstance(names, str) else tuple(names))
        elif axes is not None:
            found = dataclasses.replace(found, axes=(axes,) if isinstance(axes, str) else tuple(axes))
        return self.query()._and(_atoll.near_condition(found._parts(), point, radius))

    def _known_cell(self) -> Cell | None:
        """The cell of the one run that is asked for, or that of the table."""
        query = self.query()
        runs = {run if isinstance(run, str) else run[1] for run in query.runs or ()}
        return query.table.cell(run=runs.pop() if len(runs) == 1 else None)

    def _cell(self, wrap: Cell | bool) -> Cell:
        found = wrap if isinstance(wrap, Cell) else self._known_cell()
        if found is None:
            raise InvalidInputError.hinted("the table has no cell to wrap a box in", "give wrap=atoll.Cell(...), or set_cell")
        return found

    def where(self, *conditions: Expression | str) -> Query:
        """Rows for which all of these conditions are true: ``t.where(atoll.col("type") == 2)`` or
        ``t.where("type = 2")``.

        Raises ``InvalidInputError`` for a text that is no condition, with the place.
        """
        query = self.query()
        for condition in conditions:
            query = query._and(_atoll.condition(condition_text(condition)))
        return query

    def select(self, *columns: str | Expression) -> Query:
        """These columns, in this order, each as a whole: elements of vectors are taken from the answer.

        Raises ``InvalidInputError`` for an element of a vector, and for what names no column.
        """
        if not columns or not all(isinstance(column, str | Expression) for column in columns):
            raise InvalidInputError.hinted(f"no names of columns: {columns!r}", 'write select("x", "vz")')
        query, names = self.query(), tuple(column_name(column) for column in columns)
        for name in names:
            whole_column, element = vector_element(name)
            if element is not None and name not in query.table.columns:
                raise InvalidInputError.hinted(
                    f"{name} is an element of a vector, and select takes columns as a whole",
                    f'select("{whole_column}"), and of the answer .numpy()["{whole_column}"][:, {element}]',
                )
        return dataclasses.replace(query, columns=names)

    def sample(self, share: SupportsFloat) -> Query:
        """A share, from 0 to 1, of the units: the same ones at every call, and with every box and condition.

        Samples nest: ``sample(0.01)`` lies within ``sample(0.1)``. A unit is a row or, with a sample key, all rows of
        an entity.
        """
        return self.window(0.0, share)

    def window(self, after: SupportsFloat, until: SupportsFloat) -> Query:
        """The units between two shares: ``window(0.1, 0.2)`` is a second sample, independent of ``sample(0.1)``."""
        query = self.query()
        after, until = number(after, "a share, such as 0.1,"), number(until, "a share, such as 0.1,")
        _atoll.check_window(after, until)
        after = max(query.after, after)
        return dataclasses.replace(query, after=after, until=max(after, min(query.until, until)))

    def first(self, units: SupportsIndex) -> Query:
        """The first so many units, in an order that is random and always the same."""
        return self.query()._least("units", units)

    def limit(self, rows: SupportsIndex) -> Query:
        """At most so many rows: the lightest. May cut an entity in two; :meth:`first` does not."""
        return self.query()._least("rows", rows)

    def of_runs(self, *names: str, where: Expression | str | None = None) -> Query:
        """Rows that these runs wrote: ``t.of_runs("a", "b")``, or those whose attributes satisfy a condition:
        ``t.of_runs(where="temperature > 300")``, which are looked up now.

        A run costs nothing where its rows lie alone; in rows that were packed with those of others, it is told row by
        row. Asking raises ``NotFoundError`` for a run that is not there. Of several stores as one, a name is a run of each
        store that has it, and ``where`` chooses among the runs of each.
        """
        query = self.query()
        if not all(isinstance(name, str) for name in names):
            raise InvalidInputError.hinted(f"no names of runs: {names!r}", 'write of_runs("a", "b"), or of_runs(*several)')
        if where is not None and query.version is not None:
            raise UnsupportedError.hinted(
                "attributes are those of now, and the runs of an earlier version may have been others",
                "name them, as t.as_of(version).of_runs(\"a\"); t.runs(where=...) tells which meet it now",
            )
        if where is None and not names:
            raise InvalidInputError.hinted("of_runs needs to be told which runs", "give their names, or where=")
        found = [] if where is None else query.table._native.runs_of_each(condition_text(where))
        return dataclasses.replace(query, runs=runs_in_both(query.runs, runs_wanted(names, found)))

    def as_of(self, version: SupportsIndex | str) -> Query:
        """The table as it was at a version, or at the one that a snapshot keeps, by its name."""
        query = self.query()
        if isinstance(version, str):
            version = query.table._native.snapshot_version(version)
        return dataclasses.replace(query, version=whole(version, "version"))

    def splits(self, readers: SupportsIndex) -> list[Split]:
        """The query divided among about so many readers: each split is a query of its own, and all of them together have
        each row once, of one version. There is one at least, and none without a share of what is read.

        Splits take about equal bytes. Where a store has its data on several hosts, as Cassandra has, each split is of one
        of them, which it names: a reader there reads locally. Send them to other processes, as they are pickled, and there
        ask them like any query; what they have is to be put together by whoever asked, in any order. Of several stores as
        one, a split may have rows of several of them.

        Raises ``InvalidInputError`` for a query of the first units or rows, which only their order tells, and for no
        readers.
        """
        query = self.query()
        readers = whole(readers, "a number of readers")
        if readers < 1:
            raise InvalidInputError("there is 1 reader or more")
        found = query.table._native.splits(query, readers)
        own = {field.name: getattr(query, field.name) for field in dataclasses.fields(Query)}
        return [
            Split(**own | {"objects": objects, "version": version}, host=host, about_rows=rows, about_bytes=size)
            for objects, version, host, rows, size in found
        ]

    def unordered(self) -> Query:
        """The same rows in whatever order they lie, which spares a large answer half of its time, and :meth:`batches` of one
        most of its memory.

        Otherwise rows come in the order of their weights, so that the first of them are a sample. Nothing changes for
        :meth:`first` and :meth:`limit`, nor, but for batches, where several stores are asked as one.
        """
        return dataclasses.replace(self.query(), ordered=False)

    def read(self) -> Answer:
        """The rows, the version that was read, and what it took. Ctrl-C stops it; nothing is changed by that."""
        query = self.query()
        rows, version, work = query.table._native.query(query)
        return Answer(rows, version, Work(**work), ordered=query.ordered)

    def scan_polars(self) -> polars.LazyFrame:
        """The rows as a lazy frame of Polars, read when it is collected. Needs ``polars``.

        Columns and predicates are pushed down, also ``.head(n)``, which here is a random sample: rows come lightest
        first.
        """
        from ._polars import scan

        return scan(self.query())

    @property
    def plot(self) -> Plot:
        """Pictures in one call: ``.plot.scatter("x", "z")``, ``.plot.density(...)``, ``.plot.histogram(...)``, and means
        of groups with their intervals, ``.plot.errorbar("step", "vz")``.
        """
        return Plot(self.query())

    def arrow(self) -> pyarrow.Table:
        """The rows as a PyArrow table, without a copy. Needs ``pyarrow``."""
        return self.read().arrow()

    def polars(self) -> polars.DataFrame:
        """The rows as a Polars frame, without a copy of numbers. Needs ``polars``."""
        return self.read().polars()

    def pandas(self) -> pandas.DataFrame:
        """The rows as a pandas frame. Needs ``pandas``."""
        return self.read().pandas()

    def numpy(self) -> dict[str, numpy.ndarray]:
        """The columns as NumPy arrays by name: (n,), or (n, k) for vectors; masked where values are missing."""
        return self.read().numpy()

    def refine(
        self,
        *,
        mean: str | Expression | None = None,
        sum: str | Expression | None = None,
        share: Expression | str | None = None,
        quantile: tuple[str | Expression, float] | None = None,
        confidence: float = 0.95,
    ) -> Iterator[Refined]:
        """The rows little by little, lightest first: an answer that gets better for as long as you look at it.

        ``for batch, cut, estimate in q.refine(mean="vz"): ...``. Each step brings more of one version: what came so far
        is all of a sample, ``sample(cut)``. The first has about 1,000 rows, and each is as large as all before it
        together, up to about 262,144 rows. Stop when you have seen enough.

        Ask for one of ``mean="vz"``, ``sum="vz"``, ``share="type = 2"`` and ``quantile=("vz", 0.5)`` to get an estimate
        from all that came so far. Beyond a million rows there is a new one when a quarter more came, and with the last step;
        steps in between have the one before, whose interval holds as well. Its interval may be looked at after every step, and holds whenever you stop: it is
        that of a confidence sequence, and about half as wide again as one that is looked at once.
        """
        query = self.query()
        refinement = query.table._native.refine(query, _refined(mean, sum, share, quantile, confidence))
        rows_read = 0
        while (found := refinement.next()) is not None:
            rows, version, work, cut, is_last, estimate = found
            answer = Answer(rows, version, Work(**work))
            rows_read += len(answer)
            told = {"rows_read": rows_read, "version": version, "work": answer.work}
            yield Refined(answer, cut, None if estimate is None else _made(estimate, **told), is_last)

    def batches(self, rows: SupportsIndex = 65_536) -> Iterator[Answer]:
        """The rows in pieces of at most ``rows`` rows, lightest first, read as they are asked for.

        What was read with lighter rows is kept until its turn: of a table that was never packed that may be half of its
        rows. ``.unordered().batches()`` has them in whatever order they lie, and keeps no more than some tens of megabytes
        however many there are.
        """
        rows, query = batch_rows(rows), self.query()
        answers = (refined.batch for refined in query.refine()) if query.ordered else query._scanned()
        return (batch for answer in answers for batch in answer.batches(rows))

    def count(self) -> int:
        """How many rows there are, exactly; what the directories tell is not read."""
        return self.counted()[0]

    def counted(self) -> tuple[int, Work]:
        """How many rows there are, and what counting them took."""
        query = self.query()
        rows, work = query.table._native.count(query)
        return rows, Work(**work)

    def within(
        self,
        *,
        relative: float | None = None,
        absolute: float | None = None,
        of_sd: float | None = None,
        max_rows: int | None = None,
    ) -> Tolerant:
        """Estimates that read as much as they need: ``q.within(relative=0.01).mean("vz")``.

        One tolerance is half the width of the interval: ``relative`` to the value, ``absolute`` in its unit, or ``of_sd``
        in standard deviations of the rows. ``max_rows`` ends the reading; what is too wide then says so among its doubts.
        """
        max_rows = None if max_rows is None else whole(max_rows, "max_rows")
        return tolerant(self.query(), relative, absolute, of_sd, max_rows)

    def _asked(self, question: _Question) -> Estimate:
        return estimated(self.query(), question)

    def group_means(
        self, column: str | Expression, by: str | Expression, *, confidence: float = 0.95, simultaneous: bool = False
    ) -> Groups:
        """The mean of a column in each group of rows that have one value of the column ``by``, from the query's sample.

        ``q.sample(0.01).group_means("vz", by="type")[2].value``. Groups that the sample did not meet are not in it; one of which
        it met only null and NaN has ``nan`` for a value, and as many ``missing`` as ``rows``. Each interval holds by itself; with ``simultaneous``, all of them
        together do (Bonferroni).

        Raises ``UnsupportedError`` for groups of vectors, ``NotFoundError`` for a column that is not there.
        """
        return grouped(self.query(), column, by, confidence, simultaneous)

    def histogram(
        self,
        column: str | Expression,
        bins: SupportsIndex | ArrayLike = 20,
        *,
        range: tuple[float, float] | None = None,
        confidence: float = 0.95,
        simultaneous: bool = False,
    ) -> list[Bin]:
        """The share of the rows in each bin of a column, from the query's sample, each with its interval.

        ``bins`` are edges, which rise, or how many bins of equal width there shall be: over ``range``, or without it
        from the least to the greatest value that is finite, for which the column is read once more. Rows without a value,
        or beyond the edges, count as rows and are in no bin. Each interval holds by itself; with ``simultaneous``, all of them
        together do.
        """
        column = column_name(column)
        # An array can be an index to Python as well; a number has no length.
        given: Any = bins
        is_count = hasattr(given, "__index__") and not hasattr(given, "__len__")
        edges = self._edges(column, int(given), range) if is_count else given
        return binned(self.query(), column, edges, confidence, simultaneous)

    def _edges(self, column: str, bins: int, ends: tuple[float, float] | None) -> list[float]:
        if bins < 1:
            raise InvalidInputError(f"{bins} is no number of bins")
        if ends is None:
            ends = self._ends(column)
        low, high = float(ends[0]), float(ends[1])
        if not low <= high:
            raise InvalidInputError.hinted(f"no histogram is over {low:g} to {high:g}", "say range=(low, high)")
        if low == high:
            high = low + 1.0
        # Ends may lie so close together that bins had edges which are the same number.
        high = max(high, low + 2 * bins * math.ulp(max(abs(low), abs(high))))
        # The greatest value belongs to the last bin.
        return [low + (high - low) * edge / bins for edge in builtins.range(bins)] + [math.nextafter(high, math.inf)]

    def _ends(self, column: str) -> tuple[float, float]:
        """The least and the greatest number of a column that is finite, of all rows: outliers are what one looks for."""
        name, element = vector_element(column)
        ends: list[float] = []
        for batch in self.select(name).unordered().batches():
            held = batch.numpy()[name]
            values = held if element is None else held[:, element]
            if values.dtype.kind not in "biuf":
                raise InvalidInputError(f"{column} has no numbers to bin")
            finite = values[is_there(values)]
            ends += [float(finite.min()), float(finite.max())] if len(finite) else []
            ends = [min(ends), max(ends)] if ends else []
        if not ends:
            raise InvalidInputError.hinted(f"{column} has no values to bin", "give edges, or range=(low, high)")
        return ends[0], ends[1]

    def explain(self) -> str:
        """What an answer would read, and why: for people. Nothing but directories is read for it."""
        query = self.query()
        return query.table._native.explain(query)[0]

    def with_arriving(self) -> Query:
        """Also the rows of steps of which not all ranks have written their part yet."""
        return dataclasses.replace(self.query(), arriving=True)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read().__arrow_c_stream__(requested_schema)


class _Step(NamedTuple):
    """What a step of a refinement is unpacked into."""

    #: The rows that are new.
    batch: Answer
    #: All units below this share have been read: what came so far is ``sample(cut)`` of the query.
    cut: float
    #: What all that came so far says about the number that was asked for; ``None`` if none was.
    estimate: Estimate | None


class Refined(_Step):
    """A step of :meth:`Asking.refine`: ``batch, cut, estimate``, and whether it is the last."""

    #: Whether nothing is left.
    is_last: bool

    def __new__(cls, batch: Answer, cut: float, estimate: Estimate | None, is_last: bool) -> Refined:
        made = super().__new__(cls, batch, cut, estimate)
        made.is_last = is_last
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Refined, (*self, self.is_last)


def _refined(
    mean: str | Expression | None,
    sum: str | Expression | None,
    share: Expression | str | None,
    quantile: tuple[str | Expression, float] | None,
    confidence: float,
) -> _Question | None:
    """The one question that was asked, if one was."""
    questions = [
        *([_Question("mean", column_text(mean), confidence)] if mean is not None else []),
        *([_Question("sum", column_text(sum), confidence)] if sum is not None else []),
        *([_Question("share", condition_text(share), confidence)] if share is not None else []),
        *([_Question("quantile", column_text(quantile[0]), confidence, quantile[1])] if quantile is not None else []),
    ]
    if len(questions) > 1:
        raise InvalidInputError.hinted("refine estimates one number", "ask for the others in queries of their own")
    return questions[0] if questions else None


@dataclasses.dataclass(frozen=True)
class Query(Asking):
    """Which rows of a table are wanted. Immutable: each call gives another one.

    Nothing is read until ``.arrow() .polars() .pandas() .numpy() .batches()`` or ``.read()``. Arrow libraries take a
    query as it is, and read it then: ``polars.DataFrame(q)``. Can be pickled where its table can.
    """

    table: Table
    conditions: tuple[str, ...] = ()
    after: float = 0.0
    until: float = 1.0
    units: int | None = None
    rows: int | None = None
    columns: tuple[str, ...] | None = None
    runs: tuple[OfRun, ...] | None = None
    version: int | None = None
    arriving: bool = False
    ordered: bool = True
    #: The objects of a split, as bytes.
    objects: bytes | None = None

    def query(self) -> Query:
        return self

    @property
    def condition(self) -> str | None:
        """All conditions as one text of the grammar."""
        if len(self.conditions) == 1:
            return self.conditions[0]
        return " and ".join(f"({condition})" for condition in self.conditions) or None

    def _scanned(self) -> Iterator[Answer]:
        """The rows batch by batch, in no order."""
        scan = self.table._native.batches(self)
        while (found := scan.next()) is not None:
            rows, version, work = found
            yield Answer(rows, version, Work(**work), ordered=False)

    def _and(self, condition: str | None) -> Query:
        if condition is None:
            return self
        return dataclasses.replace(self, conditions=(*self.conditions, condition))

    def _least(self, name: str, count: SupportsIndex) -> Query:
        count = whole(count, f"a number of {name}")
        known = getattr(self, name)
        changed: Any = {name: count if known is None else min(known, count)}
        return dataclasses.replace(self, **changed)

    def __repr__(self) -> str:
        said = [repr(self.table)]
        if self.condition:
            said.append(f"where {self.condition}")
        if self.runs is not None:
            said.append(f"of runs {', '.join(map(run_told, self.runs)) or 'none'}")
        if (self.after, self.until) != (0.0, 1.0):
            said.append(f"sample {self.until:g}" if self.after == 0.0 else f"window {self.after:g} to {self.until:g}")
        for name in ("units", "rows"):
            if getattr(self, name) is not None:
                said.append(f"at most {getattr(self, name):,} {name}")
        if self.columns is not None:
            said.append(f"columns {', '.join(self.columns)}")
        if self.version is not None:
            said.append(f"as of version {self.version}")
        return f"<atoll query: {'; '.join(said)}>"


@dataclasses.dataclass(frozen=True, repr=False)
class Split(Query):
    """A share of a query, for one reader: see :meth:`Asking.splits`. It is a query like any other, of one version."""

    #: The host that has the data; ``None`` for the machine on which the query was divided, and of stores that have no hosts.
    host: str | None = None
    #: About how many rows it has, before conditions.
    about_rows: int = 0
    #: About how many bytes they take.
    about_bytes: int = 0

    def __repr__(self) -> str:
        place = f"on {self.host}" if self.host else "here"
        return f"<atoll split {place}, about {self.about_rows:,} rows, of {super().__repr__()}>"


def _side(name: str, ends: Any) -> str:
    """A side of a box as the grammar writes it."""
    try:
        low, high = ends
    except (TypeError, ValueError):
        raise InvalidInputError.hinted(
            f"{name}={ends!r} is no range", f"write {name}=(low, high), with None for an end that is open"
        ) from None
    low, high = ("" if end is None else literal(end) for end in (low, high))
    return f"{column_text(name)}={low}:{high}"
