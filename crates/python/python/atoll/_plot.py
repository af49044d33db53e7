"""Pictures of a query in one call, with matplotlib: a sample is enough for a picture, and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._convert import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ._query import Query

#: More points than a picture can show.
POINTS_MAX = 100_000


class Plot:
    """``q.plot.scatter("x", "z")``: each method draws into ``ax`` (a new figure without one) and returns it.

    A query that asks for more than ``points`` rows is drawn by its lightest ones, which are a random sample; the title
    says how many. An element of a vector column is ``"pos[0]"``. Needs ``matplotlib`` and ``numpy``.
    """

    def __init__(self, query: Query) -> None:
        self._query = query

    def scatter(
        self,
        x: str,
        y: str,
        *,
        color: str | None = None,
        points: int = POINTS_MAX,
        ax: Axes | None = None,
        **options: Any,
    ) -> Axes:
        """A point for each row; ``color`` names a column that colours them. ``options`` go to ``Axes.scatter``."""
        columns, told = self._columns(points, x, y, color)
        ax = _axes(ax)
        options = {"s": 2, "linewidths": 0, **options}
        if color is not None:
            options.setdefault("c", columns[color])
        drawn = ax.scatter(columns[x], columns[y], **options)
        if color is not None:
            ax.figure.colorbar(drawn, ax=ax, label=color)
        return _labelled(ax, x, y, told)

    def density(
        self,
        x: str,
        y: str,
        *,
        bins: int | tuple[int, int] = 200,
        points: int = 10 * POINTS_MAX,
        ax: Axes | None = None,
        **options: Any,
    ) -> Axes:
        """How many rows fall into each of ``bins`` by ``bins`` cells, on a logarithmic scale of colours.

        ``options`` go to ``Axes.hist2d``.
        """
        columns, told = self._columns(points, x, y)
        colors = needed("matplotlib.colors", ".plot")
        ax = _axes(ax)
        # Cells without rows stay empty.
        options = {"cmin": 1, "norm": colors.LogNorm(), **options}
        *_, drawn = ax.hist2d(columns[x], columns[y], bins=bins, **options)
        ax.figure.colorbar(drawn, ax=ax, label="rows in a cell")
        return _labelled(ax, x, y, told)

    def histogram(
        self,
        column: str,
        *,
        bins: int = 50,
        points: int = 10 * POINTS_MAX,
        ax: Axes | None = None,
        **options: Any,
    ) -> Axes:
        """The share of rows in each of ``bins`` ranges of a column. ``options`` go to ``Axes.hist``."""
        columns, told = self._columns(points, column)
        ax = _axes(ax)
        ax.hist(columns[column], bins=bins, density=True, **options)
        return _labelled(ax, column, "density", told)

    def _columns(self, points: int, *names: str | None) -> tuple[dict[str, Any], str]:
        """The columns of these names, an element of a vector by its own, and how many rows they show."""
        asked = [name for name in names if name is not None]
        whole = dict.fromkeys(_vector(name)[0] for name in asked)
        answer = self._query.select(*whole).limit(points).read()
        arrays = answer.numpy()
        columns = {}
        for name in asked:
            column, element = _vector(name)
            columns[name] = arrays[column] if element is None else arrays[column][:, element]
        is_cut = len(answer) == points and (self._query.rows is None or self._query.rows > points)
        return columns, f"the {points:,} lightest rows" if is_cut else f"{len(answer):,} rows"


def _vector(name: str) -> tuple[str, int | None]:
    column, bracket, element = name.removesuffix("]").partition("[")
    is_element = bracket and name.endswith("]") and element.isdigit()
    return (column, int(element)) if is_element else (name, None)


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
