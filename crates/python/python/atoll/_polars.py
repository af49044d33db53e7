"""A table as a lazy frame of Polars: columns and predicates are pushed down, and predicates applied again.

What is pushed down only has to keep every row that Polars wants: Polars takes NaN for the greatest of numbers, and
compares a column of ``Float32`` in 32 or 64 bits as the case may be, so some conditions are made wider, and what cannot
be translated with certainty is left out. The predicate itself is then applied to every batch, since Polars does not.
"""

from __future__ import annotations

import datetime
import json
import math
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _atoll
from ._convert import needed
from ._expression import Expression, col

if TYPE_CHECKING:
    import polars

    from ._query import Query

#: Rows of a batch where Polars has no wish.
_BATCH_ROWS = 65_536
_COMPARISONS = {"Gt": ">", "GtEq": ">=", "Lt": "<", "LtEq": "<=", "Eq": "=", "NotEq": "!="}
_FLIPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "=", "!=": "!="}
#: The ends of `is_between`, by what it says is closed.
_ENDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_TICKS = {"Milliseconds": ("ms", 1_000), "Microseconds": ("us", 1_000_000), "Nanoseconds": ("ns", 1_000_000_000)}


def scan(query: Query) -> polars.LazyFrame:
    """The rows of a query as a lazy frame, read when the frame is collected."""
    frames = needed("polars", ".scan_polars()")
    plugins = needed("polars.io.plugins", ".scan_polars()")
    schema = frames.DataFrame(query.limit(0).read()).schema
    types = {name: kind for name, kind, _ in query.table.schema.fields()}

    def source(
        with_columns: list[str] | None, predicate: polars.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[polars.DataFrame]:
        # What is limited is chosen before the predicate applies, and pushed down it would apply before.
        is_limited = query.rows is not None or query.units is not None
        asked = query if predicate is None or is_limited else _narrowed(query, predicate, types)
        # Of the columns that Polars was told of: somebody may have added others since.
        wanted = schema.names() if with_columns is None else with_columns
        filtered = [] if predicate is None else predicate.meta.root_names()
        # Rows have to be counted even if no column of them is wanted.
        asked = asked.select(*map(col, dict.fromkeys([*wanted, *filtered]) or [query.table.id[0]]))
        left = math.inf if n_rows is None else n_rows
        if n_rows is not None and predicate is None:
            asked = asked.limit(n_rows)
        for batch in asked.batches(batch_size or _BATCH_ROWS):
            frame = frames.DataFrame(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            frame = frame.select(wanted)
            yield frame.head(int(min(left, frame.height)))
            left -= frame.height
            if left <= 0:
                return

    return plugins.register_io_source(io_source=source, schema=schema)


def _narrowed(query: Query, predicate: polars.Expr, types: dict[str, str]) -> Query:
    try:
        pushed = translated(json.loads(predicate.meta.serialize(format="json")), types)
        if pushed is None:
            return query
        narrowed = query.where(pushed[0])
        # Beside the conditions of the query it may be too deep or too long, and would be refused when it is asked.
        _atoll.condition(str(narrowed.condition))
    except Exception:
        # One that cannot be written down, such as one with a function of Python, or is more than a condition may be.
        return query
    return narrowed


#: A condition, and whether it holds for exactly the rows that the predicate holds for, or for more.
Pushed = tuple[Expression, bool]


def translated(tree: Any, types: dict[str, str]) -> Pushed | None:
    """A predicate of Polars, as its JSON has it, as a condition that holds for no fewer rows; none if in doubt."""
    kind, content = _node(tree)
    if kind == "Column" and types.get(content) == "bool":
        return col(content), True
    if kind == "BinaryExpr" and content.get("op") in ("And", "LogicalAnd"):
        return _both([translated(content[side], types) for side in ("left", "right")])
    if kind == "BinaryExpr" and content.get("op") in ("Or", "LogicalOr"):
        left, right = (translated(content[side], types) for side in ("left", "right"))
        return None if left is None or right is None else (left[0] | right[0], left[1] and right[1])
    if kind == "BinaryExpr" and content.get("op") in _COMPARISONS:
        return _comparison(content["left"], _COMPARISONS[content["op"]], content["right"], types)
    if kind == "Function":
        return _function(content.get("function"), content.get("input", []), types)
    return None


def _node(tree: Any) -> tuple[str, Any]:
    if isinstance(tree, dict) and len(tree) == 1:
        return next(iter(tree.items()))
    return "", None


def _both(parts: list[Pushed | None]) -> Pushed | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    condition = known[0][0]
    for other, _ in known[1:]:
        condition = condition & other
    return condition, len(known) == len(parts) and all(exact for _, exact in known)


def _function(function: Any, inputs: list[Any], types: dict[str, str]) -> Pushed | None:
    boolean = function.get("Boolean") if isinstance(function, dict) else None
    if boolean == "Not" and len(inputs) == 1:
        inner = translated(inputs[0], types)
        # The other way round, wider would be narrower.
        return (~inner[0], True) if inner is not None and inner[1] else None
    if boolean in ("IsNull", "IsNotNull") and len(inputs) == 1:
        kind, name = _node(inputs[0])
        if kind == "Column":
            is_null = col(name).is_null()
            return (is_null if boolean == "IsNull" else ~is_null), True
    if isinstance(boolean, dict) and "IsBetween" in boolean and len(inputs) == 3:
        low, high = _ENDS.get(boolean["IsBetween"].get("closed"), (None, None))
        if low is not None and high is not None:
            value, least, most = inputs
            return _both([_comparison(value, low, least, types), _comparison(value, high, most, types)])
    return None


def _comparison(left: Any, symbol: str, right: Any, types: dict[str, str]) -> Pushed | None:
    if _node(left)[0] != "Column":
        left, right, symbol = right, left, _FLIPPED[symbol]
    (kind, name), (other, literal) = _node(left), _node(right)
    if kind != "Column" or other != "Literal" or name not in types:
        return None
    value = _value(literal, types[name])
    return None if value is None else _compared(col(name), symbol, value, types[name])


def _value(literal: Any, data_type: str) -> Any:
    """The value of a literal, if it is compared with a column of this type as Atoll does; otherwise none."""
    (_, typed) = _node(literal)
    (kind, value) = _node(typed)
    if kind == "Datetime" and isinstance(value, list) and len(value) == 3:
        ticks, unit, zone = value
        return _instant(ticks, unit, zone, data_type)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and ("int" in data_type or "float" in data_type) and "[" not in data_type:
        # Beyond 2**53 Polars compares integers with doubles only nearly.
        return value if math.isfinite(value) and abs(value) < 2**53 else None
    if kind == "String" and data_type == "utf8" and isinstance(value, str):
        return value
    if kind == "Boolean" and data_type == "bool":
        return value
    return None


def _instant(ticks: int, unit: str, zone: Any, data_type: str) -> datetime.datetime | None:
    # Where units or zones differ, Polars rounds one of the two.
    short, per_second = _TICKS.get(unit, ("", 1))
    if zone is not None or data_type != f"timestamp[{short}]" or ticks * 1_000_000 % per_second:
        return None
    try:
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=ticks * 1_000_000 // per_second)
    except OverflowError:
        return None


def _compared(column: Expression, symbol: str, value: Any, data_type: str) -> Pushed:
    if data_type == "float32":
        narrow = struct.unpack("f", struct.pack("f", value))[0] if abs(value) < 3e38 else value
        low, high = min(value, narrow), max(value, narrow)
        wide = {">": column >= low, ">=": column >= low, "<": column <= high, "<=": column <= high}
        held = wide.get(symbol, column.between(low, high)) if symbol != "!=" else ~column.is_null()
        return (held | column.is_nan()) if symbol in (">", ">=") else held, False
    apply = {"=": column == value, "!=": column != value, ">": column > value, ">=": column >= value}
    held = apply.get(symbol, column < value if symbol == "<" else column <= value)
    return (held | column.is_nan()) if data_type == "float64" and symbol in (">", ">=") else held, True
