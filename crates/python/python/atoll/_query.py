"""Queries: which rows are wanted, and nothing read until an answer is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, SupportsIndex, TypeVar, overload

from ._answer import Answer, Work
from ._convert import batch_rows, whole
from ._estimate import (
    Bin,
    Estimate,
    Estimating,
    Groups,
    Question,
    Tolerant,
    binned,
    estimate_of,
    estimated,
    even_edges,
    grouped,
    tolerant,
    unit_of,
)
from ._expression import Expression, column_text, condition_text
from ._of_runs import OfRun, run_told
from ._plot import Plot
from ._selection import Choosing
from .errors import InvalidInputError

if TYPE_CHECKING:
    import numpy
    import pandas
    import polars
    import pyarrow
    from numpy.typing import ArrayLike

    from ._table import Table


class Asking(Choosing, Estimating):
    """What can be asked, of a table as of a query on it."""

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

    @overload
    def refine(self, *, confidence: float = 0.95) -> Iterator[Refined[None]]: ...
    @overload
    def refine(
        self,
        *,
        mean: str | Expression | None = None,
        sum: str | Expression | None = None,
        share: Expression | str | None = None,
        quantile: tuple[str | Expression, float] | None = None,
        confidence: float = 0.95,
    ) -> Iterator[Refined[Estimate]]: ...
    def refine(
        self,
        *,
        mean: str | Expression | None = None,
        sum: str | Expression | None = None,
        share: Expression | str | None = None,
        quantile: tuple[str | Expression, float] | None = None,
        confidence: float = 0.95,
    ) -> Iterator[Refined[Any]]:
        """The rows little by little, lightest first: an answer that gets better for as long as you look at it.

        ``for batch, cut, estimate in q.refine(mean="vz"): ...``. Each step brings more of one version: what came so far
        is all of a sample, ``sample(cut)``. The first has about 1,000 rows, and each is as large as all before it
        together, up to about 262,144 rows. Stop when you have seen enough.

        Ask for one of ``mean="vz"``, ``sum="vz"``, ``share="type = 2"`` and ``quantile=("vz", 0.5)`` to get an estimate
        from all that came so far. Beyond a million rows there is a new one when a quarter more came, and with the last step;
        steps in between have the one before, whose interval holds as well. Its interval may be looked at after every step,
        and holds whenever you stop: it is that of a confidence sequence, and about half as wide again as one that is looked
        at once.
        """
        query = self.query()
        question = _refined(query.table, (mean, sum, share, quantile), confidence)
        refinement = query.table._native.refine(query, question)
        unit = None if question is None else unit_of(query, question)
        rows_read = 0
        while (found := refinement.next()) is not None:
            rows, version, work, cut, is_last, estimate = found
            answer = Answer(rows, version, Work(**work))
            rows_read += len(answer)
            told = {"rows_read": rows_read, "version": version, "work": answer.work, "value_unit": unit}
            yield Refined(answer, cut, None if estimate is None else estimate_of(estimate, **told), is_last)

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

    def _asked(self, question: Question) -> Estimate:
        return estimated(self.query(), question)

    def _source(self) -> Table:
        return self.query().table

    def group_means(
        self, column: str | Expression, by: str | Expression, *, confidence: float = 0.95, simultaneous: bool = False
    ) -> Groups:
        """The mean of a column in each group of rows that have one value of the column ``by``, from the query's sample.

        ``q.sample(0.01).group_means("vz", by="type")[2].value``. Groups that the sample did not meet are not in it; one of
        which it met only null and NaN has ``nan`` for a value, and as many ``missing`` as ``rows``. Each interval holds by
        itself; with ``simultaneous``, all of them together do (Bonferroni).

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
        # An array can be an index to Python as well; a number has no length.
        given: Any = bins
        is_count = not hasattr(given, "__len__") and not hasattr(given, "__iter__")
        edges = even_edges(self.query(), column, whole(given, "bins"), range) if is_count else given
        return binned(self.query(), column, edges, confidence, simultaneous)

    def explain(self) -> str:
        """What an answer would read, and why: for people. Nothing but directories is read for it."""
        query = self.query()
        return query.table._native.explain(query)[0]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read().__arrow_c_stream__(requested_schema)


#: An estimate, or ``None`` where no number was asked for.
_Estimated = TypeVar("_Estimated", bound=Estimate | None)


class _Step(NamedTuple, Generic[_Estimated]):
    """What a step of a refinement is unpacked into."""

    #: The rows that are new.
    batch: Answer
    #: All units below this share have been read: what came so far is ``sample(cut)`` of the query.
    cut: float
    #: What all that came so far says about the number that was asked for; ``None`` if none was.
    estimate: _Estimated


class Refined(_Step[_Estimated]):
    """A step of :meth:`Asking.refine`: ``batch, cut, estimate``, and whether it is the last."""

    #: Whether nothing is left.
    is_last: bool

    def __new__(cls, batch: Answer, cut: float, estimate: _Estimated, is_last: bool) -> Refined[_Estimated]:
        made = super().__new__(cls, batch, cut, estimate)  # type: ignore[type-var]
        made.is_last = is_last
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Refined, (*self, self.is_last)


#: What :meth:`Asking.refine` may be asked for: ``mean``, ``sum``, ``share`` and ``quantile``.
_Wanted = tuple[
    str | Expression | None, str | Expression | None, Expression | str | None, tuple[str | Expression, float] | None
]


def _refined(table: Table, wanted: _Wanted, confidence: float) -> Question | None:
    """The one question that was asked, if one was."""
    mean, sum, share, quantile = wanted
    questions = [
        *([Question("mean", column_text(mean, table), confidence)] if mean is not None else []),
        *([Question("sum", column_text(sum, table), confidence)] if sum is not None else []),
        *([Question("share", condition_text(share), confidence)] if share is not None else []),
        *([_quantile(quantile, table, confidence)] if quantile is not None else []),
    ]
    if len(questions) > 1:
        raise InvalidInputError.hinted("refine estimates one number", "ask for the others in queries of their own")
    return questions[0] if questions else None


def _quantile(wanted: Any, table: Table, confidence: float) -> Question:
    if not isinstance(wanted, tuple | list) or len(wanted) != 2:
        raise InvalidInputError.hinted(f"a quantile is a column and a share, not {wanted!r}", 'quantile=("vz", 0.5)')
    return Question("quantile", column_text(wanted[0], table), confidence, wanted[1])


@dataclasses.dataclass(frozen=True)
class Query(Asking):
    """Which rows of a table are wanted. Immutable: each call gives another one.

    Nothing is read until ``.arrow() .polars() .pandas() .numpy() .batches()`` or ``.read()``. Arrow libraries take a
    query as it is, and read it then: ``polars.DataFrame(q)``. Can be pickled where its table can.
    """

    #: The table, or several as one.
    table: Table
    #: Conditions that must all hold, as texts of the grammar (:meth:`where`, :meth:`box`, :meth:`near`).
    conditions: tuple[str, ...] = ()
    #: Units from this share of all (:meth:`window`) ...
    after: float = 0.0
    #: ... to this one (:meth:`sample`, :meth:`window`).
    until: float = 1.0
    #: At most so many units, the lightest (:meth:`first`); None for all.
    units: int | None = None
    #: At most so many rows, the lightest (:meth:`limit`); None for all.
    rows: int | None = None
    #: Columns, in this order (:meth:`select`); None for all.
    columns: tuple[str, ...] | None = None
    #: Rows of these runs (:meth:`of_runs`); None for all.
    runs: tuple[OfRun, ...] | None = None
    #: This version of the table (:meth:`as_of`); None for the current one.
    version: int | None = None
    #: Whether rows of steps come that are not complete yet (:meth:`with_arriving`).
    arriving: bool = False
    #: Whether rows come in the order of their weights (:meth:`unordered`).
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
