"""The bars: what Atoll must show on a real Cassandra."""

from ..report.bars import TOUCHED, Bar, at_least
from ..report.measured import Measured


def _none(key: str, text: str) -> Bar:
    return Bar(key, text, "", 0, 0)


def _reported(key: str, text: str, unit: str) -> Bar:
    """A figure without a target, which is only reported, whichever way would be better."""
    return Bar(key, text, unit, None, None)


_SUITE = [
    _none("suite 1", "conformance suite, one node: tests that fail"),
    _none("suite 3", "conformance suite, three nodes: tests that fail"),
    _none("kill", "three nodes, one killed under load: tests that fail"),
    at_least("kill operations", "three nodes, one killed under load: definite operations", "", 2_000, 2_000),
    _none("planted", "planted store that mixes plain and conditional writes: tests that let it pass"),
]

_COSTS = [
    _reported("one writer", "lightweight transactions a second, one writer", "1/s"),
    _reported("one cell", "lightweight transactions a second, 64 writers of one cell", "1/s"),
    _reported("all", "lightweight transactions a second, 64 partitions", "1/s"),
    _reported("requests get", "requests of a linearizable get", ""),
    _reported("requests put", "requests of a put", ""),
    _reported("requests create", "requests of a create", ""),
]

_TIMES = [
    at_least("first", "first 1000 of a box with a tenth of the rows, against PostGIS 3-D", "x", 47, 47),
    at_least("ten percent", "10 % of a box with a tenth of the rows, against PostGIS 3-D", "x", 5, 5),
    at_least("full", "a whole box with a tenth of the rows, against PostGIS 3-D", "x", 1, 1),
]

_WRITING = [
    at_least("over rows", "rows/s, loaded and packed by that, against plain inserts", "x", 5, 15),
    at_least("over blobs", "rows/s, loaded and packed by that, against the same blocks made and written as blobs", "x", 0.8, 0.8),
    _reported("appended over rows", "acknowledged rows/s, appended, not packed yet, against plain inserts", "x"),
    _reported("appended over blobs", "acknowledged rows/s, appended, not packed yet, against blobs", "x"),
    _reported("in two steps over rows", "rows/s, appended step by step, then packed, against plain inserts", "x"),
    _reported("in two steps over blobs", "rows/s, appended step by step, then packed, against blobs", "x"),
]

_REST = [
    at_least("over spark", "1.5 % of everything, whole job, against Spark on a row table", "x", 52, 52),
    _none("input", "bad input: cases without a clear error, or with something lost"),
]

_WRONG = ("suite 1", "suite 3", "kill", "planted", "input")

OF_PHASE = {
    "suite": tuple(bar.key for bar in _SUITE),
    "input": ("input",),
    "costs": tuple(bar.key for bar in _COSTS),
    "writing": tuple(bar.key for bar in _WRITING),
    "questions": tuple(bar.key for bar in _TIMES),
    "sample": ("over spark",),
    "counts": tuple(bar.key for bar in TOUCHED),
}
"""The bars of each phase, which fail if the phase does not complete."""


def is_well(measured: Measured) -> bool:
    """Whether everything completed, no answer was wrong, and no test or case failed."""
    return measured.is_well() and not any(measured.figures.get(key, 0) for key in _WRONG)


BARS = (*_SUITE, *_COSTS, *TOUCHED, *_TIMES, *_WRITING, *_REST)
"""All bars, in the order of the table."""
