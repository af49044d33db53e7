"""Looks once a second into a table that others are writing: a sample, a mean, and how sure that mean is.

    python watch.py results

It is a process of its own, knows nothing of the simulation, and never reads more than its sample.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy

import atoll

#: How many standard deviations of a mean of many rows hold it 95 times in 100.
SURE = 1.96


class Look(NamedTuple):
    """What one look saw."""

    step: int
    rows: int
    mean: float
    error: float
    rows_read: int
    ms: float

    HEADING = "    step        rows so far        mean vz in 1 %           rows read of those there          took"

    def line(self) -> str:
        """For people."""
        share = 100 * self.rows_read / self.rows
        return (
            f"{self.step:8,}    {self.rows:15,}    {self.mean:8.4f} ± {self.error:.4f}"
            f"    {self.rows_read:10,}  ({share:.2f} %)    {self.ms:9.1f} ms"
        )


def look(table: atoll.Table, run: str, share: float) -> Look | None:
    """Reads a share of the rows; None while there are none."""
    state = next((state for state in table.runs() if state.name == run), None)
    if state is None or state.last_complete is None:
        return None
    started = time.perf_counter()
    answer = table.sample(share).select("vz").read()
    ms = 1000 * (time.perf_counter() - started)
    vz = answer.numpy()["vz"]
    # Rows are drawn without replacement, so reading all of them would leave no error.
    error = SURE * math.sqrt((1 - share) * numpy.var(vz, ddof=1) / len(vz)) if len(vz) > 1 else math.inf
    return Look(state.last_complete, state.rows, float(numpy.mean(vz)), error, answer.work.rows_touched, ms)


def main() -> None:
    """Looks until the last step is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--run", default="airway")
    parser.add_argument("--until", type=int, default=4_000, help="the last step")
    parser.add_argument("--json", type=Path, help="file that gets each look as a line, too")
    asked = parser.parse_args()
    table = wait_for_table(asked.store)
    print(Look.HEADING, flush=True)
    step = 0
    while step < asked.until:
        started = time.monotonic()
        seen = look(table, asked.run, 0.01)
        if seen is not None:
            print(seen.line(), flush=True)
            step = seen.step
            if asked.json is not None:
                with asked.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(seen._asdict()) + "\n")
        time.sleep(max(0.0, started + 1 - time.monotonic()))


def wait_for_table(path: Path) -> atoll.Table:
    """The table, as soon as somebody has made it."""
    while True:
        try:
            return atoll.open(path, create=False).table("airway")
        except atoll.errors.NotFoundError:
            time.sleep(0.1)


if __name__ == "__main__":
    main()
