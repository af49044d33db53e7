"""Tolerance queries: how much more is read than the tolerance needs, and whether the exact answer would cost less."""

import time

from ..bench import ROWS_TABLE, Bench, told
from ..peers.base import Unavailable
from ..report.measured import median

_OF_SD = 0.05
"""Half-width of the interval asked for, in standard deviations of the column."""
_QUANTILE = 1.959964
"""Of the normal distribution, for 95 %."""


def planned_units(rows: int) -> float:
    """Rows that a mean with the asked interval needs, of so many in all: sampling without replacement."""
    endless = (_QUANTILE / _OF_SD) ** 2
    return endless / (1 + endless / rows)


def run(bench: Bench) -> None:
    """A mean of `vz` over every large timed box, within a twentieth of its standard deviation at 95 %."""
    try:
        import atoll
    except ImportError as missing:
        raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing
    over_plan, over_exact = [], []
    with atoll.open(bench.store(ROWS_TABLE), create=False) as store:
        table = store.table(ROWS_TABLE)
        if not hasattr(table.query(), "within"):
            raise Unavailable("this Atoll has no tolerance queries yet")
        for question in bench.plan.timed["full"] + bench.plan.timed["middle"]:
            asked = table.where(question.expression())
            tolerant, exact = [], []
            for _ in range(bench.rounds):
                started = time.perf_counter()
                estimate = asked.within(of_sd=_OF_SD).mean("vz", confidence=0.95)
                tolerant.append(time.perf_counter() - started)
                started = time.perf_counter()
                asked.select("vz").arrow()["vz"].to_numpy().mean()
                exact.append(time.perf_counter() - started)
            rows = bench.plan.truth[question.name].rows
            over_plan.append(estimate.rows_read / planned_units(rows))
            over_exact.append(median(tolerant) / median(exact))
    told(f"  tolerance: {median(over_plan):.2f}x of the planned rows, {max(over_exact):.2f}x of the exact answer's time")
    bench.measured.record("tolerance rows", median(over_plan))
    bench.measured.record("tolerance exact", max(over_exact))
