"""Times of warm questions, the programs taking turns, every answer compared with the truth.

A program is asked twice in its turn and the second answer is timed: what the program before it did to caches and
memory is no property of this one.
"""

import time
from collections import defaultdict

from ..asked.question import Question
from ..asked.truth import Answer
from ..bench import Bench, in_turn, told
from ..peers.base import Peer
from ..report.measured import median

ATOLL = "atoll"

Times = dict[str, dict[str, float]]
"""Milliseconds, by question and program: medians over the rounds."""


def run(bench: Bench, programs: list[Peer]) -> None:
    """Opens all of them, asks every timed question in rounds, and records the ratios."""
    for program in programs:
        program.open()
    try:
        times = {
            name: {question.name: asked(bench, programs, question) for question in questions}
            for name, questions in bench.plan.timed.items()
        }
    finally:
        for program in programs:
            program.close()
    bench.measured.detail["warm, ms"] = times
    _record(bench, times)


def asked(bench: Bench, programs: list[Peer], question: Question) -> dict[str, float]:
    """Milliseconds of each program, medians over the rounds."""
    found = defaultdict(list)
    # The first round is not counted: it brings everything into memory.
    for turn in range(bench.rounds + 1):
        for program in in_turn(programs, turn):
            program.ask(question)
            milliseconds = ask_once(bench, program, question)
            if turn:
                found[program.name].append(milliseconds)
    times = {name: median(each) for name, each in found.items()}
    shown = ", ".join(f"{name} {each:,.2f}" for name, each in sorted(times.items(), key=lambda each: each[1]))
    told(f"  {question.name}, {bench.plan.truth[question.name].rows:,} rows, ms: {shown}")
    return times


def ask_once(bench: Bench, program: Peer, question: Question) -> float:
    """Milliseconds from the question to all columns in Python; a wrong answer is kept for the end."""
    started = time.perf_counter()
    table = program.ask(question)
    milliseconds = (time.perf_counter() - started) * 1e3
    found = Answer.of({name: table[name].to_numpy() for name in ("pid", "step", "vz")})
    expected = bench.plan.truth[question.name]
    if not found.agrees(expected):
        bench.measured.wrong.append(f"{program.name}, {question.name}: {found} instead of {expected}")
    return milliseconds


def rivals(times: dict[str, float]) -> dict[str, float]:
    """The times of all but Atoll and of what was told more than a user knows."""
    return {name: each for name, each in times.items() if name != ATOLL and "told" not in name}


def _record(bench: Bench, times: dict[str, Times]) -> None:
    against = [
        ("first over postgis 3-d", "first", "postgis 3-d"),
        ("first over postgis 4-d", "first", "postgis 4-d told the cut"),
        ("first over duckdb table", "first", "duckdb table"),
        ("global over spark", "global 1.5 %", "spark"),
        ("global over duckdb table", "global 1.5 %", "duckdb table"),
    ]
    for key, name, rival in against:
        faster = [each[rival] / each[ATOLL] for each in times[name].values() if rival in each and ATOLL in each]
        bench.measured.record(key, median(faster), medians(times[name]))
    both = {name: [each for each in times[name].values() if ATOLL in each and rivals(each)] for name in times}
    faster = [min(rivals(each).values()) / each[ATOLL] for each in both["ten percent"]]
    bench.measured.record("ten percent over best", median(faster), medians(times["ten percent"]))
    slower = [each[ATOLL] / min(rivals(each).values()) for each in both["full"]]
    bench.measured.record("full time over best", median(slower), medians(times["full"]))


def medians(times: Times) -> dict[str, float]:
    """Each program's median over the questions of a class, ms."""
    by_program = defaultdict(list)
    for each in times.values():
        for name, milliseconds in each.items():
            by_program[name].append(milliseconds)
    return {name: median(each) for name, each in by_program.items()}
