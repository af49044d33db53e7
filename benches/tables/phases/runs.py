"""Ten thousand small runs in one table: made by one writer, listed, and queried for the first time."""

import time
import warnings
from pathlib import Path

import numpy as np

from ..asked.question import Question
from ..asked.truth import Answer, Truth
from ..bench import Bench, fresh, told
from ..data.rows import INDEX, SCHEMA, STEP_EVERY
from ..peers.base import Unavailable

# Rows of the deck become steps of their own here, but keep the old step in their column: no question uses it.
warnings.filterwarnings("ignore", message="the rows are step", category=UserWarning)

_RUNS, _RUNS_QUICK = 10_000, 1_000
_ROWS = 1_000
_ASKED = Question("a tenth", box={"x": (0.0, float(np.float32(0.1)))}).sample(0.1)


def run(bench: Bench) -> None:
    """Runs the phase; with a tenth of the runs nothing is recorded, because the bars are about all of them."""
    try:
        import atoll  # noqa: F401
    except ImportError as missing:
        raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing
    runs = _RUNS_QUICK if bench.is_quick else _RUNS
    with fresh(bench.folder / "atoll-runs") as place:
        seconds = _seconds(bench, place, runs)
    told(f"  {runs:,} runs, seconds: {seconds}")
    bench.measured.detail[f"{runs} runs, s"] = seconds
    if bench.is_quick:
        shown = ", ".join(f"{name} {each:.2f} s" for name, each in seconds.items())
        bench.measured.notes.append(f"{runs:,} runs instead of {_RUNS:,}: {shown}")
        return
    for name, each in seconds.items():
        bench.measured.record(f"runs {name}", each)


def _seconds(bench: Bench, place: Path, runs: int) -> dict[str, float]:
    """The time of each part; the answers are checked."""
    import atoll

    seconds = {}
    with atoll.open(place) as store:
        table = store.create_table("runs", SCHEMA, id=("pid", "step"), index=INDEX)
        started = time.perf_counter()
        for number in range(runs):
            table.append(_frame(number), run=f"run-{number:05}", step=0)
        seconds["creation"] = time.perf_counter() - started
        del table
    with atoll.open(place) as store:
        table = store.table("runs")
        started = time.perf_counter()
        answer = table.box(**_ASKED.box).sample(_ASKED.share).read()
        seconds["first query"] = time.perf_counter() - started
        told(f"  {runs:,} runs, the first query's work: {answer.work}")
        if not (found := Answer.of(answer.numpy())).agrees(expected := _expected(runs)):
            bench.measured.wrong.append(f"atoll, the first query of {runs} runs: {found} instead of {expected}")
    # Opened anew for each: the second would otherwise find what the first one read.
    with atoll.open(place) as store:
        table = store.table("runs")
        started = time.perf_counter()
        if (found := len(table.runs())) != runs:
            bench.measured.wrong.append(f"atoll lists {found} of {runs} runs")
        seconds["listing"] = time.perf_counter() - started
    return seconds


def _expected(runs: int) -> Answer:
    """What the query must find, determined by a scan of every run."""
    each = [Truth(_frame(number)).answer(_ASKED) for number in range(runs)]
    return Answer(
        sum(one.rows for one in each),
        sum(one.sum_pid for one in each),
        sum(one.sum_step for one in each),
        sum(one.sum_vz for one in each),
    )


def _frame(number: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(number)
    columns = {"pid": np.arange(_ROWS, dtype=np.int32) + number * _ROWS, "step": np.zeros(_ROWS, dtype=np.int64)}
    columns["type"] = np.ones(_ROWS, dtype=np.int8)
    columns["step"] += STEP_EVERY
    for name in ("x", "y", "z", "vx", "vy", "vz"):
        columns[name] = random.random(_ROWS, dtype=np.float32)
    return columns
