"""A query as a lazy Polars frame: columns and predicates are pushed down, and predicates are applied again.

What is pushed down must keep every row that Polars wants. Polars takes NaN for the greatest number, and compares
``Float32`` columns in 32 or 64 bits depending on the case, so some conditions are widened, and those that cannot be
translated reliably are left out. The predicate itself is then applied to every batch here, because Polars does not
apply it.
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

#: The rows of a batch if Polars asks for no number.
_BATCH_ROWS = 65_536
_COMPARISONS = {"Gt": ">", "GtEq": ">=", "Lt": "<", "LtEq": "<=", "Eq": "=", "NotEq": "!="}
_FLIPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "=", "!=": "!="}
#: The operators of the ends of `is_between`, by its `closed` argument.
_ENDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_TICKS = {"Milliseconds": ("ms", 1_000), "Microseconds": ("us", 1_000_000), "Nanoseconds": ("ns", 1_000_000_000)}


def scan(query: Query) -> polars.LazyFrame:
    """Return the rows of a query as a lazy frame, which reads them when it is collected."""
    frames = needed("polars", ".scan_polars()")
    plugins = needed("polars.io.plugins", ".scan_polars()")
    schema = frames.DataFrame(query.limit(0).read()).schema
    types = {name: kind for name, kind, _ in query.table.schema.fields()}

    def source(
        with_columns: list[str] | None, predicate: polars.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[polars.DataFrame]:
        # A limit applies before the predicate, which a condition that is pushed down would reverse.
        is_limited = query.rows is not None or query.units is not None
        asked = query if predicate is None or is_limited else _narrowed(query, predicate, types)
        # Only the columns of the schema that Polars knows: others may have been added since.
        wanted = schema.names() if with_columns is None else with_columns
        filtered = [] if predicate is None else predicate.meta.root_names()
        # Rows have to be counted even if none of their columns is wanted.
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
        # Together with the query's conditions it may be too deep or too long, which would only be refused at the read.
        _atoll.condition(str(narrowed.condition))
    except Exception:
        # Some predicates have no JSON form, such as those that call Python, or exceed what a condition may be.
        return query
    return narrowed


#: A condition, and whether it holds for exactly the rows of the predicate; otherwise it may hold for more.
Pushed = tuple[Expression, bool]


def translated(tree: Any, types: dict[str, str]) -> Pushed | None:
    """Translate a predicate, from Polars' JSON, to a condition that holds for at least its rows; none if in doubt."""
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
        # The negation of a wider condition would be narrower.
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
    """Return the value of a literal if Atoll compares it with a column of this type as Polars does; otherwise none."""
    (_, typed) = _node(literal)
    (kind, value) = _node(typed)
    if kind == "Datetime" and isinstance(value, list) and len(value) == 3:
        ticks, unit, zone = value
        return _instant(ticks, unit, zone, data_type)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and ("int" in data_type or "float" in data_type) and "[" not in data_type:
        # Beyond 2**53, Polars compares integers with doubles only approximately.
        return value if math.isfinite(value) and abs(value) < 2**53 else None
    if kind == "String" and data_type == "utf8" and isinstance(value, str):
        return value
    if kind == "Boolean" and data_type == "bool":
        return value
    return None


def _instant(ticks: int, unit: str, zone: Any, data_type: str) -> datetime.datetime | None:
    # If units or zones differ, Polars rounds one of the two.
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
