"""Times of cold questions: before each one, every program is closed and the page cache is dropped.

The cache of a virtual machine's host is out of reach, so a cold time is a lower bound.
"""

import os
from collections import defaultdict
from functools import partial
from pathlib import Path

from ..asked.question import Question
from ..bench import Bench, in_turn, told
from ..peers.base import Peer
from ..peers.together import Together
from ..report.measured import median
from . import timing
from .timing import ATOLL, ask_once, best_rival, lacking, leave_out_without

_DROP = Path("/proc/sys/vm/drop_caches")
_ROUNDS_MAX = 3

RIVALS = tuple(name for name in timing.RIVALS if name != "spark warm")
"""All rivals that take part: a program that keeps a table in memory is never cold."""


def run(bench: Bench, programs: list[Peer]) -> None:
    """Asks one question of each class; the worst ratio is the figure."""
    if not _may_drop():
        bench.leave_out("cold times", f"only root may write to {_DROP}")
        return
    together = Together(bench, "cold", (program for program in programs if not program.is_only_warm))
    answered = {}
    for name, questions in bench.plan.timed.items():
        if questions:
            answered[name] = _asked(bench, together, questions[0])
    times = {name: together.kept(each) for name, each in answered.items()}
    bench.measured.detail["cold, ms"] = times
    _record(bench, times)
    first = times.get("first", {})
    if ATOLL in first and "postgis 3-d" in first:
        bench.measured.record("cold first over postgis 3-d", first["postgis 3-d"] / first[ATOLL], first)


def _record(bench: Bench, times: dict[str, dict[str, float]]) -> None:
    """Records the worst class; nothing if a rival that may be the best one there did not answer."""
    if missing := lacking(times.values(), RIVALS):
        leave_out_without(bench, "cold", "the time of every query over that of", missing, RIVALS)
    elif times:
        worst, name = max((each[ATOLL] / best_rival(each, RIVALS), name) for name, each in times.items())
        bench.measured.record("cold time over best", worst, times[name])
        bench.measured.notes.append(f"cold, the worst of {len(times)} classes is: {name}")


def _asked(bench: Bench, together: Together, question: Question) -> dict[str, float]:
    found = defaultdict(list)
    for turn in range(1 if bench.is_quick else min(bench.rounds, _ROUNDS_MAX)):
        for program in in_turn(together.there, turn):
            _drop()
            milliseconds = together.alone(program, partial(ask_once, bench, program, question))
            if milliseconds is not None:
                found[program.name].append(milliseconds)
    times = together.kept({name: median(each) for name, each in found.items()})
    shown = ", ".join(f"{name} {each:,.1f}" for name, each in sorted(times.items(), key=lambda each: each[1]))
    told(f"  cold, {question.name}, ms: {shown}")
    return times


def _may_drop() -> bool:
    return os.access(_DROP, os.W_OK)


def _drop() -> None:
    os.sync()
    _DROP.write_text("3")
