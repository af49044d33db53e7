"""Estimates: numbers about rows that were not all read, each with an interval and with any doubts about it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _atoll
from ._answer import Work
from ._convert import known_values, number, values_of
from ._expression import Expression, column_name, column_parts, column_text, condition_text
from ._plot import is_there, of_one_number
from ._shown import estimate_html, groups_html, numbers_shown, percent
from .errors import InvalidInputError

if TYPE_CHECKING:
    from ._query import Query
    from ._table import Table


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An estimate of a number from a sample.

    The interval from ``low`` to ``high`` contains the true value with probability ``confidence``, over all samples that
    might have been drawn; if everything was read, ``value`` is the true value and ``is_exact``. An interval with
    ``doubts`` is not ``is_valid``: read them before you use it.
    """

    value: float
    low: float
    high: float
    confidence: float
    #: The method that computed the interval.
    method: str
    #: Whether everything was read. The value is then exact up to the rounding of a float: whole numbers beyond 2**53
    #: are added up before they are rounded, but rounded one by one in groups, in quantiles, and where a reading that
    #: might have ended earlier, by :meth:`Query.within` or :meth:`Query.refine`, has come to the end.
    is_exact: bool
    #: Units that contributed: rows, or entities of the sample key.
    units: int
    #: Rows of the sample; for the mean of a group, those of the group.
    rows: int
    #: Rows among them whose value is null or NaN: they do not contribute, add nothing to a sum, and are in no bin.
    missing: int
    #: The standard deviation of the rows, in the unit of the value.
    deviation: float
    #: Reasons not to trust the interval; empty if there are none.
    doubts: tuple[str, ...]
    #: Rows that were read for the estimate.
    rows_read: int
    #: The version that was read.
    version: int
    #: The work that reading them took.
    work: Work
    #: The unit of the value: the unit noted for the column, or that of its times; ``None`` if unknown.
    value_unit: str | None = None

    @property
    def is_valid(self) -> bool:
        """Whether there is no reason to doubt the interval."""
        return not self.doubts

    @property
    def half_width(self) -> float:
        """The distance from the value to the farther end of the interval."""
        return max(self.high - self.value, self.value - self.low)

    def __repr__(self) -> str:
        missing = f", {self.missing:,} of {self.rows:,} rows without a value" if self.missing else ""
        unit = f" {self.value_unit}" if self.value_unit else ""
        value, _, _ = numbers_shown(self)
        if self.is_exact:
            return f"{value}{unit} (exact{missing})"
        sure = f"{percent(self.confidence)}%"
        told = f"{value} ± {self.half_width:.2g}{unit} ({sure}, {self.units:,} units{missing})"
        return told if self.is_valid else f"{told}, not valid: {'; '.join(self.doubts)}"

    def _repr_html_(self) -> str:
        return estimate_html(self)


class Groups(Mapping[Any, Estimate]):
    """Estimates for groups, keyed by the value of the group: ``means[2].value``. The groups are in rising order.

    ``not_seen`` has those of the groups given to :meth:`Query.group_means` that have no row in the sample, and so no
    estimate.
    """

    #: The column that was estimated.
    column: str
    #: The column whose values define the groups.
    by: str
    #: Those of the named groups of which the sample has no row, in rising order. Only if everything was read, this means
    #: that there is none.
    not_seen: tuple[Any, ...]

    def __init__(
        self, column: str, by: str, estimates: dict[Any, Estimate], not_seen: tuple[Any, ...] = ()
    ) -> None:
        self.column = column
        self.by = by
        self.not_seen = not_seen
        self._estimates = estimates

    def __getitem__(self, group: Any) -> Estimate:
        return self._estimates[group]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._estimates)

    def __len__(self) -> int:
        return len(self._estimates)

    def __repr__(self) -> str:
        lines = [f"  {group}: {estimate!r}" for group, estimate in self._estimates.items()]
        unseen = [f"  {group}: not seen" for group in self.not_seen]
        return "\n".join([f"<mean of {self.column} by {self.by}>", *lines, *unseen])

    def _repr_html_(self) -> str:
        return groups_html(self)


class Bin(NamedTuple):
    """A bin of a histogram: values from ``low``, included, to ``high``, excluded."""

    low: float
    high: float
    #: The share of the rows that are in the bin.
    share: Estimate


@dataclasses.dataclass(frozen=True)
class Question:
    """A number to estimate, and how precisely."""

    subject: str
    text: str
    confidence: float
    quantile: float = 0.5
    tolerance: tuple[str, float] | None = None
    max_rows: int | None = None

    def __post_init__(self) -> None:
        # Keep the converted numbers: `number` also accepts texts, which the native half does not.
        object.__setattr__(self, "confidence", number(self.confidence, "confidence"))
        object.__setattr__(self, "quantile", number(self.quantile, "a share, such as 0.5,"))
        if self.tolerance is not None:
            kind, width = self.tolerance
            object.__setattr__(self, "tolerance", (kind, number(width, kind)))


#: The probability with which an interval contains the true value, unless another is asked for.
CONFIDENCE = 0.95


class Estimating:
    """Numbers about the rows of a query, estimated from its sample; exact where every row is read.

    Each interval contains the true value with the probability ``confidence``, above 0 and below 1: by default 0.95, or
    what :meth:`Asking.within` was given.
    """

    def _confidence(self, asked: float | None) -> float:
        return CONFIDENCE if asked is None else asked

    def _asked(self, question: Question) -> Estimate:
        raise NotImplementedError

    def _source(self) -> Table:
        """Return the table in question: it decides whether ``c[1]`` is a column of that name or an element."""
        raise NotImplementedError

    def mean(self, column: str | Expression, *, confidence: float | None = None) -> Estimate:
        """Estimate the mean of a column over the rows that have a value. An element of a vector is ``"pos[0]"``.

        ``confidence`` is the probability of the interval: by default 0.95, or that of :meth:`within`.

        Source: the ratio estimator over units, with Student's t (Cochran, Sampling Techniques, 1977, chapter 6).
        Raises ``NotFoundError`` for a column that does not exist, and ``InvalidInputError`` for one without numbers.
        """
        return self._asked(Question("mean", column_text(column, self._source()), self._confidence(confidence)))

    def sum(self, column: str | Expression, *, confidence: float | None = None) -> Estimate:
        """Estimate the sum of a column, in its unit; rows without a value add nothing.

        Most precise where the number of rows is known exactly: for all rows; with conditions on columns other than
        index columns; for a region, of steps or runs say, whose rows the version knows; and, from a sample of fixed
        size, for any region if counting the rows across its border takes no more than the sample. Where a part of the
        rows is known, those of appended steps and of packed trees that lie in the region as a whole, only the others
        add the uncertainty of their number. ``confidence`` is as for :meth:`mean`.

        Source: the ratio estimator of the mean, times the number of rows, where that is known (Cochran, Sampling
        Techniques, 1977, sections 2.11 and 6.3); elsewhere calibration on the number that is known of a part (Deville
        and Särndal, J. Am. Stat. Assoc. 87, 1992), with the variance of weighted residuals (Särndal, Swensson and
        Wretman, Biometrika 76, 1989), and for the rest the sum of the sample divided by its share (Horvitz and
        Thompson, J. Am. Stat. Assoc. 47, 1952). Raises the errors of :meth:`mean`.
        """
        return self._asked(Question("sum", column_text(column, self._source()), self._confidence(confidence)))

    def quantile(self, column: str | Expression, share: float, *, confidence: float | None = None) -> Estimate:
        """Estimate the value of a column below which a share of the rows lies: 0.5 for the median.

        ``share`` is from 0 to 1, and ``confidence`` is as for :meth:`mean`.

        Source: Woodruff's interval (J. Am. Stat. Assoc. 47, 1952) with the variance of units. Raises the errors of
        :meth:`mean`, and ``InvalidInputError`` for a share that is none.
        """
        asked, text = self._confidence(confidence), column_text(column, self._source())
        return self._asked(Question("quantile", text, asked, quantile=share))

    def share(self, condition: Expression | str, *, confidence: float | None = None) -> Estimate:
        """Estimate the share of the rows, from 0 to 1, that satisfy a further condition.

        ``confidence`` is as for :meth:`mean`.

        Source: Wilson's interval, with the number of rows that the sample is worth, given how much rows of one unit are
        alike (Korn and Graubard, Survey Methodology 24, 1998). Raises ``InvalidInputError``, with the position of the
        mistake, for a text that is no condition.
        """
        return self._asked(Question("share", condition_text(condition), self._confidence(confidence)))


@dataclasses.dataclass(frozen=True)
class Tolerant(Estimating):
    """A query with the tolerance of its estimates: what :meth:`Query.within` returns.

    It has the ``mean``, ``sum``, ``quantile`` and ``share`` of a query; each reads as much as the tolerance needs.
    """

    #: The query.
    query: Query
    #: Which kind of tolerance was given, and how much: ``("relative", 0.01)``.
    tolerance: tuple[str, float]
    #: The most rows that an estimate reads; ``None`` for any number.
    max_rows: int | None
    #: The probability with which the intervals contain the true values, unless a call gives another.
    confidence: float = CONFIDENCE

    def count(self, *, confidence: float | None = None) -> Estimate:
        """Estimate the number of rows; exact, and nothing is read, where the version knows it.

        ``Query.count`` is always exact, and reads what that takes. ``confidence`` is as for :meth:`mean`.

        Source: the share of rows, as for :meth:`share`, of a number of rows that is known; elsewhere all numbers whose
        expectation the sample does not contradict, by the same interval.
        """
        return self._asked(Question("count", "", self._confidence(confidence)))

    def _confidence(self, asked: float | None) -> float:
        return self.confidence if asked is None else asked

    def _asked(self, question: Question) -> Estimate:
        question = dataclasses.replace(question, tolerance=self.tolerance, max_rows=self.max_rows)
        return estimated(self.query, question)

    def _source(self) -> Table:
        return self.query.table


def tolerant(query: Query, given: dict[str, float | None], max_rows: int | None, confidence: float) -> Tolerant:
    """Return a query with the one tolerance that was given."""
    said = [(name, width) for name, width in given.items() if width is not None]
    if len(said) != 1:
        raise InvalidInputError.hinted("one tolerance is needed", "write within(relative=0.01), absolute= or of_sd=")
    limits = [("sample, or a window that ends before 1", query.until != 1.0)]
    limits += [("number of units", query.units is not None), ("limit of rows", query.rows is not None)]
    for limit, is_set in limits:
        if is_set:
            problem = f"a tolerance decides how much is read, and the query has a {limit}"
            hint = "leave it out; max_rows= limits what is read, and window(0.5, 1) begins elsewhere"
            raise InvalidInputError.hinted(problem, hint)
    return Tolerant(query, said[0], max_rows, number(confidence, "confidence"))


def estimated(query: Query, question: Question) -> Estimate:
    """Answer a question about a query."""
    return estimate_of(_atoll.estimate(query.table._native, query, question), value_unit=unit_of(query, question))


def unit_of(query: Query, question: Question) -> str | None:
    """Return the unit of the answer to a question; shares and numbers of rows have none."""
    return None if question.subject in ("share", "count") else query.table._native.unit(question.text)


def estimate_of(found: dict[str, Any], **rest: Any) -> Estimate:
    """Make an estimate from the values that the native half returns."""
    parts = {**found, **rest}
    work = parts.pop("work")
    work = work if isinstance(work, Work) else Work(**work)
    return Estimate(work=work, doubts=tuple(parts.pop("doubts")), **parts)


def grouped(
    query: Query,
    column: str | Expression,
    by: str | Expression,
    known: Iterable[Any] | None,
    how: tuple[float, bool],
) -> Groups:
    """Estimate the mean of a column in each group of another; ``how``: the confidence, and whether of all together."""
    text, by, how = column_text(column, query.table), column_name(by), (number(how[0], "confidence"), how[1])
    given = None if known is None else known_values(by, known)
    found = _atoll.estimate_groups(query.table._native, query, text, by, how, given)
    rows, means, _, version, rows_read, work = found
    unit = query.table._native.unit(text)
    rest = {"version": version, "rows_read": rows_read, "work": Work(**work), "value_unit": unit}
    groups = [] if rows is None else values_of(rows, by)
    pairs = list(zip(groups, means, strict=True))
    estimates = [(group, estimate_of(mean, **rest)) for group, mean in pairs if mean is not None]
    not_seen = sorted((group for group, mean in pairs if mean is None), key=_group_order)
    # Groups of NaN and of null come last.
    by_group = dict(sorted(estimates, key=lambda pair: _group_order(pair[0])))
    return Groups(column_name(column), by, by_group, tuple(not_seen))


def _group_order(group: Any) -> tuple[bool, bool, int, Any]:
    # Times beyond Python's range are integers here: long before the other times, or long after them.
    era = (-1 if group < 0 else 1) if isinstance(group, int) else 0
    return group is None, group != group, era, group


def binned(
    query: Query, column: str | Expression, edges: Sequence[float], confidence: float, simultaneous: bool
) -> list[Bin]:
    """Estimate the share of rows in each bin of a column."""
    edges = [number(edge, "an edge of a bin") for edge in edges]
    how = (number(confidence, "confidence"), simultaneous)
    _, shares, _, version, rows_read, work = _atoll.estimate_histogram(
        query.table._native, query, column_text(column, query.table), edges, how
    )
    rest = {"version": version, "rows_read": rows_read, "work": Work(**work)}
    made = [estimate_of(share, **rest) for share in shares if share is not None]
    return [Bin(low, high, share) for low, high, share in zip(edges, edges[1:], made, strict=False)]


def even_edges(
    query: Query, column: str | Expression, bins: int, ends: tuple[float, float] | None
) -> tuple[list[float], Query]:
    """Return the edges of ``bins`` bins of equal width over ``ends``, or over the finite values that the query selects.

    The second part is the query, of the version that these values are of.
    """
    if bins < 1:
        raise InvalidInputError(f"bins must be 1 or more, not {bins}")
    if ends is None:
        ends, query = _finite_range(query, column)
    low, high = (number(end, "an end of a range") for end in ends)
    if not low <= high:
        raise InvalidInputError.hinted(f"a histogram needs low <= high, not {low:g} and {high:g}", "give range=(low, high)")
    if low == high:
        high = low + 1.0
    # Keep the ends far enough apart that no two edges are the same number.
    high = max(high, low + 2 * bins * math.ulp(max(abs(low), abs(high))))
    # Move the last edge up, so that the greatest value belongs to the last bin.
    edges = [low + (high - low) * edge / bins for edge in range(bins)] + [math.nextafter(high, math.inf)]
    return edges, query


def _finite_range(query: Query, column: str | Expression) -> tuple[tuple[float, float], Query]:
    """Return the least and the greatest finite value of a column, and the query, of the version that was read.

    Every row that the query selects is looked at, as the bins are of these rows: of a sample, those of the sample.
    """
    name, element = column_parts(column, query.table)
    ends: list[float] = []
    for batch in query.select(name).unordered().batches():
        query = dataclasses.replace(query, version=batch.version)
        values = of_one_number(column_name(column), batch.numpy()[name], element)
        if values.dtype.kind not in "biuf":
            raise InvalidInputError(f"{column_name(column)} has no numbers to bin")
        finite = values[is_there(values)]
        ends += [float(finite.min()), float(finite.max())] if len(finite) else []
        ends = [min(ends), max(ends)] if ends else []
    if not ends:
        raise InvalidInputError.hinted(f"{column_name(column)} has no values to bin", "give edges, or range=(low, high)")
    return (ends[0], ends[1]), query
