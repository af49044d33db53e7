"""Counts of work: the rows that each class of questions touches, its reads and its requests. They are exact, and the
same on every machine.
"""

import json
from dataclasses import fields

from ..asked.plan import entities
from ..asked.question import Question
from ..asked.truth import Answer
from ..bench import PATHS_TABLE, ROWS_TABLE, Bench, told
from ..report.measured import median, quantile

_ROWS_A_REQUEST = 25_000
"""An answer may take one request more for as many rows."""
_ROWS_A_REQUEST_OF_GOAL = 100_000
"""The same for the goal."""
_ENTITIES = 100


def run(bench: Bench) -> None:
    """Asks every class, compares every answer with the truth, and records the ratios."""
    classes = bench.plan.counted
    of_rows = {question.name: question for questions in classes.values() for question in questions}
    counted = _count(bench, ROWS_TABLE, list(of_rows.values()))
    for name, questions in classes.items():
        _record(bench, name, [counted[question.name] for question in questions])
    _paths(bench)


def _paths(bench: Bench) -> None:
    asked = [
        Question(f"path of {pid}", where=(("pid", "=", pid),)) for pid in entities(bench.truth, _ENTITIES, seed=1)
    ]
    for question in asked:
        bench.plan.truth[question.name] = bench.truth.answer(question)
    counted = _count(bench, PATHS_TABLE, asked)
    _record(bench, "entity", list(counted.values()))


def _count(bench: Bench, table: str, questions: list[Question]) -> dict[str, dict]:
    asked, answered = bench.folder / f"{table}-questions.json", bench.folder / f"{table}-counts.json"
    asked.write_text(json.dumps([_as_json(question) for question in questions]))
    bench.run_counter(
        "tables-count", "--store", bench.store(table), "--table", table, "--questions", asked, "--out", answered
    )
    counted = {each["name"]: each for each in json.loads(answered.read_text())}
    for question in questions:
        _check(bench, question, counted[question.name])
    bench.measured.detail[f"counts of table {table}"] = list(counted.values())
    return counted


def _as_json(question: Question) -> dict:
    return {
        "name": question.name,
        "expression": question.expression(),
        "share": question.share,
        "limit": question.limit,
    }


def _check(bench: Bench, question: Question, counted: dict) -> None:
    sums = counted["sums"]
    found = Answer(**{field.name: sums[field.name] for field in fields(Answer)})
    expected = bench.plan.truth[question.name]
    if not found.agrees(expected):
        bench.measured.wrong.append(f"atoll, {question.name}: {found} instead of {expected}")
    if counted["bytes"] > counted["bytes_below"] or counted["requests"] > counted["requests_below"]:
        bench.measured.wrong.append(f"atoll, {question.name}: counts more work than reached the store: {counted}")


def touched(counted: list[dict]) -> list[float]:
    """Rows touched divided by rows returned, for questions that returned any."""
    return [each["rows_touched"] / each["rows_returned"] for each in counted if each["rows_returned"]]


def read(counted: list[dict]) -> list[float]:
    """Bytes read divided by bytes returned, for questions that returned any."""
    return [each["bytes_below"] / each["bytes_returned"] for each in counted if each["bytes_returned"]]


def requests(counted: list[dict], rows: int) -> list[float]:
    """Requests of every question, less one for each `rows` rows returned."""
    return [each["requests_below"] - each["rows_returned"] / rows for each in counted]


def _record(bench: Bench, name: str, counted: list[dict]) -> None:
    """Records median and p95 of what a class of questions takes."""
    costs = {
        "touched": touched(counted),
        "bytes": read(counted),
        "requests": requests(counted, _ROWS_A_REQUEST),
        "goal requests": requests(counted, _ROWS_A_REQUEST_OF_GOAL),
    }
    for what, each in costs.items():
        bench.measured.record(f"{what} {name} median", median(each))
        bench.measured.record(f"{what} {name} p95", quantile(each, 0.95))
    if counted:
        shown = ", ".join(f"{what} {median(each):.2f} (p95 {quantile(each, 0.95):.2f})" for what, each in costs.items())
        told(f"  {name}: {len(counted)} questions, {shown}")
