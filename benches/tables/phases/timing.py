"""Times of warm questions: the programs take turns, and every answer is compared with the truth.

A program is asked twice in its turn, and the second answer is timed: what the program before it did to caches and
memory is not a property of this one.
"""

import time
from collections import defaultdict
from collections.abc import Iterable

from ..asked.question import Question
from ..asked.truth import Answer
from ..bench import Bench, in_turn, told
from ..peers.base import ATOLL, Peer
from ..peers.together import Together, opened
from ..report.measured import median

Times = dict[str, dict[str, float]]
"""Milliseconds, by question and program: medians over the rounds."""

SPARK = ("spark parquet", "spark warm")
"""The better of these two is meant where a bar says Spark."""

RIVALS = ("duckdb table", "duckdb parquet", "polars parquet", "postgis 3-d", *SPARK)
"""The best of these is meant where a bar says so; if one of them is missing, the best is unknown."""


def run(bench: Bench, programs: list[Peer]) -> None:
    """Opens all programs, asks every timed question in rounds, and records the ratios."""
    with opened(bench, "warm", programs) as together:
        answered = {
            name: {question.name: asked(bench, together, question) for question in questions}
            for name, questions in bench.plan.timed.items()
        }
    times = {name: kept(together, each) for name, each in answered.items()}
    bench.measured.detail["warm, ms"] = times
    _record(bench, times)


def kept(together: Together, times: Times) -> Times:
    """The times of programs that completed all questions."""
    return {question: together.kept(each) for question, each in times.items()}


def asked(bench: Bench, together: Together, question: Question) -> dict[str, float]:
    """The milliseconds of each program, medians over the rounds."""
    found = defaultdict(list)
    # The first round does not count: it brings everything into memory.
    for turn in range(bench.rounds + 1):
        for program in in_turn(together.there, turn):
            with together.judged(program):
                program.ask(question)
                milliseconds = ask_once(bench, program, question)
                if turn:
                    found[program.name].append(milliseconds)
    times = together.kept({name: median(each) for name, each in found.items()})
    shown = ", ".join(f"{name} {each:,.2f}" for name, each in sorted(times.items(), key=lambda each: each[1]))
    told(f"  {question.name}, {bench.plan.truth[question.name].rows:,} rows, ms: {shown}")
    return times


def ask_once(bench: Bench, program: Peer, question: Question) -> float:
    """The milliseconds from the question to all columns in Python; a wrong answer is recorded for the summary."""
    started = time.perf_counter()
    table = program.ask(question)
    milliseconds = (time.perf_counter() - started) * 1e3
    found = Answer.of({name: table[name].to_numpy() for name in ("pid", "step", "vz")})
    expected = bench.plan.truth[question.name]
    if not found.agrees(expected):
        bench.measured.wrong.append(f"{program.name}, {question.name}: {found} instead of {expected}")
    return milliseconds


def best_rival(times: dict[str, float], rivals: tuple[str, ...] = RIVALS) -> float:
    """The shortest time of the rivals, all of which must be present."""
    return min(times[name] for name in rivals)


def lacking(each: Iterable[dict[str, float]], rivals: tuple[str, ...] = RIVALS) -> list[str]:
    """The programs, Atoll included, that did not answer each of these questions."""
    answered = list(each)
    return [name for name in (ATOLL, *rivals) if not all(name in times for times in answered)]


def leave_out_without(
    bench: Bench, phase: str, bars: str, missing: list[str], rivals: tuple[str, ...] = RIVALS
) -> None:
    """Reports which bars are not measured, and which rivals are missing; nothing if no rival takes part at all."""
    if set(rivals) - set(missing):
        bench.leave_out(phase, f"{bars} the best rival: not measured without {', '.join(missing)}")


def _record(bench: Bench, times: dict[str, Times]) -> None:
    against = [
        ("first over postgis 3-d", "first", ("postgis 3-d",)),
        ("first over postgis 4-d", "first", ("postgis 4-d told the cut",)),
        ("first over duckdb table", "first", ("duckdb table",)),
        ("global over spark", "global 1.5 %", SPARK),
        ("global over duckdb table", "global 1.5 %", ("duckdb table",)),
    ]
    for key, name, rivals in against:
        answered = [each for each in times[name].values() if {ATOLL, *rivals} <= set(each)]
        faster = [best_rival(each, rivals) / each[ATOLL] for each in answered]
        bench.measured.record(key, median(faster), medians(times[name]))
    missing = lacking(each for name in ("ten percent", "full") for each in times[name].values())
    faster, slower = [], []
    if missing:
        leave_out_without(bench, "warm", "what is held against", missing)
    else:
        faster = [best_rival(each) / each[ATOLL] for each in times["ten percent"].values()]
        slower = [each[ATOLL] / best_rival(each) for each in times["full"].values()]
    bench.measured.record("ten percent over best", median(faster), medians(times["ten percent"]))
    bench.measured.record("full time over best", median(slower), medians(times["full"]))


def medians(times: Times) -> dict[str, float]:
    """Each program's median over the questions of a class, ms."""
    by_program = defaultdict(list)
    for each in times.values():
        for name, milliseconds in each.items():
            by_program[name].append(milliseconds)
    return {name: median(each) for name, each in by_program.items()}
