"""Dates, instants and durations of Python and pandas, converted to NumPy's, from which columns are made.

Invariant: an instant with a zone becomes the same instant in UTC, and one without is taken as UTC, as in conditions.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any


#: The units of a table in which instants of NumPy's other units are whole numbers; of finer ones, only some are.
_INSTANTS = {"Y": "D", "M": "D", "W": "D", "D": "D", "h": "s", "m": "s", "ps": "ns", "fs": "ns", "as": "ns"}
#: Those of durations: months and years are none, since they differ in length.
_DURATIONS = {"W": "s", "D": "s", "h": "s", "m": "s", "ps": "ns", "fs": "ns", "as": "ns"}
_OWN = {unit: unit for unit in ("s", "ms", "us", "ns")}


def unit_of_table(dtype: Any) -> str | None:
    """Return the unit in which a table holds NumPy's times of a type; ``None`` if there is none."""
    unit = dtype.str.partition("[")[2].rstrip("]").lstrip("0123456789")
    return (_OWN | (_INSTANTS if dtype.kind == "M" else _DURATIONS)).get(unit)


def in_unit_of_table(held: Any, mask: Any, numpy: Any) -> tuple[Any, int | None]:
    """Return times in the unit of a table, and the place of the first one that it does not hold exactly, if any.

    ``mask`` has a byte for each of them, other than 0 where there is none, or is ``None``.
    """
    wanted = numpy.dtype(f"{held.dtype.kind}8[{unit_of_table(held.dtype)}]")
    if held.dtype.newbyteorder("=") == wanted:
        return held, None
    became = held.astype(wanted)
    # What does not survive the round trip was cut, or wrapped around.
    is_other = (became.astype(held.dtype) != held).reshape(-1)
    wrong = numpy.flatnonzero(is_other if mask is None else is_other & (mask == 0))
    return became, int(wrong[0]) if wrong.size else None


def without_nat(values: list[Any]) -> list[Any]:
    """Return the values with ``None`` for pandas' not-a-time."""
    return [None if type(value).__name__ == "NaTType" else value for value in values]


def times(values: Sequence[Any], numpy: Any) -> Any | None:
    """Return an array of dates, instants or durations; ``None`` if they are not all of one kind, or fit no unit.

    Raises ``OverflowError`` for NumPy instants or durations that no single unit can hold: NumPy would wrap them around.
    """
    for kind in (numpy.datetime64, numpy.timedelta64):
        if all(isinstance(value, kind) for value in values):
            held = _in_one_unit(list(values), numpy)
            if held is None:
                raise OverflowError("its times have several units, and no unit of one column holds them all")
            return held
    if all(isinstance(value, datetime.datetime) for value in values):
        return _in_one_unit([_instant(value, numpy) for value in values], numpy)
    if all(isinstance(value, datetime.timedelta) for value in values):
        return _in_one_unit([_duration(value, numpy) for value in values], numpy)
    if all(isinstance(value, datetime.date) and not isinstance(value, datetime.datetime) for value in values):
        return numpy.array(values, dtype="M8[D]")
    return None


def _instant(value: datetime.datetime, numpy: Any) -> Any:
    if hasattr(value, "to_datetime64"):
        # A pandas Timestamp may have a finer resolution than Python's.
        return value.to_datetime64()
    naive = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
    return numpy.datetime64(naive, "us")


def _duration(value: datetime.timedelta, numpy: Any) -> Any:
    return value.to_timedelta64() if hasattr(value, "to_timedelta64") else numpy.timedelta64(value, "us")


def _in_one_unit(values: list[Any], numpy: Any) -> Any | None:
    held = numpy.array(values)
    if len({value.dtype for value in values}) > 1:
        # The finest of the units may not reach as far as the others, and NumPy does not report that.
        pairs = zip(held, values, strict=True)
        if any(became.astype(value.dtype) != value and not numpy.isnat(value) for became, value in pairs):
            return None
    return held
