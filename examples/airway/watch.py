"""Watch a table while others write to it: once a second a sample, its mean, and the uncertainty of that mean.

    python watch.py results
    python watch.py "ring://127.0.0.1:7379/?token-file=ring/token"

This is a separate process, which knows nothing of the simulation and never reads more than its sample. The number after
± is half the width of an interval that contains the mean of all rows 95 times in 100.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import atoll


class Look(NamedTuple):
    """What one look at the table found."""

    step: int
    rows: int
    mean: float
    error: float
    rows_read: int
    ms: float
    #: Including the query for the progress of the run.
    ms_in_all: float

    HEADING = "    step        rows so far        mean vz in 1 %           rows read of those there          took"

    def line(self) -> str:
        """Format the look for people."""
        share = 100 * self.rows_read / self.rows
        return (
            f"{self.step:8,}    {self.rows:15,}    {self.mean:8.4f} ± {self.error:.4f}"
            f"    {self.rows_read:10,}  ({share:.2f} %)    {self.ms:9.1f} ms"
        )


def look(table: atoll.Table, run: str, share: float) -> Look | None:
    """Read a share of the rows; return None while there are none."""
    began = time.perf_counter()
    state = next((state for state in table.runs() if state.name == run), None)
    if state is None or state.last_complete is None:
        return None
    started = time.perf_counter()
    mean = table.sample(share).mean("vz")
    ms, ms_in_all = (1000 * (time.perf_counter() - since) for since in (started, began))
    return Look(state.last_complete, state.rows, mean.value, mean.half_width, mean.work.rows_touched, ms, ms_in_all)


def main() -> None:
    """Look at the table until the last step is complete."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", help="folder or URL of the store")
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


def wait_for_table(store: str) -> atoll.Table:
    """Return the table as soon as it exists, and say what is missing if that takes more than three seconds."""
    silent_until: float | None = time.monotonic() + 3
    while True:
        try:
            return atoll.open(store, create=False).table("airway")
        except atoll.errors.NotFoundError as missing:
            if silent_until is not None and time.monotonic() > silent_until:
                print(f"waiting: {missing}", file=sys.stderr, flush=True)
                silent_until = None
            time.sleep(0.1)


if __name__ == "__main__":
    main()
