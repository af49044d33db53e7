"""Plots of a query in one call, with matplotlib: a sample is enough for a plot, and its title says so."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from ._convert import needed
from ._expression import Expression, col, column_name, column_parts
from .errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from ._estimate import Bin, Estimate
    from ._query import Query

#: The default limit of points: more than a plot can show.
POINTS_MAX = 100_000


class Plot:
    """Plots of a query, such as ``q.plot.scatter("x", "z")``.

    Each method draws into ``ax`` (a new figure by default) and returns it. If the query has more than ``points`` rows,
    its lightest ones are drawn, which are a random sample; the title says how many. An element of a vector column is
    ``"pos[0]"``. Needs ``matplotlib`` and ``numpy``.
    """

    def __init__(self, query: Query) -> None:
        self._query = query

    def scatter(
        self,
        x: str | Expression,
        y: str | Expression,
        *,
        color: str | Expression | None = None,
        points: int = POINTS_MAX,
        ax: Axes | None = None,
        **options: Any,
    ) -> Axes:
        """Draw a point for each row; ``color`` names a column that colours the points.

        A row that lacks a value has no point; the title says how many rows do. ``options`` go to ``Axes.scatter``.
        """
        (across, up, *colors), told = self._columns(points, x, y, *([] if color is None else [color]))
        if color is not None and colors[0].dtype.kind not in "biufmM":
            hint = "draw each of its values in a call of its own: t.where(...).plot.scatter(..., ax=ax, label=...)"
            raise InvalidInputError.hinted(f"{column_name(color)} has no numbers to colour by", hint)
        ax = _axes(ax)
        options = {"s": 2, "linewidths": 0, **options}
        if color is not None:
            options.setdefault("c", _with_gaps(colors[0]))
        drawn = ax.scatter(_with_gaps(across), _with_gaps(up), **options)
        if color is not None:
            ax.figure.colorbar(drawn, ax=ax, label=column_name(color))
        return _labelled(ax, column_name(x), column_name(y), told)

    def density(
        self,
        x: str | Expression,
        y: str | Expression,
        *,
        bins: int | tuple[int, int] = 200,
        points: int = 10 * POINTS_MAX,
        ax: Axes | None = None,
        **options: Any,
    ) -> Axes:
        """Draw how many rows fall into each of ``bins`` by ``bins`` cells, on a logarithmic colour scale.

        Rows in which either value is missing, NaN or infinite are in no cell; the title says how many. ``options`` go
        to ``Axes.hist2d``.
        """
        (across, up), told = self._columns(points, x, y)
        colors = needed("matplotlib.colors", ".plot")
        x, y, ax = column_name(x), column_name(y), _axes(ax)
        has_both = is_there(across) & is_there(up)
        if has_both.any():
            # Leave cells without rows empty.
            options = {"cmin": 1, "norm": colors.LogNorm(), **options}
            pairs = _numbers(x, across[has_both], ax.xaxis), _numbers(y, up[has_both], ax.yaxis)
            *_, drawn = ax.hist2d(*pairs, bins=bins, **options)
            ax.figure.colorbar(drawn, ax=ax, label="rows in a cell")
        return _labelled(ax, x, y, told)

    def histogram(
        self,
        column: str | Expression,
        *,
        bins: SupportsIndex | ArrayLike = 50,
        range: tuple[float, float] | None = None,
        errors: bool = True,
        ax: Axes | None = None,
        **options: Any,
    ) -> Axes:
        """Draw the density of a column in each of ``bins`` ranges, from the query's sample (:meth:`Query.histogram`).

        Error bars show the 95 % interval of each; the density is exact, without them, where every row is read. The
        title says how many rows lie beyond the bins. ``options`` go to ``Axes.bar``.
        """
        found = self._query.histogram(column, bins, range=range)
        widths = [each.high - each.low for each in found]
        heights = [each.share.value / width for each, width in zip(found, widths, strict=True)]
        below, above = _whiskers([each.share for each in found])
        if errors and any(below + above):
            scaled = ([up / width for up, width in zip(side, widths, strict=True)] for side in (below, above))
            options = {"yerr": list(scaled), "error_kw": {"linewidth": 0.8}, **options}
        ax = _axes(ax)
        ax.bar([each.low for each in found], heights, widths, align="edge", **options)
        # All shares are of the same rows.
        told = _rows_title([each.share for each in found], max(each.share.rows for each in found)) + _not_drawn(found)
        return _labelled(ax, column_name(column), "density", told)

    def errorbar(
        self,
        by: str | Expression,
        column: str | Expression,
        *,
        confidence: float = 0.95,
        simultaneous: bool = False,
        ax: Axes | None = None,
        **options: Any,
    ) -> Axes:
        """Draw the mean of a column in each group of rows with one value of ``by``, with its interval.

        ``q.sample(0.01).plot.errorbar("step", "vz")`` draws what :meth:`Query.group_means` estimates. A mean whose
        interval is unbounded, as in a group of one unit, is a hollow grey point. ``options`` go to ``Axes.errorbar``.
        """
        means = self._query.group_means(column, by, confidence=confidence, simultaneous=simultaneous)
        found = {group: mean for group, mean in means.items() if group is not None}
        sure = {group: mean for group, mean in found.items() if math.isfinite(mean.half_width)}
        unsure = {group: mean for group, mean in found.items() if group not in sure}
        options = {"fmt": "o", "markersize": 3, "capsize": 2, "linewidth": 1, **options}
        ax = _axes(ax)
        if sure:
            values = [mean.value for mean in sure.values()]
            ax.errorbar(list(sure), values, yerr=_whiskers(list(sure.values())), **options)
        if unsure:
            values = [mean.value for mean in unsure.values()]
            size = options["markersize"]
            ax.plot(list(unsure), values, "o", color="0.5", markerfacecolor="none", markersize=size)
        told = _rows_title(list(found.values()), sum(mean.rows for mean in found.values()))
        return _labelled(ax, means.by, f"mean of {means.column}", told)

    def _columns(self, points: int, *asked: str | Expression) -> tuple[list[Any], str]:
        """Return these columns, elements of vectors taken out, and a text that says how many rows they show."""
        parts = [column_parts(column, self._query.table) for column in asked]
        answer = self._query.select(*map(col, dict.fromkeys(name for name, _ in parts))).limit(points).read()
        arrays = answer.numpy()
        named = zip(map(column_name, asked), parts, strict=True)
        columns = [of_one_number(called, arrays[name], element) for called, (name, element) in named]
        is_cut = len(answer) == points and (self._query.rows is None or self._query.rows > points)
        told = f"the {points:,} lightest rows" if is_cut else f"{len(answer):,} rows"
        is_whole = functools.reduce(operator.and_, map(is_there, columns))
        lacking = len(answer) - int(is_whole.sum())
        return columns, f"{told}, {lacking:,} of them without a value" if lacking else told


def of_one_number(name: str, values: Any, element: int | None) -> Any:
    """Return a column, or one element of its vectors; refuse what would not be exactly one number for each row."""
    length = values.shape[1] if values.ndim == 2 else None
    if (length is None) == (element is None):
        return values if element is None else _element(name, values, element)
    if element is None:
        raise InvalidInputError.hinted(
            f"{name} is a column of vectors of length {length}", f'write "{name}[0]" for one of their elements'
        )
    raise InvalidInputError(f"{name} is not an element: the column has no vectors")


def _element(name: str, values: Any, element: int) -> Any:
    if element >= values.shape[1]:
        raise InvalidInputError(f"{name} is not an element: the column has vectors of {values.shape[1]}")
    return values[:, element]


def is_there(values: Any) -> Any:
    """Return where a column has a value that a plot can show: not missing, NaN or infinite."""
    numpy = needed("numpy", ".plot")
    has_value = ~numpy.ma.getmaskarray(values)
    held = numpy.ma.getdata(values)
    if held.dtype.kind in "fmM":
        return has_value & numpy.isfinite(held)
    if held.dtype.kind == "O":
        return has_value & numpy.array([value is not None for value in held], dtype=bool)
    return has_value


def _with_gaps(values: Any) -> Any:
    """Replace missing values by NaN or not-a-time: matplotlib accepts a mask, but warns of it."""
    numpy = needed("numpy", ".plot")
    if not isinstance(values, numpy.ma.MaskedArray) or values.dtype.kind not in "biufmM":
        return values
    return values.filled(values.dtype.type("NaT")) if values.dtype.kind in "mM" else values.astype("f8").filled(numpy.nan)


def _numbers(name: str, values: Any, axis: Any) -> Any:
    """Convert present values to numbers that can be binned; for times, make the axis show dates."""
    numpy = needed("numpy", ".plot")
    held = numpy.ma.getdata(values)
    if held.dtype.kind == "M":
        axis.axis_date()
        return needed("matplotlib.dates", ".plot").date2num(held)
    if held.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} has no numbers to bin")
    return held.astype("f8", copy=False)


def _whiskers(estimates: Sequence[Estimate]) -> tuple[list[float], list[float]]:
    """Return how far each interval reaches below and above its value; NaN, which draws no bar, if unbounded."""

    def reach(far: float) -> float:
        return far if math.isfinite(far) else math.nan

    return [reach(each.value - each.low) for each in estimates], [reach(each.high - each.value) for each in estimates]


def _rows_title(estimates: Sequence[Estimate], rows: int) -> str:
    if all(each.is_exact for each in estimates):
        return f"{rows:,} rows"
    doubtful = sum(not each.is_valid for each in estimates)
    told = {0: "", 1: "; 1 interval is doubtful"}.get(doubtful, f"; {doubtful} intervals are doubtful")
    return f"{rows:,} rows of a sample{told}"


def _not_drawn(bins: Sequence[Bin]) -> str:
    """Return a text that says how many rows are in none of the bins."""
    first = bins[0].share
    if not first.rows:
        return ""
    beyond = first.rows - first.missing - sum(round(each.share.value * each.share.rows) for each in bins)
    told = f", {first.missing:,} of them without a value" if first.missing else ""
    return told + (f", {beyond:,} of them beyond the bins" if beyond > 0 else "")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    return needed("matplotlib.pyplot", ".plot").subplots()[1]


def _labelled(ax: Axes, x: str, y: str, told: str) -> Axes:
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if not ax.get_title():
        ax.set_title(told)
    return ax
