"""Frames of pandas: which of their contents are columns of a table.

pandas is not imported here: if it is not loaded, there are no frames of it.
"""

from __future__ import annotations

import sys
from typing import Any


def is_frame(data: Any) -> bool:
    """Whether it is a pandas frame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def columns_of_frame(frame: Any) -> list[tuple[Any, Any]]:
    """Return the columns by name, and the named levels of the index: an unnamed index only identifies rows."""
    names = enumerate(frame.index.names)
    levels = [(name, place) for place, name in names if name is not None and name not in frame.columns]
    return list(frame.items()) + [(name, frame.index.get_level_values(place).to_series()) for name, place in levels]


def without_unnamed_levels(frame: Any) -> Any:
    """Return the frame without the unnamed levels of its index, which pandas would export to Arrow as columns."""
    unnamed = [place for place, name in enumerate(frame.index.names) if name is None]
    if not unnamed:
        return frame
    if len(unnamed) == frame.index.nlevels:
        return frame.reset_index(drop=True)
    return frame.set_axis(frame.index.droplevel(unnamed), axis=0)


def is_plain(values: Any) -> bool:
    """Whether it is a pandas series of NumPy's numbers, truth values or times, which is the same as its array.

    Of numbers nothing is missing, since NaN is a value, as in an array; not-a-time marks a missing time in both.
    """
    numpy, dtype = sys.modules.get("numpy"), getattr(values, "dtype", None)
    return numpy is not None and isinstance(dtype, numpy.dtype) and dtype.kind in "biufmM"
