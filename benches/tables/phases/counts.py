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
_ENTITIES = 100


def run(bench: Bench) -> None:
    """Asks every class, compares every answer with the truth, and records the ratios."""
    classes = bench.plan.counted
    of_rows = {question.name: question for questions in classes.values() for question in questions}
    counted = _count(bench, ROWS_TABLE, list(of_rows.values()))
    for name, questions in classes.items():
        _touched(bench, name, [counted[question.name] for question in questions])
    _bytes_and_requests(bench, counted)
    _paths(bench)


def _paths(bench: Bench) -> None:
    asked = [
        Question(f"path of {pid}", where=(("pid", "=", pid),)) for pid in entities(bench.truth, _ENTITIES, seed=1)
    ]
    for question in asked:
        bench.plan.truth[question.name] = bench.truth.answer(question)
    counted = _count(bench, PATHS_TABLE, asked)
    _touched(bench, "entity", list(counted.values()))


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


def _touched(bench: Bench, name: str, counted: list[dict]) -> None:
    ratios = touched(counted)
    bench.measured.record(f"touched {name} median", median(ratios))
    bench.measured.record(f"touched {name} p95", quantile(ratios, 0.95))
    if ratios:
        told(f"  {name}: {len(ratios)} questions, touched {median(ratios):.2f}x, p95 {quantile(ratios, 0.95):.2f}x")


def _bytes_and_requests(bench: Bench, counted: dict[str, dict]) -> None:
    def read(name: str) -> list[float]:
        asked = [counted[question.name] for question in bench.plan.counted[name]]
        return [each["bytes_below"] / each["bytes_returned"] for each in asked if each["bytes_returned"]]

    bench.measured.record("bytes all", median(read("large")))
    bench.measured.record("bytes first", median(read("large first")))
    boxes = [counted[question.name] for question in bench.plan.counted["all boxes"]]
    requests = [each["requests_below"] - each["rows_returned"] / _ROWS_A_REQUEST for each in boxes]
    bench.measured.record("requests median", median(requests))
    bench.measured.record("requests p95", quantile(requests, 0.95))
