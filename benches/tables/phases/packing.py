"""Packing in the background: bytes written for small steps, and the state at rest of a table that received many small
appends.
"""

import time
import warnings
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np

from ..asked import written
from ..asked.boxes import boxes
from ..asked.question import Question
from ..asked.truth import Answer, Truth
from ..bench import Bench, fresh, told
from ..children import answer_of, answers_of, until
from ..data.rows import COLUMNS, INDEX, ROW_BYTES, SCHEMA
from ..peers.base import Unavailable
from ..report.measured import median

# Rows of the deck become steps of their own here, but keep the old step in their column: no question uses it.
warnings.filterwarnings("ignore", message="the rows are step", category=UserWarning)

_STEPS, _STEPS_QUICK, _STEP_ROWS = 10_000, 1_000, 1_000
_WRITERS, _APPEND_ROWS = 4, 100
_APPENDS, _APPENDS_QUICK = 10_000, 1_000
_IDLE_SECONDS = 60.0
_BOXES = 40
_PATIENCE_SECONDS = 900.0
"""A process that takes longer hangs."""


def run(bench: Bench) -> None:
    """Runs the phase; with a tenth of the rows it is only a first look, and records nothing."""
    try:
        import atoll  # noqa: F401
    except ImportError as missing:
        raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing
    _small_steps(bench)
    _many_appends(bench)


def _record(bench: Bench, key: str, figure: float) -> None:
    if bench.is_quick:
        bench.measured.notes.append(f"{key}, of a tenth: {figure:.2f}")
    else:
        bench.measured.record(key, figure)


def _rows(bench: Bench, count: int) -> dict[str, np.ndarray]:
    """The first rows of the run."""
    batches, found = [], 0
    for batch in bench.dataset.batches():
        batches.append(batch)
        found += batch.num_rows
        if found >= count:
            break
    return {name: np.concatenate([batch[name].to_numpy() for batch in batches])[:count] for name in COLUMNS}


def _slices(rows: dict[str, np.ndarray], size: int):  # noqa: ANN202
    for at in range(0, len(rows["pid"]), size):
        yield {name: np.ascontiguousarray(values[at : at + size]) for name, values in rows.items()}


def _small_steps(bench: Bench) -> None:
    """Runs in a process of its own, whose bytes the system counts."""
    steps = min(_STEPS_QUICK if bench.is_quick else _STEPS, bench.dataset.rows // _STEP_ROWS)
    rows = _rows(bench, steps * _STEP_ROWS)
    with fresh(bench.folder / "atoll-small-steps") as place:
        made = answer_of(_write_small_steps, str(place), rows, seconds=_PATIENCE_SECONDS, what="small steps")
    bench.measured.wrong += [f"atoll, small steps: {each}" for each in made.pop("wrong")]
    user = steps * _STEP_ROWS * ROW_BYTES
    made["bytes written over user bytes, to the system"] = made["bytes handed"] / user
    made["bytes written over user bytes, to the disk"] = made["bytes to disk"] / user
    told(f"  {steps:,} steps of {_STEP_ROWS:,} rows: {made}")
    bench.measured.detail[f"{steps} steps of {_STEP_ROWS} rows"] = made
    _record(bench, "pack bytes", max(made["bytes handed"], made["bytes to disk"]) / user)


def _write_small_steps(place: str, rows: dict[str, np.ndarray]) -> dict:
    import atoll

    before, started = _io(), time.perf_counter()
    with atoll.open(place) as store:
        table = store.create_table("run", SCHEMA, id=("pid", "step"), index=INDEX, pack="background")
        for step, frame in enumerate(_slices(rows, _STEP_ROWS)):
            table.append(frame, run="run", step=step)
        appended = time.perf_counter() - started
        _until_packed(table)
        packed, info = table.packing, table.info()
        del table
    after, seconds = _io(), time.perf_counter() - started
    return {
        "appended, s": appended,
        "packed, s": seconds,
        "bytes handed": after["wchar"] - before["wchar"],
        "bytes to disk": after["write_bytes"] - before["write_bytes"],
        "times each row was packed": packed.rows / len(rows["pid"]),
        "objects": info.cubes,
        "wrong": _wrong(place, rows),
    }


def _wrong(place: Path | str, rows: dict[str, np.ndarray]) -> list[str]:
    """How a table differs from what was handed over, in whatever portions; rows are looked up by the step in their
    column.
    """
    import atoll

    steps = np.unique(rows["step"])

    def frame_of(number: int) -> dict[str, np.ndarray]:
        low, high = np.searchsorted(rows["step"], (steps[number], steps[number] + 1))
        return {name: values[low:high] for name, values in rows.items()}

    with atoll.open(place, create=False) as store:
        return written.wrong(store.table("run"), frame_of, len(steps), len(rows["pid"]))


def _io() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def _until_packed(table) -> None:  # noqa: ANN001: of a package that may be missing
    until(lambda: not table.info().blocks, seconds=300.0, what="a table without blocks")


def _many_appends(bench: Bench) -> None:
    """Four processes append to a table that this one keeps packed; compared with the same rows, imported and packed."""
    appends = min(_APPENDS_QUICK if bench.is_quick else _APPENDS, bench.dataset.rows // _APPEND_ROWS)
    appends = appends // _WRITERS * _WRITERS
    rows = _rows(bench, appends * _APPEND_ROWS)
    with ExitStack() as folders:
        places = {kind: folders.enter_context(fresh(bench.folder / f"atoll-{kind}")) for kind in ("appends", "import")}
        seconds, appended = _appended(places["appends"], rows, 15.0 if bench.is_quick else _IDLE_SECONDS)
        imported = _imported(places["import"], rows)
        times = _queried(bench, places, rows)
        for kind, place in places.items():
            bench.measured.wrong += [f"atoll, {kind}: {each}" for each in _wrong(place, rows)]
    ratio = median([each["appends"] / each["import"] for each in times.values()])
    objects = (appended.blocks + appended.cubes) / (imported.blocks + imported.cubes)
    told(
        f"  {appends:,} appends by {_WRITERS} writers in {seconds:.1f} s; at rest {appended.blocks} blocks and"
        f" {appended.cubes} packed objects, of an import {imported.cubes}; queries {ratio:.2f}x"
    )
    bench.measured.detail[f"{appends} appends of {_APPEND_ROWS} rows"] = {
        "seconds": seconds,
        "appended": appended._asdict(),
        "imported": imported._asdict(),
        "queries, ms": times,
    }
    _record(bench, "appends objects", objects)
    _record(bench, "appends queries", ratio)


def _appended(place: Path, rows: dict[str, np.ndarray], idle: float):  # noqa: ANN202: of a package that may be missing
    """The seconds that the writers take, and the state of the table after a rest."""
    import atoll

    with atoll.open(place) as store:
        table = store.create_table("run", SCHEMA, id=("pid", "step"), index=INDEX, pack="background")
        seconds = _append_at_once(place, rows)
        _wait(table, idle)
        info = table.info()
        del table
    return seconds, info


def _imported(place: Path, rows: dict[str, np.ndarray]):  # noqa: ANN202
    import atoll

    with atoll.open(place) as store:
        table = store.create_table("run", SCHEMA, id=("pid", "step"), index=INDEX)
        for frame in _slices(rows, 50_000):
            table.append(frame)
        table.pack(whole=True)
        info = table.info()
        del table
    return info


def _queried(bench: Bench, places: dict[str, Path], rows: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Milliseconds of each question: both sides start with cold caches, and every question is asked once before it is
    timed.
    """
    import atoll

    truth = Truth(rows)
    with atoll.open(places["appends"]) as first, atoll.open(places["import"]) as second:
        tables = {"appends": first.table("run"), "import": second.table("run")}
        return {each.name: _asked(bench, tables, each, truth.answer(each)) for each in boxes(rows, _BOXES, seed=3)}


def _wait(table, seconds: float) -> None:  # noqa: ANN001
    """Idles for `seconds`; the bar states how long a table may take to become as good as an import."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and (table.info().blocks or ends - time.monotonic() > seconds / 2):
        time.sleep(0.2)


def _asked(bench: Bench, tables: dict, question: Question, expected: Answer) -> dict[str, float]:
    """The median milliseconds for each table; every answer is compared with the truth after the clock has stopped."""
    found: dict[str, list[float]] = {kind: [] for kind in tables}
    wrong = {}
    for turn in range(bench.rounds + 1):
        for kind, table in tables.items():
            started = time.perf_counter()
            rows = table.where(question.expression()).read()
            if turn:
                found[kind].append((time.perf_counter() - started) * 1e3)
            if not (answer := Answer.of(rows.numpy())).agrees(expected):
                wrong[kind] = answer
    bench.measured.wrong += [
        f"atoll, {kind}, {question.name}: {answer} instead of {expected}" for kind, answer in wrong.items()
    ]
    return {kind: median(each) for kind, each in found.items()}


def _append_at_once(place: Path, rows: dict[str, np.ndarray]) -> float:
    share = len(rows["pid"]) // _WRITERS
    parts = [{name: values[at * share : (at + 1) * share] for name, values in rows.items()} for at in range(_WRITERS)]
    each = [(str(place), number, part) for number, part in enumerate(parts)]
    started = time.perf_counter()
    answers_of(_append, each, seconds=_PATIENCE_SECONDS, what="appends of four writers")
    return time.perf_counter() - started


def _append(place: str, number: int, rows: dict[str, np.ndarray]) -> None:
    import atoll

    with atoll.open(place, create=False) as store:
        table = store.table("run")
        for step, frame in enumerate(islice(_slices(rows, _APPEND_ROWS), len(rows["pid"]) // _APPEND_ROWS)):
            table.append(frame, run=f"writer-{number}", step=step)
