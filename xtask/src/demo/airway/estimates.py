"""Ten quantities of a run, estimated from a sample with intervals that hold the truth 95 times in 100.

The arithmetic is the textbook's and shares no code with Atoll: it judges the sample, not our estimators.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy

import atoll

#: Of a normal distribution, so many standard deviations hold 95 in 100.
SURE = 1.96


class Estimate(NamedTuple):
    """An estimate with an interval that should hold the truth 95 times in 100."""

    quantity: str
    value: float
    low: float
    high: float
    truth: float


def mean(values: numpy.ndarray) -> tuple[float, float, float]:
    """The mean, and an interval around it: a little too wide, for the rows are drawn without replacement."""
    half = SURE * math.sqrt(values.var(ddof=1) / len(values))
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


def quantile(values: numpy.ndarray, at: float) -> tuple[float, float, float]:
    """Which ranks of the sample the wanted rank of the whole lies between (Woodruff, 1952)."""
    half = SURE * math.sqrt(at * (1 - at) / len(values))
    return tuple(float(value) for value in numpy.quantile(values, [at, max(0.0, at - half), min(1.0, at + half)]))


def quantities(rows: dict[str, numpy.ndarray]) -> dict[str, tuple[float, float, float]]:
    """Ten quantities of these rows, with their intervals if the rows are a sample."""
    vx, vy, vz, x, y, z = (rows[name].astype(float) for name in ("vx", "vy", "vz", "x", "y", "z"))
    speed, is_heavy, is_late = numpy.sqrt(vx**2 + vy**2 + vz**2), rows["type"] == 2, rows["step"] > 3000
    return {
        "mean of vz": mean(vz),
        "mean of vz in the trunk": mean(vz[z > 0]),
        "mean of vz of the heavy ones": mean(vz[is_heavy]),
        "mean depth": mean(-z),
        "mean distance from the middle": mean(numpy.abs(x)),
        "mean square of y": mean(y**2),
        "share of the heavy ones": mean(is_heavy.astype(float)),
        "share at the ends, late": mean((z[is_late] < -20).astype(float)),
        "median depth": quantile(-z, 0.5),
        "speed that one in ten exceeds": quantile(speed, 0.9),
    }


def estimates(store: Path, share: float) -> list[dict[str, Any]]:
    """Estimates ten quantities from one row in a hundred, and says whether the truth lies in the interval."""
    with atoll.open(store, create=False) as opened:
        table = opened.table("airway")
        sample, everything = table.sample(share).numpy(), table.numpy()
    truths = quantities(everything)
    print(f"  {'estimated from 1 % of the rows':34} {'estimate, 95 % sure':>24} {'the truth':>12}")
    results = []
    for name, (value, low, high) in quantities(sample).items():
        estimate = Estimate(name, value, low, high, truths[name][0])
        is_inside = low <= estimate.truth <= high
        print(
            f"    {name:32} {value:13.4f} ± {(high - low) / 2:8.4f} {estimate.truth:12.4f}"
            f"   {'inside' if is_inside else 'OUTSIDE'}"
        )
        results.append(estimate._asdict() | {"inside": is_inside})
    inside = sum(result["inside"] for result in results)
    print(f"    {inside} of {len(results)} inside; at 95 % each, one in twenty is not.")
    return results
