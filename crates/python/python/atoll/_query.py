"""Queries: which rows are wanted; they read nothing until an answer is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, SupportsIndex, TypeVar, overload

from ._answer import Answer, Work
from ._convert import batch_rows, values_of, whole
from ._estimate import (
    CONFIDENCE,
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
from ._shown import query_html, split_html
from .errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    import numpy
    import pandas
    import polars
    import pyarrow
    from numpy.typing import ArrayLike

    from . import _atoll
    from ._table import Table


class Asking(Choosing, Estimating):
    """What can be asked of a query, and of a table."""

    def splits(self, readers: SupportsIndex) -> list[Split]:
        """Divide the query among ``readers`` readers.

        Each split is a query of its own; together they have each row once, all of one version. There is at least one
        split, and none without a share of the data; there are fewer than readers if there are fewer objects to read,
        and more if there are more hosts.

        Splits read about equal bytes. Where a store has its data on several hosts, as Cassandra has, each split is of
        one host, which it names, so that a reader on that host reads locally. Send splits to other processes, pickled,
        and query them there like any query; combine their results yourself, in any order. For several stores as one, a
        split may have rows of several of them.

        Raises ``InvalidInputError`` for a query of the first units or rows, which only the order over all rows
        determines, and for fewer than 1 reader.
        """
        query = self.query()
        readers = whole(readers, "a number of readers")
        if readers < 1:
            raise InvalidInputError("readers must be 1 or more")
        found = query.table._native.splits(query, readers)
        own = {field.name: getattr(query, field.name) for field in dataclasses.fields(Query)}
        return [
            Split(**own | {"objects": objects, "version": version}, host=host, about_rows=rows, about_bytes=size)
            for objects, version, host, rows, size in found
        ]

    def read(self) -> Answer:
        """Read the rows, with their version and the work it took. Ctrl-C interrupts the read, which changes nothing."""
        query = self.query()
        rows, version, work = query.table._native.query(query)
        return Answer(rows, version, Work(**work), ordered=query.ordered)

    def scan_polars(self) -> polars.LazyFrame:
        """Return the rows as a lazy Polars frame, read when it is collected. Needs ``polars``.

        Selected columns and predicates are pushed down, and so is ``.head(n)``, which here is a random sample: rows
        come lightest first.
        """
        from ._polars import scan

        return scan(self.query())

    @property
    def plot(self) -> Plot:
        """Plots in one call: ``.plot.scatter("x", "z")``, ``.plot.density(...)``, ``.plot.histogram(...)``.

        ``.plot.errorbar("step", "vz")`` shows means of groups with their intervals.
        """
        return Plot(self.query())

    def arrow(self) -> pyarrow.Table:
        """Return the rows as a PyArrow table, without a copy. Needs ``pyarrow``."""
        return self.read().arrow()

    def polars(self) -> polars.DataFrame:
        """Return the rows as a Polars frame, without a copy of numbers. Needs ``polars``."""
        return self.read().polars()

    def pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas frame. Needs ``pandas``."""
        return self.read().pandas()

    def numpy(self) -> dict[str, numpy.ndarray]:
        """Return the columns as NumPy arrays by name: (n,), or (n, k) for vectors; masked where values are missing."""
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
        """Yield the rows step by step, lightest first: an answer that improves for as long as you look at it.

        ``for batch, cut, estimate in q.refine(mean="vz"): ...``. Every step adds rows of one version; all rows so far
        are exactly the sample ``sample(cut)``. The first step has about 1,000 rows, and each later one as many as all
        before it together, up to about 262,144 rows. Stop when you have seen enough.

        Pass one of ``mean="vz"``, ``sum="vz"``, ``share="type = 2"`` and ``quantile=("vz", 0.5)`` to get an estimate
        from all rows so far. Beyond a million rows, the estimate is updated each time a quarter more rows have come,
        and at the last step; the steps in between repeat the previous one, whose interval still holds. You may look at
        the interval after every step and stop at any time: it belongs to a confidence sequence, and is about half as
        wide again as an interval that is looked at once.

        Source: the normal mixture of Robbins, as in Howard, Ramdas, McAuliffe and Sekhon (Ann. Stat. 49, 2021), with an
        estimated variance (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Ann. Stat. 52, 2024). Raises
        ``InvalidInputError`` for more than one number to estimate, and the errors of that estimate.
        """
        query = self.query()
        question = _refine_question(query.table, (mean, sum, share, quantile), confidence)
        # Begin here: what is wrong with the arguments is raised by this call, and not by the first step.
        refinement = query.table._native.refine(query, question)
        return _refined(refinement, None if question is None else unit_of(query, question))

    def batches(self, rows: SupportsIndex = 65_536) -> Iterator[Answer]:
        """Yield the rows in pieces of at most ``rows`` rows, lightest first, reading as the pieces are consumed.

        Rows that were read along with lighter ones are buffered until their turn: for a table that was never packed,
        these may be half of all rows. ``.unordered().batches()`` yields the rows in storage order, and buffers no more
        than some tens of megabytes, however many rows there are.
        """
        rows, query = batch_rows(rows), self.query()
        answers = (refined.batch for refined in query.refine()) if query.ordered else query._scanned()
        return (batch for answer in answers for batch in answer.batches(rows))

    def count(self) -> int:
        """Return the exact number of rows; what the directories already tell is not read."""
        return self.counted()[0]

    def counted(self) -> tuple[int, Work]:
        """Return the exact number of rows, and the work that counting took."""
        query = self.query()
        rows, work = query.table._native.count(query)
        return rows, Work(**work)

    def min(self, column: str | Expression) -> Any:
        """Return the least value of a column of numbers or times, exactly: a number, or a time as in :meth:`numpy`.

        ``t.box(x=(0, 1)).min("step")``. It is in the unit of the column, and ``None`` if no row has a value: null and
        NaN are none, infinities are. An element of a vector is ``"pos[0]"``. It is that of the selected rows: of a
        sample that of the sample, like :meth:`count`, and no estimate of that of all rows.

        Of an index column, what the version and the directories tell is not read: only bands of rows across the border
        of a region, as far as they may reach beyond what was found before. Any other column is read as a whole, without
        keeping it, in the bands that may match.

        Raises ``NotFoundError`` for a column that does not exist, and ``InvalidInputError`` for one of other types.
        """
        return self._end(column, True)

    def max(self, column: str | Expression) -> Any:
        """Return the greatest value of a column of numbers or times, exactly, as :meth:`min`."""
        return self._end(column, False)

    def _end(self, column: str | Expression, is_least: bool) -> Any:
        query = self.query()
        value, _, _ = query.table._native.extreme(query, column_text(column, query.table), is_least)
        return values_of(value, "value")[0]

    def within(
        self,
        *,
        relative: float | None = None,
        absolute: float | None = None,
        of_sd: float | None = None,
        max_rows: int | None = None,
        confidence: float = CONFIDENCE,
    ) -> Tolerant:
        """Return a query whose estimates read as much as a tolerance needs: ``q.within(relative=0.01).mean("vz")``.

        The tolerance, above 0, is half the width of the interval. Give one of ``relative`` (to the value), ``absolute``
        (in its unit) and ``of_sd`` (in standard deviations of the rows). ``max_rows`` limits the rows read; an interval
        that is still too wide then says so among its doubts. ``confidence`` is that of every interval, unless a call
        gives another. The answer has :meth:`mean`, :meth:`sum`, :meth:`quantile` and :meth:`share`, and ``count()``,
        which here is an :class:`Estimate` as well.

        Reading begins where a window does: ``q.window(0.5, 1).within(...)`` reads other rows.

        Raises ``InvalidInputError`` for no tolerance, and for several; and for a query with a sample, a window that
        ends before 1, a number of units or a limit of rows, as the tolerance decides how much is read.
        """
        max_rows = None if max_rows is None else whole(max_rows, "max_rows")
        given = {"relative": relative, "absolute": absolute, "of_sd": of_sd}
        return tolerant(self.query(), given, max_rows, confidence)

    def _asked(self, question: Question) -> Estimate:
        return estimated(self.query(), question)

    def _source(self) -> Table:
        return self.query().table

    def group_means(
        self,
        column: str | Expression,
        by: str | Expression,
        *,
        groups: Iterable[Any] | None = None,
        confidence: float = 0.95,
        simultaneous: bool = False,
    ) -> Groups:
        """Estimate, from the query's sample, the mean of a column in each group of rows with one value of ``by``.

        ``q.sample(0.01).group_means("vz", by="type")[2].value``. Groups without a row in the sample are left out:
        nothing is known of them, not even that they exist. ``groups`` names those that do, as values of ``by``: then
        :attr:`Groups.not_seen` has those of them that the sample has no row of. Other groups are estimated as well. A
        group whose sampled rows are all null or NaN has the value ``nan``, and as many ``missing`` as ``rows``. Each
        interval holds by itself; with ``simultaneous``, all of them hold together (Bonferroni), and groups that were
        not seen count among them.

        Source: in each group, as for :meth:`mean`, over the units that have rows in it (Cochran, Sampling Techniques,
        1977, sections 2.11 and 6.3). Raises ``UnsupportedError`` for groups of vectors, ``NotFoundError`` for a column
        that does not exist, and ``InvalidInputError`` for a group that the type of ``by`` cannot hold.
        """
        return grouped(self.query(), column, by, groups, (confidence, simultaneous))

    def histogram(
        self,
        column: str | Expression,
        bins: SupportsIndex | ArrayLike = 20,
        *,
        range: tuple[float, float] | None = None,
        confidence: float = 0.95,
        simultaneous: bool = False,
    ) -> list[Bin]:
        """Estimate the share of the rows in each bin of a column, with its interval, from the query's sample.

        ``bins`` are rising edges, or a number of bins of equal width: over ``range``, or by default from the least to
        the greatest finite value of the rows that the query selects, for which the column is read once more: of a
        sample, those of the sample, beyond which a few other rows may lie. Rows without a value, or beyond the edges,
        count as rows but are in no bin. Each interval holds by itself; with ``simultaneous``, all of them hold
        together.

        Source: in each bin, as for :meth:`share`; together, Bonferroni. Raises ``NotFoundError`` for a column that does
        not exist, and ``InvalidInputError`` for one without numbers and for edges that do not rise.
        """
        # An array may convert to an index as well, so only what has no length is a count.
        given: Any = bins
        is_count = not hasattr(given, "__len__") and not hasattr(given, "__iter__")
        if not is_count:
            return binned(self.query(), column, given, confidence, simultaneous)
        edges, same = even_edges(self.query(), column, whole(given, "bins"), range)
        try:
            return binned(same, column, edges, confidence, simultaneous)
        except NotFoundError:
            if same == self.query():
                raise
            # A vacuum took the version whose values the edges are from.
            return binned(self.query(), column, edges, confidence, simultaneous)

    def explain(self) -> str:
        """Explain, for people, what an answer would read and why. Reads nothing but directories."""
        query = self.query()
        return query.table._native.explain(query)[0]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.read().__arrow_c_stream__(requested_schema)


#: An estimate, or ``None`` where no number was asked for.
_Estimated = TypeVar("_Estimated", bound=Estimate | None)


class _Step(NamedTuple, Generic[_Estimated]):
    """The part of a refinement step that unpacks as a tuple."""

    #: The new rows.
    batch: Answer
    #: All units below this share have been read: the rows so far are ``sample(cut)`` of the query.
    cut: float
    #: The estimate from all rows so far; ``None`` if none was asked for.
    estimate: _Estimated


class Refined(_Step[_Estimated]):
    """A step of :meth:`Asking.refine`: ``batch, cut, estimate``, and whether it is the last."""

    #: Whether this is the last step.
    is_last: bool

    def __new__(cls, batch: Answer, cut: float, estimate: _Estimated, is_last: bool) -> Refined[_Estimated]:
        made = super().__new__(cls, batch, cut, estimate)  # type: ignore[type-var]
        made.is_last = is_last
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Refined, (*self, self.is_last)


def _refined(refinement: _atoll.Refinement, unit: str | None) -> Iterator[Refined[Any]]:
    """Yield the steps of a refinement that has begun."""
    rows_read = 0
    while (found := refinement.next()) is not None:
        rows, version, work, cut, is_last, estimate = found
        answer = Answer(rows, version, Work(**work))
        rows_read += len(answer)
        told = {"rows_read": rows_read, "version": version, "work": answer.work, "value_unit": unit}
        yield Refined(answer, cut, None if estimate is None else estimate_of(estimate, **told), is_last)


#: What :meth:`Asking.refine` can estimate: ``mean``, ``sum``, ``share`` and ``quantile``.
_Wanted = tuple[
    str | Expression | None, str | Expression | None, Expression | str | None, tuple[str | Expression, float] | None
]


def _refine_question(table: Table, wanted: _Wanted, confidence: float) -> Question | None:
    """Return the one question that was asked, if any."""
    mean, sum, share, quantile = wanted
    questions = [
        *([Question("mean", column_text(mean, table), confidence)] if mean is not None else []),
        *([Question("sum", column_text(sum, table), confidence)] if sum is not None else []),
        *([Question("share", condition_text(share), confidence)] if share is not None else []),
        *([_quantile_question(quantile, table, confidence)] if quantile is not None else []),
    ]
    if len(questions) > 1:
        raise InvalidInputError.hinted("refine estimates one number", "ask for the others in queries of their own")
    return questions[0] if questions else None


def _quantile_question(wanted: Any, table: Table, confidence: float) -> Question:
    if not isinstance(wanted, tuple | list) or len(wanted) != 2:
        raise InvalidInputError.hinted(f"a quantile is a column and a share, not {wanted!r}", 'quantile=("vz", 0.5)')
    return Question("quantile", column_text(wanted[0], table), confidence, wanted[1])


@dataclasses.dataclass(frozen=True)
class Query(Asking):
    """The rows of a table that are wanted. Immutable: each call returns a new query.

    Nothing is read until ``.arrow() .polars() .pandas() .numpy() .batches()`` or ``.read()``. Arrow libraries take a
    query as it is, and read it then: ``polars.DataFrame(q)``. A query can be pickled if its table can.
    """

    #: The table, or several tables as one.
    table: Table
    #: Conditions that must all hold, as texts in the grammar (:meth:`where`, :meth:`box`, :meth:`near`).
    conditions: tuple[str, ...] = ()
    #: The units from this share on (:meth:`window`) ...
    after: float = 0.0
    #: ... to this one (:meth:`sample`, :meth:`window`).
    until: float = 1.0
    #: At most this many units, the lightest (:meth:`first`); ``None`` for all.
    units: int | None = None
    #: At most this many rows, the lightest (:meth:`limit`); ``None`` for all.
    rows: int | None = None
    #: The columns, in this order (:meth:`select`); ``None`` for all.
    columns: tuple[str, ...] | None = None
    #: The runs whose rows are wanted (:meth:`of_runs`); ``None`` for all.
    runs: tuple[OfRun, ...] | None = None
    #: The version of the table (:meth:`as_of`); ``None`` for the current one.
    version: int | None = None
    #: Whether to include rows of steps that are not complete yet (:meth:`with_arriving`).
    arriving: bool = False
    #: Whether the rows come in the order of their weights (:meth:`unordered`).
    ordered: bool = True
    #: The objects of a split, serialized.
    objects: bytes | None = None

    def query(self) -> Query:
        return self

    @property
    def condition(self) -> str | None:
        """All conditions as one text in the grammar."""
        if len(self.conditions) == 1:
            return self.conditions[0]
        return " and ".join(f"({condition})" for condition in self.conditions) or None

    def _scanned(self) -> Iterator[Answer]:
        """Yield the rows batch by batch, in no order."""
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

    def _repr_html_(self) -> str:
        return query_html(self)


@dataclasses.dataclass(frozen=True, repr=False)
class Split(Query):
    """One reader's share of a query, made by :meth:`Asking.splits`. It is a query like any other, of one version."""

    #: The host that has the data; ``None`` for the machine on which the query was divided, and for stores without
    #: hosts.
    host: str | None = None
    #: About how many rows the split has, before conditions.
    about_rows: int = 0
    #: About how many bytes these rows take.
    about_bytes: int = 0

    def __repr__(self) -> str:
        place = f"on {self.host}" if self.host else "here"
        return f"<atoll split {place}, about {self.about_rows:,} rows, of {super().__repr__()}>"

    def _repr_html_(self) -> str:
        return split_html(self)
