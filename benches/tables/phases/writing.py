"""Acknowledged writing: the same steps to every program, each acknowledged before the next one is handed over.

An acknowledgement means the same on every side: the data is on the disk.
"""

import itertools
import shutil
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from ..bench import Bench, in_turn, told
from ..data.rows import COLUMNS
from ..peers.base import RivalFailed, Unavailable, of_rival
from ..report.measured import median
from ..writing.base import Frame, Writer

_STEPS = 20
"""Steps of a round: a million rows."""

_AGAINST = {"hdf5": "hdf5", "adios2": "adios2 bp5", "dump": "lammps dump", "csv": "csv"}


def run(bench: Bench) -> None:
    """The rows per second of every program: medians over rounds in which they take turns."""
    from ..writing.everyone import WRITERS

    batches = itertools.islice(bench.dataset.batches(), _STEPS)
    # As a simulation has them: in memory of its own, which may be overwritten.
    frames = [{name: np.array(batch[name].to_numpy()) for name in COLUMNS} for batch in batches]
    rates: dict[str, list[float]] = defaultdict(list)
    missing: set[type[Writer]] = set()
    for turn in range(bench.rounds):
        for kind in in_turn(WRITERS, turn):
            if kind in missing:
                continue
            try:
                with of_rival(kind.name):
                    rate, wrong = _rate(bench.folder / "writing", kind, frames, is_synced=True)
            except Unavailable as why:
                missing.add(kind)
                bench.leave_out(kind.name, why)
            except RivalFailed as failed:
                missing.add(kind)
                rates.pop(kind.name, None)
                bench.fail("writing", str(failed), ())
            else:
                rates[kind.name].append(rate)
                bench.measured.wrong += [f"{kind.name}, writing: {each}" for each in wrong]
    by_program = {name: median(each) for name, each in rates.items()}
    bench.measured.detail["acknowledged writing, rows/s"] = by_program
    shown = ", ".join(f"{name} {each / 1e3:,.0f}" for name, each in by_program.items())
    told(f"  K rows/s, each step acknowledged by the disk: {shown}")
    bench.measured.notes.append("written steps were acknowledged by the disk on every side")
    for key, name in _AGAINST.items():
        if "atoll" in by_program and name in by_program:
            figure = by_program["atoll"] / by_program[name]
            bench.measured.record(f"write over {key}", figure, {each: by_program[each] for each in ("atoll", name)})


def _rate(folder: Path, kind: type[Writer], frames: list[Frame], *, is_synced: bool) -> tuple[float, list[str]]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer = kind(folder, is_synced=is_synced)
    writer.start(frames[0])
    started = time.perf_counter()
    for frame in frames:
        writer.step(frame)
    seconds = time.perf_counter() - started
    writer.finish()
    wrong = writer.wrong(frames)
    shutil.rmtree(folder)
    return sum(len(frame["pid"]) for frame in frames) / seconds, wrong
