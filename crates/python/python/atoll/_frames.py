"""Frames of pandas: which of what they hold are columns of a table.

pandas is not imported here: without it nobody has a frame of it.
"""

from __future__ import annotations

import sys
from typing import Any


def is_frame(data: Any) -> bool:
    """Whether it is a frame of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def columns_of_frame(frame: Any) -> list[tuple[Any, Any]]:
    """The columns by name, and what of the index has one: an index without a name only says which row is which."""
    names = enumerate(frame.index.names)
    levels = [(name, place) for place, name in names if name is not None and name not in frame.columns]
    return list(frame.items()) + [(name, frame.index.get_level_values(place).to_series()) for name, place in levels]


def is_plain_float(values: Any) -> bool:
    """Whether it is a series of NumPy's floats, of which none is missing: NaN is a value there, as it is in an array."""
    numpy, dtype = sys.modules.get("numpy"), getattr(values, "dtype", None)
    return numpy is not None and isinstance(dtype, numpy.dtype) and dtype.kind == "f"
