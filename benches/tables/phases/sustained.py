"""As fast as it can, for minutes, until everything is packed; beside raw appends of the same bytes to a file."""

import multiprocessing
import shutil
import time
from itertools import cycle

import numpy as np

from .. import machine
from ..asked import written
from ..bench import Bench, told
from ..data.rows import COLUMNS, INDEX, SCHEMA, STEP_EVERY
from ..peers.base import Unavailable

_BACKLOG_STEPS = 150
"""Steps that are not packed yet beyond which the writer waits: a minute of input at full rate."""
_FRAMES = 60
_OF_DISK = 0.6
"""Share of the free space that may be taken."""
_BYTES_A_ROW = 200
"""What a row takes at most while it is appended and packed several times, what was replaced included."""


def run(bench: Bench) -> None:
    """The writer packs in its background; both sides are acknowledged by the operating system, synced at the end."""
    try:
        import atoll  # noqa: F401
    except ImportError as missing:
        raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing
    seconds = 10.0 if bench.is_quick else bench.minutes * 60.0
    rows_max = int(shutil.disk_usage(bench.folder).free * _OF_DISK / _BYTES_A_ROW)
    place = bench.folder / "atoll-sustained"
    shutil.rmtree(place, ignore_errors=True)
    frames = []
    for batch, _ in zip(bench.dataset.batches(), range(_FRAMES), strict=False):
        frames.append({name: np.array(batch[name].to_numpy()) for name in COLUMNS})
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    writer = context.Process(target=_write, args=(str(place), frames, seconds, rows_max, answers))
    writer.start()
    made = answers.get(timeout=seconds * 3 + 300)
    writer.join(timeout=60)
    writer.kill()
    shutil.rmtree(place)
    bench.measured.wrong += [f"atoll, sustained: {each}" for each in made.pop("wrong")]
    raw = _raw(bench, frames, made["rows"])
    appended = _appended(bench, frames, made["rows"])
    rate = made["rows"] / made["packed, s"]
    told(f"  {made}; {rate / 1e3:,.0f} K rows/s to the packed state, raw append {raw / 1e3:,.0f} K rows/s")
    own = f"{rate / appended:.2f}x of Atoll's own appends of the same rows, packing left for later"
    told(f"  beside the bar: {own} ({appended / 1e3:,.0f} K rows/s)")
    bench.measured.notes.append(f"sustained, beside the bar: {own}")
    bench.measured.detail["sustained"] = {
        **made,
        "raw append, rows/s": raw,
        "Atoll's own appends, packing left for later, rows/s": appended,
    }
    minutes = made["appended, s"] / 60
    why = "" if made["appended, s"] >= seconds else ", as long as the disk has room"
    bench.measured.notes.append(f"sustained for {minutes:.1f} minutes{why}; then everything was packed and synced")
    if not bench.is_quick:
        bench.measured.record("write sustained", rate / raw, {"atoll": rate, "raw append": raw})


def _write(place: str, frames: list[dict], seconds: float, rows_max: int, answers) -> None:  # noqa: ANN001: of whichever context
    import atoll

    machine.end_with_parent()
    rows = steps = 0
    with atoll.open(place) as store:
        table = store.create_table("run", SCHEMA, id=("pid", "step"), index=INDEX)
        table.keep_packed(idle=1.0)
        started = time.perf_counter()
        for step, frame in enumerate(cycle(frames)):
            table.append(_at(frame, step), run="run", step=step)
            rows, steps = rows + len(frame["pid"]), step + 1
            while table.info().blocks > _BACKLOG_STEPS:
                time.sleep(0.05)
            if time.perf_counter() - started >= seconds or rows >= rows_max:
                break
        appended = time.perf_counter() - started
        while table.info().blocks:
            time.sleep(0.05)
        store.sync()
        packed = time.perf_counter() - started
        report = table.packing
        wrong = written.wrong(table, lambda number: _at(frames[number % len(frames)], number), steps, rows)
        del table
    answers.put(
        {
            "rows": rows,
            "steps": steps,
            "appended, s": appended,
            "packed, s": packed,
            "times each row was packed": report.rows / rows,
            "wrong": wrong,
        }
    )


def _appended(bench: Bench, frames: list[dict], rows: int) -> float:
    """Rows a second that Atoll appends when nothing is packed, synced at the end: what packing can cost at most."""
    place = bench.folder / "atoll-appended"
    shutil.rmtree(place, ignore_errors=True)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    wanted = min(max(rows, 1_000_000), 20_000_000)
    writer = context.Process(target=_append, args=(str(place), frames, wanted, answers))
    writer.start()
    rate = answers.get(timeout=600)
    writer.join(timeout=60)
    writer.kill()
    shutil.rmtree(place)
    return rate


def _append(place: str, frames: list[dict], wanted: int, answers) -> None:  # noqa: ANN001: of whichever context
    import atoll

    machine.end_with_parent()
    rows = 0
    with atoll.open(place) as store:
        table = store.create_table("run", SCHEMA, id=("pid", "step"), index=INDEX, pack="later")
        started = time.perf_counter()
        for step, frame in enumerate(cycle(frames)):
            table.append(_at(frame, step), run="run", step=step)
            rows += len(frame["pid"])
            if rows >= wanted:
                break
        store.sync()
        seconds = time.perf_counter() - started
        del table
    answers.put(rows / seconds)


def _at(frame: dict[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
    """A frame as if it were of another step."""
    return {**frame, "step": np.full(len(frame["pid"]), step * STEP_EVERY, dtype=np.int64)}


def _raw(bench: Bench, frames: list[dict], rows: int) -> float:
    """Rows a second of a file that columns are appended to; no more rows than fit, and no fewer than a million."""
    from ..writing.files import RawAppend

    place = bench.folder / "raw-sustained"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    writer = RawAppend(place, is_synced=False)
    writer.start(frames[0])
    wanted, written, started = min(max(rows, 1_000_000), 50_000_000), 0, time.perf_counter()
    for step, frame in enumerate(cycle(frames)):
        writer.step(_at(frame, step))
        written += len(frame["pid"])
        if written >= wanted:
            break
    writer.is_synced = True
    writer.step({"end": np.zeros(1)})
    seconds = time.perf_counter() - started
    writer.finish()
    shutil.rmtree(place)
    return written / seconds
