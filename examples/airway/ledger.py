"""A ledger of what the job computed, kept beside the table, and a check that the table holds exactly that.

    python ledger.py results ledger.jsonl

Before a step is written, its ranks add up the number of particles and a checksum of all their values, and rank 0
appends both to a file. Afterwards every row of the table is read and added up again. This detects any row that is lost,
doubled, changed, or from another attempt than the rest of its step.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy

import atoll

#: Odd, with bits set all over: multiplying by it spreads every bit of the other factor.
SPREAD = numpy.uint64(0x9E3779B97F4A7C15)


class Line(NamedTuple):
    """One step, as one attempt computed it."""

    attempt: int
    step: int
    rows: int
    sum: int


class Ledger:
    """Appends a line for each step; constructed on all ranks, written by the first."""

    def __init__(self, path: Path | None, attempt: int, comm: Any) -> None:
        self._attempt, self._comm = attempt, comm
        self._file = path.open("a", encoding="utf-8") if path is not None and comm.rank == 0 else None
        self._is_kept = path is not None

    def note(self, step: int, rows: int, columns: Mapping[str, numpy.ndarray]) -> None:
        """Add a line, called on all ranks; `rows` is the number of rows on all of them, as the simulation counts."""
        if not self._is_kept:
            return
        total = sum(self._comm.allgather(checksum(columns))) % 2**64
        if self._file is not None:
            line = Line(self._attempt, step, rows, total)
            self._file.write(json.dumps(line._asdict()) + "\n")
            # Flushed data stays with the operating system if this process is killed.
            self._file.flush()


def checksum(columns: Mapping[str, numpy.ndarray]) -> int:
    """Return a checksum of rows that does not depend on their order, so that those of the ranks can be added."""
    mixed = numpy.zeros(len(next(iter(columns.values()))), dtype=numpy.uint64)
    for name in sorted(columns):
        values = numpy.ascontiguousarray(columns[name])
        bits = values.view(f"u{values.dtype.itemsize}") if values.dtype.kind == "f" else values
        mixed = (mixed + bits.astype(numpy.uint64)) * SPREAD
        mixed ^= mixed >> numpy.uint64(29)
    return int(mixed.sum(dtype=numpy.uint64))


def problems(lines: Iterable[Line], rows: Mapping[str, numpy.ndarray]) -> list[str]:
    """Return how the rows of a finished run differ from the ledger; an empty list if they agree."""
    computed: dict[int, list[Line]] = {}
    for line in lines:
        computed.setdefault(line.step, []).append(line)
    order = numpy.argsort(rows["step"], kind="stable")
    steps, starts = numpy.unique(rows["step"][order], return_index=True)
    found = [f"step {step} was computed and is not in the table" for step in sorted(set(computed) - set(steps.tolist()))]
    attempts = []
    for step, places in zip(steps.tolist(), numpy.split(order, starts[1:]), strict=True):
        ids = rows["pid"][places]
        doubled = len(ids) - len(numpy.unique(ids))
        total = checksum({name: values[places] for name, values in rows.items() if name != "step"})
        same = [line.attempt for line in computed.get(step, []) if (line.rows, line.sum) == (len(places), total)]
        if doubled or not same:
            counts = ", ".join(f"attempt {line.attempt} had {line.rows}" for line in computed.get(step, []))
            found.append(f"step {step}: {len(places)} rows, {doubled} of them doubled; {counts or 'no attempt computed it'}")
        attempts.append(max(same, default=0))
    if attempts != sorted(attempts):
        found.append(f"later steps are of earlier attempts: {attempts}")
    return found


def main() -> int:
    """Compare a table with a ledger."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("ledger", type=Path)
    asked = parser.parse_args()
    lines = [Line(**json.loads(line)) for line in asked.ledger.read_text(encoding="utf-8").splitlines()]
    rows = atoll.open(asked.store, create=False).table("airway").numpy()
    found = problems(lines, rows)
    for problem in found:
        print(problem)
    again = len(lines) - len({line.step for line in lines})
    print(
        f"{len(rows['pid']):,} rows in {len(set(rows['step'].tolist())):,} steps are as the ranks computed them; "
        f"{again} steps were computed twice and are there once"
        if not found
        else f"{len(found)} steps are wrong"
    )
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
