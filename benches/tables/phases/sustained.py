"""Writing at full speed, for minutes, until everything is packed; compared with raw appends of the same bytes to files.

Ten minutes of that need more room than a disk has. So there is one table after another: each is written until it has
its rows, then until all of it is packed and synced, and the clock stops while it is checked and removed. The raw files
get the same steps in the same portions, each synced, and are also removed while the clock is stopped.
"""

import shutil
import time
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from ..asked import written
from ..bench import Bench, fresh, told
from ..children import answer_of, until
from ..data.rows import COLUMNS, INDEX, SCHEMA, STEP_EVERY
from ..peers.base import Unavailable

_BACKLOG_STEPS = 150
"""The number of unpacked steps beyond which the writer waits: a minute of input at full rate."""
_FRAMES = 60
_TABLE_ROWS = 30_000_000
"""Rows of a table: four times what may wait to be packed, which is what is packed at once."""
_OF_DISK = 0.6
"""The share of the free space that may be taken."""
_BYTES_A_ROW = 200
"""The most space of a row while it is appended and packed several times, including what was replaced."""
_IDLE_SECONDS = 0.25
"""The rest is packed after this long without a new step: rare in ten minutes, and here at the end of each table."""
_PATIENCE_SECONDS = 600.0
"""A pack that takes longer than this is stuck."""


def run(bench: Bench) -> None:
    """The writer packs in its background; on both sides the operating system acknowledges, and the end is synced."""
    try:
        import atoll  # noqa: F401
    except ImportError as missing:
        raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing
    seconds = 10.0 if bench.is_quick else bench.minutes * 60.0
    rows_max = min(_TABLE_ROWS, int(shutil.disk_usage(bench.folder).free * _OF_DISK / _BYTES_A_ROW))
    if rows_max < _TABLE_ROWS and not bench.is_quick:
        needed = _TABLE_ROWS * _BYTES_A_ROW / _OF_DISK / 1e9
        raise Unavailable(f"a table of {_TABLE_ROWS:,} rows needs {needed:.0f} GB of free disk")
    frames = []
    for batch in islice(bench.dataset.batches(), _FRAMES):
        frames.append({name: np.array(batch[name].to_numpy()) for name in COLUMNS})
    with fresh(bench.folder / "atoll-sustained") as place:
        # The same time again for what the clock does not count, and the writer's last wait.
        limit = seconds * 2 + _PATIENCE_SECONDS * 2
        made = answer_of(_write, str(place), frames, seconds, rows_max, seconds=limit, what="sustained writing")
    bench.measured.wrong += [f"atoll, sustained: {each}" for each in made.pop("wrong")]
    raw = made["rows"] / _raw(bench, frames, made["steps"])
    _record(bench, made, raw, _appended(bench, frames, rows_max))


def _record(bench: Bench, made: dict, raw: float, appended: float) -> None:
    """Records the figures, with the rows per second of raw appends and of Atoll's own appends to one table."""
    rate = made["rows"] / made["packed, s"]
    told(f"  {made}; {rate / 1e3:,.0f} K rows/s to the packed state, raw append {raw / 1e3:,.0f} K rows/s")
    own = f"{rate / appended:.2f}x of Atoll's own appends to one such table, packing left for later"
    told(f"  beside the bar: {own} ({appended / 1e3:,.0f} K rows/s)")
    bench.measured.notes.append(f"sustained, beside the bar: {own}")
    bench.measured.detail["sustained"] = {
        **made,
        "raw append, rows/s": raw,
        "Atoll's own appends, packing left for later, rows/s": appended,
    }
    bench.measured.notes.append(
        f"sustained for {made['packed, s'] / 60:.1f} minutes by the clock: {made['rows']:,} rows in {len(made['steps'])} tables,"
        " one after the other, each until it was packed and synced; raw append: the same steps in as many files"
    )
    if bench.is_quick:
        return
    if bench.is_long(made["packed, s"]):
        bench.measured.record("write sustained", rate / raw, {"atoll": rate, "raw append": raw})
    else:
        bench.leave_out("sustained", f"{made['packed, s']:.0f} s are not the {bench.minutes:g} minutes that were asked for")


def _write(place: str, frames: list[dict], seconds: float, rows_max: int) -> dict:
    """Writes one table after another until the clock has counted `seconds`."""
    tables, counted, started = [], 0.0, time.perf_counter()
    while not tables or counted < seconds:
        tables.append(_table(Path(place), frames, seconds - counted, rows_max))
        counted += tables[-1]["packed, s"]

    def total(name: str) -> float:
        return sum(each[name] for each in tables)

    rows = total("rows")
    return {
        "rows": rows,
        "steps": [each["steps"] for each in tables],
        "appended, s": total("appended, s"),
        "packed, s": counted,
        "beside the clock, s": time.perf_counter() - started - counted,
        "times each row was packed": total("rows packed") / rows,
        "wrong": [f"table {number}: {each}" for number, table in enumerate(tables) for each in table["wrong"]],
    }


def _table(place: Path, frames: list[dict], seconds: float, rows_max: int) -> dict:
    """Writes a table for `seconds` or until it has `rows_max` rows, then packs it; checks it, and removes it."""
    import atoll

    rows = steps = 0
    with fresh(place), atoll.open(place) as store:
        table = store.create_table("run", SCHEMA, id=("pid", "step"), index=INDEX)
        table.keep_packed(idle=_IDLE_SECONDS)
        started = time.perf_counter()
        for step, frame in enumerate(cycle(frames)):
            table.append(_at(frame, step), run="run", step=step)
            rows, steps = rows + len(frame["pid"]), step + 1
            _wait_for_blocks(table, _BACKLOG_STEPS)
            if time.perf_counter() - started >= seconds or rows >= rows_max:
                break
        appended = time.perf_counter() - started
        _wait_for_blocks(table, 0)
        store.sync()
        packed = time.perf_counter() - started
        report = table.packing
        wrong = written.wrong(table, lambda number: _at(frames[number % len(frames)], number), steps, rows)
        del table
    made = {"rows": rows, "steps": steps, "appended, s": appended, "packed, s": packed}
    return {**made, "rows packed": report.rows, "wrong": wrong}


def _wait_for_blocks(table, most: int) -> None:  # noqa: ANN001: of a package that may be missing
    """Waits until at most `most` steps are not packed."""
    until(lambda: table.info().blocks <= most, seconds=_PATIENCE_SECONDS, what=f"no more than {most} steps not packed")


def _appended(bench: Bench, frames: list[dict], rows: int) -> float:
    """The rows per second that Atoll appends without packing, synced at the end: a bound on what packing can cost."""
    with fresh(bench.folder / "atoll-appended") as place:
        return answer_of(_append, str(place), frames, rows, seconds=_PATIENCE_SECONDS, what="appends without packing")


def _append(place: str, frames: list[dict], wanted: int) -> float:
    import atoll

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
    return rows / seconds


def _at(frame: dict[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
    """A frame under another step number."""
    return {**frame, "step": np.full(len(frame["pid"]), step * STEP_EVERY, dtype=np.int64)}


def _raw(bench: Bench, frames: list[dict], steps_of_files: list[int]) -> float:
    """The seconds to append this many steps to each file, column after column, and to sync them."""
    from ..writing.files import RawAppend

    seconds = 0.0
    for steps in steps_of_files:
        with fresh(bench.folder / "raw-sustained") as place:
            place.mkdir()
            writer = RawAppend(place, is_synced=False)
            writer.start(frames[0])
            started = time.perf_counter()
            for step, frame in islice(enumerate(cycle(frames)), steps):
                writer.step(_at(frame, step))
            writer.is_synced = True
            writer.step({"end": np.zeros(1)})
            seconds += time.perf_counter() - started
            writer.finish()
    return seconds
