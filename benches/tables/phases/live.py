"""While a run writes at full rate: when another process sees a step, and what samples touch meanwhile."""

import math
import shutil
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from ..asked import written
from ..asked.question import Question
from ..bench import Bench, fresh, told
from ..children import CONTEXT, NotDone, next_of, running
from ..data.rows import PARTICLES, STEP_EVERY
from ..peers.base import Unavailable
from ..report.measured import median, quantile
from .live_writer import FRAMES, RUN, Appended, Order, at, write

_SECONDS_QUICK = 10.0
_STEP_SECONDS = 0.4
"""125 K rows a second: 50,000 particles, an output every 80 steps."""
_OF_DISK = 0.75
"""The share of the free space that may be taken."""
_BYTES_A_ROW = 160
"""The space of a row while it is appended and packed several times, including what was replaced."""
_SEEN_SECONDS = 30.0
"""How long the last step may take to be seen; what is not seen by then counts as never seen."""
_STUCK_SECONDS = 300.0
"""A writer that acknowledges nothing for this long hangs."""
_BOX_ROWS = 140_000
"""Rows of a box of 100 K rows, which may have up to twice as many: its last step may have arrived during the query."""
_RETURNED = range(10_000, 20_001)
"""Rows of a tenth of such a box."""


@dataclass(frozen=True)
class LastSteps:
    """A box in space, over as many of the last steps as it takes to have 140 K rows, however large the table is."""

    space: Question
    rows: list[int]
    """How many rows of each frame lie in the box."""

    def after(self, steps: int) -> Question | None:
        """The box after `steps` steps; none while they have too few rows."""
        found = 0
        for first in reversed(range(steps)):
            found += self.rows[first % len(self.rows)]
            if found >= _BOX_ROWS:
                span = (first * STEP_EVERY, steps * STEP_EVERY)
                return replace(self.space, box={**self.space.box, "step": span})
        return None


@dataclass
class _Seen:
    """The versions that another process saw, and when."""

    versions: list[tuple[float, int]] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)
    last: int | None = None
    """The version of the last step, once it is known; the follower stops there."""


def run(bench: Bench) -> None:
    """One process writes as two ranks and packs in its background; this one follows and samples."""
    try:
        import atoll
    except ImportError as missing:
        raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing
    room = int(shutil.disk_usage(bench.folder).free * _OF_DISK / (_BYTES_A_ROW * PARTICLES))
    steps = min(room, int((_SECONDS_QUICK if bench.is_quick else bench.minutes * 60.0) / _STEP_SECONDS))
    box = _box(bench)
    appended, is_looked_at = CONTEXT.Queue(), CONTEXT.Event()
    with fresh(bench.folder / "atoll-live") as place:
        order = Order(str(place), steps, _STEP_SECONDS)
        writer = CONTEXT.Process(target=write, args=(order, bench.dataset, appended, is_looked_at), daemon=True)
        with running(writer):
            try:
                if next_of(appended, [writer], seconds=120, what="a writer that is ready") is not None:
                    raise RuntimeError("the writer speaks before it is ready")
                with atoll.open(place, create=False) as store:
                    made = _watched(box, store, writer, appended, steps)
                    made["drained"] = _drained(store.table(RUN))
                    _check(bench, store.table(RUN), made["appended"])
            finally:
                is_looked_at.set()
                writer.join(timeout=60)
    _record(bench, made)


def _watched(box: LastSteps, store, writer, appended, steps: int) -> dict:  # noqa: ANN001: types of packages that may be missing
    table, seen = store.table(RUN), _Seen()
    with ThreadPoolExecutor(1) as threads:
        follower = threads.submit(_follow, store.table(RUN), seen)
        try:
            made = _sampled(box, table, writer, appended, steps, follower)
            seen.last = max(step.version for step in made["appended"])
            wait([follower], _SEEN_SECONDS)
        finally:
            seen.is_over.set()
        # The error that ended it is reported here, and nothing is recorded of a run that no follower watched.
        follower.result()
    return {**made, "seen": seen.versions}


def _sampled(box: LastSteps, table, writer, appended, steps: int, follower: Future) -> dict:  # noqa: ANN001: as above
    """Samples until every step is acknowledged."""
    ratios: dict[str, list[float]] = {"global": [], "box": []}
    made: list[Appended] = []
    backlog: list[float] = []
    boxes: list[tuple[int, int]] = []
    heard = time.monotonic()
    while len(made) < steps:
        work = table.sample(0.01).read().work
        if work.rows_returned:
            ratios["global"].append(work.rows_touched / work.rows_returned)
        while not appended.empty():
            made.append(appended.get())
            heard = time.monotonic()
        if (asked := box.after(len(made))) is not None:
            work = _as_query(table, asked).read().work
            boxes.append((len(made), work.rows_returned))
            if work.rows_returned in _RETURNED:
                ratios["box"].append(work.rows_touched / work.rows_returned)
        backlog.append(table.info().blocks / 2 * _STEP_SECONDS)
        if follower.done():
            follower.result()
        if not writer.is_alive() and appended.empty() and len(made) < steps:
            raise RuntimeError(f"the writer ended after {len(made)} of {steps} steps")
        if time.monotonic() - heard > _STUCK_SECONDS:
            raise NotDone(f"the writer acknowledged {len(made)} of {steps} steps, and nothing in {_STUCK_SECONDS:.0f} s")
        wait([follower], 0.5)
    return {"appended": made, "ratios": ratios, "backlog": backlog, "boxes": boxes}


def _drained(table) -> float:  # noqa: ANN001
    """The seconds until nothing was left to pack."""
    started = time.monotonic()
    while table.info().blocks and time.monotonic() < started + 300:
        time.sleep(0.1)
    return time.monotonic() - started


def _follow(table, seen: _Seen) -> None:  # noqa: ANN001
    """Notes every version that becomes current, when a viewer would learn of it."""
    native = table._native
    last = 0
    while not seen.is_over.is_set() and (seen.last is None or last < seen.last):
        version = native.follow(last, 0.5)
        if version != last:
            seen.versions.append((time.monotonic(), version))
            last = version


def _box(bench: Bench) -> LastSteps:
    """The box of the plan, over all time, whose rows are closest to a fifth of all rows: 140 K of fourteen steps."""
    answers, truth = bench.plan.truth, bench.truth
    over_all_time = [each for each in bench.plan.counted["all boxes"] if "step" not in each.box]
    space = min(over_all_time, key=lambda each: abs(answers[each.name].rows - bench.dataset.rows / 5))
    steps = truth.columns["step"]
    begins = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1))
    rows = np.diff(np.searchsorted(truth.places(space), [*begins, len(steps)]))
    return LastSteps(space, rows[:FRAMES].tolist())


def _as_query(table, box: Question):  # noqa: ANN001, ANN202
    return table.where(box.expression()).sample(box.sample(0.1).share)


def _check(bench: Bench, table, appended: list[Appended]) -> None:  # noqa: ANN001
    """Checks that all that was written is there, and is as it was written."""
    batches = islice(bench.dataset.batches(), min(len(appended), FRAMES))
    frames = [{name: batch[name].to_numpy() for name in ("pid", "step", "vz")} for batch in batches]
    wrong = written.wrong(
        table, lambda number: at(frames[number % len(frames)], number), len(appended), sum(each.rows for each in appended)
    )
    bench.measured.wrong += [f"atoll, after writing at full rate: {each}" for each in wrong]


def visible_after(appended: list[Appended], seen: list[tuple[float, int]]) -> list[float]:
    """The milliseconds from the beginning of each step's write until a version that includes it was first seen;
    infinite for a step that was never seen.
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
    backlog = made["backlog"]
    _record_box(bench, ratios["box"], made["boxes"])
    lasted = len(delays) * _STEP_SECONDS
    if not bench.is_quick and bench.is_long(lasted):
        bench.measured.record("live backlog", backlog[-1])
    elif not bench.is_quick:
        bench.leave_out("live", f"no backlog: {lasted:.0f} s are not the {bench.minutes:g} minutes that were asked for")
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
        "boxes, steps and rows returned": made["boxes"],
        "backlog, s": backlog,
        "drained, s": made["drained"],
    }


def _record_box(bench: Bench, ratios: list[float], boxes: list[tuple[int, int]]) -> None:
    """Records the figure if most of the queried boxes had the number of rows that the bar is about."""
    judged = [(steps, rows) for steps, rows in boxes if rows in _RETURNED]
    if len(judged) * 2 <= len(boxes):
        had = f"{_RETURNED.start:,} to {_RETURNED.stop - 1:,} rows"
        bench.leave_out("live", f"no box: {len(judged)} of {len(boxes)} samples of a tenth had {had}")
        return
    bench.measured.record("live touched box", median(ratios))
    bench.measured.notes.append(
        f"10 % of a box over the last steps: {len(judged)} samples, from step {judged[0][0]} to step {judged[-1][0]},"
        f" {median([rows for _, rows in judged]):,.0f} rows each"
    )
