"""Boxes from a seed, with log-uniform sides, centred on random rows: a third of them over all time, a third over one to
ten output steps, a third over one step.
"""

from collections.abc import Mapping

import numpy as np

from ..data.rows import AXES, STEP_EVERY
from .question import Interval, Question

_SIDE_LEAST = 0.01
"""The shortest side, as a share of the rows' extent; the longest is the whole extent."""

TIMES = ("all time", "some steps", "one step")


def boxes(columns: Mapping[str, np.ndarray], count: int, seed: int) -> list[Question]:
    """Makes `count` boxes around these rows: `x`, `y`, `z` and `step`, with the rows in the order of steps."""
    random = np.random.default_rng(seed)
    extents = {axis: float(columns[axis].max() - columns[axis].min()) for axis in AXES}
    return [_box(columns, extents, random, place) for place in range(count)]


def _box(
    columns: Mapping[str, np.ndarray], extents: dict[str, float], random: np.random.Generator, place: int
) -> Question:
    centre = int(random.integers(len(columns["step"])))
    box: dict[str, Interval] = {}
    for axis in AXES:
        side = extents[axis] * _SIDE_LEAST ** random.random()
        middle = float(columns[axis][centre])
        box[axis] = (_as_stored(middle - side / 2), _as_stored(middle + side / 2))
    times = TIMES[place % len(TIMES)]
    outputs = int(random.integers(1, 11)) if times == "some steps" else 1
    if times != "all time":
        first = int(columns["step"][centre]) - STEP_EVERY * int(random.integers(outputs))
        box["step"] = (first, first + STEP_EVERY * outputs)
    return Question(name=f"box {place} ({times})", box=box)


def _as_stored(bound: float) -> float:
    return float(np.float32(bound))
