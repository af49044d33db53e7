"""The order in which peers get their rows: along a z-curve through the index columns, their best general layout."""

import numpy as np

_BITS = 16


def zorder(columns: list[np.ndarray]) -> np.ndarray:
    """Positions that sort rows along the z-curve through up to four columns, each scaled to 16 bits of its range."""
    code = np.zeros(len(columns[0]), dtype=np.uint64)
    for axis, values in enumerate(columns):
        code |= _spread(_scaled(values), len(columns)) << np.uint64(axis)
    return np.argsort(code, kind="stable")


def _scaled(values: np.ndarray) -> np.ndarray:
    least, greatest = float(values.min()), float(values.max())
    width = greatest - least or 1.0
    share = (values.astype(np.float64) - least) / width
    return np.minimum(share * (1 << _BITS), (1 << _BITS) - 1).astype(np.uint64)


def _spread(values: np.ndarray, axes: int) -> np.ndarray:
    """Moves each bit to `axes` times its position."""
    spread = np.zeros_like(values)
    for bit in range(_BITS):
        spread |= ((values >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * axes)
    return spread
