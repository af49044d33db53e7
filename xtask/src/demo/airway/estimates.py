"""Ten quantities of a run, estimated by Atoll from a sample, with intervals that hold the truth 95 times in 100.

The truth is NumPy's, of every row: it shares no code with Atoll's estimators, and judges them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

import atoll

Rows = dict[str, numpy.ndarray]


class Quantity(NamedTuple):
    """Something about the run: how to ask Atoll for it, and how to compute it from all rows."""

    name: str
    ask: Callable[[atoll.Query], atoll.Estimate]
    truth: Callable[[Rows], float]


def mean(values: numpy.ndarray) -> float:
    """The mean, added up in doubles."""
    return float(values.mean(dtype=float))


QUANTITIES = (
    Quantity("mean of vz", lambda q: q.mean("vz"), lambda r: mean(r["vz"])),
    Quantity("mean of vz in the trunk", lambda q: q.where("z > 0").mean("vz"), lambda r: mean(r["vz"][r["z"] > 0])),
    Quantity(
        "mean of vz of the heavy ones",
        lambda q: q.where("type = 2").mean("vz"),
        lambda r: mean(r["vz"][r["type"] == 2]),
    ),
    Quantity("mean height", lambda q: q.mean("z"), lambda r: mean(r["z"])),
    Quantity("mean x, right of the middle", lambda q: q.box(x=(0, None)).mean("x"), lambda r: mean(r["x"][r["x"] >= 0])),
    Quantity("sum of vz", lambda q: q.sum("vz"), lambda r: float(r["vz"].sum(dtype=float))),
    Quantity("share of the heavy ones", lambda q: q.share("type = 2"), lambda r: mean(r["type"] == 2)),
    Quantity(
        "share at the ends, late",
        lambda q: q.where("step > 3000").share("z < -20"),
        lambda r: mean(r["z"][r["step"] > 3000] < -20),
    ),
    Quantity("median height", lambda q: q.quantile("z", 0.5), lambda r: float(numpy.quantile(r["z"], 0.5))),
    Quantity("vz that nine in ten exceed", lambda q: q.quantile("vz", 0.1), lambda r: float(numpy.quantile(r["vz"], 0.1))),
)


def estimates(store: str, share: float) -> list[dict[str, Any]]:
    """Estimates ten quantities from one row in a hundred, and says whether the truth lies in the interval."""
    with atoll.open(store, create=False) as opened:
        table = opened.table("airway")
        everything = table.numpy()
        found = [(quantity, quantity.ask(table.sample(share))) for quantity in QUANTITIES]
    print(f"  {'estimated from 1 % of the rows':34} {'estimate, 95 % sure':>30} {'the truth':>16}")
    results = []
    for quantity, estimate in found:
        truth = quantity.truth(everything)
        is_inside = estimate.low <= truth <= estimate.high
        doubts = f"; {', '.join(estimate.doubts)}" if estimate.doubts else ""
        print(
            f"    {quantity.name:32} {estimate.value:17,.4f} ± {estimate.half_width:10,.4f} {truth:16,.4f}"
            f"   {'inside' if is_inside else 'OUTSIDE'}{doubts}"
        )
        results.append(
            {"quantity": quantity.name, "value": estimate.value, "low": estimate.low, "high": estimate.high}
            | {"truth": truth, "inside": is_inside, "doubts": list(estimate.doubts)}
        )
    inside = sum(result["inside"] for result in results)
    print(f"    {inside} of {len(results)} inside; at 95 % each, one in twenty is not.")
    return results
