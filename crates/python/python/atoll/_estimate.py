"""Estimates: a number about rows that were not all read, with an interval, and with what speaks against trusting it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _atoll
from ._answer import Work
from ._convert import number, values_of
from ._expression import Expression, column_name, column_parts, column_text, condition_text
from ._plot import is_there, of_one_number
from .errors import InvalidInputError

if TYPE_CHECKING:
    from ._query import Query
    from ._table import Table


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a sample says about a number.

    The interval from ``low`` to ``high`` holds the truth with probability ``confidence``, over all samples that might
    have been drawn; if everything was read, ``value`` is the truth and ``is_exact``. An interval that ``doubts`` speak
    against is not ``is_valid``: look at them before you use it.
    """

    value: float
    low: float
    high: float
    confidence: float
    #: How the interval was found.
    method: str
    #: Whether everything was read.
    is_exact: bool
    #: Units that had a say: rows, or entities of the sample key.
    units: int
    #: Rows of the sample; of the mean of a group, those of the group.
    rows: int
    #: How many of them have no value, as it is null or NaN: they have no say, add nothing to a sum, and are in no bin.
    missing: int
    #: One standard deviation of the rows, in the unit of the value.
    deviation: float
    #: What speaks against trusting the interval; empty if nothing does.
    doubts: tuple[str, ...]
    #: Rows that were read for it.
    rows_read: int
    #: The version that was read.
    version: int
    #: What reading them took.
    work: Work
    #: The unit of the value: what is noted of the column, or how its times are counted; ``None`` where nobody said.
    value_unit: str | None = None

    @property
    def is_valid(self) -> bool:
        """Whether nothing speaks against trusting the interval."""
        return not self.doubts

    @property
    def half_width(self) -> float:
        """How far the interval reaches from the value, on its longer side."""
        return max(self.high - self.value, self.value - self.low)

    def __repr__(self) -> str:
        missing = f", {self.missing:,} of {self.rows:,} rows without a value" if self.missing else ""
        unit = f" {self.value_unit}" if self.value_unit else ""
        if self.is_exact:
            return f"{self.value:.6g}{unit} (exact{missing})"
        told = f"{self.value:.6g} ± {self.half_width:.2g}{unit} ({self.confidence:.0%}, {self.units:,} units{missing})"
        return told if self.is_valid else f"{told}, not valid: {'; '.join(self.doubts)}"


class Groups(Mapping[Any, Estimate]):
    """Estimates of groups, by the value that the group has: ``means[2].value``. In rising order of the groups."""

    def __init__(self, column: str, by: str, estimates: dict[Any, Estimate]) -> None:
        #: The column that was estimated.
        self.column = column
        #: The column whose values are the groups.
        self.by = by
        self._estimates = estimates

    def __getitem__(self, group: Any) -> Estimate:
        return self._estimates[group]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._estimates)

    def __len__(self) -> int:
        return len(self._estimates)

    def __repr__(self) -> str:
        lines = (f"  {group}: {estimate!r}" for group, estimate in self._estimates.items())
        return "\n".join([f"<mean of {self.column} by {self.by}>", *lines])


class Bin(NamedTuple):
    """A bin of a histogram: values from ``low`` up to ``high``, without that."""

    low: float
    high: float
    #: The share of the rows in it.
    share: Estimate


@dataclasses.dataclass(frozen=True)
class Question:
    """One number that is asked for, and how well it has to be known."""

    subject: str
    text: str
    confidence: float
    quantile: float = 0.5
    tolerance: tuple[str, float] | None = None
    max_rows: int | None = None

    def __post_init__(self) -> None:
        # The numbers, not what was given: the native half takes no text, and `number` does.
        object.__setattr__(self, "confidence", number(self.confidence, "confidence"))
        object.__setattr__(self, "quantile", number(self.quantile, "a share, such as 0.5,"))
        if self.tolerance is not None:
            kind, width = self.tolerance
            object.__setattr__(self, "tolerance", (kind, number(width, kind)))


class Estimating:
    """Numbers about the rows of a query, from its sample; exact where nothing is left out."""

    def _asked(self, question: Question) -> Estimate:
        raise NotImplementedError

    def _source(self) -> Table:
        """The table that is asked: it tells a column that is called ``c[1]`` from an element."""
        raise NotImplementedError

    def mean(self, column: str | Expression, *, confidence: float = 0.95) -> Estimate:
        """The mean of a column, of the rows that have a value. An element of a vector column is ``"pos[0]"``.

        Source: the ratio estimator over units, with Student's t (Cochran, Sampling Techniques, 1977, chapter 6).
        Raises ``NotFoundError`` for a column that is not there, ``InvalidInputError`` for one without numbers.
        """
        return self._asked(Question("mean", column_text(column, self._source()), confidence))

    def sum(self, column: str | Expression, *, confidence: float = 0.95) -> Estimate:
        """The sum of a column. Surest where the number of rows is known exactly: of all rows, or with conditions on other than
        index columns.
        """
        return self._asked(Question("sum", column_text(column, self._source()), confidence))

    def quantile(self, column: str | Expression, share: float, *, confidence: float = 0.95) -> Estimate:
        """The value of a column below which a share of the rows lies: 0.5 for the median.

        Source: Woodruff's interval (J. Am. Stat. Assoc. 47, 1952) with the variance of units.
        """
        return self._asked(Question("quantile", column_text(column, self._source()), confidence, quantile=share))

    def share(self, condition: Expression | str, *, confidence: float = 0.95) -> Estimate:
        """The share of the rows, from 0 to 1, for which a condition is true as well."""
        return self._asked(Question("share", condition_text(condition), confidence))


@dataclasses.dataclass(frozen=True)
class Tolerant(Estimating):
    """A query with how narrow an estimate shall be: made by ``q.within(...)``."""

    query: Query
    tolerance: tuple[str, float]
    max_rows: int | None

    def _asked(self, question: Question) -> Estimate:
        question = dataclasses.replace(question, tolerance=self.tolerance, max_rows=self.max_rows)
        return estimated(self.query, question)

    def _source(self) -> Table:
        return self.query.table


def tolerant(
    query: Query, relative: float | None, absolute: float | None, of_sd: float | None, max_rows: int | None
) -> Tolerant:
    """A query with the one tolerance that was given."""
    given = {"relative": relative, "absolute": absolute, "of_sd": of_sd}
    said = [(name, width) for name, width in given.items() if width is not None]
    if len(said) != 1:
        raise InvalidInputError.hinted("one tolerance is needed", "write within(relative=0.01), absolute= or of_sd=")
    return Tolerant(query, said[0], max_rows)


def estimated(query: Query, question: Question) -> Estimate:
    """The answer to a question."""
    return estimate_of(_atoll.estimate(query.table._native, query, question), value_unit=unit_of(query, question))


def unit_of(query: Query, question: Question) -> str | None:
    """The unit of what is asked; of a share there is none."""
    return None if question.subject == "share" else query.table._native.unit(question.text)


def estimate_of(found: dict[str, Any], **rest: Any) -> Estimate:
    """An estimate from what the native half says of it."""
    parts = {**found, **rest}
    work = parts.pop("work")
    work = work if isinstance(work, Work) else Work(**work)
    return Estimate(work=work, doubts=tuple(parts.pop("doubts")), **parts)


def grouped(
    query: Query, column: str | Expression, by: str | Expression, confidence: float, simultaneous: bool
) -> Groups:
    """The mean of a column in each group of another."""
    text, by, how = column_text(column, query.table), column_name(by), (number(confidence, "confidence"), simultaneous)
    found = _atoll.estimate_groups(query.table._native, query, text, by, how)
    rows, means, _, version, rows_read, work = found
    unit = query.table._native.unit(text)
    rest = {"version": version, "rows_read": rows_read, "work": Work(**work), "value_unit": unit}
    groups = [] if rows is None else values_of(rows, by)
    # Each was met, since none is known but by its rows.
    estimates = [(group, estimate_of(mean, **rest)) for group, mean in zip(groups, means, strict=True) if mean is not None]
    # What is not a number, and what has no value, come last.
    return Groups(column_name(column), by, dict(sorted(estimates, key=lambda pair: _in_order(pair[0]))))


def _in_order(group: Any) -> tuple[bool, bool, int, Any]:
    # Times beyond those of Python are whole numbers: long before the others, or long after them.
    era = (-1 if group < 0 else 1) if isinstance(group, int) else 0
    return group is None, group != group, era, group


def binned(
    query: Query, column: str | Expression, edges: Sequence[float], confidence: float, simultaneous: bool
) -> list[Bin]:
    """The share of rows in each bin of a column."""
    edges = [number(edge, "an edge of a bin") for edge in edges]
    how = (number(confidence, "confidence"), simultaneous)
    _, shares, _, version, rows_read, work = _atoll.estimate_histogram(
        query.table._native, query, column_text(column, query.table), edges, how
    )
    rest = {"version": version, "rows_read": rows_read, "work": Work(**work)}
    made = [estimate_of(share, **rest) for share in shares if share is not None]
    return [Bin(low, high, share) for low, high, share in zip(edges, edges[1:], made, strict=False)]


def even_edges(query: Query, column: str | Expression, bins: int, ends: tuple[float, float] | None) -> list[float]:
    """The edges of so many bins of one width, over the ends or over all numbers of the column."""
    if bins < 1:
        raise InvalidInputError(f"{bins} is no number of bins")
    if ends is None:
        ends = _ends(query, column)
    low, high = (number(end, "an end of a range") for end in ends)
    if not low <= high:
        raise InvalidInputError.hinted(f"no histogram is over {low:g} to {high:g}", "say range=(low, high)")
    if low == high:
        high = low + 1.0
    # Ends may lie so close together that bins had edges which are the same number.
    high = max(high, low + 2 * bins * math.ulp(max(abs(low), abs(high))))
    # The greatest value belongs to the last bin.
    return [low + (high - low) * edge / bins for edge in range(bins)] + [math.nextafter(high, math.inf)]


def _ends(query: Query, column: str | Expression) -> tuple[float, float]:
    """The least and the greatest number of a column that is finite, of all rows: outliers are what one looks for."""
    name, element = column_parts(column, query.table)
    ends: list[float] = []
    for batch in query.select(name).unordered().batches():
        values = of_one_number(column_name(column), batch.numpy()[name], element)
        if values.dtype.kind not in "biuf":
            raise InvalidInputError(f"{column_name(column)} has no numbers to bin")
        finite = values[is_there(values)]
        ends += [float(finite.min()), float(finite.max())] if len(finite) else []
        ends = [min(ends), max(ends)] if ends else []
    if not ends:
        raise InvalidInputError.hinted(f"{column_name(column)} has no values to bin", "give edges, or range=(low, high)")
    return ends[0], ends[1]
