"""Selecting the rows of a table, one restriction after the other.

Invariant: every call returns a new query, and none reads a row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

from . import _atoll
from ._cell import Cell
from ._convert import check_text, number, whole
from ._expression import Expression, column_name, column_parts, column_text, condition_text, literal
from ._of_runs import runs_in_both, runs_wanted
from .errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ._query import Query
    from ._table import Table


class Choosing:
    """The methods of a query, and of a table, that select rows."""

    def query(self) -> Query:
        """Return the query itself; for a table, the query for all of it."""
        raise NotImplementedError

    def box(
        self,
        sides: Mapping[str, tuple[Any, Any]] | str | None = None,
        /,
        *,
        wrap: Cell | bool = False,
        **named: tuple[Any, Any],
    ) -> Query:
        """Select the rows within ranges, each ``(low, high)``: low is included, high is not, ``None`` is open.

        ``t.box(x=(0, 1), time=(2.0, None))``. Pass a mapping for elements of vectors and names that are no Python
        names: ``t.box({"pos[0]": (0, 1)})``; or the text that the command line takes: ``t.box("x=0:1, time=2.0:")``.

        With ``wrap``, the box continues across the boundary of a periodic cell: the given cell or, with ``True``, the
        one that the table has (:meth:`Table.set_cell`). It is the union of the pieces of its images, each half-open.
        Positions are taken to lie in the cell or at most one cell beside it, as simulations write them. Sides with an
        open end, and columns that are no axis of the cell, do not wrap.

        Raises ``InvalidInputError`` for a range whose ends are reversed, for a column named twice, and where there is
        no cell to wrap.
        """
        if not isinstance(wrap, Cell | bool):
            raise InvalidInputError.hinted(
                f"wrap must be a cell, or whether to use the table's, not {wrap!r}",
                'name a column that is called this in a mapping: box({"wrap": (low, high)})',
            )
        if sides is not None and not isinstance(sides, str | Mapping):
            raise InvalidInputError.hinted(
                f"a side of a box needs the name of its column, but {sides!r} has none", "write box(x=(low, high))"
            )
        table = self.query().table
        text = sides if isinstance(sides, str) else ", ".join(_side(table, *side) for side in (sides or {}).items())
        text = ", ".join(part for part in (text, *(_side(table, *side) for side in named.items())) if part)
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
        """Select the rows at most ``radius`` from a point: ``t.near((1, 2, 3), 0.5)``.

        In a periodic cell, the distance is that to the nearest image of a row, for upright and tilted cells alike,
        wherever the row was stored: neither the row nor the point has to lie in the cell. By default, the cell is that
        of the one run that the query selects, or else of the table (:meth:`Table.set_cell`); ``cell`` gives another.
        Without a cell, or with ``cell=False``, it is the plain distance in the columns ``axes``: by default the first
        index columns, as many as the point has numbers. A row at exactly ``radius`` is included; distances are computed
        in double precision.

        Raises ``InvalidInputError`` for a point whose axes are not those of the cell, and for a radius below 0 or
        beyond 32 cells.
        """
        if isinstance(point, str) or not hasattr(point, "__iter__"):
            raise InvalidInputError.hinted(
                f"a point needs a number for each axis, but {point!r} has none", "write near((1, 2, 3), 0.5)"
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
        """Return the cell of the one run that the query selects, or else that of the table."""
        query = self.query()
        runs = {run if isinstance(run, str) else run[1] for run in query.runs or ()}
        return query.table.cell(run=runs.pop() if len(runs) == 1 else None)

    def _cell(self, wrap: Cell | bool) -> Cell:
        found = wrap if isinstance(wrap, Cell) else self._known_cell()
        if found is None:
            raise InvalidInputError.hinted("the table has no cell to wrap a box in", "give wrap=atoll.Cell(...), or set_cell")
        return found

    def where(self, *conditions: Expression | str) -> Query:
        """Select the rows for which all conditions are true.

        ``t.where(atoll.col("type") == 2)`` or ``t.where("type = 2")``.

        Raises ``InvalidInputError``, with the position of the mistake, for a text that is no condition.
        """
        query = self.query()
        for condition in conditions:
            query = query._and(_atoll.condition(condition_text(condition)))
        return query

    def select(self, *columns: str | Expression) -> Query:
        """Select columns, in this order, each as a whole: take elements of vectors from the answer.

        Raises ``InvalidInputError`` for an element of a vector, and for anything that names no column.
        """
        if not columns or not all(isinstance(column, str | Expression) for column in columns):
            raise InvalidInputError.hinted(f"not names of columns: {columns!r}", 'write select("x", "vz")')
        query, names = self.query(), tuple(column_name(column) for column in columns)
        for name, column in zip(names, columns, strict=True):
            whole_column, element = column_parts(column, query.table)
            if element is not None:
                raise InvalidInputError.hinted(
                    f"{name} is an element of a vector, but select takes whole columns",
                    f'select("{whole_column}"), and of the answer .numpy()["{whole_column}"][:, {element}]',
                )
        return dataclasses.replace(query, columns=names)

    def sample(self, share: SupportsFloat) -> Query:
        """Select a share, from 0 to 1, of the units: the same ones in every call, and with every box and condition.

        Samples nest: ``sample(0.01)`` is part of ``sample(0.1)``. A unit is a row or, with a sample key, all rows of an
        entity.
        """
        return self.window(0.0, share)

    def window(self, after: SupportsFloat, until: SupportsFloat) -> Query:
        """Select the units between two shares: ``window(0.1, 0.2)`` is a sample independent of ``sample(0.1)``."""
        query = self.query()
        after, until = number(after, "a share, such as 0.1,"), number(until, "a share, such as 0.1,")
        _atoll.check_window(after, until)
        after = max(query.after, after)
        return dataclasses.replace(query, after=after, until=max(after, min(query.until, until)))

    def first(self, units: SupportsIndex) -> Query:
        """Select the first ``units`` units, in an order that is random and always the same."""
        return self.query()._least("units", units)

    def limit(self, rows: SupportsIndex) -> Query:
        """Select at most ``rows`` rows: the lightest. May keep part of an entity; :meth:`first` keeps whole units."""
        return self.query()._least("rows", rows)

    def of_runs(self, *names: str, where: Expression | str | None = None) -> Query:
        """Select the rows of runs: ``t.of_runs("a", "b")``, or of those whose attributes satisfy a condition.

        The condition, as in ``t.of_runs(where="temperature > 300")``, is evaluated now.

        Selecting a run costs nothing where its rows are stored alone; where they were packed with those of other runs,
        each row is checked. A query raises ``NotFoundError`` for a run that does not exist. For several stores as one,
        a name means the run of that name in every store that has one, and ``where`` selects among the runs of each
        store.
        """
        query = self.query()
        if not all(isinstance(name, str) for name in names):
            raise InvalidInputError.hinted(f"not names of runs: {names!r}", 'write of_runs("a", "b"), or of_runs(*several)')
        if where is not None and query.version is not None:
            raise UnsupportedError.hinted(
                "attributes are current, but an earlier version may have had other runs",
                "name them, as t.as_of(version).of_runs(\"a\"); t.runs(where=...) lists those that satisfy it now",
            )
        for name in names:
            check_text(name, "the name of a run")
        if where is None and not names:
            raise InvalidInputError.hinted("of_runs needs names or a condition", "give their names, or where=")
        found = [] if where is None else query.table._native.runs_of_each(condition_text(where))
        return dataclasses.replace(query, runs=runs_in_both(query.runs, runs_wanted(names, found)))

    def as_of(self, version: SupportsIndex | str) -> Query:
        """Select the table as it was at a version, given by number or as the name of a snapshot.

        For several stores as one, a number means something only to the table object that returned it. Another one,
        opened anew or unpickled in another process, raises ``NotFoundError``, or may by chance have other versions of
        the stores under that number. Splits can be sent to other processes: they have the version of each store.
        """
        query = self.query()
        if isinstance(version, str):
            version = query.table._native.snapshot_version(version)
        return dataclasses.replace(query, version=whole(version, "version"))

    def unordered(self) -> Query:
        """Select the same rows in storage order, which halves the time of a large answer.

        The :meth:`batches` of one then need only a fraction of the memory. By default, rows come in the order of their
        weights, so that the first of them are a sample. The rows of :meth:`first` and :meth:`limit` do not change; for
        several stores as one, only batches change.
        """
        return dataclasses.replace(self.query(), ordered=False)

    def with_arriving(self) -> Query:
        """Include the rows of steps that not all ranks have written yet."""
        return dataclasses.replace(self.query(), arriving=True)


def _side(table: Table, name: str, ends: Any) -> str:
    """Format a side of a box in the grammar's notation."""
    try:
        low, high = ends
    except (TypeError, ValueError):
        raise InvalidInputError.hinted(
            f"{name}={ends!r} is not a range", f"write {name}=(low, high), with None for an open end"
        ) from None
    low, high = ("" if end is None else literal(end) for end in (low, high))
    return f"{column_text(name, table)}={low}:{high}"
