"""While a run writes at full rate: when a step is seen by another process, and what samples touch meanwhile."""

import math
import multiprocessing
import shutil
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice

from ..asked import written
from ..asked.question import Question
from ..bench import Bench, told
from ..data.rows import PARTICLES
from ..peers.base import Unavailable
from ..report.measured import median, quantile
from .live_writer import FRAMES, RUN, Appended, Order, at, write

_SECONDS_QUICK = 10.0
_STEP_SECONDS = 0.4
"""125 K rows a second: 50,000 particles, an output every 80 steps."""
_OF_DISK = 0.75
"""Share of the free space that may be taken."""
_BYTES_A_ROW = 160
"""What a row takes while it is appended and packed several times, what was replaced included."""
_SEEN_SECONDS = 30.0
"""How long the last step may take to be seen; what is not seen by then counts as never seen."""
_BOX_ROWS = 10_000
"""Rows of a tenth of a box of 100 K rows."""


@dataclass
class _Seen:
    """Versions that another process saw, and when."""

    versions: list[tuple[float, int]] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    last: int | None = None
    """The version of the last step, once it is known: after that there is nothing to see."""


def run(bench: Bench) -> None:
    """One process writes as two ranks and packs in its background; this one follows and samples."""
    try:
        import atoll
    except ImportError as missing:
        raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing
    place = bench.folder / "atoll-live"
    shutil.rmtree(place, ignore_errors=True)
    room = int(shutil.disk_usage(bench.folder).free * _OF_DISK / (_BYTES_A_ROW * PARTICLES))
    steps = min(room, int((_SECONDS_QUICK if bench.is_quick else bench.minutes * 60.0) / _STEP_SECONDS))
    context = multiprocessing.get_context("spawn")
    appended, is_looked_at = context.Queue(), context.Event()
    order = Order(str(place), steps, _STEP_SECONDS)
    writer = context.Process(target=write, args=(order, bench.dataset, appended, is_looked_at))
    writer.start()
    try:
        if appended.get(timeout=60) is not None:
            raise RuntimeError("the writer speaks before it is ready")
        with atoll.open(place, create=False) as store:
            made = _watched(bench, store, writer, appended, steps)
            made["drained"] = _drained(store.table(RUN))
            _check(bench, store.table(RUN), made["appended"])
    finally:
        is_looked_at.set()
        writer.join(timeout=60)
        writer.kill()
    _record(bench, made)
    shutil.rmtree(place)


def _watched(bench: Bench, store, writer, appended, steps: int) -> dict:  # noqa: ANN001: types of packages that may be missing
    table, seen = store.table(RUN), _Seen()
    with ThreadPoolExecutor(1) as threads:
        follower = threads.submit(_follow, store.table(RUN), seen)
        try:
            made = _sampled(bench, table, writer, appended, steps, follower)
            seen.last = max(step.version for step in made["appended"])
            wait([follower], _SEEN_SECONDS)
        finally:
            seen.is_over.set()
        # What ended it is told here, and nothing is recorded of a run that nobody followed.
        follower.result()
    return {**made, "seen": seen.versions}


def _sampled(bench: Bench, table, writer, appended, steps: int, follower: Future) -> dict:  # noqa: ANN001: as above
    """Samples until every step is acknowledged."""
    ratios: dict[str, list[float]] = {"global": [], "box": []}
    box = _box(bench)
    made: list[Appended] = []
    backlog: list[float] = []
    while len(made) < steps:
        for name, asked in (("global", table.sample(0.01)), ("box", _as_query(table, box))):
            work = asked.read().work
            if work.rows_returned >= (_BOX_ROWS if name == "box" else 1):
                ratios[name].append(work.rows_touched / work.rows_returned)
        backlog.append(table.info().blocks / 2 * _STEP_SECONDS)
        while not appended.empty():
            made.append(appended.get())
        if follower.done():
            follower.result()
        if not writer.is_alive() and appended.empty() and len(made) < steps:
            raise RuntimeError(f"the writer ended after {len(made)} of {steps} steps")
        wait([follower], 0.5)
    return {"appended": made, "ratios": ratios, "backlog": backlog}


def _drained(table) -> float:  # noqa: ANN001
    """Seconds until nothing was left to pack."""
    started = time.monotonic()
    while table.info().blocks and time.monotonic() < started + 300:
        time.sleep(0.1)
    return time.monotonic() - started


def _follow(table, seen: _Seen) -> None:  # noqa: ANN001
    """Notes every version that becomes current, as a viewer would learn of it."""
    native = table._native
    last = 0
    while not seen.is_over.is_set() and (seen.last is None or last < seen.last):
        if hasattr(native, "follow"):
            version = native.follow(last, 0.5)
        else:
            version = table.version()
        if version != last:
            seen.versions.append((time.monotonic(), version))
            last = version
        elif not hasattr(native, "follow"):
            time.sleep(0.002)


def _box(bench: Bench) -> Question:
    """A box over all time that comes to have 100 K rows soon after the start: a fifth of all rows."""
    answers = bench.plan.truth
    over_all_time = [each for each in bench.plan.counted["all boxes"] if "step" not in each.box]
    return min(over_all_time, key=lambda each: abs(answers[each.name].rows - bench.dataset.rows / 5))


def _as_query(table, box: Question):  # noqa: ANN001, ANN202
    return table.where(box.expression()).sample(box.sample(0.1).share)


def _check(bench: Bench, table, appended: list[Appended]) -> None:  # noqa: ANN001
    """What was written is all there, and as it was written."""
    batches = islice(bench.dataset.batches(), min(len(appended), FRAMES))
    frames = [{name: batch[name].to_numpy() for name in ("pid", "step", "vz")} for batch in batches]
    wrong = written.wrong(
        table, lambda number: at(frames[number % len(frames)], number), len(appended), sum(each.rows for each in appended)
    )
    bench.measured.wrong += [f"atoll, after writing at full rate: {each}" for each in wrong]


def visible_after(appended: list[Appended], seen: list[tuple[float, int]]) -> list[float]:
    """Milliseconds from the beginning of each step's write to the first sight of a version that has it; without end for a
    step that was never seen.
    """
    found = []
    for step in appended:
        first = next((moment for moment, version in seen if version >= step.version), math.inf)
        found.append((first - step.began) * 1e3)
    return found


def _record(bench: Bench, made: dict) -> None:
    ratios, delays = made["ratios"], visible_after(made["appended"], made["seen"])
    unseen = sum(math.isinf(each) for each in delays)
    if unseen:
        bench.measured.notes.append(f"live: {unseen} of {len(delays)} steps were never seen")
    visible = quantile(delays, 0.95)
    if math.isinf(visible):
        bench.measured.miss("live visible")
    else:
        bench.measured.record("live visible", visible)
    bench.measured.record("live touched global", median(ratios["global"]))
    bench.measured.record("live touched box", median(ratios["box"]))
    backlog = made["backlog"]
    if not bench.is_quick:
        bench.measured.record("live backlog", backlog[-1])
    took = [(each.acknowledged - each.began) * 1e3 for each in made["appended"]]
    told(
        f"  {len(delays)} steps: acknowledged after {median(took):.1f} ms, visible after {median(delays):.1f} ms"
        f" (p95 {quantile(delays, 0.95):.1f}); 1 % touched {median(ratios['global']):.2f}x,"
        f" 10 % of a box {median(ratios['box']):.2f}x; backlog {backlog[-1]:.1f} s of input, at most"
        f" {max(backlog):.1f} s, gone {made['drained']:.1f} s after the end"
    )
    bench.measured.notes.append(f"full rate for {len(took) * _STEP_SECONDS / 60:.1f} minutes, packed by its owner")
    bench.measured.detail["live"] = {
        "visible, ms": [each for each in delays if math.isfinite(each)],
        "never seen": unseen,
        "acknowledged, ms": took,
        "touched": ratios,
        "backlog, s": backlog,
        "drained, s": made["drained"],
    }
