"""Tolerance queries: how much more is read than the tolerance needs, and whether the exact answer would cost less.

The bar counts the rows that had to be decoded: those that the estimator was given, which are reported separately, and
those that are stored next to them.
"""

import math
import time
from typing import Protocol

import numpy as np

from ..bench import ROWS_TABLE, Bench, told
from ..peers.base import Unavailable
from ..report.measured import median

_OF_SD = 0.05
"""Half-width of the requested interval, in standard deviations of the column."""
_QUANTILE = 1.959964
"""The quantile of the normal distribution for 95 %."""
_MISS = 0.05
"""How often the truth may lie outside of a 95 % interval."""
_DEVIATION_SLACK = 1.1
"""The interval depends on a deviation that is itself estimated."""
_FAR = 2.0
"""A distance from the truth, in half-widths, that chance does not explain: one interval in ten thousand."""
_CHANCE = 1e-3
"""Misses less likely than this are not due to chance."""


class Work(Protocol):
    """What is examined of the work for an answer."""

    rows_touched: int
    """Rows that were decoded, even if they do not belong to the answer."""


class Estimate(Protocol):
    """What is examined of an estimate."""

    value: float
    half_width: float
    rows_read: int
    """Rows that the estimator was given: those of the answer."""
    work: Work
    is_valid: bool
    doubts: tuple[str, ...]


def planned_units(rows: int) -> float:
    """The rows out of `rows` that a mean with the requested interval needs: sampling without replacement."""
    endless = (_QUANTILE / _OF_SD) ** 2
    return endless / (1 + endless / rows)


def problems(estimate: Estimate, truth: float, deviation: float) -> list[str]:
    """How the estimate differs from the request: a valid interval of this width that contains the truth or lies near
    it.
    """
    found = []
    if not estimate.is_valid:
        found.append(f"not valid: {'; '.join(estimate.doubts)}")
    if not estimate.half_width <= _OF_SD * deviation * _DEVIATION_SLACK:
        found.append(f"± {estimate.half_width} is more than {_OF_SD} of {deviation}")
    if not abs(estimate.value - truth) <= max(_FAR * estimate.half_width, 1e-9 * deviation):
        found.append(f"{estimate.value} ± {estimate.half_width} is far from {truth}")
    return found


def outside_most(count: int) -> int:
    """How many of `count` such intervals may miss the truth by chance."""
    chances = [math.comb(count, misses) * _MISS**misses * (1 - _MISS) ** (count - misses) for misses in range(count + 1)]
    return next(most for most in range(count + 1) if sum(chances[most + 1 :]) < _CHANCE)


def run(bench: Bench) -> None:
    """Asks for a mean of `vz` over every large timed box, within a twentieth of its standard deviation at 95 %."""
    try:
        import atoll
    except ImportError as missing:
        raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing
    over_plan, decoded_over_plan, over_exact, outside = [], [], [], 0
    with atoll.open(bench.store(ROWS_TABLE), create=False) as store:
        table = store.table(ROWS_TABLE)
        for question in bench.plan.timed["full"] + bench.plan.timed["middle"]:
            asked = table.where(question.expression())
            tolerant, exact = [], []
            for _ in range(bench.rounds):
                started = time.perf_counter()
                estimate = asked.within(of_sd=_OF_SD).mean("vz", confidence=0.95)
                tolerant.append(time.perf_counter() - started)
                started = time.perf_counter()
                answer = asked.select("vz").arrow()["vz"].to_numpy().mean()
                exact.append(time.perf_counter() - started)
            truth = bench.truth.columns["vz"][bench.truth.places(question)].astype(np.float64)
            mean, deviation = float(truth.mean()), float(truth.std())
            found = problems(estimate, mean, deviation)
            if not abs(float(answer) - mean) <= 1e-3 * deviation:
                found.append(f"exactly {answer} instead of {mean}")
            bench.measured.wrong += [f"atoll, tolerance, {question.name}: {each}" for each in found]
            outside += abs(estimate.value - mean) > estimate.half_width
            over_plan.append(estimate.rows_read / planned_units(len(truth)))
            decoded_over_plan.append(estimate.work.rows_touched / planned_units(len(truth)))
            over_exact.append(median(tolerant) / median(exact))
    if outside > outside_most(len(over_plan)):
        bench.measured.wrong.append(f"atoll, tolerance: {outside} of {len(over_plan)} intervals are beside the truth")
    bench.measured.detail["tolerance, intervals beside the truth"] = outside
    told(
        f"  tolerance: {median(over_plan):.2f}x of the planned rows given, {median(decoded_over_plan):.2f}x decoded;"
        f" {max(over_exact):.2f}x of the exact answer's time"
    )
    bench.measured.record("tolerance rows", median(over_plan))
    bench.measured.record("tolerance decoded", median(decoded_over_plan))
    bench.measured.record("tolerance exact", max(over_exact))
